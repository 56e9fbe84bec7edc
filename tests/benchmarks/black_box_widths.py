"""Coverage and width of intervals for statistics of which only the sensitivity is known.

``python -m tests.benchmarks.black_box_widths`` prints, for every method, statistic, population,
size and mu, the coverage over simulated datasets and the mean width over the oracle's; ``--quick``
a part of them. Replicates are those of the real resampling (multinomial, or hypergeometric) with
normal noise of the size that is proven for mu-GDP; intervals are made by the functions that make a
product's. *Oracle* is 2 z sqrt(V + s^2), with the true variance V of the statistic and s the least
noise with which it could be released at that mu, c/(n mu).
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.estimates.dp_bootstrap import BootstrapReplicates, default_replicates
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.resampling_noise import CalibratedWidth
from statpress.mechanisms.estimates.statistics import Mean, Statistic, Variance
from statpress.mechanisms.estimates.subsample_split import SubsampleSplit
from tests.benchmarks.interval_populations import Law, populations

Doubles = NDArray[np.float64]
STATISTICS: dict[str, tuple[Statistic, float]] = {
    "mean": (Mean(), 1 / 12),
    "variance": (Variance(), 1 / 180),
}
"""With the variance, times n, of each for records spread evenly."""
METHODS = ("percentile", "t", "calibrated", "split")
SIZES, MUS = (300, 500, 1000, 3000), (Fraction(3, 10), Fraction(1, 2), Fraction(7, 10), Fraction(1))


@dataclass(frozen=True)
class Setting:
    """One cell of the tables."""

    method: str
    statistic: str
    population: str
    n: int
    mu: Fraction
    level: float = 0.9


@dataclass(frozen=True)
class Found:
    """Coverage and mean width over the oracle's, of those intervals that are valid."""

    setting: Setting
    covered: float
    width: float
    valid: float
    datasets: int

    def row(self) -> str:
        """As printed."""
        s = self.setting
        return (
            f"{s.method:12}{s.statistic:10}{s.population:17}{s.n:6}{float(s.mu):5.2f}{s.level:6.2f}"
            f"{self.covered:9.4f}{self.width:9.3f}{self.valid:8.3f}"
        )


HEADER = (
    f"{'method':12}{'statistic':10}{'population':17}{'n':>6}{'mu':>5}{'level':>6}"
    f"{'covered':>9}{'/oracle':>9}{'valid':>8}"
)


def truth(law: Law, statistic: str, n: int) -> tuple[float, float]:
    """The figure of a population, and the variance of the statistic of n of its records."""
    x = law.records[:, 0]
    mean = float(law.masses @ x)
    second, fourth = (float(law.masses @ (x - mean) ** k) for k in (2, 4))
    if statistic == "mean":
        return mean, second / n
    return second, (fourth - second**2 * (n - 3) / (n - 1)) / n


def figures(setting: Setting, datasets: int) -> Found:
    """Coverage and width over so many simulated datasets."""
    law, n, level = populations()[setting.population], setting.n, setting.level
    wanted, variance = truth(law, setting.statistic, n)
    rng = np.random.default_rng([n, int(100 * setting.mu), len(setting.population), datasets])
    counts = law.counts(n, datasets, rng)
    make = _split if setting.method == "split" else _bootstrap
    low, high, valid = make(setting, law, counts, rng)
    held = (low <= wanted) & (wanted <= high)
    constant = float(STATISTICS[setting.statistic][0].constant)
    noise = constant / (n * float(setting.mu))
    oracle = 2 * normal_quantile(level) * math.sqrt(variance + noise**2)
    some = valid if valid.any() else ~valid
    return Found(
        setting,
        float(np.mean(held[some])),
        float(np.mean((high - low)[some])) / oracle,
        float(np.mean(valid)),
        datasets,
    )


@functools.lru_cache(maxsize=64)
def bootstrap(statistic: str, n: int, mu: Fraction, level: float) -> BootstrapReplicates:
    """The replicates of a product that leaves their number out."""
    made, even = STATISTICS[statistic]
    count = default_replicates(
        level, n_records=n, mu=float(mu), sensitivity=float(made.constant) / n, variance=even / n
    )
    return BootstrapReplicates.calibrate(made, mu, n_records=n, replicates=count)


@functools.lru_cache(maxsize=64)
def split(statistic: str, n: int, mu: Fraction) -> SubsampleSplit:
    """The design of a product that leaves it out."""
    made, even = STATISTICS[statistic]
    return SubsampleSplit.calibrate(made, mu, n_records=n, presumed=even / n)


def _bootstrap(
    setting: Setting, law: Law, counts: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
    made = bootstrap(setting.statistic, setting.n, setting.mu, setting.level)
    ends = []
    for row in counts:
        resamples = rng.multinomial(setting.n, row / setting.n, size=made.replicates)
        values = _evaluated(made.statistic, resamples, law, made.noise.sigma, rng)
        found = made.inference(values[:, None])
        if setting.method == "calibrated":
            presumed = STATISTICS[setting.statistic][1] / setting.n
            rule = CalibratedWidth.narrowest(found.known, presumed, setting.level)
            one = found.calibrated_interval(setting.level, rule)
        else:
            interval = found.t_interval if setting.method == "t" else found.percentile_interval
            one = interval(setting.level)
        low, high = made.statistic.bounds
        ends.append((max(one.lower, low), min(one.upper, high), one.valid))
    low_ends, high_ends, valid = map(np.array, zip(*ends, strict=True))
    return low_ends, high_ends, valid


def _split(
    setting: Setting, law: Law, counts: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
    made = split(setting.statistic, setting.n, setting.mu)
    rule = CalibratedWidth.narrowest(
        made.known, STATISTICS[setting.statistic][1] / setting.n, setting.level
    )
    whole = _evaluated(made.statistic, counts, law, made.full.sigma, rng)
    ends = []
    for row, value in zip(counts, whole, strict=True):
        subsets = rng.multivariate_hypergeometric(row, made.size, size=made.subsamples)
        parts = _evaluated(made.statistic, subsets, law, made.part.sigma, rng)
        ends.append(made.interval(float(value), parts, setting.level, rule)[1:3])
    low, high = np.array(ends).T
    return low, high, np.ones(len(low), bool)


def _evaluated(
    statistic: Statistic,
    weights: NDArray[np.int64],
    law: Law,
    sigma: float,
    rng: np.random.Generator,
) -> Doubles:
    found = statistic.evaluate(weights, law.records)[:, 0]
    return found + sigma * rng.standard_normal(len(found))


def settings(quick: bool) -> Iterator[Setting]:
    """What is printed: the two figures of the issue first."""
    for method in METHODS:
        if quick:
            yield Setting(method, "mean", "uniform", 500, Fraction(7, 10))
            yield Setting(method, "variance", "uniform", 1000, Fraction(1, 2))
            continue
        for statistic in STATISTICS:
            for n in SIZES:
                for mu in MUS:
                    for population in populations():
                        yield Setting(method, statistic, population, n, mu)


def main() -> None:
    """Print the tables."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--quick", action="store_true", help="two settings of each method")
    arguments.add_argument("--datasets", type=int, help="simulated for each row")
    arguments.add_argument("--population", action="append", help="only of these populations")
    chosen = arguments.parse_args()
    print(HEADER)
    for setting in settings(chosen.quick):
        if not chosen.population or setting.population in chosen.population:
            print(figures(setting, chosen.datasets or (60 if chosen.quick else 1000)).row())


if __name__ == "__main__":
    main()
