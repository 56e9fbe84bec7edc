"""Conditions of questions to a bundle, as a command line has them, and the values they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statpress.flows.cli.bundle_commands import conditions_of, query
from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Numeric
from statpress.mechanisms.errors import QueryError
from statpress.tasks.products.answer_words import MISSING, named_cells
from statpress.tasks.release.query import Measured, _chosen, _codes, _values

WORK = Categorical(
    name="work",
    categories=("works", "unempl, laid off", "unempl", "a=b"),
    other=True,
    missing=True,
)
AGE = Integer(name="age", lower=0, upper=39, width=10)


def named(column: Column, condition: str) -> tuple[str, ...]:
    (values,) = conditions_of([condition]).values()
    return _values(column, values)


def test_cells_are_named_as_the_files_have_them() -> None:
    assert named_cells(WORK) == ["works", "unempl, laid off", "unempl", "a=b", "other", MISSING]
    assert named_cells(AGE) == ["4.5", "14.5", "24.5", "34.5"]
    assert named_cells(Numeric(name="pay", edges=(0.0, 20.0, 25.0))) == ["10", "22.5"]


def test_a_condition_names_a_column_and_values() -> None:
    assert conditions_of([]) == {}
    assert conditions_of(["work=works", "age=4.5,14.5"]) == {
        "work": ("works",),
        "age": ("4.5", "14.5"),
    }


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("works", ("works",)),
        ("works,missing", ("works", MISSING)),
        ("unempl, laid off", ("unempl, laid off",)),
        ("unempl, laid off,works", ("unempl, laid off", "works")),
        ("works,unempl, laid off,other", ("works", "unempl, laid off", "other")),
        ("unempl,works", ("unempl", "works")),
        ("a=b,works", ("a=b", "works")),
        ("works,works", ("works",)),
    ],
)
def test_values_with_commas_are_found_among_several(written: str, values: tuple[str, ...]) -> None:
    assert named(WORK, f"work={written}") == values
    assert [named_cells(WORK)[code] for code in _codes(WORK, values)] == sorted(
        values, key=named_cells(WORK).index
    )


@pytest.mark.parametrize("written", ["idle", "works,idle", "laid off", "works,", ",works", "Works"])
def test_a_value_that_is_not_there_is_refused_with_those_that_are(written: str) -> None:
    with pytest.raises(QueryError, match="The column 'work' has no cell '") as caught:
        named(WORK, f"work={written}")
    assert "unempl, laid off" in caught.value.next_step


def test_of_many_cells_some_are_named() -> None:
    with pytest.raises(QueryError) as caught:
        named(Integer(name="n", lower=0, upper=99), "n=x")
    assert caught.value.next_step.endswith("18, 19, ....")


@pytest.mark.parametrize("written", ["work", "=works", "work=", ""])
def test_other_forms_are_refused(written: str) -> None:
    with pytest.raises(QueryError, match="is not a condition"):
        conditions_of([written])


def test_a_column_has_one_condition() -> None:
    with pytest.raises(QueryError, match="'work' has two conditions"):
        conditions_of(["work=works", "work=unempl"])


@pytest.mark.parametrize("asked", ["age", "age=", "age=x", "=0.9"])
def test_a_quantile_is_of_a_column_and_has_a_share(asked: str) -> None:
    with pytest.raises(QueryError, match=f"'{asked}' is not a column with a share"):
        query("a bundle", quantile=asked)


def test_a_value_with_a_comma_is_one_value_of_a_difference() -> None:
    (values,) = conditions_of(["work=works,unempl, laid off"]).values()
    assert _values(WORK, values) == ("works", "unempl, laid off")


def test_a_table_of_the_release_is_named_to_whoever_asks_for_its_columns(tmp_path: Path) -> None:
    """It answers no questions, and a reader need not wait for another release."""
    (tmp_path / "data").mkdir()
    for name in ("cross.parquet", "other.csv", "mean.parquet"):
        (tmp_path / "data" / name).touch()
    kinds = {"cross": "table", "other": "table", "mean": "estimate", "withheld": "table"}
    columns = {"other": ["a", "c"]}
    stated = {
        name: {"kind": kind, "columns": columns.get(name, ["a", "b"])}
        for name, kind in kinds.items()
    }
    (tmp_path / "privacy.json").write_text(json.dumps({"products": stated}))
    none: Any = None
    asked = Measured(tmp_path, "people", {}, none, 1, none, "data/people_pairs.parquet")
    assert asked._elsewhere(["b", "a"]) == "They are in data/cross.parquet, with standard errors. "
    assert asked._elsewhere(["a", "d"]) == ""
    tables = {name for name, kind in kinds.items() if kind == "table"}
    for wanted, own in (("cross", "cross.parquet"), ("mean", ""), ("withheld", "")):
        with pytest.raises(QueryError) as refused:
            _chosen(wanted, ["people"], tables, tmp_path)
        assert (f"in data/{own}. " in refused.value.next_step) == bool(own)
        assert refused.value.next_step.endswith("Products that can, by --product: people.")
