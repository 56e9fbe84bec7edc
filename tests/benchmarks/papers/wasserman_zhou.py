"""Figures 1 and 2 of Wasserman and Zhou (2010), "A statistical framework", ours beside them.

    python -m tests.benchmarks.papers.wasserman_zhou [--quick] [--output DIR]

The setting is the paper's (section 6): 100 records of Beta(10, 10), estimated by the
orthogonal series of section 5.3, sanitised with alpha-differential privacy (delta = 0) by
the exponential mechanism over candidates drawn from a proposal. Figure 1 shows one density
at alpha = 0.1, figure 2 the mean squared error against alpha; here it is the integrated
squared error of the density, exact by Parseval.

The paper does not say the smoothness gamma, the records k of the release, the number of
candidates, nor their proposal. Here gamma = 1.1 (Theorem 18 wants it above 1), which makes
m_n = 4 terms, k = n^(1/2) (Theorem 18), and 10 000 candidates of uniform records, the
mechanism's own base measure. The released series has m_k = 2 terms by section 5.3, but then
its error cannot fall to that of the estimate, as figure 2 says it does, because two terms
miss 0.298 of the density; so it is drawn with m_n terms as well.

Ours: the same mechanism at the smallest Delta (``mechanisms.tables.sample_resample``), also
with candidates of clustered records; and releases of n^(1/2) bins whose series is taken afterwards,
of which the discrete Laplace table is projected first.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.sampling.randomness import Randomness
from statpress.mechanisms.tables.exponential_ks import sample_ks
from statpress.mechanisms.tables.perturbed import LaplaceTable, PerturbedKnobs
from statpress.mechanisms.tables.sample_resample import (
    choose_candidate,
    draw_candidates,
    feature_scores,
    series_features,
    series_terms,
)
from statpress.tasks.release.entropy import SeededRandomness
from tests.benchmarks.papers.beta_distribution import (
    SQUARED_DENSITY,
    bin_counts,
    density,
    sample,
    series_error,
)
from tests.benchmarks.papers.bin_shares import (
    Shares,
    projected_shares,
    smoothed_histogram,
    table_of,
)
from tests.benchmarks.papers.comparison import Comparison, new_figure, options, progress

RECORDS, CELLS, BINS, RELEASED = 100, 100, 10, 10
GAMMA = Fraction(11, 10)
TERMS, RELEASED_TERMS = series_terms(RECORDS, GAMMA), series_terms(RELEASED, GAMMA)
CONCENTRATION = 2 / CELLS
ALPHAS, QUICK_ALPHAS = tuple(np.geomspace(0.01, 10, 13).tolist()), (0.1, 1.0, 10.0)
SHOWN_ALPHAS = (0.01, 0.1, 1.0, 10.0)
REPETITIONS, QUICK_REPETITIONS = 200, 40
CANDIDATES, QUICK_CANDIDATES = 10_000, 1000
FIGURE_1_ALPHA = 0.1
FEATURE_UNIT = 2**20  # of series_features
SEED = 2010

SERIES = "series, not private"
PAPER = "exponential, paper's Δ"
PAPER_TERMS = "exponential, paper's Δ and terms"
SHARP = "exponential, least Δ"
CLUSTERED = "exponential, least Δ, clustered candidates"
KS = "exponential mechanism of KS"
SMOOTHED = "smoothed histogram"
LAPLACE = "discrete Laplace, projected"
UNIFORM = "uniform, no data"

Coefficients = NDArray[np.float64]
Release = Callable[[float, Randomness], Coefficients]


def series(values: NDArray[np.float64]) -> Coefficients:
    """float64[TERMS], the estimate of section 5.3 from the records themselves."""
    order = np.arange(1, TERMS + 1)[:, np.newaxis]
    return np.sqrt(2) * np.cos(np.pi * order * values).mean(axis=1)


def binned_series(shares: Shares) -> Coefficients:
    """float64[TERMS], the same from shares of equal bins, at their middles."""
    middles = (np.arange(len(shares)) + 0.5) / len(shares)
    order = np.arange(1, TERMS + 1)[:, np.newaxis]
    return np.sqrt(2) * np.cos(np.pi * order * middles) @ shares


def releases(
    values: NDArray[np.float64], candidates: int, rng: Randomness
) -> Iterator[tuple[str, Release]]:
    """Every curve's release of the data; what does not depend on alpha is done once."""
    fine, coarse = bin_counts(values, CELLS), bin_counts(values, BINS)
    yield SERIES, lambda alpha, rng: series(values)
    yield UNIFORM, lambda alpha, rng: np.zeros(TERMS)
    uniform = draw_candidates(candidates, CELLS, RELEASED, rng)
    clustered = draw_candidates(candidates, CELLS, RELEASED, rng, concentration=CONCENTRATION)
    yield PAPER, exponential(fine, uniform, TERMS, sharp=False)
    yield PAPER_TERMS, exponential(fine, uniform, RELEASED_TERMS, sharp=False)
    yield SHARP, exponential(fine, uniform, TERMS, sharp=True)
    yield CLUSTERED, exponential(fine, clustered, TERMS, sharp=True)

    def ks(alpha: float, rng: Randomness) -> Coefficients:
        return binned_series(sample_ks(coarse, RELEASED, alpha, rng) / RELEASED)

    def smoothed(alpha: float, rng: Randomness) -> Coefficients:
        mechanism = smoothed_histogram(alpha, RELEASED, BINS, n_records=RECORDS)
        return binned_series(mechanism(coarse, rng))

    def laplace(alpha: float, rng: Randomness) -> Coefficients:
        target = Target(epsilon=alpha, delta=0.0, n_records=RECORDS, n_cells=BINS)
        mechanism = LaplaceTable.calibrate(PerturbedKnobs(), target)
        noisy = mechanism.release(table_of(coarse), rng)
        estimates = mechanism.postprocess(noisy, n_records=RECORDS)
        return binned_series(projected_shares(estimates, RECORDS))

    yield from ((KS, ks), (SMOOTHED, smoothed), (LAPLACE, laplace))


