"""Losses of resampled statistics by enumeration, their calibration, and unknown variances."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats

from statpress.mechanisms.accounting import balls
from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import (
    BootstrapLoss,
    Hits,
    ResampledGaussianLoss,
    SubsampleLoss,
)
from statpress.mechanisms.accounting.privacy_loss_distributions import Account
from statpress.mechanisms.errors import InfeasibleBudgetError, RecordsError
from statpress.mechanisms.estimates.dp_bootstrap import paper_mu_squared
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.resampling_noise import (
    AROUND,
    TOLERANCE,
    CalibratedWidth,
    NoisyVariance,
    composed,
    coverage,
    gaussian_goal,
    largest_mu_squared,
    mean_width,
    widths_from_description,
)
from statpress.mechanisms.estimates.subsample_split import former_multiplier
from tests.benchmarks.black_box_bound import least_width

F = Fraction
VALUES = (0.0, 0.4, 1.0)
EPSILONS = (0.0, 0.2, 0.7, 1.5)
TAIL = 12.0
Law = dict[float, float]


def bootstrap_law(records: Sequence[float]) -> Law:
    """Sums of all n^n equally likely resamples."""
    return tally(sum(draw) for draw in itertools.product(records, repeat=len(records)))


def subset_law(size: int) -> Callable[[Sequence[float]], Law]:
    return lambda records: tally(sum(draw) for draw in itertools.combinations(records, size))


def tally(sums: object) -> Law:
    found: Law = {}
    values = list(sums)  # type: ignore[call-overload]
    for value in values:
        found[round(value, 9)] = found.get(round(value, 9), 0.0) + 1 / len(values)
    return found


def divergence(one: Law, two: Law, epsilon: float, sigma: float) -> float:
    """Hockey-stick divergence of two mixtures of normals, by quadrature."""
    low = min(*one, *two) - TAIL * sigma
    x = np.linspace(low, max(*one, *two) + TAIL * sigma, 6001)
    p, q = (
        sum(chance * np.exp(-(((x - mean) / sigma) ** 2) / 2) for mean, chance in law.items())
        for law in (one, two)
    )
    excess = np.maximum(p - math.exp(epsilon) * q, 0.0) / (sigma * math.sqrt(2 * math.pi))
    return float(np.trapezoid(excess, x))


def worst(law: Callable[[Sequence[float]], Law], n: int, epsilon: float, sigma: float) -> float:
    """Over all pairs of datasets of n records that differ in one of them."""
    found = 0.0
    for rest in itertools.combinations_with_replacement(VALUES, n - 1):
        for a, b in itertools.permutations(VALUES, 2):
            found = max(found, divergence(law((a, *rest)), law((b, *rest)), epsilon, sigma))
    return found


CASES: list[tuple[Callable[[Sequence[float]], Law], int, ResampledGaussianLoss]] = [
    (bootstrap_law, 1, BootstrapLoss(F(1), 1)),
    (bootstrap_law, 2, BootstrapLoss(F(1), 2)),
    (bootstrap_law, 3, BootstrapLoss(F(1), 3)),
    (subset_law(1), 2, SubsampleLoss(F(1), F(1, 2))),
    (subset_law(2), 3, SubsampleLoss(F(1), F(2, 3))),
    (subset_law(2), 4, SubsampleLoss(F(1), F(1, 2))),
]


@pytest.mark.parametrize(("law", "n", "loss"), CASES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_pair_of_neighbours_passes_the_curve(law, n: int, loss, epsilon: float) -> None:
    found, claimed = worst(law, n, epsilon, 1.0), loss.delta(epsilon)
    assert found <= claimed.upper + 1e-7
    assert claimed.upper - claimed.lower < 1e-12
    if isinstance(loss, SubsampleLoss) or n == 1:  # others all equal to the new value
        assert found == pytest.approx(claimed.upper, abs=1e-6)
    assert worst(law, n, epsilon, 0.5) > claimed.upper  # half the noise is caught


def test_bootstrap_is_not_free() -> None:
    """Without the copies of a record the claim would be the statistic's own curve."""
    assert worst(bootstrap_law, 2, 0.2, 1.0) < GaussianLoss(F(1)).delta(0.2).upper
    assert worst(bootstrap_law, 2, 1.5, 1.0) > GaussianLoss(F(1)).delta(1.5).upper


def test_curves_by_their_formula() -> None:
    """The sum over copies, in doubles and with SciPy's binomial."""
    n, mu, epsilon = 3000, 0.3, 0.4
    i = np.arange(1, 30)
    inner = math.log1p(math.expm1(epsilon) / (1 - (1 - 1 / n) ** n))
    curve = stats.norm.cdf(-inner / (i * mu) + i * mu / 2) - math.exp(inner) * stats.norm.cdf(
        -inner / (i * mu) - i * mu / 2
    )
    expected = float(stats.binom.pmf(i, n, 1 / n) @ curve)
    found = BootstrapLoss(F(9, 100), n).delta(epsilon)
    assert found.upper == pytest.approx(expected, rel=1e-11)


