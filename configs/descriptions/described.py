"""What a public description says of a table, whatever its form."""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from configs.findings import Findings
from configs.sections.checks import RESERVED_COLUMNS
from mechanisms.errors import DescriptionError

ColumnType = Literal["categorical", "ordinal", "integer", "numeric", "date"]
Category = str | int | bool | Decimal
Bound = int | Decimal | datetime.date
ASKED = "answers"
"""The form of a description that somebody gave at a terminal."""
MOST_FAULTS = 50
"""That are named of a table."""
_LONGEST_LINE = 1000
_LONGEST_UNIT = 100
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})?(\.[0-9]{1,30})?")
_LARGEST = 10**300


@dataclass(frozen=True, kw_only=True)
class DescribedColumn:
    """A column as described. What the description does not give is None.

    Attributes:
        name: In the source.
        type: As in a config.
        categories: Of a categorical or ordinal column.
        value_labels: As many as categories.
        lower: Least value, for a date the first; both ends are included.
        upper: Largest value, or the last date.
        missing: Whether nulls may occur.
        label: In a few words.
        description: In more.
        unit: Of the values.
        missing_codes: Values that stand for a missing one.
        further: Keys of the config that the description gives as such: ``width``, ``bins``...
    """

    name: str
    type: ColumnType
    categories: tuple[Category, ...] | None = None
    value_labels: tuple[str, ...] | None = None
    lower: Bound | None = None
    upper: Bound | None = None
    missing: bool = False
    label: str | None = None
    description: str | None = None
    unit: str | None = None
    missing_codes: tuple[str, ...] = ()
    further: Mapping[str, Any] = field(default_factory=dict)


IDENTIFIER = (
    "it names each record, or what the records belong to: if several may have one name, protect"
    " them together by 'unit: {column: …, max_records: …}' below"
)
"""Why identifiers are left out, and what they may be instead of a column."""


