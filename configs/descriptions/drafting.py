"""A config drafted from a public description, or from answers column by column.

What a description does not give is left blank, and marked.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, get_args

from pydantic import TypeAdapter

from statpress.configs.declared_columns import ColumnConfig
from statpress.configs.descriptions.described import (
    ASKED,
    WIDTH,
    DescribedColumn,
    Description,
    about_of,
    comment,
    flow,
    line,
    listed,
    scalar,
    sorted_out,
)
from statpress.configs.descriptions.description_files import (
    BETWEEN,
    KEYS,
    TYPES,
    column_of,
)
from statpress.configs.formats import format_of
from statpress.configs.sources import Delimiter, Encoding
from statpress.configs.yaml_text import MARK
from statpress.mechanisms.domain.columns import tiled_uppers
from statpress.mechanisms.errors import DescriptionError, EdgesError

_BINS = 20
_MANY_VALUES = 1000
_MOST_COLUMNS = 100  # of microdata
_MARKED = re.compile(rf" *([\w]+:  )?# {MARK}: ")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a description of columns does not say; None where that is still open.

    Attributes:
        title: Of the release.
        dataset: The ledger account.
        source: Where the data lie, from the config's folder.
        n_records: Public number of records.
        epsilon: Of the budget.
        delta: Of the budget.
        name: Of the config's file.
        described_by: Name of the description's file; None where somebody was asked.
    """

    title: str | None = None
    dataset: str | None = None
    source: str | None = None
    n_records: int | None = None
    epsilon: Decimal | None = None
    delta: Decimal | None = None
    name: str = "release.yaml"
    described_by: str | None = None


@dataclass(frozen=True)
class Blank:
    """A value that a person has to fill in.

    Attributes:
        key: Dotted, as messages name it.
        hint: What belongs there.
        line: Of the config, from 1.
    """

    key: str
    hint: str
    line: int = 0

    @property
    def written(self) -> str:
        """The value's line in the config, from its own key on."""
        return f"{self.key.rpartition('.')[2]}:  # {MARK}: {self.hint}"


def draft(description: Description, frame: Frame) -> tuple[str, tuple[Blank, ...]]:
    """The text of a config, and what is to fill in.

    Nothing is made up: a bound, a list of categories, a size or a budget that is not given is
    blank, and ``statpress validate`` refuses it. Bins, widths and periods are a choice of cells
    within the given bounds.
    """
    blanks: list[Blank] = []
    lines = [*_head(description, frame)]
    for key, value, hint in (
        ("title", frame.title, "one line for people"),
        ("dataset", frame.dataset, "the account in the ledger"),
    ):
        lines.append(f"{key}: {scalar(value)}" if value else _blank(blanks, key, hint))
        if key == "title":
            lines += about_lines(description)
    if frame.source is None:
        path = _blank(blanks, "source.path", "the data, from this folder; never opened by 'init'")
        lines += ["source:", f"  {path}"]
    else:
        lines += _source(frame.source, description)
    lines += _section(
        "privacy",
        {"adjacency": "replace_one", "unit": "record", "n_records": frame.n_records},
        {"n_records": "how many records the source has; the number is public"},
        blanks,
    )
    lines += _section(
        "budget",
        {"epsilon": frame.epsilon, "delta": frame.delta},
        {
            "epsilon": "what this release may cost of the dataset's budget",
            "delta": "such as 1.0e-6; far below one over the number of records",
        },
        blanks,
    )
    lines.append("domain:")
    for column in description.columns:
        lines += _column(column, blanks)
    for each in description.left_out:
        lines += comment(f"Left out: {each.name}: {each.reason}.", "  ")
    lines += _products(description.columns, blanks)
    lines += _checks(description, () if _is_csv(frame.source) else description.missing_codes)
    if frame.delta is None or frame.delta:  # their noise needs a delta
        lines += comment("The checks have noise: 'statpress plan' says what they let pass.")
        lines.append("gate: {noise: true}")
    lines.append("publish: {directory: releases, formats: [parquet, csv]}")
    marked = [number for number, line in enumerate(lines, 1) if _MARKED.match(line)]
    placed = (replace(blank, line=at) for blank, at in zip(blanks, marked, strict=True))
    return "\n".join(lines) + "\n", tuple(placed)


