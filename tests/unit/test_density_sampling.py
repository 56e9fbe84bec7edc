"""Density-estimate sampling: exact laws, the tight ratio, and twins without the mixture."""

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from density_law import cell_probabilities, value_of
from neighbouring import Table, multinomial, tables, worst

from statpress.mechanisms.tables.density import (
    HistogramKernel,
    Kernel,
    TableKernel,
    density_epsilon,
    draw_ratio,
    gaussian_kernel,
    round_kernel,
    sample_density,
)

KERNELS: dict[str, Kernel] = {
    "cells": HistogramKernel(np.arange(3)),
    "uneven bins": HistogramKernel(np.array([1, 0, 0])),
    "one bin": HistogramKernel(np.array([0, 0, 0])),
    "gaussian": gaussian_kernel(3, 0.8, 8),
    "wide gaussian": gaussian_kernel(3, 30.0),
    "uneven": TableKernel(np.array([[4, 0, 0], [1, 2, 1], [1, 0, 3]]), 2),
    "one cell": gaussian_kernel(1, 1.0),
}
KINDS = pytest.mark.parametrize("name", KERNELS)


def delta(kernel: Kernel, n: int, c: int, m: int, w: Fraction, factor: Fraction) -> Fraction:
    """Delta at e^epsilon = factor, by enumeration of all neighbours and releases."""
    laws = {
        table: multinomial(cell_probabilities(np.array(table), kernel, w), m)
        for table in tables(n, kernel.n_cells)
    }
    return Fraction(worst(laws, c, factor))


@KINDS
@pytest.mark.parametrize(("n", "c", "m"), [(1, 1, 2), (3, 1, 2), (3, 2, 1), (2, 2, 2)])
def test_claim_holds_and_is_tight(name: str, n: int, c: int, m: int) -> None:
    kernel, w = KERNELS[name], Fraction(1, 5)
    factor = draw_ratio(kernel, w, n, c) ** m
    assert delta(kernel, n, c, m, w, factor) == 0
    if factor > 1:
        assert delta(kernel, n, c, m, w, factor * (1 - Fraction(1, 10**6))) > 0


@pytest.mark.parametrize("name", ["cells", "uneven bins", "gaussian", "uneven"])
def test_a_claim_for_another_share_is_refuted(name: str) -> None:
    """The mixture ignored, and half the share claimed in full."""
    kernel, claim = KERNELS[name], draw_ratio(KERNELS[name], Fraction(1, 5), 3) ** 2
    for used in (Fraction(1, 10**6), Fraction(1, 10)):
        assert delta(kernel, 3, 1, 2, used, claim) > 0


def test_theorem_8_is_the_histogram_of_equal_bins() -> None:
    kernel = HistogramKernel(np.repeat(np.arange(4), 5))
    w, n, c, bins = Fraction(1, 7), 50, 3, 4
    assert draw_ratio(kernel, w, n, c) == 1 + (1 - w) * c * bins / (n * w)


@KINDS
def test_ratio_is_below_the_closed_bound(name: str) -> None:
    """1 + (1 - w) c K_max s / (n w), K_max s being the largest density of a kernel."""
    kernel, w, n, c = KERNELS[name], Fraction(1, 7), 5, 2
    cells = range(kernel.n_cells)
    largest = max(value_of(kernel, x, y) for x in cells for y in cells)
    limit = 1 + (1 - w) * c * largest * kernel.n_cells / (n * w)
    assert draw_ratio(kernel, w, n, c) <= limit
    assert draw_ratio(kernel, Fraction(1), n, c) == 1


@KINDS
def test_extremes_are_those_of_the_values(name: str) -> None:
    kernel = KERNELS[name]
    cells = range(kernel.n_cells)
    columns = [[value_of(kernel, x, y) for x in cells] for y in cells]
    assert kernel.extremes() == {(min(column), max(column)) for column in columns}
    assert all(sum(value_of(kernel, x, y) for y in cells) == 1 for x in cells)


@KINDS
def test_probabilities_add_up(name: str) -> None:
    kernel = KERNELS[name]
    for table in tables(2, kernel.n_cells):
        assert sum(cell_probabilities(np.array(table), kernel, Fraction(2, 9))) == 1


@pytest.mark.parametrize("name", ["cells", "gaussian", "wide gaussian", "one bin"])
def test_epsilon_encloses_the_logarithm(name: str) -> None:
    kernel, w = KERNELS[name], Fraction(1, 10**3)
    for m, n in ((1, 10), (10**6, 10**9)):
        found = density_epsilon(kernel, w, m, n_records=n)
        ratio = draw_ratio(kernel, w, n)
        with mpmath.workdps(60):
            exact = m * mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
            assert found.lower <= exact <= found.upper
        assert found.upper - found.lower <= 1e-15 * found.upper


