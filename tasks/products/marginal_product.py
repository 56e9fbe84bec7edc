"""Microdata by marginals in a bundle: records, tables, report and true errors.

What the report says of microdata by marginals: its columns, and which pairs to trust.

The true errors of microdata by marginals: columns and pairs, measured or not.

All tables are taken from the records' codes in few passes, each of a bounded number of cells, and
none is kept.

Microdata by marginals in a bundle: a row for each record, and what they were made from.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import tilts
from statpress.mechanisms.domain.columns import labels
from statpress.mechanisms.domain.contingency_table import CodedColumns, GroupCounts
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.exact_values import coverage
from statpress.mechanisms.marginals.allocation import records_kept
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.marginals import ALL_PAIRS, Marginals, Microdata, WithinCells
from statpress.mechanisms.marginals.residuals import GRID, NoisyMarginals, table_with_errors
from statpress.mechanisms.marginals.survey_weights import SurveyWeight, class_values
from statpress.mechanisms.marginals.target_tables import Group
from statpress.mechanisms.marginals.workload import Part, workload_parts, workload_words
from statpress.mechanisms.mechanism import TYPICAL_ASSOCIATION
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.mechanisms.postprocessing.covariance import strength
from statpress.mechanisms.tables.count_tables import MICRODATA
from statpress.tasks.bundle.file_formats import read_rows, written_file
from statpress.tasks.bundle.rows import Rows, code_rows
from statpress.tasks.pages.blocks import Block, Chart, Fact, Gallery, Grid, Prose, Section
from statpress.tasks.products import distributions
from statpress.tasks.products.copied_records import (
    Batches,
    advice,
    copies_table,
    free_name,
    from_copies,
    note,
)
from statpress.tasks.products.count_errors import (
    EXPLAINED,
    MarginalErrors,
    marginal_blocks,
    marginal_rows,
)
from statpress.tasks.products.distributions import (
    WHISKERS,
    Distribution,
    Pair,
    Reading,
    TrackedFigure,
    display_order,
    distribution_chart,
    joint_chart,
    matrix_chart,
    reach_95,
    tracked_shares,
    typical_figure,
)
from statpress.tasks.products.explorer import ELSEWHERE, explorer, relations
from statpress.tasks.products.noisy_tables import (
    drawn_tables,
    fields,
    prior_table,
    published_marginals,
    raw_digest,
    table_rows,
    weights_of,
)
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
    not_in_it,
    range_field,
    size_stated,
    unlisted_in_words,
    zeros_by_codes,
)
from statpress.tasks.products.true_errors import TrueErrors

MOST_COLUMNS = 40
MOST_PAIRS = 200
_STRONGEST = 4
_FEW = 8
_WORDS = "synthetic records"
_KEPT = ("strong", "weak", "lost")
_ASSUMED = "assumed independent"
_CARRIED = "carried over"
_NOISE = "shrunk away"
_RELATIONS = {
    "measured": "measured",
    _NOISE: "measured; lost in its noise",
    ELSEWHERE: "measured by another product of the release",
    _CARRIED: "not measured: as in the earlier release",
    _ASSUMED: "not measured: do not trust",
    "known": "public: met exactly",
}

Floats = NDArray[np.float64]


def part_of(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> ReportPart:
    """What to explore, the columns' distributions, then the pairs."""
    fields = {field["name"]: field for field in _fields(name, stated, resources)}
    drawn = list(fields)[:MOST_COLUMNS]
    lead = Prose(
        [
            f"Each of the {len(fields)} columns, and the pairs of columns that were measured, "
            "are distributed in these records as in the confidential ones, but for noise, in which "
            "weak relations are lost. Explore them, and write and test programs with them. "
            "Intervals computed from them alone are too short: take those of counts from "
            f"data/{name}_tables{from_copies(name, resources)}."
        ]
    )
    records, tables, pairs = (
        written_file(folder, stem) for stem in (name, f"{name}_tables", f"{name}_pairs")
    )
    if records is None or tables is None or pairs is None:  # before anything is drawn
        return ReportPart(_WORDS, Section(_anchor(name), name, [lead]))
    release = published_marginals(folder, name, stated, resources)
    residuals, rows = release.residuals(), read_rows(pairs)
    found = {
        column.name: Distribution(column, fields[column.name], table, np.full(table.shape, error))
        for place, column in enumerate(release.domain.columns)
        if (place,) in residuals.values
        for table, error in [table_with_errors(residuals, (place,))]
    }
    stand_out = relations(release, residuals, fields=fields, columns=drawn)
    explored = explorer(
        name, release, residuals, fields=fields, stated=stated, pairs=rows,
        columns={each: found[each] for each in drawn if each in found},
        records=records, start=stand_out.rows[0].address if stand_out else "",
    )  # fmt: skip
    n_records = size_stated(stated)
    if stated.get("absent_records") and found:  # units have fewer records than they may
        n_records = max(1, round(float(next(iter(found.values())).counts.sum())))
    charts = [
        distribution_chart(found[each], n_records, display_order(found[each]))
        for each in drawn
        if each in found
    ]
    left = len(fields) - len(charts)
    words = f"Estimated numbers of records. {WHISKERS}"
    if left:
        words += f" {left} further columns are in data/{name}_tables."
    few = "the column" if len(charts) == 1 else f"all {len(charts)} columns"
    parts = [Section(f"{_anchor(name)}-explore", "Look it up", [explored])] if explored else []
    parts.append(
        Section(
            f"{_anchor(name)}-columns",
            "Column by column",
            [Prose([words]), Gallery(charts, folded=f"Charts of {few}")],
        )
    )
    if rows:
        joint = {
            (drawn[a], drawn[b]): residuals.table((a, b))
            for a, b in itertools.combinations(range(len(drawn)), 2)
            if (a, b) in residuals.values
        }
        parts.append(_pairs(name, rows, joint, found, drawn))
    section = Section(_anchor(name), name, [lead], parts)
    opening = ""
    if rows and "kept" in rows[0]:
        opening = f"In {name} {kept_in_words(rows)}{too_short_in_words(rows)}"
    return ReportPart(_WORDS, section, _typical(found), opening, stand_out)


