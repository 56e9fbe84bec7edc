"""Small charts of lines with bands, side by side, as SVG that a browser stretches to any width.

Only lines and areas are in the SVG. Words and figures stand beside it as text of the page, so that
they have one size whatever the width. A line ends at a position without a value and begins anew
after it, and so it does where it is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statpress.tasks.pages.blocks import Grid, Number, Trend, Trends

if TYPE_CHECKING:
    from markupsafe import Markup

_STEP, _MARGIN, _HEIGHT = 10, 5, 300
"""Units of a drawing: from one position to the next, on either side, and in all."""
_MOST_STEPS = 4  # of a scale
_LEAST = 1e-9  # of the largest number, of which differences are not shown
_MOST_DOTS = 40  # positions up to which every value has a dot
_NOTHING = "no figure"


@dataclass(frozen=True)
class Panel:
    """A chart as the template takes it: its words, and the drawing.

    Attributes:
        label: What it is of.
        latest: The last value, as it is written, with its position unless that is the last.
        words: What is to be seen, for a screen reader.
        low: The lower end of the scale, as it is written.
        high: The upper end.
        drawing: The SVG element.
    """

    label: str
    latest: str
    words: str
    low: str
    high: str
    drawing: Markup


def panels(trends: Trends) -> list[Panel]:
    """The charts of some trends."""
    spans = [_span(line) for line in trends.lines]
    shared = _steps(spans) if trends.shared else None
    return [
        _panel(trends, line, *_scale(span, *(shared or _steps([span])), trends.most))
        for line, span in zip(trends.lines, spans, strict=True)
    ]


def figures(trends: Trends) -> Grid:
    """The same as a table: a row for each position, a column for each line."""
    rows = [
        [position, *(_written(trends, line, place) for line in trends.lines)]
        for place, position in enumerate(trends.positions)
    ]
    headings = ["period", *(line.label for line in trends.lines)]
    return Grid(headings, rows, title=f"Figures: {trends.title}", folded=True)


def _written(trends: Trends, line: Trend, place: int) -> str:
    """A value with its interval."""
    value = line.values[place]
    if value is None:
        return _NOTHING
    if not (line.banded and line.banded[place]):
        return _value(trends, line, place)
    low, high = line.lower[place], line.upper[place]
    ends = [None if end is None else trends.write(end) for end in (low, high)]
    if None in ends:
        said = f"from {ends[0]}" if ends[0] else f"up to {ends[1]}" if ends[1] else "without ends"
    else:
        said = f"{ends[0]} to {ends[1]}"
    return f"{trends.write(value)} ({said})"


def _span(line: Trend) -> tuple[float, float]:
    """The least and the largest number that a chart has to show."""
    shown = [
        x for x in (*line.values, *line.lower, *line.upper, *line.limit)
        if x is not None and math.isfinite(x)
    ]  # fmt: skip
    if not shown:
        return 0.0, 0.0
    return (0.0 if line.limit else min(shown)), max(shown)


def _steps(spans: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """The least round step of which few are enough for each of some scales, and how many are.

    >>> _steps([(0.31, 0.36), (0.12, 0.27)])
    (0.05, 4)
    """
    length = max((high - low for low, high in spans), default=0.0)
    largest = max((abs(end) for span in spans for end in span), default=0.0)
    if length <= _LEAST * largest:
        length = largest or 1.0
    power = 10.0 ** math.floor(math.log10(length / _MOST_STEPS))
    for step in (m * power for m in (1, 2, 5, 10, 20)):
        ends = [_ends(span, step) for span in spans]
        most = max((last - first for first, last in ends), default=1)
        if most <= _MOST_STEPS:
            return step, most
    raise ArithmeticError("a scale is longer than floats reach")


def _ends(span: tuple[float, float], step: float) -> tuple[int, int]:
    """The numbers of the steps that a span begins after and ends before."""
    first, last = math.floor(span[0] / step + 1e-9), math.ceil(span[1] / step - 1e-9)
    return first, max(last, first + 1)


def _scale(
    span: tuple[float, float], step: float, steps: int, most: Number
) -> tuple[float, float, float]:
    """The ends of a scale of so many steps with what it shows in its middle, and the step.

    It does not go below 0 if what it shows does not, nor above the most that is possible.

    >>> _scale((0.31, 0.36), 0.1, 4, 1.0), _scale((0.92, 0.97), 0.1, 4, 1.0)
    ((0.2, 0.6, 0.1), (0.6, 1.0, 0.1))
    """
    first, last = _ends(span, step)
    spare = steps - (last - first)
    below = spare // 2
    if most is not None and span[1] <= most:
        room = math.ceil(most / step - 1e-9) - last
        below = max(below, spare - max(room, 0))
    if span[0] >= 0:
        below = min(below, first)
    low = first - below
    return float(f"{low * step:.12g}"), float(f"{(low + steps) * step:.12g}"), step


def _panel(trends: Trends, line: Trend, low: float, high: float, step: float) -> Panel:
    from markupsafe import Markup

    known = [place for place, value in enumerate(line.values) if value is not None]
    latest = _value(trends, line, known[-1]) if known else _NOTHING
    if known and known[-1] < len(trends.positions) - 1:
        latest += f" in {trends.positions[known[-1]]}"
    drawing = _drawing(trends, line, low, high, step)
    return Panel(
        line.label, latest, _words(trends, line, known), trends.write(low), trends.write(high),
        Markup(drawing),  # noqa: S704 -- numbers and names of our own
    )  # fmt: skip


def _value(trends: Trends, line: Trend, place: int) -> str:
    value = line.values[place]
    assert value is not None
    limit = line.limit[place] if line.limit else None
    return trends.write(value) + ("" if limit is None else f" of {trends.write(limit)}")


def _words(trends: Trends, line: Trend, known: Sequence[int]) -> str:
    """What is to be seen, in a sentence."""
    if not known:
        return f"{line.label}: {_NOTHING}."
    ends = [known[0], *known[-1:]] if len(known) > 1 else known
    said = ", ".join(f"{_value(trends, line, at)} in {trends.positions[at]}" for at in ends)
    gaps = [trends.positions[at] for at, value in enumerate(line.values) if value is None]
    if gaps:
        more = f" and {len(gaps) - 3} more" if len(gaps) > 3 else ""
        said += f"; {_NOTHING} in {', '.join(gaps[:3])}{more}"
    return f"{line.label}: {said}."


def _drawing(trends: Trends, line: Trend, low: float, high: float, step: float) -> str:
    """The SVG element: the scale's steps, the band, the line, its dots, and the marks."""
    width = _STEP * (len(trends.positions) - 1) + 2 * _MARGIN

    def y(number: float) -> int:
        return round(_HEIGHT * (high - min(max(number, low), high)) / (high - low))

    parts = []
    lines = "".join(
        f"M0 {y(low + k * step)}H{width}" for k in range(round((high - low) / step) + 1)
    )
    parts.append(f'<path class="steps" d="{lines}"/>')
    band, whiskers, path, dots = "", "", "", ""
    for run in _runs(trends, line.values):
        points = [(_x(place), y(_number(line.values[place]))) for place in run]
        path += "M" + "L".join(f"{x} {at}" for x, at in points) if len(points) > 1 else ""
        if len(trends.positions) <= _MOST_DOTS or len(points) == 1:
            dots += "".join(f"M{x} {at}h0" for x, at in points)
    for run in _runs(trends, line.values, [*line.banded] or [False] * len(line.values)):
        ends = [
            (_x(place), y(_end(line.lower[place], low)), y(_end(line.upper[place], high)))
            for place in run
        ]
        if len(ends) == 1:
            ((x, bottom, top),) = ends
            whiskers += f"M{x} {bottom}V{top}"
        else:
            upper = "L".join(f"{x} {top}" for x, _, top in ends)
            lower = "L".join(f"{x} {bottom}" for x, bottom, _ in reversed(ends))
            band += f"M{upper}L{lower}Z"
    limits = "L".join(
        f"{_x(place)} {y(limit)}" for place, limit in enumerate(line.limit) if limit is not None
    )
    marked = sorted({*trends.cuts, *trends.marks})
    breaks = "".join(f"M{_x(place) - _STEP // 2} 0V{_HEIGHT}" for place in marked)
    for name, drawn in (
        ("band", band), ("whiskers", whiskers), ("limit", limits and f"M{limits}"),
        ("break", breaks), ("line", path), ("dots", dots),
    ):  # fmt: skip
        parts += [f'<path class="{name}" d="{drawn}"/>'] if drawn else []
    return (
        f'<svg aria-hidden="true" focusable="false" viewBox="0 0 {width} {_HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def _x(place: int) -> int:
    return _MARGIN + _STEP * place


def _number(value: Number) -> float:
    assert value is not None
    return value


def _end(value: Number, otherwise: float) -> float:
    return otherwise if value is None else value


def _runs(
    trends: Trends, values: Sequence[Number], kept: Sequence[bool] | None = None
) -> Iterator[list[int]]:
    """Neighbouring positions with values, between which nothing is cut."""
    run: list[int] = []
    for place, value in enumerate(values):
        there = value is not None and (kept is None or kept[place])
        if run and (not there or place in trends.cuts):
            yield run
            run = []
        if there:
            run.append(place)
    if run:
        yield run
