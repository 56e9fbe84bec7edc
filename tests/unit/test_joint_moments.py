"""The joint release of two moments: its sensitivity, its noise, its interval."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates.joint_moments import (
    WEIGHT,
    JointMoments,
    NoisyMoments,
    moment_interval,
)
from statpress.mechanisms.sampling.randomness import KERNEL, equivalent_variance, scale_for
from statpress.tasks.release.entropy import SeededRandomness

F = Fraction
GOLDEN = (11 + 5 * math.sqrt(5)) / 2


class Silence(SeededRandomness):
    """Noise that is nought, and a note of the scales asked for."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(1))
        self.scales: list[Fraction] = []

    def discrete_gaussian(self, sigma: Fraction, size: int) -> np.ndarray:
        self.scales.append(sigma)
        return np.zeros(size, np.int64)


def worst_move(weight: float, grid: int = 401) -> float:
    """Largest squared move of both moments over all pairs of values, by brute force."""
    u = np.linspace(-0.5, 0.5, grid)
    first = u[:, None] - u[None, :]
    second = weight * (u[:, None] ** 2 - u[None, :] ** 2)
    return float(np.max(first**2 + second**2))


def test_the_second_moment_is_free_up_to_the_golden_weight() -> None:
    assert worst_move(float(WEIGHT)) == 1.0
    assert worst_move(math.sqrt(GOLDEN), 1001) == pytest.approx(1.0, abs=1e-12)
    assert worst_move(3.37, 1001) > 1.001  # the broken twin: a weight too large
    assert F(GOLDEN) > WEIGHT**2


def test_the_golden_weight_is_the_least_value_of_f() -> None:
    found = optimize.minimize_scalar(
        lambda b: (2 - b) / (b * (1 - b) ** 2), bounds=(0.01, 0.99), method="bounded"
    )
    assert found.x == pytest.approx((3 - math.sqrt(5)) / 2, abs=1e-5)
    assert found.fun == pytest.approx(GOLDEN, rel=1e-9)


