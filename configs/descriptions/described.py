"""What a public description says of a table and of who publishes it, whatever its form.

Numbers of JSON are exact. YAML is written as a person would: plain text where it can be, lists
wrapped at 100 columns. What identifies the described table, and its page, are not taken: they are
not the release's.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, NoReturn

from pydantic import ValidationError

from statpress.configs.about import AboutConfig
from statpress.configs.checks import RESERVED_COLUMNS
from statpress.configs.order import flow_text
from statpress.configs.yaml_text import Findings
from statpress.mechanisms.errors import DescriptionError


def parse_json(text: str, name: str) -> Any:
    """The value of a JSON text; numbers with a point are decimals.

    Raises:
        DescriptionError: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refused)
    except json.JSONDecodeError as error:
        problem = f"This is not JSON: {error.msg}."
        where = f"{name}:{error.lineno}:{error.colno}"
    except RecursionError:
        problem, where = "The JSON is nested too deeply.", name
    except ValueError:
        problem, where = "This is not JSON: it holds a number that JSON cannot.", name
    raise DescriptionError(problem, where=where)


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value if it is a list, else an empty one; a single value is a list of itself."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)


WIDTH = 100
_WORDS = "true|false|null|yes|no|on|off|y|n"
_PLAIN = re.compile(rf"(?i:(?!({_WORDS})$)[^\W\d_])[\w./$%()'+&-]*( [\w./$%()'+&-]+)*(?<![-:])")
"""Text that YAML reads as text without quotes, inside brackets too."""


def listed(key: str, values: Sequence[Any]) -> list[str]:
    """A list in brackets, wrapped as the shipped configs wrap it."""
    parts = [scalar(value) for value in values]
    whole = f"    {key}: [{', '.join(parts)}]"
    if len(whole) <= WIDTH:
        return [whole]
    lines, now = [f"    {key}:"], "      ["
    for i, part in enumerate(parts):
        piece = part + ("]" if i == len(parts) - 1 else ",")
        if len(now) + len(piece) > WIDTH and now.strip() not in ("[", ""):
            lines.append(now.rstrip())
            now = "       "
        now += f"{piece} "
    return [*lines, now.rstrip()]


def flow(value: Any) -> str:
    """A value or a list of values on one line."""
    return f"[{', '.join(map(scalar, value))}]" if isinstance(value, list) else scalar(value)


def scalar(value: Any) -> str:
    """A value as YAML 1.2, the way a person would write it."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else flow_text(value)
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < 10**15:
            return str(int(value))
        written = str(value)
        if "E" not in written:
            return written
        mantissa, _, exponent = written.partition("E")
        return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}e{int(exponent)}"
    return flow_text(value)


def comment(text: str, indent: str = "") -> list[str]:
    """A comment, wrapped; what is not printable is left out."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(
        words, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


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
        value_labels: As many as categories, or as special values.
        special: Values of a range that the description lists apart, such as codes with a meaning.
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
    special: tuple[Bound, ...] = ()
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
    """Number of values, the missing one included; None if it is not given or does not matter."""
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


def special_of(kind: ColumnType, texts: Iterable[str], where: str) -> tuple[Bound, ...]:
    """Values of a range that have cells of their own.

    Raises:
        DescriptionError: One is not of the column's type.
    """
    found: list[Bound] = []
    for text in texts:
        value = day(text, where) if kind == "date" else number(text, where)
        whole_number = isinstance(value, Decimal) and value == value.to_integral_value()
        if value is None or (kind == "integer" and not whole_number):
            raise DescriptionError("A special value is not one of the column's type.", where=where)
        found.append(int(value) if isinstance(value, Decimal) and whole_number else value)
    return tuple(found)


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


Party = Mapping[str, object]


def about_of(
    *,
    description: object = None,
    publisher: Party | None = None,
    contact: Party | None = None,
    licence: Party | None = None,
    keywords: Iterable[object] = (),
    temporal: Party | None = None,
    spatial: Party | None = None,
) -> dict[str, Any]:
    """The section ``about`` of what is given, without what a config would refuse.

    >>> about_of(licence={"id": "cc0-1.0"}, publisher={"name": "Office", "url": "nowhere"})
    {'publisher': {'name': 'Office'}, 'licence': 'cc0-1.0'}

    Args:
        description: Text.
        publisher: With ``name`` and ``url``.
        contact: With ``name``, ``email`` and ``url``.
        licence: With ``id``, ``name`` and ``url``; any of these may be an SPDX identifier.
        keywords: Texts.
        temporal: With ``start`` and ``end``.
        spatial: With ``name`` and ``url``.
    """
    found: dict[str, Any] = {}
    for key, value in {
        "description": line(description),
        "publisher": _blanked(publisher),
        "contact": _blanked(contact),
        "licence": _licence(_blanked(licence)),
        "keywords": list(dict.fromkeys(filter(None, (line(each, 100) for each in keywords)))),
        "temporal": _blanked(temporal),
        "spatial": _blanked(spatial),
    }.items():
        fitting = _fitting(key, value) if value else None
        if fitting:
            found[key] = fitting
    return found


def _blanked(party: Party | None) -> dict[str, str]:
    """The texts of a mapping, without blank ones."""
    texts = {key: line(value) for key, value in (party or {}).items()}
    return {key: text for key, text in texts.items() if text}


def _licence(said: Mapping[str, str]) -> Any:
    """A licence by its SPDX identifier, which addresses of licences hold too, or by its name."""
    for text in said.values():
        if _fits("licence", text):
            return text
    path = said.get("url", "").rstrip("/").rpartition("/")[2]
    known = path.removesuffix(".html") if "spdx.org" in said.get("url", "") else ""
    if known and _fits("licence", known):
        return known
    name = said.get("name") or said.get("id")
    return {"name": name, "url": said["url"]} if name and "url" in said else None


def _fitting(key: str, value: Any) -> Any:
    """A value that a config takes: of a mapping without the parts that it refuses; or None."""
    if _fits(key, value):
        return value
    if not isinstance(value, dict):
        return None
    for part in value:
        rest = {k: v for k, v in value.items() if k != part}
        if rest and _fits(key, rest):
            return rest
    return None


def _fits(key: str, value: Any) -> bool:
    try:
        AboutConfig.model_validate({key: value})
    except ValidationError:
        return False
    return True
