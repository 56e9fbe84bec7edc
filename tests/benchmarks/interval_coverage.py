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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.intervals import normal_quantile
from mechanisms.inference.moment_functions import (
    CORRELATION,
    GROUP_DIFFERENCE,
    RATIO,
    SLOPE,
    VARIANCE,
    Derived,
    intercept,
)
from mechanisms.inference.moment_pairs import NoisyPair, PairMoments, weighted_monomials

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


PAIRS: dict[str, tuple[Derived, Callable[[Law], Law]]] = {
    "ratio": (RATIO, with_response),
    "slope": (SLOPE, with_response),
    "intercept": (intercept(0.0), with_response),
    "correlation": (CORRELATION, with_response),
    "mean where (5%)": (
        Derived(RATIO.numerator, RATIO.denominators, (0.0, 1.0)),
        lambda law: in_group(law, 0.05),
    ),
    "difference (10%)": (GROUP_DIFFERENCE, lambda law: by_group(law, 0.1)),
    "variance": (VARIANCE, lambda law: law),
}
"""Statistics of joint moments, and what they are taken of."""


def means_of(law: Law) -> Doubles:
    """float64[5] means of x, y, x^2, xy, y^2 in the population."""
    x, y = law.records[:, 0], law.records[:, -1]
    return np.array([law.masses @ each for each in (x, y, x**2, x * y, y**2)])


def released(law: Law, n: int, mu: float, replicates: int, rng: np.random.Generator) -> NoisyPair:
    """Joint moments of as many samples, with the noise of a product."""
    columns = law.records.shape[1]
    made = PairMoments.calibrate(Fraction(mu), n_records=n, n_cells=1, columns=columns)
    sums = law.counts(n, replicates, rng) @ weighted_monomials(law.records)
    noise = made.noise.sigma * rng.standard_normal(sums.shape)
    return NoisyPair(made, n, sums + noise)


@dataclass(frozen=True)
class Found:
    """What a simulation found, for one statistic, population, size and mu."""

    statistic: str
    population: str
    n: int
    mu: float
    level: float
    covered: float
    bounded: float
    width: float
    oracle: float

    def row(self) -> str:
        """As printed."""
        return (
            f"{self.statistic:18}{self.population:17}{self.n:7}{self.mu:5.1f}{self.level:6.2f}"
            f"{self.covered:9.4f}{self.bounded:9.3f}{self.width:11.4g}{self.oracle:11.4g}"
        )


def pair_figures(
    statistic: str, name: str, n: int, mu: float, level: float, replicates: int
) -> Found:
    """Coverage of the sets of a statistic, and their median width beside the oracle's."""
    wanted, made_of = PAIRS[statistic]
    law = made_of(populations()[name])
    truth = wanted.value(means_of(law))
    if not math.isfinite(truth):
        raise ValueError("the population has no such figure")
    rng = np.random.default_rng([n, round(mu * 10), len(name), len(statistic)])
    found = released(law, n, mu, replicates, rng).known
    covered = float(np.mean(found.holds(wanted, truth, level)))
    sets = found.sets(wanted, level)
    span = wanted.bounds[1] - wanted.bounds[0]
    width = sets.upper - sets.lower
    bounded = float(np.mean((width < span) & np.isnan(sets.gap_lower)))
    exact = NoisyPair(
        PairMoments.calibrate(
            Fraction(mu), n_records=n, n_cells=1, columns=law.records.shape[1]
        ), n, n * (law.masses @ weighted_monomials(law.records)),
    ).known  # fmt: skip
    oracle = 2 * normal_quantile(level) * exact.standard_error(wanted)
    return Found(statistic, name, n, mu, level, covered, bounded, float(np.median(width)), oracle)


def all_figures(level: float, replicates: int) -> Iterator[Found]:
    """Every statistic, population, size and mu."""
    for statistic in PAIRS:
        for name in populations():
            for n in SIZES:
                for mu in MUS:
                    yield pair_figures(statistic, name, n, mu, level, replicates)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer replicates")
    chosen = parser.parse_args()
    print("statistic         population             n   mu level  covered  bounded      width"
          "     oracle")  # fmt: skip
    for found in all_figures(0.95, 400 if chosen.quick else 5000):
        print(found.row(), flush=True)


if __name__ == "__main__":
    main()
