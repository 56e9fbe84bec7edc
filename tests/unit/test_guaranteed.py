"""Limits for every population: each step of their proof, and what is published as guaranteed."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from estimating import EPSILON_DELTA, calibrated, draw, released, seeded, table_of
from scipy import stats

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates import guaranteed
from statpress.mechanisms.estimates import guaranteed as guaranteed_variance
from statpress.mechanisms.estimates.estimand import Among, EstimandKnobs
from statpress.mechanisms.estimates.estimate import ESTIMATE
from statpress.mechanisms.estimates.fieller import WHOLE_LINE
from statpress.mechanisms.estimates.guaranteed import excluded, mean_limits, variance_limits
from statpress.mechanisms.estimates.joint_moments import JointMoments, MeanEstimate, NoisyMoments
from statpress.mechanisms.estimates.noisy_quantile import QuantileOfCells
from statpress.mechanisms.estimates.pair_moments import PairEstimate
from statpress.mechanisms.estimates.subsample_split import SplitEstimate
from statpress.mechanisms.registry import REGISTRY


@pytest.mark.parametrize("scale", [4, 30])
def test_the_tail_of_the_discrete_noise_is_below_a_normal_one_a_step_further(scale: int) -> None:
    with mpmath.workdps(40):
        terms = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * scale**2)) for k in range(9 * scale)}
        total = terms[0] + 2 * sum(list(terms.values())[1:])
        for j in range(-5 * scale, 5 * scale):
            beyond = sum(terms[k] for k in terms if k >= abs(j) + (j <= 0))
            tail = beyond if j > 0 else total - beyond
            normal = mpmath.ncdf(-mpmath.mpf(j - 1) / scale)
            assert tail / total <= normal * (1 + mpmath.mpf(10) ** -15)
            if j > 0:  # the broken twin: without the step
                assert tail / total > mpmath.ncdf(-mpmath.mpf(j) / scale)


def laws(rng: np.random.Generator, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A random law on [0, 1] of a few points."""
    return np.sort(rng.random(points)), rng.dirichlet(np.full(points, 0.5))


def test_no_law_of_a_variance_has_larger_positive_parts_than_two_points() -> None:
    rng, caught = np.random.default_rng(1), 0
    for _ in range(2000):
        x, p = laws(rng, int(rng.integers(2, 6)))
        mean = p @ x
        b, w = 1 - mean, p @ (x - mean) ** 2
        mass, a = w / (w + b**2), w / b
        h = rng.uniform(-1, 1)
        actual = p @ np.maximum(x - mean - h, 0) ** 2
        assert actual <= (mass * max(b - h, 0) ** 2 + (1 - mass) * max(-a - h, 0) ** 2 + 1e-15)
        half = w / 2  # the broken twin: a variance that is too small
        mass, a = half / (half + b**2), half / b
        caught += actual > mass * max(b - h, 0) ** 2 + (1 - mass) * max(-a - h, 0) ** 2 + 1e-9
    assert caught > 100


