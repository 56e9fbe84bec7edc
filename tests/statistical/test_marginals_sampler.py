"""The real sampler of the private steps of marginals, at test level 1e-6, and broken twins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from coded import dependent_codes, domain_of, in_memory
from scipy import stats

from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.marginals.measurement import GdpFilter, measure_tables, score_pairs
from statpress.mechanisms.marginals.residuals import GRID
from statpress.tasks.release.entropy import SeededRandomness, SystemRandomness

LEVEL = 1e-6
SIZES = (120, 125)
CODES = dependent_codes(500, SIZES, 3)
CODED = in_memory(domain_of(SIZES), CODES)
SAMPLERS = {
    "system": SystemRandomness(np.random.PCG64(20261128)),
    "seeded": SeededRandomness(np.random.PCG64(20261122)),
}


def tables(sampler: str, unit_records: int) -> np.ndarray:
    """Noise float64[15000] of a table, over the standard deviation that its amount means."""
    amount = Fraction(1, 3)
    (found,) = measure_tables(
        CODED,
        [(0, 1)],
        [amount],
        unit_records=unit_records,
        adjacency=Adjacency.REPLACE_ONE,
        budget=GdpFilter(amount),
        rng=SAMPLERS[sampler],
    )
    (exact,) = CODED.tables([(0, 1)])
    sigma = (2 * unit_records**2 / float(amount)) ** 0.5
    return ((found.values - exact * GRID) / GRID / sigma).ravel()


def scores(sampler: str, unit_records: int) -> np.ndarray:
    """Noise float64[600] of scores, likewise."""
    amount = Fraction(1, 5)
    sizes = [2] * 25
    codes = dependent_codes(60, sizes, 5)
    coded = in_memory(domain_of(sizes), codes)
    pairs = [(a, b) for a in range(25) for b in range(a + 1, 25)]
    references = {pair: np.full((2, 2), 15, np.int64) for pair in pairs}
    noise = []
    for _ in range(2):
        found = score_pairs(
            coded,
            references,
            amount,
            unit_records=unit_records,
            adjacency=Adjacency.REPLACE_ONE,
            budget=GdpFilter(amount),
            rng=SAMPLERS[sampler],
        )
        exact = [
            np.abs(t - references[p]).sum()
            for p, t in zip(pairs, coded.tables(pairs), strict=False)
        ]
        sigma = (4 * unit_records**2 * len(pairs) / float(amount)) ** 0.5
        noise.append((found.distances - exact) / sigma)
    return np.concatenate(noise)


def p_values(noise: np.ndarray) -> list[float]:
    """Of a standard normal sample: its law, its variance, the independence of neighbours."""
    pairs = np.corrcoef(noise[:-1], noise[1:])[0, 1] * len(noise) ** 0.5
    square = stats.chi2(len(noise)).cdf(float((noise**2).sum()))
    return [
        float(stats.kstest(noise, "norm").pvalue),
        float(2 * min(square, 1 - square)),
        float(2 * stats.norm.sf(abs(pairs))),
    ]


@pytest.mark.parametrize("unit_records", [1, 3])
@pytest.mark.parametrize("step", [tables, scores])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_steps_have_independent_noise_of_what_they_spend(sampler, step, unit_records) -> None:
    noise = step(sampler, unit_records)
    assert min(p_values(noise)) > LEVEL
    for factor in (0.7, 1.3):
        assert min(p_values(noise * factor)) < LEVEL


TWINS = {
    "half the noise": lambda noise: noise / 2,
    "no noise": lambda noise: noise * 0,
    "the sensitivity of one record less": lambda noise: noise * 2 / 3,
    "one draw for two cells": lambda noise: np.repeat(noise[::2], 2),
}


@pytest.mark.parametrize("twin", TWINS)
def test_broken_steps_are_caught(twin: str) -> None:
    with np.errstate(invalid="ignore"):
        found = p_values(TWINS[twin](tables("seeded", 3)))
    assert min(0.0 if np.isnan(p) else p for p in found) < LEVEL