def about_lines(description: Description) -> Iterator[str]:
    """The lines of a drafted config about who publishes, on what terms."""
    if not description.about:
        return
    yield "about:"
    if description.form != ASKED:
        yield from comment("As described; see that it is true of the release too.", "  ")
    for key, value in description.about.items():
        if isinstance(value, dict):
            inside = ", ".join(f"{part}: {scalar(text)}" for part, text in value.items())
            yield f"  {key}: {{{inside}}}"
        else:
            yield f"  {key}: {flow(value)}"


def _head(description: Description, frame: Frame) -> Iterator[str]:
    """Comments on where it comes from and what to do with it."""
    by = "answers given at a terminal"
    if frame.described_by is not None:
        by = f"{frame.described_by}, {description.form}"
    yield from comment(f"Drafted by 'statpress init' from {by}; no data was read.")
    yield from comment(
        f"Fill in what is marked {MARK}, and see that nothing here was taken from the data: bounds "
        "and categories are those that values may have, not those that they happen to have. Cells "
        f"are a choice: fewer of them are less noisy. Then run 'statpress validate {frame.name}'."
    )
    if description.missing_codes and not _is_csv(frame.source):
        codes = ", ".join(description.missing_codes[:20])
        yield from comment(f"Missing values are written {codes}: let them be null in the source.")
    for note in description.notes:
        yield from comment(note)


def _section(
    name: str, values: dict[str, Any], hints: dict[str, str], blanks: list[Blank]
) -> list[str]:
    """A section of single values: on one line where nothing is blank."""
    if all(value is not None for value in values.values()):
        inside = ", ".join(f"{key}: {scalar(value)}" for key, value in values.items())
        return [f"{name}: {{{inside}}}"]
    lines = [f"{name}:"]
    for key, value in values.items():
        if value is None:
            lines.append(f"  {_blank(blanks, f'{name}.{key}', hints[key])}")
        else:
            lines.append(f"  {key}: {scalar(value)}")
    return lines


def _is_csv(source: str | None) -> bool:
    return source is not None and format_of(source) == "csv"


def _source(path: str, description: Description) -> list[str]:
    """The source, with the form of a CSV as far as it is described and not the default."""
    keys = {"path": scalar(path)}
    if _is_csv(path):
        encoding = (description.encoding or "utf-8").lower()
        encoding = {"utf8": "utf-8", "iso-8859-1": "latin-1", "cp1252": "windows-1252"}.get(
            encoding, encoding
        )
        if encoding != "utf-8" and encoding in get_args(Encoding):
            keys["encoding"] = scalar(encoding)
        if description.delimiter not in (None, ",") and description.delimiter in get_args(
            Delimiter
        ):
            keys["delimiter"] = scalar(description.delimiter)
        if description.missing_codes:
            keys["null_values"] = flow(list(description.missing_codes))
    whole = f"source: {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}"
    if len(whole) <= WIDTH:
        return [whole]
    return ["source:", *(f"  {key}: {value}" for key, value in keys.items())]


