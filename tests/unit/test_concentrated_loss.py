"""The loss of rho-zCDP against exact curves of discrete Gaussian noise on vectors."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.accounting.analytic import ConcentratedLoss
from mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from mechanisms.accounting.renyi import epsilon_of_rho, tail_of_rho

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
