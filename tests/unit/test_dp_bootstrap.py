"""Noisy replicates, a subsample split, and the inference from them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import integrate, interpolate, optimize, stats

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.accounting.noise_losses import BootstrapLoss, SubsampleLoss
from statpress.mechanisms.accounting.privacy_loss_distributions import Account
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.estimates.dp_bootstrap import (
    BootstrapReplicates,
    Deconvolved,
    NoisyReplicates,
    check_replicates,
    deconvolve,
    objective,
    paper_mu_squared,
    spline_basis,
    suggested_replicates,
)
from statpress.mechanisms.estimates.resampling_noise import (
    CalibratedWidth,
    gaussian_goal,
    mean_width,
)
from statpress.mechanisms.estimates.statistics import Covariance, Mean, Variance
from statpress.mechanisms.estimates.subsample_split import (
    SplitDesign,
    SubsampleSplit,
    default_design,
)
from statpress.mechanisms.sampling.randomness import StatisticNoise
from statpress.tasks.release.entropy import SeededRandomness

F = Fraction
LEVEL = 1e-6
FULL = pytest.mark.nightly


def seeded(key: int = 1) -> SeededRandomness:
    return SeededRandomness(AESCounter(key=key))


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_noise_covers_rounding_and_floating_point(dimension: int) -> None:
    made = StatisticNoise.calibrate(F(1, 9), sensitivity=F(1, 3000), dimension=dimension)
    assert made.mu_squared <= F(1, 9)
    assert made.mu_squared > F(1, 9) * (1 - F(1, 10**6))
    assert made.sigma == pytest.approx(3 / 3000, rel=1e-3)
    assert made.step <= F(1, 3000) / 2**12
    # Two values at the sensitivity, each off by half a step and rounded the other way.
    steps = F(1, 3000) / made.step
    worst = math.sqrt(dimension) * (float(steps) / math.sqrt(dimension) + 2)
    assert worst <= float(made.move) + 1e-6
    with pytest.raises(RecordsError):
        StatisticNoise.calibrate(F(0), sensitivity=F(1))


def test_sums_that_doubles_cannot_hold_are_refused() -> None:
    """The bound behind it: k products of magnitude 1 are off by k n 2^-53 at the most."""
    StatisticNoise.check_accuracy(n_records=10**7, n_cells=10**4)
    StatisticNoise.check_accuracy(n_records=200_000, n_cells=2**62)
    with pytest.raises(RecordsError):
        StatisticNoise.check_accuracy(n_records=10**6, n_cells=2**62)
    with pytest.raises(RecordsError, match="too many"):
        SubsampleSplit.calibrate(Mean(), F(1), n_records=10**6)
    with pytest.raises(RecordsError, match="too many"):
        BootstrapReplicates.as_in_paper(Mean(), F(1), n_records=10**6, replicates=2)
    made = BootstrapReplicates.as_in_paper(
        Mean(), F(1), n_records=10**6, replicates=2, n_cells=1000
    )
    assert made.n_records == 10**6
    noise = StatisticNoise.calibrate(F(1), sensitivity=F(1, 200_000))
    values = np.random.default_rng(1).random((200_000, 1))
    exact = sum(Fraction(x) for x in values[:2000, 0].tolist())
    plain = Mean().evaluate(np.ones((1, 2000), np.int64), values[:2000])[0, 0]
    assert abs(F(plain) - exact / 2000) < noise.step / 2


def test_sums_by_blocks_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    n = 50_000  # of three rows, more than twice what a block has
    weights, columns = rng.poisson(1, (3, n)), rng.random((n, 2))
    for row, mean, covariance in zip(
        weights,
        Mean().evaluate(weights, columns),
        Covariance().evaluate(weights, columns),
        strict=True,
    ):
        assert mean[0] == pytest.approx(np.average(columns[:, 0], weights=row), rel=1e-12)
        assert covariance[0] == pytest.approx(np.cov(columns.T, fweights=row)[0, 1], rel=1e-10)


def test_noise_has_its_scale() -> None:
    made = StatisticNoise.calibrate(F(1), sensitivity=F(1, 100))
    values = made.release(np.full((2000, 1), 0.37), seeded())
    assert stats.kstest((values[:, 0] - 0.37) / made.sigma, "norm").pvalue > LEVEL
    assert stats.kstest((values[:, 0] - 0.37) / made.sigma * 1.3, "norm").pvalue < LEVEL


def test_strict_and_paper_replicates_say_what_they_cost() -> None:
    common = {"n_records": 3000, "replicates": 50}
    strict = BootstrapReplicates.calibrate(Mean(), F(1), **common)
    paper = BootstrapReplicates.as_in_paper(Mean(), F(1), **common)
    assert paper.noise.sigma == pytest.approx(math.sqrt((2 - 2 / math.e) * 50) / 3000, rel=1e-3)
    assert strict.noise.sigma / paper.noise.sigma == pytest.approx(1.24, abs=0.005)
    costs = []
    for made in (strict, paper):
        part = BootstrapLoss(made.noise.mu_squared, 3000)
        account = Account.of_tails(((part, 50),), 2.0**-7)
        costs.append(max(account.upper(e) / d for e, d in gaussian_goal(F(1))))
    assert costs[0] < 1.05 < 10 < costs[1]
    assert paper.calibration == "paper"
    assert paper.noise.mu_squared <= paper_mu_squared(F(1), 50)


def test_replicates_of_a_vector_on_weighted_cells() -> None:
    counts, columns = np.array([400, 300, 300]), np.array([[0.0, 0.2], [0.5, 1.0], [1.0, 0.4]])
    made = BootstrapReplicates.calibrate(
        Covariance(), ((1.0, 1e-6),), n_records=1000, replicates=400
    )
    values = made.release(counts, columns, seeded(), chunk=300)  # several chunks
    drawn = np.repeat(columns, counts, axis=0)
    u, v = (drawn - drawn.mean(axis=0)).T
    spread = np.var(u * v) / 1000 + made.noise.sigma**2
    assert values.shape == (400, 1)
    assert np.mean(values) == pytest.approx(np.cov(drawn.T)[0, 1], abs=5 * math.sqrt(spread / 400))
    assert np.var(values) == pytest.approx(spread, rel=0.4)
    found = made.inference(values)
    assert found.sensitivity == 1 / 1000 and found.sigma == made.noise.sigma


def test_split_is_proven_at_both_of_its_parts() -> None:
    made = SubsampleSplit.calibrate(Mean(), F(1, 2), n_records=3000)
    part = SubsampleLoss(made.part.mu_squared, F(made.size, 3000))
    full = GaussianLoss(F(0), made.full.mu_squared)
    account = Account.of_tails(((part, made.subsamples), (full, 1)), 0.003)
    for epsilon, delta in gaussian_goal(F(1, 2)):
        assert account.upper(epsilon) <= delta * 1.02
    assert float(full.mu_squared) == pytest.approx(0.125, rel=1e-5)
    assert made.loss().delta(1.0).upper <= GaussianLoss(F(1, 2)).delta(1.0).upper * 1.05


@pytest.mark.parametrize(
    ("mu", "design", "figure"),
    [
        (F(1), SplitDesign(F(1, 2), F(1, 10), 80), 0.594),
        pytest.param(F(1, 2), SplitDesign(F(1, 2), F(1, 50), 160), 0.834, marks=FULL),
        pytest.param(F(3, 10), SplitDesign(F(3, 5), F(1, 50), 160), 0.565, marks=FULL),
        (F(1, 10), SplitDesign(F(7, 10), F(1, 50), 80), 0.271),
    ],
)
def test_known_designs(mu: Fraction, design: SplitDesign, figure: float) -> None:
    made = SubsampleSplit.calibrate(Mean(), mu, n_records=3000, design=design)
    assert math.sqrt(made.part.mu_squared) == pytest.approx(figure, abs=0.002)


@pytest.mark.parametrize(("mu", "mean", "variance"), [
    (F(1), 1.03, 1.1), (F(1, 10), 1.12, 1.18),
    pytest.param(F(1, 2), 1.05, 1.13, marks=FULL),
])  # fmt: skip
def test_widths_over_the_oracles(mu: Fraction, mean: float, variance: float) -> None:
    """U(0, 1), n = 3000, 90 %."""
    for statistic, most, true in ((Mean(), mean, 1 / 12), (Variance(), variance, 1 / 180)):
        made = SubsampleSplit.calibrate(statistic, mu, n_records=3000, presumed=true / 3000)
        oracle = 2 * 1.644854 * math.sqrt(true / 3000 + 1 / (3000 * float(mu)) ** 2)
        rule = CalibratedWidth.narrowest(made.known, true / 3000, 0.9)
        assert mean_width(rule, made.known, np.array(true / 3000), 0.9) < most * oracle


def split_coverage(mu: Fraction, runs: int) -> float:
    """Of the real release, on real records."""
    made = SubsampleSplit.calibrate(Mean(), mu, n_records=600, presumed=1 / 7200)
    rule = CalibratedWidth.narrowest(made.known, 1 / 7200, 0.9)
    data, rng, hits = np.random.default_rng(2), seeded(3), 0
    for _ in range(runs):
        records = (data.random(600) * 64).astype(np.int64)
        counts = np.bincount(records, minlength=64)
        value, parts = made.release(counts, (np.arange(64.0) / 63)[:, None], rng)
        _, low, high, *_ = made.interval(float(value[0]), parts[:, 0], 0.9, rule)
        hits += low <= 0.5 <= high
    return hits / runs


@pytest.mark.parametrize("runs", [50, pytest.param(150, marks=FULL)])
def test_real_release_covers(runs: int) -> None:
    assert split_coverage(F(1), runs) > stats.binom.ppf(LEVEL, runs, 0.89) / runs


def test_designs_and_what_is_refused() -> None:
    even = {"sensitivity": 1 / 300, "variance": 1 / 3600, "unbiased": False}
    assert default_design(F(1, 10), 300, **even).share == F(1, 10)
    with pytest.raises(RecordsError):
        default_design(F(1), 50, **even)
    with pytest.raises(RecordsError):
        SplitDesign(F(1), F(1, 10), 80)
    with pytest.raises(RecordsError):
        BootstrapReplicates.calibrate(Mean(), F(1), n_records=1, replicates=10)


# Algorithm 3, the t-interval and the cap, against their formulas and simulation


N = 3000


def replicates(mu: float, count: int, seed: int = 1) -> NoisyReplicates:
    rng = np.random.default_rng(seed)
    sigma = math.sqrt((2 - 2 / math.e) * count) / (N * mu)
    means = 0.5 + math.sqrt(1 / 12 / N) * rng.standard_normal(count)
    return NoisyReplicates(means + sigma * rng.standard_normal(count), sigma, N, 1 / N)


def test_algorithm_3_by_hand() -> None:
    values = np.array([1.0, 2.0, 4.0, 5.0])
    made = NoisyReplicates(values, 1.2, 10, 1.0)
    square = (10 / 9 + 1 / 4) * (10 / 3) - 10 / 9 * 1.44
    assert made.mean == 3.0
    assert made.standard_error == pytest.approx(math.sqrt(square))
    assert NoisyReplicates(values, 3.0, 10, 1.0).standard_error == 0.0


def test_t_interval_by_hand() -> None:
    made = replicates(3.0, 150)
    spread = float(np.var(made.values, ddof=1))
    variance = (N**2 * spread - (2 - 2 / math.e) * 150 / 9) / (N - 1)
    degrees = (variance / (N * spread)) ** 2 * 149
    reach = stats.t.ppf(0.95, degrees) * made.standard_error
    found = made.t_interval(0.9)
    assert found.valid
    assert found.upper - found.lower == pytest.approx(2 * reach)


def test_t_interval_knows_when_it_is_not_valid() -> None:
    found = replicates(0.1, 200).t_interval(0.9)
    assert not found.valid
    cap = 1.6448536 * math.sqrt(1 / (4 * N) * (1 + 1 / 200) + replicates(0.1, 200).sigma ** 2 / 200)
    assert found.upper - found.lower == pytest.approx(2 * cap, rel=1e-6)


def test_every_interval_is_capped() -> None:
    made = replicates(0.1, 200)
    wide = NoisyReplicates(made.values, made.sigma, N, 1e-6)
    for found in (wide.percentile_interval(0.9), wide.t_interval(0.9)):
        cap = 1.6449 * math.sqrt(N * 1e-12 / 4 * (1 + 1 / 200) + made.sigma**2 / 200)
        assert found.upper - found.lower <= 2 * cap
    free = made.percentile_interval(0.9)
    assert free.upper - free.lower < made.deconvolved().interval(0.9)[1] - 0.4


def test_too_few_replicates_for_the_level() -> None:
    check_replicates(20, 0.9)
    with pytest.raises(ConfigError, match="at least 200"):
        check_replicates(199, 0.99)
    with pytest.raises(ConfigError, match="level"):
        check_replicates(100, 1.0)
    with pytest.raises(ConfigError, match="two replicates"):
        NoisyReplicates(np.array([1.0]), 1.0, N, 1 / N)


def test_rule_of_thumb_for_the_number_of_replicates() -> None:
    common = {"n_records": N, "sensitivity": 1 / N, "variance": 1 / 12 / N}
    found = suggested_replicates(0.9, mu=1.0, **common)
    assert (2 - 2 / math.e) * found / N**2 <= 1 / 12 / N < (2 - 2 / math.e) * (found + 1) / N**2
    assert suggested_replicates(0.99, mu=0.1, **common) == 200


# Deconvolution against an independent optimiser of the model as defined


NORMAL = 0.5 + 0.01 * stats.norm.ppf((np.arange(200) + 0.5) / 200)
SKEWED = 3 + stats.gamma.ppf((np.arange(150) + 0.5) / 150, 2.5)
GOLDEN = {
    "normal": (NORMAL, 0.006, 0.9),
    "normal, loud": (NORMAL, 0.0099, 0.9),
    "skewed": (SKEWED, 0.7, 0.8),
}


def by_definition(noisy: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Grid and masses by a quasi-Newton search that knows values alone."""
    q1, q3 = np.quantile(noisy, [0.25, 0.75])
    x = np.linspace(q1 - 3 * (q3 - q1), q3 + 3 * (q3 - q1), 1000)
    edges = np.linspace(noisy.min(), noisy.max(), 41)
    counts, _ = np.histogram(noisy, edges)
    edges[0], edges[-1] = -np.inf, np.inf
    kernel = np.array([np.diff(stats.norm.cdf(edges, at, sigma)) for at in x]).T
    basis = spline_basis()

    def cost(a: np.ndarray) -> float:
        g = np.exp(basis @ a - (basis @ a).max())
        return float(-counts @ np.log(kernel @ (g / g.sum())) + 0.1 * math.sqrt(a @ a))

    best = np.ones(5)
    for method in ("BFGS", "Nelder-Mead", "BFGS"):
        options = {"maxiter": 20_000, "maxfev": 20_000} if method == "Nelder-Mead" else {}
        best = optimize.minimize(cost, best, method=method, options=options).x
    g = np.exp(basis @ best - (basis @ best).max())
    return x, g / g.sum()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_minimum_is_that_of_an_independent_optimiser(name: str) -> None:
    noisy, sigma, level = GOLDEN[name]
    found = deconvolve(noisy, sigma)
    x, g = by_definition(noisy, sigma)
    assert np.allclose(found.points, x)
    assert np.max(np.abs(np.cumsum(found.masses) - np.cumsum(g))) < 2e-4
    low, high = found.interval(level)
    assert low == pytest.approx(np.interp((1 - level) / 2, np.cumsum(g), x), rel=1e-4)
    assert high == pytest.approx(np.interp((1 + level) / 2, np.cumsum(g), x), rel=1e-4)
    assert found.steps < 20


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("normal", 0.4870429, 0.5133721),
        ("normal, loud", 0.4907611, 0.5095063),
        ("skewed", 3.961917, 7.345335),
    ],
)
def test_stored_reference_values(name: str, low: float, high: float) -> None:
    """Computed once by the optimiser of the test above."""
    noisy, sigma, level = GOLDEN[name]
    assert deconvolve(noisy, sigma).interval(level) == pytest.approx((low, high), rel=1e-5)


