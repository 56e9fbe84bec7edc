"""Charts as SVG: by Matplotlib, and small ones of lines that a browser stretches to any width.

A chart is drawn in placeholder colours, which become variables of the style sheet: the same bytes
are right in light, in dark and on paper. Text stays text. The same drawing gives the same bytes.

**Trends** are small charts of lines with bands, side by side, without Matplotlib.
Only lines and areas are in the SVG. Words and figures stand beside it as text of the page, so that
they have one size whatever the width. A line ends at a position without a value and begins anew
after it, and so it does where it is cut.
"""

from __future__ import annotations

import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

import numpy as np

from statpress.tasks.pages.blocks import (
    Bars,
    Curves,
    Drawing,
    Grid,
    HeatMap,
    Intervals,
    Number,
    Trend,
    Trends,
)
from statpress.tasks.pages.numbers import measured

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STEP, _MARGIN, _TREND_HEIGHT = 10, 5, 300
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
        _trend_panel(trends, line, *_scale(span, *(shared or _steps([span])), trends.most))
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


def _trend_panel(trends: Trends, line: Trend, low: float, high: float, step: float) -> Panel:
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
        return round(_TREND_HEIGHT * (high - min(max(number, low), high)) / (high - low))

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
    breaks = "".join(f"M{_x(place) - _STEP // 2} 0V{_TREND_HEIGHT}" for place in marked)
    for name, drawn in (
        ("band", band), ("whiskers", whiskers), ("limit", limits and f"M{limits}"),
        ("break", breaks), ("line", path), ("dots", dots),
    ):  # fmt: skip
        parts += [f'<path class="{name}" d="{drawn}"/>'] if drawn else []
    return (
        f'<svg aria-hidden="true" focusable="false" viewBox="0 0 {width} {_TREND_HEIGHT}" '
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


_INK, _SOFT = "#000001", "#000002"
_SERIES = ("#000011", "#000012", "#000013", "#000014")
_VARIABLES = {_INK: "--ink", _SOFT: "--soft"} | {
    placeholder: f"--series-{place}" for place, placeholder in enumerate(_SERIES, 1)
}
_DASHES = ("-", "--", ":", "-.")
_WIDTH, _ROW, _HEIGHT = 4.6, 0.2, 2.7  # inches
_WIDE = 9.4
_REM_PER_INCH = 30 / _WIDTH
_FONT = 8.5  # points
_LONGEST = 26
_SHADES = 12
_NARROWEST = 2.8  # inches of a heat map, for what is written above it
_LOWEST, _FEW = 0.16, 24  # inches of a row of a heat map, for its label; rows up to which
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "statpress",
    "font.size": _FONT,
    "font.family": "DejaVu Sans",
    "text.color": _INK,
    "text.parse_math": False,  # a column named "$ a month" is no formula
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.formatter.limits": (-5, 7),
    "axes.formatter.use_mathtext": False,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "grid.color": _SOFT,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "legend.fontsize": _FONT,
}
_FONT_STYLE = re.compile(r"font: (?:[\d.]+px )'DejaVu Sans'")
_HEAD = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_GROUP_ID = re.compile(r'<g id="[^"]*"')
_ID = re.compile(r'(\bid="|url\(#|xlink:href="#)')
_SIZE = re.compile(r'(<svg[^>]*?) (?:width|height)="[\d.]+pt"')


def svg(drawing: Drawing, *, number: int, wide: bool = False) -> str:
    """A drawing as an SVG element, to stand within a page.

    Args:
        drawing: What it shows.
        number: Of the chart in its page, so that no two have an identifier in common.
        wide: Whether it takes the whole width of a page.
    """
    from matplotlib import rc_context, rcdefaults
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context():
        rcdefaults()  # whatever the user's own settings say
        with rc_context(_SETTINGS):
            width = _WIDE if wide else _WIDTH
            figure = Figure(figsize=(width, _HEIGHT))
            FigureCanvasSVG(figure)
            written = io.StringIO()
            with warnings.catch_warnings():
                # The page has fonts of its own for letters that the one measured with lacks.
                warnings.filterwarnings("ignore", "Glyph .* missing from font")
                _draw(drawing, figure)
                figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
            inches = figure.get_figwidth()
    return _as_element(written.getvalue(), number, _REM_PER_INCH * inches)


def _as_element(text: str, number: int, width: float) -> str:
    """What Matplotlib wrote, as an element in the page's colours and font, of so many rem."""
    text = _METADATA.sub("", _HEAD.sub("", text))
    text = _SIZE.sub(r"\1", _SIZE.sub(r"\1", text))
    text = _TAG.sub(lambda tag: _own(tag[0], number), text)  # what labels say stays as it is
    own = f'<svg aria-hidden="true" focusable="false" style="max-width: {width:.2f}rem" '
    return text.replace("<svg ", own, 1).strip()


