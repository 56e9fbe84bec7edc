"""Weighted intervals for a population cover it by a declared design, and not without one.

The level of a coverage among runs is tested at 1e-6 by the binomial distribution.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.stats import binom
from weighted_surveys import Measured, Population, covers

LEVEL, TEST = 0.95, 1e-6
SIZES = (12_000, 24_000, 48_000, 96_000)


@functools.cache
def population(clustered: bool) -> Population:
    """A number that follows the stratum, and its cluster if there are any."""
    rng = np.random.default_rng(20261126)
    stratum = np.repeat(np.arange(4), SIZES)
    cluster = np.concatenate([np.arange(size) // 300 for size in SIZES])
    place = rng.integers(0, 4, (4, max(cluster) + 1))[stratum, cluster] if clustered else 0
    x = stratum + place + rng.integers(0, 3, len(stratum))
    return Population({"x": x}, stratum, cluster if clustered else None)


@functools.cache
def coverage(clustered: bool, runs: int) -> dict[str, int]:
    """How often intervals of the mean and the total cover, by what is declared."""
    whole, rng = population(clustered), np.random.default_rng(7)
    first, _ = whole.drawn(rng)
    measured = Measured.of(first, 3.0)
    truth = whole.values["x"]
    found: dict[str, int] = {}
    for _ in range(runs):
        columns, _ = whole.drawn(rng)
        residuals, n = measured.residuals(columns, rng), len(columns["x"])
        for label, strata, clusters, sample in (
            ("noise only", False, False, False),
            ("undeclared", False, False, True),
            ("declared", True, clustered, True),
        ):
            asked = measured.analyses(residuals, n, strata=strata, clusters=clusters, sample=sample)
            hits = {
                "mean": covers(asked.mean("x", {}), float(truth.mean())),
                "total": covers(asked.total("x", {}), float(truth.sum())),
            }
            for figure, hit in hits.items():
                found[f"{label} {figure}"] = found.get(f"{label} {figure}", 0) + hit
    return found


def at_level(hits: int, runs: int, level: float) -> bool:
    """Whether as few hits, or as many, are not too rare at a level."""
    return min(binom.cdf(hits, runs, level), binom.sf(hits - 1, runs, level)) > TEST / 2


FULL = pytest.mark.nightly


@pytest.mark.nightly
@pytest.mark.parametrize("runs", [60, pytest.param(300, marks=FULL)])
@pytest.mark.parametrize("figure", ["mean", "total"])
def test_strata_cover_and_noise_alone_does_not(figure: str, runs: int) -> None:
    found = coverage(False, runs)
    assert at_level(found[f"declared {figure}"], runs, LEVEL)
    assert not at_level(found[f"noise only {figure}"], runs, LEVEL)  # the twin


@pytest.mark.parametrize("runs", [60, pytest.param(300, marks=FULL)])
def test_without_strata_the_interval_of_a_total_is_too_wide(runs: int) -> None:
    found = coverage(False, runs)
    assert found["undeclared total"] > found["declared total"]


@pytest.mark.parametrize("runs", [20, pytest.param(100, marks=FULL)])
@pytest.mark.parametrize("figure", ["mean", "total"])
def test_clusters_cover_and_are_missed_where_they_are_not_declared(figure: str, runs: int) -> None:
    found = coverage(True, runs)
    assert at_level(found[f"declared {figure}"], runs, LEVEL)
    assert not at_level(found[f"undeclared {figure}"], runs, LEVEL)  # the twin
