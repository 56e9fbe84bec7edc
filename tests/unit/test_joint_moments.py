"""The joint release of two moments: its sensitivity, its noise, its interval."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates import joint_moments
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.joint_moments import (
    WEIGHT,
    JointMoments,
    MeanEstimate,
    NoisyMoments,
    moment_interval,
)
from statpress.mechanisms.estimates.moments import inference_words
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.charges import described_loss
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


# Means, sums and counts under add-remove: what a record moves, the noise and the intervals


HALF = 1 << 20
ADDED = Adjacency.ADD_REMOVE
REGION = Categorical(name="region", categories=tuple("abcdefgh"))
PAY = Numeric(name="pay", edges=Numeric.uniform_edges(20, 60, 8))


def moves(made: JointMoments) -> list[Fraction]:
    """What every record of a grid moves, squared and over the variances of the noise."""
    assert made.count_scale is not None
    scales = (made.scale, made.square_scale, made.count_scale)
    one, two, three = map(equivalent_variance, scales)
    values = [HALF * k // 16 for k in range(-16, 17)] + [123_457, -999_983]
    return [F(u * u) / one + F(u**4) / two + F((2 * HALF) ** 2) / three for u in values]


@pytest.mark.parametrize("mu", [F(1, 10), F(1), F(7, 3)])
def test_the_loss_covers_every_record_that_is_added(mu: Fraction) -> None:
    made = JointMoments.calibrate(mu, lower=0, upper=1, adjacency=ADDED)
    spent = made.loss().mu_squared
    assert mu**2 * (1 - F(1, 10**6)) < spent <= mu**2
    assert max(moves(made)) == spent  # attained, by a record at a bound
    forgotten = spent - (2 * HALF) ** 2 / equivalent_variance(made.count_scale)
    assert max(moves(made)) > forgotten  # twin: the number of records is free
    replaced = JointMoments.calibrate(mu, lower=0, upper=1)
    assert replaced.count_scale is None
    quieter = JointMoments(0, 1, made.scale / 2, made.square_scale, count_scale=made.count_scale)
    assert max(moves(quieter)) > spent  # twin: half the noise


def test_the_sum_has_about_the_noise_of_a_sum_alone() -> None:
    """A sum of records in [0, 1] has the sensitivity 1: the rest costs a sixteenth."""
    made = JointMoments.calibrate(F(1), lower=0, upper=1, adjacency=ADDED)
    assert made.total_sigma() == pytest.approx(math.sqrt(1.125), rel=1e-3)
    assert made.sigma == pytest.approx(math.sqrt(0.5), rel=1e-3)


def made_for(knobs: EstimandKnobs, domain: Domain, about: int) -> MeanEstimate:
    target = Target(
        epsilon=1.0,
        delta=1e-6,
        n_records=about,
        n_cells=domain.n_possible,
        domain=domain,
        adjacency=ADDED,
    )
    return MeanEstimate.calibrate(knobs, target)


def covered(
    statistic: str,
    about: int,
    n: int,
    runs: int,
    kind: type[JointMoments] = JointMoments,
    **knobs: Any,
) -> tuple[float, float]:
    """How often intervals at .9 hold the population's figure, and the mean error over its sd."""
    domain = Domain((PAY if statistic in ("mean", "sum") else REGION,))
    mechanism = made_for(EstimandKnobs(statistic=statistic, confidence=0.9, **knobs), domain, about)
    own = {each.name: getattr(mechanism.moments, each.name) for each in fields(JointMoments)}
    mechanism = replace(mechanism, moments=kind(**own))
    rng = np.random.default_rng(5)
    shares = np.array([0.02, 0.03, 0.05, 0.1, 0.1, 0.2, 0.2, 0.3])
    values = np.array([22.5, 27.5, 32.5, 37.5, 42.5, 47.5, 52.5, 57.5])
    truth = {
        "mean": float(shares @ values),
        "sum": n * float(shares @ values),
        "count": n * float(shares[2:4].sum()),
        "proportion": float(shares[2:4].sum()),
    }[statistic]
    noise, hits, errors = SeededRandomness(np.random.PCG64(11)), 0, []
    for _ in range(runs):
        counts = rng.multinomial(n, shares)
        cells = np.flatnonzero(counts)
        table = ContingencyTable(domain, cells, counts[cells].astype(np.int64))
        (found,) = mechanism.estimates(mechanism.release(table, noise))
        hits += found.lower <= truth <= found.upper
        assert found.standard_error is not None
        errors.append((found.value - truth) / found.standard_error)
    return hits / runs, float(np.mean(errors))


