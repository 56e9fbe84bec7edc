"""Controlled rounding: sums exact, no cell moved by 1, nearest by enumeration, broken twins."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from statpress.mechanisms.postprocessing.rounding import (
    round_systematically,
    round_table,
    round_to_total,
)

Floats = NDArray[np.float64]


def with_sum(weights: NDArray[np.int64], total: int) -> Floats:
    """Reals in proportion to the weights that add up to the total, but for rounding."""
    return weights * (total / weights.sum()) if weights.sum() else np.zeros(weights.shape)


def check_line(
    rounded: Callable[[Floats, int], NDArray[np.int64]], values: Floats, total: int
) -> None:
    found = rounded(values, total)
    assert found.dtype == np.int64 and found.shape == values.shape
    assert int(found.sum()) == total
    assert np.all(found >= 0) and np.all(np.abs(found - values) < 1)
    if len(values) <= 5:
        around = [range(max(math.floor(v) - 1, 0), math.ceil(v) + 2) for v in values]
        whole = [np.array(c) for c in itertools.product(*around) if sum(c) == total]
        for p in (1, 2):
            least = min(float((np.abs(c - values) ** p).sum()) for c in whole)
            assert float((np.abs(found - values) ** p).sum()) <= least + 1e-9


def check_runs(
    rounded: Callable[[Floats, int], NDArray[np.int64]], values: Floats, total: int
) -> None:
    found = rounded(values, total)
    assert found.dtype == np.int64 and found.shape == values.shape
    assert int(found.sum()) == total
    assert np.all(found >= 0) and np.all(np.abs(found - values) < 1)
    passed = np.cumsum(found) - np.cumsum(values)
    assert np.ptp(np.append(passed, 0.0)) <= 1 + 1e-6  # the largest change of any run


def check_table(rounded: Callable[[Floats], NDArray[np.int64]], matrix: Floats) -> None:
    found, near = rounded(matrix), 1e-9
    assert found.dtype == np.int64 and found.shape == matrix.shape
    assert int(found.sum()) == round(float(matrix.sum()))
    pairs = [(found, matrix)] + [(found.sum(axis=a), matrix.sum(axis=a)) for a in (0, 1)]
    for whole, real in pairs:
        assert np.all((whole >= np.floor(real + near)) & (whole <= np.ceil(real - near)))
    if matrix.size <= 9:
        least = min(
            float(((table - matrix) ** 2).sum()) for table in admissible_tables(matrix, near)
        )
        assert float(((found - matrix) ** 2).sum()) == pytest.approx(least, abs=1e-9)


def admissible_tables(matrix: Floats, near: float) -> list[NDArray[np.int64]]:
    """Every table that keeps the totals, by enumeration of what goes up."""
    floors = np.floor(matrix).astype(np.int64)
    steps = [range(2) if rest else range(1) for rest in (matrix - floors).ravel()]
    tables = [floors + np.reshape(ups, matrix.shape) for ups in itertools.product(*steps)]
    return [
        table
        for table in tables
        if table.sum() == round(float(matrix.sum()))
        and all(
            np.all(table.sum(axis=a) >= np.floor(matrix.sum(axis=a) + near))
            and np.all(table.sum(axis=a) <= np.ceil(matrix.sum(axis=a) - near))
            for a in (0, 1)
        )
    ]


@given(
    weights=st.lists(st.integers(0, 50), min_size=1, max_size=40).filter(any),
    total=st.integers(0, 300),
)
@settings(deadline=None)
def test_line(weights: list[int], total: int) -> None:
    check_line(round_to_total, with_sum(np.array(weights), total), total)


@given(
    weights=st.lists(st.integers(0, 50), min_size=1, max_size=40).filter(any),
    total=st.integers(0, 300),
)
@settings(deadline=None)
def test_every_run_of_cells(weights: list[int], total: int) -> None:
    check_runs(round_systematically, with_sum(np.array(weights), total), total)


def test_runs_where_cells_outnumber_records() -> None:
    rng = np.random.default_rng(3)
    values = rng.dirichlet(np.full(100_000, 0.5)) * 5000
    check_runs(round_systematically, values, 5000)
    whole = rng.integers(0, 3, 50)
    assert np.array_equal(round_systematically(whole.astype(float), int(whole.sum())), whole)
    assert round_systematically(np.zeros(0), 0).tolist() == []
    with pytest.raises(AssertionError):  # twin: the largest remainders lie where they lie
        check_runs(round_to_total, np.concatenate([np.full(50, 0.6), np.full(50, 0.4)]), 50)


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any), total=st.integers(0, 9)
)
@settings(deadline=None)
def test_line_is_nearest(weights: list[int], total: int) -> None:
    check_line(round_to_total, with_sum(np.array(weights), total), total)


@given(whole=st.lists(st.integers(0, 10**15), max_size=20))
@settings(deadline=None)
def test_integers_stay(whole: list[int]) -> None:
    assert round_to_total(np.array(whole, dtype=np.float64), sum(whole)).tolist() == whole


def test_ties_go_to_the_first() -> None:
    assert round_to_total([0.5, 1.5, 0.5, 1.5], 4).tolist() == [1, 2, 0, 1]
    assert round_to_total([0.25, 0.5, 0.25, 1.0], 2).tolist() == [0, 1, 0, 1]


@given(seed=st.integers(0, 999))
@settings(deadline=None)
def test_line_order_does_not_matter_without_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, order = with_sum(rng.integers(1, 10**9, 30), 100), rng.permutation(30)
    assert np.array_equal(round_to_total(values[order], 100), round_to_total(values, 100)[order])


def test_many_cells() -> None:
    values = np.random.default_rng(1).exponential(3, 10**6)
    values *= 3_000_000 / values.sum()
    found = round_to_total(values, 3_000_000)
    assert found.sum() == 3_000_000 and np.abs(found - values).max() < 1


@pytest.mark.parametrize(
    ("values", "total", "words"),
    [
        ([0.5, 0.4], 1, "add up"),
        ([1.0, 1.0], 3, "add up"),
        ([], 1, "add up"),
        ([-0.5, 1.5], 1, r"value at \(0,\)"),
        ([0.5, math.nan], 1, r"value at \(1,\)"),
        ([2.0**62], 1, r"value at \(0,\)"),
        ([2.0**61] * 3, 1, "2..62"),
        ([[1.0]], 1, "dimension"),
        ([1.0], 0.5, "total"),
        ([1.0], -1, "total"),
    ],
)
def test_line_refusals(values: object, total: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        round_to_total(values, total)  # type: ignore[arg-type]


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))


@given(shape=SHAPES, seed=st.integers(0, 9999), total=st.integers(0, 60), zeros=st.floats(0, 0.9))
@settings(max_examples=25, deadline=None)
def test_table(shape: tuple[int, int], seed: int, total: int, zeros: float) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 30, shape) * (rng.random(shape) >= zeros)
    check_table(round_table, with_sum(weights, total))


@given(seed=st.integers(0, 9999), top=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_table_with_integer_margins_keeps_them(seed: int, top: int) -> None:
    """An average of integer tables with the same margins: permutations of the rows' codes."""
    rng, size = np.random.default_rng(seed), 5
    matrix = sum(np.eye(size)[rng.permutation(size)] for _ in range(top)) / top * 3
    found = round_table(matrix)
    assert found.sum(axis=0).tolist() == found.sum(axis=1).tolist() == [3] * size
    check_table(round_table, matrix)


