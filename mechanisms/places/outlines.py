"""Outlines of places for a map: paths of whole numbers, few enough for a page.

**Projection.** Lambert's cylindrical equal-area projection (1772), with the standard parallel in
the middle of the map: areas are true, so that no place looks larger than it is.

**Simplifying.** What two places have in common has to stay in common. So rings are cut where
outlines meet, at points with more than two neighbours, and each piece is simplified once, from the
same end, for all who share it (Douglas and Peucker 1973, doi 10.3138/FM57-6770-U75U-7727), and then
put on the grid of the map. The tolerance is doubled until the paths are small enough, and then the
steps of the grid. A place of which nothing is left, an island smaller than a step, keeps the square
that it lies in.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[int, int]
Ring = Sequence[tuple[float, float]]
"""Longitude and latitude in degrees; the last point is the first again."""

WIDEST = 2000
"""Steps of the longer side of a map, where the bytes allow it."""
_FINE = WIDEST * 2**10  # steps in which points are told apart
_TOLERANCE, _COARSER = 0.7, range(5)  # steps, and how often they and their tolerance double
MOST_BYTES = 400_000
"""Of all paths together."""
LONGEST = 32_000
"""Bytes of one path, which is a text of a data file: SPSS takes 32,767."""
_PART = re.compile(r"M(\d{1,5}) (\d{1,5})l(-?\d{1,5} -?\d{1,5}(?: -?\d{1,5} -?\d{1,5})*)z")
_PATH = re.compile(f"(?:{_PART.pattern})+")


@dataclass(frozen=True)
class Outlines:
    """Outlines of all places of a level, which serve the levels above it too.

    Attributes:
        level: Of the geography's tree.
        paths: By place an SVG path ``M x y l dx dy ... z``, in whole steps to the right and down.
        labels: By place what is written into it; may be blank.
    """

    level: int
    paths: tuple[str, ...]
    labels: tuple[str, ...]


def tile(row: int, column: int, side: int = 20) -> str:
    """The path of a square of a grid, counted from 0.

    >>> tile(0, 2)
    'M40 0l20 0 0 20 -20 0z'
    """
    return f"M{column * side} {row * side}l{side} 0 0 {side} {-side} 0z"


def is_path(text: str) -> bool:
    """Whether a text is a path as ``Outlines`` has them."""
    return _PATH.fullmatch(text) is not None


def extent(path: str) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a path.

    >>> extent("M40 0l20 0 0 20 -20 0z")
    (40, 0, 60, 20)
    """
    xs, ys = zip(*(point for ring in rings_of(path) for point in ring), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def rings_of(path: str) -> Iterator[list[Point]]:
    """The rings of a path, without the first point again."""
    for x, y, steps in _PART.findall(path):
        ring = [(int(x), int(y))]
        numbers = list(map(int, steps.split()))
        for dx, dy in zip(numbers[::2], numbers[1::2], strict=True):
            ring.append((ring[-1][0] + dx, ring[-1][1] + dy))
        yield ring


def simplified(rings: Mapping[str, Sequence[Ring]], most: int = MOST_BYTES) -> dict[str, str]:
    """Paths of places, by name.

    Args:
        rings: By name of a place its rings, outer and inner alike.
        most: Bytes of all paths together, as far as the number of places allows it.
    """
    placed, drawn = _placed(rings), dict[str, str]()
    junctions = _junctions(ring for own in placed.values() for ring in own)
    for coarser, smoother in itertools.product(_COARSER, _COARSER):
        step = _FINE // WIDEST * 2**coarser
        tolerance = _TOLERANCE * 2**smoother * step
        drawn = {
            name: "".join(_paths(own, junctions, tolerance, step)) for name, own in placed.items()
        }
        lengths = list(map(len, drawn.values()))
        if sum(lengths) <= most and max(lengths) <= LONGEST:
            break
    return drawn


def _placed(rings: Mapping[str, Sequence[Ring]]) -> dict[str, list[list[Point]]]:
    """The rings in fine steps on the map, without points that are the same."""
    points = [point for own in rings.values() for ring in own for point in ring]
    latitudes = [latitude for _, latitude in points]
    cosine = max(0.05, math.cos(math.radians((min(latitudes) + max(latitudes)) / 2)))
    xs = [math.radians(longitude) * cosine for longitude, _ in points]
    ys = [-math.sin(math.radians(latitude)) / cosine for latitude in latitudes]
    left, top = min(xs), min(ys)
    step = max(max(xs) - left, max(ys) - top, 1e-9) / _FINE
    grid = iter([(round((x - left) / step), round((y - top) / step))
                 for x, y in zip(xs, ys, strict=True)])  # fmt: skip
    placed: dict[str, list[list[Point]]] = {}
    for name, own in rings.items():
        placed[name] = []
        for ring in own:
            moved = [next(grid) for _ in ring]
            placed[name].append([b for a, b in pairwise(moved) if a != b] or moved[:1])
    return placed


def _junctions(rings: Iterable[Sequence[Point]]) -> set[Point]:
    """Points with more or fewer neighbours than two."""
    neighbours: dict[Point, set[Point]] = {}
    for ring in rings:
        for a, b in pairwise([*ring, ring[0]]):
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    return {point for point, others in neighbours.items() if len(others) != 2}


def _paths(
    rings: Sequence[list[Point]], junctions: set[Point], tolerance: float, step: int
) -> Iterator[str]:
    """The rings of a place simplified, or the square of the largest if nothing is left of any."""
    left = False
    for ring in rings:
        points = [
            (round(x / step), round(y / step))
            for x, y in _simplified_ring(ring, junctions, tolerance)
        ]
        kept = [b for a, b in pairwise([points[-1], *points]) if a != b]
        if len(set(kept)) > 2:
            left = True
            yield _path(kept)
    if not left:
        x, y = (round(each / step) for each in max(rings, key=len)[0])
        yield _path([(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)])


def _simplified_ring(ring: list[Point], junctions: set[Point], tolerance: float) -> list[Point]:
    cuts = [k for k, point in enumerate(ring) if point in junctions]
    if len(cuts) < 2:  # from points that every place with this ring chooses
        first = cuts[0] if cuts else min(range(len(ring)), key=ring.__getitem__)
        far = max(range(len(ring)), key=lambda k: (math.dist(ring[k], ring[first]), ring[k]))
        cuts = sorted({first, far})
    kept: list[Point] = []
    turned = ring[cuts[0] :] + ring[: cuts[0] + 1]
    ends = [cut - cuts[0] for cut in cuts] + [len(ring)]
    for start, end in pairwise(ends):
        piece = turned[start : end + 1]
        backwards = piece[::-1] < piece
        simple = _douglas_peucker(piece[::-1] if backwards else piece, tolerance)
        kept += (simple[::-1] if backwards else simple)[:-1]
    return kept


def _douglas_peucker(piece: Sequence[Point], tolerance: float) -> list[Point]:
    """The points of a line that it cannot do without."""
    keep, open_parts = {0, len(piece) - 1}, [(0, len(piece) - 1)]
    while open_parts:
        start, end = open_parts.pop()
        (ax, ay), (bx, by) = piece[start], piece[end]
        dx, dy, length = bx - ax, by - ay, math.dist(piece[start], piece[end])
        far, worst = tolerance, 0
        for k in range(start + 1, end):
            x, y = piece[k][0] - ax, piece[k][1] - ay
            along = (x * dx + y * dy) / length**2 if length else 0.0
            along = min(1.0, max(0.0, along))
            apart = math.hypot(x - along * dx, y - along * dy)
            if apart > far:
                far, worst = apart, k
        if worst:
            keep.add(worst)
            open_parts += [(start, worst), (worst, end)]
    return [piece[k] for k in sorted(keep)]


def _path(ring: Sequence[Point]) -> str:
    steps = " ".join(f"{b[0] - a[0]} {b[1] - a[1]}" for a, b in pairwise(ring))
    return f"M{ring[0][0]} {ring[0][1]}l{steps}z"
