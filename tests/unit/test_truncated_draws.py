"""The approximate rho of draws: enumeration, mpmath, the curve that it implies, broken twins."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rho_references import truncated_reference

from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.losses import delta_of_rho
from statpress.mechanisms.accounting.truncated_draws import (
    Approximate,
    approximately_concentrated,
)

F = Fraction


def draws(pseudocount: str, m: int, n: int, cells: int, unit: int = 1) -> DrawsLoss:
    k, total = F(pseudocount), n + F(pseudocount) * cells
    return DrawsLoss(up=(unit + k) / total, down=k / total, draws=m)


DEMO = draws("19.5", 29_501, 29_501, 350)
SMALL = [
    (draws("1/2", 4, 3, 3), 0.2),
    (draws("1.3", 6, 4, 3, 2), 0.4),
    (draws("3", 5, 9, 20), 1e-3),
    (draws("0.01", 3, 50, 4), 1e-5),
]
WANTED = [
    (DEMO, 6e-9, 0.048),
    (draws("3.373", 10_000, 29_501, 71_400), 1e-6, 0.029),
    (draws("1000", 38_459_154, 10**6, 1000), 1e-8, 0.0194),
]


def found(loss: DrawsLoss, delta: float) -> Approximate:
    made = approximately_concentrated(loss, delta)
    assert made is not None
    return made


def given_few(loss: DrawsLoss, t: int) -> tuple[list[Fraction], list[Fraction], Fraction]:
    """Both laws of all sequences of outcomes given T <= t, exactly, and Pr[T > t]."""
    one = {0: loss.up, 1: loss.down, 2: 1 - loss.up - loss.down}
    other = {0: loss.down, 1: loss.up, 2: one[2]}
    p, q = [], []
    for outcome in itertools.product(range(3), repeat=loss.draws):
        if sum(each < 2 for each in outcome) <= t:
            p.append(math.prod((one[each] for each in outcome), start=F(1)))
            q.append(math.prod((other[each] for each in outcome), start=F(1)))
    kept = sum(p, F(0))
    assert kept == sum(q, F(0))
    return [a / kept for a in p], [b / kept for b in q], 1 - kept


@pytest.mark.parametrize(("loss", "delta"), SMALL)
def test_against_every_sequence_of_draws(loss: DrawsLoss, delta: float) -> None:
    made = found(loss, delta)
    p, q, tail = given_few(loss, made.most_moved)
    assert tail <= F(made.delta) <= F(delta)
    assert made.delta == pytest.approx(float(tail), rel=1e-12)
    assert given_few(loss, made.most_moved - 1)[2] > F(delta)  # fewer would not do
    ratios = []
    with mpmath.workdps(30):
        pairs = [
            (mpmath.mpf(a.numerator) / a.denominator, mpmath.mpf(b.numerator) / b.denominator)
            for a, b in zip(p, q, strict=True)
        ]
        for s in (0.001, 0.03, 0.3, 1, 2, 4, 8, 16, 40):
            total = mpmath.fsum(a * (a / b) ** s for a, b in pairs)
            ratios.append(mpmath.log(total) / (s * (1 + s)))
    assert max(ratios) <= made.rho.upper
    assert max(ratios) > 0.97 * made.rho.upper  # a twin 3 % below is caught


@pytest.mark.parametrize(("loss", "delta", "most"), WANTED)
def test_the_figures_asked_for(loss: DrawsLoss, delta: float, most: float) -> None:
    made = found(loss, delta)
    rho, tail = truncated_reference(loss, made.most_moved)
    print(
        f"rho {loss.rho.upper:.6g} before, {made.rho.upper:.6g} but for {made.delta:.3g}"
        f" now; by mpmath {rho:.6g}, {tail:.3g}"
    )
    assert rho * (1 - 1e-9) <= made.rho.upper <= min(most, rho * 1.0005)
    assert made.rho.lower <= rho * (1 + 1e-6)
    assert tail * (1 - 1e-6) <= made.delta <= delta
    assert loss.approximate_rho(delta) == (made.rho, made.delta)


@pytest.mark.parametrize(("loss", "delta"), [*SMALL[:2], (DEMO, 6e-9), (DEMO, 1e-3)])
def test_the_curve_that_it_implies_holds(loss: DrawsLoss, delta: float) -> None:
    """H(P || Q) <= delta + (1 - delta) H(P|E || Q|E), the last bounded by rho."""
    made, exact = found(loss, delta), loss
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        implied = made.delta + delta_of_rho(F(made.rho.upper), epsilon)
        assert exact.delta(epsilon).lower <= implied
    # A twin without the delta: beyond what t draws can lose, only the others are left.
    most = made.most_moved * math.log(loss.up / loss.down)
    assert exact.delta(most + 0.01).upper <= made.delta
    assert made.delta / 2 + delta_of_rho(F(made.rho.upper) / 40, 0.0) < exact.delta(0.0).lower


def test_the_whole_loss_where_nothing_may_be_left_out() -> None:
    assert approximately_concentrated(DEMO, 0.0) is None
    assert DEMO.approximate_rho(0.0) == (DEMO.rho, 0.0)
    assert approximately_concentrated(draws("1/2", 3, 3, 3), 1e-4) is None  # all may be moved
    assert approximately_concentrated(DrawsLoss(up=F(1, 2), down=F(1, 2), draws=9), 0.1) is None
    certain = DrawsLoss(up=F(2, 3), down=F(1, 3), draws=5)  # two cells, one record
    assert approximately_concentrated(certain, 0.5) is None
    rare = found(draws("1/1000", 1, 10**6, 10), 1e-5)
    assert rare.rho == (0, 0) and rare.most_moved == 0 and 0 < rare.delta < 1.1e-6
    with pytest.raises(ValueError, match="delta"):
        approximately_concentrated(DEMO, 1.0)


@pytest.mark.parametrize(("loss", "delta"), [*SMALL, (DEMO, 6e-9), (DEMO, 1e-300)])
def test_the_smaller_of_both_rhos_is_charged(loss: DrawsLoss, delta: float) -> None:
    """Also where one divergence is enough to tell."""
    whole, approximate = loss.rho, approximately_concentrated(loss, delta)
    charged = loss.approximate_rho(delta)
    if approximate is None or approximate.rho.upper >= whole.upper:
        assert charged == (whole, 0.0)
    else:
        assert charged == (approximate.rho, approximate.delta)


@settings(max_examples=25, deadline=None)
@given(
    st.fractions(F(1, 50), 500, max_denominator=50),
    st.integers(1, 10**7),
    st.integers(1, 10**6),
    st.integers(3, 10**5),
    st.floats(-11, -2),
)
def test_it_is_never_above_another_bound(
    k: Fraction, m: int, n: int, cells: int, exponent: float
) -> None:
    loss, delta = draws(str(k), m, n, cells), 10**exponent
    charged, whole = loss.approximate_rho(delta), loss.rho
    assert 0 <= charged.rho.lower <= charged.rho.upper <= whole.upper
    assert charged.delta <= delta
    made = approximately_concentrated(loss, delta)
    if made is not None and made.rho.upper:
        length = math.log(loss.up / loss.down)
        assert made.rho.upper <= made.most_moved * length * math.tanh(length / 2) * (1 + 1e-9)
        more = DrawsLoss(up=loss.up, down=loss.down, draws=m + 1 + m // 9)
        assert charged.rho.lower <= more.approximate_rho(delta).rho.upper
        assert more.approximate_rho(delta).rho.upper >= charged.rho.upper * (1 - 0.001)
