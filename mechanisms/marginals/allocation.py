"""How much of mu^2 each table may spend, from public quantities and earlier noisy results.

All amounts B are those of a unit of one record, B = 2/s^2 for noise of variance s^2; a unit of c
records spends c^2 times as much.

A pair whose table is measured with noise of variance 2/B, and then shrunk towards independence,
keeps of its distance g from independence about g sqrt(sum v/(1 + v B/2) / sum v), where v are the
variances of its cells' deviations from independence. The amounts minimise the sum of this over
all pairs. It is convex in B, so that the derivative of every pair, tabulated on a grid, equals one
multiplier or the pair is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechanisms.records.target_table import Floats

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|Z| of a standard normal variable."""
SHRUNK = 0.5
"""Exponent for tables of several columns."""
_GRID = 240
_LEAST = 1e-5  # of the total: a pair that would get less is not measured


@dataclass(frozen=True)
class Shares:
    """How mu^2 is split between the steps.

    Attributes:
        one_way: For the one-way tables.
        screen: For the scores; 0 without them.
    """

    one_way: float
    screen: float


def default_shares(
    *, n: float, mu: float, sizes: Sequence[int], screened: bool, tables: bool
) -> Shares:
    """Shares that were good on public tables of several widths.

    Args:
        n: Number of records.
        mu: Of the whole, divided by the records of a unit.
        sizes: Number of codes of every column.
        screened: Whether pairs are scored.
        tables: Whether there is any table of several columns to be measured.
    """
    if not tables:
        return Shares(1.0, 0.0)
    total = sum(sizes)
    cells = (total**2 - sum(size**2 for size in sizes)) / 2
    signal = n * mu / math.sqrt(max(cells, 1.0))
    one_way = min(max(2.6 * signal**-0.7, 0.08), 0.5)
    return Shares(one_way, min(max(one_way / 4, 0.02), 0.1) if screened else 0.0)


def column_weights(shares: Floats, n: float) -> Floats:
    """float64[k - 1]: how much the cells of a column deviate, the smallest left out."""
    weights = np.sort(np.maximum(shares, 1 / n) ** 1.5)[1:]
    found: Floats = weights * (len(weights) / weights.sum())
    return found


def by_expected_error(
    distances: Floats, pair_weights: Sequence[tuple[Floats, Floats]], workload: Floats, total: float
) -> Floats:
    """Amounts float64[P] that minimise the expected remaining error; some may be 0.

    Args:
        distances: float64[P], expected L1 distance of each pair from independence.
        pair_weights: For each pair the ``column_weights`` of both columns.
        workload: float64[P], how much each pair's error counts.
        total: Of all amounts.
    """
    tops = np.geomspace(total * 1e-7, total, _GRID)
    slopes = np.empty((len(distances), _GRID))
    for i, (distance, (one, other)) in enumerate(zip(distances, pair_weights, strict=True)):
        scale = MEAN_ABSOLUTE * np.sqrt(one).sum() * np.sqrt(other).sum()
        values = np.sort(((distance / scale) ** 2 * np.multiply.outer(one, other)).ravel())
        if len(values) > 400:  # quantiles stand for many cells
            values = np.array([part.mean() for part in np.array_split(values, 400)])
        grown = 1 + values[:, None] * (tops / 2)
        kept = (values[:, None] / grown).sum(axis=0) / values.sum()
        slope = (values[:, None] ** 2 / 2 / grown**2).sum(axis=0) / values.sum()
        slopes[i] = workload[i] * distance * slope / (2 * np.sqrt(kept))
    slopes = np.maximum.accumulate(slopes[:, ::-1], axis=1)[:, ::-1]  # falls along B
    low, high = float(slopes.min()) / 2, float(slopes.max())
    for _ in range(100):
        level = math.sqrt(low * high)
        low, high = (level, high) if _amounts(slopes, tops, level).sum() > total else (low, level)
    found = _amounts(slopes, tops, high)
    if not found.any():
        found[int(np.argmax(slopes[:, 0]))] = total
    found[found < _LEAST * total] = 0.0
    found *= total / found.sum()
    return found


def remaining(distance: float, one: Floats, other: Floats, amount: float) -> float:
    """About the distance that is left of one when the pair is measured with an amount."""
    scale = MEAN_ABSOLUTE * np.sqrt(one).sum() * np.sqrt(other).sum()
    values = (distance / scale) ** 2 * np.multiply.outer(one, other)
    kept = (values / (1 + values * (amount / 2))).sum() / values.sum()
    return distance * math.sqrt(float(kept))


def _amounts(slopes: Floats, tops: Floats, level: float) -> Floats:
    """Where each falling slope meets a level; 0 where it starts below."""
    reached = (slopes >= level).sum(axis=1)
    found = np.zeros(len(slopes))
    inside = reached > 0
    place = np.minimum(reached[inside], len(tops) - 1)
    above, below = slopes[inside, place - 1], slopes[inside, place]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(above > below, (above - level) / (above - below), 1.0)
    part = np.clip(part, 0.0, 1.0)
    found[inside] = tops[place - 1] * (tops[place] / tops[place - 1]) ** part
    return found


def by_cells(cells: Floats, workload: Floats, total: float, exponent: float = 2 / 3) -> Floats:
    """Amounts float64[P] proportional to (weight times cells)^exponent.

    With 2/3 they minimise the sum of all absolute errors of tables that are used as they were
    measured. Large tables that are shrunk do with less: ``SHRUNK``.
    """
    parts = (workload * cells) ** exponent
    found: Floats = parts * (total / parts.sum())
    return found


def least_part(
    sizes: Sequence[int],
    groups: Sequence[tuple[Sequence[int], float]],
    shares: Shares,
) -> float:
    """Below every part of mu^2 that a step may be given, whatever the scores will be.

    Args:
        sizes: Number of codes of every column.
        groups: Columns of each table of the workload, and its weight.
        shares: Of mu^2 for the first two steps.
    """
    cells = np.array(sizes, dtype=np.float64)
    single = by_cells(cells, np.ones(len(cells)), shares.one_way if groups else 1.0)
    parts = [float(single.min())]
    if groups:
        joint = np.array([math.prod(sizes[c] for c in group) for group, _ in groups], float)
        rest = 1.0 - shares.one_way - shares.screen
        tables = by_cells(joint, np.array([w for _, w in groups]), rest, SHRUNK)
        parts.append(float(tables.min()))
        if shares.screen:
            pairs = np.array([len(group) == 2 for group, _ in groups])
            parts += [shares.screen, float(tables[pairs].sum()) * _LEAST / 2]
    return min(parts)


def exact_amounts(amounts: Floats, total: Fraction) -> list[Fraction]:
    """Amounts as fractions that add up to at most a total, in the given proportions."""
    parts = [Fraction(float(amount)) for amount in amounts]
    whole = sum(parts)
    return [total * part / whole for part in parts]
