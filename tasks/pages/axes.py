"""Numbers on the axes of charts, as everywhere on a page."""

from __future__ import annotations

from typing import Any

from tasks.pages.numbers import measured

_LONG = 10_000  # from where thousands are set apart on an axis, so that years are not


def plain_decades(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain numbers: with text left alone no exponent is raised."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: measured(value)))
    axis.set_minor_formatter(NullFormatter())


def numbered(axis: Any) -> None:
    """Numbers on a linear axis as everywhere on the page, but years without a comma."""
    from matplotlib.ticker import FuncFormatter

    def write(value: float, _: Any) -> str:
        long = max(map(abs, axis.get_view_interval())) >= _LONG
        return measured(value, 6) if long else measured(value, 6).replace(",", "")

    if axis.get_scale() == "linear":
        axis.set_major_formatter(FuncFormatter(write))
