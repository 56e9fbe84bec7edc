"""Naive Bayes in two and three variables: the certificate against all cells and real tables."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.functions import kernels as kernel_pairs
from statpress.mechanisms.functions.function_targets import axes_of
from statpress.mechanisms.functions.kernels import NaiveBayes, ProductKernel, largest_moves
from statpress.mechanisms.functions.polynomials import lattice

LABEL = Categorical(name="label", categories=(0, 1))
CELLS = (5, 4)
DOMAIN = Domain(
    (
        *(
            Numeric(name=name, edges=Numeric.uniform_edges(0, 1, cells))
            for name, cells in zip("ab", CELLS, strict=True)
        ),
        LABEL,
    )
)
THREE = Domain(
    (
        *(
            Numeric(name=name, edges=Numeric.uniform_edges(0, 1, cells))
            for name, cells in zip("abc", (3, 2, 3), strict=True)
        ),
        LABEL,
    )
)
KERNELS = [
    ("gaussian", 0.02), ("gaussian", 0.1), ("gaussian", 0.4), ("epanechnikov", 0.3),
]  # fmt: skip


def kernel_of(shape: str, width: float) -> ProductKernel:
    return ProductKernel(shape, axes_of(DOMAIN, ["a", "b"]), (width, 1.5 * width))  # type: ignore[arg-type]


def by_enumeration(kernel: ProductKernel, degree: int) -> tuple[float, float]:
    """Largest norms over all kernels u and q and t of 0, 1/2 and 1, twice."""
    one, two = (kernel.factor(index, lattice(degree)) for index in (0, 1))
    most = [0.0, 0.0]
    for (u, q), t in itertools.product(itertools.product(one, repeat=2), (0.0, 0.5, 1.0)):
        left, right = two[:, None, None, :], two[None, :, None, :]
        gain = u[:, None] * left - t * (u - q)[:, None] * (left - right)
        most[0] = max(most[0], 2 * float(np.abs(gain).sum(axis=(2, 3)).max()))
        most[1] = max(most[1], 2 * math.sqrt(float((gain**2).sum(axis=(2, 3)).max())))
    return most[0], most[1]


@pytest.mark.parametrize("degree", [3, 8])
@pytest.mark.parametrize(("shape", "width"), KERNELS)
def test_the_certificate_is_what_enumeration_finds(shape: str, width: float, degree: int) -> None:
    kernel = kernel_of(shape, width)
    l1, l2 = by_enumeration(kernel, degree)
    found = largest_moves(kernel, degree)
    assert found is not None
    assert l1 <= found.l1 <= 1.2 * l1 + 1e-9
    assert found.l2 == pytest.approx(l2, rel=1e-6) or l2 < found.l2 < 1.5 * l2  # within a class
    before = tuple(6 * norm for norm in kernel.norms(degree))
    assert found.l1 <= before[0] * (1 + 1e-6) and found.l2 < 0.6 * before[1]


@pytest.mark.parametrize(("shape", "width"), KERNELS[:2])
def test_large_classes_attain_it(shape: str, width: float) -> None:
    """Both classes have 2000 records around one cell; one record elsewhere changes sides."""
    kernel, degree, size = kernel_of(shape, width), 4, 2000
    learner = NaiveBayes(kernel, LABEL, 2 * size + 1)
    bound, most = learner.sensitivity(degree), [0.0, 0.0]
    cells = range(0, DOMAIN.n_cells, 2)  # of records of the first class
    for base, other in itertools.product(cells[::4], cells):
        values = []
        for side in (0, 1):
            codes = np.array([base, base + 1, other + side])
            table = ContingencyTable.from_cells(DOMAIN, codes, np.array([size, size, 1]))
            values.append(learner.values(table, degree))
        change = np.abs(values[1] - values[0])
        assert change.sum() <= bound.l1 and math.sqrt((change**2).sum()) <= bound.l2
        most = [max(most[0], change.sum()), max(most[1], math.sqrt((change**2).sum()))]
    assert most[0] > 0.98 * bound.l1
    assert most[1] > 0.98 * bound.l2


def of_three(shape: str, width: float) -> ProductKernel:
    widths = (width, 1.5 * width, width)
    return ProductKernel(shape, axes_of(THREE, ["a", "b", "c"]), widths)  # type: ignore[arg-type]


def largest_of_three(kernel: ProductKernel, degree: int) -> float:
    """Largest L2 norm over all kernels u and q and some sizes of the class, twice."""
    values = [kernel.factor(index, lattice(degree)) for index in range(3)]
    most = 0.0
    for (u1, q1), (u2, q2), (u3, q3) in itertools.product(
        *(itertools.product(rows, repeat=2) for rows in values)
    ):
        for m in (1, 2, 3, 10, 10**6):
            after = functools.reduce(
                np.multiply.outer,
                (q + (u - q) / m for u, q in ((u1, q1), (u2, q2), (u3, q3))),
            )
            before = functools.reduce(np.multiply.outer, (q1, q2, q3))
            most = max(most, float(((m * after - (m - 1) * before) ** 2).sum()))
    return 2 * math.sqrt(most)


@pytest.mark.parametrize(("shape", "width"), KERNELS)
def test_the_certificate_of_three_is_what_enumeration_finds(shape: str, width: float) -> None:
    kernel = of_three(shape, width)
    found, l2 = largest_moves(kernel, 4), largest_of_three(kernel, 4)
    assert found is not None and found.l1 == math.inf
    assert found.l2 == pytest.approx(l2, rel=1e-5) or l2 < found.l2 < 1.5 * l2  # within a class
    before = 10 * kernel.norms(4)[1]
    print(f"{shape} {width}: {before:.4g} before, {found.l2:.4g} now, {l2:.4g} found")
    assert found.l2 < 0.54 * before


@pytest.mark.parametrize(
    ("shape", "width"),
    [KERNELS[0], pytest.param(*KERNELS[1], marks=pytest.mark.nightly)],
)
def test_tables_of_three_variables_stay_below_it(shape: str, width: float) -> None:
    """Classes around one cell, large ones too; one record changes sides, or its cell as well."""
    kernel, degree, most = of_three(shape, width), 4, 0.0
    cells = range(0, THREE.n_cells, 2)  # of records of the first class
    for size, base, moved in itertools.product((1, 4, 2000), cells[1::3], cells):
        n, values = 2 * size + 1, []
        learner = NaiveBayes(kernel, LABEL, n)
        for last in (moved, moved + 1, (moved + 4) % THREE.n_cells):
            codes = np.array([base, base + 1, last])
            table = ContingencyTable.from_cells(THREE, codes, np.array([size, size, 1]))
            values.append(n * learner.values(table, degree))
        bound = n * learner.sensitivity(degree).l2
        for one, other in itertools.combinations(values, 2):
            change = float(np.sqrt(((one - other) ** 2).sum()))
            assert change <= bound * (1 + 1e-9)
            most = max(most, change / bound)
    assert most > 0.95


def test_a_form_of_three_with_too_little_of_the_class_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken twin: the product of the q once in place of twice."""
    kernel = of_three("gaussian", 0.1)
    whole = largest_moves(kernel, 4)
    square_of = kernel_pairs._square_of
    monkeypatch.setattr(kernel_pairs, "_square_of", lambda g: square_of((g[0] / 2, *g[1:])))
    largest_moves.cache_clear()
    twin = largest_moves(kernel, 4)
    largest_moves.cache_clear()
    assert whole is not None and twin is not None
    assert twin.l2 < 0.99 * largest_of_three(kernel, 4) <= whole.l2


def test_a_form_that_leaves_out_what_does_not_overlap_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken twin: the sums without their absolute values."""
    kernel = kernel_of("gaussian", 0.021)
    of_sums = kernel_pairs._of_sums
    monkeypatch.setattr(kernel_pairs, "_of_sums", lambda values: of_sums(values) * [1, 1, 0])
    found = largest_moves(kernel, 4)
    assert found is not None
    assert found.l1 < by_enumeration(kernel, 4)[0]


def test_other_dimensions_have_no_certificate() -> None:
    kernel = ProductKernel("gaussian", axes_of(DOMAIN, ["a"]), (0.1,))
    assert largest_moves(kernel, 4) is None