class Scripted:
    """A generator whose integers are given in order, and are within the bounds asked for."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def integers(self, low: int, high: object, size: object = None, **_: object) -> np.ndarray:
        if isinstance(size, tuple):
            return np.full(size, self.values.pop(0), dtype=np.uint64)
        count = int(size) if isinstance(size, int) else np.size(high)  # type: ignore[arg-type]
        drawn = np.array([self.values.pop(0) for _ in range(count)], dtype=np.int64)
        assert np.all((drawn >= low) & (drawn < np.asarray(high)))
        return drawn


def law_of_one_draw(table: Table, kernel: Kernel, steps: Callable[[int], int]) -> list[Fraction]:
    """The law of a draw that is not from the uniform part, over all integers it can get."""
    found = [Fraction(0)] * kernel.n_cells
    for rank in range(sum(table)):
        origin = int(np.searchsorted(np.cumsum(table), rank, side="right"))
        for step in range(steps(origin)):
            # The first word's top three bits are 2, of 0..3, of which 0 is the uniform part.
            rng = Scripted(2 << 61, rank, step)
            drawn = sample_density(np.array(table), kernel, Fraction(1, 4), 1, rng)  # type: ignore[arg-type]
            found[int(drawn.argmax())] += Fraction(1, sum(table) * steps(origin))
    return found


def test_part_from_the_data_by_enumeration() -> None:
    uneven, bins = KERNELS["uneven"], KERNELS["uneven bins"]
    for table in ((2, 0, 1), (0, 3, 1), (0, 0, 2)):
        for kernel, steps in ((uneven, lambda _: 4), (bins, lambda x: (1, 2, 2)[x])):
            found = law_of_one_draw(table, kernel, steps)
            mixed = [p * Fraction(3, 4) + Fraction(1, 12) for p in found]
            assert mixed == cell_probabilities(np.array(table), kernel, Fraction(1, 4))


@KINDS
@pytest.mark.parametrize("w", [Fraction(1), Fraction(1, 3), Fraction(1, 10**30)])
def test_draws_add_up(name: str, w: Fraction) -> None:
    kernel, rng = KERNELS[name], np.random.default_rng(1)
    table = np.array([0, 3, 1][-kernel.n_cells :])
    for m in (0, 1, 400):
        drawn = sample_density(table, kernel, w, m, rng)
        assert drawn.shape == (kernel.n_cells,)
        assert drawn.sum() == m


def test_rounding_keeps_the_kernel_near() -> None:
    weights = np.random.default_rng(2).integers(0, 2**32, (40, 40))
    kernel = round_kernel(weights, 30)
    exact = weights / weights.sum(axis=1, keepdims=True)
    assert np.abs(kernel.table / 2.0**30 - exact).max() < 41 * 2.0**-30


@pytest.mark.parametrize("bandwidth", [0.01, 0.7, 5.0, 1e6])
def test_gaussian_kernel_is_near_its_density(bandwidth: float) -> None:
    steps = np.arange(12)
    exact = np.exp(-0.5 * ((steps[:, None] - steps) / bandwidth) ** 2)
    exact /= exact.sum(axis=1, keepdims=True)
    found = gaussian_kernel(12, bandwidth).table / 2.0**30
    assert np.abs(found - exact).max() < 13 * 2.0**-30


def test_arguments_out_of_range() -> None:
    kernel, rng = KERNELS["cells"], np.random.default_rng()
    for w in (Fraction(0), Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(ValueError, match="uniform share"):
            sample_density(np.array([1, 0, 0]), kernel, w, 1, rng)
        with pytest.raises(ValueError, match="uniform share"):
            draw_ratio(kernel, w, 3)
    for table in ([0, 0, 0], [1, 2], [2, -1, 1]):
        with pytest.raises(ValueError, match="needs a count"):
            sample_density(np.array(table), kernel, Fraction(1, 2), 1, rng)
    with pytest.raises(ValueError, match="unit_records"):
        draw_ratio(kernel, Fraction(1, 2), 3, 4)
    for bins in ([], [0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="bin"):
            HistogramKernel(np.array(bins, dtype=np.int64))
    for table in ([[1, 2], [2, 2]], [[-1, 5], [2, 2]], [[4, 0]]):
        with pytest.raises(ValueError, match="kernel"):
            TableKernel(np.array(table), 2)
    with pytest.raises(ValueError, match="bandwidth"):
        gaussian_kernel(3, 0.0)
