"""What files of Stata and SPSS and tables in SDMX cannot hold is refused with the config."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from statpress.configs.formats import fault_of, stored_name
from statpress.configs.loading import load
from statpress.flows.cli.release_commands import plan_or_faults
from statpress.mechanisms.errors import ConfigError, DependencyError
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.tasks.bundle.rows import value_rows, write_rows
from statpress.tasks.catalogues import sdmx as sdmx_identifiers
from statpress.tasks.catalogues.sdmx import Table, measure_in_words

CONFIG = """\
title: Exports
dataset: exports
source: {path: source.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  a b: {type: categorical, categories: [x, y]}
  A_b: {type: integer, lower: 0, upper: 9}
  Raw: {type: integer, lower: 0, upper: 9}
  text: {type: categorical, categories: ["", "1 "]}
  huge: {type: numeric, edges: [0, 1.0e+308]}
products:
  one: {kind: table, mechanism: laplace, accept: mostly_noise, columns: [COLUMNS]}
publish: {directory: releases, formats: [FORMATS]}
"""


@pytest.fixture
def extras(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Extras that are to be had, whatever is installed."""
    there = {"pyreadstat", "pysdmx"}
    honest = importlib.util.find_spec

    def find(name: str, *arguments: Any) -> Any:
        if name in ("pyreadstat", "pysdmx"):
            return object() if name in there else None
        return honest(name, *arguments)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    return there


def loaded(folder: Path, columns: str, formats: str, **changes: str) -> Any:
    text = CONFIG.replace("COLUMNS", columns).replace("FORMATS", formats)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "release.yaml").write_text(text)
    return load(folder / "release.yaml")


@pytest.mark.usefixtures("extras")
@pytest.mark.parametrize(
    ("columns", "formats", "said"),
    [
        ("a b, A_b", "csv, dta", "'a b' and 'A_b' would both be called 'A_b' in files of Stata"),
        ("a b, A_b", "sav", "'a b' and 'A_b' would both be called 'A_b' in files of SPSS"),
        ("Raw", "sav", "'raw' and 'Raw' would both be called 'Raw'"),
        ("text", "dta", "'' of 'text' would be lost (empty text stands for missing)"),
        ("text", "sav", "'1 ' of 'text' would be lost (blanks at the end are dropped)"),
        ("huge", "dta", "1e+308 of 'huge' would be lost (numbers beyond 8.9e+307"),
    ],
)
def test_what_would_be_lost_is_refused_with_the_next_step(
    tmp_path: Path, columns: str, formats: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, columns, formats)
    whole = str(caught.value)
    assert said in whole
    assert "release.yaml:14:" in whole
    assert f"leave '{formats[-3:]}' out of publish.formats" in whole


@pytest.mark.parametrize("name", ["=cmd|'/C calc'!A0", "+x", "-x", "@SUM(A1)"])
def test_a_column_whose_name_is_a_formula_is_refused_for_csv(tmp_path: Path, name: str) -> None:
    as_yaml = json.dumps(name)
    renamed = {"A_b:": f"{as_yaml}:"}
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, as_yaml, "parquet, csv", **renamed)
    whole = str(caught.value)
    assert f"release.yaml:8:3: domain.{name}: A spreadsheet would take" in whole
    assert "Rename it in the source, or leave 'csv' out of publish.formats." in whole
    for formats in ("parquet, csv", "parquet"):
        columns = "a b" if "csv" in formats else as_yaml  # what is not released needs no name
        assert loaded(tmp_path, columns, formats, **renamed)
    inside = json.dumps(f"x{name}")
    assert loaded(tmp_path, inside, "csv", **{"A_b:": f"{inside}:"})


@pytest.mark.usefixtures("extras")
def test_other_formats_hold_them(tmp_path: Path) -> None:
    for columns in ("a b, A_b", "Raw", "text", "huge"):
        assert loaded(tmp_path, columns, "parquet, csv").config.publish.formats == [
            "parquet",
            "csv",
        ]
    assert loaded(tmp_path, "a b", "dta, sav").config.publish.formats == ["dta", "sav"]
    kept = loaded(tmp_path, "a b", "csv", **{", formats: [csv]": ""}).config.publish
    assert kept.formats == ["parquet", "csv"] and not kept.sdmx