def sums_of(x: np.ndarray, p: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """All samples of n records: their values float64[k, n] and masses."""
    which = np.array(list(itertools.product(range(len(x)), repeat=n)))
    return x[which], p[which].prod(axis=1)


@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_every_bound_is_above_the_exact_tail(noise: float) -> None:
    rng, n = np.random.default_rng(2), 5
    for _ in range(60):
        x, p = laws(rng, 3)
        samples, masses = sums_of(x, p, n)
        sums, mean = samples.sum(axis=1), float(p @ x)
        variance = float(p @ x**2 - mean**2)
        for t in n * mean + np.array([0.2, 1.0, 2.0, 4.0]):
            exact = float(masses @ stats.norm.cdf((sums - t) / noise))
            over = float(t - n * mean)
            assert guaranteed._any_law(float(t), n, mean, noise) >= exact
            assert guaranteed._known_variance(over, n, variance, 1 - mean, noise) >= exact


def test_the_exact_tail_of_shares_agrees_with_many_digits() -> None:
    n, share, noise, t = 60, 0.07, 0.8, 9.3
    with mpmath.workdps(30):
        direct = sum(
            mpmath.binomial(n, k)
            * mpmath.mpf(share) ** k
            * (1 - mpmath.mpf(share)) ** (n - k)
            * mpmath.ncdf((k - mpmath.mpf(t)) / mpmath.mpf(noise))
            for k in range(n + 1)
        )
    assert guaranteed._exact(t, n, share, noise) == pytest.approx(float(direct), rel=1e-10)
    large = guaranteed._exact(50_400.0, 100_000, 0.5, 3.0)
    normal = stats.norm.sf((50_400 - 50_000) / math.sqrt(25_000 + 9))
    assert 0.999 * normal < large < 1.05 * normal  # rounded up, and by how little


def test_limits_agree_with_clopper_and_pearson_where_there_is_nearly_no_noise() -> None:
    low, high = mean_limits(
        12.0, None, n_records=80, noise=1e-4, square_noise=1.0, level=0.95, slack=1e-3
    )
    assert low == pytest.approx(stats.beta.ppf(0.025, 12, 69), rel=1e-3)
    assert high == pytest.approx(stats.beta.ppf(0.975, 13, 68), rel=1e-3)


def exact_coverage(x: np.ndarray, p: np.ndarray, n: int, noise: float, believed: float) -> float:
    """Coverage of limits for a mean, over all samples and over the noise on a grid."""
    samples, masses = sums_of(x, p, n)
    points, weights = np.polynomial.hermite_e.hermegauss(9)
    mean, covered = float(p @ x), 0.0
    keys = np.round(samples.sum(axis=1), 9), np.round(((2 * samples - 1) ** 2).sum(axis=1), 9)
    for total, squares in set(zip(*keys, strict=True)):
        mass = float(masses[(keys[0] == total) & (keys[1] == squares)].sum())
        for e, weight in zip(points, weights / weights.sum(), strict=True):
            low, high = mean_limits(
                total + noise * e, squares, n_records=n, noise=believed,
                square_noise=1.2 * believed, level=0.8, slack=0.0,
            )  # fmt: skip
            covered += mass * weight * (low <= mean <= high)
    return covered


def test_limits_cover_every_law_of_few_records() -> None:
    for x, p in (
        (np.array([0.0, 1.0]), np.array([0.8, 0.2])),
        (np.array([0.0, 0.5, 1.0]), np.array([0.7, 0.1, 0.2])),
    ):
        assert exact_coverage(x, p, 3, 2.5, 2.5) >= 0.8
    assert exact_coverage(x, p, 3, 2.5, 0.2) < 0.75  # the broken twin forgets the noise


def test_a_stretch_is_excluded_only_if_each_mean_in_it_is() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        low, high = np.sort(rng.random(2) * 0.5)
        total, most = float(rng.uniform(20, 60)), float(rng.uniform(0.05, 1))
        stated = {"n_records": 80, "noise": 1.5, "alpha": 0.05}
        if excluded(total, most, (low, high), **stated):
            assert all(excluded(total, most, (m, m), **stated) for m in np.linspace(low, high, 7))


def test_limits_of_a_product_are_those_of_its_units() -> None:
    one = JointMoments.calibrate(Fraction(2), lower=10.0, upper=30.0)
    n, grid = 4000, 1 << 20
    found = NoisyMoments(one, n, -int(0.1 * n * 2 * grid), int(0.03 * n * 4 * grid**2))
    low, high = found.guaranteed_interval(0.9)
    normal = found.interval(0.9)
    assert 10 < low < normal[0] < 18 < normal[1] < high < 30
    assert high - low < 1.5 * (normal[1] - normal[0])


@pytest.mark.parametrize("runs", [1, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("shape", [(0.5, 0.5), (1.0, 12.0)])
def test_limits_of_a_variance_hold_it(shape: tuple[float, float], runs: int) -> None:
    rng, n, hits = np.random.default_rng(6), 1000, 0
    truth = stats.beta(*shape).var()
    for _ in range(runs):
        u = rng.beta(*shape, n) - 0.5
        sums = np.array([(u**k).sum() for k in range(1, 5)]) + rng.normal(size=4)
        low, high = variance_limits(sums, np.eye(4), np.zeros(4), n_records=n, level=0.9)
        hits += low <= truth <= high
        assert high - low < 3 * truth
    assert hits == runs  # nominally nine tenths, and more by far


def test_polynomials_about_the_mean_are_what_they_say() -> None:
    u, scale = np.linspace(-0.5, 0.5, 11), 0.7
    powers = np.column_stack([u**k for k in range(5)])
    for d in (-0.3, 0.0, 0.2):
        z = (u - d) ** 2 / scale
        assert guaranteed_variance.powers(d, 2) @ powers[:, :3].T == pytest.approx(z * scale)
        assert guaranteed_variance.squares_of(d, scale) @ powers.T == pytest.approx(
            (2 * z - 1) ** 2
        )
        for step in (-0.1, 0.07):
            moved = np.abs(
                guaranteed_variance.squares_of(d + step, scale)
                - guaranteed_variance.squares_of(d, scale)
            )
            assert np.all(moved <= abs(step) * guaranteed_variance._steepest(0.4, scale) + 1e-12)


# `inference: guaranteed` on products: who serves it, what is refused, what is published


SERVED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "mean": (MeanEstimate, {}, "age"),
    "sum": (MeanEstimate, {}, "age"),
    "count": (MeanEstimate, {"values": ("m",)}, "sex"),
    "proportion": (MeanEstimate, {"values": ("m",)}, "sex"),
    "variance": (PairEstimate, {}, "age"),
    "median": (QuantileOfCells, {}, "age"),
}

MOST_WIDTH = {"mean": 1.7, "sum": 1.7, "count": 1.05, "proportion": 1.05, "variance": 3}


def knobs_of(statistic: str, inference: Any = "guaranteed") -> EstimandKnobs:
    own = SERVED[statistic][1]
    return EstimandKnobs(statistic=statistic, inference=inference, confidence=0.9, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("statistic", SERVED)
def test_it_is_published_as_guaranteed_and_holds_the_estimate(statistic: str) -> None:
    kind, _, name = SERVED[statistic]
    (found,) = released(kind, knobs_of(statistic), [name], 1000, 2, **EPSILON_DELTA)
    assert found.inference == "guaranteed"
    assert found.lower < found.value < found.upper
    if statistic != "median":  # whose interval always is
        (normal,) = released(
            kind, knobs_of(statistic, "asymptotic"), [name], 1000, 2, **EPSILON_DELTA
        )
        assert normal.inference == "asymptotic"
        ratio = (found.upper - found.lower) / (normal.upper - normal.lower)
        assert 0.95 < ratio < MOST_WIDTH[statistic]
        made = calibrated(kind, knobs_of(statistic), [name], n=1000, **EPSILON_DELTA)
        assert made.guarantee_cost == pytest.approx(ratio, rel=0.5)
        (width,) = made.expected_error(n_records=1000, n_cells=100).width
        assert 0.5 < (found.upper - found.lower) / width < 2


@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_the_description_is_kept(statistic: str) -> None:
    kind, _, name = SERVED[statistic]
    made = calibrated(kind, knobs_of(statistic), [name], **EPSILON_DELTA)
    again = kind.from_description(made.describe())
    assert again == made and again.guaranteed
    before = calibrated(kind, knobs_of(statistic, "asymptotic"), [name], **EPSILON_DELTA)
    assert "inference" not in before.describe()  # as descriptions always were
    assert before.loss(n_records=1000, n_cells=100) == made.loss(n_records=1000, n_cells=100)


def test_only_mechanisms_with_a_guarantee_are_tried() -> None:
    serving = [each for each in REGISTRY.values() if ESTIMATE in each.kinds]
    certain = {name for name, _, _ in ESTIMATE.variants(knobs_of("mean"), serving)}
    every = {name for name, _, _ in ESTIMATE.variants(knobs_of("mean", "asymptotic"), serving)}
    assert certain == {"joint_moments", "pair_moments", "regression_moments", "noisy_quantile"}
    assert every == certain | {"dp_bootstrap", "subsample_split"}


@pytest.mark.parametrize(
    ("kind", "statistic", "names", "own"),
    [
        (PairEstimate, "ratio", ["pay", "debt"], {}),
        (PairEstimate, "covariance", ["age", "pay"], {}),
        (PairEstimate, "mean", ["age", "sex"], {"where": Among(column="sex", values=("m",))}),
        (SplitEstimate, "mean", ["age"], {}),
    ],
)
def test_what_has_no_guarantee_is_refused(
    kind: Any, statistic: Any, names: list[str], own: dict[str, Any]
) -> None:
    asked = EstimandKnobs(statistic=statistic, inference="guaranteed", **own)
    if kind is SplitEstimate:
        asked = SplitEstimate.knobs(statistic=statistic, inference="guaranteed")
    with pytest.raises(ConfigError, match="no guaranteed interval"):
        calibrated(kind, asked, names, **EPSILON_DELTA)


def test_an_unbounded_set_is_published_as_one() -> None:
    """A slope from so little that nothing can be said of it."""
    codes = draw(60, 3)
    made = calibrated(
        PairEstimate, EstimandKnobs(statistic="regression"), ["pay", "age"], n=60,
        epsilon=0.05, delta=1e-6,
    )  # fmt: skip
    shapes = []
    for seed in range(12):
        table = table_of(["pay", "age"], codes)
        for found in made.estimates(made.release(table, seeded(seed))):
            shapes.append(found.shape)
            assert (found.shape == WHOLE_LINE) == bool(
                np.isinf(found.lower) and np.isinf(found.upper) and found.gap is None
            )
            assert found.standard_error is None or found.shape == "interval"
            assert found.valid
    assert shapes.count(WHOLE_LINE) > 12