@dataclass(frozen=True)
class LeftOut:
    """A column that no release can have, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Description:
    """A table as described.

    Attributes:
        form: Of the description, in words.
        columns: In the table's order.
        left_out: Columns that are not among them.
        title: Of the table.
        path: Where the table lies, as the description has it.
        n_records: How many records it has.
        missing_codes: Values that stand for a missing one in every column.
        delimiter: Between the fields of the table, if it is a CSV.
        encoding: Of its text.
        notes: What else to tell whoever reviews the config.
        about: The section ``about`` of a config, as far as it is described.
    """

    form: str
    columns: tuple[DescribedColumn, ...]
    left_out: tuple[LeftOut, ...] = ()
    title: str | None = None
    path: str | None = None
    n_records: int | None = None
    missing_codes: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str | None = None
    notes: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


def all_of(*reads: Callable[[], Any]) -> list[Any]:
    """What all of them read.

    Raises:
        DescriptionError: Of the first that cannot, with those of the others.
    """
    findings, found = Findings(), []
    for read in reads:
        with findings.noting():
            found.append(read())
    findings.settle()
    return found


def sorted_out(
    reads: Iterable[Callable[[], DescribedColumn | LeftOut]],
    where: str,
    findings: Findings | None = None,
) -> tuple[tuple[DescribedColumn, ...], tuple[LeftOut, ...]]:
    """The columns that a config can declare, and the others.

    Args:
        reads: Each reads one of the columns.
        where: The file, for messages.
        findings: What is wrong with the table already.

    Raises:
        DescriptionError: A column cannot be read or its name occurs twice, with all other such
            faults; or there is no column to declare.
    """
    findings = findings or Findings()
    columns: list[DescribedColumn] = []
    others: list[LeftOut] = []
    names: set[str] = set()
    for read in reads:
        if len(findings.errors) > MOST_FAULTS:
            break
        with findings.noting():
            each = read()
            _check_name(each.name, names, where)
            names.add(each.name)
            if isinstance(each, LeftOut):
                others.append(each)
            elif each.name in RESERVED_COLUMNS:
                others.append(
                    LeftOut(each.name, "a column of every table of counts; rename it in the source")
                )
            elif _cells(each, f"{where}: {each.name}") == 1:
                others.append(LeftOut(each.name, "it has a single value"))
            else:
                columns.append(each)
    if len(findings.errors) > MOST_FAULTS:
        findings.errors[MOST_FAULTS:] = [
            DescriptionError(
                "There are more faults.", where=where, next_step="Correct these first."
            )
        ]
    findings.settle()
    if not columns:
        raise DescriptionError(
            "The description has no column that a release can have.", where=where
        )
    return tuple(columns), tuple(others)


def _check_name(name: str, known: set[str], where: str) -> None:
    """Refuse a name that cannot be printed, or that another column has."""
    printable = bool(name) and name.isprintable()
    if not printable or name in known:
        raise DescriptionError(
            f"The column '{name}' is described twice."
            if printable
            else "A column has no printable name.",
            where=where,
            next_step="Give every column a name of its own in the description.",
        )


def _cells(column: DescribedColumn, where: str) -> int | None:
    """How many values there are, missing among them; None if that is not given or does not matter.

    Raises:
        DescriptionError: The bounds are in the wrong order.
    """
    least, largest = column.lower, column.upper
    if column.categories is not None:
        if len(set(map(str, column.categories))) < len(column.categories):
            raise DescriptionError("A category is listed twice.", where=where)
        return len(column.categories) + column.missing
    if least is None or largest is None:
        return None
    if least > largest:  # type: ignore[operator]
        raise DescriptionError("The least value is above the largest.", where=where)
    if least < largest:  # type: ignore[operator]
        return None
    return 1 if column.type == "numeric" else 1 + column.missing


def line(text: object, longest: int = _LONGEST_LINE) -> str | None:
    """Text as one line that a config may hold; None for what is not text or is blank."""
    if not isinstance(text, str):
        return None
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def words_of(label: object, description: object, unit: object) -> dict[str, str | None]:
    """The words of a column as keyword arguments; a description equal to the label is dropped."""
    first, second = line(label) or None, line(description) or None
    return {
        "label": first,
        "description": None if second == first else second,
        "unit": line(unit, _LONGEST_UNIT) or None,
    }


def values_of(texts: Sequence[str], *, text_only: bool = False) -> tuple[Category, ...]:
    """Listed values: numbers if all of them are written as numbers, else text."""
    if not text_only:
        if all(map(_WHOLE.fullmatch, texts)):
            return tuple(map(int, texts))
        if all(any(c.isdigit() for c in text) and _NUMBER.fullmatch(text) for text in texts):
            return tuple(map(Decimal, texts))
    return tuple(texts)


def number(value: object, where: str) -> Decimal | None:
    """A bound that is a number; None if there is none.

    Raises:
        DescriptionError: It is something else.
    """
    if value is None or value == "":
        return None
    if isinstance(value, (int, Decimal, str)) and not isinstance(value, bool):
        try:
            found = Decimal(value.strip() if isinstance(value, str) else value)
        except InvalidOperation:
            found = Decimal("nan")
        if found.is_finite() and abs(found) < _LARGEST and found.adjusted() > -300:
            return found
    raise DescriptionError("This is not a number.", where=where)


def whole(value: object, where: str, *, up: bool) -> int | None:
    """A bound of whole numbers: the nearest within a fractional one.

    Raises:
        DescriptionError: It is not a number.
    """
    found = number(value, where)
    if found is None:
        return None
    return math.ceil(found) if up else math.floor(found)


def day(value: object, where: str) -> datetime.date | None:
    """A bound that is a date, in ISO 8601, perhaps with a time; None if there is none.

    Raises:
        DescriptionError: It is something else.
    """
    if value is None or value == "":
        return None
    try:
        return datetime.date.fromisoformat(str(value).strip()[:10])
    except ValueError:
        pass
    raise DescriptionError("This is not a date such as 2000-12-31.", where=where)


def between(
    common: Mapping[str, Any],
    kind: Literal["numeric", "date"],
    ends: tuple[object, object],
    where: str,
) -> DescribedColumn:
    """A column of numbers or of dates between bounds as they are written, if there are any."""
    read = number if kind == "numeric" else day
    lower, upper = all_of(*(functools.partial(read, end, where) for end in ends))
    return DescribedColumn(**common, type=kind, lower=lower, upper=upper)
