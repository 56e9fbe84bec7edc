"""Reconciled tables: errors against the whole matrix, variances of sums, a biased twin."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from constrained_least_squares import CellwiseTable, solved
from numpy.typing import NDArray
from scipy.stats import binom

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.postprocessing.consistency import (
    NoisyTable,
    disagreement,
    make_consistent,
)
from statpress.mechanisms.postprocessing.covariance import (
    DebiasedTable,
    IndependentErrors,
    MultinomialErrors,
    OtherErrors,
    ReleasedTable,
    reconcile,
)
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.tasks.release.entropy import SeededRandomness

Floats = NDArray[np.float64]
SIZES = {"a": 2, "b": 3, "c": 2, "d": 1, "e": 4}
SCHEMES = [
    ("ab", "bc", "ca"),  # a cycle
    ("ab", "cb", "b"),
    ("ab", "ce"),  # nothing in common but the total
    ("abc", "cab", "cb", "a"),  # axes in different orders
    ("ad", "db", "d"),  # a column of one code
    ("be",),
]


def domain(names: str) -> Domain:
    return Domain(tuple(Integer(name=n, lower=0, upper=SIZES[n] - 1) for n in names))


def made(scheme: Sequence[str], seed: int) -> list[ReleasedTable]:
    """Tables with uneven variances, every other one drawn (its errors add up to 0)."""
    rng = np.random.default_rng(seed)
    tables = []
    for i, names in enumerate(scheme):
        shape = tuple(SIZES[n] for n in names)
        estimates = rng.normal(20, 9, shape)
        drawn = (i + seed) % 2 == 0
        if drawn:
            estimates += (100 - estimates.sum()) / estimates.size
        variances, weight = np.exp(rng.normal(0, 1.5, shape)), float(np.exp(rng.normal()))
        tables.append(ReleasedTable(domain(names), estimates, variances, weight, drawn))
    return tables


def by_matrix(tables: Sequence[ReleasedTable]) -> list[Floats]:
    """Standard errors through the whole matrix of the map, column by column."""
    sizes = [t.estimates.size for t in tables]
    ends = np.cumsum(sizes)[:-1]

    def mapped(cells: Floats, total: float) -> Floats:
        parts = np.split(cells, ends)
        noisy = [
            NoisyTable(t.domain, part.reshape(t.estimates.shape), t.weight)
            for t, part in zip(tables, parts, strict=True)
        ]
        return np.concatenate([t.estimates.ravel() for t in make_consistent(noisy, total=total)])

    matrix = np.stack([mapped(unit, 0.0) for unit in np.eye(sum(sizes))], axis=1)
    covariance = np.zeros((sum(sizes), sum(sizes)))
    for start, t in zip([0, *ends], tables, strict=True):
        v = t.variances.ravel()
        block = np.diag(v) - (np.outer(v, v) / v.sum() if t.drawn else 0)
        covariance[start : start + len(v), start : start + len(v)] = block
    variances = np.diag(matrix @ covariance @ matrix.T)
    return np.split(np.sqrt(np.maximum(variances, 0)), ends)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_errors_are_those_of_the_whole_matrix(scheme: Sequence[str], seed: int) -> None:
    tables = made(scheme, seed)
    found = reconcile(tables, total=100.0)
    assert disagreement([(t.domain, t.estimates) for t in found], total=100.0) < 1e-9
    for table, errors in zip(found, by_matrix(tables), strict=True):
        assert table.standard_errors.ravel() == pytest.approx(errors, rel=1e-9, abs=1e-6)


def test_the_correlation_of_drawn_cells_matters() -> None:
    # A table of two drawn cells adds up to n already, so nothing is gained by knowing it.
    cells = Domain((Integer(name="a", lower=0, upper=1),))
    table = ContingencyTable(cells, np.array([0, 1]), np.array([30, 70]))
    debiased = Bootstrap(2, 100).postprocess(table, n_records=50)
    drawn = ReleasedTable.of_draws(debiased, Fraction(2), records=100, n_records=50)
    found = reconcile([drawn], total=50.0)[0]
    assert found.estimates == pytest.approx(debiased.estimates)
    assert found.standard_errors == pytest.approx(debiased.standard_errors)
    independent = reconcile([ReleasedTable.of_noise(debiased)], total=50.0)[0]
    assert independent.standard_errors[0] < 0.8 * debiased.standard_errors[0]


def test_unlisted_cells_have_the_shared_estimate_and_the_least_probability() -> None:
    table = ContingencyTable(domain("e"), np.array([1]), np.array([8]))
    debiased = Bootstrap(2, 8).postprocess(table, n_records=12)
    released = ReleasedTable.of_draws(debiased, Fraction(2), records=8, n_records=12)
    assert released.estimates.tolist() == [-2, 18, -2, -2]
    assert released.variances.tolist() == [5.0, 35.0, 5.0, 5.0]  # 20 * (2, 14, 2, 2) / 8
    assert released.weight == 12.5


def errors_of(twin: bool, repetitions: int) -> tuple[Floats, Floats, Floats]:
    """Errors of the cells of a table, of its marginal on b, and the cells' stated variances.

    Two drawn tables, a few draws in most cells. The twin weights cells by the
    variances that the draw itself suggests.
    """
    rng = np.random.default_rng(20)
    whole = Domain(tuple(Integer(name=n, lower=0, upper=u) for n, u in (("a", 1), ("b", 19))))
    truth = np.full((2, 20), 4, dtype=np.int64)
    truth[0, 0] = 200
    n = int(truth.sum())
    parts = [(whole, truth.ravel(), 1, 300), (whole.project(["b"]), truth.sum(axis=0), 1, 150)]
    errors, stated = [], []
    for _ in range(repetitions):
        tables: list[Any] = []
        for part, counts, pseudocount, records in parts:
            p = (counts + pseudocount) / (n + pseudocount * part.n_cells)
            drawn = rng.multinomial(records, p)
            cells = np.flatnonzero(drawn)
            table = ContingencyTable(part, cells, drawn[cells])
            debiased = Bootstrap(pseudocount, records).postprocess(table, n_records=n)
            k = Fraction(pseudocount)
            tables.append(
                CellwiseTable.from_debiased(debiased)
                if twin
                else ReleasedTable.of_draws(debiased, k, records=records, n_records=n)
            )
        found = (solved if twin else reconcile)(tables, total=float(n))[0]
        errors.append(found.estimates - truth)
        stated.append(found.standard_errors**2)
    cells_errors = np.array(errors)
    return cells_errors, cells_errors.sum(axis=1), np.mean(stated, axis=0)


@pytest.mark.parametrize("runs", [400, pytest.param(800, marks=pytest.mark.nightly)])
def test_estimates_have_no_bias_and_the_stated_error_and_the_twin_is_biased(runs: int) -> None:
    # 60 means at level 1e-6 in all: 5.5 standard errors; 40 variances: 7 of theirs.
    cells, marginal, stated = errors_of(twin=False, repetitions=runs)

    def bias(errors: Floats) -> float:
        return float(np.abs(errors.mean(axis=0) / errors.std(axis=0)).max()) * runs**0.5

    def misstated(cells: Floats, stated: Floats) -> float:
        return float(np.abs(cells.var(axis=0) / stated - 1).max()) / (2 / runs) ** 0.5

    assert max(bias(cells), bias(marginal)) < 5.5
    assert misstated(cells, stated) < 7
    cells, marginal, stated = errors_of(twin=True, repetitions=runs)
    assert min(bias(cells), bias(marginal)) > 10
    assert misstated(cells, stated) > 9


def test_noise_of_two_tables_is_pooled() -> None:
    # The same column twice, in noise of one size: half the variance, less the known total.
    table = ContingencyTable(domain("e"), np.array([0]), np.array([10]))
    mechanism = GaussianTable(Fraction(3))
    rng = SeededRandomness(np.random.PCG64(1))
    released = [
        ReleasedTable.of_noise(mechanism.postprocess(mechanism.release(table, rng), n_records=10))
        for _ in range(2)
    ]
    found = reconcile(released, total=10.0)
    assert found[0].estimates == pytest.approx(found[1].estimates)
    assert found[0].standard_errors == pytest.approx(np.full(4, np.sqrt(9 / 2 * 3 / 4)))


def test_what_is_too_much_is_refused() -> None:
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=0) for i in range(11))
    one = ReleasedTable(Domain(columns), np.ones([1] * 11), np.ones([1] * 11), 1.0, drawn=False)
    with pytest.raises(ValueError, match="more than 10 columns"):
        reconcile([one, one], total=1.0)
    wide = Domain((Integer(name="a", lower=0, upper=10**7),))
    none, empty = np.zeros(0), np.zeros(0, dtype=np.int64)
    with pytest.raises(ValueError, match="10,000,001 cells"):
        ReleasedTable.of_noise(DebiasedTable(wide, empty, none, none, 0.0, 1.0))
    column = Integer(name="a", lower=0, upper=2)
    zero = ZeroPattern((("a", ((2, 2),)),))
    for partial in (Domain((column,), (zero,)), Domain((column,), absent=True)):
        with pytest.raises(ValueError, match="all combinations"):
            ReleasedTable.of_noise(DebiasedTable(partial, empty, none, none, 0.0, 1.0))


# The variance of sums of a table's estimates, by the covariance of every two cells


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
