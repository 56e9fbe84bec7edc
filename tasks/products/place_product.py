"""Tables of places in a bundle: a file for each table of a level, and one of who lies in whom.

In the report a map shades the number of records of every place, and shares of one column's values
among them, which are figures of ``statpress query``; from public files only. A shade has as many
places as any other. Where the 95 % interval is wide for its value, the place is hatched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Column
from statpress.mechanisms.domain.contingency_table import Numbers
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import NotMeasuredError, QueryError
from statpress.mechanisms.estimates.exact_values import Coverage, coverage
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.residuals import GRID
from statpress.mechanisms.places.estimates import PlaceEstimates
from statpress.mechanisms.places.outlines import Outlines
from statpress.mechanisms.places.place_tables import MeasuredTable, NoisyPlaces, PlaceTables
from statpress.mechanisms.places.tree import Geography
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.tables.count_tables import TABLE
from statpress.tasks.bundle.file_formats import written_file
from statpress.tasks.bundle.rows import part_rows, value_rows
from statpress.tasks.pages.blocks import (
    Block,
    Chart,
    Fact,
    Grid,
    Intervals,
    MapLevel,
    MapView,
    PlaceMap,
    Prose,
    Section,
)
from statpress.tasks.pages.numbers import count, measured, share
from statpress.tasks.products.distributions import (
    CERTAIN,
    NORMAL_95,
    WHISKERS,
    cell_names,
    reach_95,
)
from statpress.tasks.products.noisy_tables import published_places
from statpress.tasks.products.product_kind import (
    ProductKind,
    ReaderWords,
    ReportPart,
    WorkingMemory,
    of_rows,
)
from statpress.tasks.products.publication import (
    DataTable,
    Publication,
    column_field,
    described,
    zeros_by_codes,
)
from statpress.tasks.products.true_errors import (
    Missed,
    TrueErrors,
    compared,
    covered,
    largest_grid,
)
from statpress.tasks.source.file_numbers import bytes_on_disk

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Planned = PlannedProduct[PlaceTables]

MOST_BARS = 40
_LARGEST = 5  # errors of a table that the curator sees
_FIGURES = {
    "raw": (
        "integer",
        f"Noisy count as it was drawn, in steps of 1/{GRID} of a record; may be negative. A place "
        "with one place in it is that place, and has the same noisy count.",
    ),
    "estimate": (
        "number",
        "Unbiased estimate of the count from the tables of all places and levels together; may be "
        "negative. Estimates add up over places and over columns.",
    ),
    "standard_error": ("number", "Of the estimate: the noise, without the sampling of records."),
    "lower": ("number", "Lower end of the 95 % interval."),
    "upper": ("number", "Upper end of the 95 % interval."),
}
_WHOLE = {
    "projected": (
        "integer",
        "Whole number for use in a table: not negative, and adding up over places and over "
        "columns. Small places are drawn towards the place that they lie in as far as the noisy "
        "counts say that they are like it, so it is biased; not for intervals.",
    ),
}
_PLACES = {
    "level": ("string", "Name of the level."),
    "place": ("string", "Code of the place; a place that ends further up is listed once more."),
    "name": ("string", "Of the place."),
    "within": ("string", "Code of the place of the level above that it lies in; null at the root."),
    "size": ("integer", "Public size of a place of the last level; null where none is known."),
}
_OUTLINES = {
    "outline": ("string", "Path of the place on a map, as SVG has it; null where there is none."),
    "label": ("string", "What a map writes into the place; null for nothing."),
}


@dataclass(frozen=True)
class DerivedPlaces:
    """What was released, and the estimates and whole numbers that follow from it."""

    raw: NoisyPlaces
    estimates: PlaceEstimates
    whole: Sequence[Numbers | None]


def stem_of(name: str, tables: Sequence[MeasuredTable], place: int, levels: Sequence[str]) -> str:
    """Stem of the file of a table; further tables of a level are numbered."""
    before = sum(table.level == tables[place].level for table in tables[:place])
    return f"{name}_{levels[tables[place].level]}{f'_{before + 1}' if before else ''}"


def domain_of(geography: Geography, domain: Domain, table: MeasuredTable) -> Domain:
    """The columns of a table's file: that of its places, named as their level, and its own."""
    tree = geography.tree
    places = Categorical(name=tree.levels[table.level], categories=tree.codes[table.level])
    return Domain((places, *(domain.columns[column] for column in table.group)))


