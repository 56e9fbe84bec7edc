"""What the comparisons with the papers' figures must show: in a quick form, in full with --full.

Whoever runs a comparison gets its tables and pictures; the bounds are what the pages promise of
ours beside the papers' releases. The quick forms allow for three or four standard errors of a
simulation; data and noise have fixed seeds, OpenDP's excepted.
"""

from __future__ import annotations

import csv
import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from statpress.mechanisms.estimates.statistics import Covariance, Mean
from statpress.mechanisms.tables.bootstrap import Bootstrap
from tests.benchmarks.papers import (
    bernstein,
    bootstrapping_mechanism,
    dp_bootstrap,
    wasserman_zhou,
)
from tests.benchmarks.papers.beta_distribution import bin_counts, sample
from tests.benchmarks.papers.bin_shares import table_of
from tests.benchmarks.papers.comparison import Comparison, Estimate

PNG = b"\x89PNG"


def asked(full: bool, output: Path) -> list[str]:
    """The arguments of a comparison."""
    return [*([] if full else ["--quick"]), "--output", str(output)]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.nightly
def test_the_bernstein_mechanism(tmp_path: Path, full: bool) -> None:
    """Half the paper's error with the best of its orders, and below the constant pieces."""
    figure = bernstein
    first, second = figure.main(asked(full, tmp_path))
    panel = first[0].panel
    for rows in ([row for row in first if row.panel == panel], second):
        for row in rows:
            if row.curve in (figure.BEST, figure.CONSTANT):
                ours = figure.mean_of(rows, row.panel, row.epsilon, figure.OURS)
                assert row.mean > 2 * ours, row
    # Large orders win where the noise is small, small ones where it is large, as in the paper.
    for epsilon, better, worse in ((10.0, 8, 1), (0.01, 1, 8)):
        low = figure.mean_of(first, panel, epsilon, f"paper, h = {better}")
        assert low < figure.mean_of(first, panel, epsilon, f"paper, h = {worse}")
        assert low < figure.mean_of(first, panel, epsilon, figure.CONSTANT)
    for row in first:
        if row.panel == panel and row.curve == figure.OURS and row.epsilon <= 1:
            foreseen = float(row.parameters.split("foreseen=")[1])
            assert 0.5 * row.mean < foreseen < 2 * row.mean
    for name, rows in (("bernstein_1", first), ("bernstein_2", second)):
        assert len(rows_of(tmp_path / f"{name}.csv")) == len(rows)
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == PNG
    assert (tmp_path / "bernstein_2_boundaries.png").exists()


BEST_WITHIN = {5.0: 1.02, 0.5: 1.05}
BOOTSTRAP_WITHIN = 1.10
PAPER_AT = {20.0: 2.1, 50.0: 6.8, 100.0: 14.6}  # at epsilon 0.5


@pytest.mark.nightly
def test_the_bootstrapping_mechanism(tmp_path: Path, full: bool) -> None:
    """The bounds are on the mean KS error over that of the histogram with the same bins."""
    figure = bootstrapping_mechanism
    result, errors = figure.main(asked(full, tmp_path)), 0 if full else 3

    def within(ratio: Estimate, bound: float) -> bool:
        return ratio.value <= bound + errors * ratio.standard_error

    bins = [s for s in result.places if s >= 10]
    for epsilon, bound in BEST_WITHIN.items():
        for s in bins:
            assert within(result.ratio(epsilon, s, figure.BEST), bound), (epsilon, s)
            exact = result.ratio(epsilon, s, figure.EXACT + figure.PROJECTED)
            assert within(exact, BOOTSTRAP_WITHIN), (epsilon, s)
    # The bounds refuse what is worse.
    for curve in (figure.SIZE_N, figure.PAPER):
        assert not within(result.ratio(0.5, 100.0, curve + figure.PROJECTED), BOOTSTRAP_WITHIN)
    assert not within(result.ratio(0.5, 100.0, figure.SMOOTHED), BOOTSTRAP_WITHIN)
    for s in PAPER_AT if full else (20.0, 100.0):
        ratio = result.ratio(0.5, s, figure.PAPER + figure.DEBIASED)
        assert abs(ratio.value - PAPER_AT[s]) < 4 * ratio.standard_error + 0.1 * PAPER_AT[s] * full
    for s in bins[2:] if full else ():  # from 20 bins on
        ours, opendp = (result.ratio(0.5, s, c) for c in (figure.BEST, figure.OPENDP))
        assert opendp.value - ours.value > 3 * (opendp.standard_error + ours.standard_error), s
    rows = rows_of(tmp_path / "bootstrapping_mechanism.csv")
    assert len(rows) == len(result.errors) > 80
    assert all(float(row["mean_error"]) > 0 and float(row["ratio"]) > 0 for row in rows)
    assert (tmp_path / "bootstrapping_mechanism.png").read_bytes()[:4] == PNG


