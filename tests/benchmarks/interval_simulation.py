"""Intervals of simulated releases, with their coverage and width, for one statistic at a time.

The counts of n records are multinomial; the released moments follow from them and from normal
noise, and the intervals are made by the very functions that make a product's. What does not depend
on the level is simulated once for all levels. A quantile is chosen with the law of its mechanism,
for all replicates at once.

*Oracle* is the width of the normal interval whose standard error is known, 2 z sd; for a quantile,
counted in cells, that of the order statistics z sqrt(q (1 - q) n) about the expected rank, without
noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.estimates import guaranteed as guaranteed_variance
from statpress.mechanisms.estimates import moment_designs
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.guaranteed import FOR_MEAN, mean_limits
from statpress.mechanisms.estimates.joint_moments import (
    JointMoments,
    moment_interval,
    worst_of_mean,
    worst_of_share,
)
from statpress.mechanisms.estimates.moment_designs import (
    CORRELATION,
    GROUP_DIFFERENCE,
    POWERS,
    RATIO,
    SLOPE,
    VARIANCE,
    Derived,
    MomentDesign,
)
from statpress.mechanisms.estimates.moments import inference_words
from statpress.mechanisms.estimates.noisy_quantile import NoisyQuantile, largest_epsilon
from statpress.mechanisms.estimates.pair_moments import NoisyPair, PairMoments, worst_of_quotient
from statpress.mechanisms.estimates.statistics import intercept
from statpress.mechanisms.mechanism import Target
from tests.benchmarks.interval_guarantees import guaranteed_holds
from tests.benchmarks.interval_populations import (
    Law,
    above_half,
    by_group,
    in_group,
    with_response,
    zero_elsewhere,
)
from tests.benchmarks.interval_rows import Found, Setting

_SMALL = 0.05
"""Share of the records that count under a ``where``."""

MEANS: dict[str, tuple[bool, Callable[[Law], Law]]] = {
    "mean": (False, lambda law: law),
    "proportion": (True, above_half),
    "sum where (5%)": (False, lambda law: zero_elsewhere(law, _SMALL)),
    "count where (5%)": (True, lambda law: above_half(zero_elsewhere(law, _SMALL))),
}
"""Whether all values are 0 or 1, and the column. Without ``where`` a sum or a count is n times a
mean or a proportion, and its interval holds it whenever theirs does."""

PAIRS: dict[str, tuple[Derived, MomentDesign, Callable[[Law], Law]]] = {
    "ratio": (RATIO, moment_designs.RATIO_DESIGN, with_response),
    "slope": (SLOPE, moment_designs.PAIR, with_response),
    "intercept": (intercept(0.0), moment_designs.PAIR, with_response),
    "correlation": (CORRELATION, moment_designs.PAIR, with_response),
    "mean where (5%)": (
        Derived(RATIO.numerator, RATIO.denominators, (0.0, 1.0)),
        moment_designs.SOME,
        lambda law: in_group(law, _SMALL),
    ),
    "difference (10%)": (GROUP_DIFFERENCE, moment_designs.GROUP, lambda law: by_group(law, 0.1)),
    "variance": (VARIANCE, moment_designs.ONE, lambda law: law),
}
"""Statistics of joint moments, what is released for them, and what they are taken of."""

QUANTILES = {"median": Fraction(1, 2), "quantile .9": Fraction(9, 10)}
STATISTICS = (*MEANS, *QUANTILES, *PAIRS)


def figures(setting: Setting, levels: tuple[float, ...]) -> Iterator[Found]:
    """All intervals of a statistic, at each level."""
    if setting.statistic in MEANS:
        yield from mean_figures(setting, levels)
    elif setting.statistic in QUANTILES:
        yield from quantile_figures(setting, levels)
    else:
        yield from pair_figures(setting, levels)
        if setting.statistic == "variance":
            yield from guaranteed_variances(setting, levels)


def released(
    law: Law,
    design: MomentDesign,
    n: int,
    mu: float,
    replicates: int,
    rng: np.random.Generator | None,
) -> NoisyPair:
    """Joint moments of as many samples, with the noise of a product; without ``rng`` expected."""
    made = PairMoments.calibrate(Fraction(mu), n_records=n, n_cells=1, design=design)
    values = design.values(law.records)
    if rng is None:
        return NoisyPair(made, n, n * (law.masses @ values))
    sums = law.counts(n, replicates, rng) @ values
    return NoisyPair(made, n, sums + made.noise.sigma * rng.standard_normal(sums.shape))


def pair_figures(setting: Setting, levels: tuple[float, ...]) -> Iterator[Found]:
    """Of the sets of a function of joint moments."""
    wanted, design, made_of = PAIRS[setting.statistic]
    n, mu, law = setting.n, setting.mu, made_of(setting.law)
    truth = wanted.value(law.means)
    if not math.isfinite(truth):
        raise ValueError("the population has no such figure")
    release = released(law, design, n, mu, setting.replicates, setting.rng)
    known = release.known
    exact = released(law, design, n, mu, 1, None).known
    error = exact.error(wanted, sampling=True, cautious=False)
    span = wanted.bounds[1] - wanted.bounds[0]
    for level in levels:
        sets = known.sets(wanted, level)
        in_gap = (sets.gap_lower < truth) & (truth < sets.gap_upper)
        covered = float(np.mean((sets.lower <= truth) & (truth <= sets.upper) & ~in_gap))
        width = sets.upper - sets.lower
        bounded = float(np.mean((width < span) & np.isnan(sets.gap_lower)))
        called = inference_words(worst_of_quotient(release.mechanism.noise_in_jumps, level), level)
        middle, oracle = float(np.median(width)), 2 * normal_quantile(level) * error
        yield Found(setting, level, called, covered, bounded, middle, oracle)


def mean_figures(setting: Setting, levels: tuple[float, ...]) -> Iterator[Found]:
    """Of a mean, by approximation and guaranteed."""
    share, made_of = MEANS[setting.statistic]
    n, law, rng = setting.n, made_of(setting.law), setting.rng
    x = law.records[:, 0]
    truth = float(law.masses @ x)
    made = JointMoments.calibrate(Fraction(setting.mu), lower=0.0, upper=1.0)
    noise, square_noise = made.sigma, 4 * made.sigma / made.square_weight
    counts = law.counts(n, setting.replicates, rng)
    totals = counts @ x + noise * rng.standard_normal(setting.replicates)
    squares = np.full(setting.replicates, float(n))
    if not share:
        squares = counts @ (2 * x - 1) ** 2 + square_noise * rng.standard_normal(len(squares))
    error = math.sqrt((float(law.masses @ x**2) - truth**2) / n + (noise / n) ** 2)
    for level in levels:
        low, high = moment_interval(
            totals / n,
            squares / (4 * n),
            n_records=n,
            sigma=noise / n,
            level=level,
            square_noise=0.0 if share else square_noise / (4 * n),
        )
        worst = (
            worst_of_share(noise, level)
            if share
            else worst_of_mean(noise, made.square_weight, level)
        )
        oracle, called = 2 * normal_quantile(level) * error, inference_words(worst, level)
        covered, width = np.mean((low <= truth) & (truth <= high)), np.median(high - low)
        yield Found(setting, level, called, float(covered), 1.0, float(width), oracle)
        known, noises = None if share else squares, (noise, square_noise)
        covered = np.mean(guaranteed_holds(truth, totals, known, n, noises, level))
        ends = mean_limits(
            float(np.median(totals)), None if share else float(np.median(squares)), n_records=n,
            noise=noise, square_noise=square_noise, level=level, slack=0.0,
        )  # fmt: skip
        width = ends[1] - ends[0]
        yield Found(setting, level, "guaranteed", float(covered), 1.0, float(width), oracle)


def guaranteed_variances(setting: Setting, levels: tuple[float, ...]) -> Iterator[Found]:
    """Of guaranteed limits of a variance; it is held where both that they are made of hold."""
    law, n = setting.law, setting.n
    x = law.records[:, 0]
    mean = float(law.masses @ x)
    scale = max(mean, 1 - mean) ** 2
    release = released(law, moment_designs.ONE, n, setting.mu, setting.replicates, setting.rng)
    chosen = [POWERS.index((degree, 0)) for degree in range(1, 5)]
    sums, noise = release.known.means[chosen] * n, release.known.noise[chosen] * n
    second = guaranteed_variance.powers(mean - 0.5, 2) / scale
    squares = guaranteed_variance.squares_of(mean - 0.5, scale)
    known = np.array([np.full(setting.replicates, float(n)), *sums])
    exact = released(law, moment_designs.ONE, n, setting.mu, 1, None).known
    error = exact.error(VARIANCE, sampling=True, cautious=False)
    middle = NoisyPair(release.mechanism, n, np.median(release.sums, axis=0))
    for level in levels:
        spare, size = 1 - level, np.linalg.norm
        held = guaranteed_holds(
            mean, sums[0] + n / 2, 4 * sums[1], n, (size(noise[0]), 4 * size(noise[1])),
            1 - spare * FOR_MEAN,
        ) & guaranteed_holds(
            float(law.masses @ (x - mean) ** 2) / scale, second @ known[:3], squares @ known, n,
            (size(second[1:] @ noise[:2]), size(squares[1:] @ noise)), 1 - spare * (1 - FOR_MEAN),
        )  # fmt: skip
        low, high = middle.variance_limits(level)
        oracle, covered = 2 * normal_quantile(level) * error, float(np.mean(held))
        yield Found(setting, level, "guaranteed", covered, 1.0, high - low, oracle)


def quantile_figures(setting: Setting, levels: tuple[float, ...]) -> Iterator[Found]:
    """Of the interval of a quantile, with the epsilon that rho = mu^2/2 buys; widths in cells."""
    n, law, rng = setting.n, setting.law, setting.rng
    share, cumulative = QUANTILES[setting.statistic], np.cumsum(law.masses)
    cells, q = len(cumulative), float(share)
    truth = int(np.searchsorted(cumulative, q - 1e-12))
    counts = law.counts(n, setting.replicates, rng)
    target = Target(epsilon=1.0, delta=0.0, n_records=n, n_cells=cells, rho=setting.mu**2 / 2)
    for level in levels:
        made = NoisyQuantile(
            edges=tuple(map(float, range(cells + 1))),
            share=share,
            level=level,
            epsilon=largest_epsilon(target),
            n_records=n,
        )
        low, high = ends_chosen(made, counts, rng)
        covered = float(np.mean((low <= truth) & (truth <= high)))
        reach = normal_quantile(level) * math.sqrt(q * (1 - q) / n)
        first, last = np.searchsorted(cumulative, [q - reach, min(q + reach, 1 - 1e-12)])
        width, oracle = float(np.median(np.abs(high - low) + 1)), float(last - first + 1)
        yield Found(setting, level, "guaranteed", covered, 1.0, width, oracle)


def ends_chosen(
    made: NoisyQuantile, counts: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells of both ends for tables int64[r, k], with the law of ``NoisyQuantile.chosen``."""
    after = np.cumsum(counts, axis=1)
    before, (_, low, high) = after - counts, made.wanted
    steep, gentle = float(made.ends.steep), float(made.ends.gentle)
    rows, last = len(counts), counts.shape[1] - 1

    def chosen(wanted: int, above: float, below: float) -> NDArray[np.int64]:
        costs = np.maximum(above * (before - wanted), below * (wanted - after))
        odds = np.cumsum(np.exp(-np.maximum(costs, 0)), axis=1)
        drawn = rng.random((rows, 1)) * odds[:, -1:]
        return np.minimum((odds <= drawn).sum(axis=1), last)

    one = chosen(low, steep, gentle) if low >= 0 else np.zeros(rows, np.int64)
    two = chosen(high, gentle, steep) if high <= made.n_records else np.full(rows, last)
    return one, two
