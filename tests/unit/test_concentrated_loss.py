"""The loss of rho-zCDP against exact curves of discrete Gaussian noise on vectors."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from statpress.mechanisms.accounting.composition import epsilon_of_rho, tail_of_rho
from statpress.mechanisms.accounting.losses import ConcentratedLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.mechanisms.tables.two_resolutions import TwoResolutions

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
