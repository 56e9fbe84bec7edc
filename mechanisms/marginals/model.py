"""From what was released to the tables that the records should have."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.marginals.denoising import Score, denoise
from mechanisms.marginals.released import NoisyMarginals, present
from mechanisms.marginals.residuals import Residuals, centred, subgroups
from mechanisms.marginals.screening import pair_bias, score_bias
from mechanisms.marginals.smoothing import is_smoothed, similarity, smoothed_shares
from mechanisms.postprocessing.simplex import project_to_simplex
from mechanisms.records.fitting import fit_margins, fit_pair
from mechanisms.records.impossible import Box, boxes_of, possible_cells
from mechanisms.records.target_table import Floats, Group


@dataclass(frozen=True, eq=False)
class Model:
    """Tables to aim at, in shares.

    Attributes:
        residuals: The unbiased combination of all tables.
        n: Number of present records, known or estimated.
        one_way: Shares of every column's cells.
        pairs: Shares of the cells of every pair of columns, by ascending positions.
        groups: The same of larger measured groups.
        signal: Of measured pairs, about the variance of the signal over that of the noise.
        errors: Of measured pairs, about the sum of squared errors of the cells' shares.
    """

    residuals: Residuals
    n: float
    one_way: tuple[Floats, ...]
    pairs: Mapping[Group, Floats]
    groups: Mapping[Group, Floats]
    signal: Mapping[Group, float]
    errors: Mapping[Group, float]


def model_of(released: NoisyMarginals) -> Model:
    """Denoised tables, consistent in their one-way margins."""
    boxes = boxes_of(released.domain)
    residuals = released.residuals()
    n = present(residuals, released.n_records)
    one_way = one_ways(released, residuals, n, boxes, smoothed=True)
    columns = range(len(released.sizes))
    pairs = [(a, b) for a in columns for b in columns if a < b]
    products = {(a, b): np.multiply.outer(one_way[a], one_way[b]) for a, b in pairs}
    measured = [p for p in pairs if residuals.variances.get(p, 0.0) > 0]
    found = denoise(
        one_way,
        {p: residuals.values[p] - n * centred(products[p]) for p in measured},
        {p: residuals.variances[p] for p in measured},
        scores_of(released, one_way, n),
        [similarity(column) for column in released.domain.columns] if measured else [],
    )
    fitted: dict[Group, Floats] = {}
    for pair in pairs:
        table = products[pair]
        if pair in found:
            table = table + found[pair].table / n
        elif pair in residuals.values:  # known exactly
            table = residuals.table(pair) / n
        possible = possible_cells(pair, released.sizes, boxes)
        if pair in residuals.values or not possible.all():
            table = fit_pair(table, one_way[pair[0]], one_way[pair[1]], possible)
        fitted[pair] = table
    signal = {pair: deviation.signal for pair, deviation in found.items()}
    errors = {pair: deviation.error / n**2 for pair, deviation in found.items()}
    larger = sorted({table.group for table in released.tables if len(table.group) > 2})
    groups = {group: group_table(group, one_way, fitted, residuals, n, boxes) for group in larger}
    return Model(residuals, n, one_way, fitted, groups, signal, errors)


def group_table(
    group: Group,
    one_way: Sequence[Floats],
    pairs: Mapping[Group, Floats],
    residuals: Residuals,
    n: float,
    boxes: Sequence[Box],
) -> Floats:
    """Shares of the cells of a measured group of three columns or more.

    The table of maximum entropy given the fitted pairs, moved towards the measured residuals of
    three columns and more by as much of each as its noise leaves (James and Stein 1961), and
    fitted to the pairs again.
    """
    margins: dict[Group, Floats] = {
        (i, j): pairs[group[i], group[j]] for i, j in itertools.combinations(range(len(group)), 2)
    }
    start = functools.reduce(np.multiply.outer, [one_way[column] for column in group])
    start = start * possible_cells(group, residuals.sizes, boxes)
    table = fit_margins(start, margins)
    moved = table.copy()
    for part in subgroups(group):
        if len(part) < 3:
            continue
        inside = tuple(group.index(column) for column in part)
        others = tuple(axis for axis in range(len(group)) if axis not in inside)
        gap = residuals.values[part] / n - centred(table.sum(axis=others))
        freedom = math.prod(residuals.sizes[column] - 1 for column in part)
        noise = residuals.variances[part] / n**2 * freedom
        gain = max(0.0, 1 - noise / max(float((gap**2).sum()), noise))
        cells = math.prod(table.shape[axis] for axis in others)
        shape = [table.shape[axis] if axis in inside else 1 for axis in range(len(group))]
        moved += gain / cells * gap.reshape(shape)
    return fit_margins(np.maximum(moved, 1e-4 * table) * (start > 0), margins)


def one_ways(
    released: NoisyMarginals,
    residuals: Residuals,
    n: float,
    boxes: Sequence[Box],
    *,
    smoothed: bool,
) -> tuple[Floats, ...]:
    """Projected shares float64[k] of every column, 0 where a code is impossible.

    Args:
        released: What was measured so far.
        residuals: All of it combined.
        n: Number of present records, known or estimated.
        boxes: Structural zeros.
        smoothed: Whether ordered columns are smoothed; the bias of scores is known without.
    """
    found = []
    for column, declared in enumerate(released.domain.columns):
        estimate, variance = residuals.table((column,)), residuals.variances[(column,)]
        if smoothed and variance and is_smoothed(declared):
            total = float(residuals.values[()])
            estimate = smoothed_shares(declared, estimate / total, variance / total**2)
            estimate = estimate * n
        shares = project_to_simplex(estimate, n).values / n
        possible = possible_cells((column,), released.sizes, boxes)
        if not possible.all():
            shares = np.where(possible, shares, 0.0)
            shares = shares / shares.sum() if shares.sum() else possible / possible.sum()
        found.append(shares)
    return tuple(found)


def scores_of(released: NoisyMarginals, one_way: Sequence[Floats], n: float) -> dict[Group, Score]:
    """What the scores say, with the bias that the one-ways they were taken with gave them."""
    if released.scores is None:
        return {}
    sigma = {table.group[0]: table.variance**0.5 for table in released.one_way}
    bias = [
        score_bias(n, p, sigma.get(j, 0.0)) if j in sigma else 0.0 for j, p in enumerate(one_way)
    ]
    scores = released.scores
    return {
        (a, b): Score(distance, pair_bias(bias[a], bias[b]), scores.sigma)
        for (a, b), distance in zip(scores.pairs, scores.distances.tolist(), strict=True)
    }
