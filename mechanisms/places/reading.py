"""Tables to read, down a tree of places: non-negative integers that add up exactly.

From unprojected estimates and their variances, level by level from the root. The root's table is
projected onto the non-negative tables with its total and rounded. Then, for the children of each
place: (i) their totals, unless they are public; (ii) for every cell the law of its records given
its noisy estimate, with the parent's shares as prior, as far as the evidence says that the
children are like their parent (``shrinkage``); (iii) the tables with those totals that are least
wrong in the sum of absolute errors, which are quantiles of these laws, all at one level for a
place; (iv) non-negative integers nearby that add up to the parent's table and to the totals
(``division``).

Children are read given their parent's integers, never the other way round, so every table is
additive over places and over cells.

**What these tables are not for.** They are biased: a place's cells are drawn towards what its
parent has there, and totals of places towards each other, the more the noisier they are. Of states
of census2000 in 140 cells, at epsilon 1 cells without records have .3 on average, those of 30 to 99
have 2.1 less than they should, and larger ones 1.0 less; at epsilon .3, .4 more, 5.5 and 7.2 less
(tests/benchmarks/README.md has more). An interval, a test, or a sum over places that were chosen
for their counts belongs to the unprojected estimates, which are unbiased and have standard errors.

**Several tables.** Tables that share columns agree on these if the second is read with the first
one's integers on them as ``margins``; tables that share none agree on totals the same way. Columns
may be dropped at lower levels: a level's table is then compared with the sums of the one above.

Post-processing of what is already public: no private data, no random bits, no privacy cost.
Estimates are taken to have independent errors of equal variance in the cells of a place.

Source: the order of levels is TopDown's (Abowd et al. 2022, doi 10.1162/99608f92.529e3cb9), which
has no prior; controlled rounding is from Cox 1987 (doi 10.1080/01621459.1987.10478456).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.places.division import divide
from statpress.mechanisms.places.shrinkage import (
    LEVELS,
    SPREADS,
    GammaPosterior,
    Prior,
    likely_spreads,
    log_evidence,
    quantiles,
)
from statpress.mechanisms.places.tree import Forest, Places, Tree
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.postprocessing.rounding import round_to_total

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_SIZE_SPREADS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_ONE_BY_ONE = SPREADS[SPREADS[:, 1] == 1]
_BLOCK = 2**14  # cells at once: what fits a processor's own memory
_VARIANCES = (1e-6, 1e18)  # what is exact to a thousandth, and what says nothing
_LOW, _HIGH = LEVELS.index(0.2), LEVELS.index(0.8)
_DEVIATIONS = 1.683  # of a normal law between these two levels


def read(
    tree: Tree,
    estimates: Sequence[Floats],
    variances: Sequence[Floats | float],
    *,
    total: int | None = None,
    margins: Sequence[Integers | None] | None = None,
) -> list[Integers]:
    """Integer tables of all places of all levels, from estimates of one table.

    Args:
        tree: Who lies in whom.
        estimates: For each level float64[places, *cells], from the root down. A level may have
            fewer axes than the one above: it then has the first ones.
        variances: For each level float64[places] or one number: of the error of a cell. Infinite
            for a place below the root that has no estimate, which is then read from its parent.
        total: Records of the root, where public; else what its estimates add up to, at least 0.
        margins: For each level int64[places, *first axes], sums of the table over its other axes
            that are public or read before, additive over places; with no axis totals of places.
            None for a level, or in all, if there are none.

    Returns:
        For each level int64 of the shape of its estimates, at least 0. The children of a place add
        up to it, and cells to their margins.

    Raises:
        ValueError: Shapes do not fit each other, an estimate of finite variance is not finite, a
            variance is negative or a NaN, or the margins do not add up.
    """
    given = [None] * len(tree.levels) if margins is None else list(margins)
    _check(tree, estimates, variances, given, total)
    if not np.isfinite(estimates[0]).all():
        raise ValueError(f"read: level '{tree.levels[0]}' has an estimate without a value.")
    root = _root(estimates[0][0], total, None if given[0] is None else given[0][0])
    below = zip(estimates[1:], variances[1:], given[1:], strict=True)
    return [root[None], *read_below(tree, root[None], below)]


def read_below(
    forest: Forest,
    above: Integers,
    below: Iterable[tuple[Floats, Floats | float, Integers | None]],
) -> Iterator[Integers]:
    """Integer tables of all levels but the first, from those of the first.

    Args:
        forest: Who lies in whom.
        above: int64[places, *cells] of the first level.
        below: Of each level further down estimates, variances and margins, as for ``read``.
    """
    for level, (own, spread, margin) in enumerate(below, 1):
        table = np.empty(own.shape, dtype=np.int64)
        above = above.sum(axis=tuple(range(own.ndim, above.ndim)))
        for rows, block in read_level(forest, level, above, own, spread, margin):
            table[rows] = block
        yield table
        above = table


def read_level(
    tree: Forest,
    level: int,
    above: Integers,
    estimates: Floats,
    variances: Floats | float,
    margins: Integers | None = None,
) -> Iterator[tuple[slice, Integers]]:
    """Tables of the places of a level below the first, some parents at a time.

    Memory is some ten times that of the estimates of the children of one place, or of 2**14 cells;
    estimates may be on disk (``numpy.memmap``).

    Args:
        tree: Who lies in whom.
        level: From 1.
        above: int64[places of the level above, *cells], the tables already read.
        estimates: float64[places, *cells].
        variances: float64[places] or one number, as for ``read``.
        margins: int64[places, *first axes], or None.

    Yields:
        Places of the level, in order, and int64[of these, *cells].

    Raises:
        ValueError: An estimate of finite variance is not finite.
    """
    starts, shape = tree.starts(level - 1), estimates.shape[1:]
    cells, spread = math.prod(shape), np.broadcast_to(variances, len(estimates))
    first = 0
    while first < len(above):
        most = int(starts[first]) + _BLOCK // cells
        last = max(int(np.searchsorted(starts, most, side="right")) - 1, first + 1)
        rows = slice(int(starts[first]), int(starts[last]))
        known = np.isfinite(spread[rows])
        own = np.asarray(estimates[rows], dtype=np.float64).reshape(-1, cells)
        if not np.isfinite(own[known]).all():
            raise ValueError(f"read: level '{tree.levels[level]}' has an estimate without a value.")
        block = _families(
            above[first:last].reshape(last - first, cells),
            np.where(known[:, None], own, 0.0),
            np.clip(spread[rows], *_VARIANCES).astype(np.float64),
            starts[first : last + 1] - starts[first],
            None if margins is None else margins[rows].reshape(rows.stop - rows.start, -1),
        )
        yield rows, block.reshape(-1, *shape)
        first = last


def _root(estimates: Floats, total: int | None, margin: Integers | None) -> Integers:
    """Integers near the estimates with a total or with margins."""
    if margin is None:
        whole = max(round(float(estimates.sum())), 0) if total is None else total
        margin = np.array(whole)
    table = np.empty((margin.size, estimates.size // margin.size), dtype=np.int64)
    rows = estimates.reshape(table.shape)
    for row, own, whole in zip(table, rows, margin.ravel().tolist(), strict=True):
        row[:] = round_to_total(project_to_simplex(own, whole).values, whole)
    return table.reshape(estimates.shape)


def _families(
    above: Integers,
    estimates: Floats,
    variances: Floats,
    starts: Places,
    margins: Integers | None,
) -> Integers:
    """int64[n, cells]: children of some parents, with the margins of each, int64[n, groups]."""
    if margins is None:
        totals = _totals(above, estimates, variances, starts)
        return _children(above, estimates, variances, starts, totals)
    # The cells of a parent with one margin are a parent by themselves.
    groups, siblings = margins.shape[1], np.diff(starts)
    owner = np.repeat(np.arange(len(siblings)), siblings)
    order = np.argsort((owner[:, None] * groups + np.arange(groups)).ravel(), kind="stable")
    table = _children(
        above.reshape(len(above) * groups, -1),
        estimates.reshape(len(estimates) * groups, -1)[order],
        np.repeat(variances, groups)[order],
        np.concatenate([[0], np.cumsum(np.repeat(siblings, groups))]),
        margins.ravel()[order],
    )
    back = np.empty_like(table)
    back[order] = table
    return back.reshape(estimates.shape)


def _children(
    above: Integers, estimates: Floats, variances: Floats, starts: Places, totals: Integers
) -> Integers:
    """int64[n, cells]: the tables of the children of some parents, given their totals."""
    cells, sd = above.shape[1], np.sqrt(variances)[:, None]
    owner, whole = np.repeat(np.arange(len(above)), np.diff(starts)), above.sum(axis=1)[:, None]
    whole, sizes = np.maximum(whole, 1), np.maximum(totals, 0.5)[:, None]

    def prior(rows: slice, spread: Floats | float, lump: Floats | float) -> Prior:
        own = owner[rows]
        return Prior.of(sizes[rows], whole[own], above[own] / whole[own], spread, lump)

    step = max(_BLOCK // cells, 1)
    parts = [slice(first, first + step) for first in range(0, len(totals), step)]
    evidence = np.empty((len(SPREADS), len(totals)))
    for rows in parts:
        for row, (spread, lump) in zip(evidence, SPREADS, strict=True):
            own = log_evidence(prior(rows, spread, lump), estimates[rows], sd[rows])
            row[rows] = own.sum(axis=1)
    likely = likely_spreads(evidence, starts, SPREADS)[:, :, None]
    wanted, loose = np.empty(estimates.shape), np.empty(estimates.shape)
    for rows in parts:
        own_prior = prior(rows, likely[rows, 0], likely[rows, 1])
        curves = quantiles(own_prior, estimates[rows], sd[rows])
        deviation = (curves[_HIGH] - curves[_LOW]) / _DEVIATIONS
        wanted[rows] = _at_total(curves, totals[rows])
        loose[rows] = np.maximum(deviation**2, 1e-6)
    return divide(above, wanted, loose, starts, totals)


def _at_total(curves: Floats, totals: Integers) -> Floats:
    """float64[n, cells]: quantiles of cells, at the level of each row at which they add up."""
    sums, rows = curves.sum(axis=2), np.arange(len(totals))
    at = np.clip((sums < totals).sum(axis=0) - 1, 0, len(curves) - 2)
    low, high = sums[at, rows], sums[at + 1, rows]
    further = np.clip((totals - low) / np.maximum(high - low, 1e-12), 0, 1)[:, None]
    values = curves[at, rows] * (1 - further) + curves[at + 1, rows] * further
    scale = totals / np.maximum(values.sum(axis=1), 1e-12)
    return np.asarray(values * scale[:, None])


def _totals(above: Integers, estimates: Floats, variances: Floats, starts: Places) -> Integers:
    """int64[n]: totals of children that add up to those of their parents.

    The cells of a child that is like its parent say more of its total than their sum does: with
    noise of variance w and x of mean n p and covariance spread n^2 (diag p - p p'), generalised
    least squares is n = p'D^-1 z / p'D^-1 p, D = w + spread n^2 diag p, of variance
    1 / p'D^-1 p - spread n^2. A second step uses what the first found.
    """
    mass, siblings = above.sum(axis=1), np.diff(starts)
    owner = np.repeat(np.arange(len(above)), siblings)
    whole = np.maximum(mass, 1)[owner]
    shares, cells = above[owner] / whole[:, None], estimates.shape[1]
    guesses, errors = estimates.sum(axis=1), variances * cells
    least = variances / np.maximum((shares**2).sum(axis=1), 1 / cells)
    for _ in range(2):
        sizes, _ = _shrunken_sizes(guesses, errors, whole / siblings[owner], starts)
        sums = np.add.reduceat(sizes, starts[:-1])
        sizes = np.maximum(sizes * (mass / np.maximum(sums, 1e-300))[owner], 0.5)[:, None]
        evidence = np.empty((len(_ONE_BY_ONE), len(estimates)))
        for row, (spread, _) in zip(evidence, _ONE_BY_ONE, strict=True):
            variance = variances[:, None] + shares * sizes**2 * (spread + 1 / sizes)
            away = (estimates - sizes * shares) ** 2 / variance
            row[:] = -0.5 * (away + np.log(variance)).sum(axis=1)
        spreads = likely_spreads(evidence, starts, _ONE_BY_ONE)[:, :1]
        between = sizes**2 * (spreads + 1 / sizes)
        variance = variances[:, None] + shares * between
        weight = np.maximum((shares**2 / variance).sum(axis=1), 1e-300)
        guesses = (shares * estimates / variance).sum(axis=1) / weight
        errors = np.clip(1 / weight - between[:, 0], least, variances * cells)
    sizes, errors = _shrunken_sizes(guesses, errors, whole / siblings[owner], starts)
    return divide(mass[:, None], sizes[:, None], errors[:, None], starts)[:, 0]


def _shrunken_sizes(
    guesses: Floats, variances: Floats, equal: Floats, starts: Places
) -> tuple[Floats, Floats]:
    """Totals drawn towards those of equal siblings, by evidence: mean and variance of each."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    laws = [
        GammaPosterior(equal, np.full(len(equal), 1 / spread), guesses, np.sqrt(variances))
        for spread in _SIZE_SPREADS
    ]
    evidence = np.add.reduceat([law.log_evidence() for law in laws], starts[:-1], axis=1)
    weights = np.exp(evidence - evidence.max(axis=0))
    weights = (weights / weights.sum(axis=0))[:, owner]
    means, spreads = (np.stack(part) for part in zip(*(law.moments() for law in laws), strict=True))
    mean = (weights * means).sum(axis=0)
    return mean, np.maximum((weights * (spreads + means**2)).sum(axis=0) - mean**2, 1e-6)


