"""What can be wrong with a CSV: a fixed list, of which the public message names one.

Where the fault lies, and what the file holds there, is for the curator log.
"""

from __future__ import annotations

from enum import Enum

from mechanisms.errors import SourceUnreadableError


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
    """The error that names a fault.

    Args:
        where: The source's path.
        fault: What is wrong.
        details: Public words for what the fault's text leaves open.
    """
    said, next_step = fault.value
    return SourceUnreadableError(
        f"The source cannot be read as csv: {said.format(*details)}"
        + ("" if said.endswith("?") else "."),
        where=where,
        next_step=next_step,
    )


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
