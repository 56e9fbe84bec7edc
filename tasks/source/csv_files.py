"""The files of a CSV: as UTF-8, the query that parses them, and what is wrong with them.

Where the fault lies, and what the file holds there, is for the curator log.

The engine reads UTF-8. It knows two more encodings, of which it refuses some letters and takes a
file of the other byte order for an empty one; so text of any other encoding is written once as
UTF-8 into the run's private folder, and goes when the source is closed.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
import glob
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, cast

from statpress.mechanisms.errors import SourceUnreadableError
from statpress.tasks.source.engine import CsvOptions, connect
from statpress.tasks.source.guarding import new_file, writable, write_all


class Fault(Enum):
    """A kind of fault: what is said of it, and the next step."""

    NOT_TEXT = (
        "it is a workbook, an archive or another binary file, not text",
        "Save it as a CSV.",
    )
    COMPRESSION = ("its compressed data is damaged", "Deliver the file again.")
    ENCODING = (
        "it holds bytes that are not text of the declared encoding",
        "Declare the file's own as source.encoding.",
    )
    HEADER = ("it does not begin with a header of column names", "See that it does.")
    HEADERS = ("its files have different headers", "Deliver files of one form.")
    DELIMITER = ("one column found; is the delimiter {0}?", "Declare it as source.delimiter.")
    RAGGED = (
        "a row has more or fewer fields than the header",
        "Check source.delimiter, and that fields with a delimiter in them are quoted.",
    )
    QUOTES = (
        "a quoted field does not end, or goes on after its closing quote",
        'Double the quotes within a quoted field: "a ""b"" c".',
    )
    LINE_ENDS = (
        "its lines end in different ways",
        "Let all of them end in a line feed, or all in a carriage return and a line feed.",
    )
    LONG_LINE = (
        "a line is longer than two million bytes",
        "Check that quotes are closed, or leave out columns of long texts.",
    )


FOUND_BY_ENGINE = {
    "MISSING COLUMNS": Fault.RAGGED,
    "TOO MANY COLUMNS": Fault.RAGGED,
    "UNQUOTED VALUE": Fault.QUOTES,
    "LINE SIZE OVER MAXIMUM": Fault.LONG_LINE,
    "INVALID ENCODING": Fault.ENCODING,
}
"""By the engine's own names of errors in a CSV."""


def cannot_be_read(where: str, fault: Fault, *details: str) -> SourceUnreadableError:
    """The error that names a fault."""
    said, next_step = fault.value
    return SourceUnreadableError(
        f"The source cannot be read as csv: {said.format(*details)}"
        + ("" if said.endswith("?") else "."),
        where=where,
        next_step=next_step,
    )


_BLANKS = frozenset(("na", "n/a", "nan", "null", "none", "-", "--", ".", "?", "missing", "unknown"))
_DAY = re.compile(r"(\d{1,2})([./-])(\d{1,2}|[A-Za-z]{3})\2(\d{4}|\d\d)")


def likely_keys(field: str, kind: str, options: CsvOptions) -> str:
    """The keys of a source with which an unreadable field would be read; empty if none fits.

    What it says is made of the field, so it is for the curator only.

    >>> likely_keys("1.234,50", "numeric", CsvOptions())
    'decimal: ",", thousands: "."'
    >>> likely_keys("24.12.1999", "date", CsvOptions())
    'date_format: "%d.%m.%Y"'
    >>> likely_keys("four", "integer", CsvOptions())
    ''
    """
    text, mark = field.strip(), options.decimal
    if text.lower() in _BLANKS:
        return f"null_values: [{json.dumps(text)}]"
    if kind == "date":
        return _likely_format(text, options)
    other, digits = ("," if mark == "." else "."), r"[-+]?\d{1,3}"
    if re.fullmatch(rf"{digits}([{mark}]\d{{3}})+[{other}]\d+", text):
        return f'decimal: "{other}", thousands: "{mark}"'
    if found := re.fullmatch(rf"{digits}([{other}' ])\d{{3}}(\1\d{{3}})*([{mark}]\d+)?", text):
        both = (
            f', or decimal: "{other}"' if re.fullmatch(rf"{digits}[{other}]\d{{3}}", text) else ""
        )
        return f'thousands: "{found[1]}"{both}'
    if re.fullmatch(rf"[-+]?\d*[{other}]\d+([eE][-+]?\d+)?", text):
        return f'decimal: "{other}"'
    mark = next((m for m in ";\t|," if m in text and m != options.delimiter), "")
    return f"delimiter: {json.dumps(mark)}" if mark else ""


