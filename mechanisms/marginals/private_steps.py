"""The order of the private steps, and how each is chosen from what earlier ones released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechanisms.domain.coded_columns import CodedColumns
from mechanisms.marginals.allocation import (
    SHRUNK,
    Shares,
    by_cells,
    by_expected_error,
    column_weights,
    exact_amounts,
)
from mechanisms.marginals.gdp_filter import GdpFilter
from mechanisms.marginals.measurement import NoisyTable, measure_tables, score_pairs
from mechanisms.marginals.model import one_ways, scores_of
from mechanisms.marginals.released import KnownTotals, NoisyMarginals, present
from mechanisms.marginals.screening import expected_distances
from mechanisms.records.impossible import boxes_of
from mechanisms.records.target_table import Floats, Group
from mechanisms.sampling.randomness import Progress, Randomness


@dataclass(frozen=True)
class Workload:
    """Groups of columns whose tables matter, ascending positions, each with a weight."""

    groups: tuple[tuple[Group, float], ...]

    @property
    def pairs(self) -> tuple[Group, ...]:
        """The groups of two columns."""
        return tuple(group for group, _ in self.groups if len(group) == 2)


def release_marginals(
    coded: CodedColumns,
    workload: Workload,
    shares: Shares,
    mu_squared: Fraction,
    *,
    unit_records: int,
    rng: Randomness,
    known: KnownTotals | None = None,
    progress: Progress | None = None,
) -> NoisyMarginals:
    """One-way tables, scores, and the tables that these make worth measuring.

    Args:
        coded: The private records.
        workload: Public.
        shares: Of mu^2; the screening's is 0 for none.
        mu_squared: The whole budget.
        unit_records: Most records of a unit.
        rng: Source of noise; charge the ledger before building it.
        known: Public exact tables, which are not measured.
        progress: Called with the number of cells of each measured table.
    """
    known, boxes = dict(known or {}), boxes_of(coded.domain)
    budget = GdpFilter(mu_squared)
    sizes = tuple(column.size for column in coded.domain.columns)
    exact = {column for group in known for column in group}
    singles = [(column,) for column in range(len(sizes)) if column not in exact]
    effective = float(mu_squared) / unit_records**2
    one_way: tuple[NoisyTable, ...] = ()
    if singles:
        part = Fraction(shares.one_way) * mu_squared if workload.groups else mu_squared
        cells = np.array([sizes[column] for (column,) in singles], dtype=np.float64)
        amounts = exact_amounts(by_cells(cells, np.ones(len(cells)), 1.0), part)
        one_way = measure_tables(
            coded,
            singles,
            amounts,
            unit_records=unit_records,
            budget=budget,
            rng=rng,
            progress=progress,
        )
    first = NoisyMarginals(coded.domain, coded.n_records, one_way, None, (), known)
    groups = [(group, weight) for group, weight in workload.groups if group not in known]
    if not groups:
        return first
    residuals = first.residuals()
    n = present(residuals, coded.n_records)
    p = one_ways(first, residuals, n, boxes, smoothed=False)
    scores = None
    pairs = [group for group, _ in groups if len(group) == 2]
    if shares.screen and len(pairs) > 1:
        references = {(a, b): np.rint(n * np.multiply.outer(p[a], p[b])) for a, b in pairs}
        scores = score_pairs(
            coded,
            {pair: table.astype(np.int64) for pair, table in references.items()},
            Fraction(shares.screen) * mu_squared,
            unit_records=unit_records,
            budget=budget,
            rng=rng,
        )
    scored = NoisyMarginals(coded.domain, coded.n_records, one_way, scores, (), known)
    weights = allocate(
        scored, groups, p, n, float(budget.remaining) / float(mu_squared) * effective
    )
    chosen = [(g, w) for (g, _), w in zip(groups, weights.tolist(), strict=True) if w > 0]
    tables = measure_tables(
        coded,
        [group for group, _ in chosen],
        exact_amounts(np.array([w for _, w in chosen]), budget.remaining),
        unit_records=unit_records,
        budget=budget,
        rng=rng,
        progress=progress,
    )
    return NoisyMarginals(coded.domain, coded.n_records, one_way, scores, tables, known)


def allocate(
    scored: NoisyMarginals,
    groups: Sequence[tuple[Group, float]],
    one_way: Sequence[Floats],
    n: float,
    total: float,
) -> Floats:
    """Amounts float64[groups] of a total, in units of one record.

    Groups of three columns and more are given what they would be by their cells; the rest goes
    to pairs by their scores, or likewise by their cells.
    """
    sizes = np.array([float(np.prod([scored.sizes[c] for c in g])) for g, _ in groups])
    workload = np.array([weight for _, weight in groups])
    found = by_cells(sizes, workload, total, SHRUNK)
    if scored.scores is None:
        return found
    scores = scores_of(scored, one_way, n)
    is_pair = np.array([group in scores for group, _ in groups])
    pairs = [group for group, _ in groups if group in scores]
    distances = expected_distances(
        np.array([scores[pair].distance for pair in pairs]),
        np.array([scores[pair].bias for pair in pairs]),
        scored.scores.sigma,
    )
    weights = [column_weights(p, n) for p in one_way]
    found[is_pair] = by_expected_error(
        distances,
        [(weights[a], weights[b]) for a, b in pairs],
        workload[is_pair],
        float(found[is_pair].sum()),
    )
    return found
