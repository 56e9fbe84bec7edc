"""Tables to read, down a tree of places: non-negative integers that add up exactly.

From unprojected estimates and their variances, level by level from the root. The root's table is
projected onto the non-negative tables with its total and rounded. Then, for the children of each
place: (i) their totals, unless they are public; (ii) for every cell the law of its records given
its noisy estimate, with the parent's shares as prior, as far as the evidence says that the
children are like their parent; (iii) the tables with those totals that are least wrong in the sum
of absolute errors, which are quantiles of these laws, all at one level for a place; (iv)
non-negative integers nearby that add up to the parent's table and to the totals (controlled
rounding).

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

**How far a child is like its parent.** A child of n records in a parent whose cells have the shares
p_k has x_k records in cell k, with the mean n p_k. Its own rate is r_k ~ Gamma with mean p_k and
variance spread * p_k, and records come in lumps of a size, for instance persons in households: the
number of lumps is Poisson with mean n r_k / lump. So

    P(x_k = 0) = (1 + spread n / lump)^(-p_k / spread),    var x_k = n^2 p_k (spread + lump / n),

and what is not 0 is taken to be Gamma with the first two moments that remain. The lumps' part of
the variance is less for a child that is a large part of its parent, by (1 - n / parent's n). A
spread of 0 and lumps of 1 are a sample from the parent; 15 lumps a child are places that are as
unlike as can be. The noise is Gaussian, of known variance.

**Evidence.** Each child has the mean spread and lumps of a list, by their likelihood given its
noisy cells, with the shares of the list among its siblings as prior, which are found from equal
ones by expectation and maximisation (Dempster, Laird and Rubin 1977, doi
10.1111/j.2517-6161.1977.tb01600.x). So a child that is unlike its siblings is not made like them,
and where no child is like its parent, none is shrunk: a spread of 1 leaves a cell what it is but
for noise and sign.

**Posterior.** With a Gamma prior of shape a and scale b, and noise of variance 1, the density of x
given z is proportional to x^(a-1) exp(-(x - u)^2 / 2), u = z - 1/b, whatever else. Its integral,
mean and quantiles are functions of two numbers, a and u; they are tabulated once, as corrections of
Laplace's approximation in log x, and interpolated. Where the prior is nearly normal (a above 60) or
narrow against the noise (standard deviation below .1) the normal formulas are taken, as they are
for the posterior far from 0 (u above 11).

**Controlled rounding** divides integer tables among children, so that every sum is kept. A parent's
children are halved again and again. At each halving the parent's table, of integers, is divided
between the two halves, cell by cell, so that both are non-negative integers that add up to it, and
so that each half has the total of its children where those are given. The division nearest to what
is wanted in weighted squares has a closed form but for one number a halving, which moves all cells
until the total is right; it is found by Newton's method on a function that is increasing and
piecewise linear. Then floors, and the largest remainders go up to the total (Balinski and Young
1982). Sums are exact by construction, whatever the values: there is nothing to solve that might not
converge. Without bounds, the halvings together are the least squares over all children at once, as
sums of independent estimates are on any tree.

What a half is rounded by is taken up by its parts, each as its variance, so errors do not add up
however many children there are. Time and memory are linear in cells.

Post-processing of what is already public: no private data, no random bits, no privacy cost.
Estimates are taken to have independent errors of equal variance in the cells of a place.

Source: the order of levels is TopDown's (Abowd et al. 2022, doi 10.1162/99608f92.529e3cb9), which
has no prior; controlled rounding is from Cox 1987 (doi 10.1080/01621459.1987.10478456).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.places.tree import Forest, Places, Tree
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.postprocessing.rounding import round_to_total

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SPREADS = np.array(
    [(spread, 1) for spread in (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1)]
    + [(0, lump) for lump in (5, 20, 40, 100, 300)]
    + [(0.01, 5), (0.01, 20), (0.01, 40), (0.1, 20)]
)
"""The list, float64[17, 2]: pairs of a spread and a size of lumps in records."""

LEVELS = (0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
"""Levels of the quantiles of a posterior."""

_ROUNDS = 20
_NORMAL_SHAPE, _NARROW, _FAR = 60.0, 0.01, 11.0
_LOG_SHAPES = np.linspace(np.log(1e-3), np.log(64), 48)
_LOCATIONS = np.linspace(-np.arcsinh(100), np.arcsinh(12), 160)  # inverse hyperbolic sines of u
_PROBABILITIES = np.linspace(0.01, 0.99, 33)

_SIZE_SPREADS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_ONE_BY_ONE = SPREADS[SPREADS[:, 1] == 1]
_BLOCK = 2**14  # cells at once: what fits a processor's own memory
_VARIANCES = (1e-6, 1e18)  # what is exact to a thousandth, and what says nothing
_LOW, _HIGH = LEVELS.index(0.2), LEVELS.index(0.8)
_DEVIATIONS = 1.683  # of a normal law between these two levels

_DIGITS = 6  # after which remainders are equal, whatever a processor makes of the last bits
_NEAR = 0.1  # to the total of a row; below 1 the remainders reach it
_STEPS = 200


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


class Prior(NamedTuple):
    """Records of cells before their noisy counts are seen; arrays of one shape, in records.

    Attributes:
        log_zero: Logarithm of the probability of no record.
        mean: Mean of what is not 0.
        shape: Shape of the Gamma distribution of what is not 0.
    """

    log_zero: Floats
    mean: Floats
    shape: Floats

    @classmethod
    def of(
        cls,
        sizes: Floats,
        whole: Floats,
        shares: Floats,
        spread: Floats | float,
        lump: Floats | float,
    ) -> Prior:
        """From records of places and of their parents, both above 0, and the parents' shares.

        Args:
            sizes: float64[n, 1].
            whole: float64[n, 1].
            shares: float64[n, cells].
            spread: float64, one number or [n, 1].
            lump: float64, one number or [n, 1], in records.
        """
        shares, spread = np.maximum(shares, 1e-12), np.maximum(spread, 1e-9)
        part = np.minimum(lump / sizes, 1.0)
        log_zero = -shares / spread * np.log1p(spread / part)
        some = -np.expm1(log_zero)
        mean = sizes * shares / some
        variance = sizes**2 * shares * (spread + part * np.maximum(1 - sizes / whole, 0.01))
        variance = (variance + (sizes * shares) ** 2) / some - mean**2
        return cls(log_zero, mean, mean**2 / np.maximum(variance, 1e-6 * mean**2))


class GammaPosterior:
    """Of x ~ Gamma given z = x + normal noise; all arrays of one shape or broadcast to one."""

    def __init__(self, mean: Floats, shape: Floats, z: Floats, sd: Floats) -> None:
        self._sd, self._mean, self._z = sd, mean / sd, z / sd
        shape = np.maximum(shape, 1e-3)
        self._variance = self._mean**2 / shape
        self._nearly = (shape > _NORMAL_SHAPE) | (self._variance < _NARROW)
        self._shape = np.minimum(shape, _NORMAL_SHAPE)
        self._scale = np.maximum(self._mean / self._shape, 1e-6)
        self._u = self._z - 1 / self._scale
        self._mode = _mode(self._shape, self._u)
        far = self._u > _FAR
        self._normal = self._nearly | far
        middle = _mode(np.maximum(self._shape - 1, -1), np.maximum(self._u, _FAR))
        weight = self._variance / (1 + self._variance)
        shrunk = self._mean + weight * (self._z - self._mean)
        self._middle = np.where(self._nearly, shrunk, middle)
        self._weight = np.where(self._nearly, weight, 1 / (1 + (self._shape - 1) / middle**2))
        row, self._down = _between(np.log(self._shape), _LOG_SHAPES)
        column, self._right = _between(np.arcsinh(self._u), _LOCATIONS)
        self._corner = row * len(_LOCATIONS) + column

    def log_evidence(self) -> Floats:
        """Logarithm of the density of z, times the noise's standard deviation and sqrt(2 pi)."""
        log_integral = _laplace(self._shape, self._u, self._mode) + self._look_up(_tables()[0])
        from scipy.special import gammaln

        log_prior = -gammaln(self._shape) - self._shape * np.log(self._scale)
        gamma = log_integral + log_prior + 0.5 / self._scale**2 - self._z / self._scale
        away = (self._z - self._mean) ** 2 / (1 + self._variance)
        return np.where(self._nearly, -0.5 * (away + np.log1p(self._variance)), gamma)

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and variance of x."""
        mean = self._mode * np.exp(self._look_up(_tables()[1]))
        variance = np.maximum(self._u * mean + self._shape - mean**2, 1e-9)
        return (
            np.where(self._normal, np.maximum(self._middle, 0), mean) * self._sd,
            np.where(self._normal, self._weight, variance) * self._sd**2,
        )

    def quantile(self, level: Floats) -> Floats:
        """Quantile of x at levels, of which those outside .01 to .99 are moved there."""
        from scipy.special import ndtri

        at, further = _between(level, _PROBABILITIES)
        table, width = _tables()[2], len(_PROBABILITIES)
        log = np.zeros(np.shape(self._u))
        for down in (0, 1):
            for right in (0, 1):
                corner = (self._corner + down * len(_LOCATIONS) + right) * width + at
                part = table.take(corner) * (1 - further) + table.take(corner + 1) * further
                log += part * np.abs(1 - down - self._down) * np.abs(1 - right - self._right)
        normal = self._middle + np.sqrt(self._weight) * ndtri(np.clip(level, 0.01, 0.99))
        gamma = np.exp(log) * self._mode
        return np.where(self._normal, np.maximum(normal, 0), gamma) * self._sd

    def _look_up(self, table: Floats) -> Floats:
        below = self._corner + len(_LOCATIONS)
        upper = table.take(self._corner) * (1 - self._right)
        upper += table.take(self._corner + 1) * self._right
        lower = table.take(below) * (1 - self._right) + table.take(below + 1) * self._right
        return np.asarray(upper * (1 - self._down) + lower * self._down)


def log_evidence(prior: Prior, z: Floats, sd: Floats) -> Floats:
    """Logarithm of the density of noisy cells, times sd and sqrt(2 pi): float64[n, cells]."""
    some = np.log(-np.expm1(prior.log_zero))
    some = some + GammaPosterior(prior.mean, prior.shape, z, sd).log_evidence()
    return np.logaddexp(prior.log_zero - 0.5 * (z / sd) ** 2, some)


def quantiles(prior: Prior, z: Floats, sd: Floats) -> Floats:
    """float64[levels, n, cells]: quantiles of cells given their noisy counts, at ``LEVELS``."""
    from scipy.special import expit

    posterior = GammaPosterior(prior.mean, prior.shape, z, sd)
    some = np.log(-np.expm1(prior.log_zero)) + posterior.log_evidence()
    zero = expit(prior.log_zero - 0.5 * (z / sd) ** 2 - some)
    curves = np.empty((len(LEVELS), *z.shape))
    for level, curve in zip(LEVELS, curves, strict=True):
        within = (level - zero) / np.maximum(1 - zero, 1e-12)
        curve[:] = np.where(level <= zero, 0.0, posterior.quantile(within))
    return np.maximum.accumulate(curves, axis=0)


def likely_spreads(evidence: Floats, starts: Places, listed: Floats) -> Floats:
    """float64[n, 2]: mean spread and size of lumps of each child, given its cells and siblings.

    Args:
        evidence: float64[list, n], logarithms.
        starts: int64[parents + 1]: the children of parent i are starts[i] to starts[i + 1].
        listed: float64[list, 2], as ``SPREADS``.
    """
    count, siblings = len(evidence), np.diff(starts)
    owner = np.repeat(np.arange(len(siblings)), siblings)
    likelihood = np.exp(evidence - evidence.max(axis=0))
    share = np.full((count, len(siblings)), 1 / count)
    for _ in range(_ROUNDS):
        own = share[:, owner] * likelihood
        own /= own.sum(axis=0)
        share = (np.add.reduceat(own, starts[:-1], axis=1) + 1 / count) / (siblings + 1)
    return np.asarray(own.T @ listed)


def _between(values: Floats, grid: Floats) -> tuple[Integers, Floats]:
    """Position in an even grid, and how far towards the next; values outside go to its ends."""
    at = np.clip((values - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1 - 1e-6)
    position = at.astype(np.int64)
    return position, at - position


def _mode(shape: Floats, u: Floats) -> Floats:
    """Mode of log x of the density x^(a-1) exp(-(x-u)^2/2)."""
    root = np.sqrt(u**2 + 4 * shape)
    return np.asarray(np.where(u > 0, (u + root) / 2, 2 * shape / (root - np.minimum(u, 0))))


def _laplace(shape: Floats, u: Floats, mode: Floats) -> Floats:
    """Laplace's approximation of the logarithm of the integral of that density."""
    curvature = mode * np.hypot(u, 2 * np.sqrt(shape))
    peak = shape * np.log(mode) - (mode - u) ** 2 / 2
    return np.asarray(peak - 0.5 * np.log(curvature / (2 * np.pi)))


