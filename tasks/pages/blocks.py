"""The blocks of a page as values: text, facts, tables, charts, and sections that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.pages.drawings import Drawing

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
    """A labelled value with the sentence that explains it.

    Attributes:
        label: What it is.
        value: In words, with its unit.
        explanation: Of one sentence; may be empty.
    """

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
    """Charts side by side, as many as there is room for.

    Attributes:
        charts: In order.
        folded: Under which words they are shown only when asked for; empty if at once.
    """

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

    Attributes:
        label: What it changes.
        options: From left to right.
        start: Place of the one that is shown at first.
    """

    label: str
    options: Sequence[Option]
    start: int = 0


Block = Prose | Facts | Grid | Chart | Gallery | Slider


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        anchor: By which it is linked to; unique in its page.
        title: Of the section.
        blocks: What it holds.
        parts: Sections within it.
    """

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
