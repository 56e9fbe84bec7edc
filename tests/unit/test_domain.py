"""Columns and domains: total functions, mixed radix, refusals."""

import dataclasses
import datetime
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import (
    Categorical,
    Column,
    Date,
    Integer,
    Numeric,
    Ordinal,
    labels,
)
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain
from statpress.mechanisms.errors import (
    ConfigError,
    DomainTooLargeError,
    DuplicateColumnError,
    EdgesError,
)
from statpress.tasks.products.distributions import cell_names
from statpress.tasks.products.publication import column_from, describe_column

AGE = Integer(name="age", lower=0, upper=49, width=5)
PAY = Numeric(name="pay", edges=(0.0, 1.0, 2.5, 4.0), missing=True)
SEX = Categorical(name="sex", categories=("f", "m"), other=True, missing=True)
DAY = Date(name="day", first=datetime.date(2000, 3, 1), last=datetime.date(2001, 2, 28))


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (AGE, -3, 0), (AGE, 4.99, 0), (AGE, 5, 1), (AGE, 1e300, 9), (AGE, -math.inf, 0),
        (AGE, None, 0), (AGE, math.nan, 0), (AGE, -0.0, 0), (AGE, 49, 9), (AGE, 50, 9),
        (PAY, 0.0, 0), (PAY, -0.0, 0), (PAY, 1.0, 1), (PAY, math.nextafter(1.0, 0), 0),
        (PAY, 4.0, 2), (PAY, math.inf, 2), (PAY, -math.inf, 0), (PAY, None, 3),
        (PAY, math.nan, 3),
        (SEX, "f", 0), (SEX, "x", 2), (SEX, None, 3), (SEX, 1, 2), (SEX, True, 2),
        (DAY, datetime.date(1990, 1, 1), 0), (DAY, datetime.date(2000, 12, 31), 9),
        (DAY, datetime.datetime(2001, 1, 1, 5), 10), (DAY, datetime.date(2030, 1, 1), 11),
        (DAY, None, 0),
    ],
)  # fmt: skip
def test_every_value_has_a_code(column: Column, value: Any, code: int) -> None:
    assert column.code_of(value) == code


def test_values_without_a_bucket_still_have_a_code() -> None:
    bare = Categorical(name="a", categories=("x", "y"))
    only_missing = Categorical(name="a", categories=("x", "y"), missing=True)
    only_other = Categorical(name="a", categories=("x", "y"), other=True)
    assert [bare.code_of(v) for v in ("z", None)] == [0, 0]
    assert [only_missing.code_of(v) for v in ("z", None)] == [2, 2]
    assert [only_other.code_of(v) for v in ("z", None)] == [2, 2]


def test_numbers_and_booleans_are_not_the_same_category() -> None:
    numbers = Ordinal(name="n", categories=(0, 1, 2), other=True)
    assert [numbers.code_of(v) for v in (1, 1.0, True, "1")] == [1, 1, 3, 3]


