"""What a chart shows, as values; how it looks is the business of ``charts``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[Number]]
    marked: str = ""
    scale: str = ""
    lightest: float = 0.0


Drawing = Bars | Intervals | Curves | HeatMap
