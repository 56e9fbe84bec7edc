"""Coefficients of occupational prestige on six predictors, of samples of real and made-up records.

The survey's records (``happiness``, without the 5 % that lack a value) are the population; samples
with replacement of its size are released. The made-up population has the same columns. Standard
errors are compared with those of least squares on the sample itself.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Column, Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.regression_moments import RegressionEstimate
from statpress.mechanisms.mechanism import Target
from statpress.tasks import source
from statpress.tasks.release.entropy import SeededRandomness

HAPPY = ("not too happy", "pretty happy", "very happy")
COLUMNS: tuple[Column, ...] = (
    Integer(name="prestige", lower=10, upper=89),
    Integer(name="educ", lower=0, upper=20),
    Categorical(name="female", categories=(0, 1)),
    Categorical(name="black", categories=(0, 1)),
    Integer(name="babies", lower=0, upper=3),
    Integer(name="year", lower=1994, upper=2006),
    Categorical(name="happy", categories=HAPPY),
)
DOMAIN = Domain(COLUMNS)
NAMES = [column.name for column in COLUMNS]
N, LEVEL = 17_000, 0.95


@functools.cache
def population(name: str) -> np.ndarray:
    """Codes of the population's records, int64[k, 7]."""
    if name == "survey":
        path = Path(str(source.__file__)).parent / "demo" / "happiness.parquet"
        read = pd.read_parquet(path)[NAMES].dropna()
        values = [read[column.name] for column in COLUMNS]
        lower = [10, 0, 0, 0, 0, 1994]
        codes = [np.asarray(v, np.int64) - low for v, low in zip(values[:-1], lower, strict=True)]
        codes.append(np.array([HAPPY.index(each) for each in values[-1]]))
    else:
        rng, k = np.random.default_rng(12), 400_000
        educ = np.rint(rng.normal(13.3, 2.9, k)).astype(np.int64)
        female, black = (rng.random(k) < 0.56), (rng.random(k) < 0.14)
        babies, year = rng.poisson(0.2, k), rng.integers(0, 13, k)
        happy = np.digitize(rng.random(k) + 0.02 * (educ - 13), [0.12, 0.69])
        prestige = 8 + 2.4 * educ + 0.6 * female - 2 * black + happy + rng.normal(0, 11.5, k)
        codes = [np.rint(prestige).astype(np.int64) - 10, educ, female, black, babies, year, happy]
    sizes = [column.size for column in COLUMNS]
    return np.column_stack(
        [np.clip(each, 0, size - 1) for each, size in zip(codes, sizes, strict=True)]
    ).astype(np.int64)


def least_squares(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their standard errors."""
    y, educ, female, black, babies, year, happy = codes.T.astype(float)
    x = np.column_stack(
        [np.ones(len(y)), educ, female, black, babies, year + 1994, happy == 1, happy == 2]
    )
    b, (rest,) = np.linalg.lstsq(x, y + 10, rcond=None)[:2]
    return b, np.sqrt(rest / (len(y) - 8) * np.diag(np.linalg.inv(x.T @ x)))


class Found(NamedTuple):
    """Shares of samples, float64[8] each."""

    covered: np.ndarray
    covered_by_half: np.ndarray  # by intervals half as long, the broken twin
    ratio: np.ndarray  # of standard errors to those of the sample itself, in the mean
    wald: float  # share of releases with standard errors


def simulated(name: str, epsilon: float, runs: int, n: int = N) -> Found:
    wanted = Target(
        n_records=n, n_cells=DOMAIN.n_possible, domain=DOMAIN, epsilon=epsilon, delta=1e-6
    )
    made = RegressionEstimate.calibrate(EstimandKnobs(statistic="regression"), wanted)
    every = population(name)
    true = least_squares(every)[0]
    rng, noise = np.random.default_rng(21), SeededRandomness(np.random.PCG64(22))
    hits, halved, ratios = np.zeros(8), np.zeros(8), []
    for _ in range(runs):
        codes = every[rng.integers(0, len(every), n)]
        cells = DOMAIN.encode(dict(zip(NAMES, codes.T, strict=True)))
        table = ContingencyTable.from_cells(DOMAIN, cells, np.ones(n, np.int64))
        found = made.estimates(made.release(table, noise))
        low, high = np.array([[each.lower, each.upper] for each in found]).T
        hits += (low <= true) & (true <= high)
        with np.errstate(invalid="ignore"):  # of a whole line, which the twin has no half of
            halved += np.abs((low + high) / 2 - true) <= (high - low) / 4
        if found[0].standard_error is not None:
            errors = np.array([float(each.standard_error or 0) for each in found])
            ratios.append(errors / least_squares(codes)[1])
    mean = np.mean(ratios, axis=0) if ratios else np.full(8, np.nan)
    return Found(hits / runs, halved / runs, mean, len(ratios) / runs)


FULL = pytest.mark.nightly
ALIKE = (("survey", 3.0), ("made up", 1.0))
"""Settings whose quick form says no more than those of the others."""


@pytest.mark.parametrize(
    ("name", "epsilon", "most", "runs"),
    [
        pytest.param(name, *limit, runs, marks=[FULL] * (runs == 400 or (name, limit[0]) in ALIKE))
        for name in ("survey", "made up")
        for limit in ((1.0, 4.25), (3.0, 1.82))
        for runs in (24, 400)
    ],
)
def test_intervals_cover(name: str, epsilon: float, most: float, runs: int) -> None:
    found = simulated(name, epsilon, runs)
    assert found.wald == 1
    least, largest = (stats.binom.ppf(q, 8 * runs, p) / 8 / runs
                      for q, p in ((1e-3, 0.945), (1 - 1e-3, 0.97)))  # fmt: skip
    assert least <= found.covered.mean() <= largest
    assert found.covered.min() >= stats.binom.ppf(1e-4, runs, 0.945) / runs
    assert found.covered_by_half.mean() < least
    assert np.all(found.ratio > 1)
    assert name != "survey" or found.ratio.max() < most


def test_sets_cover_where_noise_hides_the_predictors() -> None:
    found = simulated("survey", 1.0, 12, n=2500)
    assert found.wald < 1 and found.covered.mean() > 0.92
