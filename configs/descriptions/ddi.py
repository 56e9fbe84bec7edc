"""DDI Codebook: the variables of a data file, as archives and statistical offices describe them.

Source: DDI Codebook 2.5 (https://ddialliance.org/Specification/DDI-Codebook/2.5/), whatever its
namespace, so also 1.x, 2.0 to 2.6. Bounds are those of valid values (``valrng``); summary
statistics and frequencies are computed from the data and never looked at. XML is parsed without
entities and without anything from outside the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal
from xml.etree.ElementTree import Element, ParseError

from statpress.configs.descriptions.described import (
    DescribedColumn,
    Description,
    LeftOut,
    about_of,
    all_of,
    between,
    line,
    number,
    sorted_out,
    special_of,
    values_of,
    whole,
    words_of,
)
from statpress.mechanisms.domain.column import MOST_SPECIAL
from statpress.mechanisms.errors import DescriptionError

_SUMMARY = ("sumStat", "catStat")


def from_ddi(text: bytes, name: str, table: str | None) -> Description:
    """The data file that a codebook describes.

    Args:
        text: Of the file, in the encoding that it names.
        name: Of the file, for messages.
        table: The ``ID`` or name of the data file, where there are several.

    Raises:
        DescriptionError: It is not a codebook, uses what is refused, or it is not clear which
            file is meant.
    """
    root = _root(text, name)
    if _tag(root) == "DDIInstance":
        raise DescriptionError(
            "This is DDI Lifecycle (3.x), which is not read.",
            where=name,
            next_step="Export it as DDI Codebook (2.x).",
        )
    book = root if _tag(root) == "codeBook" else next(_all(root, "codeBook"), None)
    variables = [] if book is None else list(_all(book, "var"))
    if book is None or not variables:
        raise DescriptionError("This XML is not a DDI Codebook with variables.", where=name)
    files = {each.get("ID", str(i)): each for i, each in enumerate(_all(book, "fileDscr"))}
    chosen = _chosen(files, variables, name, table)
    columns, left_out = sorted_out(
        [
            partial(_column, each, name)
            for each in variables
            if chosen is None or chosen in each.get("files", chosen).split()
        ],
        name,
    )
    file = files.get(chosen, next(iter(files.values()), None)) if chosen else None
    if file is None and len(files) == 1:
        (file,) = files.values()
    summary = any(True for tag in _SUMMARY for _ in _all(book, tag))
    notes = ["Its summary statistics and frequencies were not looked at."] if summary else []
    return Description(
        form="a DDI codebook",
        columns=columns,
        left_out=left_out,
        title=_text(book, "stdyDscr", "citation", "titlStmt", "titl"),
        path=None if file is None else _text(file, "fileTxt", "fileName"),
        n_records=None if file is None else _count(file),
        notes=tuple(notes),
        about=_about(book),
    )


def _about(book: Element) -> dict[str, Any]:
    """Who distributes the study, and what it is about."""
    study = next(_children(book, "stdyDscr"), book)
    sender, contact = _found(study, "distrbtr"), _found(study, "contact")
    periods = [each for each in _all(study, "timePrd") if each.get("date")]
    ends = {each.get("event", "single"): (each.get("date") or "")[:10] for each in periods}
    single = ends.get("single")
    return about_of(
        description=_text(study, "stdyInfo", "abstract"),
        publisher={"name": _inside(sender), "url": sender.get("URI")},
        contact={
            "name": _inside(contact), "email": contact.get("email"), "url": contact.get("URI")
        },
        keywords=map(_inside, _all(study, "keyword")),
        temporal={"start": ends.get("start", single), "end": ends.get("end", single)},
        spatial={"name": _inside(_found(study, "geogCover")) or _inside(_found(study, "nation"))},
    )  # fmt: skip


def _found(element: Element, tag: str) -> Element:
    """The first element of a tag; an empty one if there is none."""
    return next(_all(element, tag), Element(tag))


def _inside(element: Element) -> str | None:
    """The text of an element."""
    return line("".join(element.itertext())) or None


def _root(text: bytes, name: str) -> Element:
    """The document, parsed without entities or anything from outside."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        found: Element = fromstring(text)
        return found
    except ParseError as error:
        line_number, column = error.position
        problem, where = "This is not well-formed XML.", f"{name}:{line_number}:{column + 1}"
    except DefusedXmlException:
        problem, where = "The XML declares entities, which are refused.", name
    except (ValueError, LookupError, RecursionError):
        problem, where = "This XML cannot be read.", name
    raise DescriptionError(problem, where=where)


def _chosen(
    files: dict[str, Element], variables: list[Element], name: str, table: str | None
) -> str | None:
    """The ID of the data file that is meant; None where every variable is of one file."""
    named = {each for variable in variables for each in variable.get("files", "").split()}
    used = [key for key in files if key in named]
    if table is not None:
        for key, file in files.items():
            if table in (key, _text(file, "fileTxt", "fileName")):
                return key
    elif len(used) <= 1 and all(v.get("files") for v in variables):
        return used[0] if used else None
    elif len(used) <= 1:
        return None
    raise DescriptionError(
        f"The codebook describes {len(files)} data files: {', '.join(files)}; "
        f"{'none of this name' if table else 'one has to be chosen'}.",
        where=name,
        next_step="Give the ID of one with --table. Households and persons are two drafts, whose "
        "sources and domains stand under 'tables' in one config.",
    )


