"""The variance of sums of a table's estimates, by the covariance of every two cells."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from statpress.mechanisms.postprocessing.covariance import (
    Floats,
    IndependentErrors,
    MultinomialErrors,
    OtherErrors,
)

COUNTS = np.array([5, 0, 3, 12, 1])
PSEUDOCOUNT, DRAWS = Fraction(7, 2), 9
N = int(COUNTS.sum())
TOTAL = N + float(PSEUDOCOUNT) * len(COUNTS)
GROUPS = [
    list(group)
    for size in range(1, len(COUNTS) + 1)
    for group in itertools.combinations(range(len(COUNTS)), size)
]


LAW = (PSEUDOCOUNT, DRAWS, N, len(COUNTS))


def by_enumeration() -> Floats:
    """The covariance of all estimates: of one draw of a cell, by going through its outcomes."""
    p = (COUNTS + float(PSEUDOCOUNT)) / TOTAL
    outcomes = np.eye(len(COUNTS)) * TOTAL / DRAWS  # what a draw of each cell adds to estimates
    middle = p @ outcomes
    one = sum(
        chance * np.outer(row - middle, row - middle)
        for chance, row in zip(p, outcomes, strict=True)
    )
    return np.asarray(DRAWS * one)


def stated(errors: MultinomialErrors, group: list[int]) -> float:
    sums, cells = np.array([COUNTS[group].sum()], float), np.array([len(group)], float)
    (found,) = errors.variances_of_sums(sums, np.zeros(1), cells)
    return float(found)


@dataclass(frozen=True)
class Careless(MultinomialErrors):
    """Twin: adds up the variances of the cells as if they were independent."""

    def variances_of_sums(self, sums: Floats, variances: Floats, cells: Floats) -> Floats:
        p = (sums + float(self.pseudocount) * cells) / TOTAL
        return np.asarray(TOTAL**2 / self.records * p)


def wrong(errors: MultinomialErrors) -> int:
    """Of how many groups of cells another variance is stated than there is."""
    covariance = by_enumeration()
    true = [covariance[np.ix_(group, group)].sum() for group in GROUPS]
    return sum(
        abs(stated(errors, group) - each) > 1e-9 * TOTAL**2
        for group, each in zip(GROUPS, true, strict=True)
    )


def test_drawn_records_have_the_variance_of_their_covariance() -> None:
    assert wrong(MultinomialErrors(*LAW)) == 0
    assert wrong(Careless(*LAW)) == len(GROUPS)


def test_a_sum_that_cannot_be_is_taken_as_far_as_it_can_be() -> None:
    errors = MultinomialErrors(*LAW)
    low, empty, full, high = errors.variances_of_sums(
        np.array([-50.0, 0.0, N, N + 50.0]), np.zeros(4), np.ones(4)
    )
    assert low == empty > 0
    assert high == full


def test_independent_noise_adds_up_and_what_is_not_known_says_why() -> None:
    one = np.array([4.0, 9.0])
    found = IndependentErrors().variances_of_sums(one, one, one)
    np.testing.assert_array_equal(found, one)
    with pytest.raises(ValueError, match="nobody knows"):
        OtherErrors("nobody knows").variances_of_sums(one, one, one)


@pytest.mark.parametrize(
    ("pseudocount", "draws", "n", "n_cells", "least"),
    [("1.55", 2, 600, 60, 0.8), ("21.6", 22, 17_137, 60, 0.9), ("326", 326, 10**6, 60, 0.94)],
)
def test_intervals_of_few_draws_hold_whatever_the_data(
    pseudocount: str, draws: int, n: int, n_cells: int, least: float
) -> None:
    errors, k = MultinomialErrors(Fraction(pseudocount), draws, n, n_cells), float(pseudocount)
    total, drawn = n + k * n_cells, np.arange(draws + 1)
    estimates, one = total * drawn / draws - k, np.ones(draws + 1)
    wide = errors.errors_of_sums(estimates, one, one)
    plain = np.sqrt(errors.variances_of_sums(estimates, one, one))
    held: dict[str, list[float]] = {"wide": [], "plain": []}
    for true in np.linspace(0, n, 101):
        chances = binom.pmf(drawn, draws, (true + k) / total)
        for name, error in (("wide", wide), ("plain", plain)):
            held[name].append(float(chances[np.abs(estimates - true) <= 1.96 * error].sum()))
    assert min(held["wide"]) >= least > min(held["plain"])
    assert float(np.mean(held["wide"])) >= 0.95


def test_intervals_of_many_draws_and_of_noise_are_those_of_the_deviation() -> None:
    sums, cells = np.array([1000.0, 9000.0]), np.array([10.0, 10.0])
    errors = MultinomialErrors(PSEUDOCOUNT, 10**8, 10_000, 20)
    found = errors.errors_of_sums(sums, sums, cells)
    plain = errors.variances_of_sums(sums, sums, cells)
    np.testing.assert_allclose(found, np.sqrt(plain), rtol=1e-3)
    noise = IndependentErrors().errors_of_sums(sums, sums * 100, cells)
    np.testing.assert_allclose(noise, np.sqrt(sums * 100), rtol=3e-3)


@pytest.mark.parametrize("scale", [0.44, 0.53, 0.77, 1.01, 2.02])
@pytest.mark.parametrize("power", [1, 2])
def test_intervals_of_little_whole_noise_hold(scale: float, power: int) -> None:
    """Of scales at which 1.96 deviations of it end just before a whole number, too."""
    z = np.arange(-60, 61)
    chances = np.exp(-((np.abs(z) / scale) ** power) / power)
    chances /= chances.sum()
    variance, one = np.array([(chances * z**2).sum()]), np.ones(1)
    (error,) = IndependentErrors().errors_of_sums(one, variance, one)
    assert chances[np.abs(z) <= 1.96 * error].sum() >= 0.94
    assert error <= np.sqrt(variance[0]) + 1 / 1.95
