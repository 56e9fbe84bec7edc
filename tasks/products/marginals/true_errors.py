"""The true errors of microdata by marginals: columns and pairs, measured or not.

All tables are taken from the records' codes in few passes, each of a bounded number of cells, and
none is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.coded_columns import CodedColumns
from mechanisms.domain.domain import Domain
from mechanisms.domain.group_counts import GroupCounts
from mechanisms.inference.realised_errors import coverage
from mechanisms.marginals.marginals import Marginals
from mechanisms.marginals.query import table_with_errors
from mechanisms.planning.plan import PlannedProduct
from mechanisms.records.target_table import Group
from tasks.pages.blocks import Prose, Section
from tasks.products.marginal_errors import EXPLAINED, MarginalErrors, marginal_blocks, marginal_rows
from tasks.products.marginals.tables_file import drawn_tables
from tasks.products.true_errors import TrueErrors

if TYPE_CHECKING:
    from tasks.products.marginals.product import DerivedMicrodata

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
    synthetic = _tables(found.domain, groups, found.codes)
    for group, published, true in zip(groups, synthetic, private.tables(groups), strict=True):
        held = None
        if group in found.residuals.values:
            held = coverage(true, *table_with_errors(found.residuals, group))
        note = found.relations.get(group, "measured") if len(group) > 1 else ""
        columns = [found.domain.columns[column] for column in group]
        yield MarginalErrors.of(
            columns, published.astype(np.float64), true.astype(np.float64), held, note
        )


def _tables(
    domain: Domain, groups: Sequence[Group], codes: Sequence[NDArray[np.unsignedinteger]]
) -> list[NDArray[np.int64]]:
    """The same tables of the published records."""
    counting = GroupCounts([column.size for column in domain.columns], groups)
    for start in range(0, len(codes[0]), _CHUNK):
        counting.add({each: codes[each][start : start + _CHUNK] for each in counting.columns})
    return counting.tables()
