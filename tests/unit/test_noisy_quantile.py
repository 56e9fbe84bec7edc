"""Quantiles: the choice by enumeration, its law, coverage, and columns that lack values."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from neighbouring import neighbours, tables
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.accounting.losses import BoundedRangeLoss
from statpress.mechanisms.domain.columns import Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.noisy_quantile import (
    EndRule,
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


def generator(key: int = 1) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key))


def law(table: tuple[int, ...], wanted: int, above: float, below: float) -> np.ndarray:
    """Probabilities of the cells by the definition."""
    ends = np.concatenate([[0], np.cumsum(table)])
    costs = np.maximum(np.maximum(above * (ends[:-1] - wanted), below * (wanted - ends[1:])), 0)
    return np.asarray(np.exp(-costs) / np.exp(-costs).sum())


@pytest.mark.parametrize("guard", [0.5, 0.8])
@pytest.mark.parametrize("wanted", [0, 1, 2, 4])
def test_a_choice_has_the_divergences_of_a_bounded_range(wanted: int, guard: float) -> None:
    """Every pair of neighbours: the range of the loss, its curve and its divergences."""
    claimed, short = BoundedRangeLoss(F(7, 10)), BoundedRangeLoss(F(7, 20))
    ranges, refuted = [0.0], False
    for a, b in neighbours(4, 3):
        p, q = (law(each, wanted, 0.7 * guard, 0.7 * (1 - guard)) for each in (a, b))
        ranges.append(float(np.ptp(np.log(p / q))))
        for e in (-0.3, 0.0, 0.2, 0.5):
            curve = float(np.maximum(p - math.exp(e) * q, 0).sum())
            assert curve <= claimed.delta(e).upper + 1e-12
            refuted |= curve > short.delta(e).upper + 1e-6  # half the sensitivity
        for order in (1.001, 2.0, 9.0):
            divergence = math.log(np.sum(p * (p / q) ** (order - 1))) / (order - 1)
            assert divergence <= claimed.renyi(order).upper + 1e-12
            assert divergence <= order * claimed.rho.upper
    assert max(ranges) <= 0.7 + 1e-12
    assert refuted or wanted in (0, 4)
    if wanted in (1, 2):  # a + b is what it costs, whichever is larger
        assert max(ranges) > 0.6


def test_choices_follow_their_law() -> None:
    table, rng = (3, 0, 0, 4, 1, 0, 1), generator()
    cells = np.flatnonzero(table)
    runs = runs_of(cells, np.array(table)[cells], 7)
    drawn = [choose_cell(runs, 4, rng, above=F(4, 5), below=F(1, 5)) for _ in range(2500)]
    seen = np.bincount(drawn, minlength=7)
    assert stats.chisquare(seen, 2500 * law(table, 4, 0.8, 0.2)).pvalue > LEVEL
    assert stats.chisquare(seen, 2500 * law(table, 4, 0.2, 0.8)).pvalue < LEVEL


def failures(
    made: NoisyQuantile, each_table: list[tuple[int, ...]], wanted: tuple[int, int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """float64[tables, cells]: of each cell, that the lower end is above and the upper end below."""
    low, high = wanted or made.wanted[1:]
    steep, gentle = float(made.ends.steep), float(made.ends.gentle)
    lower = np.array([law(table, low, steep, gentle) for table in each_table]) * (low >= 0)
    upper = np.array([law(table, high, gentle, steep) for table in each_table])
    upper *= high <= made.n_records
    return lower[:, ::-1].cumsum(1)[:, ::-1] - lower, upper.cumsum(1) - upper


@pytest.mark.parametrize("share", [F(1, 2), F(1, 5)])
def test_no_small_population_is_missed_more_often(share: Fraction) -> None:
    """Exactly, over all tables: random laws, atoms, and quantiles between two cells."""
    rng = np.random.default_rng(3)
    laws = [rng.dirichlet([each] * 3) for each in (0.1, 0.3, 1.0, 5.0) for _ in range(20)]
    laws += [np.array(each) for each in ((0.2, 0, 0.8), (0.5, 0, 0.5), (0.5, 0.5, 0), (0, 1, 0))]
    chances = [[stats.multinomial.pmf(t, 6, masses) for t in tables(6, 3)] for masses in laws]
    for epsilon, level in ((F(6), 0.5), (F(30), 0.9), (F(30), 0.2)):
        made = NoisyQuantile((0.0, 1.0, 2.0, 3.0), share, level, epsilon, 6)
        low, high = (np.array(chances) @ each for each in failures(made, tables(6, 3)))
        allowed = (1 - level) / (2 if made.wanted[1] >= 0 and made.wanted[2] <= 6 else 1)
        for i, masses in enumerate(laws):
            below = np.concatenate([[0], np.cumsum(masses)])
            for x in np.flatnonzero((below[:-1] <= share) & (below[1:] >= float(share) - 1e-12)):
                assert low[i, x] + high[i, x] <= 1 - level + 1e-9
                assert max(low[i, x], high[i, x]) <= allowed + 1e-9


@pytest.mark.parametrize(("n", "cells", "epsilon"), [(60, 40, F(8)), (400, 300, F(2))])
def test_the_wanted_count_is_the_largest_that_every_population_bears(
    n: int, cells: int, epsilon: Fraction
) -> None:
    """Where half the records are in the first cell and half in the last, one more is too many."""
    made = NoisyQuantile(tuple(map(float, range(cells + 1))), F(1, 2), 0.9, epsilon, n)
    steps = [(s, *(0,) * (cells - 2), n - s) for s in range(n + 1)]
    chances = stats.binom.pmf(np.arange(n + 1), n, 0.5)
    _, low, high = made.wanted
    assert 0.045 < (chances @ failures(made, steps)[0])[0] <= 0.05
    assert (chances @ failures(made, steps, (low + 1, high))[0])[0] > 0.05


@pytest.mark.parametrize("rate", [0.02, 0.3, 4.0])
def test_wanted_counts_are_those_of_exact_sums(rate: float) -> None:
    """Against sums in many digits: never too large, less by little where offsets are skipped."""

    def chance(masses: list[Any], others: int, r: int) -> Any:
        odds = [others * mpmath.exp(-mpmath.mpf(rate) * (s - r)) for s in range(len(masses))]
        h = [each / (1 + each) if s >= r else 1 for s, each in enumerate(odds)]
        return mpmath.fdot(masses, h)

    with mpmath.workdps(40):
        for n, share, others in ((30, F(1, 2), 1), (900, F(9, 10), 199)):
            rule = EndRule(float(share), rate, others, 0.025)
            q = mpmath.mpf(share.numerator) / share.denominator
            masses = [mpmath.binomial(n, s) * q**s * (1 - q) ** (n - s) for s in range(n + 1)]
            found = rule.wanted(n)
            assert chance(masses, others, found) <= 0.025
            assert chance(masses, others, found + math.ceil(0.1 / rate)) > 0.025


def test_loss_is_three_choices() -> None:
    made = NoisyQuantile((0.0, 1.0, 2.0), F(1, 2), 0.9, F(3, 2), 100)
    assert made.loss().pure_epsilon == pytest.approx((1.5, 1.5))
    ends, value = BoundedRangeLoss(F(5, 8)).rho.upper, BoundedRangeLoss(F(1, 4)).rho.upper
    assert made.loss().rho.upper == pytest.approx(2 * ends + value)
    assert made.ends.steep + made.ends.gentle == F(5, 8)


def coverage(made: NoisyQuantile, draw: str, runs: int = 80) -> tuple[float, float]:
    """Share of intervals that cover, and their mean width, over runs of the real release."""
    data, rng, hits, width = np.random.default_rng(4), generator(5), 0, 0.0
    edges = np.array(made.edges)
    truth = {"uniform": float(made.share), "atoms": 0.3}[draw]
    for _ in range(runs):
        x = data.random(made.n_records)
        if draw == "atoms":
            x = np.where(x < 0.8, 0.3, x)
        at = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
        cells, counts = np.unique(at, return_counts=True)
        found = made.release(cells, counts, rng)
        hits += found.lower <= truth <= found.upper
        width += found.upper - found.lower
    return hits / runs, width / runs


@pytest.mark.parametrize(
    ("draw", "share"),
    [
        ("uniform", F(1, 2)),
        pytest.param("uniform", F(1, 20), marks=pytest.mark.nightly),
        ("atoms", F(1, 2)),
    ],
)
def test_coverage_is_at_least_the_level(draw: str, share: Fraction) -> None:
    edges = tuple(np.linspace(0, 1, 257).tolist())
    made = NoisyQuantile(edges, share, 0.9, F(1), 2000)
    found, width = coverage(made, draw)
    assert found >= stats.binom.ppf(LEVEL, 80, 0.9) / 80
    assert width < 0.25


class WithoutTheTail(NoisyQuantile):
    wanted = (1000, 995, 1005)  # type: ignore[assignment]


def test_an_interval_without_the_binomial_tail_is_caught() -> None:
    made = NoisyQuantile(tuple(np.linspace(0, 1, 257).tolist()), F(1, 2), 0.9, F(300), 2000)
    assert coverage(made, "uniform", 40)[0] > 0.88
    twin = WithoutTheTail(made.edges, F(1, 2), 0.9, F(300), 2000)
    assert coverage(twin, "uniform", 40)[0] < 0.6


def test_ends_out_of_reach_are_those_of_the_range() -> None:
    made = NoisyQuantile((0.0, 1.0, 2.0, 3.0), F(1, 2), 0.9, F(1, 10), 20)
    found = made.release(np.array([1]), np.array([20]), generator())
    assert (found.lower, found.upper) == (0.0, 3.0)
    assert found.value in (0.5, 1.5, 2.5)
    assert made.expected_share == 1


def test_an_end_beside_one_out_of_reach_may_fail_with_all_that_is_left() -> None:
    edges = tuple(map(float, range(101)))
    made = NoisyQuantile(edges, F(19, 20), 0.9, F(1), 300)
    assert made.wanted[2] > 300
    assert made.wanted[1] == made.ends.low._replace(failure=1 - made.level).wanted(300)
    assert made.wanted[1] > made.ends.low._replace(failure=(1 - made.level) / 2).wanted(300)
    lacking = NoisyQuantile(edges, F(19, 20), 0.9, F(1), 300, values_lacking=True)
    assert lacking.ends.low.failure == (1 - made.level) / 2


def test_what_is_refused() -> None:
    good = {
        "edges": (0.0, 1.0), "share": F(1, 2), "level": 0.9, "epsilon": F(1), "n_records": 5,
    }  # fmt: skip
    for bad in (
        {"edges": (0.0,)}, {"edges": (0.0, math.inf)}, {"edges": (1.0, 1.0)}, {"share": F(1)},
        {"level": 0.0}, {"epsilon": F(0)}, {"n_records": 0},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            NoisyQuantile(**{**good, **bad})


# Of the records that have a value


CELLS = 3
Wanted = Callable[[int], tuple[int, int, int]]


HALF, EPSILON = F(1, 2), F(3)


def made(n: int, share: Fraction = HALF, epsilon: Fraction = EPSILON) -> NoisyQuantile:
    edges = tuple(map(float, range(CELLS + 1)))
    return NoisyQuantile(edges, share, 0.9, epsilon, n, values_lacking=True)


def law_with_nulls(
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
def tables_with_nulls(n: int) -> list[tuple[int, ...]]:
    """All tables of n records; the last count is of those without a value."""
    every = itertools.product(range(n + 1), repeat=CELLS + 1)
    return [table for table in every if sum(table) == n]


def widest_range(n: int, wanted: Wanted) -> float:
    """Largest range of the loss of any of the three choices, at epsilon 1, over all neighbours."""
    rates = ((0.5, 0.5), (0.7, 0.3), (0.3, 0.7))
    laws = {
        table: [
            law_with_nulls(table[:-1], r, *rates[i], end=i > 0)
            for i, r in enumerate(wanted(sum(table[:-1])))
        ]
        for table in tables_with_nulls(n)
    }
    return max(
        float(np.ptp(np.log(one / two)))
        for a, b in itertools.combinations(tables_with_nulls(n), 2)
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
def test_no_small_population_is_missed_more_often_with_nulls(laws_of_each: int) -> None:
    """Exactly, over all tables of the records that have a value and those that have none."""
    rng = np.random.default_rng(8)
    quantile = made(5, HALF, F(24))
    steep, gentle = float(quantile.ends.steep), float(quantile.ends.gentle)
    laws = [rng.dirichlet([each] * 4) for each in (0.2, 1.0) for _ in range(laws_of_each)]
    for masses in [*laws, np.array([0.4, 0, 0.4, 0.2]), np.array([0.3, 0.3, 0.0, 0.4])]:
        below = np.concatenate([[0], np.cumsum(masses[:-1])]) / masses[:-1].sum()
        for x in np.flatnonzero((below[:-1] <= 0.5) & (below[1:] >= 0.5 - 1e-12)):
            low = high = 0.0
            for table in tables_with_nulls(5):
                _, r, s = quantile.wanted_of(sum(table[:-1]))
                chance = float(stats.multinomial.pmf(table, 5, masses))
                low += chance * law_with_nulls(table[:-1], r, steep, gentle)[x + 1 :].sum()
                high += chance * law_with_nulls(table[:-1], s, gentle, steep)[:x].sum()
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


def test_choices_follow_their_law_with_nulls() -> None:
    """The ends, where the wanted count is out of reach as well, and where nobody has a value."""
    rng = np.random.Generator(AESCounter(key=3))
    for table, wanted in (((3, 0, 0, 4, 1, 0, 0), -2), ((0, 0, 2, 0, 5, 0, 0), 9), ((0,) * 7, 1)):
        cells = np.flatnonzero(table)
        runs = runs_of(cells, np.array(table)[cells], 7)
        ends = without_end(runs)
        drawn = [choose_cell(ends, wanted, rng, above=HALF, below=HALF) for _ in range(1500)]
        seen = np.bincount(drawn, minlength=7)
        assert stats.chisquare(seen, 1500 * law_with_nulls(table, wanted, 0.5, 0.5)).pvalue > LEVEL
        twin = law_with_nulls(table, wanted, 0.5, 0.5, end=False)
        assert stats.chisquare(seen, 1500 * twin).pvalue < LEVEL


def coverage_with_nulls(
    quantile: NoisyQuantile, lacking: float, runs: int = 80
) -> tuple[float, float]:
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
def test_coverage_is_at_least_the_level_with_nulls(lacking: float, widest: float) -> None:
    edges = tuple(np.linspace(0, 1, 257).tolist())
    quantile = NoisyQuantile(edges, F(1, 2), 0.9, F(1), 2000, values_lacking=True)
    found, width = coverage_with_nulls(quantile, lacking)
    assert found >= stats.binom.ppf(LEVEL, 80, 0.9) / 80
    assert width <= widest


class WithoutTheTailWithNulls(NoisyQuantile):
    def wanted_of(self, present: int) -> tuple[int, int, int]:
        return present // 2, present // 2 - 5, present // 2 + 5


def test_an_interval_without_the_binomial_tail_is_caught_with_nulls() -> None:
    edges = tuple(np.linspace(0, 1, 257).tolist())
    quantile = NoisyQuantile(edges, F(1, 2), 0.9, F(300), 2000, values_lacking=True)
    assert coverage_with_nulls(quantile, 0.4, 40)[0] > 0.88
    twin = WithoutTheTailWithNulls(edges, F(1, 2), 0.9, F(300), 2000, values_lacking=True)
    assert coverage_with_nulls(twin, 0.4, 40)[0] < 0.6


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