def test_a_missing_extra_is_said_before_anything_else_happens(
    tmp_path: Path, extras: set[str]
) -> None:
    extras.clear()
    for formats in ("dta", "csv, sav"):
        with pytest.raises(DependencyError, match=r"statpress\[stat\]"):
            loaded(tmp_path, "a b", formats)
    words = {"dataset:": "about: {publisher: {name: Office}}\ndataset:", "csv]": "csv], sdmx: true"}
    with pytest.raises(DependencyError, match=r"statpress\[sdmx\]"):
        loaded(tmp_path, "a b", "csv", **words)
    extras.add("pysdmx")
    assert loaded(tmp_path, "a b", "csv", **words).config.publish.sdmx


@pytest.mark.usefixtures("extras")
def test_sdmx_needs_a_publisher(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no publisher.*\n?.*'about'"):
        loaded(tmp_path, "a b", "csv", **{"csv]": "csv], sdmx: true"})


@pytest.mark.usefixtures("extras")
def test_files_that_may_not_fit_into_memory_are_refused_before_a_charge(tmp_path: Path) -> None:
    wide = {
        "n_records: 400": "n_records: 90000000",
        "kind: table, mechanism: laplace": "kind: microdata, mechanism: bootstrap",
    }
    plan, faults = plan_or_faults(loaded(tmp_path, "a b", "dta, sav", **wide))
    assert plan is not None
    (fault,) = faults
    assert "of at most 25,000,000" in fault.what
    assert "Leave 'dta' and 'sav' out" in fault.next_step
    assert plan_or_faults(loaded(tmp_path, "a b", "parquet", **wide))[1] == []


def test_names_are_shortened_and_kept_apart_from_reserved_words() -> None:
    long = "n" * 40
    assert stored_name(long, "dta") == long[:31] and stored_name(long, "sav") == long
    assert stored_name("Zürich, Stadt", "sav") == "Zurich_Stadt"
    assert [stored_name(n, "dta") for n in ("_n", "str8", "9", "日本", "in")] == [
        "v_n", "str8_", "v_9", "v_", "in_",
    ]  # fmt: skip
    assert [stored_name(n, "sav") for n in ("WITH", "in", "_x")] == ["WITH_", "in", "v_x"]
    assert fault_of("x" * 32_768, "sav") and not fault_of("x" * 32_767, "sav")
    assert fault_of(2**53 + 1, "dta") and not fault_of(-(2**53), "dta")


@pytest.mark.system
@pytest.mark.parametrize("name", ["dta", "sav"])
@pytest.mark.parametrize("columns", [{"a b": [1], "a_b": [2]}, {"t": ["", "x"]}])
def test_a_file_never_loses_a_column_or_a_value_silently(
    tmp_path: Path, name: str, columns: dict[str, list[Any]]
) -> None:
    with pytest.raises(ConfigError, match=f"cannot be written as {name}"):
        write_rows(value_rows(columns), tmp_path / f"t.{name}")


def test_identifiers_of_sdmx_are_valid_and_distinct() -> None:
    names = ["Größe", "groesse", "GROSSE", "1", "統計", "a-b", "a_b"]
    found = sdmx_identifiers.components(names)
    assert len({*found}) == len(names)
    assert all(each[0].isalpha() and each.isascii() and " " not in each for each in found)
    assert sdmx_identifiers.codes(["1", "1.0", "1,0", "$", "é"]) == ["1", "1_0", "1_0_2", "$", "e"]


# --- what the structure of a table in SDMX says of cells that have no observation


N, CELLS = 5000, 3300


def table(mechanism: Any) -> Table:
    expected = mechanism.expected_error(n_records=N, n_cells=CELLS)
    stated = {
        "n_records": N,
        "n_cells": str(CELLS),
        "unbiased": True,
        "expected_error": {"uniform_share": expected.uniform_share},
    }
    publication: Any = SimpleNamespace(privacy={"products": {"t": stated}})
    return Table(publication, "t", "t", "T")


def test_the_estimate_of_a_cell_that_was_not_drawn_is_stated_for_sums() -> None:
    drawn = table(Bootstrap("4.93", N))
    assert drawn.undrawn == pytest.approx(-4.93)
    assert "a cell without an observation was not drawn: -4.93 records" in measure_in_words(drawn)


def test_a_table_of_all_cells_says_nothing_of_others() -> None:
    noisy = table(GaussianTable.from_description({"scale": "8"}))
    assert noisy.undrawn == 0
    assert "not drawn" not in measure_in_words(noisy)