def _own(tag: str, number: int) -> str:
    """A tag in the page's colours and font, with identifiers of the chart's own."""
    tag = _ID.sub(rf"\g<1>c{number}-", _GROUP_ID.sub("<g", tag))
    tag = _FONT_STYLE.sub(f"font: {_FONT}px system-ui, sans-serif", tag)
    for placeholder, variable in _VARIABLES.items():
        tag = tag.replace(placeholder, f"var({variable})")
    return tag


@singledispatch
def _draw(drawing: Any, figure: Figure) -> None:
    """Draw a value into a figure, whose size it may change."""
    raise TypeError(f"there is no chart of {type(drawing).__name__}")


@_draw.register(Bars)
def _(drawing: Bars, figure: Figure) -> None:
    panel = _rows_of(figure, drawing.labels, drawing.axis)
    places = np.arange(len(drawing.labels))
    panel.barh(places, _floats(drawing.values), height=0.62, color=_SERIES[0], alpha=0.75)
    if len(drawing.lower):
        _whiskers(panel, places, drawing.lower, drawing.upper, _INK)
    panel.axvline(0, color=_SOFT, linewidth=0.6)


@_draw.register(Intervals)
def _(drawing: Intervals, figure: Figure) -> None:
    panel = _rows_of(figure, drawing.labels, drawing.axis)
    places = np.arange(len(drawing.labels))
    _whiskers(panel, places, drawing.lower, drawing.upper, _SERIES[0], width=2.0)
    panel.plot(_floats(drawing.values), places, "o", color=_INK, markersize=3.5)


@_draw.register(Curves)
def _(drawing: Curves, figure: Figure) -> None:
    labels = [each.label for each in drawing.lines] + [each.label for each in drawing.spans]
    labelled = sum(map(bool, labels))
    legend = _ROW * (labelled if labelled > 1 else 0)
    figure.set_figheight(_HEIGHT + legend + 0.3)
    panel = _panel(figure, left=0.7, bottom=0.5, top=(0.36 if drawing.y_axis else 0.12) + legend)
    for span in drawing.spans:
        low, high = (np.nan if end is None else end for end in (span.lower, span.upper))
        if np.isfinite(low) and np.isfinite(high):
            panel.axvspan(low, high, color=_SERIES[0], alpha=0.18, linewidth=0, label=span.label)
    for place, line in enumerate(drawing.lines):
        look: dict[str, Any] = {"color": _SERIES[place % 4], "linestyle": _DASHES[place % 4]}
        if len(line.lower):
            step: Any = "post" if line.stepped else None
            panel.fill_between(
                line.x, _floats(line.lower), _floats(line.upper),
                color=_SERIES[place % 4], alpha=0.2, linewidth=0, step=step,
            )  # fmt: skip
        draw: Callable[..., Any] = panel.step if line.stepped else panel.plot
        where = {"where": "post"} if line.stepped else {}
        draw(line.x, _floats(line.y), linewidth=1.4, label=line.label or None, **look, **where)
    for x, y in drawing.points:
        panel.plot([x], [y], "o", color=_INK, markersize=4)
    if drawing.log_x:
        panel.set_xscale("log")
        _plain_decades(panel.xaxis)
    if drawing.log_y:
        panel.set_yscale("log")
        _plain_decades(panel.yaxis)
    if drawing.from_zero:
        panel.set_ylim(bottom=0)
    _numbered(panel.xaxis)
    _numbered(panel.yaxis)
    panel.set_xlabel(drawing.x_axis)
    panel.set_title(drawing.y_axis, loc="left", fontsize=_FONT, pad=4)
    panel.grid(axis="y")
    if legend:
        figure.legend(loc="upper left", borderaxespad=0.2, handlelength=2.6)