def _likely_format(text: str, options: CsvOptions) -> str:
    """The ``date_format`` of a date."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d([T ].*)?", text):
        return "no date_format" if options.date_format else ""
    if re.fullmatch(r"\d{8}", text):
        return 'date_format: "%Y%m%d"'
    if found := re.fullmatch(r"\d{4}([./-])\d{1,2}\1\d{1,2}", text):
        return f'date_format: "%Y{found[1]}%m{found[1]}%d"'
    if not (found := _DAY.fullmatch(text)):
        return ""
    first, mark, second, year = found.groups()
    end = f"{mark}{'%Y' if len(year) == 4 else '%y'}"
    if not second.isdigit():
        return f'date_format: "%d{mark}%b{end}"'
    day_first, month_first = (f'"{form}{end}"' for form in (f"%d{mark}%m", f"%m{mark}%d"))
    if int(second) > 12:
        return f"date_format: {month_first}"
    both = "" if int(first) > 12 or mark == "." else f", or {month_first}"
    return f"date_format: {day_first}{both}"


class CsvFaultError(Exception):
    """A fault where it was found; private, and never let out as it is.

    Args:
        fault: What is wrong.
        path: Of the file.
        line: Of the file, from 1, if it is known.
        details: As ``cannot_be_read`` takes them; public.
    """

    def __init__(self, fault: Fault, path: str, line: int | None = None, *details: str) -> None:
        self.fault, self.details = fault, details
        place = f"line {line} of {path}" if line else path
        super().__init__(f"{fault.name}: {place}")


_CHUNK = 1 << 20
_BINARY = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF", b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'", ",": "','"}
_CONTROLS = re.compile("[\x80-\x9f]")  # in no text, but in text of another encoding


@dataclass(frozen=True)
class CsvFiles:
    """The files of a source, in UTF-8 and with one header.

    Attributes:
        options: How they are written.
        names: Their paths as the source has them.
        paths: Where the engine reads them, in the same order.
        header: Names of their columns.
    """

    options: CsvOptions
    names: tuple[str, ...]
    paths: tuple[str, ...]
    header: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], options: CsvOptions, folder: Path) -> CsvFiles:
        """The files, each checked to be text with the header of the first.

        Args:
            names: Paths; those that end in ``.gz`` are compressed.
            options: How they are written.
            folder: Private; copies in UTF-8 go below it, for the caller to remove.

        Raises:
            CsvFaultError: A file is not text of the declared encoding, or lacks a header.
            OutputNotWritableError: The disk has no room for a copy.
        """
        for name in names:
            _check_beginning(name, options.encoding)
        paths = list(names)
        if options.encoding == "utf-8":
            for name in (name for name in names if name.endswith(".gz")):
                _check_whole(name)
        else:
            paths = [_copy(n, options.encoding, folder / f"{i}.csv") for i, n in enumerate(names)]
        header: tuple[str, ...] = ()
        for name, path in zip(names, paths, strict=True):
            found = _header(name, path, options)
            header = header or found
            if found != header:
                raise CsvFaultError(Fault.HEADERS, name, 1)
        return cls(options, tuple(names), tuple(paths), header)

    def select(self, **more: str) -> str:
        """A query for the columns as text ``c0``, ``c1``, ..., with null where there is no value.

        Args:
            more: Options of the engine's reader.
        """
        columns = range(len(self.header))
        options = {
            "columns": "{" + ", ".join(f"c{i}: 'VARCHAR'" for i in columns) + "}",
            "delim": _quoted(self.options.delimiter),
            "auto_detect": "false", "header": "true", "quote": "'\"'", "escape": "'\"'",
            "comment": "''", "nullstr": "''", "strict_mode": "true", "ignore_errors": "false",
            "null_padding": "false", "hive_partitioning": "false",
        } | more  # fmt: skip
        files = ", ".join(_quoted(glob.escape(path)) for path in self.paths)
        settings = ", ".join(f"{name}={value}" for name, value in options.items())
        written = ", ".join(map(_quoted, ("", *self.options.null_values)))
        nulls = ["''" if name == self.options.unit else written for name in self.header]
        # Not the bare columns: DuckDB 2.0 moves a TRY_CAST of those into its CSV
        # reader, where it fails instead of giving null (duckdb issue 23818).
        values = ", ".join(
            f"CASE WHEN c{i} IN ({nulls[i]}) THEN NULL ELSE c{i} END AS c{i}" for i in columns
        )
        return f"SELECT {values} FROM read_csv([{files}], {settings})"  # noqa: S608  (quoted)

    def first_fault(self, scratch: Path) -> CsvFaultError | None:
        """The first fault that the engine meets, reading the files again one by one."""
        import duckdb

        for name, path in zip(self.names, self.paths, strict=True):
            one = CsvFiles(self.options, (name,), (path,), self.header)
            query = one.select(ignore_errors="true", store_rejects="true", rejects_limit="1")
            counts = ", ".join(f"count(c{i})" for i in range(len(self.header)))
            engine = connect(scratch, threads=1)
            try:
                engine.con.execute(f"SELECT {counts} FROM ({query})").fetchall()  # noqa: S608
                rejects = "SELECT line, error_type FROM reject_errors ORDER BY line LIMIT 1"
                found = engine.con.execute(rejects).fetchone()
            except duckdb.Error:
                return CsvFaultError(Fault.LINE_ENDS if _mixed(path) else Fault.QUOTES, name)
            finally:
                engine.disconnect()
            if found is not None and found[1] in FOUND_BY_ENGINE:
                return CsvFaultError(FOUND_BY_ENGINE[found[1]], name, found[0])
        return None

    def place_of(self, record: int, column: str) -> tuple[int, str] | None:
        """The line on which a record of a single file begins, and a field of it as it stands.

        Returns:
            None where Python's reader does not get there.
        """
        found, begins = 0, 1
        with contextlib.suppress(csv.Error, ValueError, OSError), _opened(self.paths[0]) as file:
            rows = csv.reader(_lines(file), delimiter=self.options.delimiter)
            for row in rows:
                if row or len(self.header) == 1:  # others are skipped by the engine
                    if found == record:
                        return begins, dict(zip(self.header, row, strict=False)).get(column, "")
                    found += 1
                begins = rows.line_num + 1
        return None

    def check_delimiter(self, wanted: Sequence[str]) -> None:
        """Ask for the delimiter where there is one column, and not a wanted one.

        Raises:
            CsvFaultError: So it is, and another delimiter divides the header.
        """
        if len(self.header) == 1 and not set(wanted) & set(self.header):
            for mark, said in _SEPARATORS.items():
                if mark in self.header[0] and mark != self.options.delimiter:
                    raise CsvFaultError(Fault.DELIMITER, self.names[0], 1, said)


def _check_beginning(path: str, encoding: str) -> None:
    """Refuse a file that is not text, or that begins with the mark of another encoding."""
    with _opened(path) as file:
        begins = file.read(4)
    if begins.startswith(_BINARY):
        raise CsvFaultError(Fault.NOT_TEXT, path, 1)
    marked = next((name for mark, name in _MARKS.items() if begins.startswith(mark)), None)
    if marked != encoding and (marked or encoding == "utf-16"):
        raise CsvFaultError(Fault.ENCODING, path, 1)


def _check_whole(path: str) -> None:
    """Refuse compressed data whose checksum is wrong, which the engine does not look at."""
    with _opened(path) as file:
        while file.read(_CHUNK):
            pass


def _header(name: str, path: str, options: CsvOptions) -> tuple[str, ...]:
    """The column names in the first record."""
    problem, line = Fault.HEADER, 1
    try:
        with _opened(path) as file:
            first = next(csv.reader(_lines(file), delimiter=options.delimiter, strict=True), [])
    except UnicodeDecodeError as error:  # also of what follows the header closely
        problem, first = Fault.ENCODING, []
        line += error.object[: error.start].count(b"\n")
    except csv.Error:
        first = []
    if any("\0" in column for column in first):
        problem, first = Fault.ENCODING, []
    if not any(first) or (first[0].startswith("sep=") and not any(first[1:])):
        raise CsvFaultError(problem, name, line)
    return tuple(first)


def _lines(file: IO[bytes]) -> Iterator[str]:
    """Lines of UTF-8 as they end, cut where they are longer than any header."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    return iter(lambda: text.readline(_CHUNK), "")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """A file's bytes, uncompressed."""
    if not path.endswith(".gz"):
        with open(path, "rb") as plain:
            yield plain
        return
    with gzip.open(path, "rb") as compressed:
        try:
            yield cast("IO[bytes]", compressed)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise CsvFaultError(Fault.COMPRESSION, path) from None


