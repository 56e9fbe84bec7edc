"""What the report says of microdata by marginals: its columns, and which pairs to trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Column
from mechanisms.postprocessing.pair_strength import strength
from tasks.formats.registry import read_rows, written_file
from tasks.pages.blocks import Block, Chart, Fact, Gallery, Grid, Prose, Section
from tasks.products.counts.fields import column_from
from tasks.products.distributions import (
    WHISKERS,
    Distribution,
    distribution_chart,
    joint_chart,
    reach_95,
    typical_figure,
)
from tasks.products.kind import ReportPart
from tasks.products.marginals.noisy_tables import estimated_tables, of_pairs
from tasks.products.relations import Pair, matrix_chart

MOST_COLUMNS = 40
MOST_PAIRS = 200
_STRONGEST = 4
_SHOWN = 16  # columns whose charts are shown at once
_WORDS = "synthetic records"
_ASSUMED = "assumed independent"
_NOISE = "shrunk away"
_RELATIONS = {
    "measured": "measured",
    _NOISE: "measured; weaker than its noise",
    _ASSUMED: "not measured: do not trust",
    "known": "public: met exactly",
}

Floats = NDArray[np.float64]


def part_of(
    folder: Path, name: str, stated: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> ReportPart:
    """The columns' distributions, then the pairs."""
    fields = {field["name"]: field for field in _fields(name, resources)}
    columns = {each: column_from(field["declared"]) for each, field in fields.items()}
    drawn = list(columns)[:MOST_COLUMNS]
    lead = Prose(
        [
            f"Each of the {len(columns)} columns, and the pairs of columns that were measured, "
            "are distributed in these records as in the confidential ones, but for noise. Use "
            "them as you would use microdata; take figures that have to be sure, with their "
            f"intervals, from data/{name}_tables."
        ]
    )
    path, pairs = (written_file(folder, f"{name}_{each}") for each in ("tables", "pairs"))
    if path is None or pairs is None:  # before anything is drawn
        return ReportPart(_WORDS, Section(_anchor(name), name, [lead]))
    found, joint = _tables(path, stated, fields, columns)
    n_records = stated["n_records"]
    charts = [distribution_chart(found[each], n_records) for each in drawn if each in found]
    left = len(columns) - len(charts)
    words = f"Estimated numbers of records. {WHISKERS}"
    if left:
        words += f" {left} further columns are in data/{name}_tables."
    shown: list[Block] = [Prose([words]), Gallery(charts[:_SHOWN])]
    if rest := charts[_SHOWN:]:
        few = "the other column" if len(rest) == 1 else f"the other {len(rest)} columns"
        shown.append(Gallery(rest, folded=f"Charts of {few}"))
    parts = [Section(f"{_anchor(name)}-columns", "Column by column", shown)]
    if rows := read_rows(pairs):
        parts.append(_pairs(name, rows, joint, found, drawn))
    return ReportPart(_WORDS, Section(_anchor(name), name, [lead], parts), _typical(found))


def _anchor(name: str) -> str:
    return f"product-{name}"


def _fields(name: str, resources: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The columns of the records."""
    own = (each for each in resources if Path(each["path"]).stem == name and "schema" in each)
    found: Sequence[Mapping[str, Any]] = next(own)["schema"]["fields"]
    return found


def _tables(
    path: Path,
    stated: Mapping[str, Any],
    fields: Mapping[str, Mapping[str, Any]],
    columns: Mapping[str, Column],
) -> tuple[dict[str, Distribution], dict[Pair, Floats]]:
    """Distributions of single columns, and joint tables of the first columns' pairs."""
    sizes = {name: column.size for name, column in columns.items()}
    wanted = set(list(columns)[:MOST_COLUMNS])
    single: dict[str, Distribution] = {}
    joint: dict[Pair, Floats] = {}
    groups = [each["columns"] for each in stated["tables"]]
    for group, table, error in estimated_tables(path, groups, sizes):
        if len(group) == 1:
            errors = np.full(table.shape, error)
            single[group[0]] = Distribution(columns[group[0]], fields[group[0]], table, errors)
        joint |= {pair: sums for pair, sums in of_pairs(group, table) if wanted.issuperset(pair)}
    for each in stated["known"]:
        shape = [sizes[name] for name in each["columns"]]
        counts = np.array(each["counts"], dtype=np.float64).reshape(shape)
        for axis, column in enumerate(each["columns"]):
            others = tuple(place for place in range(len(shape)) if place != axis)
            sums, exact = counts.sum(axis=others), np.zeros(shape[axis])
            single.setdefault(column, Distribution(columns[column], fields[column], sums, exact))
        joint |= dict(of_pairs(tuple(each["columns"]), counts))
    return single, joint


def _pairs(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    joint: Mapping[Pair, Floats],
    found: Mapping[str, Distribution],
    drawn: Sequence[str],
) -> Section:
    """Which pairs were measured, how strongly they are related, and the strongest of them."""
    errors = {(row["column_1"], row["column_2"]): row["standard_error"] for row in rows}
    unseen = {(row["column_1"], row["column_2"]) for row in rows if row["relation"] == _NOISE}
    strengths = {
        pair: strength(joint[pair], (error or 0.0) ** 2)
        for pair, error in errors.items()
        if pair in joint
    }
    untrusted = [row for row in rows if row["relation"] == _ASSUMED]
    noise = [row for row in rows if row["relation"] == _NOISE]
    said = [f"{len(rows) - len(untrusted)} of {len(rows)} pairs of columns were measured."]
    if untrusted:
        listed = ", ".join(f"{row['column_1']} and {row['column_2']}" for row in untrusted[:8])
        more = f", and {len(untrusted) - 8} more, listed below" if len(untrusted) > 8 else ""
        said.append(
            f"{len(untrusted)} were not ({listed}{more}): do not trust how these are related in "
            "the records, where that follows from other columns only."
        )
    if noise:
        said.append(
            f"{len(noise)} were measured and show a relation weaker than the noise on them, or "
            "none; the records keep a part of it at most."
        )
    said.append("Relations of three or more columns follow from those of pairs.")
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
            chart = joint_chart(found[pair[0]], found[pair[1]], joint[pair], note)
            charts += [chart] if chart is not None else []
        if charts:
            blocks += [Prose(["The pairs most strongly related:"]), Gallery(charts)]
    blocks.append(_list_of_pairs(name, rows, strengths))
    return Section(f"{_anchor(name)}-pairs", "Pairs of columns", blocks)


def _list_of_pairs(
    name: str, rows: Sequence[Mapping[str, Any]], strengths: Mapping[Pair, float]
) -> Grid:
    """Every pair, those not to be trusted first; of many the first."""
    ordered = sorted(
        rows,
        key=lambda row: (
            row["relation"] != _ASSUMED,
            -strengths.get((row["column_1"], row["column_2"]), 0.0),
        ),
    )
    cells = []
    for row in ordered[:MOST_PAIRS]:
        pair, error = (row["column_1"], row["column_2"]), row["standard_error"]
        status = _RELATIONS.get(row["relation"], row["relation"])
        known = f"{strengths[pair]:.2f}" if pair in strengths else ""
        cells.append([*pair, status, "" if error is None else reach_95(error), known])
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
