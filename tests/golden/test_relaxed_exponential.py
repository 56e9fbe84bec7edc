"""The bootstrapping mechanism as an exponential mechanism whose score is relaxed.

Source: "Delving into Bootstrapping for Differential Privacy", Definition 2, Theorems 4 and 5
and Lemma 2. Let p be the smoothed distribution of the data, p_j = (h_j + k)/N, and f = z/m
the frequencies of m draws. A given sequence of draws with counts z has probability

    prod p_j^(z_j) = exp(m u),  u(h, z) = sum of f_j log p_j = -(H(f) + KL(f || p)),

with H the entropy and KL the divergence: an exponential mechanism at rate m over all
sequences. Its weights exp(m u) add up to (sum of p_j)^m = 1 for every dataset. So nothing has to be
divided by, which has two consequences that the paper leaves out.

* *Pure.* u moves by at most D = log((c + k)/k) between neighbours, at z all in one cell. The
  general theorem for exponential mechanisms pays twice, 2 m D, as the sum of
  the weights could move too. Here it cannot: the loss is m D, Theorem 8 of Wasserman and
  Zhou (2010), and what the accountant says at delta 0.
* *Relaxed.* Over the typical sequences, |f_j - p_j| <= gamma for all j, u moves by at most
  D_gamma = (c/N + 2 gamma) log((c + k)/k) (the paper's equation 43 at its least x_1 and x_2;
  the appendix has c = 1). If others have probability at most delta, the release is
  (m D_gamma, delta)-DP, where Theorem 5 states m = epsilon/(2 D_gamma), hence 2 m D_gamma.

Both are bounds that the exact accountant (mechanisms.accounting.draws) undercuts; none is
charged.

Checked here as an identity, and what it bounds by enumeration.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from flint import arb, ctx
from neighbouring import Table, moved, orders, tables

from statpress.mechanisms.accounting.balls import Bounds, ball, enclosed
from statpress.mechanisms.tables.bootstrap import Bootstrap

CASES = [(3, 3, Fraction(1)), (4, 2, Fraction(1, 3)), (2, 4, Fraction(7, 2))]
SIZES = pytest.mark.parametrize(("n", "s", "kappa"), CASES)


def smoothed(counts: Sequence[int], pseudocount: Fraction) -> list[Fraction]:
    """The distribution p of one draw, exactly.

    Args:
        counts: h of all cells.
        pseudocount: k > 0.
    """
    total = sum(counts) + pseudocount * len(counts)
    return [(count + pseudocount) / total for count in counts]


def sequence_probability(p: Sequence[Fraction], drawn: Sequence[int]) -> Fraction:
    """Probability of one sequence of draws with these counts z, exactly."""
    result = Fraction(1)
    for share, times in zip(p, drawn, strict=True):
        result *= share**times
    return result


def entropy(drawn: Sequence[int]) -> arb:
    """Ball around H(f) of the frequencies of z, at the precision of the moment."""
    total = sum(drawn)
    shares = [Fraction(times, total) for times in drawn if times]
    return -sum((ball(share) * ball(share).log() for share in shares), arb(0))


def divergence(drawn: Sequence[int], p: Sequence[Fraction]) -> arb:
    """Ball around KL(f || p), at the precision of the moment."""
    total = sum(drawn)
    pairs = [(Fraction(t, total), q) for t, q in zip(drawn, p, strict=True) if t]
    return sum((ball(share) * ball(share / q).log() for share, q in pairs), arb(0))


def relaxed_score(p: Sequence[Fraction], drawn: Sequence[int]) -> arb:
    """Ball around the theorem's utility u = -(H(f) + KL(f || p))."""
    return -(entropy(drawn) + divergence(drawn, p))


def is_typical(p: Sequence[Fraction], drawn: Sequence[int], gamma: Fraction) -> bool:
    """Whether all frequencies are within gamma of the probabilities."""
    total = sum(drawn)
    return all(abs(Fraction(t, total) - q) <= gamma for t, q in zip(drawn, p, strict=True))


def score_sensitivity(pseudocount: Fraction, unit_records: int = 1) -> Bounds:
    """Enclosure of D, the most that u moves between neighbours, over all sequences."""
    ratio = (unit_records + pseudocount) / pseudocount
    return enclosed(lambda: ball(ratio).log())


def typical_sensitivity(
    pseudocount: Fraction,
    gamma: Fraction,
    *,
    n_records: int,
    n_cells: int,
    unit_records: int = 1,
) -> Bounds:
    """Enclosure of D_gamma, the theorem's bound on the same over typical sequences.

    It holds for a unit whose records move between two cells, as its c records do in the
    worst pair (mechanisms.tables.bootstrap).

    Args:
        pseudocount: k > 0.
        gamma: Width of the typical set, at least 0.
        n_records: n.
        n_cells: Number of cells.
        unit_records: c.
    """
    ratio = (unit_records + pseudocount) / pseudocount
    width = unit_records / (n_records + pseudocount * n_cells) + 2 * gamma
    return enclosed(lambda: ball(width) * ball(ratio).log())


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
            total += orders(z) * exact
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
                (sequence_probability(p, z) - factor * sequence_probability(q, z)) * orders(z)
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
            kept = sum((orders(z) * sequence_probability(p, z) for z in typical), Fraction(0))
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
