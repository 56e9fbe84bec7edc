"""Coverage and width of the intervals of estimates, by simulation from what is released.

``python -m tests.benchmarks.interval_coverage`` prints all tables in some minutes, ``--quick`` a
part of them. A population is a law over some cells; the counts of n records are multinomial, the
released moments follow from them and from normal noise, and the intervals are made by the very
functions that make a product's. *Oracle* is the width of the normal interval whose standard error
is known, 2 z sd.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference import guaranteed_variance, moment_designs
from mechanisms.inference.guaranteed import FOR_SQUARES, excluded, mean_limit, mean_limits
from mechanisms.inference.guaranteed_variance import FOR_MEAN
from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.moment_designs import POWERS, MomentDesign
from mechanisms.inference.moment_functions import (
    CORRELATION,
    GROUP_DIFFERENCE,
    RATIO,
    SLOPE,
    VARIANCE,
    Derived,
    intercept,
)
from mechanisms.inference.moment_pairs import NoisyPair, PairMoments
from mechanisms.inference.moments import JointMoments, moment_interval
from mechanisms.inference.rare_values import (
    MOST_SHORTFALL,
    inference_words,
    worst_of_mean,
    worst_of_quotient,
    worst_of_share,
)

Doubles = NDArray[np.float64]
SIZES, MUS = (300, 1000, 5000, 50_000), (0.1, 0.3, 0.7, 3.0)


@dataclass(frozen=True)
class Law:
    """A population of records: float64[k, c] in [0, 1] and their masses float64[k]."""

    records: Doubles
    masses: Doubles

    def counts(self, n: int, replicates: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """int64[replicates, k] of n records each."""
        return rng.multinomial(n, self.masses, size=replicates)


def _law(values: Doubles, masses: Doubles) -> Law:
    return Law(np.asarray(values, np.float64)[:, None], np.asarray(masses) / np.sum(masses))


def populations() -> dict[str, Law]:
    """Of one column, by name."""
    middle = (np.arange(40) + 0.5) / 40
    steps = np.arange(1, 101)
    edges = np.linspace(0, 1, 41)
    arcs = np.diff(2 / math.pi * np.arcsin(np.sqrt(edges)))
    bumps = np.exp(-((middle - 0.25) ** 2) / 0.005) + 0.5 * np.exp(-((middle - 0.8) ** 2) / 0.002)
    rare = np.append(0.0, middle), np.append(0.99, np.full(40, 0.01 / 40))
    bound = np.append(1.0, middle), np.append(0.4, np.full(40, 0.6 / 40))
    return {
        "uniform": _law(middle, np.ones(40)),
        "bimodal": _law(middle, bumps),
        "beta(.5,.5)": _law(middle, arcs),
        "zipf 1.5": _law((steps - 1) / 99, steps**-1.5),
        "zipf 2.5": _law((steps - 1) / 99, steps**-2.5),
        "99% zeros": _law(*rare),
        "mass at a bound": _law(*bound),
        "nearly constant": _law(np.array([0.49, 0.5, 0.51]), np.array([0.01, 0.98, 0.01])),
        "0/1": _law(np.array([0.0, 1.0]), np.array([0.7, 0.3])),
    }


def with_response(law: Law) -> Law:
    """A second column .2 + .5 x, give or take .2."""
    moves, x = np.array([-0.2, 0.0, 0.2]), law.records[:, 0]
    y = 0.2 + 0.5 * x[:, None] + moves
    records = np.column_stack([np.repeat(x, 3), y.ravel()])
    return Law(records, np.repeat(law.masses, 3) / 3)


def in_group(law: Law, share: float) -> Law:
    """The first column is whether a record counts, the second its value, or else 0."""
    some = np.column_stack([np.ones(len(law.masses)), law.records[:, 0]])
    records = np.concatenate([[[0.0, 0.0]], some])
    return Law(records, np.append(1 - share, share * law.masses))


def by_group(law: Law, share: float) -> Law:
    """The first column is the group, the second the value, larger by a fifth in the group."""
    x, half = law.records[:, 0], 0.8 * law.records[:, 0]
    records = np.column_stack([np.repeat([0.0, 1.0], len(x)), np.append(half, half + 0.2)])
    return Law(records, np.append((1 - share) * law.masses, share * law.masses))


PAIRS: dict[str, tuple[Derived, MomentDesign, Callable[[Law], Law]]] = {
    "ratio": (RATIO, moment_designs.RATIO, with_response),
    "slope": (SLOPE, moment_designs.PAIR, with_response),
    "intercept": (intercept(0.0), moment_designs.PAIR, with_response),
    "correlation": (CORRELATION, moment_designs.PAIR, with_response),
    "mean where (5%)": (
        Derived(RATIO.numerator, RATIO.denominators, (0.0, 1.0)),
        moment_designs.SOME,
        lambda law: in_group(law, 0.05),
    ),
    "difference (10%)": (GROUP_DIFFERENCE, moment_designs.GROUP, lambda law: by_group(law, 0.1)),
    "variance": (VARIANCE, moment_designs.ONE, lambda law: law),
}
"""Statistics of joint moments, what is released for them, and what they are taken of."""


def means_of(law: Law) -> Doubles:
    """float64[5] means of x, y, x^2, xy, y^2 in the population."""
    x, y = law.records[:, 0], law.records[:, -1]
    return np.array([law.masses @ each for each in (x, y, x**2, x * y, y**2)])


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


@dataclass(frozen=True)
class Found:
    """What a simulation found, for one statistic, population, size and mu."""

    statistic: str
    population: str
    n: int
    mu: float
    level: float
    inference: str
    covered: float
    bounded: float
    width: float
    oracle: float

    def row(self) -> str:
        """As printed."""
        return (
            f"{self.statistic:18}{self.population:17}{self.n:7}{self.mu:5.1f}{self.level:6.2f}  "
            f"{self.inference:12}{self.covered:8.4f}{self.bounded:9.3f}{self.width:11.4g}"
            f"{self.oracle:11.4g}{self.width / self.oracle:8.2f}"
        )


def pair_figures(
    statistic: str, name: str, n: int, mu: float, level: float, replicates: int
) -> Found:
    """Coverage of the sets of a statistic, and their median width beside the oracle's."""
    wanted, design, made_of = PAIRS[statistic]
    law = made_of(populations()[name])
    truth = wanted.value(means_of(law))
    if not math.isfinite(truth):
        raise ValueError("the population has no such figure")
    rng = np.random.default_rng([n, round(mu * 10), len(name), len(statistic)])
    release = released(law, design, n, mu, replicates, rng)
    found = release.known
    covered = float(np.mean(found.holds(wanted, truth, level)))
    sets = found.sets(wanted, level)
    span = wanted.bounds[1] - wanted.bounds[0]
    width = sets.upper - sets.lower
    bounded = float(np.mean((width < span) & np.isnan(sets.gap_lower)))
    exact = released(law, design, n, mu, 1, None).known
    oracle = 2 * normal_quantile(level) * exact.error(wanted, sampling=True, cautious=False)
    worst = worst_of_quotient(release.mechanism.noise_in_jumps, level)
    called = inference_words(worst, level)
    middle = float(np.median(width))
    return Found(statistic, name, n, mu, level, called, covered, bounded, middle, oracle)