class EndsEarly(BootstrapLoss):
    left_out = arb(2) ** -10


class EndsUnnoticed(EndsEarly):
    """Twin: as if nothing were left out."""

    def hits(self, bits: int) -> Hits:
        whole = super().hits(bits)
        return whole._replace(beyond=(arb(0),) * len(whole.beyond))


def test_a_sum_that_ends_early_encloses_the_whole() -> None:
    """Where 2^-10 of the curve may be left out, its bounds are as far apart and hold."""
    whole = [BootstrapLoss(F(1), 3000).delta(epsilon) for epsilon in EPSILONS]
    ended = [EndsEarly(F(1), 3000).delta(epsilon) for epsilon in EPSILONS]
    for (low, high), (least, most) in zip(whole, ended, strict=True):
        assert least <= low <= high <= most
        assert 1e-6 < most / least - 1 < 2**-9
    twin = EndsUnnoticed(F(1), 3000)
    assert any(
        twin.delta(epsilon).upper < low for epsilon, (low, _) in zip(EPSILONS, whole, strict=True)
    )


def enclosed_share(part: ResampledGaussianLoss, step: float, count: int) -> float:
    """Of the points of a curve evaluated at once, those whose bounds enclose each point's own."""
    lower, upper = part.curve(step, count)
    low, high = np.array([part.delta(step * j) for j in range(count + 1)]).T
    assert np.all(upper - lower <= 2**-40 * upper)
    return float(np.mean((lower <= low) & (high <= upper)))


