"""The real sampler of counts at two resolutions, at test level 1e-6, and broken twins."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.tables.two_resolutions import BlockCounts, TwoResolutions
from statpress.tasks.release.entropy import SeededRandomness, SystemRandomness

LEVEL = 1e-6
BLOCKS, SCALE = 30_000, Fraction(5, 4)  # of two cells each
COUNTS = 100 + np.arange(2 * BLOCKS) % 7
SUMS = COUNTS.reshape(BLOCKS, 2).sum(axis=1)
SAMPLERS = {
    "system": SystemRandomness(np.random.PCG64(20261128)),
    "seeded": SeededRandomness(np.random.PCG64(20261121)),
}


def drawn(sampler: str) -> BlockCounts:
    domain = Domain((Integer(name="x", lower=0, upper=2 * BLOCKS - 1),))
    private = ContingencyTable(domain, np.arange(2 * BLOCKS), COUNTS)
    return TwoResolutions(SCALE, BLOCKS).release(private, SAMPLERS[sampler])


def p_value(cells: np.ndarray, blocks: np.ndarray, scale: Fraction = SCALE) -> float:
    """Of the joint noise of two cells and their block: independent, of the declared law."""
    reach = 3
    z = np.arange(-60, 61)
    p = np.exp(-(z**2) / (2 * float(scale) ** 2))
    p /= p.sum()
    merged = np.bincount(np.clip(z, -reach, reach) + reach, weights=p)
    noise = (cells - COUNTS).reshape(BLOCKS, 2)
    parts = [noise[:, 0], noise[:, 1], blocks - SUMS]
    size = 2 * reach + 1
    place = np.zeros(BLOCKS, np.int64)
    for part in parts:
        place = place * size + np.clip(part, -reach, reach) + reach
    expected = BLOCKS * np.einsum("i,j,k->ijk", merged, merged, merged).ravel()
    observed = np.bincount(place, minlength=size**3)
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_cells_and_blocks_have_independent_noise_of_the_declared_law(sampler: str) -> None:
    release = drawn(sampler)
    assert p_value(release.counts, release.blocks) > LEVEL
    for factor in (Fraction(7, 8), Fraction(9, 8)):
        assert p_value(release.counts, release.blocks, SCALE * factor) < LEVEL


TWINS: dict[str, Callable[[BlockCounts], np.ndarray]] = {
    "no noise of their own": lambda r: r.counts.reshape(BLOCKS, 2).sum(axis=1),
    "the noise of a cell": lambda r: SUMS + (r.counts - COUNTS)[::2],
    "no noise": lambda r: SUMS,
    "shifted blocks": lambda r: np.roll(r.blocks, 1),
}


@pytest.mark.parametrize("twin", TWINS)
def test_broken_blocks_are_caught(twin: str) -> None:
    release = drawn("seeded")
    assert p_value(release.counts, TWINS[twin](release)) < LEVEL
