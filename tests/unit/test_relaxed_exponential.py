"""Theorem 5 of the bootstrapping paper as an identity, and what it bounds, by enumeration."""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
from flint import arb, ctx

from mechanisms.accounting.enclosures import ball
from mechanisms.tables.bootstrap import Bootstrap
from mechanisms.tables.relaxed_exponential import (
    is_typical,
    relaxed_score,
    score_sensitivity,
    sequence_probability,
    smoothed,
    typical_sensitivity,
)

Table = tuple[int, ...]
CASES = [(3, 3, Fraction(1)), (4, 2, Fraction(1, 3)), (2, 4, Fraction(7, 2))]
SIZES = pytest.mark.parametrize(("n", "s", "kappa"), CASES)


def tables(n_records: int, n_cells: int) -> Iterator[Table]:
    """All tables of n records over the cells."""
    for cuts in itertools.combinations(range(n_records + n_cells - 1), n_cells - 1):
        bounds = (-1, *cuts, n_records + n_cells - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(bounds))


def sequences(z: Table) -> int:
    """Number of sequences of draws with these counts."""
    return math.factorial(sum(z)) // math.prod(math.factorial(count) for count in z)


def moved(table: Table, other: Table) -> int:
    return sum(max(a - b, 0) for a, b in zip(table, other, strict=True))


def pairs(n: int, s: int, c: int) -> Iterator[tuple[Table, Table]]:
    """Neighbours whose c records move from one cell to one other."""
    for a, b in itertools.permutations(tables(n, s), 2):
        if moved(a, b) == c and sum(x != y for x, y in zip(a, b, strict=True)) == 2:
            yield a, b


@SIZES
@pytest.mark.parametrize("m", [1, 3, 5])
def test_a_draw_is_the_exponential_mechanism_of_the_score(
    n: int, s: int, kappa: Fraction, m: int
) -> None:
    """Lemma 2: the probability is exp(m u), and these weights add up to one."""
    for table in tables(n, s):
        p = smoothed(table, kappa)
        total = Fraction(0)
        for z in tables(m, s):
            exact = sequence_probability(p, z)
            total += sequences(z) * exact
            with ctx.workprec(200):
                weight = (m * relaxed_score(p, z)).exp()
                assert weight.contains(ball(exact).mid()) or weight.overlaps(ball(exact))
                assert weight.rel_accuracy_bits() > 150
                # A score that is off by a thousandth is no such density.
                twin = (m * (relaxed_score(p, z) + arb(1) / 1000)).exp()
                assert not twin.overlaps(ball(exact))
        assert total == 1


@SIZES
def test_the_release_has_these_probabilities(n: int, s: int, kappa: Fraction) -> None:
    """The curve of ``Bootstrap`` is that of sequences weighed by the score, for three cells."""
    m = 3
    loss = Bootstrap(kappa, m).loss(n_records=n, n_cells=s)
    for epsilon in (0.0, 0.4, 1.0):
        worst = Fraction(0)
        factor = Fraction(math.exp(epsilon))
        for a, b in pairs(n, s, 1):
            p, q = smoothed(a, kappa), smoothed(b, kappa)
            gaps = (
                (sequence_probability(p, z) - factor * sequence_probability(q, z)) * sequences(z)
                for z in tables(m, s)
            )
            worst = max(worst, sum((max(gap, Fraction(0)) for gap in gaps), Fraction(0)))
        claimed = loss.delta(epsilon)
        assert float(worst) <= claimed.upper + 1e-12
        if s > 2:
            assert float(worst) >= claimed.lower - 1e-12


@SIZES
@pytest.mark.parametrize("c", [1, 2])
def test_the_pure_loss_is_once_the_sensitivity_and_not_twice(
    n: int, s: int, kappa: Fraction, c: int
) -> None:
    m = 3
    sensitivity = score_sensitivity(kappa, c)
    most = 0.0
    for a, b in pairs(n, s, c):
        p, q = smoothed(a, kappa), smoothed(b, kappa)
        for z in tables(m, s):
            change = relaxed_score(p, z) - relaxed_score(q, z)
            most = max(most, float(change.abs_upper()))
    assert most == pytest.approx(sensitivity.upper, rel=1e-12)
    loss = Bootstrap(kappa, m).loss(n_records=n, n_cells=s, unit_records=c)
    assert loss.pure_epsilon.upper == pytest.approx(m * sensitivity.upper, rel=1e-12)


@SIZES
@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 20), Fraction(1, 5), Fraction(2, 5)])
def test_over_typical_sequences_the_score_moves_by_the_theorems_bound(
    n: int, s: int, kappa: Fraction, c: int, gamma: Fraction
) -> None:
    frame = {"n_records": n, "n_cells": s, "unit_records": c}
    bound = typical_sensitivity(kappa, gamma, **frame)
    for m in (4, 7):
        most, left_out = 0.0, Fraction(0)
        for a, b in pairs(n, s, c):
            p, q = smoothed(a, kappa), smoothed(b, kappa)
            typical = [z for z in tables(m, s) if is_typical(p, z, gamma)]
            changes = [
                float((relaxed_score(p, z) - relaxed_score(q, z)).abs_upper()) for z in typical
            ]
            most = max(most, *changes, 0.0)
            kept = sum((sequences(z) * sequence_probability(p, z) for z in typical), Fraction(0))
            left_out = max(left_out, 1 - kept)
        assert most <= bound.upper * (1 + 1e-12)
        # Theorem 4 with no factor of two: the exact delta at m D_gamma is within what is left out.
        loss = Bootstrap(kappa, m).loss(**frame)
        if s > 2:
            assert loss.delta(m * bound.upper).lower <= float(left_out) + 1e-12


def test_the_bound_is_reached() -> None:
    """Frequencies at the edge of the typical set of two cells that are as rare as can be."""
    n, s, kappa, gamma = 1, 3, Fraction(1), Fraction(1, 4)
    p, q = smoothed((1, 0, 0), kappa), smoothed((0, 1, 0), kappa)
    z = (3, 0, 1)  # of 4: 1/2 + 1/4, 1/4 - 1/4, 1/4
    assert is_typical(p, z, gamma)
    change = float((relaxed_score(p, z) - relaxed_score(q, z)).mid())
    bound = typical_sensitivity(kappa, gamma, n_records=n, n_cells=s)
    assert change == pytest.approx(bound.upper, rel=1e-12)
    halved = typical_sensitivity(kappa, gamma / 2, n_records=n, n_cells=s)
    assert change > halved.upper