class TablesOfPlaces(ProductKind[PlaceTables, NoisyPlaces, DerivedPlaces]):
    """A row for each cell of each place, by level and table, and a row for each place."""

    core = TABLE

    def postprocess(self, product: Planned, raw: NoisyPlaces, n_records: int) -> DerivedPlaces:
        estimates = raw.estimates()
        return DerivedPlaces(raw, estimates, raw.whole_numbers(estimates))

    def publication(self, product: Planned, derived: DerivedPlaces | None = None) -> Publication:
        """The tables from the root down, and the places."""
        mechanism = product.mechanism
        tables = [self._table(product, place, derived) for place in range(len(mechanism.tables))]
        return Publication((*tables, _places(product.name, mechanism.places, derived is not None)))

    def _table(self, product: Planned, place: int, derived: DerivedPlaces | None) -> DataTable:
        mechanism = product.mechanism
        geography, table = mechanism.places, mechanism.tables[place]
        own = domain_of(geography, product.domain, table)
        level = geography.tree.levels[table.level]
        of = " by ".join(own.names[1:]) or "records"
        listed = DataTable(
            stem=stem_of(product.name, mechanism.tables, place, geography.tree.levels),
            fields=[
                *map(column_field, own.columns),
                *described(_FIGURES | (_WHOLE if mechanism.readable[place] else {})),
            ],
            title=f"estimated counts of {of} in every {level}, with standard errors",
            most_rows=own.n_cells,
            domain=own,
        )
        if derived is None:
            return listed
        raw, whole, estimates = derived.raw.values[place], derived.whole[place], derived.estimates
        kinds = {"integer": np.int64, "number": np.float64}
        types = {name: kinds[kind] for name, (kind, _) in (_FIGURES | _WHOLE).items()}
        if whole is None:
            del types["projected"]
        cells = math.prod(raw.shape[1:])

        def parts() -> Iterator[tuple[Integers, dict[str, NDArray[Any]]]]:
            for rows, tables, variances in estimates.by_rows(table.level, table.group):
                values, errors = tables.ravel(), np.repeat(np.sqrt(variances), cells)
                figures = {
                    "raw": raw[rows].ravel(),
                    "estimate": values,
                    "standard_error": errors,
                    "lower": values - NORMAL_95 * errors,
                    "upper": values + NORMAL_95 * errors,
                }
                if whole is not None:
                    figures["projected"] = whole[rows].ravel()
                yield np.arange(rows.start * cells, rows.stop * cells), figures

        return replace(listed, expected=own.n_cells, rows=part_rows(own, types, parts))

    def working_memory(self, product: Planned) -> WorkingMemory:
        """By the cells that are worked on at once, and the number of places."""
        mechanism = product.mechanism
        cells, places = mechanism.blocks.largest, sum(mechanism.places.tree.sizes)
        rows = min(mechanism.rows(n_cells=0), cells)
        domains = [domain_of(mechanism.places, product.domain, t) for t in mechanism.tables]
        columns = (column for own in domains for column in own.columns)
        return WorkingMemory(
            draw=2**28 + 64 * cells + 200 * places,
            derive=2**28 + 144 * cells + 200 * places,
            write=of_rows(rows, tuple(dict.fromkeys(columns))) + 144 * cells + 400 * places,
            kept=80 * cells + 200 * places,
            figure=f"{cells:,} cells of places at once",
            next_step="Use smaller tables at the lowest levels, or declare levels between.",
            files=sum(bytes_on_disk(own.n_cells) * 2 for own in domains),
        )

    def stated(self, product: Planned, raw: NoisyPlaces | None = None) -> dict[str, Any]:
        """What was drawn with how much noise, and which file has it."""
        if raw is None:
            return {}
        levels = raw.geography.tree.levels
        return {
            "unbiased": True,
            "structural_zeros": zeros_by_codes(product.domain),
            "absent_records": product.domain.absent,
            "grid": GRID,
            "geography": {
                "column": raw.geography.column,
                "levels": list(levels),
                "known_totals": raw.geography.exact,
            },
            "tables": [
                {
                    "level": levels[table.level],
                    "columns": [product.domain.names[column] for column in table.group],
                    "file": stem_of(product.name, raw.tables, place, levels),
                    "share": str(table.share),
                    "scales": {str(k): str(v) for k, v in raw.scales[table.group].items()},
                }
                for place, table in enumerate(raw.tables)
            ],
            "raw_sha256": raw.digest(),
        }

    def words(self, product: Planned, plan: Plan) -> ReaderWords:
        name, mechanism = product.name, product.mechanism
        tree = mechanism.places.tree
        listed = ", ".join(
            f"`{stem_of(name, mechanism.tables, place, tree.levels)}`"
            for place in range(len(mechanism.tables))
        )
        error = product.expected_error
        item = (
            f"- `{name}`: tables of places, from {tree.levels[0]} to {tree.levels[-1]}: {listed}. "
            f"`{name}_places` says which place lies in which. Expected standard errors: "
            f"{error.summary()}. `statpress query` adds up any places, with the exact error of the "
            "sum."
        )
        return ReaderWords(item, {"tables of places": _NOTE})

    def true_errors(self, product: Planned, derived: DerivedPlaces, private: Any) -> TrueErrors:
        """Of every table: the root mean square error, and how many intervals hold the count."""
        mechanism, rows, grid, missed = product.mechanism, [], [], []
        for place, table in enumerate(mechanism.tables):
            own = domain_of(mechanism.places, product.domain, table)
            words = f"{own.names[0]}: {' × '.join(own.names[1:]) or 'records'}"
            expected = product.expected_error.tables[place].sd
            squares, held, largest = 0.0, Coverage(0, 0), []
            found = derived.estimates.by_rows(table.level, table.group)
            counts = mechanism.counts(private, table.group)
            exacts = (exact for level, _, exact in counts if level == table.level)
            for exact, (places, estimates, variances) in zip(exacts, found, strict=True):
                errors = np.sqrt(variances).reshape(-1, *[1] * len(table.group))
                inside = coverage(exact, estimates, errors)
                held = Coverage(held.inside + inside.inside, held.of + inside.of)
                apart = np.abs(estimates - exact).ravel()
                squares += float(np.sum(apart**2))
                first = places.start * (exact.size // len(exact))
                for cell in np.argsort(-apart, kind="stable")[:_LARGEST].tolist():
                    figures = float(estimates.flat[cell]), float(exact.flat[cell])
                    largest.append((-float(apart[cell]), first + cell, *figures))
                largest = sorted(largest)[:_LARGEST]
            true = math.sqrt(squares / own.n_cells)
            rows.append(compared(f"{words}, root mean square error", expected, true))
            rows.append(covered(f"{words}, cells whose 95 % interval holds the count", held))
            grid.append([words, measured(expected), measured(true), share(held.share)])
            for _, cell, value, count_ in largest:
                codes = np.unravel_index(cell, [column.size for column in own.columns])
                where = " · ".join(
                    f"{column.name} {cell_names(column, {})[code]}"
                    for column, code in zip(own.columns, codes, strict=True)
                )
                missed.append(Missed(where, value, count_))
        headings = ("table", "sd, promised", "root mean square error, true", "within 95 %")
        blocks = [
            Grid(headings, grid, title="Tables"),
            largest_grid(missed, "Largest errors", "records"),
        ]
        return TrueErrors(rows, Section(_anchor(product.name), product.name, blocks))

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The tables with their errors, and the records of the places of a high level."""
        expected = stated["expected_error"]["tables"]
        rows = [
            [
                each["level"],
                " × ".join(each["columns"]) or "records",
                count(each["places"]),
                count(each["cells"]),
                f"± {measured(NORMAL_95 * each['sd'])}",
                "; ".join(f"{share(error)} in {count(size)}" for size, error in each["relative"]),
            ]
            for each in expected
        ]
        headings = (
            "level", "table", "places", "cells of a place", "a count, at 95 %",
            "relative error of an average cell, by records of the place",
        )  # fmt: skip
        lead = Prose(
            [
                "Every place of every level has unbiased estimates, which add up from the smallest "
                "places to the largest. Use them with their standard errors; where a place is "
                "small its counts may be mostly noise, and negative. Where a table is to be read, "
                "take the whole numbers of the column projected, which add up too and are never "
                "negative, but are biased and have no intervals."
            ]
        )
        blocks: list[Block] = [lead, Grid(headings, rows, title="Tables, and errors to expect")]
        figure = None
        if written_file(folder, f"{name}_places") is not None:  # after the draw
            release = published_places(folder, name, stated, resources)
            estimates = release.estimates()
            fields = {
                field["name"]: field
                for resource in resources
                for field in resource.get("schema", {}).get("fields", ())
            }
            chart, figure = _chart(release, estimates)
            drawn = (place_map(release, estimates, fields), chart)
            blocks += [each for each in drawn if each is not None]
        return ReportPart("tables of places", Section(_anchor(name), name, blocks), figure)


def _anchor(name: str) -> str:
    return f"product-{name}"


def _chart(release: NoisyPlaces, estimates: PlaceEstimates) -> tuple[Chart | None, Fact | None]:
    """The records of the places of the lowest level that is still easily drawn, largest first."""
    tree = release.geography.tree
    depth = estimates.depth(())
    drawn = [level for level in range(1, depth) if tree.sizes[level] <= MOST_BARS]
    if not drawn:
        return None, None
    level = drawn[-1]
    values = estimates.table(level, ())
    errors = np.sqrt(estimates.variances(level, ()))
    if not np.isfinite(errors).all():
        return None, None
    order = np.argsort(-values, kind="stable")
    values, errors = values[order], errors[order]
    names = [release.geography.names[level][place] for place in order]
    title = f"Records by {tree.levels[level]}"
    rows = [
        [name, count(value), reach_95(error)]
        for name, value, error in zip(names, values, errors, strict=True)
    ]
    chart = Chart(
        title,
        Intervals(
            names,
            values.tolist(),
            (values - NORMAL_95 * errors).tolist(),
            (values + NORMAL_95 * errors).tolist(),
            "records",
        ),
        f"Estimated records of every {tree.levels[level]}; most are in {names[0]}, "
        f"{count(values[0])}.",
        Grid((tree.levels[level], "records", "± 95 %"), rows, title="Figures", folded=True),
        WHISKERS,
        wide=True,
    )
    words = f"records in {names[0]}. {CERTAIN}"
    figure = f"{count(values[0])} {reach_95(errors[0])}"
    return chart, Fact("A count, for example", figure, words)


def _places(name: str, geography: Geography, drawn: bool) -> DataTable:
    """The file of who lies in whom."""
    tree, outlines = geography.tree, geography.outlines
    described_by = _PLACES | (_OUTLINES if outlines else {})
    listed = DataTable(
        stem=f"{name}_places",
        fields=described(described_by),
        title="places, and which lies in which",
        most_rows=sum(tree.sizes),
        keys=("level", "place"),
    )
    if not drawn:
        return listed
    columns: dict[str, list[Any]] = {each: [] for each in described_by}
    for level, codes in enumerate(tree.codes):
        above = [tree.codes[level - 1][at] for at in tree.parents[level - 1]] if level else [None]
        sizes: list[Any] = [None] * len(codes)
        if geography.sizes is not None and level == len(tree.levels) - 1:
            sizes = geography.sizes.astype(np.int64).tolist()
        own = {
            "level": [tree.levels[level]] * len(codes),
            "place": codes,
            "name": geography.names[level],
            "within": above,
            "size": sizes,
        }
        if outlines:
            there, nothing = outlines.level == level, [None] * len(codes)
            own["outline"] = outlines.paths if there else nothing
            own["label"] = [each or None for each in outlines.labels] if there else nothing
        for key, values in own.items():
            columns[key].extend(values)
    return replace(listed, expected=listed.most_rows, rows=value_rows(columns))


_NOTE = (
    "**Tables of places.** Every table of every level was measured with noise, and all were "
    "combined by least squares: each estimate is unbiased, has the least variance that a weighted "
    "sum of the noisy counts can have, and adds up over places and columns. Estimates of small "
    "places may be negative, and must not be rounded up to 0 before they are added up: take them "
    "for what is computed, with their errors. The column `projected` is for tables that are "
    "printed: whole numbers that are not negative and add up over places and over columns. Small "
    "places are drawn there towards the place that they lie in, as far as the noisy counts say "
    "that they are like it; that is closer to the truth in most cells, biased in all, and has no "
    "intervals. The errors of two places are related: for the sum of several take its error from "
    "`statpress query`, not from the errors of its parts."
)

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


PLACE_FILES = TablesOfPlaces()
