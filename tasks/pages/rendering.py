"""Pages as files: HTML that asks no other host for anything, and Markdown."""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import re
import warnings
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from statpress.tasks.pages.blocks import (
    Chart,
    Facts,
    Gallery,
    Grid,
    Page,
    Prose,
    Section,
    Slider,
)
from statpress.tasks.pages.charts import svg

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


_SPECIAL = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>()#|!~&$"})


def escaped(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> print(escaped("a|b_<i>"))
    a\|b\_\<i\>
    """
    return " ".join(text.translate(_SPECIAL).split())


def code_span(text: str) -> str:
    """Text as code; the fence is longer than any run of backticks within it (CommonMark, 6.1).

    >>> print(code_span("census"), code_span("a`b"))
    `census` ``a`b``
    """
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " * (line.startswith("`") or line.endswith("`"))
    return f"{fence}{space}{line}{space}{fence}"


_KINDS = {
    Prose: "prose",
    Facts: "facts",
    Grid: "grid",
    Chart: "chart",
    Gallery: "gallery",
    Slider: "slider",
}


def rendered(page: Page, *, pictures: bool = True) -> str:
    """The HTML of a page; without pictures the figures of its charts stand as tables.

    Every value is escaped, since titles and names are the words of whoever wrote a config. The
    page's own policy lets it load nothing, and run nothing but the script of its sliders, if any.
    """
    from markupsafe import Markup

    numbers, sliders = itertools.count(1), itertools.count(1)
    script = _text("slider.js") if any(map(_slides, page.sections)) else ""
    allowed = f"script-src 'sha256-{_digest(script)}'; " if script else ""
    return _template().render(
        page=page,
        policy=f"default-src 'none'; img-src data:; {allowed}style-src 'unsafe-inline'",
        script=Markup(script),  # noqa: S704 -- ours, like the style
        style=Markup(_text("style.css")),  # noqa: S704
        kind_of=lambda block: _KINDS[type(block)],
        drawn=lambda chart: _picture(chart, next(numbers)) if pictures else None,
        is_number=_is_number,
        number_of_slider=lambda: next(sliders),
    )


def _picture(chart: Chart, number: int) -> Markup | None:
    """A chart's drawing; None if it cannot be drawn, as where an axis is as long as floats reach.

    The chart's words and figures then stand alone: what is released is charged by now, and no
    picture is worth it.
    """
    from markupsafe import Markup

    try:
        drawn = svg(chart.drawing, number=number, wide=chart.wide)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        warnings.warn(f"a chart is not drawn: {type(error).__name__}", stacklevel=2)
        return None
    return Markup(drawn)  # noqa: S704 -- Matplotlib escapes its texts


def _slides(section: Section) -> bool:
    """Whether there is a slider in a section."""
    own = any(isinstance(block, Slider) for block in section.blocks)
    return own or any(map(_slides, section.parts))


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_text("page.html.jinja"))


def _text(name: str) -> str:
    return files("statpress.tasks.pages").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _is_number(text: Any) -> bool:
    """Whether a cell of a table is aligned as a number is.

    >>> _is_number("1,234"), _is_number("± 3 %"), _is_number("9 to 12")
    (True, True, False)
    """
    plain = str(text).strip("±% ").replace(",", "")
    try:
        float(plain)
    except ValueError:
        return False
    return True
