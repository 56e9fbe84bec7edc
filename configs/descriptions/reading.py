"""Which form a description is of; files that hold data are refused unread."""

from __future__ import annotations

from pathlib import Path

from statpress.configs.descriptions.column_list import (
    KEYS,
    delimiter_of,
    from_column_list,
    near_miss,
)
from statpress.configs.descriptions.csvw import from_csvw, is_csvw
from statpress.configs.descriptions.ddi import from_ddi
from statpress.configs.descriptions.described import Description, parse_json
from statpress.configs.descriptions.frictionless import from_frictionless, is_frictionless
from statpress.mechanisms.errors import ConfigNotFoundError, DescriptionError

DATA_SUFFIXES = frozenset(
    {
        ".parquet", ".pq", ".dta", ".sav", ".zsav", ".por", ".sas7bdat", ".xpt", ".sas7bcat",
        ".feather", ".arrow", ".orc", ".avro", ".xlsx", ".xls", ".ods", ".rds", ".rda", ".rdata",
        ".sqlite", ".db", ".duckdb", ".hdf", ".h5", ".zip", ".gz", ".tsv", ".jsonl", ".ndjson",
    }
)  # fmt: skip
"""Of files that are refused by their name, and never opened."""
LARGEST = 64 * 2**20
_FIRST_BYTES = 2**16
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # UTF-16, which XML may be in


def read_description(path: Path, table: str | None = None) -> Description:
    """Read a public description of a table.

    Of a file that turns out to hold data no more was read than its beginning, and nothing of
    that is in the message.

    Args:
        path: Of the description.
        table: Which table, where it describes several.

    Raises:
        DescriptionError: It is a data file, or of no form that is read, or has a fault.
        ConfigNotFoundError: It cannot be read.
    """
    name = path.name
    if path.suffix.lower() in DATA_SUFFIXES:
        raise _data(path, f"a data file ({path.suffix.lower()})")
    text = _bytes(path)
    first = _first_character(text[:_FIRST_BYTES])
    if first == b"<":
        return from_ddi(text, name, table)
    try:
        decoded = text.decode("utf-8-sig")
        problem = None
    except UnicodeDecodeError:
        problem = DescriptionError(
            "The file is not UTF-8 text.", where=name, next_step="Save it as UTF-8."
        )
    if problem is not None:
        raise problem
    if first == b"{":
        value = parse_json(decoded, name)
        if is_csvw(value):
            return from_csvw(value, name, table)
        if is_frictionless(value):
            return from_frictionless(value, name, table, lambda p: _beside(path, p))
        raise DescriptionError(
            "This JSON is neither a data package, nor a Table Schema, nor CSVW metadata.",
            where=name,
            next_step="A file of records is not a description, and is never read here.",
        )
    return from_column_list(decoded, name)


def _bytes(path: Path) -> bytes:
    """What a file holds, unless its beginning is that of data."""
    try:
        with path.open("rb") as file:
            begin = file.read(_FIRST_BYTES)
            if b"\0" in begin and not begin.startswith(_WIDE):
                raise _data(path, "a binary file")
            if _first_character(begin) == b"[":
                raise _data(path, "a list of JSON values")
            header = begin.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
            if _first_character(begin) not in (b"<", b"{") and delimiter_of(header) is None:
                if near_miss(header):
                    raise DescriptionError(
                        "The first line names a column that lists of columns do not have.",
                        where=f"{path.name}:1",
                        next_step=f"Use only these: {', '.join(KEYS)}.",
                    )
                raise _data(
                    path,
                    "a CSV of records or other text (its first line lacks 'name' or 'type')",
                )
            rest = file.read(LARGEST)
        if len(rest) < LARGEST:
            return begin + rest
        problem = "The file is larger than 64 MiB, which no description is."
    except FileNotFoundError:
        problem = "There is no such file."
    except IsADirectoryError:
        problem = "This is a folder."
    except ValueError:
        problem = "This is not a path."
    except OSError as error:
        problem = f"The file cannot be read ({error.strerror})."
    raise ConfigNotFoundError(problem, where=str(path), next_step="Check the path.")


def _first_character(text: bytes) -> bytes:
    """The first byte that is not blank; of UTF-16, which only XML may be in, that of XML."""
    return b"<" if text.startswith(_WIDE) else text.lstrip(b"\xef\xbb\xbf \r\n\t")[:1]


def _beside(path: Path, relative: str) -> str:
    """Text of a schema in or below the folder of its description."""
    folder, place = path.resolve().parent, (path.parent / relative).resolve()
    if folder not in place.parents or place.suffix.lower() != ".json":
        raise DescriptionError(
            "The schema is not a .json file in or below the folder of the description.",
            where=path.name,
            next_step="Put it there.",
        )
    return _bytes(place).decode("utf-8-sig", errors="replace")


def _data(path: Path, what: str) -> DescriptionError:
    return DescriptionError(
        f"This is {what}, and not a description of columns. 'init' never reads data.",
        where=path.name,
        next_step="Describe the columns in a public file (data package, Table Schema, CSVW, DDI "
        "Codebook, or a CSV with the columns name and type), and name the data with --source.",
    )
