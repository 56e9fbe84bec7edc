"""Microdata and tables in a bundle: counts of cells with their estimates.

What microdata and tables have in common in a bundle.
What the report says of counts: microdata by their columns, tables by their cells.

Microdata in a bundle: synthetic records, with a table of estimated counts.

A mechanism that draws records publishes them as they were drawn. From noisy counts of every cell
the records follow: the projected counts are rounded to as many whole records as the source has,
and what was released is read back from the table, which has the noisy counts.

Tables of counts in a bundle.
"""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.postprocessing.covariance import strength
from statpress.mechanisms.postprocessing.rounding import round_systematically
from statpress.mechanisms.tables.bands import BandKnobs, law_of
from statpress.mechanisms.tables.count_tables import MICRODATA, TABLE, RawTable, TableMechanism
from statpress.tasks.bundle.file_formats import written_file
from statpress.tasks.bundle.rows import Rows, cell_rows, read_records, record_rows
from statpress.tasks.pages.blocks import Block, Chart, Fact, Gallery, Grid, Prose, Section
from statpress.tasks.pages.numbers import count, share
from statpress.tasks.products.band_files import band_blocks, band_tables, stem_of
from statpress.tasks.products.copied_records import Batches, advice, copies_table, from_copies, note
from statpress.tasks.products.distributions import (
    CERTAIN,
    CHOSEN,
    CONFIDENCE,
    LARGEST,
    MOST_CELLS,
    MOST_PAIR_CELLS,
    REACH,
    WHISKERS,
    Distribution,
    Reading,
    TrackedFigure,
    bars,
    cell_names,
    distribution_chart,
    joint_chart,
    matrix_chart,
    reach_95,
    tracked_shares,
    typical_figure,
)
from statpress.tasks.products.product_kind import (
    ProductKind,
    ReaderWords,
    ReportPart,
    WorkingMemory,
    of_cells,
)
from statpress.tasks.products.publication import (
    DataTable,
    Publication,
    column_field,
    described,
    not_in_it,
    unlisted_in_words,
)
from statpress.tasks.products.published_counts import (
    ESTIMATES,
    EstimatedTable,
    Floats,
    PublishedProduct,
    figures_of,
    n_listed,
    n_records_of,
    raw_digest,
    unlisted,
)
from statpress.tasks.products.true_errors import TrueErrors

Counted = PlannedProduct[TableMechanism] | PublishedProduct
"""A product of counts, planned or read back from a bundle."""

_READ_UNLISTED = (
    "Each product in `privacy.json` states what no file holds. `structural_zeros`: of each "
    "pattern the codes of every column that it names, from first to last; a value's code is its "
    "place, from 0, among the column's declared cells, then `other`, then null. `absent`: how "
    "many absent records the mechanism gave, with its noise if it adds any."
)
_OF_BANDS = (
    "**Bands** are limits that hold for all rows of a file at once, noise included, "
    "whatever the records are. `count_lower` and `count_upper` are about the records that were "
    "counted; `share_lower` and `share_upper` about the law of which those are independent "
    "draws. Either pair has the stated level by itself. In a cumulative band each row is about "
    "its cell and all before it."
)


@dataclass(frozen=True)
class DerivedCounts:
    """What was released, with the figures that follow from it.

    Attributes:
        raw: As released.
        figures: Columns array[K] of the listed cells, by name.
        records: int64, how many records microdata have in each cell of ``raw``.
        bands: By name of a confidence band its columns array[n_possible].
    """

    raw: RawTable
    figures: Mapping[str, NDArray[Any]]
    records: Codes | None = None
    bands: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    @property
    def listed(self) -> int:
        """K, the number of cells that a table lists."""
        return n_listed(self.raw)


