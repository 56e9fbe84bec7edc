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
    """What the module of a format offers."""

    def open_writer(self, sink: BinaryIO, schema: pa.Schema) -> BatchWriter:
        """Begin a file of the schema; the same rows in the same batches give the same bytes."""

    def read_batches(self, path: Path, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in order and in bounded memory.

        Args:
            path: The file.
            schema: Names and types as written, if known; only of use to a format whose files
                do not hold them.
        """


def format_named(name: str) -> FileFormat:
    """The module of a format.

    Raises:
        ValueError: No format has this name.
    """
    if name not in formats.FORMATS:
        raise ValueError(f"no format is called '{name}' (known: {', '.join(formats.FORMATS)})")
    return cast("FileFormat", import_module(f"{__package__}.{name}"))


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