def mean_figures(
    statistic: str, name: str, n: int, mu: float, level: float, replicates: int
) -> Iterator[Found]:
    """Means, or proportions of the values above a half, by approximation and guaranteed."""
    law, share = populations()[name], statistic == "proportion"
    x = law.records[:, 0]
    if share:
        x = (x > 0.5).astype(np.float64)
    truth = float(law.masses @ x)
    rng = np.random.default_rng([n, round(mu * 10), len(name), int(share)])
    made = JointMoments.calibrate(Fraction(mu), lower=0.0, upper=1.0)
    noise, square_noise = made.sigma, 4 * made.sigma / made.square_weight
    counts = law.counts(n, replicates, rng)
    totals = counts @ x + noise * rng.standard_normal(replicates)
    squares = counts @ (2 * x - 1) ** 2 + square_noise * rng.standard_normal(replicates)
    if share:
        squares = np.full(replicates, float(n))
    low, high = moment_interval(
        totals / n,
        squares / (4 * n),
        n_records=n,
        sigma=noise / n,
        level=level,
        square_noise=0.0 if share else square_noise / (4 * n),
    )
    worst = (
        worst_of_share(noise, level) if share else worst_of_mean(noise, made.square_weight, level)
    )
    variance = float(law.masses @ x**2) - truth**2
    oracle = 2 * normal_quantile(level) * math.sqrt(variance / n + (noise / n) ** 2)
    covered = float(np.mean((low <= truth) & (truth <= high)))
    called, width = inference_words(worst, level), float(np.median(high - low))
    yield Found(statistic, name, n, mu, level, called, covered, 1.0, width, oracle)
    known = None if share else squares
    covered = float(
        np.mean(guaranteed_holds(truth, totals, known, n, (noise, square_noise), level))
    )
    widths = [
        float(np.diff(mean_limits(
            float(totals[k]), None if share else float(squares[k]), n_records=n, noise=noise,
            square_noise=square_noise, level=level, slack=0.0,
        ))[0])
        for k in range(3)
    ]  # fmt: skip
    width = float(np.median(widths))
    yield Found(statistic, name, n, mu, level, "guaranteed", covered, 1.0, width, oracle)


