"""Quantiles of the records that have a value: privacy by enumeration, the law, and coverage."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.domain.columns import Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.noisy_quantile import (
    NoisyQuantile,
    QuantileOfCells,
    choose_cell,
    runs_of,
    without_end,
)
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

F = Fraction
LEVEL = 1e-6
CELLS = 3
Wanted = Callable[[int], tuple[int, int, int]]


HALF, EPSILON = F(1, 2), F(3)


def made(n: int, share: Fraction = HALF, epsilon: Fraction = EPSILON) -> NoisyQuantile:
    edges = tuple(map(float, range(CELLS + 1)))
    return NoisyQuantile(edges, share, 0.9, epsilon, n, values_lacking=True)


def law(
    table: tuple[int, ...], wanted: int, above: float, below: float, *, end: bool = True
) -> np.ndarray:
    """Probabilities of the cells by the definition; for an end the outer cells are without end."""
    ends = np.concatenate([[0], np.cumsum(table)]).astype(float)
    before, after = ends[:-1].copy(), ends[1:].copy()
    if end:
        before[0], after[-1] = -math.inf, math.inf
    costs = np.maximum(np.maximum(above * (before - wanted), below * (wanted - after)), 0)
    return np.asarray(np.exp(-costs) / np.exp(-costs).sum())


@functools.cache
def tables(n: int) -> list[tuple[int, ...]]:
    """All tables of n records; the last count is of those without a value."""
    every = itertools.product(range(n + 1), repeat=CELLS + 1)
    return [table for table in every if sum(table) == n]


def widest_range(n: int, wanted: Wanted) -> float:
    """Largest range of the loss of any of the three choices, at epsilon 1, over all neighbours."""
    rates = ((0.5, 0.5), (0.7, 0.3), (0.3, 0.7))
    laws = {
        table: [
            law(table[:-1], r, *rates[i], end=i > 0) for i, r in enumerate(wanted(sum(table[:-1])))
        ]
        for table in tables(n)
    }
    return max(
        float(np.ptp(np.log(one / two)))
        for a, b in itertools.combinations(tables(n), 2)
        if sum(abs(x - y) for x, y in zip(a, b, strict=True)) == 2
        for one, two in zip(laws[a], laws[b], strict=True)
    )


@pytest.mark.parametrize("share", [F(1, 2), F(1, 10), F(19, 20)])
def test_no_neighbours_lose_more_than_epsilon(share: Fraction) -> None:
    """Also where a record comes to have a value, so that the wanted counts move too."""
    for epsilon in (F(3), F(60)):  # of an error larger, and smaller, than the number of records
        assert widest_range(5, made(5, share, epsilon).wanted_of) <= 1 + 1e-12


def test_wanted_counts_that_move_by_more_are_caught() -> None:
    assert widest_range(5, lambda present: (2 * present, 2 * present, 5 - present)) > 1.05


@pytest.mark.parametrize("laws_of_each", [8, pytest.param(25, marks=pytest.mark.nightly)])
def test_no_small_population_is_missed_more_often(laws_of_each: int) -> None:
    """Exactly, over all tables of the records that have a value and those that have none."""
    rng = np.random.default_rng(8)
    quantile = made(5, HALF, F(24))
    steep, gentle = float(quantile.ends.steep), float(quantile.ends.gentle)
    laws = [rng.dirichlet([each] * 4) for each in (0.2, 1.0) for _ in range(laws_of_each)]
    for masses in [*laws, np.array([0.4, 0, 0.4, 0.2]), np.array([0.3, 0.3, 0.0, 0.4])]:
        below = np.concatenate([[0], np.cumsum(masses[:-1])]) / masses[:-1].sum()
        for x in np.flatnonzero((below[:-1] <= 0.5) & (below[1:] >= 0.5 - 1e-12)):
            low = high = 0.0
            for table in tables(5):
                _, r, s = quantile.wanted_of(sum(table[:-1]))
                chance = float(stats.multinomial.pmf(table, 5, masses))
                low += chance * law(table[:-1], r, steep, gentle)[x + 1 :].sum()
                high += chance * law(table[:-1], s, gentle, steep)[:x].sum()
            assert max(low, high) <= 0.05 + 1e-9


@pytest.mark.parametrize("n", [1, 7, 60, 1000])
@pytest.mark.parametrize("share", [F(1, 2), F(1, 10), F(19, 20)])
def test_wanted_counts_move_by_no_more_than_the_records(n: int, share: Fraction) -> None:
    quantile = made(n, share)
    found = np.array([quantile.wanted_of(present) for present in range(n + 1)])
    assert set(np.diff(found, axis=0).ravel().tolist()) <= {0, 1}
    plain = NoisyQuantile(tuple(map(float, range(CELLS + 1))), share, 0.9, F(3), n)
    if (plain.wanted[1] < 0) == (plain.wanted[2] > n):
        assert tuple(found[-1]) == plain.wanted  # with no null nothing is lost


@pytest.mark.parametrize("n", [300, 20_000])
def test_wanted_counts_are_outside_those_of_as_many_records_and_close(n: int) -> None:
    quantile = made(n, F(3, 10))
    for present in range(0, n + 1, n // 20 - 1):
        _, low, high = quantile.wanted_of(present)
        exact = quantile.ends.low.wanted(present), present - quantile.ends.high.wanted(present)
        slack = 3 + 0.1 * np.sqrt(present)  # offsets skipped, and sizes between those of the grid
        assert exact[0] - slack <= low <= exact[0] + 2
        assert exact[1] - 2 <= high <= exact[1] + slack


def test_choices_follow_their_law() -> None:
    """The ends, where the wanted count is out of reach as well, and where nobody has a value."""
    rng = np.random.Generator(AESCounter(key=3))
    for table, wanted in (((3, 0, 0, 4, 1, 0, 0), -2), ((0, 0, 2, 0, 5, 0, 0), 9), ((0,) * 7, 1)):
        cells = np.flatnonzero(table)
        runs = runs_of(cells, np.array(table)[cells], 7)
        ends = without_end(runs)
        drawn = [choose_cell(ends, wanted, rng, above=HALF, below=HALF) for _ in range(1500)]
        seen = np.bincount(drawn, minlength=7)
        assert stats.chisquare(seen, 1500 * law(table, wanted, 0.5, 0.5)).pvalue > LEVEL
        twin = law(table, wanted, 0.5, 0.5, end=False)
        assert stats.chisquare(seen, 1500 * twin).pvalue < LEVEL


def coverage(quantile: NoisyQuantile, lacking: float, runs: int = 80) -> tuple[float, float]:
    """Share of intervals that cover, and their mean width, where values are uniform."""
    data, rng = np.random.default_rng(4), np.random.Generator(AESCounter(key=5))
    edges, hits, width = np.array(quantile.edges), 0, 0.0
    for _ in range(runs):
        x = data.random(quantile.n_records)[data.random(quantile.n_records) >= lacking]
        cells, counts = np.unique(np.searchsorted(edges, x, side="right") - 1, return_counts=True)
        _, low, high = quantile.chosen(cells, counts, rng)
        hits += edges[low] <= float(quantile.share) <= edges[high + 1]
        width += edges[high + 1] - edges[low]
    return hits / runs, width / runs


@pytest.mark.parametrize(
    ("lacking", "widest"),
    [pytest.param(0.4, 0.2, marks=pytest.mark.nightly), (0.97, 1.0)],
)
def test_coverage_is_at_least_the_level(lacking: float, widest: float) -> None:
    edges = tuple(np.linspace(0, 1, 257).tolist())
    quantile = NoisyQuantile(edges, F(1, 2), 0.9, F(1), 2000, values_lacking=True)
    found, width = coverage(quantile, lacking)
    assert found >= stats.binom.ppf(LEVEL, 80, 0.9) / 80
    assert width <= widest


class WithoutTheTail(NoisyQuantile):
    def wanted_of(self, present: int) -> tuple[int, int, int]:
        return present // 2, present // 2 - 5, present // 2 + 5


def test_an_interval_without_the_binomial_tail_is_caught() -> None:
    edges = tuple(np.linspace(0, 1, 257).tolist())
    quantile = NoisyQuantile(edges, F(1, 2), 0.9, F(300), 2000, values_lacking=True)
    assert coverage(quantile, 0.4, 40)[0] > 0.88
    twin = WithoutTheTail(edges, F(1, 2), 0.9, F(300), 2000, values_lacking=True)
    assert coverage(twin, 0.4, 40)[0] < 0.6


def test_the_median_leaves_out_nulls_and_not_as_zeros() -> None:
    """Of a column of which six in ten are null, and whose zeros would be the median."""
    column = Numeric(name="pay", edges=Numeric.uniform_edges(0, 100, 200), missing=True)
    domain = Domain((column,))
    codes = np.r_[np.full(6000, column.missing_code), np.arange(120, 160).repeat(100)]
    table = ContingencyTable.from_cells(domain, codes, np.ones(len(codes), np.int64))
    for statistic, share in (("median", None), ("quantile", F(9, 10))):
        knobs = EstimandKnobs(statistic=statistic, q=share, confidence=0.9)
        wanted = Target(epsilon=2.0, delta=0.0, n_records=10_000, n_cells=201, domain=domain)
        mechanism = QuantileOfCells.calibrate(knobs, wanted)
        raw = mechanism.release(table, SeededRandomness(np.random.PCG64(1)))
        (found,) = mechanism.estimates(raw)
        true = 60 + 20 * float(share or F(1, 2))
        assert found.lower <= true <= found.upper
        assert abs(found.value - true) < 2 and found.upper - found.lower < 6
        assert mechanism.expected_error(n_records=10_000, n_cells=201).width[0] is not None


def test_whole_numbers_with_nulls() -> None:
    column = Integer(name="x", lower=0, upper=9, missing=True)
    wanted = Target(epsilon=30.0, delta=0.0, n_records=90, n_cells=11, domain=Domain((column,)))
    mechanism = QuantileOfCells.calibrate(EstimandKnobs(statistic="median"), wanted)
    nobody = ContingencyTable(Domain((column,)), np.array([10]), np.array([90]))
    (found,) = mechanism.estimates(mechanism.release(nobody, SeededRandomness(np.random.PCG64(1))))
    assert 0 <= found.lower <= found.upper <= 9