def _copy(path: str, encoding: str, target: Path) -> str:
    """Write a file as UTF-8; the path of the copy."""
    decoder, line = codecs.getincrementaldecoder(encoding)(), 1
    keep = functools.partial(
        writable, place=target, what="the source's text", next_step="deliver it as UTF-8"
    )
    with _opened(path) as file, contextlib.closing(keep(lambda: new_file(target))) as copy:
        while True:
            chunk = file.read(_CHUNK)
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                raise CsvFaultError(Fault.ENCODING, path, line) from None
            strange = _CONTROLS.search(text)
            if strange:
                raise CsvFaultError(
                    Fault.ENCODING, path, line + text.count("\n", 0, strange.start())
                )
            line += text.count("\n")
            keep(functools.partial(write_all, copy, memoryview(text.encode())))
            if not chunk:
                return str(target)


def _mixed(path: str) -> bool:
    """Whether lines end in more than one way."""
    ends, before = set(), b""
    with _opened(path) as file:
        while chunk := file.read(_CHUNK):
            chunk = before + chunk
            before = chunk[-1:] if chunk.endswith(b"\r") else b""
            ends |= set(re.findall(b"\r\n|\r|\n", chunk.removesuffix(before)))
    return len(ends) > 1


def _quoted(text: str) -> str:
    """Text as a constant of the engine."""
    return "'" + text.replace("'", "''") + "'"