def _check(
    tree: Tree,
    estimates: Sequence[Floats],
    variances: Sequence[Floats | float],
    margins: Sequence[Integers | None],
    total: int | None,
) -> None:
    """Whether shapes fit, numbers are numbers, and margins add up."""
    if not len(estimates) == len(variances) == len(margins) == len(tree.levels):
        raise ValueError("read: give estimates, variances and margins (or None) for each level.")
    for level, (name, places) in enumerate(zip(tree.levels, tree.sizes, strict=True)):
        own, margin, shape = estimates[level], margins[level], estimates[level].shape
        if shape[:1] != (places,) or shape[1:] != estimates[max(level - 1, 0)].shape[1 : own.ndim]:
            raise ValueError(
                f"read: level '{name}' has {places} places and the first axes of the table of the "
                f"level above, but its estimates have the shape {shape}."
            )
        spread = np.asarray(variances[level])
        if spread.shape not in ((), (places,)) or not np.all(spread >= 0):
            raise ValueError(
                f"read: give one variance of at least 0 for level '{name}', or one for each place."
            )
        if margin is None:
            continue
        if margin.shape != shape[: margin.ndim] or margin.ndim == 0 or margin.min() < 0:
            raise ValueError(
                f"read: margins of level '{name}' are sums of its tables, at least 0, over all but "
                f"their first axes; they have the shape {margin.shape}, the estimates {shape}."
            )
        whole = margins[level - 1] if level else None
        if whole is not None:
            whole = whole.sum(axis=tuple(range(min(margin.ndim, whole.ndim), whole.ndim)))
            sums = tree.sums(level, margin.sum(axis=tuple(range(whole.ndim, margin.ndim))))
            if not np.array_equal(sums, whole):
                raise ValueError(f"read: margins of level '{name}' do not add up to those above.")
        elif level:
            raise ValueError(f"read: level '{name}' has margins, but the level above has none.")
        elif total is not None and int(margin.sum()) != total:
            raise ValueError(f"read: margins of level '{name}' do not add up to the total {total}.")
