"""Non-negative tables that agree: projections, and least squares over common marginals.

Everything here is post-processing of what is already public, so it costs no privacy.

**Projection onto the simplex**, non-negative cells with a known sum. The nearest point to x on
{z >= 0, sum z = total} is z_i = max(x_i - t, 0), where the threshold t
solves sum max(x_i - t, 0) = total (Held, Wolfe and Crowder 1974, doi 10.1007/BF01580223; Duchi,
Shalev-Shwartz, Singer and Chandra 2008, doi 10.1145/1390156.1390191). The left side at a value r,

    excess(r) = sum over x_i > r of (x_i - r),

falls as r grows, so the active values, those above t, are the ones with
excess(x_i) < total, and a bisection over the sorted values finds the least of
them, r. Then t = r - lift with lift = (total - excess(r)) / (number active) >= 0.

*Rounding.* Nothing is subtracted from a long sum. The excess is built from
non-negative terms only, each step of the bisection adding one block to what is
known, and z_i = (x_i - r) + lift adds two non-negative numbers. NumPy sums a block
of k terms in pairs, in error by at most (25 + log2 k) units of rounding, so the
sum of the result agrees with the total to about 10**-14 of it, whatever the offset
of the values. The condition is checked on every result, to 10**-12 (and to what
denormal numbers can hold, where a cell's share is below 10**-296).

**Overlapping tables: weighted least squares over common marginals.** Given noisy tables y_i over
some columns each, find the tables x_i with the least
sum of (x_i - y_i)**2 / variance such that any two of them have the same marginal on
the columns they share (the total, where they share none) and, if asked, a given
total. If the noise of every cell is independent, with mean 0 and its table's variance,
this is the best linear unbiased estimate (Gauss and Markov), and the standard errors
returned are its own, never larger than before.

There is one variance per table. The interactions of a table (its marginals, centred along each
axis: the analysis of variance) are uncorrelated, so each is pooled on its own by inverse variance:
a closed form, in time of the cells times the sets T of columns that are shared (Qardaji, Yang and
Li 2014, doi 10.1145/2588555.2588575 for the pooling; Xiao, He, Zhang and Kifer 2023, arXiv
2305.08175 for the basis). What is left of a disagreement is checked on every result: at most
10**-9 of the largest table's sum of absolute values.

**Non-negative tables that agree**: the nearest to estimates, in weighted squares. Minimise the sum
of (x_i - y_i)**2 / variance_i over tables x_i >= 0 that agree on every
marginal they share and add up to the total. Without x >= 0 this is the least squares above, a map
P. With multipliers m_i >= 0 of x_i >= 0, in
units of x, the dual has the gradient x(m) = P(y + m) in the norm of the weights, and since P is a
projection plus a constant, steps of length 1 are safe:

    m <- max(m - x(m), 0),

which is Dykstra's alternating projection (Boyle and Dykstra 1986, doi
10.1007/978-1-4613-9940-7_3). It is accelerated with momentum, given up whenever it points uphill
(Beck and Teboulle 2009, doi 10.1137/080716542; O'Donoghue and Candes 2015, arXiv 1204.3982). There
is always a solution, since uniform tables agree, and it is unique.

It is approached, not reached: what is below 0 after the last step is moved within each table by
the projection onto the simplex, and by as much the tables may disagree. Steps end when one
moves at most 10**-9 of the total in every table (so that no more than that is below 0), which
takes tens to hundreds of them, and after a thousand.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from statpress.mechanisms.domain.domain import Domain

_TOLERANCE = 1e-12
_MOST_CELLS = 2**63
_LEAST = 5e-324


@dataclass(frozen=True, eq=False)
class SimplexProjection:
    """The nearest non-negative cells with the given sum.

    Attributes:
        values: float64[K], in the order of the input, each at least 0.
        threshold: t in values = max(input - t, 0), rounded. Where the sum is 0 any
            t from the largest input upwards would do, and this is the largest.
        absent_value: What every cell that is not listed gets, usually 0.
    """

    values: NDArray[np.float64]
    threshold: float
    absent_value: float


@np.errstate(over="ignore")
def project_to_simplex(
    values: ArrayLike, total: float, *, n_cells: int | None = None, absent: float = 0.0
) -> SimplexProjection:
    """Project onto {z >= 0, sum z = total}, the nearest point in Euclidean distance.

    Exact up to rounding, O(K log K) for K listed cells; the cells that are not
    listed cost nothing, however many. The result depends only on the values, not
    on their order.

    Source: Held, Wolfe and Crowder 1974; Duchi et al. 2008, doi 10.1145/1390156.1390191, figure 1.

    Args:
        values: float64[K], the listed cells, for instance ``DebiasedTable.estimates``.
        total: Sum to reach, at least 0.
        n_cells: Number of all cells, at most 2**63; K if it is not given.
        absent: Value of each of the n_cells - K cells that are not listed, for
            instance ``DebiasedTable.undrawn_estimate``.

    Raises:
        ValueError: A number is not finite, the total is negative, n_cells is below K
            or above 2**63, or there is no cell to hold a positive total.
        ArithmeticError: The result does not add up to the total (not known to occur).
    """
    listed, unlisted = _checked(values, total, n_cells, absent)
    total, absent = float(total), float(absent)
    if total == 0:
        largest = [float(listed.max())] if len(listed) else []
        largest += [absent] if unlisted else []
        return SimplexProjection(np.zeros(len(listed)), max(largest, default=0.0), 0.0)

    first, excess, ordered = _active(listed, total, unlisted, absent)
    n_listed = len(ordered) - first
    least = float(ordered[first]) if n_listed else math.inf
    # The unlisted cells are active if they reach the least active value, or lie
    # above the next one and still within what is left of the total.
    below = float(ordered[first - 1]) if first else -math.inf
    reach = excess + n_listed * (least - absent) if absent < least and n_listed else 0.0
    joined = unlisted > 0 and (absent >= least or (absent > below and reach < total))
    joined = joined or not n_listed
    reference = min(least, absent) if joined else least
    if n_listed:
        excess += n_listed * (least - reference)
    if joined:
        excess += unlisted * (absent - reference)
    active = n_listed + (unlisted if joined else 0)
    lift = max(total - excess, 0.0) / active

    result = listed - reference
    result += lift
    result[listed < least] = 0.0
    absent_value = (absent - reference) + lift if joined else 0.0
    gap = abs(float(result.sum()) + unlisted * absent_value - total)
    if not gap <= _TOLERANCE * total + _LEAST * active:
        raise ArithmeticError(
            f"project_to_simplex: the result misses the total {total!r} by {gap!r}. "
            "Report this with the values that were projected."
        )
    return SimplexProjection(result, reference - lift, absent_value)


def _active(
    listed: NDArray[np.float64], total: float, unlisted: int, absent: float
) -> tuple[int, float, NDArray[np.float64]]:
    """Where the active listed values begin, their excess over the least, and all sorted."""
    ordered = np.sort(listed)
    lower, first = 0, len(ordered)
    least, excess = math.inf, 0.0
    while lower < first:
        middle = (lower + first) // 2
        value = float(ordered[middle])
        tried = excess + float((ordered[middle:first] - value).sum())
        if first < len(ordered):
            tried += (len(ordered) - first) * (least - value)
        others = unlisted * (absent - value) if absent > value and unlisted else 0.0
        if tried + others < total:
            first, least, excess = middle, value, tried
        else:
            lower = middle + 1
    if first < len(ordered):  # equal values share one fate, however their excess was rounded
        first = int(np.searchsorted(ordered, least))
    return first, excess, ordered


def _checked(
    values: ArrayLike, total: float, n_cells: int | None, absent: float
) -> tuple[NDArray[np.float64], int]:
    """The listed values as float64[K] and the number of cells that are not listed."""
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iuf"):
        raise ValueError("project_to_simplex: values must be a one-dimensional array of numbers.")
    listed = given.astype(np.float64, copy=False)
    finite = np.isfinite(listed)
    if not finite.all():
        raise ValueError(
            f"project_to_simplex: values[{int(np.argmin(finite))}] is not finite. "
            "Drop or fix the cell first."
        )
    if not math.isfinite(absent):
        raise ValueError(f"project_to_simplex: absent is {absent!r}. Give a finite number.")
    if not (math.isfinite(total) and total >= 0):
        raise ValueError(f"project_to_simplex: total is {total!r}. Give a finite total >= 0.")
    cells = len(listed) if n_cells is None else operator.index(n_cells)
    if not len(listed) <= cells <= _MOST_CELLS:
        raise ValueError(
            f"project_to_simplex: n_cells is {cells} with {len(listed)} cells listed. "
            "Give the number of all cells, at least as many and at most 2**63."
        )
    if cells == 0 and total > 0:
        raise ValueError(
            f"project_to_simplex: no cell can hold the total {total!r}. "
            "List a cell, or give n_cells."
        )
    return listed, cells - len(listed)


Floats = NDArray[np.float64]
Names = tuple[str, ...]
Shared = list[tuple[Names, list[int]]]

_RESIDUAL = 1e-9


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """Estimates of every cell of a small domain, with their variance.

    Args:
        domain: Its columns; tables share the columns of equal names.
        estimates: float64[one axis per column, as long as its size].
        variance: Of every cell, above 0. The noise of different cells and tables is taken to
            be independent.

    Raises:
        ValueError: The estimates do not fit the domain, or a value is not finite or positive.
    """

    domain: Domain
    estimates: Floats
    variance: float

    def __post_init__(self) -> None:
        shape, where = _shape(self.domain), f"NoisyTable({', '.join(self.domain.names)})"
        owned = np.array(self.estimates, dtype=np.float64)
        if owned.shape != shape:
            raise ValueError(f"{where}: estimates have the shape {owned.shape}; give {shape}.")
        if not np.isfinite(owned).all():
            raise ValueError(f"{where}: estimates must be finite. Fix the cell first.")
        if not 0 < self.variance < math.inf:
            raise ValueError(f"{where}: the variance must be finite and above 0.")
        owned.flags.writeable = False
        object.__setattr__(self, "estimates", owned)


@dataclass(frozen=True, eq=False)
class ConsistentTable:
    """A table that agrees with the others.

    Attributes:
        domain: As given.
        estimates: float64[as given]; may be negative.
        standard_errors: float64[as given], exact if cells are independent with the
            variance given; never above its square root.
    """

    domain: Domain
    estimates: Floats
    standard_errors: Floats


def make_consistent(
    tables: Sequence[NoisyTable], *, total: float | None = None
) -> list[ConsistentTable]:
    """The nearest tables, weighted by inverse variance, whose common marginals agree.

    Source: generalised least squares with linear constraints (Rao 1973, Linear Statistical
    Inference and Its Applications, chapter 4); the closed form is in the module's text.

    Args:
        tables: In any number and overlap; a column has the same codes in all.
        total: What every table shall add up to; if it is not given, they agree on one.

    Raises:
        ValueError: A column differs between tables, or the total is not finite.
        ArithmeticError: The tables still disagree (variances too far apart).
    """
    if total is not None and not math.isfinite(total):
        raise ValueError(f"make_consistent: total is {total!r}. Give a finite number.")
    columns = {column.name: column for table in tables for column in table.domain.columns}
    for table in tables:
        for column in table.domain.columns:
            if columns[column.name] != column:
                raise ValueError(
                    f"make_consistent: column '{column.name}' differs between tables. "
                    "Build all tables from the columns of one domain."
                )
    shared = shared_columns(tables, tuple(columns), total)
    adjusted, errors = _pool(tables, shared, total)
    gap = disagreement([(t.domain, x) for t, x in zip(tables, adjusted, strict=True)], total=total)
    scale = max([abs(total or 0.0), *(float(np.abs(t.estimates).sum()) for t in tables)])
    if not gap <= _RESIDUAL * scale:
        raise ArithmeticError(
            f"make_consistent: marginals still differ by {gap!r}. "
            "Bring the variances closer together."
        )
    return [
        ConsistentTable(t.domain, x, e) for t, x, e in zip(tables, adjusted, errors, strict=True)
    ]


def disagreement(tables: Sequence[tuple[Domain, Floats]], *, total: float | None = None) -> float:
    """The greatest difference in any cell of any marginal that two tables share."""
    gaps = [abs(float(x.sum()) - total) for _, x in tables if total is not None]
    for (first, x), (second, y) in itertools.combinations(tables, 2):
        common = tuple(name for name in first.names if name in second.names)
        gaps.append(
            float(np.abs(marginal_of(first, x, common) - marginal_of(second, y, common)).max())
        )
    return max(gaps, default=0.0)


def _shape(domain: Domain) -> tuple[int, ...]:
    if domain.absent or domain.zeros:
        raise ValueError(
            "NoisyTable: an absent cell or structural zeros have no place in a dense table. "
            "Give tables of all combinations."
        )
    return tuple(column.size for column in domain.columns)


def shared_columns(tables: Sequence[NoisyTable], names: Names, total: float | None) -> Shared:
    """Sets of columns, in the order of ``names``, with the tables that have to agree on them."""
    held: dict[Names, set[int]] = {}
    if total is not None and tables:
        held[()] = set(range(len(tables)))
    for i, j in itertools.combinations(range(len(tables)), 2):
        both = set(tables[i].domain.names) & set(tables[j].domain.names)
        common = [name for name in names if name in both]
        for k in range(len(common) + 1):
            for subset in itertools.combinations(common, k):
                held.setdefault(subset, set()).update((i, j))
    return [(subset, sorted(indices)) for subset, indices in held.items()]


def marginal_of(domain: Domain, cells: Floats, names: Names) -> Floats:
    """The marginal on some columns, its axes in their order."""
    kept = [name for name in domain.names if name in names]
    drop = tuple(axis for axis, name in enumerate(domain.names) if name not in names)
    return np.transpose(np.asarray(cells.sum(axis=drop)), [kept.index(name) for name in names])


def spread_over(domain: Domain, marginal: Floats, names: Names) -> Floats:
    """A marginal with axes as in the domain, of length 1 where it has none."""
    kept = [name for name in domain.names if name in names]
    ordered = np.transpose(marginal, [names.index(name) for name in kept])
    return ordered.reshape([c.size if c.name in names else 1 for c in domain.columns])


def _pool(
    tables: Sequence[NoisyTable], shared: Shared, total: float | None
) -> tuple[list[Floats], list[Floats]]:
    """Estimates and standard errors by the closed form."""
    adjusted = [table.estimates.copy() for table in tables]
    left = [1.0] * len(tables)  # the part of each variance that is left
    for names, indices in shared:
        size = math.prod(tables[indices[0]].domain[name].size for name in names)
        weights = np.array(
            [size / (tables[i].variance * tables[i].domain.n_cells) for i in indices]
        )
        weights /= weights.sum()
        parts = [marginal_of(tables[i].domain, tables[i].estimates, names) for i in indices]
        for axis in range(len(names)):
            parts = [part - part.mean(axis=axis, keepdims=True) for part in parts]
        pooled = np.tensordot(weights, np.stack(parts), axes=1)
        if not names and total is not None:
            pooled, weights = np.array(total), np.zeros(len(indices))
        for i, part, weight in zip(indices, parts, weights.tolist(), strict=True):
            domain = tables[i].domain
            adjusted[i] += spread_over(domain, pooled - part, names) * (size / domain.n_cells)
            inner = ((c.size - 1 if c.name in names else 1) / c.size for c in domain.columns)
            left[i] -= math.prod(inner) * (1 - weight)
    errors = [
        np.full(x.shape, math.sqrt(t.variance * max(part, 0.0)))
        for x, t, part in zip(adjusted, tables, left, strict=True)
    ]
    return adjusted, errors


_MARGIN_TOLERANCE = 1e-9
_MOST_STEPS = 1000


def project_consistently(
    tables: Sequence[NoisyTable], *, total: float, most_steps: int = _MOST_STEPS
) -> list[Floats]:
    """The nearest non-negative tables that agree and add up to the total.

    Source: module text.
    """
    if total == 0:
        return [np.zeros_like(table.estimates) for table in tables]
    last = multipliers = [np.zeros_like(table.estimates) for table in tables]
    momentum = 1.0
    for _ in range(most_steps):
        lifted = [
            NoisyTable(table.domain, table.estimates + m, table.variance)
            for table, m in zip(tables, multipliers, strict=True)
        ]
        agreed = [table.estimates for table in make_consistent(lifted, total=total)]
        stepped = [np.maximum(m - x, 0) for m, x in zip(multipliers, agreed, strict=True)]
        moved = [np.abs(new - m).sum() for new, m in zip(stepped, multipliers, strict=True)]
        if max(moved, default=0.0) <= _MARGIN_TOLERANCE * total:
            break
        uphill = math.fsum(
            float(((m - new) * (new - old)).sum()) / table.variance
            for m, new, old, table in zip(multipliers, stepped, last, tables, strict=True)
        )
        momentum = 1.0 if uphill > 0 else momentum
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        part, momentum = (momentum - 1) / following, following
        multipliers = [new + part * (new - old) for new, old in zip(stepped, last, strict=True)]
        last = stepped
    return [project_to_simplex(x.ravel(), total).values.reshape(x.shape) for x in agreed]
