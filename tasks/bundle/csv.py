"""CSV: a header, commas, double quotes around text, UTF-8; an empty field is null.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage
return for a formula, also within quotes (OWASP, "CSV Injection"). So in columns of text such a
value, and one that has only apostrophes before such a mark, is written with one apostrophe more
in front; reading takes it away again. Numbers are written as they are. A column whose name begins
so is refused, since the header is the name by which a data package knows the column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from statpress.configs.formats import FORMULA_MARKS
from statpress.mechanisms.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from statpress.tasks.bundle.formats import BatchWriter


CODED_TEXT = True
RESOURCE_TYPE = "table"
MEDIA_TYPE = "text/csv"
ENCODING = "utf-8"
_MARK = f"[{re.escape(FORMULA_MARKS)}]"
_FORMULA = f"^('*{_MARK})"
_WRITTEN = f"^'('*{_MARK})"


def open_writer(sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
    """A writer of record batches; see ``tasks.bundle.formats.FileFormat``.

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
    return _Writer(pyarrow.csv.CSVWriter(sink, schema))


def as_written(text: str) -> str:
    """A text as it stands in a file.

    >>> print(as_written("=1"), as_written("'+"), as_written("'"))
    '=1 ''+ '
    """
    return re.sub(_FORMULA, r"'\1", text)


@dataclass
class _Writer:
    """Writes text so that a spreadsheet does not take it for a formula."""

    file: Any

    def write(self, batch: pa.RecordBatch, /) -> None:
        self.file.write(_replaced(batch, _FORMULA, r"'\1"))

    def close(self) -> None:
        self.file.close()


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
