"""The text of a CSV as values of the type that a column needs, as expressions of the engine.

Text that does not stand for a value in the declared form is null here, and counted apart from
nulls (tasks.counting.digits). Nothing is guessed: digits are in groups only where a mark between
them is declared, the other decimal mark is not one, and years have four digits unless the declared
format has two.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from tasks.source.csv_options import CsvOptions

if TYPE_CHECKING:
    import ibis.expr.types as ir

_ISO_BEGINS = r"^\s*[0-9]{4}[^0-9]"
_FIRST_YEAR = 1000  # an earlier one is a year of fewer digits


def read_text(text: ir.StringValue, wanted: str, options: CsvOptions) -> Any:
    """A column of text as values.

    Args:
        text: Fields that are not empty, or null.
        wanted: ``string``, ``boolean``, ``number`` or ``date``.
        options: The declared form.

    Returns:
        An expression of that type, a number as the nearest double; null where the text cannot
        be read. Of an ISO 8601 date with a time and an offset the date stands as written.
    """
    if wanted == "number":
        return _number(text, options)
    if wanted == "date":
        return _date(text, options)
    return text if wanted == "string" else text.try_cast(wanted)


def _number(text: Any, options: CsvOptions) -> Any:
    import ibis

    written = text
    if options.thousands is not None:
        mark, point = re.escape(options.thousands), re.escape(options.decimal)
        grouped = (
            rf"^\s*[+-]?[0-9]{{1,3}}(?:{mark}[0-9]{{2,3}})*{mark}[0-9]{{3}}(?:{point}[0-9]*)?\s*$"
        )
        ungrouped = text.strip().replace(options.thousands, "")
        unmarked = text.strip().contains(options.thousands)
        written = unmarked.ifelse(text.re_search(grouped).ifelse(ungrouped, ibis.null(str)), text)
    if options.decimal == ",":
        written = written.translate(",.", ".,")  # a point is no decimal mark then
    # The engine takes 1_000 for a number.
    return written.contains("_").ifelse(ibis.null("float64"), written.try_cast("float64"))


def _date(text: Any, options: CsvOptions) -> Any:
    import ibis

    none = ibis.null("date")
    if options.date_format is None:
        return text.re_search(_ISO_BEGINS).ifelse(text.try_cast("date"), none)
    # Words such as "infinity" are dates to the engine.
    found = _try_strptime()(text, options.date_format).cast("date")
    known = text.re_search("[0-9]") & (found.year() >= _FIRST_YEAR)
    return known.ifelse(found, none)


@functools.cache
def _try_strptime() -> Any:
    """The engine's parser of dates that gives null instead of failing."""
    import ibis

    signature = (("string", "string"), "timestamp")
    return ibis.udf.scalar.builtin(
        lambda text, form: text, name="try_strptime", signature=signature
    )
