"""Counts of cells from noisy counts of them and of blocks of neighbouring cells; what they err by.

The least squares and the projection of mechanisms.tables.two_resolutions, which derives them. Where
noise hides most cells, projecting blocks first makes the total variation up to a fifth less than
that of noise on cells only if neighbouring cells hold much the same, and a few per cent more if
not; where it hides few, half of the budget went to blocks in vain. No closed form has all this, and
expected errors are simulated with noise of a known seed, on the reference shapes of
mechanisms.tables.expected_error in an order: all cells alike; counts that fall as 1/rank from cell
to cell; the same on a tenth of the cells, scattered.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.postprocessing.simplex import project_to_simplex
from mechanisms.sampling.simulated_noise import SimulatedRandomness
from mechanisms.tables.expected_variation import ordered_references

Floats = NDArray[np.float64]

MOST_SIMULATED = 1 << 20
"""Cells up to which expected errors are simulated."""

_CELLS_IN_ALL, _REPETITIONS = 1 << 15, 100


def ends_of(blocks: int, n_cells: int) -> Codes:
    """Places int64[blocks + 1] of the first cell of every block, and of the end."""
    return np.arange(blocks + 1) * n_cells // blocks


def least_squares(
    cells: Floats, blocks: Floats, ends: Codes, n_records: int
) -> tuple[Floats, Floats]:
    """Estimates of blocks and cells from their noisy counts.

    Args:
        cells: float64[..., s], of one table or of several.
        blocks: float64[..., k].
        ends: int64[k + 1], as of ``ends_of``.
        n_records: Number of records n.
    """
    starts, widths = ends[:-1], np.diff(ends)
    sums = np.add.reduceat(cells, starts, axis=-1)
    part = widths / (widths + 1)
    totals = part * blocks + sums / (widths + 1)
    totals += part * ((n_records - totals.sum(axis=-1, keepdims=True)) / part.sum())
    return totals, cells + np.repeat((totals - sums) / widths, widths, axis=-1)


def projected_by_blocks(totals: Floats, estimates: Floats, ends: Codes, n_records: int) -> Floats:
    """First the blocks, then the cells of each onto its block's count."""
    found = np.empty_like(estimates)
    whole = project_to_simplex(totals, float(n_records)).values.tolist()
    for start, end, total in zip(ends[:-1].tolist(), ends[1:].tolist(), whole, strict=True):
        found[start:end] = project_to_simplex(estimates[start:end], total).values
    return found


def projected_rows(totals: Floats, estimates: Floats, ends: Codes) -> Floats:
    """Cells onto their blocks' counts, all blocks at once; equal up to rounding.

    Args:
        totals: float64[..., k], not negative.
        estimates: Of the cells, float64[..., s].
        ends: int64[k + 1]; sizes of blocks differ by at most 1.
    """
    widths = np.diff(ends)
    inside = np.arange(int(widths.max())) < widths[:, None]
    rows = np.full((*estimates.shape[:-1], *inside.shape), -np.inf)
    rows[..., inside] = estimates
    falling = -np.sort(-rows, axis=-1)
    ranks = np.arange(1, rows.shape[-1] + 1)
    levels = (np.cumsum(falling, axis=-1) - totals[..., None]) / ranks
    kept = np.maximum((falling > levels).sum(axis=-1), 1)
    level = np.take_along_axis(levels, kept[..., None] - 1, axis=-1)[..., 0]
    found: Floats = np.maximum(estimates - np.repeat(level, widths, axis=-1), 0.0)
    return found


@functools.lru_cache(maxsize=256)
def simulated_variation(scale: Fraction, blocks: int, n_records: int, n_cells: int) -> float:
    """Mean total variation of projected counts over the reference shapes, 0 to 1."""
    rng, ends, found = SimulatedRandomness(), ends_of(blocks, n_cells), []
    times = min(max(_CELLS_IN_ALL // n_cells, 1), _REPETITIONS)
    whole = np.array([0, blocks])  # the blocks as the cells of one block
    for counts in ordered_references(n_records, n_cells, rng):
        noise = rng.normal(0.0, float(scale), (times, n_cells + blocks))
        noisy = counts + noise[:, :n_cells]
        of_blocks = np.add.reduceat(counts, ends[:-1]) + noise[:, n_cells:]
        totals, estimates = least_squares(noisy, of_blocks, ends, n_records)
        kept = projected_rows(np.full((times, 1), float(n_records)), totals, whole)
        cells = projected_rows(kept, estimates, ends)
        found += np.abs(cells - counts).sum(axis=-1).tolist()
    return float(np.mean(found)) / (2 * n_records)