@given(seed=st.integers(0, 9999))
@settings(max_examples=15, deadline=None)
def test_table_is_idempotent_and_follows_its_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = with_sum(rng.integers(1, 30, (5, 4)), 40)
    found, rows, columns = round_table(matrix), rng.permutation(5), rng.permutation(4)
    assert np.array_equal(round_table(found), found)
    # Of tables equally near the solver may choose another, so distances are compared.
    least = ((found - matrix) ** 2).sum()
    for other in (matrix[rows][:, columns], matrix.T):
        assert ((round_table(other) - other) ** 2).sum() == pytest.approx(least, abs=1e-6)


@given(shape=SHAPES, seed=st.integers(0, 9999), zeros=st.floats(0, 0.9))
@settings(max_examples=25, deadline=None)
def test_any_sum_goes_to_the_nearest_integer(
    shape: tuple[int, int], seed: int, zeros: float
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.exponential(2.0, shape) * (rng.random(shape) >= zeros)
    check_table(lambda values: round_table(values, any_total=True), matrix)
    values = matrix.ravel()
    check_line(lambda v, _: round_to_total(v, None), values, round(float(values.sum())))


def test_the_total_of_whole_rows_and_columns_stays_theirs() -> None:
    """Each row is short of an integer by less than the slack, and all together by more."""
    rng = np.random.default_rng(5)
    matrix = sum(np.eye(40)[rng.permutation(40)] for _ in range(3)) * (1 - 9e-7)
    assert 3 * 40 - matrix.sum() > 1e-4
    found = round_table(matrix, any_total=True)
    assert found.sum(axis=0).tolist() == found.sum(axis=1).tolist() == [3] * 40
    with pytest.raises(ValueError, match="no integer"):
        round_table(matrix)


def test_large_and_empty_tables() -> None:
    matrix = np.random.default_rng(3).exponential(1e7, (60, 80))
    matrix *= round(float(matrix.sum())) / matrix.sum()
    found = round_table(matrix)
    assert found.sum() == round(float(matrix.sum()))
    assert np.abs(found.sum(axis=0) - matrix.sum(axis=0)).max() < 1
    assert np.abs(found.sum(axis=1) - matrix.sum(axis=1)).max() < 1
    assert round_table(np.zeros((0, 3))).shape == (0, 3)
    assert round_table(np.zeros((2, 3))).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0.5, 0.6]], "no integer"),
        ([[0.5, -0.5]], r"value at \(0, 1\)"),
        ([[0.5], [math.inf]], r"value at \(1, 0\)"),
        ([0.5, 0.5], "dimension"),
    ],
)
def test_table_refusals(matrix: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        round_table(matrix)  # type: ignore[arg-type]


# --- broken twins -----------------------------------------------------------------


def rounded_one_by_one(values: Floats, total: int) -> NDArray[np.int64]:
    return np.rint(values).astype(np.int64)


def first_cells_go_up(values: Floats, total: int) -> NDArray[np.int64]:
    floors = np.floor(values).astype(np.int64)
    floors[: total - int(floors.sum())] += 1
    return floors


def all_to_the_largest(values: Floats, total: int) -> NDArray[np.int64]:
    floors = np.floor(values).astype(np.int64)
    floors[np.argmax(values)] += total - int(floors.sum())
    return floors


def smallest_remainders(values: Floats, total: int) -> NDArray[np.int64]:
    floors = np.floor(values).astype(np.int64)
    rests = np.where(values > floors, values - floors, 2.0)
    floors[np.argsort(rests, kind="stable")[: total - int(floors.sum())]] += 1
    return floors


LINES = [([1.4, 2.3, 0.3, 3.0], 7), ([2.6, 0.7, 1.7], 5), ([0.2, 0.2, 0.6], 1)]
TWINS = [rounded_one_by_one, first_cells_go_up, all_to_the_largest, smallest_remainders]


@pytest.mark.parametrize("broken", TWINS)
def test_broken_twins_of_the_line_are_caught(
    broken: Callable[[Floats, int], NDArray[np.int64]],
) -> None:
    def run(rounded: Callable[[Floats, int], NDArray[np.int64]]) -> None:
        for values, total in LINES:
            check_line(rounded, np.array(values), total)

    run(round_to_total)
    with pytest.raises(AssertionError):
        run(broken)


def grand_total_alone(matrix: Floats) -> NDArray[np.int64]:
    return round_to_total(matrix.ravel(), round(float(matrix.sum()))).reshape(matrix.shape)


def cells_one_by_one(matrix: Floats) -> NDArray[np.int64]:
    return np.rint(matrix).astype(np.int64)


def first_admissible(matrix: Floats) -> NDArray[np.int64]:
    return admissible_tables(matrix, 1e-9)[0]


TABLE = np.array([[0.9, 0.8, 0.3], [0.7, 0.9, 0.4], [0.4, 0.3, 1.3]])


@pytest.mark.parametrize("broken", [grand_total_alone, cells_one_by_one, first_admissible])
def test_broken_twins_of_the_table_are_caught(
    broken: Callable[[Floats], NDArray[np.int64]],
) -> None:
    check_table(round_table, TABLE)
    with pytest.raises(AssertionError):
        check_table(broken, TABLE)
