"""Reading a public description of a table, of whatever form.

Which form a description is of is seen by how it begins; files that hold data are refused unread.
DDI, CSVW and Frictionless have a module each. Here is the form of everything else: a CSV with a row
for each column, its name, type and categories, and what else is known.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from statpress.configs.descriptions.csvw import from_csvw
from statpress.configs.descriptions.ddi import from_ddi
from statpress.configs.descriptions.described import (
    IDENTIFIER,
    MOST_FAULTS,
    ColumnType,
    DescribedColumn,
    Description,
    LeftOut,
    all_of,
    day,
    line,
    number,
    parse_json,
    sorted_out,
    special_of,
    values_of,
    whole,
    words_of,
)
from statpress.configs.descriptions.frictionless import from_frictionless
from statpress.configs.yaml_text import Findings
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
        if (described := from_csvw(value, name, table)) is not None:
            return described
        described = from_frictionless(value, name, table, lambda p: _beside(path, p))
        if described is not None:
            return described
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
                if _near_miss(header):
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


NEEDED = ("name", "type")
KEYS = (
    *NEEDED, "categories", "value_labels", "lower", "upper", "first", "last", "width", "bins", "by",
    "special", "missing", "other", "label", "description", "unit",
)  # fmt: skip
"""Columns that such a file may have."""
TYPES = get_args(ColumnType)
LEFT_OUT = MappingProxyType({"id": IDENTIFIER, "text": "values of type text have no cells"})
"""Types of columns that no release can have, and why."""
BETWEEN = "|"
"""Stands between categories."""
_YES, _NO = ("yes", "true", "1", "y"), ("no", "false", "0", "n", "")


def delimiter_of(header: str) -> str | None:
    """What stands between the fields of a header; None if it is not that of such a file."""
    for delimiter in ",;\t":
        names = _fields(header, delimiter)
        if set(NEEDED) <= set(names) and set(names) <= set(KEYS):
            return delimiter
    return None


def _near_miss(header: str) -> bool:
    """Whether a header has name and type, and a name that no such file has."""
    return any(set(NEEDED) <= set(_fields(header, delimiter)) for delimiter in ",;\t")


def from_column_list(text: str, name: str) -> Description:
    """The table whose columns are listed.

    Args:
        text: Of the file, whose header ``delimiter_of`` knows.
        name: Of the file, for messages.

    Raises:
        DescriptionError: A row cannot be read.
    """
    delimiter = delimiter_of(text.partition("\n")[0])
    assert delimiter is not None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    findings = Findings()
    rows: list[tuple[dict[str, str], str]] = []
    unfit = 0
    try:
        header = [each.strip().lower() for each in next(reader)]
        for row in reader:
            where = f"{name}:{reader.line_num}"
            if len(row) > len(header) or len(set(header)) < len(header):
                unfit += 1
                if unfit <= MOST_FAULTS + 1:
                    fault = DescriptionError("The row and the header do not fit.", where=where)
                    findings.errors.append(fault)
                continue
            cells = dict.fromkeys(KEYS, "") | dict(zip(header, map(str.strip, row), strict=False))
            if any(cells.values()):
                rows.append((cells, where))
    except csv.Error:
        findings.errors.append(
            DescriptionError(
                "A row is not CSV: check its quotes.", where=f"{name}:{reader.line_num}"
            )
        )
    readable = sum(cells["type"].lower() in (*TYPES, *LEFT_OUT) for cells, _ in rows)
    described = 2 * readable > len(rows) + unfit
    if not described and findings.errors:
        raise findings.errors[0]  # it may be a data file
    reads = [partial(_row, cells, where, quoting=described) for cells, where in rows]
    if not described:
        for read in reads:  # up to the first fault, likewise
            read()
    columns, left_out = sorted_out(reads, name, findings)
    return Description(form="a list of columns", columns=columns, left_out=left_out)


def _row(cells: Mapping[str, str], where: str, *, quoting: bool) -> DescribedColumn | LeftOut:
    """The column of a row, or why there is none."""
    reason = LEFT_OUT.get(cells["type"].lower())
    if reason is None:
        return column_of(cells, where, quoting=quoting)
    return LeftOut(cells["name"], reason)


def column_of(cells: Mapping[str, str], where: str, *, quoting: bool = False) -> DescribedColumn:
    """A column from the text that is given for each key; blank text is nothing.

    Args:
        cells: The text.
        where: The place in the file.
        quoting: Whether a message may repeat a type that cannot be read, and its column's name:
            of a file most of whose rows have a type. Any other may be a data file by mistake.

    Raises:
        DescriptionError: Something cannot be read.
    """
    kind = next((each for each in TYPES if each == cells["type"].lower()), None)
    if kind is None:
        what = "The type"
        if quoting:
            what = f"The type of the column '{line(cells['name'])}', '{line(cells['type'])}',"
        raise DescriptionError(
            f"{what} is not one of {', '.join((*TYPES, *LEFT_OUT))}.",
            where=where,
            next_step="Correct it, or write id or text, which are left out; and if this file "
            "holds records, it is not a description.",
        )
    missing, further, values = all_of(
        partial(_flag, cells, "missing", where),
        partial(_further, cells, where),
        partial(_values, cells, kind, where),
    )
    words: dict[str, Any] = dict(words_of(cells["label"], cells["description"], cells["unit"]))
    return DescribedColumn(
        name=cells["name"], type=kind, missing=missing, further=further, **values, **words
    )


def _values(cells: Mapping[str, str], kind: ColumnType, where: str) -> dict[str, Any]:
    """What a column of this type may hold, as arguments of ``DescribedColumn``."""
    listed = "categories" if kind in ("categorical", "ordinal") else "special"
    texts = [each.strip() for each in cells[listed].split(BETWEEN)] if cells[listed] else []
    labels = [each.strip() for each in cells["value_labels"].split(BETWEEN)]
    labelled = texts and cells["value_labels"]
    if labelled and len(labels) != len(texts):
        what = "special values" if listed == "special" else listed
        raise DescriptionError(
            f"There are {len(labels)} value_labels for {len(texts)} {what}.", where=where
        )
    found: dict[str, Any] = {"value_labels": tuple(labels) if labelled else None}
    if listed == "categories":
        return found | {"categories": values_of(texts) if texts else None}
    found["special"] = special_of(kind, texts, f"{where}: special")
    low, high = (
        (cells[key], f"{where}: {key}")
        for key in (
            "lower" if cells["lower"] or not cells["first"] else "first",
            "upper" if cells["upper"] or not cells["last"] else "last",
        )
    )
    if kind == "integer":
        ends = all_of(partial(whole, *low, up=True), partial(whole, *high, up=False))
    else:
        read = number if kind == "numeric" else day
        ends = all_of(partial(read, *low), partial(read, *high))
    return found | {"lower": ends[0], "upper": ends[1]}


def _further(cells: Mapping[str, str], where: str) -> dict[str, Any]:
    """Keys that a config takes as they are."""
    width, bins, by, other = all_of(
        partial(whole, cells["width"], f"{where}: width", up=True),
        partial(whole, cells["bins"], f"{where}: bins", up=True),
        partial(_period, cells["by"], where),
        partial(_flag, cells, "other", where),
    )
    found = {"width": width, "bins": bins, "by": by, "other": other or None}
    return {key: value for key, value in found.items() if value is not None}


def _period(text: str, where: str) -> str | None:
    if text in ("", "year", "month", "day"):
        return text or None
    raise DescriptionError("'by' is not year, month or day.", where=where)


def _flag(cells: Mapping[str, str], key: str, where: str) -> bool:
    if cells[key].lower() in _YES:
        return True
    if cells[key].lower() in _NO:
        return False
    raise DescriptionError(f"'{key}' is yes or no.", where=where)


def _fields(header: str, delimiter: str) -> list[str]:
    try:
        row = next(csv.reader([header.rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []
    return [each.strip().lower() for each in row]
