"""Structural zeros: which cells are possible, how many, what a config may say of them."""

from __future__ import annotations

import datetime
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.configs.declared_columns import codes_of_range
from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, ZeroPattern, codes_of_values, n_covered
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.synthesis import impossible_records
from statpress.mechanisms.marginals.target_tables import Box

SIZES = {"a": 3, "b": 4, "c": 2}
COLUMNS = tuple(Integer(name=name, lower=0, upper=size - 1) for name, size in SIZES.items())
AGE = Integer(name="age", lower=0, upper=49, width=5, missing=True)
PAY = Numeric(name="pay", edges=Numeric.uniform_edges(0.1, 0.7, 6))
SEX = Categorical(name="sex", categories=("f", "m"), other=True, missing=True)
LEVEL = Categorical(name="level", categories=(1, 2.5))
MONTH = Date(name="month", first=datetime.date(2000, 3, 5), last=datetime.date(2001, 2, 20))


def pattern(**sets: list[int]) -> ZeroPattern:
    return ZeroPattern(tuple((name, tuple((c, c) for c in codes)) for name, codes in sets.items()))


@st.composite
def patterns(draw: st.DrawFn) -> list[ZeroPattern]:
    found = []
    for _ in range(draw(st.integers(0, 4))):
        chosen = draw(st.lists(st.sampled_from(list(SIZES)), min_size=1, unique=True))
        found.append(
            pattern(**{
                name: draw(st.lists(st.integers(0, SIZES[name] - 1), min_size=1, max_size=3))
                for name in chosen
            })
        )  # fmt: skip
    return found


@settings(deadline=None)
@given(patterns(), st.booleans(), st.integers(1, 5))
def test_possible_cells_are_those_in_no_pattern(
    zeros: list[ZeroPattern], absent: bool, chunk: int
) -> None:
    grid = list(itertools.product(*(range(size) for size in SIZES.values())))

    def inside(codes: tuple[int, ...]) -> bool:
        named = dict(zip(SIZES, codes, strict=True))
        return any(
            all(any(f <= named[n] <= last for f, last in runs) for n, runs in zero.sets)
            for zero in zeros
        )

    possible = [i for i, codes in enumerate(grid) if not inside(codes)]
    assert n_covered(zeros, SIZES) == len(grid) - len(possible)
    if not possible:
        with pytest.raises(ConfigError, match="leave 0 of 24"):
            Domain(COLUMNS, tuple(zeros), absent)
        return
    domain = Domain(COLUMNS, tuple(zeros), absent)
    listed = domain.possible_cells(chunk).tolist()
    assert listed == possible + [24] * absent
    assert domain.n_possible == len(listed)
    assert domain.n_listed == len(possible)
    assert domain.is_possible(np.arange(domain.n_cells)).nonzero()[0].tolist() == listed
    for names in (("b",), ("c", "a")):  # what stays is what the fewer columns can tell
        part = domain.project(names)
        assert part.absent == absent
        assert part.zeros == tuple(z for z in domain.zeros if set(z.names) <= set(names))


def test_a_domain_of_any_size_is_counted_without_listing() -> None:
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=2**20 - 1) for i in range(3))
    half = ((0, 2**19 - 1),)
    zeros = (ZeroPattern((("c0", half), ("c1", half))), ZeroPattern((("c1", half), ("c2", half))))
    domain = Domain(columns, zeros, absent=True)
    assert domain.n_possible == 2**60 - 2 * 2**58 + 2**57 + 1
    assert domain.absent_cell == 2**60
    assert domain.is_possible(np.array([0, 2**60 - 1, 2**60])).tolist() == [False, True, True]


def test_the_most_patterns_are_counted_and_one_more_is_refused() -> None:
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=9) for i in range(12))
    zeros = tuple(ZeroPattern(((f"c{i}", ((0, 0),)),)) for i in range(12))
    assert Domain(columns, zeros).n_possible == 9**12
    with pytest.raises(ConfigError, match="More than 12"):
        Domain(columns, (*zeros, zeros[0]))


def test_too_little_of_a_large_domain_is_refused() -> None:
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=2**20 - 1) for i in range(2))
    zero = ZeroPattern((("c0", ((0, 2**20 - 2**13),)),))
    with pytest.raises(ConfigError, match="leave 8,588,886,016 of 1,099,511,627,776"):
        Domain(columns, (zero,))
    small = Integer(name="c0", lower=0, upper=999)
    assert Domain((small,), (ZeroPattern((("c0", ((0, 998),)),)),)).n_possible == 1


@pytest.mark.parametrize("sets", [(), (("a", ()),), (("a", ((-1, 0),)),), (("a", ((2, 3),)),)])
def test_what_is_no_pattern(sets: tuple) -> None:
    with pytest.raises(ConfigError):
        Domain(COLUMNS, (ZeroPattern(sets),))
    with pytest.raises(ConfigError, match="no column 'x'"):
        Domain(COLUMNS, (pattern(x=[0]),))


