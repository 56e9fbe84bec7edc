"""The private steps: sensitivities by brute force, and laws by enumeration on a coarse grid."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from coded import WithoutNoise, domain_of, in_memory
from scipy import signal, stats

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import InsufficientBudgetError, RecordsError
from statpress.mechanisms.marginals import measurement, residuals
from statpress.mechanisms.marginals.measurement import (
    GdpFilter,
    measure_tables,
    score_pairs,
    score_sensitivity_squared,
    table_sensitivity_squared,
)
from statpress.mechanisms.sampling.randomness import equivalent_variance

F = Fraction
SIZES = (2, 3)
CELLS = list(itertools.product(range(2), range(3)))
GROUPS = ((0,), (1,), (0, 1))
UNITS = (1, 2, 3)
REPLACED, ADDED = Adjacency
RELATIONS = pytest.mark.parametrize("adjacency", [REPLACED, ADDED])


def neighbours(
    unit_records: int, absent: bool, adjacency: Adjacency
) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """The tables of all pairs of data sets that differ in one unit.

    What others hold cannot matter.
    """
    cells = [*CELLS, None] if absent else CELLS
    units = list(itertools.combinations_with_replacement(cells, unit_records))
    for one, two in itertools.product(units, units if adjacency is REPLACED else [()]):
        yield tables_with(one), tables_with(two)


@functools.cache
def tables_with(unit: tuple[tuple[int, int] | None, ...]) -> list[np.ndarray]:
    """The tables of two others and the records that a unit has."""
    others = [(0, 0), (1, 2)]
    codes = np.array([*others, *(c for c in unit if c is not None)], np.uint8)
    return in_memory(domain_of(SIZES), codes).tables(GROUPS)


@RELATIONS
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("unit_records", UNITS)
def test_sensitivity_of_a_table_is_what_is_charged(
    unit_records: int, absent: bool, adjacency: Adjacency
) -> None:
    worst = [0, 0, 0]
    for one, two in neighbours(unit_records, absent, adjacency):
        moves = zip(one, two, strict=True)
        worst = [max(w, int(((a - b) ** 2).sum())) for w, (a, b) in zip(worst, moves, strict=True)]
    assert max(worst) == table_sensitivity_squared(unit_records, adjacency)
    least = (2 if adjacency is REPLACED else 1) * (unit_records - 0.5) ** 2
    assert max(worst) > least  # twin: off by half a record


@RELATIONS
@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("unit_records", UNITS)
def test_sensitivity_of_a_score_is_what_is_charged(
    unit_records: int, absent: bool, adjacency: Adjacency
) -> None:
    references = [np.zeros(SIZES, int), np.array([[3, 1, 0], [0, 2, 9]])]
    worst = 0
    for one, two in neighbours(unit_records, absent, adjacency):
        for reference in references:
            a, b = (int(np.abs(tables[2] - reference).sum()) for tables in (one, two))
            worst = max(worst, (a - b) ** 2)
    assert worst == score_sensitivity_squared(unit_records, 1, adjacency)
    # Twin: a score that was charged as one count would not do.
    assert worst == (4 if adjacency is REPLACED else 1) * unit_records**2
    assert score_sensitivity_squared(unit_records, 7, adjacency) == 7 * worst


CODES = np.array([[0, 0], [0, 1], [1, 2], [1, 2], [0, 0]], np.uint8)


def test_a_step_spends_before_it_draws_and_no_more_than_its_amount() -> None:
    rng, budget = WithoutNoise(), GdpFilter(F(1, 2))
    coded = in_memory(domain_of(SIZES), CODES)
    amounts = [F(1, 10), F(1, 7), F(1, 5)]
    found = measure_tables(
        coded, GROUPS, amounts, unit_records=2, adjacency=REPLACED, budget=budget, rng=rng
    )
    assert 0 <= sum(amounts) - budget.spent < F(1, 10**9)
    for table, exact, amount in zip(found, coded.tables(GROUPS), amounts, strict=True):
        assert np.array_equal(table.counts, exact)
        spent = 8 * F(measurement.GRID) ** 2 / equivalent_variance(table.scale)
        assert amount * (1 - F(1, 10**9)) < spent <= amount
        assert table.variance == pytest.approx(8 / float(amount))
    before = len(rng.asked)
    with pytest.raises(InsufficientBudgetError):
        measure_tables(
            coded, GROUPS[:1], [F(1, 2)], unit_records=1, adjacency=REPLACED, budget=budget, rng=rng
        )
    references = {(0, 1): np.zeros(SIZES, np.int64)}
    with pytest.raises(InsufficientBudgetError):
        score_pairs(
            coded, references, F(1, 2), unit_records=1, adjacency=REPLACED, budget=budget, rng=rng
        )
    assert len(rng.asked) == before
    scores = score_pairs(
        coded, references, F(1, 100), unit_records=3, adjacency=REPLACED, budget=budget, rng=rng
    )
    assert scores.distances == pytest.approx([5.0])
    assert scores.sigma == pytest.approx(math.sqrt(36 * 100), rel=1e-6)


def test_noise_that_does_not_suit_the_grid_is_refused() -> None:
    coded, rng = in_memory(domain_of(SIZES), CODES), WithoutNoise()
    with pytest.raises(RecordsError):
        measure_tables(
            coded,
            GROUPS[:1],
            [F(10) ** 12],
            unit_records=1,
            adjacency=REPLACED,
            budget=GdpFilter(F(10) ** 20),
            rng=rng,
        )


# Laws by enumeration: a grid so coarse that all outputs can be listed.


COARSE = 2**9


def curve_of_step(
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    mu_squared: F,
    unit_records: int,
    adjacency: Adjacency,
    twin: float = 1.0,
    declared: int | None = None,
) -> float:
    """Largest excess of the exact hockey-stick curve over the part of GDP that was spent.

    Both outputs are vectors of independent discrete Gaussians about integers, so the divergence
    depends on the shift only; it is summed over the lattice for every neighbouring pair. The
    steps are told of ``declared`` records of a unit.
    """
    for module in (measurement, residuals):
        monkeypatch.setattr(module, "GRID", COARSE)
    rng, budget = WithoutNoise(), GdpFilter(mu_squared)
    domain = domain_of((2, 2))
    excess = -1.0
    seen: set[tuple[int, ...]] = set()
    reference = {(0, 1): np.array([[1, 0], [2, 1]])}
    outputs = []
    cells = list(itertools.product(range(2), repeat=2))
    units = list(itertools.combinations_with_replacement(cells, unit_records))
    for unit in units if adjacency is REPLACED else [(), *units]:
        coded = in_memory(domain, np.array([(0, 0), (1, 1), *unit], np.uint8))
        fresh = GdpFilter(mu_squared)
        if step == "score":
            found = score_pairs(
                coded,
                reference,
                mu_squared,
                unit_records=declared or unit_records,
                adjacency=adjacency,
                budget=fresh,
                rng=rng,
            )
            outputs.append(found.values)
        else:
            groups = {"one_way": [(0,)], "pair": [(0, 1)]}[step]
            (table,) = measure_tables(
                coded,
                groups,
                [mu_squared],
                unit_records=declared or unit_records,
                adjacency=adjacency,
                budget=fresh,
                rng=rng,
            )
            outputs.append(table.values.ravel())
        budget = fresh
    scale = float(rng.asked[0][0]) * twin
    claimed = GaussianLoss(F(0), budget.spent)
    for one, two in itertools.product(outputs, outputs if adjacency is REPLACED else outputs[:1]):
        moves = tuple(sorted(abs(int(x)) // COARSE for x in one - two))
        if moves in seen:
            continue
        seen.add(moves)
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            exact = divergence(moves, COARSE, scale, epsilon)
            excess = max(excess, exact - claimed.delta(epsilon).upper)
    return excess


def divergence(moves: tuple[int, ...], grid: int, scale: float, epsilon: float) -> float:
    """Hockey-stick divergence of discrete Gaussians about ``grid * moves`` and about 0.

    The log ratio is linear in the output, sum of grid m (2 z - grid m) / (2 scale^2), so its law
    is that of the integer sum of m (z - grid m), listed by convolution.
    """
    z = np.arange(-int(9 * scale), int(9 * scale) + 1)
    p = np.exp(-(z**2) / (2 * scale**2))
    p /= p.sum()
    law = np.ones(1)
    for m in moves:
        if m:
            spread = np.zeros(abs(m) * (len(z) - 1) + 1)
            spread[:: abs(m)] = p
            law = signal.fftconvolve(law, spread)
    sums = np.arange(len(law)) - len(law) // 2
    loss = (grid * sums + sum((grid * m) ** 2 for m in moves) / 2) / scale**2
    gain = 1 - np.exp(np.minimum(epsilon - loss, 0))
    return float((np.maximum(law, 0) * np.maximum(gain, 0)).sum())


@RELATIONS
@pytest.mark.parametrize("unit_records", UNITS)
@pytest.mark.parametrize("step", ["one_way", "pair", "score"])
def test_the_law_of_a_step_is_within_its_part_of_the_curve(
    monkeypatch: pytest.MonkeyPatch, step: str, unit_records: int, adjacency: Adjacency
) -> None:
    asked = (monkeypatch, step, F(4), unit_records, adjacency)
    assert curve_of_step(*asked) <= 1e-12
    assert curve_of_step(*asked, twin=0.5) > 1e-3


@RELATIONS
@pytest.mark.parametrize("step", ["pair", "score"])
def test_an_underestimated_sensitivity_is_caught(
    monkeypatch: pytest.MonkeyPatch, step: str, adjacency: Adjacency
) -> None:
    """The broken twins: sensitivities of one record less, where a unit holds two."""
    asked = (monkeypatch, step, F(4 * adjacency.moved), 2, adjacency)
    assert curve_of_step(*asked, declared=1) > 1e-3


def test_the_enumeration_agrees_with_the_normal_curve() -> None:
    """Fine noise about a shift in two coordinates is nearly the normal mechanism."""
    scale = 300.0
    exact = divergence((1, 1), 64, scale, 0.2)
    mu = math.sqrt(2) * 64 / scale
    normal = stats.norm.cdf(-0.2 / mu + mu / 2) - math.exp(0.2) * stats.norm.cdf(-0.2 / mu - mu / 2)
    assert exact == pytest.approx(normal, rel=2e-3)
