"""The section ``source``: what may be declared of a CSV, and what cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from statpress.configs.loading import load
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.engine import CsvOptions

CONFIG = """\
title: t
dataset: d
source: {SOURCE}
privacy: {adjacency: replace_one, unit: record, n_records: 400}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  region: {type: categorical, categories: [north, "NA"]}
  born: {type: date, first: 1950-01-01, last: 2000-12-31, by: month}
products:
  people: {kind: table, mechanism: laplace, columns: [region, born]}
publish: {directory: releases, formats: [csv]}
"""


def loaded(folder: Path, source: str) -> CsvOptions:
    path = folder / "c.yaml"
    path.write_text(CONFIG.replace("SOURCE", source))
    return source_of(load(path)).csv


def test_what_is_declared_reaches_the_engine(tmp_path: Path) -> None:
    assert loaded(tmp_path, "path: a.parquet") == loaded(tmp_path, "path: a.csv") == CsvOptions()
    said = """path: a.txt, format: csv, delimiter: "\\t", encoding: windows-1252, decimal: ",",
      thousands: ".", date_format: "%d.%m.%Y", null_values: ["-99", "."]"""
    assert loaded(tmp_path, said) == CsvOptions(
        delimiter="\t", encoding="windows-1252", decimal=",", thousands=".",
        date_format="%d.%m.%Y", null_values=("-99", "."),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "where", "what"),
    [
        ("path: a.parquet, delimiter: ';'", "source", "'delimiter' is for a CSV only"),
        ("path: a.csv, delimiter: '::'", "source.delimiter", "',', ';'"),
        ("path: a.csv, encoding: klingon", "source.encoding", "'utf-8'"),
        ("path: a.csv, decimal: ',', thousands: ','", "source", "must differ"),
        ("path: a.csv, thousands: '.'", "source", "must differ"),
        ("path: a.csv, date_format: '%d.%m'", "source.date_format", "must have the year"),
        ("path: a.csv, date_format: '%d.%m.%Y %Z'", "source.date_format", "must be of %Y"),
        ("path: a.csv, date_format: '%Y'", "domain.born", "does not say the month"),
        ("path: a.csv, null_values: ['NA']", "domain.region", "also in source.null_values"),
        ("path: a.csv, null_values: [-99]", "source.null_values.0", "string"),
        ("path: a.csv, delimeter: ';'", "source.delimeter", "Is 'delimiter' meant?"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, source: str, where: str, what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, source)
    assert caught.value.where.endswith(f": {where}")
    assert what in caught.value.what
