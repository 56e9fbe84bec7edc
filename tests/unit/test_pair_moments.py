"""Moments of two columns: designs, sensitivity, errors, estimates and coverage."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, arb_poly, fmpq_poly
from numpy.typing import NDArray
from scipy import stats
from squared_distances import is_proven

from statpress.mechanisms.estimates.fieller import (
    GAP,
    INTERVAL,
    WHOLE_LINE,
    WHOLE_RANGE,
    normal_quantile,
)
from statpress.mechanisms.estimates.moment_designs import (
    CORRELATION,
    COVARIANCE,
    DESIGNS,
    FIRST_ONE,
    FIRST_PAIR,
    GROUP,
    GROUP_DIFFERENCE,
    ONE,
    PAIR,
    POWERS,
    RATIO,
    RATIO_DESIGN,
    SLOPE,
    SOME,
    VARIANCE,
    Derived,
    Errors,
    MomentDesign,
)
from statpress.mechanisms.estimates.moment_designs import RATIO as RATIO_OF_SUMS
from statpress.mechanisms.estimates.pair_moments import FIRST, MomentSets, NoisyPair, PairMoments
from statpress.mechanisms.estimates.statistics import intercept
from statpress.tasks.release.entropy import SeededRandomness

F = Fraction
INTERCEPT = intercept(0.0)
LEVEL = 1e-6
Draw = Callable[[np.random.Generator, int], np.ndarray]


def seeded(seed: int) -> SeededRandomness:
    return SeededRandomness(np.random.PCG64(seed))


def skewed(rng: np.random.Generator, n: int) -> np.ndarray:
    x = rng.beta(2, 5, n)
    return np.column_stack([x, np.clip(0.3 * x + rng.beta(2, 8, n), 0, 1)])


def groups(rng: np.random.Generator, n: int) -> np.ndarray:
    x = (rng.random(n) < 0.3).astype(float)
    return np.column_stack([x, np.where(x > 0, rng.beta(3, 4, n), rng.beta(2, 5, n))])


DIRECT: dict[str, tuple[Derived, Draw, Callable[[np.ndarray], float]]] = {
    "correlation": (CORRELATION, skewed, lambda d: float(np.corrcoef(d.T)[0, 1])),
    "slope": (SLOPE, skewed, lambda d: float(stats.linregress(*d.T).slope)),
    "intercept": (INTERCEPT, skewed, lambda d: float(stats.linregress(*d.T).intercept)),
    "ratio": (RATIO, skewed, lambda d: float(d[:, 1].sum() / d[:, 0].sum())),
    "covariance": (COVARIANCE, skewed, lambda d: float(np.cov(d.T, ddof=0)[0, 1])),
    "variance": (VARIANCE, skewed, lambda d: float(d[:, 0].var())),
    "difference": (
        GROUP_DIFFERENCE,
        groups,
        lambda d: float(d[d[:, 0] > 0, 1].mean() - d[d[:, 0] == 0, 1].mean()),
    ),
}


def test_one_column_alone_gives_the_same_variance() -> None:
    data = skewed(np.random.default_rng(3), 5000)[:, :1]
    made = PairMoments.calibrate(F(10), n_records=5000, design=ONE)
    found = made.release(np.ones(5000, np.int64), data, seeded(1))
    assert found.known.estimate(VARIANCE) == pytest.approx(float(data.var()), abs=1e-3)
    assert F(99) < made.loss().mu_squared <= F(100)
    assert PairMoments.at(made.noise.scale, ONE) == made


def test_loss_is_mu() -> None:
    square = PairMoments.calibrate(F(1, 3), n_records=5000).loss().mu_squared
    assert F(1, 9) * (1 - F(1, 10**5)) < square <= F(1, 9)


@pytest.mark.parametrize("name", DIRECT)
def test_without_noise_the_estimate_is_the_statistic(name: str) -> None:
    wanted, draw, direct = DIRECT[name]
    data = draw(np.random.default_rng(3), 5000)
    found = PairMoments.calibrate(F(10), n_records=5000).release(
        np.ones(5000, np.int64), data, seeded(1)
    )
    assert found.known.estimate(wanted) == pytest.approx(direct(data), abs=2e-3)
    resampled = np.random.default_rng(4).integers(0, 5000, (250, 5000))
    spread = np.std([direct(data[rows]) for rows in resampled])
    interval = found.interval(wanted, 0.9)
    assert interval.shape == INTERVAL
    assert (interval.upper - interval.lower) / 2 / 1.645 == pytest.approx(spread, rel=0.2)


@functools.cache
def population(draw: Draw) -> np.ndarray:
    """Records enough to hold the truth."""
    return draw(np.random.default_rng(11), 2_000_000)


def coverage(name: str, mu: Fraction, runs: int, level: float = 0.9) -> float:
    wanted, draw, direct = DIRECT[name]
    truth = direct(population(draw))
    made, rng, data = PairMoments.calibrate(mu, n_records=5000), seeded(5), np.random.default_rng(6)
    found = [made.release(np.ones(2000, np.int64), draw(data, 2000), rng) for _ in range(runs)]
    # All sets at once, and the first by itself too.
    every = NoisyPair(made, 2000, np.stack([each.sums for each in found]))
    sets, alone = every.known.sets(wanted, level), found[0].interval(wanted, level)
    assert (sets.lower[0], sets.upper[0]) == pytest.approx((alone.lower, alone.upper))
    in_gap = (sets.gap_lower < truth) & (truth < sets.gap_upper)
    hits = np.sum((sets.lower <= truth) & (truth <= sets.upper) & ~in_gap)
    return float(hits / runs)


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("correlation", "variance")
        else pytest.param(name, marks=pytest.mark.nightly)
        for name in DIRECT
    ],
)
def test_coverage(name: str) -> None:
    runs = 200
    low, high = (
        stats.binom.ppf(p, runs, level) / runs for p, level in ((LEVEL, 0.88), (1 - LEVEL, 0.93))
    )
    assert low <= coverage(name, F(1, 2), runs) <= high
    if name == "variance":  # where the noise on the fourth moment is as large as what it measures
        assert coverage(name, F(1, 5), runs) >= low


def test_an_interval_too_short_is_caught() -> None:
    assert coverage("slope", F(1, 2), 200, 0.67) < stats.binom.ppf(LEVEL, 200, 0.88) / 200


@pytest.mark.parametrize("wanted", [CORRELATION, SLOPE, INTERCEPT])
def test_a_column_without_spread_gives_an_unbounded_set(wanted: Derived) -> None:
    columns = np.array([[0.4, 0.1], [0.4, 0.9]])
    found = PairMoments.calibrate(F(1), n_records=5000).release(
        np.array([500, 500]), columns, seeded(2)
    )
    interval = found.interval(wanted, 0.9)
    assert interval.shape in (WHOLE_LINE, WHOLE_RANGE)
    assert (interval.lower, interval.upper) == wanted.bounds


def test_a_group_that_is_empty_gives_an_unbounded_set() -> None:
    columns = np.array([[0.0, 0.1], [0.0, 0.9]])
    found = PairMoments.calibrate(F(1), n_records=5000).release(
        np.array([500, 500]), columns, seeded(2)
    )
    assert found.interval(GROUP_DIFFERENCE, 0.9).shape in (GAP, WHOLE_RANGE)
    assert math.isinf(found.interval(RATIO, 0.9).upper)
    assert math.isfinite(found.known.estimate(COVARIANCE))


# What is released of two columns: how far a record moves it, and how wide the intervals are


SLACK = F(1, 2**12)
ATTAINED: list[tuple[MomentDesign, Fraction, list[tuple[float, ...]]]] = [
    (PAIR, F(13, 4), [(0, 0), (1, 0)]),
    (ONE, F(1), [(0,), (1,)]),
    (RATIO_DESIGN, F(2), [(0, 0), (1, 1)]),
    (GROUP, F(2), [(1, 0), (1, 1)]),
    (SOME, F(1), [(1, 0), (1, 1)]),
    (FIRST_PAIR, F(3), [(0, 1), (1, 0)]),
    (FIRST_ONE, F(5, 4), [(0,), (1,)]),
]
EACH = pytest.mark.parametrize(
    ("design", "attained", "records"),
    ATTAINED,
    ids=[design.name or f"first-{design.columns}" for design, *_ in ATTAINED],
)


@EACH
def test_the_largest_distance_is_proven_and_attained(
    design: MomentDesign, attained: Fraction, records: list[tuple[float, ...]]
) -> None:
    one, two = design.values(np.array(records, np.float64))
    assert float(((one - two) ** 2).sum()) == pytest.approx(float(attained), rel=1e-12)
    assert attained + SLACK <= design.squared_sensitivity or not design.name
    assert is_proven(design, attained + SLACK)


@EACH
def test_random_records_are_no_further_apart(
    design: MomentDesign, attained: Fraction, records: list[tuple[float, ...]]
) -> None:
    """By other means than the proof: records as they are released, many of them at the ends."""
    rng = np.random.default_rng(5)
    places = np.clip(rng.uniform(-0.3, 1.3, (1200, design.columns)), -0.1, 1.1)
    values = design.values(places)
    norms = (values**2).sum(axis=1)
    squares = norms[:, None] + norms - 2 * values @ values.T
    assert 0.98 * attained < squares.max() <= float(attained) + 1e-9
    assert np.abs(values).max() <= 1  # which the proof of the rounding asks for


@pytest.mark.parametrize("design", [PAIR, ONE, GROUP, SOME], ids=lambda design: design.name)
def test_a_weight_too_large_is_not_proven(design: MomentDesign) -> None:
    """The broken twin: the second moments weigh a quarter more."""

    def heavier(k: int) -> bool:
        return any(len(a) == 3 or len(b) == 3 for _, a, b in design.functions[k])

    functions = tuple(
        tuple(p._replace(weight=p.weight * F(5, 4)) for p in products) if heavier(k) else products
        for k, products in enumerate(design.functions)
    )
    assert not is_proven(
        dataclasses.replace(design, functions=functions), design.squared_sensitivity
    )


@pytest.mark.parametrize(
    ("design", "less"), [(SOME, 1 - SLACK), pytest.param(PAIR, F(3), marks=pytest.mark.nightly)]
)
def test_less_than_what_is_attained_is_not_proven(design: MomentDesign, less: Fraction) -> None:
    assert not is_proven(design, less)


def test_the_first_weights_are_charged_by_the_sum_of_separate_moves() -> None:
    """1 - (1 - b)^2 (1 + b^2 (9 + 25 ((1-b)^2 + b^2)^2 / 4)) = b r(b) with r > 0 on [0, 1]."""
    b, one = fmpq_poly([0, 1]), fmpq_poly([1])
    half = ((one - b) ** 2 + b**2) / 2
    rest = one - (one - b) ** 2 * (one + b**2 * (9 + 25 * half**2))
    assert rest[0] == 0
    r = arb_poly([rest[k + 1] for k in range(rest.degree())])
    pieces = 4096
    for k in range(pieces):
        assert r(arb(k) / pieces + arb(0, 1) / pieces + arb(1) / (2 * pieces)) > 0
    separate = F(0)
    for products, (i, j) in zip(FIRST_PAIR.functions, POWERS, strict=True):
        if (i and j) or i + j == 3:
            both_signs = 1 if i % 2 == 0 and j % 2 == 0 else 2
            separate += (products[0].weight * F(both_signs, 2 ** (i + j))) ** 2
    assert FIRST_PAIR.squared_sensitivity == 2 + separate
    assert FIRST_ONE.squared_sensitivity == 1 + (2 * F(1, 4)) ** 2


@pytest.mark.parametrize("design", [*DESIGNS.values(), FIRST_PAIR, FIRST_ONE])
def test_monomials_follow_from_the_functions(design: MomentDesign) -> None:
    rng = np.random.default_rng(7)
    records = rng.random((50, design.columns))
    if design.records in ("groups", "some"):
        records[:, 0] = np.rint(records[:, 0])
    if design.records == "some":
        records[:, 1] *= records[:, 0]
    u, v = records[:, 0] - 0.5, records[:, -1] - 0.5 if design.columns == 2 else np.zeros(50)
    slopes, constant = design.monomials
    found = design.values(records) @ slopes.T + constant
    known = {power for power, row, more in zip(POWERS, slopes, constant, strict=True)
             if row.any() or more}  # fmt: skip
    for power, values in zip(POWERS, found.T, strict=True):
        if power in known:
            np.testing.assert_allclose(values, u ** power[0] * v ** power[1], atol=1e-12)
    needed = {"one": 4, "ratio": 5, "group": 11, "some": 11}.get(design.name)
    assert len(known) == needed if needed else known


def population_of_designs(name: str, size: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(3)
    x, z = rng.beta(2, 5, size), rng.normal(size=(size, 2))
    return {
        "uniform": rng.random((size, 2)),
        "skewed": np.column_stack([x, np.clip(0.3 * x + rng.beta(2, 8, size), 0, 1)]),
        "normal": np.clip(0.5 + 0.15 * z @ np.array([[1, 0.6], [0, 0.8]]), 0, 1),
        "groups": np.column_stack([x < 0.25, rng.beta(2, 5, size)]).astype(float),
        "some": np.column_stack([x < 0.25, (x < 0.25) * rng.beta(2, 5, size)]).astype(float),
    }[name]


def expected(design: MomentDesign, wanted: Derived, data: np.ndarray, mu: Fraction) -> float:
    """The standard error where the noise happens to be 0."""
    made = PairMoments.calibrate(mu, n_records=len(data), design=design)
    sums = design.values(data[:, : design.columns]).sum(axis=0)
    pair = NoisyPair(made, len(data), sums)
    return pair.known.error(wanted, sampling=True, cautious=True)


CASES = {
    "correlation": (PAIR, FIRST_PAIR, CORRELATION, ("uniform", "skewed", "normal"), 0.77),
    "covariance": (PAIR, FIRST_PAIR, COVARIANCE, ("uniform", "skewed", "normal"), 0.8),
    "slope": (PAIR, FIRST_PAIR, SLOPE, ("uniform", "skewed", "normal"), 0.78),
    "variance": (ONE, FIRST_ONE, VARIANCE, ("uniform", "skewed", "normal"), 0.96),
    "ratio": (RATIO_DESIGN, FIRST_PAIR, RATIO_OF_SUMS, ("uniform", "skewed", "normal"), 0.9),
    "difference": (GROUP, FIRST_PAIR, GROUP_DIFFERENCE, ("groups",), 0.9),
    "mean of some": (SOME, FIRST_PAIR, RATIO_OF_SUMS, ("some",), 0.8),
}


@pytest.mark.parametrize("name", CASES)
def test_intervals_are_narrower_than_by_the_first_weights(name: str) -> None:
    new, old, wanted, populations, most = CASES[name]
    ratios = []
    for each in populations:
        data = population_of_designs(each)
        for mu in (F(1, 10), F(1, 2), F(2)):
            ratios.append(expected(new, wanted, data, mu) / expected(old, wanted, data, mu))
    assert max(ratios) < 1
    assert float(np.exp(np.mean(np.log(ratios)))) < most


# How the noise of products of moments is counted


Doubles = NDArray[np.float64]
ONCE = np.zeros(())


def square_coverage(
    mean: float, noise: float, weight: float, level: float, counted: Callable[[Errors], Doubles]
) -> float:
    """How often w - u^2 + noise^2 holds a variance, from noisy u and w, by an integral."""
    points = np.linspace(-6, 6, 321)
    masses = np.exp(-(points**2) / 2)
    masses /= masses.sum()
    one, two = noise * points[:, None], noise / weight * points
    off = two + noise**2 - 2 * mean * one - one**2
    own = 4 * (mean + one) ** 2 * noise**2 + (noise / weight) ** 2
    variance = counted(Errors(ONCE, ONCE, own, np.full_like(own, 4 * noise**4)))
    return float(masses @ (np.abs(off) <= normal_quantile(level) * np.sqrt(variance)) @ masses)


def least_coverage(level: float, counted: Callable[[Errors], Doubles]) -> float:
    """Of all means and noises; 13/4 and 15/4 are the weights of squares in our designs."""
    noises = np.append(np.geomspace(0.003, 1, 12), [3, 10, 100])
    return min(
        square_coverage(mean, float(noise), weight, level, counted)
        for mean in np.linspace(0, 0.5, 6)
        for noise in noises
        for weight in (3.25, 3.75)
    )


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_a_square_is_covered_whatever_its_mean_and_noise(level: float) -> None:
    assert least_coverage(level, lambda errors: errors.of_noise) >= level
    # The noise of the gradient was taken as none before.
    assert least_coverage(level, lambda errors: errors.own) < level - 0.1


def test_the_form_is_the_variance_at_its_ratio_and_more_elsewhere() -> None:
    own, bend = np.random.default_rng(1).uniform(0, 2, (2, 50))
    errors = Errors(ONCE, ONCE, own, bend)
    np.testing.assert_allclose(errors.noise_form(bend / own), errors.of_noise)
    assert (errors.noise_form(np.full(50, 0.3)) >= errors.of_noise * (1 - 1e-12)).all()
    none = Errors(ONCE, ONCE, own, np.zeros(50))
    np.testing.assert_array_equal(none.noise_form(np.zeros(50)), own)


@pytest.mark.parametrize("wanted", [SLOPE, CORRELATION, intercept(0.3)])
def test_bend_is_twice_the_variance_of_the_second_order_term(wanted: object) -> None:
    """For a quadratic f(m + e) - f(m) - g'e; a cubic has a third-order term, here small."""
    rng, scale = np.random.default_rng(4), 0.02
    among = [POWERS.index(power) for power in FIRST]
    means = np.zeros((len(POWERS), 1))
    means[among, 0] = 0.1, -0.2, 0.12, 0.03, 0.2
    noise = scale * rng.normal(size=(len(POWERS), 6))
    known, moved = MomentSets(means, noise, 1000), np.repeat(means, 200_000, axis=1)
    for function in (wanted.numerator, *wanted.denominators):  # type: ignore[attr-defined]
        slopes = known._slopes(function)
        move = noise[among] @ rng.normal(size=(6, 200_000))
        moved[among] = means[among] + move
        at_moved = MomentSets(moved, noise, 1000)._at
        second = function(at_moved) - function(known._at) - slopes.first[:, 0] @ move
        bend = known._errors(slopes, slopes).bend
        assert 2 * second.var() == pytest.approx(float(bend[0]), rel=0.03)