@pytest.mark.parametrize("mu", [F(1, 10), F(1), F(7, 3)])
def test_loss_is_mu_and_covers_every_replacement(mu: Fraction) -> None:
    made = JointMoments.calibrate(mu, lower=0, upper=1)
    assert F(float(made.scale)) == made.scale and F(float(made.square_scale)) == made.square_scale
    assert mu**2 * (1 - F(1, 10**6)) < made.loss().mu_squared <= mu**2
    # In exact integers, over a grid of records: the shifts of both sums against their noise.
    half = 1 << 20
    one, two = equivalent_variance(made.scale), equivalent_variance(made.square_scale)
    values = [half * k // 8 for k in range(-8, 9)] + [int(0.309 * 2 * half), 123_457]
    moves = [(u - v) ** 2 / one + (u * u - v * v) ** 2 / two for u in values for v in values]
    assert max(moves) <= made.loss().mu_squared
    assert max(moves) == (2 * half) ** 2 / one


def test_noise_too_small_for_the_squares_is_refused() -> None:
    made = JointMoments.calibrate(F(1), lower=0, upper=1)
    with pytest.raises(RecordsError, match="squares"):
        JointMoments(0, 1, made.scale, F(float(made.square_scale) * 0.99))


@pytest.mark.parametrize("square", [400, 1000, 2**24])
@pytest.mark.parametrize("shift", [5, 40])
def test_discrete_noise_is_no_worse_than_its_equivalent(square: int, shift: int) -> None:
    for epsilon in (0.0, 0.01, 0.3, 1.0, 4.0):
        discrete = DiscreteGaussianLoss(F(square), shift, 1).delta(epsilon)
        normal = GaussianLoss(F(0), F(shift**2, square - KERNEL)).delta(epsilon)
        assert discrete.lower <= normal.upper


def test_noise_without_the_kernel_can_be_worse_than_normal() -> None:
    """The broken twin: a coarse grid charged as if it were the continuous mechanism."""
    losses = DiscreteGaussianLoss(F(1, 4), 1, 1), GaussianLoss(F(2))
    gaps = [losses[0].delta(e).lower - losses[1].delta(e).upper for e in np.linspace(0, 8, 81)]
    assert max(gaps) > 0


def test_scales_round_up_and_have_their_range() -> None:
    scale = scale_for(F(2**30) + F(1, 3))
    assert 0 <= equivalent_variance(scale) - (F(2**30) + F(1, 3)) < F(1, 2**3)
    with pytest.raises(RecordsError):
        scale_for(F(1000))
    with pytest.raises(RecordsError):
        scale_for(F(2) ** 120)


def test_release_without_noise_is_the_exact_sums() -> None:
    rng, made = Silence(), JointMoments.calibrate(F(1), lower=-10, upper=30)
    values, counts = np.array([-10.0, -99.0, 7.5, 30.0, 31.0]), np.array([3, 1, 10**7, 2, 5])
    found = made.release(values, counts, rng)
    clipped = np.clip(values, -10, 30)
    n = counts.sum()
    assert found.n_records == n
    assert found.mean == pytest.approx(float(counts @ clipped) / n, abs=1e-9)
    u = (clipped + 10) / 40 - 0.5
    assert found.squares / (4 * 2**40) == pytest.approx(float(counts @ u**2), rel=1e-9)
    assert rng.scales == [made.scale, made.square_scale]
    low, high = found.interval(0.9)
    assert low < found.mean < high


def test_interval_solves_its_inequality_and_is_capped() -> None:
    n, sigma, z = 500, 0.002, 1.6448536269514722
    low, high = moment_interval(
        np.float64(0.3), np.float64(0.09), n_records=n, sigma=sigma, level=0.9
    )
    for end in (low, high):
        t = float(end) - 0.5
        assert (-0.2 - t) ** 2 == pytest.approx(z**2 * ((0.09 - t * t) / n + sigma**2))
    cap = z * math.sqrt(0.25 / n + sigma**2)
    low, high = moment_interval(
        np.float64(0.5), np.float64(0.9), n_records=n, sigma=sigma, level=0.9
    )
    assert (float(low), float(high)) == pytest.approx((0.5 - cap, 0.5 + cap))


@pytest.mark.parametrize("m", [-0.2, 0.0, 0.15])
def test_with_noisy_squares_the_variance_goes_halfway_to_that_about_the_mean(m: float) -> None:
    n, sigma, noise, z = 500, 0.004, 0.002, 1.6448536269514722
    low, high = moment_interval(
        np.float64(0.5 + m), np.float64(0.09), n_records=n, sigma=sigma, level=0.9,
        square_noise=noise,
    )  # fmt: skip
    for end in (low, high):
        t = float(end) - 0.5
        variance = max(0.09 - t * t, 0.09 - (t * t + m * m) / 2) + noise
        assert (m - t) ** 2 == pytest.approx(z**2 * (variance / n + sigma**2))


def test_noise_that_passes_the_bounds_leaves_an_interval_within_them() -> None:
    mean, second = np.array([-0.4, 1.2, 0.5, 0.02]), np.array([-0.3, 0.2, -0.5, 0.23])
    low, high = moment_interval(mean, second, n_records=50, sigma=0.2, level=0.99)
    assert np.all((low >= 0) & (high <= 1) & (low <= high))


def test_what_is_refused() -> None:
    for bounds in ((0, math.inf), (math.nan, 1), (1, 1)):
        with pytest.raises(ConfigError):
            JointMoments.calibrate(F(1), lower=bounds[0], upper=bounds[1])
    with pytest.raises(RecordsError):
        JointMoments.calibrate(F(0), lower=0, upper=1)
    made = JointMoments.calibrate(F(1), lower=0, upper=1)
    with pytest.raises(ConfigError, match="finite"):
        made.release(np.array([math.nan]), np.array([3]), Silence())
    with pytest.raises(ConfigError, match="level"):
        NoisyMoments(made, 10, 0, 0).interval(1.0)


def test_expected_width_is_the_oracles() -> None:
    made = JointMoments.calibrate(F(1, 2), lower=0, upper=10)
    expected = 2 * 1.6448536 * math.sqrt(100 / 12 / 3000 + (10 / (0.5 * 3000)) ** 2)
    assert made.expected_width(0.9, 3000, 100 / 12) == pytest.approx(expected, rel=1e-4)
