"""Special values: cells of their own in columns of ranges, wherever columns are read."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from statpress.configs.declared_columns import codes_of_range
from statpress.configs.descriptions.ddi import from_ddi
from statpress.configs.descriptions.description_files import from_column_list
from statpress.configs.descriptions.drafting import Frame, draft
from statpress.configs.loading import load
from statpress.mechanisms.domain.column import MOST_SPECIAL, Ranges
from statpress.mechanisms.domain.columns import Column, Date, Integer, Numeric, labels
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, codes_of_values
from statpress.mechanisms.errors import ConfigError, DescriptionError, EdgesError
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.exact_values import exact_values
from statpress.mechanisms.estimates.noisy_quantile import OrderedCells
from statpress.mechanisms.functions.learner import Axis
from statpress.mechanisms.marginals.denoising import _similarity
from statpress.tasks.bundle.rows import _gather, coder_of
from statpress.tasks.bundle.stat_tables import _is_day, _value_labels
from statpress.tasks.catalogues.data_package import column_facts
from statpress.tasks.catalogues.sdmx import Dimension
from statpress.tasks.products.distributions import Distribution, cell_names, distribution_chart
from statpress.tasks.products.publication import column_from, describe_column
from statpress.tasks.release.steps import form_of

PAY = Numeric(name="pay", edges=(0, 10, 20, 40), special=(99999, 0, 7, 20, -1), missing=True)
AGE = Integer(name="age", lower=0, upper=29, width=10, special=(18, 999))
START = Date(
    name="start",
    first=datetime.date(2000, 1, 1),
    last=datetime.date(2000, 3, 31),
    special=(datetime.date(1900, 1, 1), datetime.date(2000, 2, 3), datetime.date(2000, 2, 28)),
)
COLUMNS = (PAY, AGE, START)


def test_cells_stand_in_the_order_of_their_values() -> None:
    assert labels(PAY) == ["-1", "0", "5", "7", "15", "20", "30", "99999", None]
    assert labels(AGE) == ["4.5", "14.5", "18", "24.5", "999"]
    assert labels(START) == [
        "1900-01-01", "2000-01", "2000-02-03", "2000-02", "2000-02-28", "2000-03"
    ]  # fmt: skip


def test_the_bins_keep_all_other_values() -> None:
    written = {-5: "5", 0.0: "0", 1e-300: "5", 7: "7", 7.001: "5", 9.99: "5"}
    written |= {19.99: "15", 20: "20", 20.001: "30", 40: "30", 99998: "30", 99999: "99999"}
    assert {v: labels(PAY)[PAY.code_of(v)] for v in written} == written
    assert PAY.code_of(math.nan) == PAY.missing_code
    whole = {-1: "4.5", 17: "14.5", 18: "18", 18.5: "14.5", 19: "14.5", 998: "24.5", 999: "999"}
    assert {v: labels(AGE)[AGE.code_of(v)] for v in whole} == whole


@pytest.mark.parametrize(
    ("column", "special", "message"),
    [
        (PAY, (5.0,), "the cell that holds it is written 5 too"),
        (PAY, (math.inf,), "not a finite number"),
        (PAY, ("0",), "is not a number"),
        (PAY, (3, 3.0), "given twice"),
        (PAY, tuple(map(float, range(100, 101 + MOST_SPECIAL))), "at most 100"),
        (AGE, (1.5,), "not a whole number"),
        (dataclasses.replace(AGE, special=(), width=1), (3,), "is written 3 too"),
        (dataclasses.replace(AGE, special=(), width=2), (4, 5), "All values of the cell"),
        (dataclasses.replace(AGE, special=(), width=3), (4,), "is written 4 too"),
        (START, (datetime.datetime(2000, 1, 1),), "is not a date"),
        (
            dataclasses.replace(START, special=(), by="day"),
            (datetime.date(2000, 1, 2),),
            "is written 2000-01-02 too",
        ),
    ],
)
def test_values_that_cannot_have_a_cell_are_refused(
    column: Column, special: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(EdgesError, match=message) as caught:
        dataclasses.replace(column, special=special)  # type: ignore[call-arg]
    assert caught.value.where == column.name


def test_cells_of_one_value_take_special_values_outside_the_range() -> None:
    column = Integer(name="kids", lower=0, upper=3, special=(-1, 99))
    assert column.decode(np.arange(6)).tolist() == [-1, 0, 1, 2, 3, 99]
    assert [column.code_of(v) for v in (-2, -1, 3, 5, 99)] == [1, 0, 4, 4, 5]
    assert column.ends is None


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_description_and_a_file_give_the_same_codes_back(column: Column) -> None:
    stated = describe_column(column)
    assert column_from(stated) == column
    plain = dataclasses.replace(column, special=())  # type: ignore[call-arg]
    assert "special" not in describe_column(plain)
    codes = np.arange(column.size)
    assert coder_of(column)(_gather(column)(codes)).tolist() == codes.tolist()


def test_a_range_holds_the_special_values_within_it() -> None:
    def within(column: Column, lower: Any, upper: Any) -> list[str | None]:
        ((first, last),) = codes_of_range(column, lower, upper)
        return labels(column)[first : last + 1]

    assert within(PAY, 0, 10) == ["0", "5", "7"]
    assert within(PAY, 10, 20) == ["15"]
    assert within(PAY, 20, 40) == ["20", "30"]
    assert within(PAY, None, 10) == ["-1", "0", "5", "7"]
    assert within(PAY, 10, None) == ["15", "20", "30", "99999"]
    assert within(AGE, 10, 19) == ["14.5", "18"]
    assert within(START, datetime.date(2000, 2, 1), None) == labels(START)[2:]
    assert codes_of_values(PAY, [0, None]) == ((1, 1), (8, 8))
    with pytest.raises(ConfigError, match="but for those that it declares as special"):
        codes_of_values(PAY, [5])


def estimand(statistic: str, column: Column, **knobs: Any) -> Estimand:
    return Estimand.resolve(EstimandKnobs(statistic=statistic, **knobs), Domain((column,)))


def exact(table: ContingencyTable, **knobs: Any) -> float:
    """The statistic of the records in their own units."""
    found = Estimand.resolve(EstimandKnobs(**knobs), table.domain)
    scales = found.terms(table.n_records, found.spans).scales
    (value,) = exact_values(found.knobs, table, scales)
    return value


def test_statistics_take_amounts_and_leave_out_codes() -> None:
    values = [-1, 0, 0, 5, 7, 20, 30, 99999, None]
    domain = Domain((PAY,))
    cells = np.unique([PAY.code_of(v) for v in values], return_counts=True)
    table = ContingencyTable(domain, *cells)
    amounts = [0, 0, 5, 7, 20, 30]
    mean = exact(table, statistic="mean")
    assert mean == pytest.approx(sum(amounts) / len(amounts))
    assert exact(table, statistic="median") == 5
    share = exact(table, statistic="proportion", values=(0,))
    assert share == pytest.approx(2 / 9)
    with pytest.raises(ConfigError, match="the special value 999 lies outside its range"):
        estimand("variance", AGE)
    inside = dataclasses.replace(AGE, special=(18,))
    assert not estimand("variance", inside).kept
    with pytest.raises(ConfigError, match="999 lies outside the range of 'age'"):
        Axis.of(AGE)
    assert Axis.of(inside).middles == pytest.approx([m / 29 for m in (4.5, 14.5, 18, 24.5)])


def values_missed(cells: OrderedCells, column: Ranges) -> int:
    """How many quantiles by value lie outside of what their cell stands for."""
    values, missed = [1.0, 3.0, 7.0, 8.0, 12.0], 0
    for records in itertools.combinations_with_replacement(values, 4):
        counts = np.zeros(column.size, np.int64)
        np.add.at(counts, [column.code_of(v) for v in records], 1)
        reached = np.cumsum(counts[cells.codes])
        for k, true in enumerate(sorted(records), start=1):
            cell = int(np.searchsorted(reached, k))
            missed += not cells.first[cell] <= true <= cells.last[cell]
    return missed


def test_a_quantile_by_cells_bounds_that_by_value() -> None:
    column = Numeric(name="x", edges=(0, 10, 20), special=(3, 7, 12))
    cells = OrderedCells.of(column)
    assert list(cells.first) == sorted(cells.first)
    assert list(cells.last) == sorted(cells.last)
    assert values_missed(cells, column) == 0
    by_themselves = cells._replace(
        first=np.where(column.is_special(cells.codes), cells.middle, cells.first),
        last=np.where(column.is_special(cells.codes), cells.middle, cells.last),
    )
    assert values_missed(by_themselves, column) > 0


def test_a_special_value_is_like_none_of_its_neighbours() -> None:
    column = Numeric(name="x", edges=(0, 1, 2, 3, 4), special=(0, 2))
    found = _similarity(column, 0.3)
    own = column.is_special(np.arange(6))
    assert np.array_equal(found[own], np.eye(6)[own])
    plain = _similarity(dataclasses.replace(column, special=()), 0.3)
    assert np.array_equal(found[np.ix_(~own, ~own)], plain)


def test_pages_name_special_values_with_their_labels() -> None:
    field = {
        "name": "pay",
        "special": [{"value": v, "label": f"L{v}"} for v in (-1, 0, 7, 20, 99999)],
    }
    assert cell_names(PAY, field) == [
        "-1 (L-1)", "0 (L0)", "0 to 10", "7 (L7)", "10 to 20", "20 (L20)", "20 to 40",
        "99999 (L99999)", "missing",
    ]  # fmt: skip
    fine = Numeric(name="pay", edges=tuple(range(31)), special=(0, 99999), missing=True)
    counts = np.arange(fine.size, dtype=np.float64)
    chart = distribution_chart(Distribution(fine, field | {"special": []}, counts, None), 100)
    (line,) = chart.drawing.lines  # type: ignore[union-attr]
    assert line.y[:30] == counts[1:31].tolist()
    assert "Not drawn: 0 0, 99999 31, missing 32." in chart.note


def test_the_codebook_tells_them() -> None:
    field = {"name": "pay", "type": "number", "declared": describe_column(PAY)}
    package: dict[str, Any] = {"columns": [field], "resources": []}
    (facts,) = column_facts(package)
    assert facts.cells.endswith("each of the special values -1, 0, 7, 20, 99999")
    assert facts.outside.endswith("means and quantiles leave out those outside the range.")
    assert facts.categories == ()
    field["special"] = [{"value": 0.0, "label": "no pay"}]
    (facts,) = column_facts(package)
    assert ("0", "no pay") in facts.categories
    assert ("7", "") in facts.categories


def test_other_formats_name_them() -> None:
    special = [{"value": 0.0, "label": "no pay"}, {"value": 99999.0, "label": "not stated"}]
    assert _value_labels({"special": special}) == {0: "no pay", 99999: "not stated"}
    days = {"declared": {"by": "day", "first": "2000-01-01", "special": ["1500-01-01"]}}
    earliest = [SimpleNamespace(first_day=datetime.date(year, 1, 1)) for year in (1500, 1582)]
    assert [_is_day(days, package) for package in earliest] == [True, False]
    names = dict(Dimension("PAY", PAY, "Pay", ()).codes.values())
    assert (names["0"], names["5"], names["99999"]) == ("0", "0 to 10", "99999")


CONFIG = """\
title: Test
dataset: test
source: {path: source.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  pay: {type: numeric, lower: 0, upper: 200000, bins: 50, special: [99999, 0]}
  born: {type: date, first: 1950-01-01, last: 2000-12-31, by: year, special: [1900-01-01]}
structural_zeros:
  - {pay: [0], born: {upper: 1959-12-31}}
products:
  all: {kind: microdata, mechanism: bootstrap, columns: [pay, born]}
publish: {directory: releases, formats: [parquet]}
"""


def loaded(folder: Path, old: str = "", new: str = "") -> Any:
    path = folder / "release.yaml"
    assert old in CONFIG
    path.write_text(CONFIG.replace(old, new, 1))
    return load(path)


def test_a_config_declares_them(tmp_path: Path) -> None:
    release = loaded(tmp_path, "0]}", "0], value_labels: [not stated, none]}")
    pay, born = release.domain.columns
    assert (pay.special, born.special) == ((0.0, 99999.0), (datetime.date(1900, 1, 1),))
    (zero,) = release.domain.zeros
    assert dict(zero.sets) == {"pay": ((0, 0),), "born": ((0, 10),)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0]}", "0], value_labels: [none]}", "1 value_labels for 2 special values"),
        ("99999, 0]", "]", "at least 1"),
        ("99999, 0]", "no pay]", "must be a finite number"),
        ("99999, 0]", "2000, 0]", "2000 cannot have a cell of its own"),
    ],
)
def test_a_config_is_refused_at_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises((ConfigError, EdgesError), match=message) as caught:
        loaded(tmp_path, old, new)
    assert "release.yaml:7" in caught.value.where


PRODUCT = "{kind: microdata, mechanism: bootstrap, columns: [pay, born]}"
SMOOTH = "{kind: microdata, mechanism: density, estimator: kde, columns: [pay]}"
BANDS = "{kind: table, mechanism: laplace, columns: [pay], bands: [cumulative]}"
CURVE = "{kind: function, target: regression, columns: [pay], response: kids}"
KIDS = "structural_zeros:", "  kids: {type: integer, lower: 0, upper: 5}\nstructural_zeros:"


@pytest.mark.parametrize(
    ("product", "message", "fitting"),
    [
        (SMOOTH, "spreads records over neighbouring cells", SMOOTH.replace("estimator: kde, ", "")),
        (BANDS, "special value 99999 lies inside a cell", BANDS.replace("cumulative", "cells")),
        (CURVE, "no default for 'widest_gap'", CURVE.replace("}", ", widest_gap: 0.02}")),
    ],
)
def test_what_goes_by_even_cells_is_refused(
    tmp_path: Path, product: str, message: str, fitting: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(tmp_path, product)
    assert planned(tmp_path, fitting).products


def planned(folder: Path, product: str) -> Any:
    path = folder / "release.yaml"
    path.write_text(CONFIG.replace(PRODUCT, f"{product}").replace(*KIDS))
    return load(path).plan()


def test_a_special_day_has_to_be_written_in_the_source(tmp_path: Path) -> None:
    years = 'source: {path: source.csv, date_format: "%Y"}'
    with pytest.raises(ConfigError, match="does not say the day"):
        loaded(tmp_path, "source: {path: source.parquet}", years)
    path = tmp_path / "release.yaml"
    path.write_text(path.read_text().replace(", special: [1900-01-01]", ""))
    assert load(path).domain["born"].size == 51


LIST = """\
name;type;special;value_labels;lower;upper;width;bins
pay;numeric;0|99999|250;none|not stated|half;0;10000;;20
age;integer;5|999;;0;99;;
late;integer;1.5;;0;99;;
"""
CODEBOOK = b"""\
<codeBook xmlns="ddi:codebook:2_5"><dataDscr>
 <var name="pay" intrvl="contin"><valrng><range min="0" max="20000"/></valrng>
  <catgry><catValu>0</catValu><labl>no earnings</labl></catgry>
  <catgry><catValu>1200</catValu><catStat type="freq">7</catStat></catgry>
  <catgry missing="Y"><catValu>99999</catValu><labl>refused</labl></catgry></var>
</dataDscr></codeBook>
"""


def test_a_public_description_proposes_them() -> None:
    text = draft(from_column_list("\n".join(LIST.splitlines()[:3]), "list.csv"), Frame())[0]
    assert "special: [0, 99999]" in text  # 250 is the middle of a bin
    assert "value_labels: [none, not stated]" in text
    assert "special: [999]" in text  # 5 has a cell of its own
    with pytest.raises(DescriptionError, match="special value is not one of the column's type"):
        from_column_list(LIST, "list.csv")
    text = draft(from_ddi(CODEBOOK, "study.xml", None), Frame())[0]
    assert "special: [0]" in text  # labelled, and not called missing
    assert "value_labels: [no earnings]" in text


def test_the_form_of_reading_changes_with_them_only(tmp_path: Path) -> None:
    """The hash of a config without them is that of earlier versions, which ledgers hold."""
    path, forms = tmp_path / "release.yaml", set()
    for new in ("special: [99999, 0]", "special: [0, 99999]", "special: [0]", "label: Pay"):
        text = CONFIG.replace("special: [99999, 0]", new).replace(
            "  - {pay: [0], born", "  - {born"
        )
        path.write_text(text)
        forms.add(form_of(load(path)))
    assert len(forms) == 3
    plain = Integer(name="age", lower=0, upper=29, width=10)
    assert repr(plain) == "Integer(name='age', missing=False, lower=0, upper=29, width=10)"