@pytest.mark.parametrize(
    ("statistic", "about"),
    [
        ("mean", 1500), ("sum", 700), ("count", 1500),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                ("mean", 700), ("sum", 1500), ("count", 700), ("proportion", 700),
                ("proportion", 1500),
            )
        ),
    ],
)  # fmt: skip
def test_intervals_cover_whatever_the_plan_expected(statistic: str, about: int) -> None:
    """The truth is 1,000 records: the plan's number is off by half, or by a third."""
    knobs = {"values": ("c", "d")} if statistic in ("count", "proportion") else {}
    runs = 400
    share, bias = covered(statistic, about, 1000, runs, **knobs)
    slack = 4 * math.sqrt(0.9 * 0.1 / runs)
    assert 0.9 - slack <= share <= 0.965
    assert abs(bias) < 0.15


class SizeTakenForPublic(JointMoments):
    count_sigma = 0.0  # type: ignore[assignment]


def test_without_its_own_noise_the_number_would_bring_coverage_down() -> None:
    """Twin: the noisy number of records taken for the public one."""
    share, _ = covered("sum", 100, 100, 400, SizeTakenForPublic)
    assert share < 0.86


def test_a_description_rebuilds_it_and_its_loss() -> None:
    made = made_for(EstimandKnobs(statistic="mean"), Domain((PAY,)), 500)
    described = made.describe()
    assert MeanEstimate.from_description(described) == made
    frame = {"n_records": 500, "n_cells": 8, "unit_records": 1}
    again = described_loss(described | frame | {"n_cells": "8"})
    assert again.delta(0.7) == made.loss(**frame).delta(0.7)
    wrong = described | {"count_scale": str(made.moments.count_scale / 2)}  # type: ignore[operator]
    assert (
        described_loss(wrong | frame | {"n_cells": "8"}).delta(0.7).upper > again.delta(0.7).upper
    )


def test_so_few_records_that_noise_hides_them_have_any_mean() -> None:
    made = made_for(EstimandKnobs(statistic="mean"), Domain((PAY,)), 500)
    table = ContingencyTable(Domain((PAY,)), np.array([3]), np.array([1]))
    (found,) = made.estimates(made.release(table, SeededRandomness(np.random.PCG64(2))))
    assert (found.lower, found.upper) == (20.0, 60.0)


def test_guarantees_and_units_are_refused() -> None:
    domain = Domain((PAY,))
    with pytest.raises(ConfigError, match="guaranteed for a public number"):
        made_for(EstimandKnobs(statistic="mean", inference="guaranteed"), domain, 500)
    several = Domain((Integer(name="age", lower=0, upper=9),), absent=True)
    target = Target(
        epsilon=1.0, delta=1e-6, n_records=300, n_cells=11, unit_records=3, domain=several,
        adjacency=ADDED,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="units of one record"):
        MeanEstimate.calibrate(EstimandKnobs(statistic="mean", per="record"), target)


# How the least coverage of a mean depends on the form of its variance


WEIGHT_RARE = 3.33


def shortfall(way: float, noise: float, level: float) -> float:
    """Level less least coverage, where the variance goes this far to that about the noisy mean."""
    return level - joint_moments.worst_of_mean(noise, WEIGHT_RARE, level, way)


@pytest.mark.parametrize("level", [0.9, 0.99])
def test_halfway_to_the_variance_about_the_mean_is_enough(level: float) -> None:
    """At mu = 1; Wilson's form by itself falls short, and all of the way gains nothing."""
    wilson, halfway, all_of_it = (shortfall(way, 1.0, level) for way in (0.0, 0.5, 1.0))
    assert halfway < 0.004 < 0.0075 < wilson
    assert 0 <= halfway - all_of_it < 0.0005


def test_up_to_what_budget_a_mean_is_asymptotic() -> None:
    """With the noise of a product at this mu: up to mu = 1.5, at .99 up to .8."""
    for level, mu in ((0.9, Fraction(3, 2)), (0.95, Fraction(3, 2)), (0.99, Fraction(4, 5))):
        made = JointMoments.calibrate(mu, lower=0.0, upper=1.0)
        least = joint_moments.worst_of_mean(made.sigma, made.square_weight, level)
        assert inference_words(least, level) == "asymptotic"
        assert (
            inference_words(
                joint_moments.worst_of_mean(made.sigma / 2, made.square_weight, level), level
            )
            == "approximate"
        )
