"""Quick form of ``places``: two seeds, epsilon .3 and 1, the low shares of the upper levels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks import places
from tests.benchmarks.places import LOW, bias, by_size, made_up, measure, summary


@pytest.fixture(autouse=True)
def smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike areas: a fifth of the records and of the areas, so that an area is as large."""
    whole, fifth = places.case_of, made_up(1.0, records=200_000, areas=404)
    monkeypatch.setattr(places, "case_of", lambda name: fifth if name == "unlike" else whole(name))


@pytest.mark.parametrize(
    ("name", "leaves"),
    [
        ("census", (0.6, 0.6)),
        pytest.param("like", (0.7, 0.7), marks=pytest.mark.nightly),
        ("unlike", (1.04, 0.95)),
    ],
)
def test_no_level_is_worse_than_the_better_of_topdown_and_blue(
    name: str, leaves: tuple[float, float]
) -> None:
    for epsilon, most in zip((0.3, 1.0), leaves, strict=True):
        means = summary([measure(name, epsilon, LOW, seed) for seed in range(2)])
        better = np.minimum(means["topdown"], means["blue"])
        ratios = np.array(means["reading"]) / better
        assert ratios[0] <= 1.1  # of two seeds, from the same estimates as blue
        assert ratios[1] <= 1.03
        assert ratios[2] <= most
        if name == "like":
            assert means["reading"][1] <= 0.5 * means["flat"][1]


def test_small_places_gain_most_and_small_cells_are_less_biased_than_topdown() -> None:
    sizes = by_size("census", 1.0, LOW, 2)
    assert sizes[0]["reading"] < 0.5 * sizes[0]["topdown"]
    assert sizes[-1]["reading"] < 1.1 * sizes[-1]["topdown"]
    smallest = bias("census", 1.0, LOW, 2)[0]
    assert 0 < smallest["reading"] < smallest["topdown"]
