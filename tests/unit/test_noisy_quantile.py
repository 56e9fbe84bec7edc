"""Quantiles: the choice by enumeration over neighbours, its law, and coverage."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from neighbouring import neighbours, tables
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.accounting.losses import BoundedRangeLoss
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.noisy_quantile import (
    EndRule,
    NoisyQuantile,
    choose_cell,
    runs_of,
)

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