@pytest.mark.parametrize(
    ("part", "step"),
    [
        (BootstrapLoss(F(1, 100), 3000), 2**-6),
        (BootstrapLoss(F(1, 10**6), 40), 2**-14),
        (BootstrapLoss(F(4), 2), 2**-4),
        (BootstrapLoss(F(4), 10**9), 0.1),
        (SubsampleLoss(F(1), F(1, 10)), 2**-5),
        (SubsampleLoss(F(3), F(1)), 2**-4),
    ],
)
def test_a_curve_evaluated_at_once_encloses_what_each_point_has(
    part: ResampledGaussianLoss, step: float, full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300 if full else 100
    assert enclosed_share(part, step, count) == 1
    series, errors = balls._wide_series()
    coarse = series.copy()
    coarse[2] *= 1 + 1e-12  # twin: a coefficient of each series is wrong in its twelfth digit
    monkeypatch.setattr(balls, "_wide_series", lambda: (coarse, errors))
    assert enclosed_share(part, step, count) < 1


def test_tails_at_many_points_are_within_their_errors() -> None:
    x = np.concatenate([np.linspace(-14, 14, 1201), [-1e6, -40.0, 0.0, 12.0, 40.0, 1e6]])
    values, errors = balls.twice_above_each(x.astype(np.longdouble))
    assert np.all(errors <= np.maximum(2**-55 * values, np.exp(-72.0)))
    with ctx.workprec(128):
        exact = [balls.wide((arb(float(point)) / arb(2).sqrt()).erfc()) for point in x]
    assert np.all(np.abs(exact - values) <= errors)


def test_a_small_delta_keeps_its_accuracy() -> None:
    low, high = BootstrapLoss(F(1, 100), 3000).delta(4.0)
    assert 0 < low <= high < 1e-10
    assert high / low < 1 + 1e-12


def test_no_noise_at_all_and_the_rest_of_a_loss() -> None:
    free = BootstrapLoss(F(0), 5)
    assert free.delta(0.0) == (0.0, 0.0) and free.rho == (0.0, 0.0)
    loss = SubsampleLoss(F(1), F(1, 3))
    assert math.isinf(loss.pure_epsilon.lower) and math.isinf(loss.renyi(2).upper)
    assert loss.delta(-0.5).upper == pytest.approx(
        1 - math.exp(-0.5) + math.exp(-0.5) * loss.delta(0.5).upper
    )
    with pytest.raises(RecordsError):
        SubsampleLoss(F(1), F(0))
    with pytest.raises(RecordsError):
        BootstrapLoss(F(1), 0)


@pytest.mark.parametrize(
    ("part", "times"), [(GaussianLoss(F(1, 10)), 100), (BootstrapLoss(F(1, 400), 500), 50)]
)
def test_tail_account_against_the_other_composition(part: PrivacyLoss, times: int) -> None:
    account = Account.of_tails(((part, times),), 2.0**-8)
    other = compose([part] * times)
    for epsilon in (0.0, 3.0):
        low, high = other.delta(epsilon)
        assert low <= account.upper(epsilon)
        assert account.upper(epsilon) == pytest.approx(high, rel=0.06, abs=1e-11)
    gaussian = GaussianLoss(F(1)).delta(6.0).lower
    if isinstance(part, GaussianLoss):
        assert gaussian <= account.upper(6.0) < 1.1 * gaussian


def test_tail_account_puts_different_parts_together() -> None:
    parts = ((GaussianLoss(F(1, 10)), 36), (GaussianLoss(F(4, 5)), 1))
    account = Account.of_tails(parts, 2.0**-8)
    for epsilon in (0.0, 2.0, 6.0):
        exact = GaussianLoss(F(1)).delta(epsilon).lower
        assert exact <= account.upper(epsilon) < 1.1 * exact


def test_goal_is_below_the_gaussian_curve_between_its_points_too() -> None:
    goal, loss = gaussian_goal(F(1)), GaussianLoss(F(1))
    for (a, at_a), (b, at_b) in itertools.pairwise(goal):
        for share in (0.0, 0.3, 0.5, 0.8, 1.0):
            x = (1 - share) * math.exp(a) + share * math.exp(b)
            chord = (1 - share) * at_a + share * at_b
            assert chord <= loss.delta(math.log(x)).upper * (1 + 1e-9)
    assert goal[-1][1] == pytest.approx(1e-10, rel=0.02)


def test_calibration_is_proven_and_hardly_more_than_needed() -> None:
    part, goal = BootstrapLoss(F(1), 3000), gaussian_goal(F(1))
    found = largest_mu_squared(part, 50, goal)
    assert composed(part.at(found), 50).delta(1.0).lower < GaussianLoss(F(1)).delta(1.0).lower
    louder = Account.of_tails(((part.at(found * F(101, 100)), 50),), 2.0**-7)
    assert any(louder.upper(epsilon) > delta for epsilon, delta in goal)
    paper = Account.of_tails(((part.at(paper_mu_squared(F(1), 50)), 50),), 2.0**-7)
    epsilon, delta = goal[-1]
    assert paper.upper(epsilon) > 10 * delta


@pytest.mark.parametrize(
    ("like", "times", "goal"),
    [
        (BootstrapLoss(F(1), 3000), 1, ((1.0, 1e-6),)),
        (BootstrapLoss(F(1), 5), 10, ((1.0, 1e-6),)),
        pytest.param(BootstrapLoss(F(1), 10**9), 100, ((10.0, 1e-8),), marks=pytest.mark.nightly),
        (SubsampleLoss(F(1), F(1, 1000)), 100, gaussian_goal(F(1))),
        (SubsampleLoss(F(1), F(1, 2)), 2, gaussian_goal(F(1, 10))),
    ],
)
def test_calibration_far_from_the_usual(like: ResampledGaussianLoss, times: int, goal) -> None:
    found = largest_mu_squared(like, times, goal)
    louder = composed(like.at(found * F(6, 5)), times)
    assert composed(like.at(found), times).delta(goal[-1][0]).lower <= goal[-1][1]
    assert any(louder.delta(epsilon).upper > delta for epsilon, delta in (goal[0], goal[-1]))


def test_a_goal_that_cannot_be_met_is_refused() -> None:
    part = SubsampleLoss(F(1), F(1, 10))
    with pytest.raises(InfeasibleBudgetError):
        largest_mu_squared(part, 10, gaussian_goal(F(1)), (GaussianLoss(F(1)),))


# The rule for half-widths from an estimated variance: level, constants, and how close to best


LEVEL, RUNS = 1e-6, 40_000
SPLIT = NoisyVariance(49.0, 2.0**-11, 159, 1.0, 2.0**-19, 1 / 12000)
NOISY = NoisyVariance(99.0, 0.008, 63, 1.05, 1.6e-5, 1 / 12000)
FEW = NoisyVariance(0.998, 4.3e-4, 49, 1.02, 8.6e-6, 1 / 2000)
PRESUMED = {SPLIT: 1 / 36000, NOISY: 1 / 540_000, FEW: 1 / 6000}


def simulated(
    rule: CalibratedWidth, known: NoisyVariance, share: float, level: float, forgotten: float = 1.0
) -> int:
    """How many intervals hold, of independent draws and not by quadrature."""
    rng, variance = np.random.default_rng(8), np.array(share * known.most)
    mean = known.spread_gain * variance + known.spread_noise * forgotten
    spread = mean * rng.chisquare(known.freedom, RUNS) / known.freedom
    error = np.sqrt(known.variance_of_centre(variance)) * rng.standard_normal(RUNS)
    return int(np.sum(np.abs(error) <= rule.half_width(known, spread, level)))


@pytest.mark.parametrize("known", PRESUMED)
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_the_level_is_kept_at_every_variance(known: NoisyVariance, level: float) -> None:
    rule = CalibratedWidth.narrowest(known, PRESUMED[known], level)
    allowed = stats.binom.ppf(LEVEL, RUNS, level - 0.06 * (1 - level))
    for share in (0.0, 1e-4, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0):
        assert simulated(rule, known, share, level) >= allowed
    twin = simulated(rule, known, 0.3, level, forgotten=0.5)  # half of the noise forgotten
    assert twin < allowed or known is SPLIT
    lower = dataclasses.replace(rule, addend=rule.addend - 0.3 * known.most)
    assert min(simulated(lower, known, share, level) for share in (0.01, 0.1, 0.2, 0.4)) < allowed


@pytest.mark.parametrize("subsamples", [2, 3])
@pytest.mark.parametrize("part", [0.1, 0.02])
def test_the_level_is_kept_with_few_and_noisy_subsamples(subsamples: int, part: float) -> None:
    """Where no addend is enough for a large factor."""
    n, mu = 1000, 0.1
    full = 1 / (n * mu * math.sqrt(1 - part))
    noise = subsamples * (2 / (n * mu)) ** 2 / part
    known = NoisyVariance(1.0, noise, subsamples - 1, 1.0, full**2, 1 / (4 * n))
    rule = CalibratedWidth.narrowest(known, known.most / 3, 0.95)
    variances = known.most * np.array([0.0, 0.01, 0.1, 0.3, 0.7, 1.0])
    assert np.min(coverage(rule, known, variances, 0.95)) >= 0.95 - TOLERANCE * 0.05
    assert min(simulated(rule, known, each, 0.95) for each in (0.1, 0.5, 1.0)) > 0.945 * RUNS


def test_without_an_addend_it_is_the_cap_or_the_noise() -> None:
    z = normal_quantile(0.9)
    spread = np.array([0.0, 1e9])
    low, high = CalibratedWidth(1.0, 0.0).half_width(FEW, spread, 0.9)
    assert low == pytest.approx(z * math.sqrt(FEW.centre_noise))
    assert high == pytest.approx(z * math.sqrt(FEW.centre_gain * FEW.most + FEW.centre_noise))
    middle = FEW.spread_gain * 1e-4 + FEW.spread_noise
    (found,) = CalibratedWidth(2.0, -1e-5).half_width(FEW, np.array([middle]), 0.9)
    assert found == pytest.approx(z * math.sqrt(1.02 * 1.9e-4 + 8.6e-6))


@pytest.mark.parametrize(("known", "most"), [(NOISY, 1.04), (FEW, 1.07)])
def test_no_rule_is_much_narrower(known: NoisyVariance, most: float) -> None:
    """And the rule of before is wider."""
    presumed = PRESUMED[known]
    at = np.minimum(presumed * np.array(AROUND), known.most)
    oracle = 2 * normal_quantile(0.9) * np.sqrt(known.variance_of_centre(at))
    rule = CalibratedWidth.narrowest(known, presumed, 0.9)
    found = float(np.mean(mean_width(rule, known, at, 0.9) / oracle))
    bound = least_width(known, at, oracle, 0.9, bins=60)
    assert bound / 1.005 < found < most * bound
    former = former_multiplier(known, 1 / (1 + known.spread_gain), 0.9)
    if known is NOISY:
        assert found < 0.97 * float(np.mean(mean_width(former, known, at, 0.9) / oracle))
    wrong = dataclasses.replace(rule, addend=rule.addend - 0.2 * known.most)
    narrow = float(np.mean(mean_width(wrong, known, at, 0.9) / oracle))
    kept = float(np.min(coverage(wrong, known, known.most * np.linspace(0, 1, 21), 0.9)))
    assert narrow < bound and kept < 0.89  # what is below the bound does not keep the level


def test_constants_of_earlier_versions_are_those_they_had() -> None:
    """Printed by the version that published them."""
    former = former_multiplier(SPLIT, 60 / 3000, 0.9)
    assert (former.factor, former.addend) == (1.6941992357600157, 4.0690104166666665e-08)
    found = former.half_width(SPLIT, np.array([0.0004, 0.0006, 0.002, 0.01]), 0.9)
    assert found == pytest.approx([0.00236463, 0.00348364, 0.00970281, 0.01518626], rel=2e-6)


def test_constants_are_read_back_as_they_were_written() -> None:
    rules = (CalibratedWidth(1.05, 1 / 3e5), CalibratedWidth(1.2, -1e-7))
    stated = {
        f"reach_{name}_{i}": repr(getattr(rule, name))
        for i, rule in enumerate(rules, 1)
        for name in ("factor", "addend")
    }
    assert widths_from_description({"other": 1, **stated}, 2) == rules
    with pytest.raises(KeyError, match="reach_factor_1"):
        widths_from_description({"other": 1}, 2)