def test_derivatives_are_those_of_the_value() -> None:
    rng, basis = np.random.default_rng(2), spline_basis()
    kernel = stats.norm.pdf(rng.normal(size=(12, 1)), np.linspace(-3, 3, 1000), 0.8)
    counts = rng.integers(1, 9, 12).astype(float)

    def at(a: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return objective(a, kernel, counts, 0.1, basis)

    a = rng.normal(size=5)
    _, gradient, hessian = at(a)
    for i, unit in enumerate(np.eye(5) * 1e-5):
        up, down = at(a + unit), at(a - unit)
        assert (up[0] - down[0]) / 2e-5 == pytest.approx(gradient[i], rel=1e-5, abs=1e-7)
        assert (up[1] - down[1]) / 2e-5 == pytest.approx(hessian[i], rel=1e-4, abs=1e-6)


def test_basis_spans_the_natural_cubic_splines() -> None:
    basis, x = spline_basis(), np.linspace(0, 1, 1000)
    assert np.allclose(basis.mean(axis=0), 0) and np.allclose(np.linalg.norm(basis, axis=0), 1)
    knots = np.linspace(0, 1, 6)
    natural = interpolate.CubicSpline(knots, [0, 1, -1, 2, 0, 3], bc_type="natural")(x)
    design = np.column_stack([np.ones(1000), basis])
    assert np.linalg.norm(design @ np.linalg.lstsq(design, natural)[0] - natural) < 1e-9
    bent = interpolate.CubicSpline(knots, [0, 1, -1, 2, 0, 3], bc_type="clamped")(x)
    assert np.linalg.norm(design @ np.linalg.lstsq(design, bent)[0] - bent) > 0.1


def test_noise_is_taken_away() -> None:
    rng = np.random.default_rng(4)
    signal = rng.normal(2.0, 1.0, 4000)
    noisy = signal + rng.normal(0, 1.0, 4000)
    low, high = deconvolve(noisy, 1.0).interval(0.9)
    assert high - low == pytest.approx(2 * 1.645, rel=0.12)
    low, high = deconvolve(noisy, 0.01).interval(0.9)  # the noise forgotten
    assert high - low > 1.3 * 2 * 1.645


def test_quantiles_invert_the_distribution() -> None:
    found = deconvolve(NORMAL, 0.006)
    assert isinstance(found, Deconvolved)
    middle = integrate.trapezoid(found.points * found.masses) / integrate.trapezoid(found.masses)
    assert found.quantile(0.5) == pytest.approx(0.5, abs=2e-4)
    assert middle == pytest.approx(0.5, abs=2e-4)
    assert found.quantile(0.01) < found.quantile(0.3) < found.quantile(0.99)


@pytest.mark.parametrize(
    ("noisy", "sigma"),
    [([], 1.0), ([1.0], 1.0), ([1.0, 1.0, 1.0], 1.0), ([1.0, 2.0], 0.0), ([1.0, 2.0], math.nan)],
)
def test_what_cannot_be_deconvolved(noisy: list[float], sigma: float) -> None:
    with pytest.raises(ConfigError, match="deconvolution"):
        deconvolve(np.array(noisy), sigma)
