"""Figure 1 of "Delving into Bootstrapping for Differential Privacy", with ours beside it.

    python -m tests.benchmarks.papers.bootstrapping_mechanism [--quick] [--output DIR]

The setting is the paper's (appendix G): 10 000 records of Beta(10, 10), delta = 0.01,
epsilon 0.5 and 5, s equal bins; the error is its Kolmogorov-Smirnov distance of the true
cdf from that of the released histogram (section 5.3). The paper has 100 simulations. Here
are ten times as many, so that a ratio of 1.05 can be told from 1.1, except for the
exponential mechanism, whose exact sampler takes a third of a second.

The paper does not say which gamma its figure has, and with it which pseudocount and
records. Here they are those of Corollary 3 at the gamma that is best for it
(``mechanisms.tables.bootstrap``). It debiases and does not project; both are drawn.

All curves see the same data, and a curve's noise has the same seed at every epsilon.
OpenDP alone takes its bits from the operating system, so its curve differs a little
from run to run. The counts of m iid draws are drawn from their multinomial law, since
``Bootstrap.release`` draws record by record and the paper asks for 10**11 of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.mechanism import Mechanism, Target
from statpress.mechanisms.sampling.randomness import Randomness
from statpress.mechanisms.tables.bootstrap import Bootstrap, BootstrapKnobs
from statpress.mechanisms.tables.exponential_ks import sample_ks
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable
from statpress.mechanisms.tables.two_resolutions import TwoResolutions
from statpress.tasks.release.entropy import SeededRandomness
from tests.benchmarks.papers.beta_distribution import bin_counts, kolmogorov_smirnov, sample
from tests.benchmarks.papers.bin_shares import (
    Counts,
    Shares,
    projected_shares,
    smoothed_histogram,
    table_of,
    unbiased_shares,
)
from tests.benchmarks.papers.comparison import Comparison, options, progress

RECORDS, DELTA, EPSILONS = 10_000, 0.01, (0.5, 5.0)
BINS, REPETITIONS, KS_REPETITIONS = (5, *range(10, 101, 5)), 1000, 100
QUICK_BINS, QUICK_REPETITIONS, QUICK_KS_REPETITIONS = (10, 20, 100), 25, 2
SHOWN_BINS = (5, 10, 20, 50, 100)
# The sampling variance of a debiased share is about 1 + n/(pseudocount s) times its limit for
# large pseudocounts (mechanisms/README.md, section 2): n leaves 1 % at s = 100, n/10 left 10
# %.
PSEUDOCOUNT = Fraction(RECORDS)
SEED = 20_260

HISTOGRAM = "histogram, not private"
PAPER = "bootstrap, paper's calibration"
EXACT = "bootstrap, exact calibration"
SIZE_N = "bootstrap, exact, n records"
GAUSSIAN, LAPLACE = "discrete Gaussian", "discrete Laplace"
TWO = "discrete Gaussian, two resolutions"
RAW, DEBIASED, PROJECTED = ", raw", ", debiased", ", projected"
OPENDP = "OpenDP Laplace, clamped"
KS = "exponential mechanism of KS"
SMOOTHED = "smoothed histogram"
BEST = "ours"

Release = Callable[[Counts, Randomness], dict[str, Shares]]


@dataclass(frozen=True)
class Method:
    """A mechanism at fixed parameters.

    Attributes:
        release: From private counts to the shares of each of its curves.
        parameters: For the record.
        best: The curve of it that counts as ours, if it is one.
        expected: Its error to be expected from public quantities only.
        slow: Whether it is repeated less often than the others.
    """

    release: Release
    parameters: str = ""
    best: str = ""
    expected: float = math.inf
    slow: bool = False


def methods(epsilon: float, bins: int) -> list[Method]:
    """Everything that is compared, at its parameters for one epsilon and number of bins."""
    target = Target(epsilon=epsilon, delta=DELTA, n_records=RECORDS, n_cells=bins)
    most = BootstrapKnobs(pseudocount=PSEUDOCOUNT, records="max")
    return [
        Method(lambda counts, rng: {HISTOGRAM: counts / RECORDS}),
        bootstrap(PAPER, BootstrapKnobs(calibration="paper"), target, (DEBIASED, PROJECTED)),
        bootstrap(EXACT, most, target, (DEBIASED, PROJECTED)),
        bootstrap(SIZE_N, BootstrapKnobs(), target, (RAW, DEBIASED, PROJECTED)),
        noise(GAUSSIAN, GaussianTable, target),
        noise(LAPLACE, LaplaceTable, target),
        opendp_laplace(epsilon),
        exponential(epsilon),
        smoothed(epsilon, bins),
        noise(TWO, TwoResolutions, target),
    ]


def bootstrap(name: str, knobs: BootstrapKnobs, target: Target, forms: Sequence[str]) -> Method:
    """The bootstrapping mechanism; ours unless the calibration is the paper's."""
    mechanism = Bootstrap.calibrate(knobs, target)

    def release(counts: Counts, rng: Randomness) -> dict[str, Shares]:
        drawn = draw(mechanism, counts, rng)
        estimates = mechanism.postprocess(drawn, n_records=RECORDS)
        raw = np.zeros(target.n_cells)
        raw[drawn.cells] = drawn.counts / mechanism.records
        shares = {
            RAW: raw,
            DEBIASED: unbiased_shares(estimates, RECORDS),
            PROJECTED: projected_shares(estimates, RECORDS),
        }
        return {name + form: shares[form] for form in forms}

    best = "" if knobs.calibration == "paper" else name + PROJECTED
    return Method(release, _parameters(mechanism), best, _expected(mechanism, target))


