"""CSV: a header, commas, double quotes around text, UTF-8; an empty field is null."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.formats.registry import BatchWriter


def open_writer(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches; see ``tasks.formats.registry.FileFormat``."""
    import pyarrow.csv

    writer: BatchWriter = pyarrow.csv.CSVWriter(sink, schema)
    return writer


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file; without a schema, types are inferred from the first block.

    Quoted text is never null, so an empty text and a null stay apart.
    """
    import pyarrow.csv

    convert = pyarrow.csv.ConvertOptions(
        column_types={field.name: field.type for field in schema or ()},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    lines = pyarrow.csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True)
    with pyarrow.csv.open_csv(path, convert_options=convert, parse_options=lines) as reader:
        yield from reader
