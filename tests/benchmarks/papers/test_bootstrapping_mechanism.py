"""What the comparison with the bootstrapping paper's figure 1 must show.

The bounds are on the mean KS error over that of the histogram with the same bins. Data and
noise have fixed seeds, OpenDP's excepted. The quick form allows three Monte-Carlo standard
errors, as it cannot tell more; the full form has none to allow.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from statpress.mechanisms.tables.bootstrap import Bootstrap
from tests.benchmarks.papers import bootstrapping_mechanism as figure
from tests.benchmarks.papers.bin_shares import table_of
from tests.benchmarks.papers.comparison import Comparison, Estimate

ROOT = Path(__file__).parents[3]
BEST_WITHIN = {5.0: 1.02, 0.5: 1.05}
BOOTSTRAP_WITHIN = 1.10
PAPER_AT = {20.0: 2.1, 50.0: 6.8, 100.0: 14.6}  # at epsilon 0.5


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(scope="module")
def quick(output: Path) -> Comparison:
    return figure.main(["--quick", "--output", str(output)])


def within(ratio: Estimate, bound: float, errors: float) -> bool:
    return ratio.value <= bound + errors * ratio.standard_error


def test_ours_is_near_the_histogram(quick: Comparison) -> None:
    for epsilon, bound in BEST_WITHIN.items():
        for s in quick.places:
            assert within(quick.ratio(epsilon, s, figure.BEST), bound, 3), (epsilon, s)


def test_exact_bootstrap_is_near_the_histogram(quick: Comparison) -> None:
    for epsilon in figure.EPSILONS:
        for s in quick.places:
            ratio = quick.ratio(epsilon, s, figure.EXACT + figure.PROJECTED)
            assert within(ratio, BOOTSTRAP_WITHIN, 3), (epsilon, s)


def test_the_bounds_refuse_what_is_worse(quick: Comparison) -> None:
    names = (figure.SIZE_N + figure.PROJECTED, figure.PAPER + figure.PROJECTED, figure.SMOOTHED)
    for curve in names:
        assert not within(quick.ratio(0.5, 100.0, curve), BOOTSTRAP_WITHIN, 3), curve


def test_paper_calibration_is_many_times_worse(quick: Comparison) -> None:
    for s in (20.0, 100.0):
        ratio = quick.ratio(0.5, s, figure.PAPER + figure.DEBIASED)
        assert abs(ratio.value - PAPER_AT[s]) < 4 * ratio.standard_error, s


def test_table_and_picture_are_written(quick: Comparison, output: Path) -> None:
    with (output / "bootstrapping_mechanism.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(quick.errors) > 80
    assert all(float(row["mean_error"]) > 0 and float(row["ratio"]) > 0 for row in rows)
    picture = (output / "bootstrapping_mechanism.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 20_000


def test_runs_as_a_module_from_the_root() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.papers.bootstrapping_mechanism", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--quick" in shown.stdout
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize(("drawn_with", "same"), [(Fraction(100), True), (Fraction(90), False)])
def test_multinomial_counts_have_the_law_of_the_release(drawn_with: Fraction, same: bool) -> None:
    """Homogeneity at level 1e-6; another pseudocount is caught."""
    counts, rng = np.array([0, 10, 400, 2000, 30, 0]), np.random.default_rng(5)
    released = Bootstrap(100, 1_000_000).release(table_of(counts), rng)
    drawn = figure.draw(Bootstrap(drawn_with, 1_000_000), counts, rng)
    assert (chi2_contingency([released.counts, drawn.counts]).pvalue > 1e-6) == same


@pytest.mark.study
def test_full_figure(tmp_path: Path) -> None:
    result = figure.main(["--output", str(tmp_path)])
    places = [s for s in result.places if s >= 10]
    for epsilon, bound in BEST_WITHIN.items():
        for s in places:
            assert within(result.ratio(epsilon, s, figure.BEST), bound, 0), (epsilon, s)
            ratio = result.ratio(epsilon, s, figure.EXACT + figure.PROJECTED)
            assert within(ratio, BOOTSTRAP_WITHIN, 0), (epsilon, s)
    for s, expected in PAPER_AT.items():
        ratio = result.ratio(0.5, s, figure.PAPER + figure.PROJECTED)
        assert ratio.value == pytest.approx(expected, rel=0.1)
    for s in places[2:]:  # from 20 bins on
        ours, opendp = (result.ratio(0.5, s, c) for c in (figure.BEST, figure.OPENDP))
        assert opendp.value - ours.value > 3 * (opendp.standard_error + ours.standard_error), s
