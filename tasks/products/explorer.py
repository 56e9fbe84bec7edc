"""What a report's explorer is fed, and the relations that stand out; from public files only.

The page computes its figures as ``statpress query`` does (``templates/explorer.js``): a table's
cells add up to an estimate, and the variances of the residuals' noise to its standard error
(statpress.mechanisms.marginals.residuals). So it takes each table of up to three columns with the
variance of its residual, and for columns that were not measured together the synthetic records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes, Column, Date
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.fieller import cautious_quantile, normal_quantile
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.mechanisms.marginals.residuals import NOT_TOGETHER, NoisyMarginals, Residuals
from statpress.mechanisms.marginals.residuals import subgroups as parts_of
from statpress.mechanisms.marginals.target_tables import Group
from statpress.mechanisms.postprocessing.covariance import strength
from statpress.tasks.bundle.file_formats import read_batches, schema_of
from statpress.tasks.bundle.rows import Coder, coder_of
from statpress.tasks.pages.blocks import Explorer, Relation, Relations, Share
from statpress.tasks.products.answer_words import caveats, named_cells, standing
from statpress.tasks.products.distributions import Distribution, cell_names, display_order
from statpress.tasks.products.publication import size_stated

if TYPE_CHECKING:
    pass

Fields = Mapping[str, Mapping[str, Any]]

ELSEWHERE = "measured elsewhere"
"""Of a pair in ``NAME_pairs`` that another product of the release measured."""
CONFIDENCE = 0.95
MOST_SIDE = 40
MOST_CELLS = 60_000
MOST_CODES = 400_000
N_RELATIONS = 5
_WIDEST = 3  # columns of a table
_FIRST_LETTER = "?"  # of code 0 in the records, one letter a code
_DIGITS = 5
_LEAST = 0.05  # phi coefficient of what is told
_CLEAR = 10.0  # standard errors that a group is asked to be larger than
_CURVE = (3.0, 12.0, 0.01)  # of the normal quantiles by how clear a denominator is of its noise
_RECORDS = (
    f"{NOT_TOGETHER} These figures are counted in the synthetic records, without an interval: one "
    "computed from the records would be too short."
)
_ORIGINS = {
    "pairs": (
        "Follows from pairs.",
        f"{_RECORDS} The relations of three or more columns are those that the measured pairs "
        "suggest.",
    ),
    "assumed": (
        "Assumed.",
        f"{_RECORDS} Not measured: PAIRS. The records have these related only through other "
        "columns; do not trust how.",
    ),
    "elsewhere": (
        "Measured by another product of the release.",
        f"{_RECORDS} They are fitted to what another product measured of PAIRS.",
    ),
    "large": (
        "Measured, but not on this page.",
        "There are too many tables for one page: statpress query has this one, with intervals. "
        "These figures are counted in the synthetic records.",
    ),
}


def explorer(
    name: str,
    release: NoisyMarginals,
    residuals: Residuals,
    *,
    fields: Fields,
    stated: Mapping[str, Any],
    pairs: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Distribution],
    records: Path,
    start: str = "",
    most_cells: int = MOST_CELLS,
    most_codes: int = MOST_CODES,
) -> Explorer | None:
    """The explorer of microdata by marginals.

    Args:
        name: Of the product.
        release: Its noisy tables.
        residuals: The same, combined.
        fields: By name its columns as the data package describes them.
        stated: What ``privacy.json`` says of it.
        pairs: The rows of ``NAME_pairs``.
        columns: By name those to choose from; of these the ones of few cells are taken.
        records: The file of synthetic records.
        start: The fragment of what is shown at first.
        most_cells: Cells of all tables that the page has.
        most_codes: Codes of all records that the page has.

    Returns:
        None without a column of few cells.
    """
    domain = release.domain
    names = [each for each in columns if 1 < domain[each].size <= MOST_SIDE]
    if not names:
        return None
    place = {domain.names.index(each): k for k, each in enumerate(names)}
    tables = _tables(residuals, place, most_cells)
    n_records = max(size_stated(stated), int(stated["published_records"]))
    every = math.ceil(n_records * len(names) / most_codes)
    spread = any("minimum" in fields[each].get("constraints", {}) for each in domain.names)
    codes = read_codes(records, domain, spread=spread, every=every)
    left = [each for each in fields if each not in names]
    low, high, step = _CURVE
    curve = cautious_quantile(np.arange(low, high, step), CONFIDENCE)
    return Explorer(
        {
            "product": name,
            "columns": [
                {
                    "name": each,
                    "title": _title(fields[each]),
                    "values": named_cells(domain[each]),
                    "labels": cell_names(domain[each], fields[each]),
                    "missing": domain[each].missing_code,
                    "order": display_order(columns[each]),
                }
                for each in names
            ],
            "left": left,
            "tables": {_key(group, place): table for group, table in tables.items()},
            "variances": {_key(group, place): residuals.variances[group] for group in tables},
            "unmeasured": dict(_unmeasured(pairs, residuals, names, place, tables)),
            "records": ["".join(map(_letter, codes[position].tolist())) for position in place],
            "scale": residuals.present(release.n_records) / len(codes[0]),
            "quantile": normal_quantile(CONFIDENCE),
            "curve": {"from": low, "step": step, "values": curve.round(6).tolist()},
            "origins": {"measured": ["Measured.", _measured(stated)], **_ORIGINS},
        },
        "Without scripts there is nothing to choose from here; the charts below show every column, "
        "and statpress query answers the rest.",
        start,
    )


def _letter(code: int) -> str:
    return chr(ord(_FIRST_LETTER) + code)


def _key(group: Group, place: Mapping[int, int]) -> str:
    return ",".join(str(place[column]) for column in group)


def _measured(stated: Mapping[str, Any]) -> str:
    """What statpress query says of counts."""
    facts = {"statistic": "count", "of": "these records", "confidence": CONFIDENCE, "cells": []}
    facts |= standing(stated)
    return " ".join(caveats(facts))


def _tables(residuals: Residuals, place: Mapping[int, int], most: int) -> dict[Group, list[float]]:
    """The cells of the tables that a page has room for, the parts of each among them."""
    held: dict[Group, list[float]] = {}
    n_cells = 0
    for group in sorted(residuals.values, key=lambda each: (len(each), each)):
        size = math.prod(residuals.sizes[column] for column in group)
        known = len(group) <= _WIDEST and place.keys() >= set(group)
        if not known or n_cells + size > most or not held.keys() >= set(parts_of(group)[:-1]):
            continue
        held[group] = residuals.table(group).ravel().round(_DIGITS).tolist()
        n_cells += size
    return held


def _unmeasured(
    pairs: Sequence[Mapping[str, Any]],
    residuals: Residuals,
    names: Sequence[str],
    place: Mapping[int, int],
    tables: Mapping[Group, Any],
) -> Iterator[tuple[str, str]]:
    """By pair of columns without a table on the page why that is so."""
    relations = {frozenset((row["column_1"], row["column_2"])): row["relation"] for row in pairs}
    for pair in itertools.combinations(place, 2):
        if pair not in tables:
            relation = relations.get(frozenset(names[place[column]] for column in pair))
            without = "elsewhere" if relation == ELSEWHERE else "assumed"
            yield _key(pair, place), "large" if pair in residuals.values else without


def relations(
    release: NoisyMarginals, residuals: Residuals, *, fields: Fields, columns: Sequence[str]
) -> Relations | None:
    """The strongest relations of two columns that noise does not explain; None without one."""
    analyses = Analyses(domain=release.domain, residuals=residuals, confidence=CONFIDENCE)
    names = [each for each in columns if release.domain[each].size <= MOST_SIDE]
    places = sorted(release.domain.names.index(each) for each in names)
    told = []
    for pair in itertools.combinations(places, 2):
        if pair in residuals.values and residuals.variances[pair]:
            table = _there(analyses, pair)
            if strength(table, residuals.table_variance(pair)):
                told.append(_contrast(table, math.sqrt(residuals.table_variance(pair)), pair))
    told.sort(key=lambda each: -each.association)
    found: list[Relation] = []
    for contrast in told:
        if len(found) == N_RELATIONS or contrast.association < _LEAST:
            break
        relation = _relation(analyses, contrast, fields)
        found += [relation] if relation is not None else []
    note = (
        "Shares are of the records that are not missing, estimated from the noisy tables. One "
        "interval holds with 95 %; where such a figure was chosen because it stands out, a little "
        "less often."
    )
    return Relations(found, note) if found else None


def _there(analyses: Analyses, pair: Group) -> NDArray[np.float64]:
    """The table of two columns without missing and other values, whose codes are the last."""
    sizes = [analyses.domain.columns[each].n_values for each in pair]
    return analyses.residuals.table(pair)[: sizes[0], : sizes[1]]


@dataclass(frozen=True)
class _Contrast:
    """One value of a column, and one of another whose records have it more often than the rest."""

    of: int
    code: int
    by: int
    group: int
    association: float  # the least phi coefficient of the two that noise leaves


def _contrast(table: NDArray[np.float64], error: float, pair: Group) -> _Contrast:
    """The contrast that is surest and largest, between the groups of the column with fewer."""
    of, by = pair if table.shape[1] <= table.shape[0] else pair[::-1]
    table = table if of == pair[0] else table.T
    n, groups, values = table.sum(), table.sum(axis=0), table.sum(axis=1, keepdims=True)
    clear = _CLEAR * error * math.sqrt(len(table))
    with np.errstate(all="ignore"):
        surplus = table / groups - (values - table) / (n - groups)
        surplus -= 2 * error * (1 / groups + 1 / (n - groups))
        part, share = groups / n, values / n
        phi = surplus * np.sqrt(part * (1 - part) / (share * (1 - share)))
    phi = np.where((groups > clear) & (n - groups > clear) & (values > clear), phi, -1.0)
    code, group = map(int, np.unravel_index(np.argmax(phi), phi.shape))
    return _Contrast(of, code, by, group, float(phi[code, group]))


def _relation(analyses: Analyses, told: _Contrast, fields: Fields) -> Relation | None:
    """A contrast in words and bars; None where an interval is not bounded."""
    from markupsafe import Markup

    one, two = (analyses.domain.columns[each] for each in (told.of, told.by))
    rest = [code for code in range(two.n_values) if code != told.group]
    intervals = [
        analyses.share(one.name, [told.code], {two.name: codes}) for codes in ([told.group], rest)
    ]
    if not all(math.isfinite(each.upper - each.lower) for each in intervals):
        return None
    values, groups = (cell_names(each, fields[each.name]) for each in (one, two))
    other, words = "others", Markup("of the others, for")
    if len(rest) == 1:
        other = groups[rest[0]]
        words = Markup("where it is <em>{}</em>, for").format(other)
    first, second = map(_in_words, intervals)
    sentence = Markup(
        "Where {} is <em>{}</em>, {} is <em>{}</em> for <strong>{}</strong>; {} {}."
    ).format(
        _title(fields[two.name]), groups[told.group],
        _title(fields[one.name]), values[told.code],
        first, words, second,
    )  # fmt: skip
    bars = [
        Share(label, *(min(max(x, 0.0), 1.0) for x in (each.value, each.lower, each.upper)))
        for label, each in zip((groups[told.group], other), intervals, strict=True)
    ]
    address = f"cols={quote(one.name, safe='')},{quote(two.name, safe='')}"
    return Relation(sentence, bars, address)


def _title(field: Mapping[str, Any]) -> str:
    return str(field.get("title") or field.get("label") or field["name"])


def _in_words(found: Interval) -> str:
    r"""A share in percent with its interval, to as many digits as that allows.

    >>> _in_words(Interval(0.264, 0.005, 0.253, 0.275)), _in_words(Interval(0.004, 1, -0.01, 0.02))
    ('26\xa0% (±\xa01)', 'at most 2\xa0%')
    """
    reach = 50 * (found.upper - found.lower)
    digits = next((each for each in range(4) if round(reach, each) >= 10**-each), 4)
    if found.lower <= 0:
        return f"at most {100 * max(found.upper, 0.0):.{digits}f}\N{NO-BREAK SPACE}%"
    share, give = f"{100 * found.value:.{digits}f}", f"{reach:.{digits}f}"
    return f"{share}\N{NO-BREAK SPACE}% (±\N{NO-BREAK SPACE}{give})"


def read_codes(
    path: Path, domain: Domain, *, spread: bool, every: int = 1
) -> list[NDArray[np.int64]]:
    """The codes of records, which may have too many combinations to be named by a cell.

    Args:
        path: Of the file.
        domain: Its columns.
        spread: Whether values lie anywhere within their cells.
        every: Of so many records the first is read.

    Returns:
        Per column int64[records].

    Raises:
        ValueError: The file does not hold records of this domain.
    """
    schema = schema_of(domain, spread=spread)
    coders = [
        _spread_coder(column) if spread and column.ends else coder_of(column)
        for column in domain.columns
    ]
    parts: list[list[Codes]] = [[np.zeros(0, np.int64)] for _ in coders]
    before = 0
    for batch in read_batches(path, schema):
        rows = np.arange(-before % every, batch.num_rows, every)
        before += batch.num_rows
        for part, column, coder in zip(parts, domain.columns, coders, strict=True):
            part.append(coder(batch.column(column.name).take(rows)))
    return [np.concatenate(part) for part in parts]


def _spread_coder(column: Column) -> Coder:
    """A function from values within a column's cells, an Arrow array, to codes int64[rows]."""
    import pyarrow as pa

    def coded(values: Any) -> Codes:
        own = values.cast(pa.date32()) if isinstance(column, Date) else values
        return np.array([column.code_of(each) for each in own.to_pylist()], dtype=np.int64)

    return coded
