"""The lattice accountant against enumeration, convolution, a binomial sum and dp-accounting."""

import functools
import itertools
import logging
import math
from collections.abc import Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any

import mpmath
import numpy as np
import pytest
from neighbouring import hockey_stick, multinomial, neighbours, tables
from scipy import stats

from statpress.mechanisms.accounting import draws
from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.errors import InfeasibleBudgetError, RecordsError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.bootstrap import Bootstrap, BootstrapKnobs

EPSILONS = (0.0, 0.1, 0.3, 0.4, 0.9, 1.7)
FULL = pytest.mark.nightly


@pytest.fixture(autouse=True, scope="module")
def by_contour() -> Iterator[None]:
    """Few draws by the contour too, though they are summed otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "FEW_DRAWS", 0)
        yield


def neighbours_by_replacing_records(table: tuple[int, ...], c: int) -> Iterator[tuple[int, ...]]:
    """All tables in which the c records of one unit are replaced."""
    cells = range(len(table))
    for removed in itertools.combinations_with_replacement(cells, c):
        for added in itertools.combinations_with_replacement(cells, c):
            moved = list(table)
            for cell in removed:
                moved[cell] -= 1
            if min(moved) < 0:
                continue
            for cell in added:
                moved[cell] += 1
            if tuple(moved) != table:
                yield tuple(moved)


@pytest.mark.parametrize(("n", "cells", "c"), [(3, 3, 1), (4, 3, 2), (3, 4, 3)])
def test_neighbours_by_two_definitions(n: int, cells: int, c: int) -> None:
    replaced = {(a, b) for a in tables(n, cells) for b in neighbours_by_replacing_records(a, c)}
    assert replaced == set(neighbours(n, cells, c))


@functools.cache
def laws_of(n: int, n_cells: int, kappa: Fraction, m: int) -> dict[tuple[int, ...], Any]:
    """What is released of every table."""
    return {
        table: multinomial([(h + kappa) / (n + kappa * n_cells) for h in table], m)
        for table in tables(n, n_cells)
    }


def worst(n: int, n_cells: int, c: int, kappa: Fraction, m: int, epsilon: float) -> float:
    """Largest hockey-stick divergence over all neighbouring pairs."""
    laws = laws_of(n, n_cells, kappa, m)
    factor = Fraction(math.exp(epsilon))
    return max(
        float(hockey_stick(laws[a], laws[b], factor))
        for a in laws
        if tuple(sorted(a)) == a  # the others are these with their cells renamed
        for b in neighbours_by_replacing_records(a, c)
    )


@pytest.mark.parametrize(
    ("n", "n_cells", "c", "kappa", "m"),
    [
        (3, 3, 1, Fraction(1, 2), 3),
        (1, 2, 1, Fraction(1, 3), 4),
        (1, 3, 1, Fraction(2), 4),
        (2, 2, 1, Fraction(1), 5),
        (4, 2, 2, Fraction(3, 2), 3),
        (4, 3, 2, Fraction(13, 10), 3),
        (5, 3, 1, Fraction(2, 7), 2),
        (2, 4, 1, Fraction(1, 10), 3),
        (3, 4, 3, Fraction(1), 2),
    ],
)
def test_enumeration_of_every_neighbouring_pair(
    n: int, n_cells: int, c: int, kappa: Fraction, m: int
) -> None:
    mechanism = Bootstrap(kappa, m)
    for epsilon in EPSILONS:
        claim = mechanism.loss(n_records=n, n_cells=n_cells, unit_records=c).delta(epsilon).upper
        found = worst(n, n_cells, c, kappa, m, epsilon)
        assert found <= claim + 1e-12
        if n_cells >= 3 or n == 1:  # where the pair is attained
            assert found == pytest.approx(claim, abs=1e-12)


def test_enumeration_catches_a_claim_for_half_the_pseudocount() -> None:
    honest = Bootstrap(Fraction(1, 2), 3)
    broken = worst(3, 3, 1, Fraction(1, 4), 3, 0.3)
    assert broken > honest.loss(n_records=3, n_cells=3).delta(0.3).upper + 1e-3


def test_enumeration_catches_a_claim_for_one_record_where_a_unit_has_two() -> None:
    broken = worst(4, 3, 2, Fraction(13, 10), 3, 0.4)
    assert (
        broken > Bootstrap(Fraction(13, 10), 3).loss(n_records=4, n_cells=3).delta(0.4).upper + 1e-3
    )


def test_stated_check_values() -> None:
    first = Bootstrap(Fraction(1, 2), 3).loss(n_records=3, n_cells=3).delta(0.3).upper
    second = (
        Bootstrap(Fraction(13, 10), 3).loss(n_records=4, n_cells=3, unit_records=2).delta(0.4).upper
    )
    assert first == pytest.approx(0.3827354, abs=5e-8)
    assert second == pytest.approx(0.3599588, abs=5e-8)


def by_binomials(loss: DrawsLoss, epsilon: float) -> float:
    """Sum over the number of draws that hit either cell, a binomial, and their split."""
    p, q, m = float(loss.up), float(loss.down), loss.draws
    step = math.log(loss.up / loss.down)
    first = math.floor(epsilon / step) + 1
    mean, sd = m * (p + q), math.sqrt(m * (p + q))
    hits = np.arange(max(0, int(mean - 14 * sd)), int(mean + 14 * sd))
    above = stats.binom.sf(np.ceil((hits + first) / 2) - 1, hits, p / (p + q))
    below = stats.binom.cdf(np.floor((hits - first) / 2), hits, p / (p + q))
    return float(stats.binom.pmf(hits, m, p + q) @ (above - math.exp(epsilon) * below))


@pytest.mark.parametrize(
    ("kappa", "m", "n", "n_cells", "epsilon"),
    [
        (1000, 38_365_708, 10**6, 1000, 1.0),
        (1000, 38_459_154, 10**6, 1000, 1.0),
        (100, 60_881, 10_000, 20, 0.5),
        (3, 5_000, 10_000, 400, 1.5),
    ],
)
def test_against_a_sum_over_binomials(
    kappa: int, m: int, n: int, n_cells: int, epsilon: float
) -> None:
    loss = Bootstrap(kappa, m).loss(n_records=n, n_cells=n_cells)
    low, high = loss.delta(epsilon)
    expected = by_binomials(loss, epsilon)
    assert low <= high
    assert expected == pytest.approx(high, rel=1e-9)
    assert high - low <= 1e-12 * high


def privacy_loss_distributions() -> ModuleType:
    """dp-accounting, without the handler that its logging library leaves at the root.

    That handler keeps the standard error of the moment of import, which pytest closes.
    """
    before = list(logging.root.handlers)
    from dp_accounting.pld import privacy_loss_distribution

    logging.root.handlers[:] = before
    return privacy_loss_distribution


@pytest.mark.parametrize(
    ("kappa", "m"),
    [(7, 300), pytest.param(1, 40, marks=FULL), pytest.param(40, 5_000, marks=FULL)],
)
def test_against_dp_accounting(kappa: int, m: int) -> None:
    pld = privacy_loss_distributions()
    frame = {"n_records": 500, "n_cells": 12}
    loss = Bootstrap(kappa, m).loss(**frame)
    p = {0: float(loss.up), 1: float(loss.down), 2: float(1 - loss.up - loss.down)}
    q = {0: p[1], 1: p[0], 2: p[2]}
    logs = [{z: math.log(v) for z, v in pair.items()} for pair in (p, q)]
    composed = pld.from_two_probability_mass_functions(
        *logs, value_discretization_interval=1e-5, symmetric=True
    ).self_compose(m)
    for epsilon in (0.1, 0.5, 1.0):
        theirs = composed.get_delta_for_epsilon(epsilon)  # pessimistic
        ours = loss.delta(epsilon).upper
        assert ours <= theirs + 1e-12
        generous = loss.delta(max(0.0, epsilon - m * 1e-5)).upper
        assert theirs <= generous + 1e-9


@functools.cache
def convolved(loss: DrawsLoss) -> dict[int, Fraction]:
    """Chances of the multiples of the step, by brute force in exact fractions."""
    rest = 1 - loss.up - loss.down
    pmf = {0: Fraction(1)}
    for _ in range(loss.draws):
        step: dict[int, Fraction] = {}
        for j, mass in pmf.items():
            for jump, weight in ((1, loss.up), (-1, loss.down), (0, rest)):
                step[j + jump] = step.get(j + jump, Fraction(0)) + mass * weight
        pmf = step
    return pmf


def by_convolution(loss: DrawsLoss, epsilon: float) -> mpmath.mpf:
    ratio = loss.up / loss.down
    with mpmath.workdps(60):
        unit = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        return sum(
            mpmath.mpf(mass.numerator) / mass.denominator * (1 - mpmath.exp(epsilon - unit * j))
            for j, mass in convolved(loss).items()
            if unit * j > epsilon
        )


@pytest.mark.parametrize(
    "n_cells", [2, 2**62, *(pytest.param(n, marks=FULL) for n in (3, 10, 10**6))]
)
@pytest.mark.parametrize("kappa", [Fraction(1, 10**6), Fraction(1, 3), Fraction(5), Fraction(900)])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 7), (10, 24), (10**9, 16)])
def test_bounds_enclose_exact_convolution(n: int, n_cells: int, kappa: Fraction, m: int) -> None:
    loss = Bootstrap(kappa, m).loss(n_records=n, n_cells=n_cells)
    unit = math.log(loss.up / loss.down)
    for epsilon in (-0.7, 0.0, 1e-9, 0.3, unit * 0.5, unit * 1.5, unit * m * 0.9, unit * m):
        low, high = loss.delta(epsilon)
        exact = by_convolution(loss, epsilon)
        slack = mpmath.mpf(10) ** -30
        assert low <= exact + slack * exact
        assert exact <= high + slack * exact
        assert high - low <= 1e-11 * high + 1e-320


def test_pure_epsilon_is_where_delta_ends() -> None:
    loss = Bootstrap(5, 12).loss(n_records=40, n_cells=6)
    low, high = loss.pure_epsilon
    assert low <= 12 * math.log(6 / 5) <= high
    assert loss.delta(high).upper == 0.0
    assert loss.delta(low * (1 - 1e-9)).lower > 0.0
    assert loss.epsilon(0.0) == (low, high)


def test_epsilon_inverts_delta() -> None:
    loss = Bootstrap(100, 60_881).loss(n_records=10_000, n_cells=20)
    for delta in (0.1, 1e-2, 1e-6, 1e-12, 1e-100):
        low, high = loss.epsilon(delta)
        assert loss.delta(high).upper <= delta
        assert loss.delta(low * (1 - 1e-12)).lower > delta
        assert high - low <= 1e-11 * high


@pytest.mark.parametrize("m", [10**6, 10**9, 10**12, 10**15])
def test_far_below_and_above_the_mean_loss(m: int) -> None:
    loss = Bootstrap(10, m).loss(n_records=1000, n_cells=50)
    mean = m * float(loss.up - loss.down) * math.log(1.1)
    near_one = loss.delta(mean / 1.5 if m > 10**7 else mean / 20)
    assert near_one.lower > 0.9 if m > 10**7 else near_one.lower > 0.5
    assert near_one.upper <= 1.0
    assert loss.delta(mean * 3).upper < 1e-6


def test_no_loss_where_there_is_one_cell() -> None:
    assert Bootstrap(1, 10).loss(n_records=3, n_cells=1).delta(0.0).upper == 0.0
    assert Bootstrap(1, 10).loss(n_records=3, n_cells=1).epsilon(0.0).upper == 0.0


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -math.inf])
def test_epsilon_must_be_finite(epsilon: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Bootstrap(1, 10).loss(n_records=3, n_cells=2).delta(epsilon)


@pytest.mark.parametrize(
    "kappa",
    [Fraction(1, 10**15), 1, 10**15]
    + [pytest.param(kappa, marks=FULL) for kappa in (Fraction(1, 10**9), 10**9)],
)
@pytest.mark.parametrize("n_cells", [2, 1000, 2**63 - 1])
@pytest.mark.parametrize(("n", "m"), [(1, 10**15), (10**6, 10**9), (10**12, 10**12)])
def test_bounds_are_tight_at_the_ends_of_what_is_allowed(
    kappa: Fraction, n_cells: int, n: int, m: int
) -> None:
    loss = Bootstrap(kappa, m).loss(n_records=n, n_cells=n_cells)
    mean = float(m * (loss.up - loss.down)) * math.log1p(float(loss.up / loss.down - 1))
    for epsilon in (0.0, mean / 3, mean, 1.5 * mean + 1e-3, 3 * mean + 1):
        low, high = loss.delta(epsilon)
        assert 0 <= low <= high <= 1
        assert high - low <= 1e-11 * high + 1e-320


@pytest.mark.parametrize("pseudocount", ["1e16", Fraction(1, 10**16)])
def test_pseudocounts_beyond_what_is_allowed(pseudocount: object) -> None:
    with pytest.raises(RecordsError):
        Bootstrap(pseudocount, 5)
    with pytest.raises(RecordsError):
        Bootstrap(1, 10**16)


def test_no_pseudocount_reaches_no_loss() -> None:
    with pytest.raises(InfeasibleBudgetError):
        Bootstrap.calibrate(
            BootstrapKnobs(records=100), Target(epsilon=0.0, delta=0.0, n_records=10, n_cells=2)
        )