@functools.cache
def _tables() -> tuple[Floats, Floats, Floats]:
    """By shape and u: log integral less Laplace's; log mean, and log quantiles, over the mode."""
    logs, u = np.linspace(np.log(1e-4), np.log(80), 1200), np.sinh(_LOCATIONS)
    integrals = np.empty((2, len(_LOG_SHAPES), len(u)))
    quantile = np.empty((len(_LOG_SHAPES), len(u), len(_PROBABILITIES)))
    fall = -((np.exp(logs) - u[:, None]) ** 2) / 2 + np.log(logs[1] - logs[0])
    for row, shape in enumerate(np.exp(_LOG_SHAPES)):
        for more in (0, 1):
            below = (shape + more) * logs[0] - np.log(shape + more) - u**2 / 2
            pieces = np.concatenate([below[:, None], (shape + more) * logs + fall], axis=1)
            top = pieces.max(axis=1)
            sums = np.cumsum(np.exp(pieces - top[:, None]), axis=1)
            integrals[more, row] = top + np.log(sums[:, -1])
            if not more:
                ends = np.concatenate([[logs[0] - 3], logs])
                for column, law in enumerate(sums / sums[:, -1:]):
                    quantile[row, column] = np.interp(_PROBABILITIES, law, ends)
    shapes = np.exp(_LOG_SHAPES)[:, None]
    mode = _mode(shapes, u[None])
    return (
        integrals[0] - _laplace(shapes, u[None], mode),
        integrals[1] - integrals[0] - np.log(mode),
        quantile - np.log(mode)[..., None],
    )


