"""SPSS's system file, compressed, which every version reads; needs the extra ``stat``.

Source: PSPP developers' manual, "System File Format", of the header record.
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


MEDIA_TYPE = "application/x-spss-sav"
LABELLED = True
"""Its writer is told what is said of the columns (``stat_columns.labelled``)."""
_PACKAGE = Package(
    form="sav",
    formats={
        "whole": "F12.0",
        "number": "F16.6",
        "boolean": "F1.0",
        "category": "F8.0",
        "day": "SDATE10",
    },
    epoch=datetime.date(1582, 10, 14),
    per_day=86_400,
    first_day=datetime.date(1582, 10, 15),
    label_length=250,
    code_length=120,
)
_PLACE, _TIME = 92, b"01 Jan 6000:00:00"
"""Of date and time in the header, of 9 and 8 characters."""


def open_writer(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches; see ``tasks.bundle.formats.FileFormat``."""
    return StatWriter(_PACKAGE, _write, _stamp, sink, schema)


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file; without a schema, columns have the names of the file."""
    import pyreadstat

    return read_stat(pyreadstat.read_sav, _PACKAGE, path, schema)


def _write(frame: Any, path: str, *, columns: Any, **words: Any) -> None:
    import pyreadstat

    measures = {column.name: column.measure for column in columns}
    pyreadstat.write_sav(frame, path, row_compress=True, variable_measure=measures, **words)


def _stamp(sink: BinaryIO) -> None:
    sink.seek(_PLACE)
    sink.write(_TIME)
