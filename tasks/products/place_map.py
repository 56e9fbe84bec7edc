"""A map of a product's places in the report; from public files only.

What it shades is the number of records of every place, and shares of one column's values among
them, which are figures of ``statpress query``. A shade has as many places as any other. Where the
95 % interval is wide for its value, the place is hatched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from statpress.mechanisms.domain.columns import Column
from statpress.mechanisms.errors import NotMeasuredError, QueryError
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.places.estimates import PlaceEstimates
from statpress.mechanisms.places.outlines import Outlines
from statpress.mechanisms.places.place_tables import NoisyPlaces
from statpress.tasks.pages.blocks import MapLevel, MapView, PlaceMap
from statpress.tasks.pages.numbers import count, measured
from statpress.tasks.products.distributions import cell_names

CONFIDENCE = 0.95
WIDE = 0.5
"""Half the width of an interval, as a part of its value, above which a place is hatched."""
SHADES = 5
MOST_FIGURES = 40_000
"""Of all levels and views; about 1 MB of a page."""


def place_map(
    release: NoisyPlaces, estimates: PlaceEstimates, fields: Mapping[str, Mapping[str, Any]]
) -> PlaceMap | None:
    """The map of a release whose geography has outlines.

    Args:
        release: The noisy tables.
        estimates: The same, combined.
        fields: By name the columns as the data package describes them.

    Returns:
        None without outlines, or if no level that they serve was measured.
    """
    outlines = release.geography.outlines
    if outlines is None:
        return None
    tree = release.geography.tree
    levels = [
        level for level in sorted({table.level for table in release.tables})
        if 0 < level <= outlines.level
    ]  # fmt: skip
    room, drawn, left = MOST_FIGURES, [], False
    for level in levels:
        places = [
            Analyses(domain=release.domain, residuals=estimates.of_place(level, place),
                     confidence=CONFIDENCE)
            for place in range(tree.sizes[level])
        ]  # fmt: skip
        counts = [each.count({}) for each in places]
        views = [_view("records", "Records", counts, count)]
        room -= len(places)
        for declared in _columns(release, level):
            field = fields[declared.name]
            title = field.get("title") or field.get("label") or declared.name
            for code, cell in enumerate(cell_names(declared, field)):
                if code == declared.missing_code:
                    continue
                room -= len(places)
                if room < 0:
                    left = True
                    break
                words = f"Share of records in percent: {title}, {cell}"
                figures = [_share(each, declared.name, code) for each in places]
                views.append(_view(f"{title}: {cell}", words, figures, _percent))
        names = release.geography.names[level]
        drawn.append(MapLevel(tree.levels[level], names, _within(release, outlines, level), views))
    if not drawn:
        return None
    return PlaceMap(
        f"Map of every {' and every '.join(each.name for each in drawn)}",
        outlines.paths,
        outlines.labels,
        drawn,
        "Every shade has about as many places as any other. A hatched place has a 95 % interval "
        "that reaches further than half of the value to one side: read its shade with care. "
        "Intervals are about the noise of this release; where none is bounded, there is no "
        "figure to rely on."
        + " Some figures are too many for a page: statpress query has them."
        * left,
    )


def _columns(release: NoisyPlaces, level: int) -> list[Column]:
    """The columns of a level's tables, as declared."""
    groups = [table.group for table in release.tables if table.level == level]
    return [release.domain.columns[k] for k in sorted({each for group in groups for each in group})]


def _share(place: Analyses, name: str, code: int) -> Interval:
    """In percent; all of it unknown where the number of records may be 0."""
    try:
        value, error, lower, upper, *_ = place.share(name, [code], {})
    except (NotMeasuredError, QueryError, ZeroDivisionError):
        return Interval(math.nan, math.nan, -math.inf, math.inf)
    return Interval(100 * value, 100 * error, 100 * lower, 100 * upper)


def _within(release: NoisyPlaces, outlines: Outlines, level: int) -> Sequence[int]:
    """By outline the place of a level that it lies in."""
    within = np.arange(len(outlines.paths))
    for above in range(outlines.level - 1, level - 1, -1):
        within = release.geography.tree.parents[above][within]
    found: list[int] = within.tolist()
    return found


def _view(
    label: str, words: str, figures: Sequence[Interval], write: Callable[[float], str]
) -> MapView:
    """What is shown of figures of all places, which are written in one way."""
    values = np.array([each.value for each in figures])
    known = np.isfinite(values)
    shades: list[int | None] = [None] * len(values)
    legend = []
    order = np.argsort(values[known], kind="stable")
    n_shades = min(SHADES, len(order))
    for shade, part in enumerate(np.array_split(np.nonzero(known)[0][order], n_shades or 1)):
        for place in part.tolist():
            shades[place] = shade
        if len(part):
            ends = dict.fromkeys(write(values[part[end]]) for end in (0, -1))
            legend.append(" to ".join(ends))
    return MapView(
        label,
        words,
        shades,
        [_is_wide(each) for each in figures],
        [write(each.value) for each in figures],
        [_reach(each, write) for each in figures],
        legend,
    )


def _percent(value: float) -> str:
    return measured(value, 3)


def _is_wide(figure: Interval) -> bool:
    reach = max(figure.upper - figure.value, figure.value - figure.lower)
    return not reach <= WIDE * abs(figure.value)


def _reach(figure: Interval, write: Callable[[float], str]) -> str:
    """The ends of an interval."""
    known = math.isfinite(figure.lower) and math.isfinite(figure.upper)
    return f"{write(figure.lower)} to {write(figure.upper)}" if known else "not bounded"