def divide(
    above: Integers,
    wanted: Floats,
    variances: Floats,
    starts: Places,
    totals: Integers | None = None,
) -> Integers:
    """Integer tables of children that add up to their parents', near what is wanted.

    Args:
        above: int64[parents, cells], at least 0.
        wanted: float64[children, cells], the tables to approach.
        variances: float64[children, cells], above 0: a cell takes of a difference as its variance.
        starts: int64[parents + 1]: the children of parent i are starts[i] to starts[i + 1].
        totals: int64[children], at least 0, which add up to the parents' totals; or None if a
            child's total is whatever its cells add up to.

    Returns:
        int64[children, cells], at least 0: over the children of a parent they add up to its
        table, and over cells to the totals.
    """
    first, last, whole = starts[:-1], starts[1:], above
    divided = np.empty(wanted.shape, dtype=np.int64)
    while True:
        single = last - first == 1
        divided[first[single]] = whole[single]
        first, last, whole = first[~single], last[~single], whole[~single]
        if not len(first):
            return divided
        middle = (first + last) // 2
        left, right = _sums(wanted, first, middle, last)
        loose, other = _sums(variances, first, middle, last)
        share = loose / (loose + other)
        half = _half(
            left + share * (whole - left - right),
            share * other,
            whole,
            None if totals is None else _sums(totals, first, middle, last)[0],
        )
        first, last = (np.stack(ends, axis=1).ravel() for ends in ((first, middle), (middle, last)))
        whole = np.stack([half, whole - half], axis=1).reshape(len(first), -1)


