"""The format of a file, by its suffix: a module here that ``configs.models.formats`` lists."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from configs.models import formats

if TYPE_CHECKING:
    import pyarrow as pa


class BatchWriter(Protocol):
    """A file of a format, being written; the sink stays open when it is closed."""

    def write(self, batch: pa.RecordBatch, /) -> Any:
        """Append rows."""

    def close(self) -> Any:
        """Write what the format puts at the end of a file."""


class FileFormat(Protocol):
    """What the module of a format offers.

    And, where there is something to say, ``MEDIA_TYPE`` of its files, ``ENCODING`` of their text,
    ``RESOURCE_TYPE`` (see ``media_facts``) and ``as_written(text)``, how they hold a text that
    they do not hold as it is.
    """

    def open_writer(self, sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
        """Begin a file of the schema; the same rows in the same batches give the same bytes.

        A module with ``CODED_TEXT = True`` is given columns of text of few values with a
        dictionary (``pyarrow.DictionaryArray``), in all batches of a file or in none; they are
        read back as text. Any other is given batches of the schema.
        """

    def read_batches(self, path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in order and in bounded memory.

        Args:
            path: The file.
            schema: Names and types of columns as written, if known, and not always of all: the
                types of the others are inferred, and all columns of the file come back in its
                order. Only of use to a format whose files do not hold them.
        """


def format_named(name: str) -> FileFormat:
    """The module of a format.

    Raises:
        ValueError: No format has this name.
        DependencyError: The extra that it needs is not installed.
    """
    if name not in formats.FORMATS:
        raise ValueError(f"no format is called '{name}' (known: {', '.join(formats.FORMATS)})")
    formats.check_writable((name,), "")
    return cast("FileFormat", import_module(f"{__package__}.{name}"))


def as_written(name: str, text: str) -> str:
    """A text as a file of a format holds it, where that is not the text itself."""
    found: str = getattr(format_named(name), "as_written", str)(text)
    return found


def media_facts(name: str) -> dict[str, str]:
    """What a data package says of a format's files: ``type``, ``mediatype`` and ``encoding``.

    The type is ``file`` unless Frictionless checks the format's values as they are: it reads a
    null in Parquet as NaN, which no constraint allows, and counts no bytes there.
    """
    module = format_named(name)
    said = {
        "type": getattr(module, "RESOURCE_TYPE", "file"),
        "mediatype": getattr(module, "MEDIA_TYPE", ""),
        "encoding": getattr(module, "ENCODING", ""),
    }
    return {key: value for key, value in said.items() if value}


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
