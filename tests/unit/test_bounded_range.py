"""The loss of bounded range against every pair that it stands for, in other arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import BoundedRangeLoss, PureLoss

F = Fraction
RANGES = [F(1, 1000), F(1, 3), F(1), F(4), F(30)]


def two_points(e: mpmath.mpf, t: mpmath.mpf) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """The pair whose loss is t or t - e."""
    p = (mpmath.exp(e) - mpmath.exp(t)) / mpmath.expm1(e)
    return [p, 1 - p], [p * mpmath.exp(-t), (1 - p) * mpmath.exp(e - t)]


def divergence(p: list[mpmath.mpf], q: list[mpmath.mpf], order: Fraction) -> mpmath.mpf:
    both = list(zip(p, q, strict=True))
    if order == 1:
        return mpmath.fsum(a * mpmath.log(a / b) for a, b in both)
    s = mpmath.mpf(order.numerator) / order.denominator - 1
    return mpmath.log(mpmath.fsum(a * (a / b) ** s for a, b in both)) / s


@pytest.mark.parametrize("bound", RANGES, ids=str)
def test_no_pair_has_more_and_one_has_as_much(bound: Fraction) -> None:
    loss = BoundedRangeLoss(bound)
    with mpmath.workdps(60):
        e = mpmath.mpf(bound.numerator) / bound.denominator
        pairs = [two_points(e, e * k / 120) for k in range(1, 120)]
        for share in (-0.5, 0.0, 0.3, 0.9):
            epsilon = float(bound) * share
            factor = mpmath.exp(mpmath.mpf(epsilon))
            found = max(
                mpmath.fsum(max(a - factor * b, 0) for a, b in zip(p, q, strict=True))
                for p, q in pairs
            )
            assert found <= loss.delta(epsilon).upper * (1 + 1e-15)
            assert found >= loss.delta(epsilon).lower * (1 - F(1, 50))
        for order in (F(1), F(9, 8), F(2), F(40)):
            found = max(divergence(p, q, order) for p, q in pairs)
            assert found <= loss.renyi(order).upper
            assert found >= loss.renyi(order).lower * (1 - F(1, 50))
            assert found / order <= loss.rho.upper


@pytest.mark.parametrize("bound", RANGES, ids=str)
def test_rho_is_below_every_other_bound(bound: Fraction) -> None:
    loss, e = BoundedRangeLoss(bound), float(bound)
    assert loss.rho.upper <= e**2 / 8
    assert loss.rho.upper <= PureLoss(bound).rho.lower
    for share in (0.0, 0.4, 0.99):
        assert loss.delta(e * share).upper <= PureLoss(bound).delta(e * share).lower
    orders = [1 + F(2) ** k for k in range(-30, 12)]
    ratios = [loss.renyi(order).upper / float(order) for order in orders]
    assert max(ratios) <= loss.rho.upper * (1 + 1e-12)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(ratios))


def test_what_is_only_pure_is_told_apart() -> None:
    """The twin: randomised response of the same epsilon, whose loss has twice the range."""
    one, e = PureLoss(F(1)), 1.0
    p = np.array([np.e, 1]) / (1 + np.e)
    assert np.maximum(p - p[::-1], 0).sum() == pytest.approx(one.delta(0.0).upper)
    assert one.delta(0.0).lower > 1.8 * BoundedRangeLoss(F(1)).delta(0.0).upper
    assert one.rho.lower > 3.7 * BoundedRangeLoss(F(1)).rho.upper
    assert BoundedRangeLoss(F(2)).delta(0.0).upper == pytest.approx(one.delta(0.0).upper)
    assert e**2 / 8 < one.rho.lower


def test_three_choices_compose_below_their_epsilons() -> None:
    """Against every outcome of three of the same pair, in the worse order."""
    loss = compose([BoundedRangeLoss(F(1, 3))] * 3)
    assert loss.pure_epsilon.upper == pytest.approx(1.0)
    assert loss.rho.upper == pytest.approx(3 * BoundedRangeLoss(F(1, 3)).rho.upper)
    with mpmath.workdps(30):
        for t in (0.05, 0.15, 0.25):
            p, q = two_points(mpmath.mpf(1) / 3, mpmath.mpf(t))
            for epsilon in (0.0, 0.2, 0.6):
                exact = mpmath.fsum(
                    max(a * b * c - mpmath.exp(epsilon) * x * y * z, 0)
                    for a, x in zip(p, q, strict=True)
                    for b, y in zip(p, q, strict=True)
                    for c, z in zip(p, q, strict=True)
                )
                assert exact <= loss.delta(epsilon).upper
    assert loss.delta(0.6).upper < compose([PureLoss(F(1, 3))] * 3).delta(0.6).lower


@pytest.mark.parametrize("bound", RANGES, ids=str)
def test_the_divergence_of_the_curve(bound: Fraction) -> None:
    """The loss has the density exp(x/2) on [-e, e], up to a factor; by quadrature."""
    loss = BoundedRangeLoss(bound)
    with mpmath.workdps(30):
        e = mpmath.mpf(bound.numerator) / bound.denominator
        whole = mpmath.quad(lambda x: mpmath.exp(x / 2), [-e, 0, e])
        share = mpmath.mpf("0.3")
        curve = mpmath.quad(
            lambda x: mpmath.exp(x / 2) * (1 - mpmath.exp(e * share - x)), [e * share, e]
        )
        low, high = loss.delta(float(e * share))
        assert low * (1 - 1e-9) <= curve / whole <= high * (1 + 1e-9)
        mean = mpmath.quad(lambda x: x * mpmath.exp(x / 2), [-e, 0, e]) / whole
        assert loss.renyi_of_curve(1).upper == pytest.approx(float(mean), rel=1e-9)
        third = mpmath.quad(lambda x: mpmath.exp(x / 2 + 2 * x), [-e, 0, e]) / whole
        assert loss.renyi_of_curve(3).upper == pytest.approx(float(mpmath.log(third) / 2), rel=1e-9)
    for order in (F(1), F(2), F(50)):
        assert loss.renyi(order).upper < loss.renyi_of_curve(order).lower
        assert loss.renyi_of_curve(order).upper <= PureLoss(bound).renyi(order).lower
