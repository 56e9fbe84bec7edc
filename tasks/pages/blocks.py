"""A page as values: text, facts, tables and charts, in sections.

What a chart shows is a value too; ``charts`` draws it, and ``rendering`` makes a file of a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from markupsafe import Markup


Number = float | None
"""A value of a drawing; None where there is none."""


@dataclass(frozen=True)
class Bars:
    """A bar for each label, with a whisker from its lower to its upper end where both are known.

    Attributes:
        labels: From top to bottom.
        values: Length of each bar.
        lower: Where the whiskers begin; empty without whiskers.
        upper: Where they end.
        axis: What the lengths are, with their unit.
    """

    labels: Sequence[str]
    values: Sequence[Number]
    lower: Sequence[Number] = ()
    upper: Sequence[Number] = ()
    axis: str = ""


@dataclass(frozen=True)
class Intervals:
    """A point with its interval for each label, each on a scale of its own or all on one.

    Attributes:
        labels: From top to bottom.
        values: The points.
        lower: Ends of the intervals; None where one has no end.
        upper: The others.
        axis: What is measured, with its unit.
    """

    labels: Sequence[str]
    values: Sequence[Number]
    lower: Sequence[Number]
    upper: Sequence[Number]
    axis: str = ""


@dataclass(frozen=True)
class Line:
    """A line of a drawing of curves.

    Attributes:
        label: Of the line; may be empty.
        x: float, ascending.
        y: As many.
        lower: Of a band around it; empty without one.
        upper: Likewise.
        stepped: Whether each value holds from its x to the next.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    lower: Sequence[float] = ()
    upper: Sequence[float] = ()
    stepped: bool = False


@dataclass(frozen=True)
class Span:
    """A shaded range of a drawing of curves; None stands for no end."""

    label: str
    lower: Number
    upper: Number


@dataclass(frozen=True)
class Curves:
    """Lines over one axis.

    Attributes:
        lines: At most four, told apart by colour and by dashes.
        x_axis: What runs to the right, with its unit.
        y_axis: What runs upwards.
        spans: Shaded ranges of x.
        points: Single marks, (x, y).
        log_x: Whether x is logarithmic.
        log_y: Whether y is.
        from_zero: Whether y begins at 0.
    """

    lines: Sequence[Line]
    x_axis: str
    y_axis: str
    spans: Sequence[Span] = ()
    points: Sequence[tuple[float, float]] = ()
    log_x: bool = False
    log_y: bool = False
    from_zero: bool = False


@dataclass(frozen=True)
class HeatMap:
    """A shaded cell for each pair of labels; the darker, the larger.

    Attributes:
        rows: Labels from top to bottom.
        columns: Labels from left to right.
        values: By row; None for a cell that is marked instead, not a number for none at all.
        marked: What a marked cell means; may be empty.
        scale: What the shading means, with its unit.
        lightest: The value that is not shaded at all.
        signed: Whether values below 0 have a colour of their own, and as deep a shade.
    """

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]
    marked: str = ""
    scale: str = ""
    lightest: float = 0.0
    signed: bool = False


Drawing = Bars | Intervals | Curves | HeatMap


Text = str
"""Plain text, which the template escapes, or ``markupsafe.Markup``, which it does not."""


@dataclass(frozen=True)
class Prose:
    """Paragraphs.

    Attributes:
        paragraphs: Each is one.
        tone: ``lead`` for what everybody should read, ``warning`` for what nobody may miss,
            ``note`` for an aside.
    """

    paragraphs: Sequence[Text]
    tone: Literal["plain", "lead", "warning", "note"] = "plain"


@dataclass(frozen=True)
class Fact:
    """A labelled value, in words and with its unit; the sentence that explains it may be empty."""

    label: Text
    value: Text
    explanation: Text = ""


@dataclass(frozen=True)
class Facts:
    """Facts in a list, or as large figures side by side."""

    rows: Sequence[Fact]
    large: bool = False


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        headings: Of the columns.
        rows: A value for each column.
        title: What it shows; may be empty.
        note: What a reader has to know; may be empty.
        folded: Whether it is shown only when it is asked for; its title is then needed.
    """

    headings: Sequence[Text]
    rows: Sequence[Sequence[Text]]
    title: Text = ""
    note: Text = ""
    folded: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart with its figures as a table, for whoever cannot see it or wants to copy them.

    Attributes:
        title: What it shows.
        drawing: The picture.
        words: What is to be seen, in a sentence, for a screen reader.
        data: The same figures.
        note: How it is to be read; may be empty.
        wide: Whether it takes the whole width.
    """

    title: Text
    drawing: Drawing
    words: str
    data: Grid
    note: Text = ""
    wide: bool = False


@dataclass(frozen=True)
class Gallery:
    """Charts side by side; those folded under some words are shown when one asks for them."""

    charts: Sequence[Chart]
    folded: str = ""


@dataclass(frozen=True)
class Option:
    """A position of a slider: its label, and what is shown there."""

    label: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Slider:
    """A slider over positions that were computed beforehand; without scripts all are shown.

    The option at place ``start`` is shown at first.
    """

    label: str
    options: Sequence[Option]
    start: int = 0


@dataclass(frozen=True)
class Share:
    """A share of some records, with the ends of its interval; all between 0 and 1."""

    label: str
    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Relation:
    """What stands out: a sentence, the shares that it compares, and where to look further.

    Attributes:
        sentence: With the shares and their intervals.
        shares: Drawn below it.
        address: The fragment that has an ``Explorer`` show the same; without the mark ``#``.
    """

    sentence: Text
    shares: Sequence[Share]
    address: str


@dataclass(frozen=True)
class Relations:
    """Relations in the order of their strength, and what to know of their figures."""

    rows: Sequence[Relation]
    note: Text = ""


