"""Evaluating a released function, by ours and by the evaluator that a bundle ships.

The baseline of the same run is the least that any evaluation by the basis does: ``np.power``
for each point, coefficient and variable, and one product of a matrix of that size with the
coefficients. ``-m study`` holds a million points (k = 200) to 1 second, and 100,000
points in three variables (k = 20) to 2 seconds.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from statpress.mechanisms.functions.polynomials import evaluate, iterate
from statpress.tasks.products.evaluate import FORMAT, Function
from tests.benchmarks.timing import least

CASES = [
    pytest.param(1, 200, 30_000, None, id="1d-30k"),
    pytest.param(3, 20, 10_000, None, id="3d-10k"),
    pytest.param(1, 200, 1_000_000, 1.0, id="1d-1M", marks=pytest.mark.study),
    pytest.param(3, 20, 100_000, 2.0, id="3d-100k", marks=pytest.mark.study),
]
MOST_RATIO = 5.0
pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("dimensions", "degree", "points", "target"), CASES)
def test_evaluation(dimensions: int, degree: int, points: int, target: float | None) -> None:
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

    ours, theirs, first, second = least(
        lambda: evaluate(values, queries, 4),
        lambda: shipped(queries),
        lambda: np.power(powers, 7.3),
        products,
        rounds=4,
    )
    most, baseline = max(ours.wall, theirs.wall), first.wall + second.wall
    tracemalloc.start()
    shipped(queries)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{points:,} points: {most:.3f} s, {most / baseline:.2f} of the baseline, {peak:,} bytes")
    assert peak < 40e6
    if target is not None:
        assert most < MOST_RATIO * baseline
        assert most < target