@pytest.mark.parametrize("bins", [1, 3, 20, 1000])
def test_uniform_edges_tile_and_are_nearest(bins: int) -> None:
    edges = Numeric.uniform_edges(4, 9, bins)
    assert edges[0] == 4.0
    assert edges[-1] == 9.0
    assert all(a < b for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize(
    "edges", [(), (1.0,), (1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1)]
)
def test_bad_edges(edges: tuple[float, ...]) -> None:
    with pytest.raises(EdgesError):
        Numeric(name="x", edges=edges)


def test_too_many_bins_for_doubles() -> None:
    with pytest.raises(EdgesError):
        Numeric(name="x", edges=Numeric.uniform_edges(1.0, math.nextafter(1.0, 2), 10))


@pytest.mark.parametrize(
    "arguments", [{"upper": 48}, {"lower": 60}, {"width": 0}, {"upper": 2**60}, {"width": -5}]
)
def test_bad_integer_ranges(arguments: dict[str, int]) -> None:
    with pytest.raises(EdgesError):
        Integer(**{"name": "a", "lower": 0, "upper": 49, "width": 5} | arguments)


@pytest.mark.parametrize(
    ("lower", "upper", "uppers"), [(0, 500, (499, 509)), (-3, 5, (6,)), (1, 19, (10, 20))]
)
def test_the_uppers_that_an_integer_is_told_to_have_tile_it(
    lower: int, upper: int, uppers: tuple[int, ...]
) -> None:
    with pytest.raises(EdgesError) as caught:
        Integer(name="a", lower=lower, upper=upper, width=10)
    assert caught.value.what.endswith(f"give upper {' or '.join(map(str, uppers))}.")
    assert "bins" not in str(caught.value) and "edges" not in str(caught.value)
    for each in uppers:
        Integer(name="a", lower=lower, upper=each, width=10)


@pytest.mark.parametrize(
    "categories",
    [(), ("a", "a"), ("a", 1), (1, True), (math.nan,), ("a", "other")],
)
def test_bad_categories(categories: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError):
        Categorical(name="a", categories=categories, other=True)


def test_bad_dates() -> None:
    with pytest.raises(EdgesError):
        Date(name="d", first=datetime.date(2001, 1, 1), last=datetime.date(2000, 1, 1))
    with pytest.raises(ConfigError):
        Date(name="d", first=DAY.first, last=DAY.last, by="week")  # type: ignore[arg-type]


def test_decode_gives_public_values() -> None:
    assert AGE.decode(np.array([0, 9])).tolist() == [2.0, 47.0]
    assert Integer(name="a", lower=3, upper=5).decode(np.array([0, 2])).tolist() == [3, 5]
    assert PAY.decode(np.array([0, 1, 2])).tolist() == [0.5, 1.75, 3.25]
    assert PAY.is_missing(np.array([0, 3])).tolist() == [False, True]
    assert SEX.decode(np.array([0, 1, 2])).tolist() == ["f", "m", "other"]
    assert DAY.decode(np.array([0, 10])).tolist() == ["2000-03", "2001-01"]
    yearly = Date(name="d", first=DAY.first, last=DAY.last, by="year")
    daily = Date(name="d", first=DAY.first, last=DAY.last, by="day")
    assert yearly.decode(np.array([0, 1])).tolist() == ["2000", "2001"]
    assert daily.decode(np.array([0, 364])).tolist() == ["2000-03-01", "2001-02-28"]


@given(st.data())
def test_mixed_radix_round_trip(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 2**15), min_size=1, max_size=4))
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=s - 1) for i, s in enumerate(sizes))
    domain = Domain(columns)
    record = {f"c{i}": data.draw(st.integers(0, s - 1)) for i, s in enumerate(sizes)}
    cell = domain.cell_of(record)
    assert 0 <= cell < domain.n_cells
    decoded = domain.decode(np.array([cell]))
    assert {name: int(values[0]) for name, values in decoded.items()} == record
    codes = {name: domain.codes(np.array([cell]), name) for name in domain.names}
    assert domain.encode(codes).tolist() == [cell]


def test_largest_domain_and_one_more() -> None:
    factors = (7, 7, 73, 127, 337, 92737, 649657)  # 2**63 - 1
    columns = tuple(Integer(name=f"c{i}", lower=1, upper=f) for i, f in enumerate(factors))
    domain = Domain(columns)
    assert domain.n_cells == MAX_CELLS
    last = np.array([MAX_CELLS - 1])
    assert [int(v[0]) for v in domain.decode(last).values()] == list(factors)
    domain.check_joint()
    wide = Domain((*columns, Integer(name="one_more", lower=0, upper=1)))
    assert (wide.n_cells, wide.n_possible) == (2 * MAX_CELLS, 2 * MAX_CELLS)
    nothing = np.array([], dtype=np.int64)
    for act in (
        wide.check_joint,
        lambda: ContingencyTable(wide, nothing, nothing),
        lambda: wide.encode({name: np.array([0]) for name in wide.names}),
        lambda: wide.codes(np.array([0]), "c0"),
    ):
        with pytest.raises(DomainTooLargeError, match="c0 7, c1 7") as caught:
            act()
        assert "one_more 2" in str(caught.value)
    assert wide.project(domain.names) == domain


def test_a_domain_whose_cells_cannot_be_written_down() -> None:
    columns = [Integer(name=f"c{i}", lower=0, upper=2**53) for i in range(189)]
    assert Domain(tuple(columns[:188])).n_cells.bit_length() == 188 * 53 + 1
    with pytest.raises(DomainTooLargeError, match="10000"):
        Domain(tuple(columns))


def test_columns_are_named_once() -> None:
    with pytest.raises(DuplicateColumnError, match="age"):
        Domain((AGE, AGE))