@pytest.mark.parametrize(("drawn_with", "same"), [(Fraction(100), True), (Fraction(90), False)])
def test_multinomial_counts_have_the_law_of_the_release(drawn_with: Fraction, same: bool) -> None:
    """Homogeneity at level 1e-6; another pseudocount is caught."""
    counts, rng = np.array([0, 10, 400, 2000, 30, 0]), np.random.default_rng(5)
    released = Bootstrap(100, 1_000_000).release(table_of(counts), rng)
    drawn = bootstrapping_mechanism.draw(Bootstrap(drawn_with, 1_000_000), counts, rng)
    assert (chi2_contingency([released.counts, drawn.counts]).pvalue > 1e-6) == same


@pytest.mark.nightly
def test_the_dp_bootstrap(tmp_path: Path, full: bool) -> None:
    """Ours is as wide as the oracle, and much narrower than the paper's."""
    rows = dp_bootstrap.table_2(1000 if full else 3)
    for row in rows:
        known = dp_bootstrap.PAPER_TABLE_2.get((str(row["method"]), float(str(row["mu"]))))
        if known and str(row["method"]).startswith("DP"):
            assert row["width"] == pytest.approx(known[1], rel=0.05 if full else 0.2)
        if known and full:
            assert row["coverage"] == pytest.approx(known[0], abs=0.02 + 0.01)  # chance
    ratio = {(row["method"], row["mu"]): float(str(row["ratio"])) for row in rows}
    for mu, split in ((1.0, 1.1), (0.5, 1.1), (0.3, 1.15), (0.1, 1.5)):
        assert ratio["ours: joint moments", mu] < 1.01
        assert ratio["ours: subsample split", mu] < split
    assert ratio["DP bootstrap, paper's noise", 0.1] > 4
    dp_bootstrap.write(tmp_path, rows, {"2": 3})
    assert (tmp_path / "dp_bootstrap.md").read_text().count("| U(0, 1) |") == len(rows)
    assert (tmp_path / "dp_bootstrap.csv").read_text().count("U(0, 1)") == len(rows)
    assert (tmp_path / "dp_bootstrap.png").stat().st_size > 10_000


@pytest.mark.nightly
@pytest.mark.parametrize("statistic", [Mean(), Covariance()])
def test_a_setting_of_tables_3_and_4(statistic: Mean | Covariance) -> None:
    setting = dp_bootstrap.Setting(statistic, 200_000, 20, (1.0,), (0.9,))
    rows = dp_bootstrap.run("3", setting, dp_bootstrap.workers("Texas"), 3)
    assert {row["method"] for row in rows} > {"bootstrap, not private", "ours: subsample split"}
    for row in rows:
        assert 0.5 < float(row["ratio"]) < 3


N = float(wasserman_zhou.RECORDS)


