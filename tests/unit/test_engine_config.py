"""What a config may say of an engine, and that no credential ever stands in it or in an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from absence import absent

from statpress.configs.loading import load
from statpress.mechanisms.errors import (
    ConfigError,
    DependencyError,
    SourceAccessError,
    StatpressError,
)
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.engine import reader_named

SECRET = "hunter2-7719"
URL = f"postgresql://reader:{SECRET}@db.example.org/survey"
CONFIG = """\
title: Test
dataset: test
source: SOURCE
privacy: {adjacency: replace_one, unit: record, n_records: 1000}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  age: {type: integer, lower: 0, upper: 9}
products:
  people: {kind: table, mechanism: laplace, columns: [age]}
publish: {directory: releases, formats: [csv]}
"""
POSTGRES = "{engine: postgres, table: a.b, credentials: {env: A_DATABASE}}"


def loaded(folder: Path, source: str) -> Any:
    path = folder / "a.yaml"
    path.write_text(CONFIG.replace("SOURCE", source))
    return load(path)


@pytest.mark.parametrize(
    ("said", "reader", "place"),
    [
        ("{path: a.parquet}", "duckdb", "a.parquet"),
        ("{engine: duckdb, path: a.csv, delimiter: ';'}", "duckdb", "a.csv"),
        ("{path: 's3://bucket/a/*.parquet'}", "arrow", "s3://bucket/a/*.parquet"),
        *(
            pytest.param(*case, marks=pytest.mark.system)
            for case in (
                (POSTGRES, "postgres", "table a.b"),
                (POSTGRES.replace("env: A_DATABASE", "file: keys/a"), "postgres", "table a.b"),
                ("{engine: spark, path: people, master: 'local[2]'}", "spark", "people"),
                ("{engine: spark, table: x.y, remote: 'sc://host:15002'}", "spark", "table x.y"),
                ("{engine: spark, table: x, remote: 'sc://h:1/;use_ssl=true'}", "spark", "table x"),
            )
        ),
    ],
)
def test_sources(tmp_path: Path, said: str, reader: str, place: str) -> None:
    release = loaded(tmp_path, said)
    assert (release.config.source.reader, release.config.source.place) == (reader, place)
    assert source_of(release).where.endswith(place)


@pytest.mark.parametrize(
    "said",
    [
        f"{{engine: postgres, table: '{URL}.x', credentials: {{env: A}}}}",
        f"{{engine: postgres, table: a.b, credentials: {{env: '{URL}'}}}}",
        f"{{engine: postgres, table: a.b, credentials: {{file: '{URL}'}}}}",
        f"{{engine: postgres, table: a.b, credentials: '{URL}'}}",
        "{engine: postgres, table: a.b, credentials: {env: A, file: b}}",
        "{engine: postgres, table: a.b, credentials: {}}",
        "{engine: postgres, table: a.b}",
        "{engine: postgres, table: a, credentials: {env: A}}",
        "{engine: postgres, path: a.csv, credentials: {env: A}}",
        "{engine: oracle, path: a.csv}",
        "{engine: [a], path: a.csv}",
        f"{{path: 's3://key:{SECRET}@bucket/a.parquet'}}",
        f"{{engine: spark, path: a, remote: 'sc://host/;token={SECRET}'}}",
        f"{{engine: spark, path: a, remote: 'sc://host/;use_ssl=true;token={SECRET}'}}",
        f"{{engine: spark, path: 's3a://key:{SECRET}@b/a'}}",
        f"{{engine: spark, path: a, master: 'spark://u:{SECRET}@h'}}",
        "{engine: spark, path: a, table: b}",
        "{engine: spark, path: a, master: local, remote: 'sc://h'}",
        "{engine: spark, path: a.csv, format: csv}",
    ],
)
def test_what_is_refused_is_not_repeated(tmp_path: Path, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, said)
    assert SECRET not in str(caught.value)
    assert "source" in str(caught.value)


@pytest.mark.system
def test_that_there_are_credentials_is_seen_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(loaded(tmp_path, POSTGRES))
    check = reader_named("postgres").check_place
    monkeypatch.delenv("A_DATABASE", raising=False)
    with pytest.raises(SourceAccessError, match="A_DATABASE"):
        check(source)
    monkeypatch.setenv("A_DATABASE", URL)
    check(source)
    assert SECRET not in repr(source)
    monkeypatch.setenv("A_DATABASE", f"{URL}?options=-csearch_path%3D{SECRET}")
    with pytest.raises(StatpressError) as caught:
        check(source)
    assert SECRET not in str(caught.value)


@pytest.mark.system
@pytest.mark.parametrize("command", ["validate", "plan"])
def test_validating_and_planning_open_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The variable with the credentials, without which nobody connects, is not even set."""
    from statpress.flows.cli import app

    monkeypatch.delenv("A_DATABASE", raising=False)
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path / "home"))
    loaded(tmp_path, POSTGRES)
    app([command, str(tmp_path / "a.yaml")])


@pytest.mark.parametrize(
    ("engine", "lacking", "extra"),
    [
        ("engine: postgres, table: a.b, credentials: {env: A}", "psycopg", "postgres"),
        ("engine: spark, path: a", "pyspark", "spark"),
        ("engine: spark, path: a, remote: 'sc://host'", "grpc", "spark"),
    ],
)
def test_an_extra_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, lacking: str, extra: str
) -> None:
    monkeypatch.setenv("A", URL)
    missing = pytest.raises(DependencyError, match=f"the extra '{extra}'")
    with absent(lacking), missing as caught:
        loaded(tmp_path, f"{{{engine}}}")
    assert caught.value.where.startswith("a.yaml:")
