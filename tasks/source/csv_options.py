"""How a CSV is written, as its config declares it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The form of a CSV with a header and double quotes.

    Attributes:
        delimiter: One character between fields.
        encoding: Of the text, by Python's name.
        decimal: Decimal mark of numbers, ``.`` or ``,``.
        thousands: One character between groups of digits, if numbers may have one.
        date_format: Of dates, in the directives of ``strptime``; None for ISO 8601.
        null_values: Fields that stand for no value, besides the empty one.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str | None = None
    date_format: str | None = None
    null_values: tuple[str, ...] = ()
