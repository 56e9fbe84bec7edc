"""Evaluating a released function, by ours and by the evaluator that a bundle ships.

The baseline of the same run is the least that any evaluation by the basis does: ``np.power``
for each point, coefficient and variable, and one product of a matrix of that size with the
coefficients. ``-m study`` holds a million points (k = 200) to 1 second, and 100,000
points in three variables (k = 20) to 2 seconds.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from statpress.mechanisms.functions.polynomials import evaluate, iterate
from statpress.tasks.products.evaluate import FORMAT, Function

CASES = [
    pytest.param(1, 200, 30_000, None, id="1d-30k"),
    pytest.param(3, 20, 10_000, None, id="3d-10k"),
    pytest.param(1, 200, 1_000_000, 1.0, id="1d-1M", marks=pytest.mark.study),
    pytest.param(3, 20, 100_000, 2.0, id="3d-100k", marks=pytest.mark.study),
]
MOST_RATIO = 5.0


def seconds(*runs: Callable[[], object], rounds: int) -> list[float]:
    """Least wall-clock seconds of each, taken in turn so that all see the same machine."""
    least = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            started = time.perf_counter()
            run()
            least[i] = min(least[i], time.perf_counter() - started)
    return least


@pytest.mark.parametrize(("dimensions", "degree", "points", "target"), CASES)
def test_evaluation(
    benchmark: BenchmarkFixture, dimensions: int, degree: int, points: int, target: float | None
) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(degree + 1,) * dimensions)
    queries = rng.random((points, dimensions))
    shipped = Function(
        {
            "format": FORMAT,
            "variables": [{"name": f"x{i}", "lower": 0, "upper": 1} for i in range(dimensions)],
            "degree": degree,
            "coefficients": iterate(values, 4).ravel(),
            "curve": None,
            "floor": None,
            "factor": 1.0,
        }
    )
    powers = rng.random(points * (degree + 1) * dimensions)
    rows, flat = powers[: points * (degree + 1)].reshape(points, -1), values.reshape(degree + 1, -1)

    def products() -> None:
        for start in range(0, points, 500):
            rows[start : start + 500] @ flat

    ours, theirs, first, second = seconds(
        lambda: evaluate(values, queries, 4),
        lambda: shipped(queries),
        lambda: np.power(powers, 7.3),
        products,
        rounds=1 if target is None else 4,
    )
    least, baseline = max(ours, theirs), first + second
    tracemalloc.start()
    shipped(queries)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    benchmark.extra_info["seconds"] = round(ours, 3)
    benchmark.extra_info["seconds_shipped"] = round(theirs, 3)
    benchmark.extra_info["ratio_to_baseline"] = round(least / baseline, 2)
    benchmark.extra_info["peak_megabytes"] = round(peak / 1e6, 1)
    benchmark.pedantic(lambda: shipped(queries), rounds=1)
    print(dimensions, degree, points, dict(benchmark.extra_info))
    assert peak < 40e6
    if target is not None:
        assert least < MOST_RATIO * baseline
        assert least < target