def _column(column: DescribedColumn, blanks: list[Blank]) -> list[str]:
    """The lines of a column."""
    place = f"domain.{column.name}"
    keys: list[tuple[str, Any]] = [("type", column.type)]
    missing: dict[str, str] = {}
    if column.type in ("categorical", "ordinal"):
        keys.append(("categories", None if column.categories is None else list(column.categories)))
        missing["categories"] = (
            "every value that may occur, or remove the column if it is free text"
        )
        if column.value_labels is not None:
            keys.append(("value_labels", list(column.value_labels)))
    elif column.type == "date":
        keys += [("first", column.lower), ("last", column.upper), ("by", _period(column))]
        missing |= {"first": "the first possible date", "last": "the last possible date"}
    else:
        keys += [("lower", column.lower), ("upper", column.upper)]
        missing |= {"lower": "the least possible value", "upper": "the largest possible value"}
        if column.type == "numeric":
            keys.append(("bins", column.further.get("bins", _BINS)))
        else:
            keys += _width(column, missing)
    special = _special(column, dict(keys))
    if special:
        keys.append(("special", list(special)))
        if column.value_labels is not None:
            keys.append(("value_labels", list(special.values())))
    if column.further.get("other"):
        keys.append(("other", True))
    if column.missing:
        keys.append(("missing", True))
    words = (("label", column.label), ("description", column.description), ("unit", column.unit))
    keys += [(key, said) for key, said in words if said is not None]
    lines = [line for note in _notes(column) for line in comment(note, "  ")]
    name = scalar(column.name)
    if all(value is not None for _, value in keys):
        inside = ", ".join(f"{key}: {flow(value)}" for key, value in keys)
        whole = f"  {name}: {{{inside}}}"
        if len(whole) <= WIDTH:
            return [*lines, whole]
    lines.append(f"  {name}:")
    for key, value in keys:
        if value is None:
            lines.append(f"    {_blank(blanks, f'{place}.{key}', missing[key])}")
        elif isinstance(value, list):
            lines += listed(key, value)
        else:
            lines.append(f"    {key}: {scalar(value)}")
    return lines


def _special(column: DescribedColumn, keys: Mapping[str, Any]) -> dict[Any, str]:
    """The special values with their labels, without those that cannot have cells of their own."""
    kept = {}
    labels = column.value_labels or [""] * len(column.special)
    for value, label in zip(column.special, labels, strict=False):
        declared = {**keys, "special": [value]}
        try:
            if None not in keys.values():
                model: ColumnConfig = TypeAdapter(ColumnConfig).validate_python(declared)
                model.build(column.name, str.splitlines)
        except EdgesError:
            continue
        kept[value] = label
    return kept