def exponential(
    counts: NDArray[np.int64], candidates: NDArray[np.int64], terms: int, *, sharp: bool
) -> Release:
    """The mechanism of section 5.3 over candidates, whose series have so many terms.

    Its score is the distance over Delta. The library's Delta is D/n, the least there is;
    for the paper's 2 c_0^2 m_n/n = 4 m_n/n (Lemma 17) epsilon is lowered as much.
    """
    features = series_features(CELLS, TERMS)
    kept = features * (np.arange(TERMS) < terms)[:, np.newaxis]
    scores = feature_scores(counts, candidates, features, kept)
    diameter = math.sqrt(scores.denominator) / (RELEASED * FEATURE_UNIT)
    lowered = 1.0 if sharp else diameter / (4 * TERMS)

    def release(alpha: float, rng: Randomness) -> Coefficients:
        chosen = candidates[choose_candidate(scores, alpha * lowered, rng)]
        return binned_series(chosen / RELEASED) * (np.arange(TERMS) < terms)

    return release


def compare(alphas: Sequence[float], repetitions: int, candidates: int) -> Comparison:
    """Figure 2: mean integrated squared errors."""
    result = Comparison("n", "α", "mean integrated squared error", SERIES)
    for i in progress(range(repetitions), "Data sets"):
        values = sample(RECORDS, np.random.default_rng([SEED, i]))
        rng = SeededRandomness(np.random.PCG64([SEED, i, 1]))
        for place, (curve, release) in enumerate(releases(values, candidates, rng)):
            for alpha in alphas:
                noise = SeededRandomness(np.random.PCG64([SEED, i, 2, place]))
                error = series_error(release(alpha, noise))
                result.add((float(RECORDS), alpha, curve), error)
    return result


def figure_1(path: Path, candidates: int) -> None:
    """Densities of the first data set at alpha = 0.1, as PNG and CSV."""
    values = sample(RECORDS, np.random.default_rng([SEED, 0]))
    rng = SeededRandomness(np.random.PCG64([SEED, 0, 1]))
    x = np.linspace(0, 1, 201)
    basis = np.sqrt(2) * np.cos(np.pi * np.arange(1, TERMS + 1)[:, np.newaxis] * x)
    curves = {"true density": density(x)}
    for curve, release in releases(values, candidates, rng):
        if curve in (SERIES, PAPER, LAPLACE):
            curves[curve] = 1 + release(FIGURE_1_ALPHA, rng) @ basis
    with path.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", *curves])
        writer.writerows(zip(x.tolist(), *(c.tolist() for c in curves.values()), strict=True))
    figure = new_figure(7, 8)
    for axis, shown in zip(figure.subplots(2, 1), (2, len(curves)), strict=True):
        for name, style in list(zip(curves, ("k-", "C0--", "C1-.", "C2:"), strict=True))[:shown]:
            axis.plot(x, curves[name], style, label=name)
        axis.set(xlabel="x", ylabel="density")
        axis.legend(fontsize=8)
    figure.savefig(path.with_suffix(".png"), dpi=150)


def main(arguments: Sequence[str] | None = None) -> Comparison:
    """Measure, write ``wasserman_zhou_1`` and ``_2`` as .csv and .png, print ratios."""
    quick, output = options(main.__doc__ or "", arguments)
    alphas, repetitions = (QUICK_ALPHAS, QUICK_REPETITIONS) if quick else (ALPHAS, REPETITIONS)
    candidates = QUICK_CANDIDATES if quick else CANDIDATES
    figure_1(output / "wasserman_zhou_1", candidates)
    result = compare(alphas, repetitions, candidates)
    result.write_csv(output / "wasserman_zhou_2.csv")
    result.plot(output / "wasserman_zhou_2.png", log_x=True)
    print(f"Mean squared error over that of the series, by α, {repetitions} repetitions")
    print(f"(the uniform density has {SQUARED_DENSITY - 1:.3f})\n")
    print(result.markdown(RECORDS, [alpha for alpha in SHOWN_ALPHAS if alpha in alphas]))
    print(f"\nWritten to {output}: wasserman_zhou_1 and _2, .csv and .png")
    return result


if __name__ == "__main__":
    main()
