"""The quick form of the table of bands: they hold, and are not much wider than need be."""

from __future__ import annotations

import math

import numpy as np

from tests.benchmarks.band_coverage import KINDS, LEVEL, line, noise_of, rows

REPLICATES, FEW = 500, 40


def test_bands_hold_and_are_nearly_as_narrow_as_an_oracles() -> None:
    found = list(rows("zipf", 300, 0.7, 20, REPLICATES, checked=20 * FEW, widths=100))
    assert tuple(row.kind for row in found) == KINDS
    for row in found:
        checked = FEW if "cumulative" in row.kind else REPLICATES
        assert row.held >= LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / checked)
        assert 0.9 < row.ratio < 1.25
    assert line(found[0]).startswith("zipf        300  0.7    20 cells, counts")


def test_a_band_without_the_noise_is_caught() -> None:
    """The twin: half of the noise that the bands are computed for is missing."""
    found = rows(
        "uniform", 300, 0.3, 20, REPLICATES, checked=20 * FEW, widths=100,
        noise=lambda scale, shape, rng: noise_of(2 * scale, shape, rng),
    )  # fmt: skip
    assert np.all(np.array([row.held for row in found]) < LEVEL - 0.1)