def guaranteed_holds(
    truth: float,
    totals: Doubles,
    squares: Doubles | None,
    n: int,
    noises: tuple[float, float],
    level: float,
) -> NDArray[np.bool_]:
    """Whether guaranteed limits of a mean hold it, by the bounds at the mean itself.

    What excludes it is a sum beyond some figure, which goes with the limit on the squares, and
    that with the squares; both are interpolated between a few.
    """
    alpha = (1 - level) * (1 - 1e-6)
    most = np.zeros(len(totals))
    if squares is not None:
        at = np.linspace(squares.min(), squares.max(), 12)
        limits = [1 - mean_limit(n - each, None, n, noises[1], alpha * FOR_SQUARES) for each in at]
        most = np.interp(squares, at, limits)
        alpha *= 1 - FOR_SQUARES
    held = np.ones(len(totals), bool)
    for side, mean in ((totals, truth), (n - totals, 1 - truth)):
        at = np.linspace(most.min(), most.max(), 1 if squares is None else 6)
        ends = [
            _least_excluded(mean, None if squares is None else each, n, noises[0], alpha / 2)
            for each in at
        ]
        held &= side < np.interp(most, at, ends)
    return held


def _least_excluded(mean: float, most: float | None, n: int, noise: float, alpha: float) -> float:
    """The least sum that excludes a mean, by bisection."""
    low, high = n * mean, n * mean + 12 * (math.sqrt(n * mean * (1 - mean)) + noise + 1)
    for _ in range(14):
        middle = (low + high) / 2
        beyond = excluded(
            middle, most, (mean, mean), n_records=n, noise=noise, alpha=alpha, share=most is None
        )
        low, high = (low, middle) if beyond else (middle, high)
    return high


def variance_figures(
    name: str, n: int, mu: float, level: float, replicates: int
) -> Iterator[Found]:
    """Guaranteed limits of a variance; it is held where both of what they are made of hold."""
    law = populations()[name]
    x = law.records[:, 0]
    mean = float(law.masses @ x)
    scale = max(mean, 1 - mean) ** 2
    rng = np.random.default_rng([n, round(mu * 10), len(name), 77])
    release = released(law, moment_designs.ONE, n, mu, replicates, rng)
    chosen = [POWERS.index((degree, 0)) for degree in range(1, 5)]
    sums, noise = release.known.means[chosen] * n, release.known.noise[chosen] * n
    second = guaranteed_variance.powers(mean - 0.5, 2) / scale
    squares = guaranteed_variance.squares_of(mean - 0.5, scale)
    known = np.array([np.full(replicates, float(n)), *sums])
    spare, size = 1 - level, np.linalg.norm
    held = guaranteed_holds(
        mean, sums[0] + n / 2, 4 * sums[1], n, (size(noise[0]), 4 * size(noise[1])),
        1 - spare * FOR_MEAN,
    ) & guaranteed_holds(
        float(law.masses @ (x - mean) ** 2) / scale, second @ known[:3], squares @ known, n,
        (size(second[1:] @ noise[:2]), size(squares[1:] @ noise)), 1 - spare * (1 - FOR_MEAN),
    )  # fmt: skip
    one = NoisyPair(release.mechanism, n, release.sums[0])
    low, high = one.variance_limits(level)
    exact = released(law, moment_designs.ONE, n, mu, 1, None)
    oracle = 2 * normal_quantile(level) * exact.known.error(VARIANCE, sampling=True, cautious=False)
    yield Found(
        "variance", name, n, mu, level, "guaranteed", float(np.mean(held)), 1.0, high - low, oracle
    )


def all_figures(level: float, replicates: int) -> Iterator[Found]:
    """Every statistic, population, size and mu."""
    for name in populations():
        for n in SIZES:
            for mu in MUS:
                yield from mean_figures("mean", name, n, mu, level, replicates)
                yield from mean_figures("proportion", name, n, mu, level, replicates)
                yield from variance_figures(name, n, mu, level, replicates)
                for statistic in PAIRS:
                    yield pair_figures(statistic, name, n, mu, level, replicates)


def chance(found: Found, replicates: int) -> float:
    """Four standard deviations of a simulated coverage that is the level."""
    return 4 * math.sqrt(found.level * (1 - found.level) / replicates)


def shortfalls(found: Iterable[Found], replicates: int) -> list[Found]:
    """What covers less than it is published to, but for chance; nothing approximate is counted."""
    return [
        each
        for each in found
        if each.inference != "approximate"
        and each.covered
        < each.level
        - max(chance(each, replicates), MOST_SHORTFALL if each.inference == "asymptotic" else 0.0)
    ]


HEADING = (
    "statistic         population             n   mu level  inference    covered  bounded"
    "      width     oracle   ratio"
)


def main() -> None:
    """Print the tables, and what falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few replicates")
    parser.add_argument("--level", type=float, nargs="*", default=[0.9, 0.95, 0.99])
    chosen = parser.parse_args()
    replicates = 300 if chosen.quick else 5000
    print(HEADING)
    short = []
    for level in chosen.level:
        for found in all_figures(level, replicates):
            print(found.row(), flush=True)
            short += shortfalls([found], replicates)
    print(f"\n{len(short)} below what they are published to cover:")
    for found in short:
        print(found.row())


if __name__ == "__main__":
    main()
