"""Parquet, compressed with Zstandard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

    from statpress.tasks.bundle.formats import BatchWriter


CODED_TEXT = True
MEDIA_TYPE = "application/vnd.apache.parquet"


def open_writer(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches; see ``tasks.bundle.formats.FileFormat``."""
    return _Writer(sink, schema)


class _Writer:
    """Opens the file at the first batch, which shows what text comes with a dictionary.

    All batches are coded alike. The dictionaries are those of the pages: the columns are read as
    text, since the file does not say how they were held in memory.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink, self._schema = sink, schema
        self._file: BatchWriter | None = None

    def write(self, batch: pa.RecordBatch, /) -> None:
        self._opened(batch.schema).write(batch)

    def close(self) -> None:
        self._opened(self._schema).close()

    def _opened(self, schema: pa.Schema) -> BatchWriter:
        import pyarrow.parquet

        if self._file is None:
            plain = schema.types == self._schema.types
            self._file = pyarrow.parquet.ParquetWriter(
                self._sink, schema, compression="zstd", store_schema=plain
            )
        return self._file


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, which holds its own schema."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        yield from file.iter_batches()