def _column(variable: Element, name: str) -> DescribedColumn | LeftOut:
    """One variable as a column."""
    called = line(variable.get("name")) or ""
    where = f"{name}: {called or 'var'}"
    form = next(_children(variable, "varFormat"), None)
    as_text = form is not None and form.get("type") == "character"
    codes = list(_codes(variable))
    described = _text(variable, "txt") or _text(variable, "qstn", "qstnLit")
    common: dict[str, Any] = {
        "name": called,
        "missing": bool(codes),
        "missing_codes": tuple(codes),
        **words_of(_text(variable, "labl"), described, variable.get("measUnit")),
    }
    listed = [(_text(each, "catValu"), each) for each in _children(variable, "catgry")]
    categories = [(value, each) for value, each in listed if value is not None]
    continuous = variable.get("intrvl") == "contin" or not categories
    ranges = [each for found in _children(variable, "valrng") for each in _children(found, "range")]
    if not continuous:
        values = values_of([value for value, _ in categories], text_only=as_text)
        labels = [_text(each, "labl") or value for value, each in categories]
        ordered = variable.get("nature") == "ordinal"
        return DescribedColumn(
            **common,
            type="ordinal" if ordered else "categorical",
            categories=values,
            value_labels=tuple(labels) if labels != [value for value, _ in categories] else None,
        )
    if form is not None and form.get("category") in ("date", "time"):
        if form.get("category") == "time":
            return LeftOut(called, "values of type time have no cells")
        return DescribedColumn(**common, type="date")
    if as_text:
        return DescribedColumn(**common, type="categorical")
    whole_numbers = variable.get("dcml") == "0" or any(r.get("UNITS") == "INT" for r in ranges)
    kind: Literal["integer", "numeric"] = "integer" if whole_numbers else "numeric"
    apart = [
        (value, label)
        for value, each in categories
        if value not in codes and (label := _text(each, "labl")) not in (None, value)
    ]
    if 0 < len(apart) <= MOST_SPECIAL:  # labelled: a list of all that occurs has no labels
        common["special"] = special_of(kind, [value for value, _ in apart], where)
        common["value_labels"] = tuple(label for _, label in apart)
    least, above = _ends(ranges, "min")
    largest, below = _ends(ranges, "max")
    if kind == "integer":
        lower, upper, over, under = all_of(
            partial(whole, least, where, up=True),
            partial(whole, largest, where, up=False),
            partial(whole, above, where, up=False),
            partial(whole, below, where, up=True),
        )
        return DescribedColumn(
            **common,
            type="integer",
            lower=over + 1 if lower is None and over is not None else lower,
            upper=under - 1 if upper is None and under is not None else upper,
        )
    ends = least if least is not None else above, largest if largest is not None else below
    return between(common, kind, ends, where)


def _ends(ranges: list[Element], end: str) -> tuple[str | None, str | None]:
    """One end of the valid values: as given, and as excluded; of several ranges the outermost."""
    found: list[str | None] = []
    for key in (end, f"{end}Exclusive"):
        given = [each for each in (r.get(key) for r in ranges) if each]
        try:
            sort = sorted(given, key=lambda each: number(each, "") or 0)
        except DescriptionError:
            sort = given  # reported with its place by whoever asked
        found.append((sort[0] if end == "min" else sort[-1]) if sort else None)
    return found[0], found[1]


def _codes(variable: Element) -> Iterator[str]:
    """Values that the codebook calls missing."""
    for category in _children(variable, "catgry"):
        value = _text(category, "catValu")
        if category.get("missing") in ("Y", "y", "true") and value is not None:
            yield value
    for invalid in _children(variable, "invalrng"):
        for each in invalid:
            if _tag(each) == "item" and each.get("VALUE"):
                yield line(each.get("VALUE")) or ""
            elif _tag(each) == "range":
                ends = (each.get("min"), each.get("max"))
                yield " to ".join(line(end) or "" for end in ends if end)


def _count(file: Element) -> int | None:
    """Number of records that a file is said to have."""
    said = _text(file, "fileTxt", "dimensns", "caseQnty") or ""
    digits = said.replace(",", "").replace(" ", "")
    return int(digits) if digits.isdecimal() and len(digits) < 16 and int(digits) else None


def _tag(element: Element) -> str:
    """The name of an element without its namespace; that of a comment is empty."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _children(element: Element, tag: str) -> Iterator[Element]:
    return (each for each in element if _tag(each) == tag)


def _all(element: Element, tag: str) -> Iterator[Element]:
    return (each for each in element.iter() if _tag(each) == tag)


def _text(element: Element, *path: str) -> str | None:
    """The text of the first element on a path of tags."""
    found: Element | None = element
    for tag in path:
        found = None if found is None else next(_children(found, tag), None)
    return None if found is None else _inside(found)