class CountsProduct(ProductKind[TableMechanism, RawTable, DerivedCounts]):
    """Counts of cells: records to be expanded, or rows of a table."""

    @abstractmethod
    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        """By the stem of each file its columns besides those of the domain; none for records."""

    def records(
        self, mechanism: TableMechanism, figures: Mapping[str, NDArray[Any]], n_records: int
    ) -> Codes | None:
        """How many records microdata have in each cell, int64[K], of the columns of all cells."""
        del mechanism, figures, n_records
        return None

    def most_records(self, product: Counted) -> int:
        """Records in the file of records, at most; 0 without one."""
        del product
        return 0

    def stem_of_raw(self, name: str, mechanism: TableMechanism) -> str:
        """Stem of the file from which what was released is read back."""
        del mechanism
        return name

    def read(self, path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
        """Read back from the main file what was released.

        Returns:
            Cells int64[K], ascending, and the raw columns int64[K] by name.

        Raises:
            ValueError: The file does not hold it.
        """
        return product.raw_columns(path)

    def postprocess(self, product: Counted, raw: RawTable, n_records: int) -> DerivedCounts:
        mechanism, listed = product.mechanism, n_listed(raw)
        figures = _cell_figures(mechanism, raw, n_records=n_records)
        bands: Mapping[str, Mapping[str, NDArray[Any]]] = {}
        asked: BandKnobs | None = product.further
        if asked is not None and asked.bands:
            law = law_of(mechanism, n_records=n_records, n_cells=raw.domain.n_possible)
            bands = law.bands(raw, asked.bands, asked.confidence)
        return DerivedCounts(
            raw,
            {name: values[:listed] for name, values in figures.items()},
            self.records(mechanism, figures, n_records),
            bands,
        )

    def publication(self, product: Counted, derived: DerivedCounts | None = None) -> Publication:
        """Records and their copies, if there are any, counts with their errors, and bands."""
        tables: list[DataTable] = []
        for stem, names in self.figures(product.name, product.mechanism).items():
            if names:
                tables.append(self._counts(product, stem, names, derived))
                continue
            records = self._records(product, stem, derived)
            tables.append(records)
            if number := _copies(product.mechanism):
                of_copy = None if derived is None else _batches_of_copies(derived, number)
                tables.append(copies_table(records, product.domain, number, of_copy))
        bands = {} if derived is None else derived.bands
        return Publication((*tables, *band_tables(product, product.further, bands)))

    def _records(self, product: Counted, stem: str, derived: DerivedCounts | None) -> DataTable:
        domain, most = product.domain, self.most_records(product)
        table = DataTable(
            stem=stem,
            fields=[column_field(column) for column in domain.columns],
            title="synthetic records",
            description=not_in_it(domain),
            most_rows=most,
            domain=domain,
        )
        if derived is None:
            return table
        assert derived.records is not None
        listed, cells = derived.records[: derived.listed], derived.raw.cells
        occupied = np.flatnonzero(listed)
        records = ContingencyTable(domain, cells[occupied], listed[occupied])
        return replace(table, expected=int(listed.sum()), rows=record_rows(records))

    def _counts(
        self,
        product: Counted,
        stem: str,
        names: tuple[str, ...],
        derived: DerivedCounts | None,
    ) -> DataTable:
        domain = product.domain
        columns = [column_field(column) for column in domain.columns]
        known = figures_of(product.mechanism)
        table = DataTable(
            stem=stem,
            fields=columns + described({each: known[each] for each in names}),
            title="estimated counts with standard errors",
            description=not_in_it(domain),
            most_rows=min(product.mechanism.rows(n_cells=domain.n_possible), domain.n_listed),
            domain=domain,
        )
        if derived is None:
            return table
        figures = {name: derived.figures[name] for name in names}
        rows = cell_rows(domain, derived.raw.cells[: derived.listed], figures)
        return replace(table, expected=derived.listed, rows=rows)

    def working_memory(self, product: PlannedProduct[TableMechanism]) -> WorkingMemory:
        """By the cells that are occupied or listed, and the rows that are written."""
        domain, n_records = product.domain, product.target.n_records
        listed = product.mechanism.rows(n_cells=domain.n_possible)
        cells = max(min(domain.n_possible, n_records), listed)
        bands = product.further is not None
        rows = max(self.most_records(product), cells)
        step = "Use fewer columns or cells in the product."
        memory = of_cells(cells * (1 + bands), domain.columns, rows, step)
        if number := _copies(product.mechanism):  # kept are the cells that each copy has records in
            kept = memory.kept + 16 * number * min(cells, n_records)
            pairs = len(domain.columns) * (len(domain.columns) - 1) // 2
            memory = replace(memory, write=memory.write + (400 + 8 * pairs) * cells, kept=kept)
        return memory

    def stated(
        self, product: PlannedProduct[TableMechanism], raw: RawTable | None = None
    ) -> dict[str, Any]:
        """Whether estimates are right on average, what no file holds, what was drawn, and bands."""
        bands = dict(product.further.facts()) if product.further else {}
        if raw is None:
            return bands
        return {
            "unbiased": product.mechanism.unbiased,
            **unlisted(raw),
            "raw_sha256": raw_digest(raw),
            **bands,
        }

    def published(
        self, folder: Path, name: str, stated: Mapping[str, Any], resources: Mapping[str, Any]
    ) -> PublishedProduct | None:
        return PublishedProduct.read(self, folder, name, stated, resources)

    def typical_error(self, product: PlannedProduct[TableMechanism], plan: Plan) -> str:
        """How far off an estimate is, in a sentence or two."""
        error = product.expected_error
        uniform = error.uniform_share
        typical = f"typical standard error {error.cell_sd_average:,.1f} records."
        if not product.mechanism.unbiased:
            typical += " Its estimates have a bias besides, which depends on the data."
        if product.mechanism.drawn_records is not None:  # it lists the cells that it drew
            absent = plan.privacy.n_records * uniform / (1 - uniform) / product.domain.n_possible
            estimate = f"minus {absent:,.4g}" if uniform else "0"
            typical += f" A cell not listed was not drawn: its estimate is {estimate}."
        return typical

    def cells_in_words(self, domain: Domain) -> str:
        """How many cells there are."""
        return f"{domain.n_listed:,} {'possible ' * bool(domain.zeros)}cells"

    def true_errors(
        self, product: PlannedProduct[TableMechanism], derived: DerivedCounts, private: Any
    ) -> TrueErrors:
        """Of columns, pairs and cells, and whether the bands hold."""
        from statpress.tasks.products.count_errors import counts_errors

        return counts_errors(product, derived, private)

    def notes(self, product: PlannedProduct[TableMechanism]) -> dict[str, str]:
        """What no file holds, and what bands are, by topic."""
        words = unlisted_in_words(product.domain)
        notes = {"not in any file": f"**Not in any file.** {words} {_READ_UNLISTED}"}
        bands = product.further is not None and product.further.bands
        return (notes if words else {}) | ({"bands": _OF_BANDS} if bands else {})


def _cell_figures(
    mechanism: TableMechanism, drawn: RawTable, *, n_records: int
) -> dict[str, NDArray[Any]]:
    """All columns of a table, post-processed from what was drawn alone.

    Returns:
        By name array[K], of every cell that was drawn or has noise, the absent one included.
    """
    table = mechanism.postprocess(drawn, n_records=n_records)
    projected = table.projected
    if projected is None:
        projected = project_to_simplex(
            table.estimates,
            float(n_records),
            n_cells=drawn.domain.n_possible,
            absent=table.undrawn_estimate,
        ).values
    return {
        **drawn.figures(),
        "estimate": table.estimates,
        "standard_error": table.standard_errors,
        "projected": projected,
    }


def _copies(mechanism: TableMechanism) -> int:
    """How many more sets of records a mechanism is asked for."""
    return getattr(mechanism, "copies", None) or 0


def _batches_of_copies(derived: DerivedCounts, number: int) -> Batches:
    """What each copy has: a generator of its own, which follows from what was released."""
    from statpress.mechanisms.tables.copied_counts import CopiedCounts

    assert derived.records is not None
    raw, total = derived.raw, int(derived.records.sum())
    seed = np.random.PCG64(int(raw_digest(raw), 16))
    generators = np.random.Generator(seed).spawn(number)
    figures = derived.figures

    @functools.cache
    def counts() -> CopiedCounts:
        error = float(figures["standard_error"][0])
        return CopiedCounts.of(raw.domain, raw.cells, figures["estimate"], error, total)

    @functools.cache
    def of_copy(number: int) -> Rows:
        drawn = counts().draw(generators[number - 1])
        occupied = np.flatnonzero(drawn)
        return record_rows(ContingencyTable(raw.domain, raw.cells[occupied], drawn[occupied]))

    return lambda number: of_copy(number).batches()


MOST_ROWS = 200
_STRONGEST = 4
_UNKNOWN = "There are no whiskers: {}"
_BIASED = (
    "The estimates are biased, by an amount that depends on the data and is not known: no "
    "whiskers are drawn."
)


def table_of(
    folder: Path, stem: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> EstimatedTable | None:
    """The estimates of a product out of its file; None before anything is drawn."""
    path = written_file(folder, stem)
    if path is None:
        return None
    own = next(each for each in resources if each["path"] == f"data/{path.name}")
    return EstimatedTable.read(path, stated, own)


def microdata_parts(anchor: str, table: EstimatedTable) -> tuple[list[Section], Fact | None]:
    """The distributions of single columns and of pairs, and a typical figure."""
    found = {name: table.distribution(name) for name in table.domain.names}
    known = {name: each for name, each in found.items() if each is not None}
    charts = [distribution_chart(each, table.n_records) for each in known.values()]
    said = [f"Estimated numbers of records, summed from the table of estimates. {_errors(table)}"]
    if len(known) < len(found):
        rest = ", ".join(name for name in found if name not in known)
        said.append(f"Not drawn for their many cells: {rest}.")
    columns = Section(f"{anchor}-columns", "Column by column", [Prose(said), Gallery(charts)])
    parts = [columns, *_pairs(anchor, table, known)]
    name = min(known, key=lambda each: known[each].column.size, default=None)
    figure = None if name is None else typical_figure(known[name], name)
    return parts, None if figure is None else Fact("A count, for example", *figure)


def table_blocks(table: EstimatedTable) -> tuple[list[Block], Fact | None]:
    """A table as a chart with its cells, and one of its counts."""
    errors = table.reaches if table.unbiased else None
    names = table.domain.names
    chart: Chart | None = None
    if len(names) == 1:
        codes = table.domain.codes(table.cells, names[0])
        counts = np.full(table.domain[names[0]].size, table.unlisted)
        spread = np.full(len(counts), np.nan)
        counts[codes], spread[codes] = table.estimates, table.reaches
        found = Distribution(
            table.domain[names[0]], table.fields[0], counts, None if errors is None else spread
        )
        chart = distribution_chart(found, table.n_records)
    elif len(names) == 2 and (sums := table.sums(names)) is not None:
        sides = [
            Distribution(table.domain[name], field, np.zeros(0), None)
            for name, field in zip(names, table.fields, strict=True)
        ]
        chart = joint_chart(sides[0], sides[1], sums[0])
    order = np.argsort(-table.estimates, kind="stable")
    if chart is None:
        largest = order[:LARGEST]
        labels = [" · ".join(row) for row in _rows(table, largest)]
        drawing = bars(
            labels, table.estimates[largest], None if errors is None else errors[largest]
        )
        cells = f"The {len(largest)} largest of {len(order):,} cells"
        words = f"{cells}, by their estimated records."
        note = "" if errors is None or len(largest) == len(order) else CHOSEN
        chart = Chart(cells, drawing, words, Grid((), ()), note, wide=True)
    words = f"Estimated numbers of records in each cell. {WHISKERS if table.unbiased else _BIASED}"
    chart = replace(chart, data=_listing(table, order, errors))
    return [Prose([words]), chart], _example(table) if table.unbiased else None


def _example(table: EstimatedTable) -> Fact | None:
    """A count that is not chosen for its estimate, which its interval would hold less often.

    The first cell of a table that lists all; of one that was drawn, which lists what was drawn,
    the first value of its smallest column.
    """
    names = table.domain.names
    if len(table.cells) == table.domain.n_listed:
        (cell,) = _rows(table, np.arange(1))
        figure = f"{count(table.estimates[0])} {reach_95(table.reaches[0])}"
        where = ", ".join(map(" = ".join, zip(names, cell, strict=True)))
        return Fact("A count, for example", figure, f"records with {where}. {CERTAIN}")
    name = min(names, key=lambda each: table.domain[each].size)
    found = table.distribution(name)
    said = None if found is None else typical_figure(found, name)
    return None if said is None else Fact("A count, for example", *said)


def _errors(table: EstimatedTable) -> str:
    """What whiskers mean, or why there are none."""
    if not table.unbiased:
        return _BIASED
    objection = table.covariance.objection
    return _UNKNOWN.format(objection) if objection else WHISKERS


def _pairs(anchor: str, table: EstimatedTable, known: Mapping[str, Distribution]) -> list[Section]:
    """The pairs of columns: how strongly they are related, and the strongest."""
    strengths: dict[tuple[str, str], float] = {}
    charts: list[Chart] = []
    pairs = itertools.combinations(known, 2)
    sums = {pair: found for pair in pairs if (found := table.sums(pair)) is not None}
    for pair, (counts, errors) in sums.items():
        if errors is not None:
            strengths[pair] = strength(counts, errors**2)
    for pair in sorted(sums, key=lambda pair: -strengths.get(pair, 0.0)):
        chart = joint_chart(known[pair[0]], known[pair[1]], sums[pair][0])
        if chart is not None and len(charts) < _STRONGEST:
            charts.append(chart)
    blocks: list[Block] = []
    if len(strengths) > 1:
        blocks.append(matrix_chart(list(known), strengths, ""))
    if charts:
        blocks.append(Gallery(charts))
    return [Section(f"{anchor}-pairs", "Pairs of columns", blocks)] if blocks else []


def _rows(table: EstimatedTable, chosen: Any) -> list[list[str]]:
    """The names of the cells at some places, by column."""
    sides = []
    for column, stated in zip(table.domain.columns, table.fields, strict=True):
        codes = table.domain.codes(table.cells[chosen], column.name)
        names = cell_names(column, stated)
        sides.append([names[code] for code in codes])
    return [list(row) for row in zip(*sides, strict=True)]


def _listing(table: EstimatedTable, order: Any, errors: Floats | None) -> Grid:
    """The cells with their figures: all as they are listed, or the largest first."""
    whole = len(order) <= MOST_ROWS
    chosen = np.arange(len(order)) if whole else order[:MOST_ROWS]
    rows = []
    for place, row in zip(chosen, _rows(table, chosen), strict=True):
        known = [] if errors is None else [reach_95(errors[place])]
        estimate = table.estimates[place]
        rows.append([*row, count(estimate), *known, share(estimate / table.n_records)])
    headings = [*table.domain.names, "records", *(("± 95 %",) * (errors is not None)), "share"]
    words = f"all {len(order)} cells" if whole else f"the {MOST_ROWS} largest of {len(order):,}"
    return Grid(headings, rows, title=f"Figures, {words}", folded=True)


def _shares_of_columns(table: EstimatedTable) -> Iterator[TrackedFigure]:
    for column in table.domain.columns:
        if column.size <= MOST_CELLS:
            yield from _tracked(table, (column.name,))


def _tracked(table: EstimatedTable, names: Sequence[str]) -> Iterator[TrackedFigure]:
    """The shares of the cells of some columns."""
    if (found := table.shares(names)) is None:
        return

    def read(codes: tuple[int, ...]) -> Reading:
        share, error, reach = (float(each[codes]) for each in found)
        return Reading.of(share, share - REACH * reach, share + REACH * reach, error)

    fields = {each["name"]: each for each in table.fields}
    columns = [table.domain[name] for name in names]
    certain = table.unbiased and not table.covariance.objection
    yield from tracked_shares(
        columns, [fields[name] for name in names], read, CONFIDENCE if certain else None
    )


_UNBIASED, _BIASED_RECORDS, _NOISY = "debiased", "estimates", "table"
_FROM_NOISE = ", rounded from counts with noise by the mechanism `{}`"


class Microdata(CountsProduct):
    """A row for each record, and a table of the cells that were drawn or have noise."""

    core = MICRODATA

    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        if mechanism.drawn_records is None:
            return {name: (), f"{name}_{_NOISY}": (*mechanism.raw, *ESTIMATES)}
        table = _UNBIASED if mechanism.unbiased else _BIASED_RECORDS
        return {name: (), f"{name}_{table}": ESTIMATES}

    def records(
        self, mechanism: TableMechanism, figures: Mapping[str, NDArray[Any]], n_records: int
    ) -> Codes:
        drawn: Codes = figures["raw"]
        if mechanism.drawn_records is not None:
            return drawn
        return round_systematically(figures["projected"], n_records)

    def stem_of_raw(self, name: str, mechanism: TableMechanism) -> str:
        return name if mechanism.drawn_records is not None else f"{name}_{_NOISY}"

    def most_records(self, product: Counted) -> int:
        drawn = product.mechanism.drawn_records
        return n_records_of(product) if drawn is None else drawn

    def read(self, path: Path, product: PublishedProduct) -> tuple[Codes, dict[str, Codes]]:
        if product.mechanism.drawn_records is None:
            return product.raw_columns(path)
        cells, counts = read_records(path, product.domain)
        return cells, {"raw": counts}

    def words(self, product: PlannedProduct[TableMechanism], plan: Plan) -> ReaderWords:
        _, table = self.figures(product.name, product.mechanism)
        noisy = product.mechanism.drawn_records is None
        uniform = product.expected_error.uniform_share
        part = f"; {uniform:.0%} of them are uniform over the cells" if uniform else ""
        without = ", which removes those" if uniform else ""
        many = f"{self.most_records(product):,} synthetic records"
        if noisy and product.target.adjacency is Adjacency.ADD_REMOVE:
            many = "synthetic records, as many as the noisy counts add up to,"
        padded = ""
        if product.domain.absent:
            padded = (
                "Those that stand for records which a unit does not have are left out, so the "
                "file has fewer rows. "
            )
        item = (
            f"- `{product.name}`: {many} over {self.cells_in_words(product.domain)}{part}"
            f"{_FROM_NOISE.format(product.mechanism.name) if noisy else ''}. {padded}For counts "
            f"use `{table}`{without}: {self.typical_error(product, plan)}"
        )
        notes = self.notes(product)
        if number := _copies(product.mechanism):
            item += advice(product.name, number)
            notes |= {"copies of records": note(plan.privacy.unit_records)}
        return ReaderWords(item, notes)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The columns and the pairs, from the table of estimates."""
        table = self._estimates(folder, name, stated, resources)
        anchor = f"product-{name}"
        lead = Prose(
            [
                "Records of no real person: a new sample, drawn from the confidential table with "
                "noise. Explore them, and write and test programs with them. Intervals computed "
                "from them alone are too short: take figures that have to be sure, with their "
                f"errors, from the table of estimates beside them{from_copies(name, resources)}."
            ]
        )
        if table is None:
            return ReportPart("synthetic records", Section(anchor, name, [lead]))
        parts, figure = microdata_parts(anchor, table)
        return ReportPart("synthetic records", Section(anchor, name, [lead], parts), figure)

    def tracked(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> Iterator[TrackedFigure]:  # fmt: skip
        """The shares of every column."""
        if (table := self._estimates(folder, name, stated, resources)) is not None:
            yield from _shares_of_columns(table)

    def _estimates(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> EstimatedTable | None:  # fmt: skip
        stems = (f"{name}_{each}" for each in (_UNBIASED, _BIASED_RECORDS, _NOISY))
        found = (table_of(folder, stem, stated, resources) for stem in stems)
        return next((each for each in found if each is not None), None)


class Table(CountsProduct):
    """A row for each listed cell: what was released, and its estimates."""

    core = TABLE

    def figures(self, name: str, mechanism: TableMechanism) -> dict[str, tuple[str, ...]]:
        return {name: (*mechanism.raw, *ESTIMATES)}

    def words(self, product: PlannedProduct[TableMechanism], plan: Plan) -> ReaderWords:
        item = (
            f"- `{product.name}`: a table of {self.cells_in_words(product.domain)} by the "
            f"mechanism `{product.mechanism.name}`; {self.typical_error(product, plan)} Use "
            "`estimate` with its standard error, or `projected` as a table of counts."
        )
        knobs: BandKnobs | None = product.further
        if knobs is not None and knobs.bands:
            files = " and ".join(f"`{stem_of(product.name, band)}`" for band in knobs.bands)
            item += f" {files}: limits for all cells at once, at level {knobs.confidence:g}."
        return ReaderWords(item, self.notes(product))

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The cells, and the bands if there are any."""
        table = table_of(folder, name, stated, resources)
        anchor, words = f"product-{name}", "table of counts"
        lead = Prose(
            [
                "Use the column estimate, with its standard error, for what you say of a cell; "
                "the column projected, where no count is negative and all add up to the number of "
                "records, where a whole table is needed."
            ]
        )
        if table is None:
            return ReportPart(words, Section(anchor, name, [lead]))
        blocks, figure = table_blocks(table)
        bands = band_blocks(folder, name, stated, resources)
        parts = [Section(f"{anchor}-bands", "Bands", bands)] if bands else []
        return ReportPart(words, Section(anchor, name, [lead, *blocks], parts), figure)

    def tracked(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> Iterator[TrackedFigure]:  # fmt: skip
        """The shares of every column, and of every two of few cells."""
        if (table := table_of(folder, name, stated, resources)) is None:
            return
        yield from _shares_of_columns(table)
        for pair in itertools.combinations(table.domain.names, 2):
            if table.domain[pair[0]].size * table.domain[pair[1]].size <= MOST_PAIR_CELLS:
                yield from _tracked(table, pair)


MICRODATA_FILES = Microdata()
TABLE_FILES = Table()