def draw(mechanism: Bootstrap, counts: Counts, rng: np.random.Generator) -> ContingencyTable:
    """A release of the mechanism from counts int64[s], in time that does not grow with m."""
    weights = counts + float(mechanism.pseudocount)
    return table_of(rng.multinomial(mechanism.records, weights / weights.sum()))


def noise(name: str, kind: type[Mechanism], target: Target) -> Method:
    """Integer noise on every bin, projected."""
    mechanism = kind.calibrate(kind.knobs(), target)

    def release(counts: Counts, rng: Randomness) -> dict[str, Shares]:
        noisy = mechanism.release(table_of(counts), rng)
        estimates = mechanism.postprocess(noisy, n_records=RECORDS)
        return {name + PROJECTED: projected_shares(estimates, RECORDS)}

    return Method(release, _parameters(mechanism), name + PROJECTED, _expected(mechanism, target))


def opendp_laplace(epsilon: float) -> Method:
    """What a user of OpenDP would do: its Laplace noise on counts, clamped, normalised.

    A replaced record moves two counts by one: L1 sensitivity 2.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space: Any = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    scale = dp.binary_search_param(
        lambda scale: dp.m.make_laplace(*space, scale=scale), d_in=2, d_out=epsilon
    )
    measurement = dp.m.make_laplace(*space, scale=scale)

    def release(counts: Counts, rng: Randomness) -> dict[str, Shares]:
        clamped = np.maximum(measurement(counts.tolist()), 0)
        return {OPENDP: clamped / clamped.sum()}

    return Method(release, f"scale={scale:.6g}")


def exponential(epsilon: float) -> Method:
    """Wasserman and Zhou's exponential mechanism at the n^(2/3) records of their Theorem 15."""
    records = round(RECORDS ** (2 / 3))

    def release(counts: Counts, rng: Randomness) -> dict[str, Shares]:
        return {KS: sample_ks(counts, records, epsilon, rng) / records}

    return Method(release, f"records={records}", slow=True)


def smoothed(epsilon: float, bins: int) -> Method:
    """Wasserman and Zhou's smoothed histogram at the n^(1/2) records of their Theorem 9."""
    records = math.isqrt(RECORDS)
    mechanism = smoothed_histogram(epsilon, records, bins, n_records=RECORDS)
    return Method(lambda counts, rng: {SMOOTHED: mechanism(counts, rng)}, f"records={records}")


def compare(
    bins: Sequence[int], repetitions: int, slow_repetitions: int, epsilons: Sequence[float]
) -> Comparison:
    """Mean Kolmogorov-Smirnov errors, with one more curve for ours.

    Ours is, at every epsilon and number of bins, the mechanism whose *public* expected
    KS error is the least: a rule that can be followed without looking at the data, or
    at any error measured here.
    """
    result = Comparison("ε", "bins s", "mean Kolmogorov–Smirnov error", HISTOGRAM)
    data = [sample(RECORDS, np.random.default_rng([SEED, i])) for i in range(repetitions)]
    for epsilon, s in progress(list(itertools.product(epsilons, bins)), "Bins and epsilons"):
        offered, tables = methods(epsilon, s), [bin_counts(values, s) for values in data]
        for place, method in enumerate(offered):
            for i, counts in enumerate(tables[: slow_repetitions if method.slow else None]):
                rng = SeededRandomness(np.random.PCG64([SEED, i, s, place]))
                for curve, shares in method.release(counts, rng).items():
                    key = epsilon, float(s), curve
                    result.add(key, kolmogorov_smirnov(shares), method.parameters)
        ours = min((m for m in offered if m.best), key=lambda method: method.expected)
        for error in result.errors[epsilon, float(s), ours.best]:
            result.add((epsilon, float(s), BEST), error, f"{ours.best}: {ours.parameters}")
    return result


def _expected(mechanism: Mechanism, target: Target) -> float:
    error = mechanism.expected_error(n_records=target.n_records, n_cells=target.n_cells)
    return error.kolmogorov_smirnov


def _parameters(mechanism: Mechanism) -> str:
    described = mechanism.describe()
    return " ".join(f"{name}={value}" for name, value in described.items() if name != "mechanism")


def main(arguments: Sequence[str] | None = None) -> Comparison:
    """Measure, write ``bootstrapping_mechanism.csv`` and ``.png``, print ratios."""
    quick, output = options(main.__doc__ or "", arguments)
    bins = QUICK_BINS if quick else BINS
    repetitions = QUICK_REPETITIONS if quick else REPETITIONS
    slow_repetitions = QUICK_KS_REPETITIONS if quick else KS_REPETITIONS
    result = compare(bins, repetitions, slow_repetitions, EPSILONS)
    name: Path = output / "bootstrapping_mechanism"
    result.write_csv(name.with_suffix(".csv"))
    result.plot(name.with_suffix(".png"), log_x=False)
    shown = [float(s) for s in SHOWN_BINS if s in bins]
    print(f"Mean KS error over that of the histogram, by bins s, {repetitions} repetitions\n")
    for epsilon in EPSILONS:
        print(result.markdown(epsilon, shown), end="\n\n")
    print(f"Written: {name}.csv, {name}.png")
    return result


if __name__ == "__main__":
    main()
