"""The losses of bounded range and of rho-zCDP against every pair that they stand for."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from statpress.mechanisms.accounting.composition import compose, epsilon_of_rho, tail_of_rho
from statpress.mechanisms.accounting.losses import BoundedRangeLoss, ConcentratedLoss, PureLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.mechanisms.tables.two_resolutions import TwoResolutions

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


# The loss of rho-zCDP against exact curves of discrete Gaussian noise on vectors


F20 = Fraction(20)
EPSILONS = [0.0, 0.1, 0.5, 1.0, 2.0, 4.0]


def hockey_stick(shift: tuple[int, ...], sigma: float, epsilon: float, reach: int = 40) -> float:
    """Divergence of noise on a vector from the same noise, shifted; by enumeration."""
    z = np.arange(-reach, reach + 1)
    p, q = np.ones(1), np.ones(1)
    for s in shift:
        one, two = np.exp(-(z**2) / (2 * sigma**2)), np.exp(-((z - s) ** 2) / (2 * sigma**2))
        p = np.multiply.outer(p, one / np.exp(-(z**2) / (2 * sigma**2)).sum()).ravel()
        q = np.multiply.outer(q, two / np.exp(-(z**2) / (2 * sigma**2)).sum()).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("shift", [(2, 0), (1, 1), (1, -2), (3, 1)])
@pytest.mark.parametrize("sigma", [1.0, 2.5])
def test_it_bounds_every_shift_of_that_length(shift: tuple[int, ...], sigma: float) -> None:
    square = sum(s * s for s in shift)
    loss = ConcentratedLoss(Fraction(square) / (2 * Fraction(sigma) ** 2))
    short = ConcentratedLoss(loss.bound / 4)  # the broken twin: half the sensitivity
    for epsilon in EPSILONS:
        assert hockey_stick(shift, sigma, epsilon) <= loss.delta(epsilon).upper + 1e-12
    assert any(hockey_stick(shift, sigma, e) > short.delta(e).upper + 1e-9 for e in EPSILONS)


@pytest.mark.parametrize("mu", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_it_is_not_far_above_the_exact_curve(mu: Fraction) -> None:
    loss = ConcentratedLoss(mu**2 / 2)
    exact = DiscreteGaussianLoss((100 / mu) ** 2, 100, 1)
    for delta in (1e-3, 1e-6, 1e-10):
        assert exact.epsilon(delta).lower <= loss.epsilon(delta).upper
        assert loss.epsilon(delta).upper <= 1.5 * exact.epsilon(delta).upper
    assert loss.rho.upper == pytest.approx(exact.rho.upper, rel=1e-12)
    assert loss.renyi(5).upper == pytest.approx(exact.renyi(5).upper, rel=1e-12)


def test_it_agrees_with_the_conversion_of_rho() -> None:
    loss = ConcentratedLoss(Fraction(1, 8))
    for delta in (1e-4, 1e-8):
        found = loss.epsilon(delta).upper
        assert found == pytest.approx(epsilon_of_rho(Decimal("0.125"), delta), rel=1e-9)
        assert found < tail_of_rho(Decimal("0.125"), delta)


def test_no_loss_costs_nothing_and_a_negative_one_is_refused() -> None:
    free = ConcentratedLoss(Fraction(0))
    assert free.delta(0.0).upper == free.pure_epsilon.upper == free.rho.upper == 0
    with pytest.raises(ValueError, match="negative"):
        ConcentratedLoss(Fraction(-1))


@pytest.mark.parametrize("scale", [3, 6, 12])
@pytest.mark.parametrize("shift", [(2, -2), (1, 1, -1, -1), (1, 1, -2), (2, -1, -1)])
def test_all_to_one_is_the_worst_move_of_two_records(scale: int, shift: tuple[int, ...]) -> None:
    """Sums of noise along a move are its loss; convolved, over all of the cells that move."""
    loss = GaussianTable(Fraction(scale)).loss(n_records=9, n_cells=5, unit_records=2)
    z = np.arange(-14 * scale, 14 * scale + 1)
    law = np.exp(-(z**2) / (2 * scale**2))
    law /= law.sum()
    total = np.ones(1)
    for s in shift:  # the loss is linear in the sum of s times the noise
        spread = np.zeros(abs(s) * (len(z) - 1) + 1)
        spread[:: abs(s)] = law
        total = np.convolve(total, spread)
    sums = np.arange(len(total)) - (len(total) - 1) // 2
    losses = (sum(s * s for s in shift) + 2 * sums) / (2 * scale**2)
    wider = GaussianTable(Fraction(scale) * Fraction(33, 32))
    for epsilon in EPSILONS:
        found = float(total @ np.maximum(-np.expm1(epsilon - losses), 0))
        most = loss.delta(epsilon).upper
        assert found <= most + 1e-12
        if shift == (2, -2):
            assert found == pytest.approx(most, abs=1e-12)
            twin = wider.loss(n_records=9, n_cells=5, unit_records=2).delta(epsilon).upper
            assert twin < found or found < 1e-12


def test_units_of_several_records_cost_less_than_their_rho() -> None:
    for mechanism, squares in ((GaussianTable(F20), 18), (TwoResolutions(F20, 2), 36)):
        loss = mechanism.loss(n_records=90, n_cells=9, unit_records=3)
        old = ConcentratedLoss(Fraction(squares, 800))
        assert loss.rho.upper == old.rho.upper and loss.renyi(7).upper == old.renyi(7).upper
        for epsilon in (0.0, 0.5, 2.0, 9.0):
            assert loss.delta(epsilon).upper <= old.delta(epsilon).upper
        assert loss.epsilon(1e-6).upper < 0.94 * old.epsilon(1e-6).upper
