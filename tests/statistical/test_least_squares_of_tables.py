"""Coverage of coefficients from noisy tables at level 1e-6, and of twins that forget a part.

Two columns of eleven numbers decide a third of two, so that the noise of the predictors' products
is most of the error.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.marginals.linear_moments import ONE, CellFunction, LeastSquares
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, Residuals, combine

SIZES, N, RUNS, LEVEL = (2, 11, 11), 4000, 150, 1e-6
OUTCOME = CellFunction((0,), np.array([-0.5, 0.5]))
REGRESSORS = [ONE, *(CellFunction((column,), np.arange(11) - 5.0) for column in (1, 2))]
GROUPS = [(a,) for a in range(3)] + list(itertools.combinations(range(3), 2))


def population(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.integers(0, 11, (n, 2))
    return np.column_stack([x.sum(axis=1) + rng.normal(0, 3, n) > 10, x]).astype(np.int64)


def coefficients(codes: np.ndarray) -> np.ndarray:
    x = np.column_stack([np.ones(len(codes)), codes[:, 1] - 5, codes[:, 2] - 5])
    return np.linalg.lstsq(x, codes[:, 0] - 0.5)[0]


def released(codes: np.ndarray, rng: np.random.Generator, sd: float) -> Residuals:
    tables = []
    for group in GROUPS:
        counts = np.zeros([SIZES[c] for c in group])
        np.add.at(counts, tuple(codes[:, c] for c in group), 1)
        values = np.rint((counts + rng.normal(0, sd, counts.shape)) * GRID).astype(np.int64)
        tables.append(NoisyTable(group, Fraction(sd) * GRID, values))
    return combine(SIZES, tables, n_present=len(codes))


def without_noise_of_regressors(fitted: LeastSquares) -> LeastSquares:
    """A twin: it takes the regressors' products for exact."""
    noise = fitted.noise.copy()
    noise[1:, 1:] = noise[:, :, 1:, 1:] = 0.0
    return replace(fitted, covariance=noise, noise=noise)


def without_sampling(fitted: LeastSquares) -> LeastSquares:
    """A twin: it takes a sample for the population."""
    return replace(fitted, n=0.0)


Change = Callable[[LeastSquares], LeastSquares]


@functools.cache
def runs(sd: float, *, sampled: bool) -> tuple[np.ndarray, list[LeastSquares]]:
    """The true coefficients, and each run's own."""
    rng, found = np.random.default_rng(3), []
    codes = population(rng, N)
    true = coefficients(population(rng, 1_000_000) if sampled else codes)
    for _ in range(RUNS):
        drawn = population(rng, N) if sampled else codes
        fitted = LeastSquares.of(
            released(drawn, rng, sd), OUTCOME, REGRESSORS, n_sampled=N if sampled else None
        )
        assert fitted.is_clear()
        found.append(fitted)
    return true, found


def p_values(sd: float, *, sampled: bool, change: Change = lambda fitted: fitted) -> list[float]:
    """Of each coefficient, that its interval covers at .95."""
    true, found = runs(sd, sampled=sampled)
    hits = np.zeros(len(true), np.int64)
    for fitted in found:
        hits += [
            each.lower <= b <= each.upper
            for each, b in zip(change(fitted).intervals(0.95), true, strict=True)
        ]
    return [float(stats.binomtest(int(h), RUNS, 0.95).pvalue) for h in hits]


def test_coefficients_of_the_records_are_covered() -> None:
    assert min(p_values(20.0, sampled=False)) > LEVEL
    assert max(p_values(20.0, sampled=False, change=without_noise_of_regressors)) < LEVEL


def test_coefficients_of_a_population_are_covered() -> None:
    assert min(p_values(2.0, sampled=True)) > LEVEL
    assert max(p_values(2.0, sampled=True, change=without_sampling)) < LEVEL


@pytest.mark.parametrize("times", [25, pytest.param(60, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("sd", [60.0, 400.0])
def test_sets_hold_coefficients_however_weak_the_matrix(sd: float, times: int) -> None:
    rng = np.random.default_rng(4)
    codes = population(rng, 300)
    true = coefficients(codes)
    hits = np.zeros(len(true), np.int64)
    for _ in range(times):
        fitted = LeastSquares.of(released(codes, rng, sd), OUTCOME, REGRESSORS)
        hits += [fitted.holds(j, b, 0.95) for j, b in enumerate(true)]
    assert min(stats.binomtest(int(h), times, 0.92, "less").pvalue for h in hits) > LEVEL
    assert fitted.is_clear() == (sd < 1)
