"""Iterated Bernstein polynomials: identities, rates, and what is refused."""

from __future__ import annotations

import ast
import itertools
import math
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from statpress.mechanisms.functions import polynomials as bernstein_polynomials
from statpress.mechanisms.functions.lattice_release import lebesgue_constant
from statpress.mechanisms.functions.polynomials import (
    BernsteinFunction,
    basis,
    evaluate,
    iterated_basis,
    lattice,
)
from statpress.mechanisms.functions.released_function import evaluate_grid

ENDS = [0.0, 5e-324, 1e-12, 0.3, 0.5, 0.7, 1 - 2**-53, 1.0]


def exact_basis(k: int, y: Fraction) -> list[Fraction]:
    """Definition 6, in fractions."""
    return [math.comb(k, v) * y**v * (1 - y) ** (k - v) for v in range(k + 1)]


def by_definition(values: list[Fraction], order: int, y: Fraction) -> Fraction:
    """Definition 8, sum of (-1)^(i-1) C(h, i) B^i, in fractions."""
    k = len(values) - 1
    power, total = list(values), Fraction(0)
    for i in range(1, order + 1):
        at_y = sum(c * b for c, b in zip(power, exact_basis(k, y), strict=True))
        total += (-1) ** (i - 1) * math.comb(order, i) * at_y
        power = [
            sum(
                (c * b for c, b in zip(power, exact_basis(k, Fraction(j, k)), strict=True)),
                Fraction(0),
            )
            for j in range(k + 1)
        ]
    return total


@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_the_basis_is_the_definition(k: int) -> None:
    found = basis(k, np.array(ENDS))
    for column, y in enumerate(ENDS):
        exact = [float(b) for b in exact_basis(k, Fraction(y))]
        assert found[:, column] == pytest.approx(exact, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("order", [1, 2, 3, 8])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_the_operator_is_the_definition(k: int, order: int) -> None:
    values = [Fraction(v * v * v - 5 * v, 7) for v in range(k + 1)]
    for y in (Fraction(0), Fraction(1, 3), Fraction(7, 8), Fraction(1)):
        exact = float(by_definition(values, order, y))
        found = evaluate(np.array([float(v) for v in values]), [[float(y)]], order)
        assert found[0] == pytest.approx(exact, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("k", [1, 5, 200, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("order", [1, 2, 8, 64])
def test_the_basis_adds_up_to_one(k: int, order: int) -> None:
    found = iterated_basis(k, order, np.array(ENDS + [0.1234]))
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-10)


@pytest.mark.parametrize("order", [1, 2, 5, 20])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_linear_functions_are_fixed_points(dimensions: int, order: int) -> None:
    rng = np.random.default_rng(1)
    slopes = rng.normal(size=dimensions)
    axes = np.meshgrid(*[lattice(6)] * dimensions, indexing="ij")
    values = 3 + sum(s * axis for s, axis in zip(slopes, axes, strict=True))
    points = rng.random((50, dimensions))
    np.testing.assert_allclose(evaluate(values, points, order), 3 + points @ slopes, atol=1e-12)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_points_in_batches_agree_with_the_sum_over_the_lattice(dimensions: int) -> None:
    rng = np.random.default_rng(2)
    values, points = rng.normal(size=(4,) * dimensions), rng.random((37, dimensions))
    one = [iterated_basis(3, 3, points[:, axis]) for axis in range(dimensions)]
    slow = np.zeros(len(points))
    for index in itertools.product(range(4), repeat=dimensions):
        slow += values[index] * math.prod(one[axis][v] for axis, v in enumerate(index))
    found = evaluate(values, points, 3, batch_values=100)
    np.testing.assert_allclose(found, slow, atol=1e-12)
    axes = [rng.random(m) for m in range(2, 2 + dimensions)]
    grid = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
    np.testing.assert_allclose(
        evaluate_grid(values, 3, axes).ravel(), evaluate(values, grid, 3), atol=1e-12
    )


def largest_error(function, k: int, order: int) -> float:
    y = np.linspace(0, 1, 2001)
    return float(np.abs(function(lattice(k)) @ iterated_basis(k, order, y) - function(y)).max())


@pytest.mark.parametrize("order", [1, 2, 3])
def test_smooth_functions_converge_with_the_order(order: int) -> None:
    def smooth(y: np.ndarray) -> np.ndarray:
        return np.exp(y) * np.sin(3 * y)

    rate = math.log2(largest_error(smooth, 160, order) / largest_error(smooth, 320, order))
    assert rate == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("gamma", [0.3, 0.5, 1.0])
def test_hoelder_functions_converge_with_half_their_exponent(gamma: float) -> None:
    def cusp(y: np.ndarray) -> np.ndarray:
        return np.abs(y - 0.5) ** gamma

    errors = {k: largest_error(cusp, k, 1) for k in (100, 400)}
    assert math.log2(errors[100] / errors[400]) / 2 == pytest.approx(gamma / 2, abs=0.02)
    for k, error in errors.items():
        assert error <= (4 * k) ** (-gamma / 2)  # Theorem 6 with L = 1


@pytest.mark.parametrize("k", [1, 5, 20])
def test_the_lebesgue_constant_bounds_the_basis(k: int) -> None:
    y = np.random.default_rng(3).random(20_000)
    for order in (1, 2, 4, 8):
        seen = np.abs(iterated_basis(k, order, y)).sum(axis=0).max()
        assert seen - 1e-12 <= lebesgue_constant(k, order) <= 1.01 * seen + 1e-9


def test_memory_does_not_grow_with_queries_times_lattice() -> None:
    values = np.zeros((11,) * 4)
    points = np.random.default_rng(4).random((20_000, 4))
    tracemalloc.start()
    evaluate(values, points, 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # queries times lattice would be 2.3 GB
    assert len(points) * values.size * 8 > 100 * peak


def test_the_box_is_scaled_and_guarded() -> None:
    line = BernsteinFunction(np.array([10.0, 20.0]), 3, (-5.0,), (5.0,))
    np.testing.assert_allclose(line([-5.0, 0.0, 5.0]), [10, 15, 20])
    for outside in (-5.1, 5.1, math.nan, math.inf):
        with pytest.raises(ValueError, match="outside the declared bounds"):
            line([outside])
    with pytest.raises(ValueError, match="outside"):
        evaluate(line.values, [[1.5]])
    with pytest.raises(ValueError, match="shape"):
        evaluate(line.values, [[0.5, 0.5]])


@pytest.mark.parametrize(
    ("shape", "order", "lower", "upper"),
    [
        ((2,) * 5, 1, (0,) * 5, (1,) * 5),
        ((1,), 1, (0,), (1,)),
        ((2, 3), 1, (0, 0), (1, 1)),
        ((2,), 0, (0,), (1,)),
        ((2,), 1, (1,), (1,)),
        ((2, 2), 1, (0,), (1,)),
    ],
)
def test_what_is_no_function_is_refused(shape, order, lower, upper) -> None:
    with pytest.raises(ValueError, match="must"):
        BernsteinFunction(np.zeros(shape), order, lower, upper)


def test_the_evaluator_needs_numpy_alone() -> None:
    tree = ast.parse(Path(bernstein_polynomials.__file__).read_text())
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        )
    }
    assert modules <= {"__future__", "collections", "dataclasses", "functools", "math", "numpy"}
