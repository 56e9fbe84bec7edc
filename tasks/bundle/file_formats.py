"""The formats of a bundle's files, the Arrow types in them, and profiles of written files.

A format is a value, ``FileFormat``, named by its suffix: one line below, and the name in
``configs.formats``. The types of a domain's columns are the same in every format.

Parquet, compressed with Zstandard, and CSV are here, both as Arrow writes and reads them. CSV has a
header, commas, double quotes around text, UTF-8; an empty field is null. A spreadsheet takes a cell
that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return for a formula, also within
quotes (OWASP, "CSV Injection"). So in columns of text such a value, and one that has only
apostrophes before such a mark, is written with one apostrophe more in front; reading takes it away
again. Numbers are written as they are. A column whose name begins so is refused, since the header
is the name by which a data package knows the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from statpress.configs import formats
from statpress.configs.formats import FORMULA_MARKS
from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa


class BatchWriter(Protocol):
    """A file of a format, being written; the sink stays open when it is closed."""

    def write(self, batch: pa.RecordBatch, /) -> Any:
        """Append rows."""

    def close(self) -> Any:
        """Write what the format puts at the end of a file."""


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A format of files.

    Attributes:
        open_writer: Begins a file of an Arrow schema in an open binary file; the same rows in the
            same batches give the same bytes.
        read_batches: Gives the rows of a file, in order and in bounded memory. The schema has
            names and types of columns as written, if known, and not always of all: the types of
            the others are inferred, and all columns of the file come back in its order. Only of
            use to a format whose files do not hold them.
        media_type: Of its files; may be empty.
        encoding: Of their text; may be empty.
        resource_type: In a data package: ``table`` if Frictionless checks the values as they are.
            It reads a null in Parquet as NaN, which no constraint allows, and counts no bytes
            there.
        coded_text: Whether columns of text of few values are given with a dictionary
            (``pyarrow.DictionaryArray``), in all batches of a file or in none; they are read back
            as text. A format without it is given batches of the schema.
        labelled: Whether the fields of the schema say what a data package says of the columns
            (``stat_tables.labelled``).
        as_written: A text as files hold it.
    """

    open_writer: Callable[[BinaryIO, pa.Schema], BatchWriter]
    read_batches: Callable[[Path, pa.Schema | None], Iterator[pa.RecordBatch]]
    media_type: str = ""
    encoding: str = ""
    resource_type: str = "file"
    coded_text: bool = False
    labelled: bool = False
    as_written: Callable[[str], str] = str


FORMATS: Registry[FileFormat] = Registry(
    {
        "parquet": "statpress.tasks.bundle.file_formats:PARQUET",
        "csv": "statpress.tasks.bundle.file_formats:CSV",
        "dta": "statpress.tasks.bundle.stat_tables:STATA",
        "sav": "statpress.tasks.bundle.stat_tables:SPSS",
    }
)
"""Formats by suffix."""


def format_named(name: str) -> FileFormat:
    """The format of a suffix.

    Raises:
        ValueError: No format has this name.
        DependencyError: The extra that it needs is not installed.
    """
    if name not in formats.FORMATS:
        raise ValueError(f"no format is called '{name}' (known: {', '.join(formats.FORMATS)})")
    formats.check_writable((name,), "")
    return FORMATS[name]


def format_of(path: Path) -> FileFormat:
    """The format that a file's suffix names.

    Raises:
        ValueError: No format has this suffix.
    """
    return format_named(path.suffix.removeprefix("."))


def read_batches(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a written file; some formats need the schema, if it is known.

    Raises:
        ValueError: No format has this suffix.
    """
    return format_of(path).read_batches(path, schema)


def written_file(folder: Path, stem: str) -> Path | None:
    """A data file of a bundle in any of the formats it has; None if it has none."""
    paths = (folder / "data" / f"{stem}.{suffix}" for suffix in formats.FORMATS)
    return next((path for path in paths if path.is_file()), None)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a small file; values are those that its format can tell."""
    return [row for batch in read_batches(path, None) for row in batch.to_pylist()]


_BLOCK = 1 << 20  # bytes of CSV from which a stream infers types
_ROWS, _VALUES = 1 << 16, 1 << 21  # of a batch at least, and otherwise about
LISTED = 1 << 17
"""Values of a column up to which they are listed rather than compared with its ends."""


def schema_of(domain: Domain, *, spread: bool = False) -> pa.Schema:
    """Names and types of the columns, as written.

    Args:
        domain: The columns.
        spread: Whether values lie anywhere within their cells.
    """
    import pyarrow as pa

    types = {c.name: spread_type(c) if spread else arrow_type(c) for c in domain.columns}
    return pa.schema([pa.field(c.name, types[c.name], nullable=c.missing) for c in domain.columns])


def spread_type(column: Column) -> pa.DataType:
    """The type of values within a column's cells."""
    import pyarrow as pa

    if column.ends is None:
        return arrow_type(column)
    kinds = {int: pa.int64(), float: pa.float64()}
    return kinds.get(type(column.ends[0]), pa.string())


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column's public values; the same for every release of it."""
    import pyarrow as pa

    sample = column.decode(np.zeros(1, dtype=np.int64))
    if sample.dtype.kind in "if":
        return pa.int64() if sample.dtype.kind == "i" else pa.float64()
    kinds = {type(value) for value in column.decode(np.arange(min(column.size, LISTED)))}
    named = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    if kinds == {int, float}:
        return pa.float64()
    return named.get(kinds.pop(), pa.string()) if len(kinds) == 1 else pa.string()


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


def text_of_csv(text: str) -> str:
    """What a text that stands in a CSV file was.

    >>> print(text_of_csv(csv_text("'+")), text_of_csv("'"))
    '+ '
    """
    return re.sub(_WRITTEN, r"\1", text)


@dataclass
class _CsvWriter:
    """Writes text so that a spreadsheet does not take it for a formula."""

    file: Any

    def write(self, batch: pa.RecordBatch, /) -> None:
        self.file.write(_replaced(batch, _FORMULA, r"'\1"))

    def close(self) -> None:
        self.file.close()


def _read_csv(path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    """The record batches of a file; types that no schema gives are inferred from all of it.

    Quoted text is never null, so an empty text and a null stay apart.
    """
    import pyarrow.csv

    types = {field.name: field.type for field in schema or ()}
    lines = pyarrow.csv.ParseOptions(ignore_empty_lines=False, newlines_in_values=True)

    def options(only: Sequence[str] = ()) -> Any:
        return pyarrow.csv.ConvertOptions(
            column_types=types,
            include_columns=only,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    # A stream goes by its first block, and fails where a later one does not fit.
    if path.stat().st_size > _BLOCK:
        with pyarrow.csv.open_csv(path, convert_options=options(), parse_options=lines) as reader:
            open_ones = [name for name in reader.schema.names if name not in types]
        if open_ones:
            whole = pyarrow.csv.read_csv(
                path, convert_options=options(open_ones), parse_options=lines
            )
            types |= {field.name: field.type for field in whole.schema}
            del whole
    with pyarrow.csv.open_csv(path, convert_options=options(), parse_options=lines) as reader:
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

    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:  # which keeps what is read
        columns = max(file.metadata.num_columns, 1)
        yield from file.iter_batches(batch_size=max(_ROWS, _VALUES // columns))


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
