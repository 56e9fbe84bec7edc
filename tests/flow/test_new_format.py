"""A format that is not shipped: one value and one entry in the list of formats are enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pyarrow import json as arrow_json

from statpress.configs import formats
from statpress.configs.release_config import PublishConfig, ReleaseConfig
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.bundle import file_formats as written
from statpress.tasks.bundle.file_formats import FileFormat, read_batches
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.refine import Options, open_bundle, refine
from statpress.tasks.release.reprint import check_reprint, reprint


class Writer:
    """JSON Lines: the schema is not in the file, so dates and types come from the caller."""

    def __init__(self, sink: Any, schema: Any) -> None:
        self.sink = sink

    def write(self, batch: Any) -> None:
        for row in batch.to_pylist():
            self.sink.write((json.dumps(row, default=str) + "\n").encode())

    def close(self) -> None:
        pass


class Forgetful(Writer):
    """The same without the first row."""

    def write(self, batch: Any) -> None:
        super().write(batch.slice(1))


def read_lines(path: Path, schema: Any) -> Iterator[Any]:
    options = arrow_json.ParseOptions(explicit_schema=schema)
    yield from arrow_json.read_json(path, parse_options=options).to_batches()


JSON_LINES = FileFormat(open_writer=Writer, read_batches=read_lines)


def models_allow(*names: str) -> None:
    """Build the config's models anew with these formats, as a change of the one line does."""
    PublishConfig.model_fields["formats"].annotation = list[Literal[names]]  # type: ignore[valid-type]
    PublishConfig.model_rebuild(force=True)
    ReleaseConfig.model_rebuild(force=True)


@pytest.fixture
def more_formats(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Listed: a format ``jsonl``, and ``lossy``, which loses the first of all rows."""
    more = {"jsonl": JSON_LINES, "lossy": replace(JSON_LINES, open_writer=Forgetful)}
    monkeypatch.setattr(written, "FORMATS", {**written.FORMATS, **more})
    known = formats.FORMATS
    monkeypatch.setattr(formats, "FORMATS", (*known, *more))
    models_allow(*known, *more)
    yield
    models_allow(*known)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("more_formats")
def test_a_release_in_a_new_format(agency, tmp_path: Path) -> None:
    agency.replace("formats: [parquet, csv]", "formats: [jsonl, parquet]")
    bundle = agency.run().bundle  # past the gate, which profiles every file
    assert {path.suffix for path in (bundle / "data").iterdir()} == {".jsonl", ".parquet"}
    for name in ("people", "people_debiased"):
        typed = bundle / "data" / f"{name}.parquet"
        expected = [row for batch in read_batches(typed, None) for row in batch.to_pylist()]
        assert rows(bundle / "data" / f"{name}.jsonl") == expected
    package = json.loads((bundle / "datapackage.json").read_text())
    assert {resource["format"] for resource in package["resources"]} == {"jsonl", "parquet"}
    check_bundle(agency.home, bundle, verify_bundle(bundle))
    drawn = open_bundle(bundle).products["people"].counts()
    again = reprint(bundle, ())
    assert check_reprint(again.bundle)
    lines = again.bundle / "data" / "people.jsonl"
    from_lines = replace(open_bundle(again.bundle).products["people"], path=lines).counts()
    assert from_lines.cells.tolist() == drawn.cells.tolist()
    assert from_lines.counts.tolist() == drawn.counts.tolist()
    refine(again.bundle, tmp_path / "refined", Options(integers=True, format="jsonl"))  # type: ignore[arg-type]
    assert "rounded" in rows(tmp_path / "refined" / "data" / "people.jsonl")[0]


@pytest.mark.usefixtures("more_formats")
def test_a_format_that_loses_rows_is_found_before_the_charge(agency) -> None:
    agency.replace("formats: [parquet, csv]", "formats: [lossy]")
    with pytest.raises(ConfigError, match="cannot be written to lossy and read back"):
        agency.run()
    assert [entry.kind for entry in agency.entries()] == ["register"]
