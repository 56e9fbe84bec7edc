"""Consistency of overlapping tables: weighted least squares over common marginals.

Post-processing of what is already public, so it costs no privacy.

Given noisy tables y_i over some columns each, find the tables x_i with the least
sum of (x_i - y_i)**2 / variance such that any two of them have the same marginal on
the columns they share (the total, where they share none) and, if asked, a given
total. If the noise of every cell is independent, with mean 0 and its table's variance,
this is the best linear unbiased estimate (Gauss and Markov), and the standard errors
returned are its own, never larger than before.

**One variance per table.** The interactions of a table (its marginals, centred along each axis:
the analysis of variance) are uncorrelated, so each is pooled on its own by inverse variance: a
closed form, in time of the cells times the sets T of columns that are shared (Qardaji, Yang and Li
2014, doi 10.1145/2588555.2588575 for the pooling; Xiao, He, Zhang and Kifer 2023, arXiv 2305.08175
for the basis).

What is left of a disagreement is checked on every result: at most 10**-9 of the largest
table's sum of absolute values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain

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