def test_no_table_has_a_record_in_a_structural_zero() -> None:
    domain = Domain(COLUMNS, (pattern(a=[0], b=[1]),))
    impossible = domain.encode({"a": np.array([0]), "b": np.array([1]), "c": np.array([0])})
    with pytest.raises(ValueError, match="structural zero"):
        ContingencyTable(domain, impossible, np.array([1]))


def test_the_absent_cell_has_no_columns_and_stays_absent() -> None:
    domain = Domain(COLUMNS, absent=True)
    table = ContingencyTable(domain, np.array([0, 9, 24]), np.array([2, 3, 4]))
    with pytest.raises(ValueError, match="absent"):
        domain.decode(table.cells)
    marginal = table.marginal(["c", "a"])
    assert marginal.domain.absent_cell == 6
    assert marginal.n_records == 9
    assert marginal.cells.tolist() == [0, 4, 6]
    assert marginal.counts.tolist() == [2, 3, 4]
    assert marginal.without_absent().cells.tolist() == [0, 4]
    assert table.marginal(["a", "b", "c"]) is table
    only = ContingencyTable(domain, np.array([24]), np.array([5]))
    assert only.marginal(["b"]).cells.tolist() == [4]
    assert only.without_absent().n_records == 0


@pytest.mark.parametrize(
    ("column", "lower", "upper", "runs"),
    [
        (AGE, 0, 14, (0, 2)), (AGE, None, 4, (0, 0)), (AGE, 45, None, (9, 9)),
        (AGE, None, None, (0, 9)), (AGE, 5, 9.0, (1, 1)),
        (PAY, 0.2, 0.4, (1, 2)), (PAY, None, 0.6000000000001, (0, 4)), (PAY, 0.1, 0.7, (0, 5)),
        (MONTH, None, datetime.date(2000, 3, 31), (0, 0)),
        (MONTH, datetime.date(2000, 3, 5), datetime.date(2000, 12, 31), (0, 9)),
        (MONTH, datetime.date(2001, 2, 1), datetime.date(2001, 2, 20), (11, 11)),
    ],
)  # fmt: skip
def test_ranges_of_whole_cells(column: Column, lower, upper, runs: tuple[int, int]) -> None:
    assert codes_of_range(column, lower, upper) == (runs,)


@pytest.mark.parametrize(
    ("column", "lower", "upper"),
    [
        (AGE, 0, 13), (AGE, 1, 14), (AGE, 15, 9), (AGE, -5, 4), (AGE, 45, 54), (AGE, 0, 4.5),
        (AGE, 10, 9), (AGE, datetime.date(2000, 1, 1), None), (AGE, 10**400, None),
        (PAY, 0.25, 0.4), (PAY, 0.4, 0.4), (PAY, 0.5, 0.2), (PAY, 0, 0.4), (PAY, 10**400, None),
        (MONTH, datetime.date(2000, 3, 6), None), (MONTH, None, datetime.date(2001, 3, 31)),
        (MONTH, None, datetime.date(2000, 12, 30)), (MONTH, 3, None), (SEX, None, None),
    ],
)  # fmt: skip
def test_ranges_that_cut_a_cell_or_are_none(column: Column, lower, upper) -> None:
    with pytest.raises(ConfigError) as caught:
        codes_of_range(column, lower, upper)
    assert caught.value.where == column.name


def test_values_as_the_column_declares_them() -> None:
    assert codes_of_values(SEX, ["m", "other", None]) == ((1, 1), (2, 2), (3, 3))
    assert codes_of_values(LEVEL, [2.5, 1]) == ((1, 1), (0, 0))
    assert codes_of_values(AGE, [None]) == ((10, 10),)
    assert ZeroPattern((("sex", codes_of_values(SEX, ["m", "f", None])),)).sets == (
        ("sex", ((0, 1), (3, 3))),
    )
    for column, value in (
        (SEX, "x"), (SEX, 1), (LEVEL, True), (LEVEL, None), (LEVEL, "other"), (LEVEL, math.inf),
        (AGE, 5), (PAY, None), (MONTH, "2000-03"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            codes_of_values(column, [value])
        assert caught.value.where == column.name


def test_many_boxes_at_once_find_the_records_that_one_after_the_other_do() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        sizes = rng.integers(2, 6, 5)
        boxes = []
        for _ in range(rng.integers(0, 20)):
            columns = tuple(sorted(rng.choice(5, rng.integers(1, 4), replace=False).tolist()))
            inside = tuple(rng.random(sizes[column]) < 0.5 for column in columns)
            boxes.append(Box(columns, inside, implied=bool(rng.random() < 0.2)))
        codes = np.stack([rng.integers(0, size, 50) for size in sizes], axis=1).astype(np.uint8)
        found = np.zeros(50, dtype=np.bool_)
        for box in boxes:
            if not box.implied:
                found |= box.contains(codes)
        assert np.array_equal(impossible_records(codes, boxes), found)