def _width(column: DescribedColumn, missing: dict[str, str]) -> list[tuple[str, Any]]:
    """The width of an integer column: left to the reader where cells of one value are too many."""
    width, whole = column.further.get("width"), None
    if isinstance(column.lower, int) and isinstance(column.upper, int):
        whole = column.lower, column.upper
    if width is not None:
        if whole is None or width < 1 or (whole[1] - whole[0] + 1) % width == 0:
            return [("width", width)]
        uppers = tiled_uppers(*whole, width)
        missing["width"] = (
            f"{width} does not tile the {whole[1] - whole[0] + 1:,} values from {whole[0]} to"
            f" {whole[1]}: give upper {uppers} and this width, or a width that divides them"
        )
        return [("width", None)]
    if whole is None:
        return []
    values = whole[1] - whole[0] + 1
    if values <= _MANY_VALUES:
        return []
    tiling = [str(d) for d in range(2, min(values // 2, 10**6) + 1) if values % d == 0]
    fitting = [d for d in tiling if values // int(d) <= _MANY_VALUES][:3]
    hint = f"{values:,} values divide well by none: move a bound"
    if fitting:
        hint = f"{', '.join(fitting)} divide these {values:,} values"
    missing["width"] = f"values in a cell; {hint}"
    return [("width", None)]


def _period(column: DescribedColumn) -> str:
    """Cells of dates: as declared, or by the length of the range."""
    if "by" in column.further:
        return str(column.further["by"])
    if not (isinstance(column.lower, datetime.date) and isinstance(column.upper, datetime.date)):
        return "month"
    days = (column.upper - column.lower).days
    return "day" if days < 100 else "month" if days < 10 * 366 else "year"


def _notes(column: DescribedColumn) -> Iterator[str]:
    """What to see to in the source."""
    if column.missing_codes:
        codes = ", ".join(column.missing_codes[:20])
        advice = ": let them be null in the source" if column.categories is None else ""
        yield f"Missing values are written {codes}{advice}."


def _products(columns: Sequence[DescribedColumn], blanks: list[Blank]) -> list[str]:
    """One product: microdata of all columns."""
    lines = ["products:", "  microdata:"]
    if len(columns) > _MOST_COLUMNS:
        hint = f"choose at most {_MOST_COLUMNS} of these columns"
        blanks.append(Blank("products.microdata.columns", hint))
        lines.append(f"    # {MARK}: {hint}")
    return [*lines, "    kind: microdata", *listed("columns", [each.name for each in columns])]


def _checks(description: Description, codes: Sequence[str]) -> list[str]:
    """Codes of missing values that are not null in the source must not be clamped in silence."""
    coded = [
        each
        for each in description.columns
        if each.type in ("integer", "numeric", "date") and (each.missing_codes or codes)
    ]
    found = [f"  {scalar(each.name)}: {{outside_at_most: 0}}" for each in coded]
    return ["checks:", *found] if found else []


def _blank(blanks: list[Blank], key: str, hint: str) -> str:
    blank = Blank(key, hint)
    blanks.append(blank)
    return blank.written


Ask = Callable[[str], str]
"""Asks a question and gives the answer, blank for none."""
Tell = Callable[[str], None]

_CATEGORIES = (
    ("categories", f"every value that may occur, separated by {BETWEEN}"),
    ("value_labels", f"what each of them means, separated by {BETWEEN}"),
)
_QUESTIONS = MappingProxyType(
    {
        "categorical": _CATEGORIES,
        "ordinal": _CATEGORIES,
        "integer": (
            ("lower", "least possible value"),
            ("upper", "largest possible value"),
            ("width", "values in a cell"),
        ),
        "numeric": (
            ("lower", "least possible value"),
            ("upper", "largest possible value"),
            ("bins", "number of cells"),
        ),
        "date": (
            ("first", "first possible date"),
            ("last", "last possible date"),
            ("by", "cells by year, month or day"),
        ),
    }
)
_PUBLICATION = (
    ("Publisher of the release, such as an office", "publisher", "name"),
    ("E-mail address for questions about it", "contact", "email"),
    ("Licence, by its identifier in the SPDX list such as CC-BY-4.0", "licence", "id"),
)
_LAST = (("missing", "may it be missing (yes or no)"), ("label", "label"), ("unit", "unit"))


def interview(ask: Ask, tell: Tell) -> Description:
    """Ask for columns until a name is left blank.

    An answer that cannot be read is told and asked for again; any other answer but name and
    type may be blank.

    Raises:
        DescriptionError: No column was named.
    """
    columns: list[DescribedColumn] = []
    while True:
        name = line(ask(f"Column {len(columns) + 1}, its name in the source (nothing: no more)"))
        if not name:
            break
        if any(each.name == name for each in columns):
            tell("There is a column of this name already.")
            continue
        columns.append(_asked_column(name, ask, tell))
    found, left_out = sorted_out([partial(replace, column) for column in columns], "answers")
    return Description(form=ASKED, columns=found, left_out=left_out)


def publication(ask: Ask, tell: Tell) -> dict[str, Any]:
    """Ask who publishes and on what terms: the section ``about`` of a config.

    Any answer may be blank; one that a config would refuse is asked for again.
    """
    found: dict[str, Any] = {}
    for question, key, part in _PUBLICATION:
        while answer := line(ask(question)):
            about = about_of(**{key: {part: answer}})
            if about:
                found |= about
                break
            tell("  That is not one.")
    return found


def _asked_column(name: str, ask: Ask, tell: Tell) -> DescribedColumn:
    cells = dict.fromkeys(KEYS, "") | {"name": name}
    column = _asked(cells, "type", f"type ({', '.join(TYPES)})", ask, tell)
    for key, question in (*_QUESTIONS[column.type], *_LAST):
        if key != "value_labels" or cells["categories"]:
            column = _asked(cells, key, question, ask, tell)
    return column


def _asked(cells: dict[str, str], key: str, question: str, ask: Ask, tell: Tell) -> DescribedColumn:
    """Ask until the answer can be read; the column as far as it is known."""
    while True:
        cells[key] = ask(f"  {question}").strip()
        try:
            column = column_of(cells, cells["name"])
            sorted_out([partial(replace, column)], cells["name"])
            return column
        except DescriptionError as error:
            problem = error.what
        if key != "type" and "no column that a release" in problem:
            return column
        tell(f"  {problem}")
