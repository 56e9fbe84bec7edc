"""Records that Spark reads in tests, and what is asked of its refusals."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statpress.mechanisms.domain.columns import Categorical, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourceUnreadableError,
)
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.spark import SparkSource

CANARY = "Zyx-canary-7719"
AGE = Domain((Integer(name="age", lower=0, upper=9),))
RECORDS = """
    SELECT (h % 51)::UTINYINT AS state, (h >> 8) % 10000 / 100.0 AS pay,
        (((h >> 30) % 100000) / 100)::DECIMAL(9,2) AS rent,
        CASE (h >> 48) % 5 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'ä' ELSE 'b' END AS name,
        DATE '1950-01-01' + ((h >> 52) % 4000)::INT AS born,
        CASE WHEN (h >> 20) % 1000 = 0 THEN NULL ELSE ((h >> 24) % 140)::INT END AS age
    FROM (SELECT hash(i) AS h FROM range({n}) r(i))
"""
"""Numbers with and without fractions, decimals, text with nulls and empty, and days."""
OF_RECORDS = Domain(
    (
        Integer(name="state", lower=0, upper=50),
        Numeric(name="pay", edges=(0.0, 0.1, 0.3, 12.34, 50.0, 99.99)),
        Numeric(name="rent", edges=Numeric.uniform_edges(0, 1000, 20)),
        Categorical(name="name", categories=("", "ä"), other=True, missing=True),
        Date(name="born", first=date(1950, 1, 1), last=date(1959, 12, 31), by="year"),
        Integer(name="age", lower=0, upper=119, width=10, missing=True),
    )
)
JOINT = (("state", "pay", "name"), ("rent", "born"), ("age",), OF_RECORDS.names)
"""Columns of the tables that are counted of them."""


def ages(path: Path, n: int = 100) -> Path:
    """Write a file of ages, and of names that must stay in it."""
    names = [f"{CANARY}{i}" for i in range(n)]
    pq.write_table(pa.table({"age": [i % 10 for i in range(n)], "name": names}), path)
    return path


def of(session: SparkSource, path: Path, unit: str | None = None) -> SparkSource:
    """The source of a path on a shared session."""
    from statpress.tasks.source.spark import _guarded, _states

    made = replace(session, path=str(path), unit=unit, states=())
    return replace(made, states=_guarded(made, lambda: _states(made)))


def refused(kind: type[SourceError], act: Callable[[], Any]) -> None:
    """It is refused as this, and nothing of a record or of another error is in what is said."""
    with pytest.raises(SourceError) as caught:
        act()
    error = caught.value
    assert type(error) is kind, error
    assert error.__context__ is None and error.__cause__ is None
    said = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
    assert CANARY not in said


def faults_of_files(session: SparkSource, folder: Path) -> None:
    """What is said of files that are not there, are broken, lack a column or change."""
    path = ages(folder / "a.parquet")
    source = of(session, path)
    assert count(source, AGE, scratch=folder).n_records == 100
    other = Domain((Integer(name="AGE", lower=0, upper=9),))
    refused(ColumnNotFoundError, lambda: count(source, other, scratch=folder))
    refused(SourceNotFoundError, lambda: of(session, folder / "no.parquet"))
    broken = folder / "broken.parquet"
    broken.write_bytes(CANARY.encode() * 100)
    refused(SourceUnreadableError, lambda: of(session, broken))
    ages(path, 50)
    refused(SourceChangedError, lambda: count(source, AGE, scratch=folder))
    many = folder / "many"
    many.mkdir()
    ages(many / "a.parquet")
    pq.write_table(pa.table({"name": ["x"]}), many / "b.parquet")  # nulls, if Spark had its way
    refused(ColumnNotFoundError, lambda: count(of(session, many), AGE, scratch=folder))
