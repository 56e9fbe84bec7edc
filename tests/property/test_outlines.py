"""Outlines of places: what neighbours share they share when it is simplified, within the bytes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
from countries import country
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.places import outlines
from statpress.mechanisms.places.outlines import extent, is_path, rings_of, simplified, tile

Edge = tuple[tuple[float, float], tuple[float, float]]


def edges(path: str) -> Counter[frozenset[tuple[int, int]]]:
    return Counter(
        frozenset(edge) for ring in rings_of(path) for edge in pairwise([*ring, ring[0]])
    )


def open_inside(paths: dict[str, str], side: int) -> int:
    """Edges of one place only that are not on the outer border: gaps and overlaps."""
    counted = sum(map(edges, paths.values()), Counter())
    ends = [extent(path) for path in paths.values()]
    widths = [max(each[k + 2] for each in ends) for k in (0, 1)]
    apart = [
        min(min(middle, width - middle) * side / width for middle, width in zip(
            (sum(point[k] for point in edge) / 2 for k in (0, 1)), widths, strict=True))
        for edge, n in counted.items() if n == 1
    ]  # fmt: skip
    return sum(each > 0.4 for each in apart)


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(side=st.integers(2, 4), seed=st.integers(0, 10**6), most=st.sampled_from([10**6, 900]))
def test_neighbours_stay_neighbours(side: int, seed: int, most: int) -> None:
    """Every edge inside is of exactly two places: there are no gaps and no overlaps."""
    drawn = simplified(country(side, seed), most)
    assert all(map(is_path, drawn.values()))
    assert open_inside(drawn, side) == 0
    assert max(extent(path)[2] for path in drawn.values()) <= outlines.WIDEST


def test_places_that_simplify_what_they_share_apart_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twin: without junctions every ring is cut where it happens to be widest."""
    assert open_inside(simplified(country(3, 1), 900), 3) == 0
    monkeypatch.setattr(outlines, "_junctions", lambda rings: set())
    assert open_inside(simplified(country(3, 1), 900), 3) > 0


@pytest.mark.parametrize(
    ("side", "points"),
    [(4, 6_000), pytest.param(12, 30_000, marks=pytest.mark.nightly)],
)
def test_paths_keep_to_the_bytes_and_to_the_shape(side: int, points: int) -> None:
    places = country(side, 5, points=200)
    for most in (416 * side**2, 104 * side**2):
        drawn = simplified(places, most)
        assert most / 3 < sum(map(len, drawn.values())) <= most
        areas = {name: area(path) for name, path in drawn.items()}
        mean = sum(areas.values()) / len(areas)
        assert all(abs(each / mean - 1) < 0.35 for each in areas.values())
    wound = [(math.cos(k / 1e5), math.sin(k / 9)) for k in range(points)]
    (path,) = simplified({"one": [[*wound, wound[0]]]}).values()
    assert len(path) <= outlines.LONGEST
    (whole,) = simplified({"one": [[(0, 0), (0, 60), (60, 60), (60, 0), (0, 0)]]}).values()
    assert whole.count("M") == 1 and len(next(rings_of(whole))) == 4


def area(path: str) -> float:
    return sum(
        abs(sum(a[0] * b[1] - a[1] * b[0] for a, b in pairwise([*ring, ring[0]])) / 2)
        for ring in rings_of(path)
    )


def test_areas_are_true() -> None:
    """Of equal squares of a degree the one nearer to the pole is smaller, as on the globe."""

    def square(latitude: int) -> list[list[tuple[float, float]]]:
        return [[(0, latitude), (5, latitude), (5, latitude + 5), (0, latitude + 5), (0, latitude)]]

    drawn = simplified({"south": square(0), "north": square(60)})
    true = [math.sin(math.radians(low + 5)) - math.sin(math.radians(low)) for low in (0, 60)]
    assert area(drawn["north"]) / area(drawn["south"]) == pytest.approx(true[1] / true[0], rel=0.02)


def test_an_island_smaller_than_a_step_stays() -> None:
    speck = [(10.0, 50.0), (10.00001, 50.0), (10.00001, 50.00001), (10.0, 50.0)]
    land = [(0.0, 40.0), (20.0, 40.0), (20.0, 60.0), (0.0, 60.0), (0.0, 40.0)]
    drawn = simplified({"land": [land], "speck": [speck]})
    assert area(drawn["speck"]) == 1


@pytest.mark.parametrize("text", ["", "M1 2", "M1 2l3 4", "M1 2l3 4z<script>", "M1 2l3 4 5z", "x"])
def test_what_is_not_a_path(text: str) -> None:
    assert not is_path(text)
    assert is_path(tile(3, 4))
