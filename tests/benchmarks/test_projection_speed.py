"""Projecting and rounding a release, against sorting the same cells.

The baseline of the same run is ``np.sort`` of the same array, which any projection
by sorting has to do. ``-m study`` takes 10⁷ cells and holds both functions to
2 seconds each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.postprocessing.rounding import round_to_total

Floats = NDArray[np.float64]
N_CELLS = 2**60
TARGET = 2.0  # seconds for 10⁷ cells
SIZES = [
    pytest.param(200_000, id="200k"),
    pytest.param(10_000_000, id="10M", marks=pytest.mark.study),
]


def estimates(kind: str, k: int) -> tuple[Floats, int]:
    """Cells as after debiasing, and a total; few or most of them stay above 0."""
    rng = np.random.default_rng(1)
    if kind == "noise":
        return rng.normal(0.0, 100.0, k), 3 * k
    if kind == "offset":
        return rng.normal(1e9, 100.0, k), 50 * k
    return np.floor(rng.pareto(1.1, k)) * 20 - 5.0, 10 * k  # many ties


def seconds(run: Callable[[], object], rounds: int = 5) -> float:
    """Least wall-clock seconds of some runs."""
    least = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - started)
    return least


def report(benchmark: BenchmarkFixture, run: Callable[[], object], cells: Floats) -> None:
    """The time of a run against that of sorting; held to the target at full size."""
    least, sort = seconds(run), seconds(lambda: np.sort(cells))
    benchmark.extra_info["ratio_to_sort"] = round(least / sort, 2)
    benchmark.extra_info["seconds"] = round(least, 3)
    benchmark.pedantic(run, rounds=1)
    print(len(cells), dict(benchmark.extra_info))
    if len(cells) >= 10_000_000:
        assert least < TARGET


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("kind", ["noise", "offset", "ties"])
def test_projecting(benchmark: BenchmarkFixture, kind: str, k: int) -> None:
    cells, total = estimates(kind, k)
    run = partial(project_to_simplex, cells, total, n_cells=N_CELLS, absent=-5.0)
    found = run()
    summed = float(found.values.sum()) + (N_CELLS - k) * found.absent_value
    assert abs(summed / total - 1) < 1e-12
    report(benchmark, run, cells)


@pytest.mark.parametrize("k", SIZES)
def test_rounding(benchmark: BenchmarkFixture, k: int) -> None:
    cells, total = estimates("noise", k)
    values = project_to_simplex(cells, total).values
    assert round_to_total(values, total).sum() == total
    report(benchmark, partial(round_to_total, values, total), values)
