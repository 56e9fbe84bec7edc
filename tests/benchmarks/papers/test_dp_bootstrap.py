"""What the comparison with the paper's Table 2 must show, and how fast its parts are."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from statpress.mechanisms.accounting.noise_losses import BootstrapLoss
from statpress.mechanisms.estimates.dp_bootstrap import deconvolve
from statpress.mechanisms.estimates.resampling_noise import gaussian_goal, largest_mu_squared
from statpress.mechanisms.estimates.statistics import Covariance, Mean
from tests.benchmarks.papers import dp_bootstrap

Row = dict[str, object]


@pytest.fixture(scope="module")
def quick() -> list[Row]:
    return dp_bootstrap.table_2(3)


def test_recovered_distributions_have_the_papers_widths(quick: list[Row]) -> None:
    for row in quick:
        known = dp_bootstrap.PAPER_TABLE_2.get((str(row["method"]), float(str(row["mu"]))))
        if known and str(row["method"]).startswith("DP"):
            assert row["width"] == pytest.approx(known[1], rel=0.2)


def test_ours_is_as_wide_as_the_oracle_and_much_narrower_than_the_papers(quick: list[Row]) -> None:
    ratio = {(row["method"], row["mu"]): float(str(row["ratio"])) for row in quick}
    for mu, split in ((1.0, 1.1), (0.5, 1.1), (0.3, 1.15), (0.1, 1.5)):
        assert ratio["ours: joint moments", mu] < 1.01
        assert ratio["ours: subsample split", mu] < split
    assert ratio["DP bootstrap, paper's noise", 0.1] > 4


def test_everything_is_written(quick: list[Row], tmp_path: Path) -> None:
    dp_bootstrap.write(tmp_path, quick, {"2": 3})
    assert (tmp_path / "dp_bootstrap.md").read_text().count("| U(0, 1) |") == len(quick)
    assert (tmp_path / "dp_bootstrap.csv").read_text().count("U(0, 1)") == len(quick)
    assert (tmp_path / "dp_bootstrap.png").stat().st_size > 10_000


@pytest.mark.parametrize("statistic", [Mean(), Covariance()])
def test_a_setting_of_tables_3_and_4(statistic: Mean | Covariance) -> None:
    setting = dp_bootstrap.Setting(statistic, 200_000, 20, (1.0,), (0.9,))
    rows = dp_bootstrap.run("3", setting, dp_bootstrap.workers("Texas"), 3)
    assert {row["method"] for row in rows} > {"bootstrap, not private", "ours: subsample split"}
    for row in rows:
        assert 0.5 < float(row["ratio"]) < 3


@pytest.mark.study
def test_table_2_in_full() -> None:
    for row in dp_bootstrap.table_2(1000):
        known = dp_bootstrap.PAPER_TABLE_2.get((row["method"], row["mu"]))
        if known:
            assert row["coverage"] == pytest.approx(known[0], abs=0.02 + 0.01)  # chance
            if row["method"].startswith("DP"):
                assert row["width"] == pytest.approx(known[1], rel=0.05)


def best(work: Callable[[], object], times: int = 3) -> float:
    """The least time of a few runs, in seconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def test_speed_of_deconvolution() -> None:
    """Against one product of its kernel's size in dense algebra and one normal distribution."""
    rng = np.random.default_rng(1)
    noisy = 0.5 + 0.01 * rng.standard_normal(200)
    deconvolve(noisy, 0.006)
    matrix = rng.random((1000, 40))
    baseline = best(lambda: np.exp(matrix) @ matrix.T, 5)
    assert best(lambda: deconvolve(noisy, 0.006), 10) < max(5e-3, 10 * baseline)


def test_speed_of_strict_calibration() -> None:
    part = BootstrapLoss(Fraction(1), 2917)
    goal = gaussian_goal(Fraction(17, 20))
    start = time.process_time()
    largest_mu_squared(part, 200, goal)
    cold = time.process_time() - start
    assert best(lambda: largest_mu_squared(part, 200, goal)) < 1e-3
    assert cold < 3
