"""Projection onto the simplex: the optimality conditions, exact references, broken twins."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from statpress.mechanisms.postprocessing.consistency import SimplexProjection, project_to_simplex

Project = Callable[..., SimplexProjection]
NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-3, 3).map(float))
VALUES = st.lists(NUMBERS, max_size=30)
TOTALS = st.floats(1e-3, 1e7)


def exact(
    values: Sequence[float], total: float, unlisted: int, absent: float
) -> tuple[list[Fraction], Fraction]:
    """The projection in rational arithmetic: try every number of active groups."""
    groups = sorted(
        [(Fraction(v), 1) for v in values] + ([(Fraction(absent), unlisted)] if unlisted else []),
        reverse=True,
    )
    goal = Fraction(total)
    for end in range(1, len(groups) + 1):
        count = sum(times for _, times in groups[:end])
        t = (sum(v * times for v, times in groups[:end]) - goal) / count
        after = groups[end][0] if end < len(groups) else None
        if groups[end - 1][0] > t and (after is None or after <= t):
            break
    else:
        raise AssertionError("no active set is optimal")
    return [max(Fraction(v) - t, Fraction(0)) for v in values], max(
        Fraction(absent) - t, Fraction(0)
    )


def check(
    project: Project, values: Sequence[float], total: float, n_cells: int, absent: float
) -> None:
    """The conditions of Karush, Kuhn and Tucker, the sum, and the exact reference."""
    given_values = np.array(values, dtype=np.float64)
    found = project(given_values, total, n_cells=n_cells, absent=absent)
    unlisted = n_cells - len(values)
    scale = max([abs(absent), *map(abs, values), total / n_cells])
    assert found.values.shape == given_values.shape
    assert np.all(found.values >= 0) and found.absent_value >= 0
    summed = sum(map(Fraction, found.values.tolist())) + unlisted * Fraction(found.absent_value)
    assert abs(summed / Fraction(total) - 1) < Fraction(1, 10**12)
    shifted = given_values - found.threshold
    assert found.values == pytest.approx(np.maximum(shifted, 0), rel=1e-12, abs=1e-12 * scale)
    reference, others = exact(values, total, unlisted, absent)
    close = 1e-12 * total  # an error in one cell, against what there is to share
    assert found.values == pytest.approx([float(r) for r in reference], rel=1e-9, abs=close)
    if unlisted:
        assert found.absent_value == pytest.approx(float(others), rel=1e-9, abs=close / unlisted)


@given(values=VALUES, total=TOTALS, more=st.integers(0, 40), absent=NUMBERS)
@settings(deadline=None)
def test_conditions_hold(values: list[float], total: float, more: int, absent: float) -> None:
    if len(values) + more:
        check(project_to_simplex, values, total, len(values) + more, absent)


@given(values=VALUES, total=TOTALS, n_cells=st.integers(2**40, 2**63), absent=NUMBERS)
@settings(deadline=None)
def test_conditions_hold_with_unlisted_cells_beyond_count(
    values: list[float], total: float, n_cells: int, absent: float
) -> None:
    check(project_to_simplex, values, total, n_cells, absent)


@given(values=VALUES, total=TOTALS, more=st.integers(1, 40), absent=NUMBERS)
@settings(deadline=None)
def test_sparse_form_is_the_dense_form(
    values: list[float], total: float, more: int, absent: float
) -> None:
    sparse = project_to_simplex(values, total, n_cells=len(values) + more, absent=absent)
    dense = project_to_simplex([*values, *[absent] * more], total)
    close = 1e-12 * total
    assert sparse.values == pytest.approx(dense.values[: len(values)], rel=1e-12, abs=close)
    assert np.full(more, sparse.absent_value) == pytest.approx(
        dense.values[len(values) :], rel=1e-9, abs=close / more
    )
    assert sparse.threshold == pytest.approx(dense.threshold, rel=1e-12, abs=close)


@given(values=st.lists(NUMBERS, min_size=1, max_size=30), total=TOTALS)
@settings(deadline=None)
def test_idempotent(values: list[float], total: float) -> None:
    once = project_to_simplex(values, total).values
    twice = project_to_simplex(once, total).values
    assert twice == pytest.approx(once, rel=1e-12, abs=1e-14 * total)


@given(values=st.lists(NUMBERS, min_size=1, max_size=30), total=TOTALS, seed=st.integers(0, 99))
@settings(deadline=None)
def test_order_of_the_cells_does_not_matter_to_a_bit(
    values: list[float], total: float, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(values))
    whole = project_to_simplex(values, total, n_cells=100, absent=-1.0)
    turned = project_to_simplex(np.array(values)[order], total, n_cells=100, absent=-1.0)
    assert np.array_equal(turned.values, whole.values[order])
    assert (turned.threshold, turned.absent_value) == (whole.threshold, whole.absent_value)


def test_agrees_with_a_quadratic_programme() -> None:
    rng = np.random.default_rng(2)
    for total in (0.5, 3.0, 20.0):
        values = rng.normal(0, 2, 6)
        programme = minimize(
            lambda z, x: 0.5 * np.sum((z - x) ** 2),
            np.full(6, total / 6),
            args=(values,),
            jac=lambda z, x: z - x,
            bounds=[(0, None)] * 6,
            constraints={"type": "eq", "fun": lambda z, goal: z.sum() - goal, "args": (total,)},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        assert project_to_simplex(values, total).values == pytest.approx(programme.x, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "total", "expected"),
    [
        ([7.0], 2.0, [2.0]),
        ([-7.0], 2.0, [2.0]),
        ([-1.0, -1.0, -1.0, -1.0], 2.0, [0.5] * 4),
        ([-5.0, -1.0], 1.0, [0.0, 1.0]),
        ([4.0, 4.0, 1.0, 1.0], 6.0, [3.0, 3.0, 0.0, 0.0]),
        ([3, 1, 0], 4, [3.0, 1.0, 0.0]),
        ([1e308, -1e308, 1e308], 1.0, [0.5, 0.0, 0.5]),
        ([0.3, *[0.1] * 9], 0.2, [0.2, *[0.0] * 9]),
    ],
)
def test_known(values: list[float], total: float, expected: list[float]) -> None:
    assert project_to_simplex(values, total).values == pytest.approx(expected, abs=1e-16)


def test_total_of_zero() -> None:
    found = project_to_simplex([3.0, -1.0], 0, n_cells=9, absent=-0.5)
    assert found.values.tolist() == [0, 0]
    assert (found.threshold, found.absent_value) == (3.0, 0.0)
    assert project_to_simplex([-3.0], 0, n_cells=9, absent=-0.5).threshold == -0.5
    assert project_to_simplex([], 0).values.tolist() == []


def test_only_unlisted_cells() -> None:
    found = project_to_simplex([], 5.0, n_cells=2**63, absent=-100.0)
    assert found.absent_value == 5.0 / 2**63


def test_an_offset_costs_no_accuracy() -> None:
    """A million values near 10**9: what a plain cumulative sum gets wrong."""
    values = 1e9 + np.random.default_rng(4).integers(-(2**20), 2**20, 10**6) / 2.0**10
    found = project_to_simplex(values, 1000.0)
    assert abs(math.fsum(found.values) / 1000 - 1) < 1e-14
    same = project_to_simplex(values - 1e9, 1000.0)
    assert np.array_equal(found.values, same.values)


def test_input_is_left_alone() -> None:
    values = np.array([3.0, -1.0, 2.0])
    values.flags.writeable = False
    assert project_to_simplex(values, 1.0).values.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("values", "total", "more", "words"),
    [
        ([1.0, math.nan], 1.0, {}, r"values\[1\]"),
        ([math.inf], 1.0, {}, r"values\[0\]"),
        ([[1.0]], 1.0, {}, "one-dimensional"),
        (["a"], 1.0, {}, "one-dimensional"),
        ([1.0], -1.0, {}, "total"),
        ([1.0], math.inf, {}, "total"),
        ([1.0], math.nan, {}, "total"),
        ([], 1.0, {}, "no cell"),
        ([1.0, 2.0], 1.0, {"n_cells": 1}, "n_cells"),
        ([1.0], 1.0, {"n_cells": 2**63 + 1}, "n_cells"),
        ([1.0], 1.0, {"absent": math.nan}, "absent"),
    ],
)
def test_refusals(values: object, total: float, more: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        project_to_simplex(values, total, **more)  # type: ignore[arg-type]


# --- broken twins -----------------------------------------------------------------


def twin(
    values: np.ndarray, total: float, n_cells: int, absent: float, how: str
) -> SimplexProjection:
    """The textbook algorithm on the dense form, with one mistake."""
    every = np.append(values, np.full(n_cells - len(values), absent))
    if how == "unlisted cells forgotten":
        every = values
    ordered = np.sort(every)[::-1]
    rank = np.arange(1, len(ordered) + 1)
    number = int(np.flatnonzero(ordered - (np.cumsum(ordered) - total) / rank > 0)[-1]) + 1
    if how == "one active cell too few":
        number = max(number - 1, 1)
    if how == "one active cell too many":
        number = min(number + 1, len(ordered))
    t = (ordered[:number].sum() - total) / number
    result, other = np.maximum(values - t, 0), max(absent - t, 0.0)
    if how == "scaled instead of shifted":
        kept = np.maximum(every, 0)
        result, other = kept[: len(values)] * total / kept.sum(), 0.0
    return SimplexProjection(result, float(t), float(other))


CASES = [
    ([5.0, 3.0, 2.5, -1.0], 4.0, 6, 1.9),
    ([1.0, 2.0, 4.0, 0.5], 6.5, 8, 0.0),
    ([-3.0, -1.0, 2.0], 30.0, 5, -0.5),
]
MISTAKES = [
    "unlisted cells forgotten",
    "one active cell too few",
    "one active cell too many",
    "scaled instead of shifted",
]


@pytest.mark.parametrize("how", ["right", *MISTAKES])
def test_broken_twins_are_caught(how: str) -> None:
    def run() -> None:
        for values, total, n_cells, absent in CASES:
            check(
                lambda v, s, *, n_cells, absent: twin(v, s, n_cells, absent, how),
                values, total, n_cells, absent,
            )  # fmt: skip

    if how == "right":
        run()
    else:
        with pytest.raises(AssertionError):
            run()
