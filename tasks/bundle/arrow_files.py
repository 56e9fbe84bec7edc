"""Parquet, compressed with Zstandard, and CSV, both as Arrow writes and reads them.

CSV has a header, commas, double quotes around text, UTF-8; an empty field is null. A spreadsheet
takes a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return for a formula,
also within quotes (OWASP, "CSV Injection"). So in columns of text such a value, and one that has
only apostrophes before such a mark, is written with one apostrophe more in front; reading takes it
away again. Numbers are written as they are. A column whose name begins so is refused, since the
header is the name by which a data package knows the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from statpress.configs.formats import FORMULA_MARKS
from statpress.mechanisms.errors import ConfigError
from statpress.tasks.bundle.formats import BatchWriter, FileFormat

if TYPE_CHECKING:
    import pyarrow as pa


_MARK = f"[{re.escape(FORMULA_MARKS)}]"
_FORMULA = f"^('*{_MARK})"
_WRITTEN = f"^'('*{_MARK})"


def _open_csv(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches.

    Raises:
        ConfigError: The name of a column would be a formula; a config is refused for it before
            anything is charged.
    """
    import pyarrow.csv

    for name in schema.names:
        if name.startswith(tuple(FORMULA_MARKS)):
            raise ConfigError(
                f"The table cannot be written as csv: a spreadsheet would take the name of the "
                f"column {name!r} for a formula.",
                where=Path(sink.name).name,
                next_step="Choose another format.",
            )
    return _CsvWriter(pyarrow.csv.CSVWriter(sink, schema))


def csv_text(text: str) -> str:
    """A text as it stands in a CSV file.

    >>> print(csv_text("=1"), csv_text("'+"), csv_text("'"))
    '=1 ''+ '
    """
    return re.sub(_FORMULA, r"'\1", text)


@dataclass
class _CsvWriter:
    """Writes text so that a spreadsheet does not take it for a formula."""

    file: Any

    def write(self, batch: pa.RecordBatch, /) -> None:
        self.file.write(_replaced(batch, _FORMULA, r"'\1"))

    def close(self) -> None:
        self.file.close()


def _read_csv(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
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
        for batch in reader:
            yield _replaced(batch, _WRITTEN, r"\1")


def _replaced(batch: pa.RecordBatch, pattern: str, replacement: str) -> pa.RecordBatch:
    """The batch with a replacement in its text, made once for each distinct value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrays = list(batch.columns)
    for i, array in enumerate(arrays):
        given = pa.types.is_dictionary(array.type)
        if given or pa.types.is_string(array.type):
            coded = array if given else array.dictionary_encode()
            changed = pc.any(pc.match_substring_regex(coded.dictionary, pattern)).as_py()
            if changed:
                texts = pc.replace_substring_regex(
                    coded.dictionary, pattern, replacement, max_replacements=1
                )
                changed_codes = pa.DictionaryArray.from_arrays(coded.indices, texts)
                arrays[i] = changed_codes if given else changed_codes.dictionary_decode()
    return pa.record_batch(arrays, schema=batch.schema)


class _ParquetWriter:
    """Opens a Parquet file at the first batch, which shows what text comes with a dictionary.

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


def _read_parquet(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file, which holds its own schema."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        yield from file.iter_batches()


CSV = FileFormat(
    open_writer=_open_csv,
    read_batches=_read_csv,
    media_type="text/csv",
    encoding="utf-8",
    resource_type="table",
    coded_text=True,
    as_written=csv_text,
)
PARQUET = FileFormat(
    open_writer=_ParquetWriter,
    read_batches=_read_parquet,
    media_type="application/vnd.apache.parquet",
    coded_text=True,
)