def _anchor(name: str) -> str:
    return f"product-{name}"


def _fields(
    name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """The columns of the records that were measured."""
    own = (each for each in resources if Path(each["path"]).stem == name and "schema" in each)
    return [
        field
        for field in next(own)["schema"]["fields"]
        if "declared" in field and field["name"] in stated["columns"]
    ]


def _pairs(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    joint: Mapping[Pair, Floats],
    found: Mapping[str, Distribution],
    drawn: Sequence[str],
) -> Section:
    """Which pairs were measured, how strongly they are related, and the strongest of them."""
    errors = {(row["column_1"], row["column_2"]): row["standard_error"] for row in rows}
    lost = [row for row in rows if _is_lost(row)]
    unseen = {(row["column_1"], row["column_2"]) for row in lost}
    strengths = {
        pair: strength(joint[pair], (error or 0.0) ** 2)
        for pair, error in errors.items()
        if pair in joint
    }
    untrusted = [row for row in rows if row["relation"] == _ASSUMED]
    said = [kept_in_words(rows)]
    if untrusted:
        said.append(
            f"Do not trust how the pairs that were not measured are related in the records, where "
            f"that follows from other columns only: {_named(untrusted)}."
        )
    if lost:
        said.append(f"Lost in noise: {_named(lost)}.")
    said.append(
        "Relations of three or more columns are those that pairs suggest, unless their table was "
        "measured too."
    )
    blocks: list[Block] = [Prose([" ".join(said)])]
    if strengths:
        marked = "pair not measured" if untrusted else ""
        blocks.append(matrix_chart(drawn, strengths, marked))
        strongest = sorted(strengths, key=lambda pair: -strengths[pair])
        charts: list[Chart] = []
        for pair in strongest:
            if len(charts) == _STRONGEST or strengths[pair] == 0:
                break
            if pair in unseen or not found.keys() >= set(pair):
                continue
            error = errors[pair]
            note = "Public counts." if error is None else f"Each number {reach_95(error)} at 95 %."
            sides = found[pair[0]], found[pair[1]]
            chart = joint_chart(*sides, joint[pair], note, signed=True)
            charts += [chart] if chart is not None else []
        if charts:
            blocks += [Prose(["The pairs most strongly related:"]), Gallery(charts)]
    blocks.append(list_of_pairs(name, rows, strengths))
    return Section(f"{_anchor(name)}-pairs", "Pairs of columns", blocks)


def _is_lost(row: Mapping[str, Any]) -> bool:
    """Whether noise hides the relation of a measured pair; old bundles do not say ``kept``."""
    return bool(row["relation"] == _NOISE or row.get("kept") == "lost")


def _named(pairs: Sequence[Mapping[str, Any]]) -> str:
    """The first of some pairs in words."""
    listed = ", ".join(f"{row['column_1']} and {row['column_2']}" for row in pairs[:_FEW])
    return f"{listed}, and {len(pairs) - _FEW} more, listed below" if len(pairs) > _FEW else listed


_OTHERWISE_KNOWN = (
    (
        ELSEWHERE,
        "was measured by another product of the release",
        "were measured by another product of the release",
    ),
    (
        _CARRIED,
        "was not measured and is as in an earlier release",
        "were not measured and are as in an earlier release",
    ),
    (_ASSUMED, "was not measured", "were not measured"),
    ("known", "is public and met exactly", "are public and met exactly"),
)
"""Relations that were not measured here, and what is said of one pair and of several."""


def kept_in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """How the pairs of columns are known, each counted once, and what was kept of them."""
    relations = Counter(row["relation"] for row in rows)
    kept = Counter(row.get("kept") for row in rows)
    measured = relations["measured"] + relations[_NOISE]
    text = f"{measured:,} of {len(rows):,} pairs of columns were measured"
    if any(kept[each] for each in _KEPT):  # bundles of earlier versions do not say
        strong, weak, lost = (f"{kept[each]:,}" for each in _KEPT)
        text += (
            f": {strong} strong (Cramér's V of {TYPICAL_ASSOCIATION:g} or more), {weak} weak, and "
            f"{lost} lost, whose relations, if there are any, are weaker than their noise and "
            "hardly show in the records"
        )
    for relation, one, more in _OTHERWISE_KNOWN:
        if number := relations[relation]:
            text += f". {number:,} {one if number == 1 else more}"
    return f"{text}."


def too_short_in_words(rows: Sequence[Mapping[str, Any]]) -> str:
    """How much too short intervals are here that leave the noise out; blank if it is not known."""
    figures = {
        what: sorted(row[key] for row in rows if row.get(key) is not None)
        for what, key in (("shares of two columns", "shares_too_short"),
                          ("slopes of one number on another", "slope_too_short"))
    }  # fmt: skip
    told = [
        f"{np.median(known):.1f} times for {what} ({known[0]:.1f} to {known[-1]:.1f})"
        for what, known in figures.items()
        if known
    ]
    if not told:
        return ""
    return (
        " Intervals computed from one set of these records as if they were real are too short, in "
        f"the median {' and '.join(told)}: take them from the noisy tables, or, "
        "where these do not answer, from the copies, which understate strong relations."
    )


def _kept(found: Microdata, pair: Group) -> str | None:
    """What the records keep of a measured pair's relation, by its published table."""
    relation = found.relations[pair]
    if relation not in ("measured", _NOISE):
        return None
    table, error = table_with_errors(found.residuals, pair)
    association = 0.0 if relation == _NOISE else strength(table, error**2)
    if not association:
        return "lost"
    return "strong" if association >= TYPICAL_ASSOCIATION else "weak"


def list_of_pairs(
    name: str, rows: Sequence[Mapping[str, Any]], strengths: Mapping[Pair, float]
) -> Grid:
    """Every pair, those not to be trusted first; of many the first."""
    ordered = sorted(
        rows,
        key=lambda row: (
            row["relation"] != _ASSUMED,
            _is_lost(row),
            -strengths.get((row["column_1"], row["column_2"]), 0.0),
        ),
    )
    cells = []
    for row in ordered[:MOST_PAIRS]:
        pair, error = (row["column_1"], row["column_2"]), row["standard_error"]
        status = _NOISE if _is_lost(row) else row["relation"]
        known = f"{strengths[pair]:.2f}" if pair in strengths else ""
        cells.append(
            [*pair, _RELATIONS.get(status, status), "" if error is None else reach_95(error), known]
        )
    part = f"{len(cells)} of {len(rows)}" if len(cells) < len(rows) else f"all {len(rows)}"
    return Grid(
        ("column", "column", "how the pair is known", "a count, ± at 95 %", "strength"),
        cells,
        title=f"Pairs one by one ({part})",
        note=f"All are in data/{name}_pairs." if len(cells) < len(rows) else "",
        folded=True,
    )


def _typical(found: Mapping[str, Distribution]) -> Fact | None:
    """A count of a column of few cells, with its reach."""
    if not found:
        return None
    name, smallest = min(found.items(), key=lambda each: each[1].column.size)
    said = typical_figure(smallest, name)
    return None if said is None else Fact("A count, for example", *said)


MOST_GROUPS = 1000
MOST_CELLS = 2_000_000
"""Of all tables of one pass, 16 MB of counts; a larger one is left out."""
_CHUNK = 1 << 17


def marginals_errors(
    product: PlannedProduct[Marginals], derived: DerivedMicrodata, private: CodedColumns
) -> TrueErrors:
    """Of every column and pair, and of larger measured groups; see ``ProductKind.true_errors``."""
    domain = product.domain
    groups, left = _groups(domain, derived)
    found = [
        each for batch in _batches(domain, groups) for each in _errors(batch, derived, private)
    ]
    expected = product.expected_error
    rows = marginal_rows(
        found,
        columns=expected.one_way_total_variation,
        pairs=expected.pair_total_variation if product.mechanism.groups else None,
    )
    said = [
        f"Compared are the records as published with those that were counted. {EXPLAINED}",
        "The promise for "
        "pairs is for a reference: pairs whose dependence is as strong as social surveys have. "
        "Intervals are those of the measured tables; pairs that were not measured have none.",
    ]
    if left:
        said.append(f"{left:,} pairs or groups are left out for their number or size.")
    blocks = [Prose(said), *marginal_blocks(found)]
    return TrueErrors(rows, Section(f"product-{product.name}", product.name, blocks))


def _groups(domain: Domain, derived: DerivedMicrodata) -> tuple[list[Group], int]:
    """What is compared: columns, then what was measured, then other pairs; and how many are not."""
    columns: list[Group] = [(place,) for place in range(len(domain.columns))]
    measured = [table.group for table in drawn_tables(derived.raw) if len(table.group) > 1]
    others = itertools.combinations(range(len(domain.columns)), 2)
    wanted = list(dict.fromkeys([*measured, *others]))
    fitting = [group for group in wanted if _cells(domain, group) <= MOST_CELLS]
    return [*columns, *fitting[:MOST_GROUPS]], len(wanted) - len(fitting[:MOST_GROUPS])


def _cells(domain: Domain, group: Group) -> int:
    return math.prod(domain.columns[column].size for column in group)


def _batches(domain: Domain, groups: Sequence[Group]) -> Iterator[list[Group]]:
    """Groups whose tables are held at once."""
    batch: list[Group] = []
    held = 0
    for group in groups:
        cells = _cells(domain, group)
        if batch and held + cells > MOST_CELLS:
            yield batch
            batch, held = [], 0
        batch.append(group)
        held += cells
    yield batch


def _errors(
    groups: Sequence[Group], derived: DerivedMicrodata, private: CodedColumns
) -> Iterator[MarginalErrors]:
    """The errors of some groups, with one pass over the codes of either."""
    found = derived.microdata
    synthetic = tables_of_records(found.domain, groups, found.codes)
    for group, published, true in zip(groups, synthetic, private.tables(groups), strict=True):
        held = None
        if group in found.residuals.values:
            held = coverage(true, *table_with_errors(found.residuals, group))
        note = found.relations.get(group, "measured") if len(group) > 1 else ""
        columns = [found.domain.columns[column] for column in group]
        yield MarginalErrors.of(
            columns, published.astype(np.float64), true.astype(np.float64), held, note
        )


def tables_of_records(
    domain: Domain, groups: Sequence[Group], codes: Sequence[NDArray[np.unsignedinteger]]
) -> list[NDArray[np.int64]]:
    """Tables of the published records, by group of columns."""
    counting = GroupCounts([column.size for column in domain.columns], groups)
    for start in range(0, len(codes[0]), _CHUNK):
        counting.add({each: codes[each][start : start + _CHUNK] for each in counting.columns})
    return counting.tables()


Planned = PlannedProduct[Marginals]

_PAIRS: Mapping[str, tuple[str, str]] = {
    "column_1": ("string", "A column of the records."),
    "column_2": ("string", "Another."),
    "relation": (
        "string",
        "'measured': their joint table was. 'shrunk away': it was, and shows a relation weaker "
        "than its noise, or none. 'measured elsewhere': it was by another product of the release, "
        "and only there. 'carried over': it was not measured, and the records have it as the "
        "earlier release that served as prior. 'assumed independent': it was not measured, and "
        "the records have these two columns related only through others. "
        "'known': it is public, and met exactly.",
    ),
    "kept": (
        "string",
        "What the records keep of a measured relation. 'strong': its Cramér's V is "
        f"{TYPICAL_ASSOCIATION:g} or more. 'weak': it is less, and shows through the noise. "
        "'lost': if there is one it is weaker than its noise. Null if it was not measured.",
    ),
    "standard_error": (
        "number",
        "Of the estimated count of one cell of their table; null if it was not measured here.",
    ),
    "score_raw": (
        "integer",
        f"Noisy distance of their table from independence, or from that of a prior, in steps of "
        f"1/{GRID} of a record; null if pairs were not scored.",
    ),
    "shares_too_short": (
        "number",
        "How many times too short intervals of the shares of their cells are, in the median, if "
        "they are computed from one set of the records as if these were real: the standard error "
        "that the copies show over that one. Null without copies, and for some of very many pairs.",
    ),
    "slope_too_short": (
        "number",
        "The same of the slope of least squares of the second column on the first, of numbers.",
    ),
}


@dataclass(frozen=True)
class DerivedMicrodata:
    """What was released, and the records that follow from it."""

    raw: NoisyMarginals
    microdata: Microdata


def _workload(product: Planned) -> list[Part]:
    """The tables of several columns that matter, by names."""
    return list(workload_parts(product.domain.columns, product.mechanism.groups))


class MarginalMicrodata(ProductKind[Marginals, NoisyMarginals, DerivedMicrodata]):
    """Records, the noisy tables that they were fitted to, and what is known of each pair."""

    core = MICRODATA

    def postprocess(
        self, product: Planned, raw: NoisyMarginals, n_records: int
    ) -> DerivedMicrodata:
        return DerivedMicrodata(raw, product.mechanism.postprocess(raw))

    def publication(self, product: Planned, derived: DerivedMicrodata | None = None) -> Publication:
        """Records, noisy tables, and what is known of each pair."""
        name, mechanism, domain = product.name, product.mechanism, product.domain
        n_columns = len(domain.columns)
        tables = DataTable(
            stem=f"{name}_tables",
            fields=fields(mechanism.widest),
            title="noisy tables with standard errors",
            description=not_in_it(domain),
            most_rows=mechanism.rows(n_cells=0),
        )
        pairs = DataTable(
            stem=f"{name}_pairs",
            fields=described(_PAIRS),
            title="which pairs were measured",
            most_rows=n_columns * (n_columns - 1) // 2,
        )
        if derived is not None:
            drawn, found = derived.raw, derived.microdata
            tables = replace(
                tables,
                expected=sum(table.values.size for table in drawn_tables(drawn)),
                rows=table_rows(drawn, found.residuals, mechanism.widest),
            )
            pairs = replace(pairs, expected=len(found.relations), rows=_pair_rows(domain, derived))
        earlier = []
        if mechanism.prior is not None:
            used = None if derived is None else derived.raw.prior
            earlier = [prior_table(name, domain, mechanism.prior, used)]
        calibrated = []
        if mechanism.weight is not None and mechanism.weight.totals:
            calibrated = [_calibration(product, mechanism.weight, derived)]
        records = self.record_files(product, derived)
        return Publication((*records, tables, pairs, *earlier, *calibrated))

    def record_files(self, product: Planned, derived: DerivedMicrodata | None) -> list[DataTable]:
        """The files of records and of their copies; the main one first."""
        mechanism, domain = product.mechanism, product.domain
        spread = mechanism.within_cells != "middle"
        sloped = mechanism.within_cells == "slope"
        records = DataTable(
            stem=product.name,
            fields=[
                range_field(column, sloped) if spread and column.ends else column_field(column)
                for column in domain.columns
            ]
            + described(weight_field(mechanism.weight, domain)),
            title="synthetic records",
            description=not_in_it(domain),
            most_rows=mechanism.records or product.target.n_records,
            domain=domain,
            spread=spread,
        )
        if derived is not None:
            drawn, found = derived.raw, derived.microdata
            within = (lambda: _within(drawn)) if spread else None
            leaning = _tilts(domain, found.codes) if sloped else None
            records = replace(
                records,
                expected=len(found.codes[0]),
                rows=_weighted(found, found.codes, code_rows(domain, found.codes, within, leaning)),
            )
        more = []
        if number := mechanism.copies:
            drawn_copies = (
                None if derived is None else _batches_of_copies(derived, mechanism.within_cells)
            )
            more = [copies_table(records, domain, number, drawn_copies, fewer=_fewer(product))]
        return [_with_places(product, records, derived), *more]

    def working_memory(self, product: Planned) -> WorkingMemory:
        mechanism, n_records = product.mechanism, product.target.n_records
        published = mechanism.records or n_records
        fitting = product.expected_error.memory
        columns = product.domain.columns
        cells = mechanism.rows(n_cells=0)
        placing = (64 + 32 * len(columns)) * published  # of codes, cells and their order
        kept = (1 + mechanism.copies) * records_kept(mechanism.sizes, published) + 64 * cells
        return WorkingMemory(
            draw=max(2**28 + 64 * cells, fitting if mechanism.shares.triples else 0),
            derive=fitting + (0 if mechanism.placed_by is None else placing),
            # Copies are drawn when they are first written; the report reads all tables back.
            write=of_rows(max(published, cells), columns)
            + 32 * cells
            + (fitting if mechanism.copies else 0),
            kept=kept,
            figure=f"{published:,} records of {len(columns)} columns",
            next_step="Ask for fewer 'records', or for fewer columns or cells.",
        )

    def parameters(self, product: Planned) -> dict[str, str | int]:
        """With names of columns in place of their positions."""
        found, mechanism, names = (
            super().parameters(product),
            product.mechanism,
            product.domain.names,
        )
        found["groups"] = workload_words(_workload(product))
        if mechanism.always:
            found["always"] = ", ".join(names[column] for column in mechanism.always)
        if mechanism.target is not None:
            found["target"] = names[mechanism.target]
        return found

    def stated(self, product: Planned, raw: NoisyMarginals | None = None) -> dict[str, Any]:
        """Which tables count how much, what was drawn with how much noise, what no file holds."""
        workload = _workload(product)
        asked = {} if workload_words(workload) in ("", ALL_PAIRS) else {"workload": workload}
        if raw is None:
            return asked
        names = product.domain.names

        def named(group: Sequence[int]) -> list[str]:
            return [names[column] for column in group]

        return {
            "unbiased": True,
            "structural_zeros": zeros_by_codes(product.domain),
            "absent_records": product.domain.absent,
            "grid": GRID,
            "tables": [
                {"columns": named(table.group), "scale": str(table.scale)}
                for table in drawn_tables(raw)
            ],
            "score_scale": str(raw.scores.scale) if raw.scores is not None else None,
            "known": [
                {"columns": named(group), "counts": counts.ravel().tolist()}
                for group, counts in raw.known.items()
            ],
            "raw_sha256": raw_digest(raw),
            **asked,
            **({"prior_pairs": [named(pair) for pair in raw.prior.pairs]} if raw.prior else {}),
            **_weight_stated(product.mechanism.weight, product.domain),
        }

    def words(self, product: Planned, plan: Plan) -> ReaderWords:
        """How the records may be used, and what no file holds."""
        name, error = product.name, product.expected_error
        padded, there = "", ""
        if product.domain.absent:
            expected = plan.privacy.expected_records
            there = " if each unit has as many records as it may"
            if expected is not None:
                there = f" if units have about {expected:,} records in all"
            padded = (
                " How many records units really have is private: the file has about as many, as "
                "estimated."
            )
        item = (
            f"- `{name}`: synthetic records of {len(product.domain.columns)} columns, fitted to "
            f"noisy tables of single columns and of pairs. Expected{there}: {error.summary()}."
            f"{padded} For counts with standard errors use `{name}_tables` or `statpress query`; "
            f"`{name}_pairs` says which pairs of columns were measured."
        )
        notes = {"records by marginals": _BY_MARGINALS}
        if product.mechanism.prior is not None:
            notes["an earlier release as prior"] = _PRIOR
        own, weighted = weight_words(product)
        item, notes = item + own, notes | weighted
        if copies := product.mechanism.copies:
            item += advice(name, copies)
            notes["copies of records"] = note(plan.privacy.unit_records)
            if _fewer(product):
                item += (
                    " Copies are not written for Stata and SPSS, whose commands do not scale W by "
                    "the records of a copy over those of the source."
                )
        if placed_by := product.mechanism.placed_by:
            item += (
                f" The column `{placed_by.column.name}` is the place of a record, by the tables of "
                f"places `{placed_by.product}`."
            )
            notes["places of records"] = _PLACED
        if unlisted := unlisted_in_words(product.domain):
            notes["not in any file by marginals"] = f"**Not in any file.** {unlisted}"
        return ReaderWords(item, notes)

    def true_errors(self, product: Planned, derived: DerivedMicrodata, private: Any) -> TrueErrors:
        """Of columns and pairs, measured or not."""
        return marginals_errors(product, derived, private)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """The columns and the pairs, as they were measured."""
        return part_of(folder, name, stated, resources)

    def tracked(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> Iterator[TrackedFigure]:  # fmt: skip
        """The shares of every column, weighted if records are, as ``statpress query`` says them."""
        files = (name, f"{name}_households")  # of which linked records have the latter
        described_as = {
            field["name"]: field
            for each in resources
            if Path(each["path"]).stem in files and "schema" in each
            for field in each["schema"]["fields"]
        }
        release = published_marginals(folder, name, stated, resources)
        residuals, weight = release.residuals(), stated.get("weight")
        asked = Analyses(
            domain=release.domain,
            residuals=residuals,
            confidence=distributions.CONFIDENCE,
            weights=weights_of(weight, release.domain, residuals) if weight else None,
        )
        figure = distributions.WEIGHTED if weight else distributions.SHARE
        for place, column in enumerate(release.domain.columns):
            if (place,) not in asked.residuals.values or column.size > distributions.MOST_CELLS:
                continue
            if column.name not in described_as:  # of a place of persons
                continue

            def read(codes: tuple[int, ...], name: str = column.name) -> Reading:
                found = asked.share(name, codes, {})
                return Reading.of(found.value, found.lower, found.upper, found.standard_error)

            yield from tracked_shares([column], [described_as[column.name]], read, name=figure)


_BY_MARGINALS = (
    "**Records by marginals** agree with the source in single columns and in the measured "
    "pairs, but for noise. Relations of three or more columns are those that the pairs suggest; "
    "where `_tables` has a table of three columns, they were measured. Intervals come from the "
    "noisy tables and never from the records: the file `_tables` has them for what was measured, "
    "with every estimate unbiased. Where noisy scores or pairs decided what to measure, its "
    "standard errors hold given that decision."
)


_PRIOR = (
    "**An earlier release** helped to fit the records where it agrees with what was measured "
    "now; the file `_prior` holds what it said, and `privacy.json` the seal of its bundle. That "
    "cost no budget. No estimate, interval or copy takes anything from it; pairs that seem "
    "unchanged were measured with less of the budget, or not at all."
)


_PLACED = (
    "**Places of records** follow from the tables of places, at no cost to anyone's privacy. The "
    "records of a place have nearly its numbers in the columns of its tables, as whole numbers "
    "that are drawn towards the place that it lies in as far as it is small; how these columns are "
    "related is as in the places above it, for which they were measured together. So take counts "
    "of places with their errors from the tables of places. The copies have no places: intervals "
    "from them are for figures of all places together."
)


_WEIGHTS = (
    "**Survey weights** are taken as given. The guarantee is for weights that do not depend on the "
    "confidential values of other records: of weights that were raked, calibrated or adjusted for "
    "non-response it is not proven. A record was counted by the class of its weight, and counts as "
    "the value of that class; within a class the weight and everything else are taken as "
    "unrelated. Weighted figures with intervals come from the noisy tables (`statpress query "
    "--weight`), by the weights as given. That the records are a sample makes no loss smaller here."
)


def _with_places(
    product: Planned, records: DataTable, derived: DerivedMicrodata | None
) -> DataTable:
    """The file of records with the place of each behind its columns, if they have one."""
    placed_by, domain = product.mechanism.placed_by, product.domain
    if placed_by is None:
        return records
    fields, at = list(records.fields), len(domain.columns)
    words = f"Where the record lies, by the tables of places of {placed_by.product}."
    own = {**column_field(placed_by.column), "description": words}
    records = replace(
        records,
        fields=[*fields[:at], own, *fields[at:]],
        domain=placed_by.added_to(domain),
    )
    if derived is None or records.rows is None:
        return records
    places, rows = derived.microdata.places, records.rows
    assert places is not None
    behind = code_rows(Domain((placed_by.column,)), (places,))

    def batches() -> Iterator[list[Any]]:
        for arrays, (place,) in zip(rows.batches(), behind.batches(), strict=True):
            yield [*arrays[:at], place, *arrays[at:]]

    schema = rows.schema.insert(at, behind.schema.field(0))
    return replace(records, rows=Rows(schema, batches))


def weight_words(product: Planned) -> tuple[str, dict[str, str]]:
    """What the records' weight is, and a note on weights; nothing without one."""
    weight = product.mechanism.weight
    if weight is None:
        return "", {}
    (own,) = weight_field(weight, product.domain)
    raked = f", raked to the public totals in `{product.name}_calibration`" if weight.totals else ""
    return f" The column `{own}` is the weight of a record{raked}.", {"survey weights": _WEIGHTS}


def weight_field(weight: SurveyWeight | None, domain: Domain) -> dict[str, tuple[str, str]]:
    """The column of a record's weight, as ``described`` takes it; none without a weight."""
    if weight is None:
        return {}
    made = "raked to the public totals" if weight.totals else "the value of its class"
    words = f"The record's weight, {made}: use it in every analysis."  # a label of Stata's length
    return {free_name("weight", domain): ("number", words)}


def _weight_stated(weight: SurveyWeight | None, domain: Domain) -> dict[str, Any]:
    """What ``privacy.json`` says of a weight."""
    if weight is None:
        return {}
    (own,) = weight_field(weight, domain)
    facts = {
        "column": weight.column,
        "values": class_values(domain, weight.column).tolist(),
        "records": own,
        "calibrated": {name: list(totals) for name, totals in weight.totals.items()},
        "strata": weight.strata,
        "cluster": weight.cluster,
    }
    return {"weight": facts}


def _weighted(found: Microdata, codes: Sequence[NDArray[Any]], rows: Rows) -> Rows:
    """The rows of records with the weight of each, if they have one."""
    import pyarrow as pa

    if found.weight is None:
        return rows
    (own,) = weight_field(found.weight, found.domain)

    def batches() -> Iterator[list[Any]]:
        weights, start = found.weights(codes), 0
        for arrays in rows.batches():
            stop = start + len(arrays[0])
            yield [*arrays, pa.array(weights[start:stop])]
            start = stop

    return Rows(rows.schema.append(pa.field(own, pa.float64(), nullable=False)), batches)


_CALIBRATION: Mapping[str, tuple[str, str]] = {
    "column": ("string", "The column whose totals are public."),
    "value": ("string", "Its cell; null for the missing one."),
    "total": ("number", "The public total."),
    "weighted_records": (
        "number",
        "The sum of the weights of the synthetic records: the total, except where no record has "
        "this cell.",
    ),
}


def _calibration(
    product: Planned, weight: SurveyWeight, derived: DerivedMicrodata | None
) -> DataTable:
    """The file of public totals with the weighted records beside them."""
    import pyarrow as pa

    domain = product.domain
    about = DataTable(
        stem=f"{product.name}_calibration",
        fields=described(_CALIBRATION),
        title="public totals that weights are raked to",
        most_rows=sum(map(len, weight.totals.values())),
    )
    if derived is None:
        return about
    found = derived.microdata
    schema = pa.schema(
        [(name, pa.string()) for name in ("column", "value")]
        + [(name, pa.float64()) for name in ("total", "weighted_records")]
    )

    def batches() -> Iterator[list[Any]]:
        weights = found.weights(found.codes)
        for name, totals in weight.totals.items():
            codes = found.codes[domain.names.index(name)]
            sums = np.bincount(codes, weights=weights, minlength=len(totals))
            values = pa.array(labels(domain[name]), pa.string())
            yield [
                pa.repeat(pa.scalar(name), len(totals)),
                values,
                pa.array(totals),
                pa.array(sums),
            ]

    return replace(about, expected=about.most_rows, rows=Rows(schema, batches))


def _pair_rows(domain: Domain, derived: DerivedMicrodata) -> Rows:
    """A row for each pair of columns."""
    import pyarrow as pa

    found, scores = derived.microdata, derived.raw.scores
    raw = dict(zip(scores.pairs, scores.values.tolist(), strict=True)) if scores else {}
    pairs = sorted(found.relations)
    errors = [
        found.residuals.table_variance(pair) ** 0.5 if pair in found.residuals.values else None
        for pair in pairs
    ]
    columns: list[list[Any]] = [
        [domain.names[a] for a, _ in pairs],
        [domain.names[b] for _, b in pairs],
        [found.relations[pair] for pair in pairs],
        [_kept(found, pair) for pair in pairs],
        errors,
        [raw.get(pair) for pair in pairs],
    ]

    def batches() -> Iterator[list[Any]]:
        nothing = (None, None)
        short = [found.copies.too_short.get(pair, nothing) for pair in pairs]
        figures = [[each[place] for each in short] for place in (0, 1)]
        values = zip([*columns, *figures], schema, strict=True)
        yield [pa.array(own, field.type) for own, field in values]

    types = {"string": pa.string(), "number": pa.float64(), "integer": pa.int64()}
    schema = pa.schema([(name, types[kind]) for name, (kind, _) in _PAIRS.items()])
    return Rows(schema, batches)


def _tilts(domain: Domain, codes: Sequence[NDArray[Any]]) -> list[NDArray[np.float64]]:
    """How values lean within the cells of each column, from the records themselves."""
    return [
        tilts(column, np.bincount(own, minlength=column.size))
        for column, own in zip(domain.columns, codes, strict=True)
    ]


def _batches_of_copies(derived: DerivedMicrodata, within: WithinCells) -> Batches:
    """What each copy has, with values where they lie in their cells."""
    found = derived.microdata
    domain, copies = found.domain, found.copies

    def of_copy(number: int) -> Iterator[list[Any]]:
        codes = tuple(copies.sets[number - 1].T)
        public = None
        if within != "middle":
            public = functools.partial(_within, derived.raw, copies.number + number)
        leaning = _tilts(domain, codes) if within == "slope" else None
        return _weighted(found, codes, code_rows(domain, codes, public, leaning)).batches()

    return of_copy


def _fewer(product: Planned) -> bool:
    """Whether the records that are published are fewer than those of the source."""
    return (product.mechanism.records or product.target.n_records) < product.target.n_records


def _within(release: NoisyMarginals, number: int = 0) -> np.random.Generator:
    """Draws where in their cells values lie; the same for every file, from what is public.

    The first numbers after 0 are those of the generators that the copies were drawn with.
    """
    return release.public_generator().spawn(number + 1)[number]


MARGINAL_FILES = MarginalMicrodata()