@_draw.register(HeatMap)
def _(drawing: HeatMap, figure: Figure) -> None:
    from matplotlib.patches import PathPatch

    rows, columns = len(drawing.rows), len(drawing.columns)
    left = _margin(drawing.rows)
    bottom = _margin(drawing.columns)
    side = min(0.34, (figure.get_figwidth() - left - 0.1) / max(columns, 1))
    height = max(side, _LOWEST) if rows <= _FEW else side
    note = 2 * _ROW if drawing.scale or drawing.marked else 0.0
    blank = max(0.1, _NARROWEST - left - side * columns)
    figure.set_figwidth(left + blank + side * columns)
    figure.set_figheight(bottom + 0.1 + height * rows + note)
    panel = _panel(figure, left=left, bottom=bottom, top=0.1 + note, right=blank)
    values = np.array([_floats(row) for row in drawing.values]).reshape(rows, columns)
    sizes = np.abs(values) if drawing.signed else values
    largest = float(np.nanmax(sizes)) if np.isfinite(sizes).any() else 1.0
    reach = largest - drawing.lightest
    shades = np.clip((sizes - drawing.lightest) / reach if reach > 0 else sizes * 0, 0, 1)
    levels = np.where(np.isfinite(shades), np.ceil(shades * _SHADES), -1).astype(int)
    below = (values < 0) & drawing.signed
    for level, colour in itertools.product(range(_SHADES + 1), _SERIES[:2]):
        chosen = (levels == level) & (below == (colour == _SERIES[1]))
        if (squares := _squares(chosen)) is not None:
            opacity = 0.06 + 0.94 * level / _SHADES
            panel.add_patch(
                PathPatch(squares, facecolor=colour, alpha=opacity, edgecolor=_SOFT, linewidth=0.3)
            )
    marked = np.array([[value is None for value in row] for row in drawing.values])
    for row, column in np.argwhere(marked.reshape(rows, columns)):
        ends = [column - 0.22, column + 0.22], [row + 0.22, row - 0.22]
        panel.plot(*ends, color=_SOFT, linewidth=0.8)
    panel.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    panel.set_yticks(range(rows), [_short(label) for label in drawing.rows])
    panel.set_xticks(range(columns), [_short(label) for label in drawing.columns], rotation=90)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    lines = [f"{drawing.scale}; full shade: {measured(largest, 3)}"] if drawing.scale else []
    lines += [f"stroke: {drawing.marked}"] if drawing.marked else []
    for place, line in enumerate(lines):
        figure.text(0.01, 1 - (place + 0.8) * _ROW / figure.get_figheight(), line)


def _squares(chosen: Any) -> Any:
    """One path of the chosen cells of a matrix, so that many cells take few bytes; None of none."""
    from matplotlib.path import Path

    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    centres = np.argwhere(chosen)[:, ::-1]
    if not len(centres):
        return None
    outlines = (centres[:, None, :] + corners).reshape(-1, 2)
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], len(centres))
    return Path(outlines, codes)


def _rows_of(figure: Figure, labels: Any, axis: str) -> Axes:
    """A panel with a row for each label, the first on top."""
    figure.set_figheight(_ROW * max(len(labels), 1) + 0.62)
    panel = _panel(figure, left=_margin(labels), bottom=0.46, top=0.08, right=0.3)
    panel.set_yticks(range(len(labels)), [_short(label) for label in labels])
    panel.set_ylim(len(labels) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.set_xlabel(axis)
    panel.locator_params(axis="x", nbins=5)
    _numbered(panel.xaxis)
    panel.grid(axis="x")
    panel.set_axisbelow(True)
    return panel


def _panel(figure: Figure, *, left: float, bottom: float, top: float, right: float = 0.16) -> Axes:
    """A panel with margins in inches."""
    width, height = figure.get_size_inches()
    return figure.add_axes(
        (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    )


def _whiskers(
    panel: Axes, places: Any, lower: Any, upper: Any, colour: str, width: float = 1.0
) -> None:
    """Lines from the lower to the upper ends, of the rows where both are known."""
    low, high = _floats(lower), _floats(upper)
    known = np.isfinite(low) & np.isfinite(high)
    panel.hlines(places[known], low[known], high[known], color=colour, linewidth=width)


def _floats(values: Any) -> Any:
    """float64[k], not a number where there is none."""
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _short(label: str) -> str:
    """A label that fits in front of a row; the whole one is in the chart's table."""
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _margin(labels: Any) -> float:
    """Inches that the longest label takes."""
    return 0.16 + max((_inches_of(_short(label), _FONT) for label in labels), default=0)


def _inches_of(label: str, points: float) -> float:
    """Inches of a label in a font of so many points.

    The font that is measured with lacks the wide letters, which are square.

    >>> round(_inches_of("men", 8.5), 2), round(_inches_of("年収", 8.5), 2)
    (0.26, 0.24)
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=points)
    narrow = "".join(letter for letter in label if east_asian_width(letter) not in "WF")
    width, _, _ = TextToPath().get_text_width_height_descent(narrow, font, ismath=False)
    return float(width + points * (len(label) - len(narrow))) / 72


_LONG = 10_000  # from where thousands are set apart on an axis, so that years are not


def _plain_decades(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain numbers: with text left alone no exponent is raised."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: measured(value)))
    axis.set_minor_formatter(NullFormatter())


def _numbered(axis: Any) -> None:
    """Numbers on a linear axis as everywhere on the page, but years without a comma."""
    from matplotlib.ticker import FuncFormatter

    def write(value: float, _: Any) -> str:
        long = max(map(abs, axis.get_view_interval())) >= _LONG
        return measured(value, 6) if long else measured(value, 6).replace(",", "")

    if axis.get_scale() == "linear":
        axis.set_major_formatter(FuncFormatter(write))
