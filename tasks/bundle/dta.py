"""Stata's format of version 14 (118), which Stata 14 and later read; needs the extra ``stat``.

Source: Stata, "Description of .dta file format 118" (help dta_118).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from statpress.tasks.bundle.stat_tables import Package, StatWriter, read_stat

if TYPE_CHECKING:
    import pyarrow as pa

    from statpress.tasks.bundle.formats import BatchWriter


MEDIA_TYPE = "application/x-stata-dta"
LABELLED = True
"""Its writer is told what is said of the columns (``stat_columns.labelled``)."""
_PACKAGE = Package(
    form="dta",
    formats={
        "whole": "%12.0f",
        "number": "%16.0g",
        "boolean": "%1.0f",
        "category": "%8.0g",
        "day": "%tdCCYY-NN-DD",
    },
    epoch=datetime.date(1960, 1, 1),
    per_day=1,
    first_day=datetime.date(100, 1, 1),
    label_length=80,
    code_length=32_000,
)
_STAMP, _TIME = b"<timestamp>\x11", b"01 Jan 1960 00:00"


def open_writer(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches; see ``tasks.bundle.formats.FileFormat``."""
    return StatWriter(_PACKAGE, _write, _stamp, sink, schema)


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file; without a schema, columns have the names of the file."""
    import pyreadstat

    return read_stat(pyreadstat.read_dta, _PACKAGE, path, schema)


def _write(frame: Any, path: str, *, columns: Any, **words: Any) -> None:
    import pyreadstat

    del columns
    pyreadstat.write_dta(frame, path, version=14, **words)


def _stamp(sink: BinaryIO) -> None:
    with open(sink.name, "rb") as file:
        place = file.read(1 << 12).index(_STAMP) + len(_STAMP)
    sink.seek(place)
    sink.write(_TIME)