def below(result: Comparison, alpha: float, less: str, more: str) -> bool:
    """Whether one mean error is below another by four standard errors of paired differences."""
    pairs = zip(result.errors[N, alpha, less], result.errors[N, alpha, more], strict=True)
    gaps = np.array([second - first for first, second in pairs])
    return float(gaps.mean()) > 4 * float(gaps.std(ddof=1)) / np.sqrt(len(gaps))


@pytest.mark.nightly
def test_the_statistical_framework(tmp_path: Path, full: bool) -> None:
    """Noise on bins beats the exponential mechanism; its error falls with alpha."""
    figure = wasserman_zhou
    result = figure.main(asked(full, tmp_path))
    if full:
        curves = (figure.PAPER, figure.PAPER_TERMS, figure.SHARP, figure.SMOOTHED, figure.KS)
        for alpha, curve in itertools.product((a for a in result.places if a > 0.3), curves):
            assert below(result, alpha, figure.LAPLACE, curve), (alpha, curve)
        return
    # Figure 2's message; and at alpha = 0.1 its release is no better than no data at all.
    means = [result.mean(N, alpha, figure.PAPER) for alpha in figure.QUICK_ALPHAS]
    for more, less in itertools.pairwise(means):
        assert more.value - less.value > 4 * np.hypot(more.standard_error, less.standard_error)
    assert not below(result, 0.1, figure.PAPER, figure.UNIFORM)
    for alpha in (1.0, 10.0):
        for curve in (figure.PAPER, figure.PAPER_TERMS, figure.SHARP, figure.SMOOTHED):
            assert below(result, alpha, figure.LAPLACE, curve), (alpha, curve)
    assert result.ratio(N, 10.0, figure.LAPLACE).value < 1.1
    assert below(result, 1.0, figure.SHARP, figure.PAPER)
    # Two terms miss 0.2976 of the density, whatever alpha is.
    assert min(result.errors[N, 10.0, figure.PAPER_TERMS]) >= 0.2975
    for name in ("wasserman_zhou_1", "wasserman_zhou_2"):
        assert (tmp_path / name).with_suffix(".png").read_bytes()[:4] == PNG
    rows = rows_of(tmp_path / "wasserman_zhou_2.csv")
    assert len(rows) == len(result.errors) and all(float(row["mean_error"]) > 0 for row in rows)
    # All curves of figure 1 integrate to 1, by the trapezoidal rule on 201 points.
    densities = rows_of(tmp_path / "wasserman_zhou_1.csv")
    for curve in ("true density", figure.SERIES, figure.PAPER, figure.LAPLACE):
        values = [float(row[curve]) for row in densities]
        assert np.trapezoid(values, dx=1 / 200) == pytest.approx(1, abs=1e-3)


@pytest.mark.nightly
def test_lowered_epsilon_is_the_papers_sensitivity() -> None:
    """exp(-alpha xi n/(8 m_n)) over the candidates, against the frequencies of choices."""
    figure, rng = wasserman_zhou, np.random.default_rng(4)
    counts = bin_counts(sample(figure.RECORDS, rng), figure.CELLS)
    candidates = np.zeros((2, figure.CELLS), np.int64)
    candidates[0, 45:55], candidates[1, 20:30] = 1, 1
    middles = (np.arange(figure.CELLS) + 0.5) / figure.CELLS
    basis = np.sqrt(2) * np.cos(np.pi * np.arange(1, figure.TERMS + 1)[:, np.newaxis] * middles)
    gaps = basis @ counts / figure.RECORDS - (basis @ candidates.T).T / figure.RELEASED
    scores = np.linalg.norm(gaps, axis=1) * figure.RECORDS / (8 * figure.TERMS)
    first = 1 / (1 + np.exp(scores[0] - scores[1]))
    release = figure.exponential(counts, candidates, figure.TERMS, sharp=False)
    near = figure.binned_series(candidates[0] / figure.RELEASED)
    chosen = sum(np.array_equal(release(1.0, rng), near) for _ in range(2000))
    assert abs(chosen / 2000 - first) < 5 * np.sqrt(first * (1 - first) / 2000)
