"""The reference for consistent tables: weighted least squares cell by cell.

It serves variances that differ from cell to cell, which no mechanism's post-processing needs.

**Constraints.** The function of a table's cells that belongs to a set T of its columns
is its marginal on T where no code is the last of its column. These functions, over all
T, are a basis of the functions of the table. So the conditions "equal in tables that
both hold T", each table compared with the one before it, are all that is to
be met, and none follows from others: the matrix C of the constraints C x = b has full
rank, and so has C V C' for the diagonal V of variances.

**Solution.** x = y - V C' (C V C')^-1 (C y - b) with covariance
V - V C' (C V C')^-1 C V, by a dense Cholesky factor scaled to a unit diagonal and two
steps of refinement; up to 4000 constraints. Standard errors lose digits as variances
spread: six are left where they differ 10**10-fold.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array, vstack

from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.consistency import (
    ConsistentTable,
    Floats,
    Names,
    Shared,
    shared_columns,
)
from statpress.mechanisms.postprocessing.covariance import DebiasedTable

_MOST_CONSTRAINTS = 4000
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class CellwiseTable:
    """Estimates of every cell of a small domain, each with a variance of its own."""

    domain: Domain
    estimates: Floats
    variances: Floats

    @classmethod
    def from_debiased(cls, table: DebiasedTable) -> CellwiseTable:
        """The dense table of a bootstrap release, with the variances that the draw suggests."""
        estimates = np.full(table.domain.n_cells, table.undrawn_estimate)
        errors = np.full(table.domain.n_cells, table.undrawn_standard_error)
        estimates[table.cells], errors[table.cells] = table.estimates, table.standard_errors
        shape = tuple(column.size for column in table.domain.columns)
        return cls(table.domain, estimates.reshape(shape), (errors**2).reshape(shape))


def solved(tables: Sequence[CellwiseTable], *, total: float | None = None) -> list[ConsistentTable]:
    """The nearest tables, weighted by inverse variance, whose common marginals agree."""
    names = tuple({column.name: None for table in tables for column in table.domain.columns})
    adjusted, errors = solve(
        [table.domain for table in tables],
        [table.estimates for table in tables],
        [table.variances for table in tables],
        shared_columns(tables, names, total),
        total,
    )
    return [
        ConsistentTable(t.domain, x, e) for t, x, e in zip(tables, adjusted, errors, strict=True)
    ]


def solve(
    domains: Sequence[Domain],
    estimates: Sequence[Floats],
    variances: Sequence[float | Floats],
    shared: Shared,
    total: float | None,
) -> tuple[list[Floats], list[Floats]]:
    """Adjusted estimates and their standard errors, by the Cholesky factor of C V C'.

    Args:
        domains: Of the tables.
        estimates: float64[one axis per column] of each table.
        variances: Of each table, one for all cells or of the shape of its estimates.
        shared: Sets of columns with the tables that have to agree on them.
        total: What every table shall add up to, if anything.

    Raises:
        ValueError: There are more than 4000 constraints.
        ArithmeticError: The variances are too far apart.
    """
    matrix, wanted = _constraints(domains, shared, total)
    count = matrix.shape[0]
    if count > _MOST_CONSTRAINTS:
        raise ValueError(
            f"make_consistent: {count} constraints are more than {_MOST_CONSTRAINTS}. "
            "Give one variance for each table, or merge codes."
        )
    spread = np.concatenate(
        [np.broadcast_to(v, x.shape).ravel() for v, x in zip(variances, estimates, strict=True)]
    )
    cells = np.concatenate([x.ravel() for x in estimates])
    left = spread.copy()
    if count:
        weighted = csr_array(matrix * spread[None, :])
        gram = (weighted @ matrix.T).toarray()
        scale = 1 / np.sqrt(gram.diagonal())
        try:
            factor = np.linalg.cholesky(scale[:, None] * gram * scale)
        except np.linalg.LinAlgError as error:
            raise ArithmeticError(
                "make_consistent: the constraints cannot be solved in double precision. "
                "Bring the variances closer together, or give one for each table."
            ) from error
        for _ in range(3):
            gap = scale * (matrix @ cells - wanted)
            half = solve_triangular(factor, gap, lower=True)
            step = solve_triangular(factor, half, lower=True, trans="T")
            cells = cells - weighted.T @ (scale * step)
        columns = weighted.tocsc()
        for start in range(0, len(cells), _BLOCK):
            block = columns[:, start : start + _BLOCK].toarray() * scale[:, None]
            known = solve_triangular(factor, block, lower=True)
            left[start : start + _BLOCK] -= (known**2).sum(axis=0)
    ends = np.cumsum([domain.n_cells for domain in domains])[:-1]
    shapes = [x.shape for x in estimates]
    errors = np.sqrt(np.clip(left, 0.0, spread))
    return (
        [x.reshape(s) for x, s in zip(np.split(cells, ends), shapes, strict=True)],
        [x.reshape(s) for x, s in zip(np.split(errors, ends), shapes, strict=True)],
    )


def _constraints(
    domains: Sequence[Domain], shared: Shared, total: float | None
) -> tuple[csr_array, Floats]:
    """The matrix C, sparse [q, P], and b float64[q] for P cells of all tables in a row."""
    starts = np.cumsum([0, *(domain.n_cells for domain in domains)])
    blocks, wanted = [], []

    def sums(index: int, names: Names) -> csr_array:
        domain = domains[index]
        cells = np.arange(domain.n_cells, dtype=np.int64)
        rows, inside, size = np.zeros_like(cells), np.ones(len(cells), dtype=bool), 1
        for name in names:
            codes, last = domain.codes(cells, name), domain[name].size - 1
            rows, inside, size = rows * last + codes, inside & (codes < last), size * last
        places = (rows[inside], starts[index] + cells[inside])
        return csr_array((np.ones(int(inside.sum())), places), shape=(size, int(starts[-1])))

    for names, indices in shared:
        for before, after in itertools.pairwise(indices):
            blocks.append(sums(after, names) - sums(before, names))
            wanted.append(np.zeros(blocks[-1].shape[0]))
        if not names and total is not None:
            blocks.append(sums(indices[0], names))
            wanted.append(np.array([total]))
    if not blocks:
        return csr_array((0, int(starts[-1]))), np.zeros(0)
    return csr_array(vstack(blocks)), np.concatenate(wanted)
