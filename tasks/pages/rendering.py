"""Pages as files, by the templates in the folder ``templates``, where all prose of pages stands.

A page in HTML asks no other host for anything. In both languages a template's every value is
escaped unless a filter says that it is written in the language of the page already.

Templates of Markdown are wrapped like any text. A line that begins with none of ``#``, ``-`` and
``|`` goes on the line before, and several blank lines are one.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.places.outlines import extent
from statpress.tasks.pages import numbers
from statpress.tasks.pages.blocks import (
    Block,
    Chart,
    Explorer,
    Facts,
    Gallery,
    Grid,
    Page,
    PlaceMap,
    Prose,
    Relations,
    Section,
    Slider,
    Trends,
    code,
    marked,
)
from statpress.tasks.pages.charts import figures, panels, svg

if TYPE_CHECKING:
    from jinja2 import Environment
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


_NEWLINE = "\0"  # of a value, which unwrapping keeps


def markdown(template: str, **values: Any) -> str:
    """A page in Markdown."""
    text = _environment(markdown=True).get_template(template).render(values)
    return _unwrapped(text) + "\n"


def paragraphs(template: str, macro: str, *values: Any) -> list[Markup]:
    """The paragraphs of a macro of Markdown, as texts of a page in HTML."""
    module: Any = _environment(markdown=True).get_template(template).module
    return [marked(text) for text in _unwrapped(getattr(module, macro)(*values)).split("\n\n")]


def _unwrapped(text: str) -> str:
    """Markdown with a line for each paragraph, heading, item of a list and row of a table."""
    blocks = re.split(r"\n\s*\n", text.strip())
    lines = [re.sub(r"[ \t]*\n(?!(?:[#|]|- ))[ \t]*", " ", block) for block in blocks]
    return "\n\n".join(lines).replace(_NEWLINE, "\n")


@functools.cache
def _environment(*, markdown: bool = False) -> Environment:
    """How templates are read, with filters that write values."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def written(value: Any) -> Any:
        return value if isinstance(value, Markup) else Markup(escaped(str(value)))  # noqa: S704

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_text),
        finalize=written if markdown else None,
    )
    environment.filters |= {
        "amount": numbers.amount,
        "at_most": numbers.at_most,
        "count": numbers.count,
        "joined": lambda text: Markup(" ").join(text.split()),
        "measured": numbers.measured,
        "share": numbers.share,
        "short": numbers.short,
        "short_down": functools.partial(numbers.short, rounding=ROUND_FLOOR),
    }
    if markdown:
        environment.filters |= {
            "code": lambda text: Markup(code_span(str(text))),  # noqa: S704
            # A bar ends a cell of a table even within code.
            "code_cell": lambda text: Markup(code_span(text).replace("|", "\\|")),  # noqa: S704
            "codes": lambda texts: Markup(", ".join(map(code_span, texts))),  # noqa: S704
            "words": lambda text: Markup(text.replace("\n", _NEWLINE)),  # noqa: S704
        }
    return environment


@functools.cache
def _text(name: str) -> str:
    """A file of the folder ``templates``, read once."""
    return files("statpress.tasks.pages").joinpath("templates", name).read_text(encoding="utf-8")


_KINDS = {
    Prose: "prose",
    Facts: "facts",
    Grid: "grid",
    Chart: "chart",
    Gallery: "gallery",
    Slider: "slider",
    Relations: "relations",
    Explorer: "explorer",
    PlaceMap: "map",
    Trends: "trends",
}


def rendered(
    page: Page, *, pictures: bool = True, template: str = "page.html.jinja", **values: Any
) -> str:
    """The HTML of a page; without pictures the figures of its charts stand as tables.

    Every value is escaped, since titles and names are the words of whoever wrote a config. The
    page's own policy lets it load nothing, and run nothing but the scripts of its blocks, if any.
    """
    from markupsafe import Markup

    charts, sliders, maps = itertools.count(1), itertools.count(1), itertools.count(1)
    kinds = {type(each) for section in page.sections for each in _blocks(section)}
    kinds |= set(map(type, values.values()))
    explores, has_map = pictures and Explorer in kinds, pictures and PlaceMap in kinds
    scripts = {"slider.js": Slider in kinds, "explorer.js": explores, "map.js": has_map}
    script = "".join(_text(name) for name, needed in scripts.items() if needed)
    chooses = kinds & {Explorer, Relations, PlaceMap}
    sheets = ["style.css", *(["explorer.css"] if chooses else []), *(["map.css"] * has_map)]
    sheets += ["trends.css"] if Trends in kinds else []
    allowed = f"script-src 'sha256-{_digest(script)}'; " if script else ""
    return (
        _environment()
        .get_template(template)
        .render(
            values,
            page=page,
            policy=f"default-src 'none'; img-src data:; {allowed}style-src 'unsafe-inline'",
            script=Markup(script),  # noqa: S704 -- ours, like the style
            style=Markup("".join(map(_text, sheets))),  # noqa: S704
            kind_of=lambda block: _KINDS[type(block)],
            drawn=lambda chart: _picture(chart, next(charts)) if pictures else None,
            panels=lambda trends: panels(trends) if pictures else [],
            figures=figures,
            is_number=_is_number,
            number_of_slider=lambda: next(sliders),
            number_of_map=lambda: next(maps),
            pictures=pictures,
            frame_of=_frame,
            map_data=_map_data,
            spot_of=_spot,
            explores=explores,
            as_json=_as_json,
            code=code,
        )
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


def _blocks(section: Section) -> Iterator[Block]:
    """The blocks of a section and of those within it."""
    yield from section.blocks
    for part in section.parts:
        yield from _blocks(part)


_LETTERS = 7
"""Size of a map's labels, as ``templates/map.css`` has it."""


def _frame(paths: Sequence[str]) -> tuple[int, int, int, int]:
    """The view box of a map: left, top, width and height."""
    lefts, tops, rights, bottoms = zip(*map(extent, paths), strict=True)
    left, top = min(lefts), min(tops)
    return left, top, max(rights) - left, max(bottoms) - top


def _spot(path: str, label: str) -> dict[str, float | None]:
    """Where a label is written into a path: its middle, and a size where 7 would be too wide."""
    left, top, right, bottom = extent(path)
    size = round(1.4 * (right - left) / len(label), 1)
    return {
        "x": (left + right) / 2,
        "y": (top + bottom) / 2,
        "size": size if size < _LETTERS else None,
    }


def _map_data(drawn: PlaceMap) -> dict[str, Any]:
    """What ``templates/map.js`` takes: a mark for each place, ``-`` for one without a shade."""
    return {
        "levels": [
            {
                "name": level.name,
                "places": level.places,
                "within": level.within,
                "views": [
                    {
                        "label": view.label,
                        "words": view.words,
                        "shades": "".join("-" if s is None else str(s) for s in view.shades),
                        "hatched": "".join(str(int(each)) for each in view.hatched),
                        "values": view.values,
                        "intervals": view.intervals,
                        "legend": view.legend,
                    }
                    for view in level.views
                ],
            }
            for level in drawn.levels
        ]
    }


def _as_json(data: Mapping[str, Any]) -> Markup:
    """JSON within an element of HTML, where no text of it can end that."""
    from markupsafe import Markup

    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704 -- what is left is text to HTML


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