def _sums(
    values: NDArray[Any], first: Places, middle: Places, last: Places
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sums of the rows from first to middle and from middle to last, all in ascending order."""
    ends = np.stack([first, middle, last], axis=1).ravel()
    sums = np.add.reduceat(values, ends[: len(ends) - (last[-1] == len(values))], axis=0)
    return sums[0::3], sums[1::3]


def _half(wanted: Floats, variances: Floats, most: Integers, totals: Integers | None) -> Integers:
    """Integers from 0 to the most, near what is wanted, whose rows have the totals."""
    if totals is None:
        return np.clip(np.rint(np.round(wanted, _DIGITS)), 0, most).astype(np.int64)
    values = np.round(_shifted(wanted, variances, most, totals), _DIGITS)
    floors = np.floor(values)
    order = np.argsort(floors - values, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    upwards = totals - floors.sum(axis=1)
    return np.asarray(floors + (rank < upwards[:, None]), dtype=np.int64)


def _shifted(wanted: Floats, variances: Floats, most: Integers, totals: Integers) -> Floats:
    """What is wanted, moved in proportion to variances and cut at 0 and the most, to the totals."""
    low = np.min(-wanted / variances, axis=1) - 1
    high = np.max((most - wanted) / variances, axis=1) + 1
    shift = np.clip(np.zeros(len(wanted)), low, high)
    for _ in range(_STEPS):
        values = np.clip(wanted + shift[:, None] * variances, 0, most)
        gap = totals - values.sum(axis=1)
        if np.all(np.abs(gap) < _NEAR):
            return values
        low, high = np.where(gap > 0, shift, low), np.where(gap < 0, shift, high)
        slope = np.sum(variances * ((values > 0) & (values < most)), axis=1)
        step = shift + gap / np.where(slope > 0, slope, 1)
        inside = (slope > 0) & (step > low) & (step < high)
        shift = np.where(inside, step, (low + high) / 2)
    raise ArithmeticError(
        "divide: no shift reaches the totals. Check that they are from 0 to what their parents "
        "have, and that no value is a NaN."
    )
