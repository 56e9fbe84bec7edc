"""Parquet, compressed with Zstandard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.formats.registry import BatchWriter


def open_writer(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches; see ``tasks.formats.registry.FileFormat``."""
    import pyarrow.parquet

    writer: BatchWriter = pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd")
    return writer


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, which holds its own schema."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        yield from file.iter_batches()
