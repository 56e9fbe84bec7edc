"""How narrow intervals can be whose variance is estimated from noisy replicates: a lower bound.

``python -m tests.benchmarks.black_box_bound`` prints it over a grid of designs, for the settings of
tests.benchmarks.black_box_widths; in some minutes, ``--quick`` for two designs.

In the model of statpress.mechanisms.estimates.resampling_noise let h be *any* function of S^2 with
h at most the cap, and let the centre +- h(S^2) cover with chance at least L for every V in [0, M].
Weak duality: for weights w_j >= 0 on some variances V_j,

    E_0 h  >=  sum over j of w_j L  +  sum over s of min over h of
               (q(s) h - sum over j of w_j p_j(s) C_j(h)),

E_0 and q the mean and the law of S^2 at the variance of interest (or the average over several), p_j
its law at V_j, and C_j(h) = erf(h / sqrt(2 (b V_j + s^2))) the chance that the centre is within h.
C_j is concave, so each minimum is found by bisection of the derivative, and the best weights by
ascent. Any weights give a bound: what the ascent leaves undone only loosens it.
The sum runs over 160 bins of S^2, between which laws hardly change.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import InfeasibleBudgetError
from statpress.mechanisms.estimates.dp_bootstrap import BootstrapReplicates
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.resampling_noise import (
    AROUND,
    TOLERANCE,
    CalibratedWidth,
    NoisyVariance,
    mean_width,
)
from statpress.mechanisms.estimates.subsample_split import SplitDesign, SubsampleSplit
from tests.benchmarks.black_box_widths import STATISTICS

Doubles = NDArray[np.float64]
Model = tuple[str, NoisyVariance]
"""A design in words, with what follows from it."""


def least_width(
    known: NoisyVariance, at: Doubles, oracle: Doubles, level: float, *, bins: int = 160
) -> float:
    """No rule that keeps the level has a smaller mean, over ``at``, of its width over the oracle's.

    Args:
        known: Of the model.
        at: Variances V of interest, float64[i].
        oracle: Width of the oracle at each of them.
        level: Of the interval; kept but for the tolerance of the rule itself.
        bins: Of S^2.
    """
    from scipy.optimize import minimize
    from scipy.special import erf, gammainc, gammaincinv

    half, cap = known.freedom / 2, known.capped(np.array(math.inf), level)
    every = np.concatenate([[0.0], known.most * np.geomspace(1e-3, 1.0, bins // 4 - 1)])

    def means(variances: Doubles) -> Doubles:
        return known.spread_gain * variances + known.spread_noise

    ends = [
        means(np.array(v)) * gammaincinv(half, p) / half
        for v, p in ((0, 1e-6), (known.most, 1 - 1e-6))
    ]
    edges = np.concatenate([[0.0], np.geomspace(*ends, bins - 1), [np.inf]])

    def law(variances: Doubles) -> Doubles:
        return np.diff(gammainc(half, half * edges / means(variances)[:, None]), axis=1)

    laws, deviation = law(every), np.sqrt(known.variance_of_centre(every))[:, None]
    price, kept = (2 / oracle / len(at)) @ law(at), level - TOLERANCE * (1 - level)

    def dual(weights: Doubles) -> tuple[float, Doubles]:
        low, high = np.zeros(bins), np.full(bins, cap)
        for _ in range(45):
            h = (low + high) / 2
            density = np.exp(-((h / deviation) ** 2) / 2) / deviation
            gain = (weights[:, None] * laws * density).sum(axis=0) * math.sqrt(2 / math.pi)
            low, high = np.where(gain > price, h, low), np.where(gain > price, high, h)
        missing = kept - (laws * erf(h / deviation / math.sqrt(2))).sum(axis=1)
        return -float(price @ h + weights @ missing), -missing

    start = np.full(len(every), float(np.mean(cap / oracle)) / len(every))
    found = minimize(
        dual, start, jac=True, bounds=[(0, None)] * len(every), method="L-BFGS-B",
        options={"maxiter": 300},
    )  # fmt: skip
    return -float(found.fun)


@dataclass(frozen=True)
class Bound:
    """What a design has, and what none of its kind can go below.

    Attributes:
        design: In words.
        width: Of the intervals in use, at the variance of evenly spread records, over the oracle's.
        known: That of the normal interval if the variance were known.
        least: No rule is narrower at that variance and keeps the level for all.
        around: Mean width over the oracle's at variances from a quarter to four times it.
        least_around: No rule that keeps the level is narrower there.
    """

    design: str
    width: float
    known: float
    least: float
    around: float
    least_around: float

    def row(self) -> str:
        """As printed."""
        return (
            f"{self.design:34}{self.width:8.3f}{self.known:8.3f}{self.least:8.3f}"
            f"{self.around:8.3f}{self.least_around:8.3f}"
        )


HEADER = f"{'design':34}{'width':>8}{'known V':>8}{'least':>8}{'around':>8}{'least':>8}"


def bound(
    design: str, known: NoisyVariance, variance: float, noise: float, level: float, bins: int = 160
) -> Bound:
    """Of one design.

    Args:
        design: In words.
        known: Its model.
        variance: Of the statistic of evenly spread records.
        noise: Standard deviation of the least noise at this mu, for the oracle.
        level: Of the intervals.
        bins: Of the lower bounds.
    """
    around = np.minimum(variance * np.array(AROUND), known.most)
    oracles = 2 * normal_quantile(level) * np.sqrt(around + noise**2)
    oracle = 2 * normal_quantile(level) * math.sqrt(variance + noise**2)
    rule = CalibratedWidth.narrowest(known, variance, level)
    widths = mean_width(rule, known, around, level) / oracles
    at = np.array([variance])
    return Bound(
        design,
        float(widths[len(AROUND) // 2]),
        math.sqrt(float(known.variance_of_centre(at)[0]) / (variance + noise**2)),
        least_width(known, at, np.array([oracle]), level, bins=bins),
        float(np.mean(widths)),
        least_width(known, around, oracles, level, bins=bins),
    )


def bootstraps(statistic: str, n: int, mu: Fraction, counts: tuple[int, ...]) -> Iterator[Model]:
    """Replicates of n records, as many as each count says."""
    made = STATISTICS[statistic][0]
    for count in counts:
        release = BootstrapReplicates.calibrate(made, mu, n_records=n, replicates=count)
        yield f"{count} replicates", release.inference(np.zeros((count, 1))).known


def splits(
    statistic: str, n: int, mu: Fraction, shares: tuple[Fraction, ...], counts: tuple[int, ...],
    sizes: tuple[int, ...] = (30, 60),
) -> Iterator[Model]:  # fmt: skip
    """Subsample splits over a grid, as used and with the centre of a statistic that is biased."""
    made, even = STATISTICS[statistic]
    for share, size, count in itertools.product(shares, sizes, counts):
        design = SplitDesign(share, Fraction(size, n), count)
        try:
            release = SubsampleSplit.calibrate(
                made, mu, n_records=n, design=design, presumed=even / n
            )
        except InfeasibleBudgetError:
            continue
        words = f"rho {float(share):.2f}, {count} of {size}"
        yield words, release.known
        yield words + ", biased", replace(release, part_weight=0.0).known


def main() -> None:
    """Print the bounds."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--quick", action="store_true", help="one design of each kind")
    quick = arguments.parse_args().quick
    shares = tuple(Fraction(k, 20) for k in ((6,) if quick else (3, 6, 10, 14)))
    level = 0.9
    for statistic, n, mu in (
        ("mean", 500, Fraction(7, 10)),
        ("variance", 500, Fraction(1, 2)),
        ("variance", 1000, Fraction(1, 2)),
        ("variance", 3000, Fraction(1, 2)),
    ):
        even, constant = STATISTICS[statistic][1], float(STATISTICS[statistic][0].constant)
        print(f"{statistic}, n = {n}, mu = {float(mu):g}, level {level:g}")
        print(HEADER)
        models = itertools.chain(
            bootstraps(statistic, n, mu, (50,) if quick else (10, 20, 35, 50, 80, 130, 200, 400)),
            splits(statistic, n, mu, shares, (256,) if quick else (32, 64, 128, 256, 512)),
        )
        for words, known in models:
            print(bound(words, known, even / n, constant / (n * float(mu)), level).row())
        if quick:
            return


if __name__ == "__main__":
    main()