def test_table_refuses_what_is_no_table() -> None:
    domain = Domain((AGE,))
    good = ContingencyTable(domain, np.array([1, 4]), np.array([2, 3]))
    assert good.n_records == 5
    assert "2" not in repr(good)
    for cells, counts in (
        ([4, 1], [1, 1]), ([1, 1], [1, 1]), ([-1], [1]), ([10], [1]), ([1], [0]),
        ([1, 2], [1]), ([1.0], [1]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"cell|count"):
            ContingencyTable(domain, np.array(cells), np.array(counts))
    with pytest.raises(ValueError, match="read-only"):
        good.counts[0] = 7


def test_marginal_adds_up() -> None:
    domain = Domain((AGE, PAY, SEX))
    cells = np.array([domain.cell_of({"age": a, "pay": 1, "sex": s}) for a in (1, 7) for s in "fm"])
    table = ContingencyTable.from_cells(domain, cells, np.array([1, 2, 3, 4]))
    marginal = table.marginal(["sex", "age"])
    decoded = marginal.domain.decode(marginal.cells)
    assert dict(
        zip(zip(decoded["sex"], decoded["age"], strict=True), marginal.counts, strict=True)
    ) == {("f", 2.0): 1, ("f", 7.0): 3, ("m", 2.0): 2, ("m", 7.0): 4}
    assert table.marginal(domain.names) is table


def test_a_cell_of_whole_numbers_counts_as_their_mean() -> None:
    """One that holds a single number is that number; the last holds its upper edge."""
    visits = Numeric(name="visits", edges=(0, 1, 2, 5, 8.5), whole=True, missing=True)
    assert labels(visits) == ["0", "1", "3", "6.5", None]
    assert labels(Numeric(name="visits", edges=(0, 1, 2, 5, 8.5), missing=True))[1] == "1.5"
    assert labels(Numeric(name="x", edges=(-0.5, 0.5, 2), whole=True)) == ["0", "1.5"]
    for code, own in ((0, [0]), (1, [1]), (2, [2, 3, 4]), (3, [5, 6, 7, 8])):
        assert [visits.code_of(value) for value in own] == [code] * len(own)
        drawn = visits.spread(np.full(999, code), np.linspace(0, 1, 999, endpoint=False))
        assert sorted({*drawn.tolist()}) == own
        assert visits.decode(np.array([code]))[0] == np.mean(own)
        assert [each[0] for each in visits.limits_of(np.array([code]))] == [own[0], own[-1]]


def test_cells_of_single_whole_numbers_are_not_spread() -> None:
    single = Numeric(name="visits", edges=(0, 1, 2, 2.5), whole=True)
    assert single.ends is None
    assert single.spread(np.arange(3), np.full(3, 0.9)).tolist() == [0, 1, 2]
    assert Numeric(name="visits", edges=(0, 1, 2, 3), whole=True).ends == (0, 3)


def test_special_values_of_whole_numbers_leave_the_others_of_their_cell() -> None:
    visits = Numeric(name="visits", edges=(0, 1, 5), whole=True, special=(1, 99))
    assert labels(visits) == ["0", "1", "3", "99"]
    assert {*visits.spread(np.full(99, 2), np.linspace(0, 0.99, 99)).tolist()} == {2, 3, 4, 5}


def test_whole_numbers_are_described_and_rebuilt() -> None:
    """Other numbers are described as earlier versions did, which read them."""
    visits = Numeric(name="visits", edges=(0.0, 1.0, 5.0), whole=True)
    assert column_from(json.loads(json.dumps(describe_column(visits)))) == visits
    assert "whole" not in describe_column(dataclasses.replace(visits, whole=False))
    assert cell_names(visits, {}) == ["0", "1 to 5"]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"edges": (0, 0.2, 0.8)}, "No whole number lies in the cell from 0.2 to 0.8"),
        ({"edges": (0, 1, 3), "special": (1.5,)}, "1.5 is not a whole number"),
        ({"edges": (0, 1, 2, 4), "special": (1,)}, "cannot have a cell of its own"),
        ({"edges": (0, 2**60)}, "within"),
    ],
)
def test_whole_numbers_that_cannot_be_are_refused(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(EdgesError, match=words):
        Numeric(name="visits", whole=True, **knobs)
