"""What the comparison with figures 1 and 2 of Wasserman and Zhou must show."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.papers import wasserman_zhou as figure
from tests.benchmarks.papers.beta_distribution import bin_counts, sample
from tests.benchmarks.papers.comparison import Comparison

N = float(figure.RECORDS)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(scope="module")
def quick(output: Path) -> Comparison:
    return figure.main(["--quick", "--output", str(output)])


def below(result: Comparison, alpha: float, less: str, more: str) -> bool:
    """Whether one mean error is below another by four standard errors of paired differences."""
    pairs = zip(result.errors[N, alpha, less], result.errors[N, alpha, more], strict=True)
    gaps = np.array([second - first for first, second in pairs])
    return float(gaps.mean()) > 4 * float(gaps.std(ddof=1)) / np.sqrt(len(gaps))


def test_error_falls_with_alpha(quick: Comparison) -> None:
    """Figure 2's message; and at alpha = 0.1 its release is no better than no data at all."""
    means = [quick.mean(N, alpha, figure.PAPER) for alpha in figure.QUICK_ALPHAS]
    for more, less in itertools.pairwise(means):
        assert more.value - less.value > 4 * np.hypot(more.standard_error, less.standard_error)
    assert not below(quick, 0.1, figure.PAPER, figure.UNIFORM)


def test_noise_on_bins_beats_the_exponential_mechanism(quick: Comparison) -> None:
    for alpha in (1.0, 10.0):
        for curve in (figure.PAPER, figure.PAPER_TERMS, figure.SHARP, figure.SMOOTHED):
            assert below(quick, alpha, figure.LAPLACE, curve), (alpha, curve)
    assert quick.ratio(N, 10.0, figure.LAPLACE).value < 1.1


def test_least_sensitivity_beats_the_papers(quick: Comparison) -> None:
    assert below(quick, 1.0, figure.SHARP, figure.PAPER)


def test_the_papers_terms_leave_a_part_of_the_error(quick: Comparison) -> None:
    """Two terms miss 0.2976 of the density, whatever alpha is."""
    assert min(quick.errors[N, 10.0, figure.PAPER_TERMS]) >= 0.2975


def test_tables_and_pictures_are_written(quick: Comparison, output: Path) -> None:
    for name in ("wasserman_zhou_1", "wasserman_zhou_2"):
        picture = (output / name).with_suffix(".png").read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 20_000
    with (output / "wasserman_zhou_2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(quick.errors) and all(float(row["mean_error"]) > 0 for row in rows)
    with (output / "wasserman_zhou_1.csv").open(newline="") as file:
        densities = list(csv.DictReader(file))
    # All curves of figure 1 integrate to 1, by the trapezoidal rule on 201 points.
    for curve in ("true density", figure.SERIES, figure.PAPER, figure.LAPLACE):
        values = [float(row[curve]) for row in densities]
        assert np.trapezoid(values, dx=1 / 200) == pytest.approx(1, abs=1e-3)


def test_lowered_epsilon_is_the_papers_sensitivity() -> None:
    """exp(-alpha xi n/(8 m_n)) over the candidates, against the frequencies of choices."""
    rng = np.random.default_rng(4)
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


@pytest.mark.study
def test_full_figures(tmp_path: Path) -> None:
    result = figure.main(["--output", str(tmp_path)])
    for alpha in (alpha for alpha in result.places if alpha > 0.3):
        for curve in (figure.PAPER, figure.PAPER_TERMS, figure.SHARP, figure.SMOOTHED, figure.KS):
            assert below(result, alpha, figure.LAPLACE, curve), (alpha, curve)