@dataclass(frozen=True)
class Explorer:
    """A place to choose columns and see charts; nothing without scripts, or without pictures.

    Attributes:
        data: As ``templates/explorer.js`` takes it, values that JSON has.
        fallback: What is said where scripts do not run.
        start: The fragment of what it shows at first; empty for its first column.
    """

    data: Mapping[str, Any]
    fallback: Text
    start: str = ""


@dataclass(frozen=True)
class MapView:
    """A figure of every place of a level.

    Attributes:
        label: To choose it by.
        words: What the figure is, with its unit.
        shades: By place from 0, the lowest, upwards; None without a figure.
        hatched: By place whether its interval is wide.
        values: By place the figure.
        intervals: By place its interval.
        legend: By shade what it stands for.
    """

    label: str
    words: str
    shades: Sequence[int | None]
    hatched: Sequence[bool]
    values: Sequence[str]
    intervals: Sequence[str]
    legend: Sequence[str]


@dataclass(frozen=True)
class MapLevel:
    """Places of a level.

    Attributes:
        name: Of the level.
        places: Their names.
        within: By outline the place that it belongs to.
        views: What can be shown of them; at least one.
    """

    name: str
    places: Sequence[str]
    within: Sequence[int]
    views: Sequence[MapView]


@dataclass(frozen=True)
class PlaceMap:
    """Places shaded by a figure, and a table of it; without scripts the first of the first level.

    Attributes:
        title: What it shows.
        paths: Of the outlines, ``M x y l dx dy ... z`` in whole numbers.
        labels: Written into them; may be blank.
        levels: To choose from; at least one.
        note: How it is to be read.
    """

    title: Text
    paths: Sequence[str]
    labels: Sequence[str]
    levels: Sequence[MapLevel]
    note: Text


@dataclass(frozen=True)
class Trend:
    """A line over the positions of some ``Trends``, with its band; None where there is nothing.

    Attributes:
        label: What it is of.
        values: One for each position.
        lower: Of the band; None for no end, where there is a value.
        upper: Likewise.
        limit: What the values cannot pass, a line of its own; empty without one.
        banded: Which values have a band; by default none.
    """

    label: str
    values: Sequence[Number]
    lower: Sequence[Number] = ()
    upper: Sequence[Number] = ()
    limit: Sequence[Number] = ()
    banded: Sequence[bool] = ()


@dataclass(frozen=True)
class Trends:
    """Small charts of lines side by side, one for each line, with their figures as a table.

    Attributes:
        title: What they have in common.
        positions: The names of all positions, from left to right.
        lines: In the order of their charts.
        write: How a value is written.
        shared: Whether all scales are equally long, wherever each begins.
        most: The most that a value can be; None if there is no such number.
        cuts: Positions before which lines are cut, and marked.
        marks: Positions before which they are only marked.
        note: What a reader has to know; may be empty.
        folded: The words that the charts are folded under; empty where they are not.
    """

    title: Text
    positions: Sequence[str]
    lines: Sequence[Trend]
    write: Callable[[float], str]
    shared: bool = True
    most: Number = None
    cuts: Collection[int] = ()
    marks: Collection[int] = ()
    note: Text = ""
    folded: str = ""


Block = Trends | Prose | Facts | Grid | Chart | Gallery | Slider | Relations | Explorer | PlaceMap


@dataclass(frozen=True)
class Section:
    """A part of a page, with sections within it; its anchor is unique in the page."""

    anchor: str
    title: Text
    blocks: Sequence[Block] = ()
    parts: Sequence[Section] = ()


@dataclass(frozen=True)
class Page:
    """A whole page.

    Attributes:
        title: Its heading.
        subtitle: Below it; may be empty.
        marks: What nobody may miss, above everything else.
        sections: In order; the contents list them with their parts.
        banner: Repeated on every printed page, such as who may see it; may be empty.
        language: Of its text, as BCP 47 has it.
    """

    title: Text
    sections: Sequence[Section]
    subtitle: Text = ""
    marks: Sequence[Text] = ()
    banner: str = ""
    language: str = "en"


_CODE = re.compile(r"`([^`]+)`")
_STRONG = re.compile(r"\*\*([^*]+)\*\*")
_EMPHASIS = re.compile(r"\*([^*]+)\*")


def marked(text: str) -> Markup:
    """Escaped text in which code, strong words and emphasis are marked.

    >>> str(marked("**54 times** in `a<b`"))
    '<strong>54 times</strong> in <code>a&lt;b</code>'
    """
    from markupsafe import Markup, escape

    found = Markup()
    for place, part in enumerate(_CODE.split(text)):
        escaped = str(escape(part))
        if place % 2:
            found += Markup(f"<code>{escaped}</code>")  # noqa: S704 -- escaped above
            continue
        escaped = _STRONG.sub(r"<strong>\1</strong>", escaped)
        escaped = _EMPHASIS.sub(r"<em>\1</em>", escaped)
        found += Markup(escaped)  # noqa: S704
    return found


def link(address: str, text: str) -> Markup:
    """A link; an address that is not of the web, of mail or of this bundle is only shown.

    >>> str(link("https://example.org/a?b&c", "here")), str(link("javascript:alert()", "here"))
    ('<a href="https://example.org/a?b&amp;c">here</a>', 'here')
    """
    from markupsafe import Markup, escape

    known = address.startswith(("https://", "http://", "mailto:", "#", "data/", "./"))
    return Markup('<a href="{}">{}</a>').format(address, text) if known else escape(text)


def code(text: str) -> Markup:
    """Text as code."""
    from markupsafe import Markup

    return Markup("<code>{}</code>").format(text)
