"""Exact sampling of records from a smoothed contingency table (mechanisms/README.md, section 2).

Every draw is an integer, uniform by rejection; no floating point touches the
output distribution and nothing of the size of the domain is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable, sum_by_cell
from mechanisms.domain.domain import LISTED, Domain

if TYPE_CHECKING:
    from mechanisms.sampling.randomness import Progress

_CHUNK = 1 << 21
_WORD = 1 << 63


def draw_counts(
    table: ContingencyTable,
    pseudocount: Fraction,
    records: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> ContingencyTable:
    """Counts per cell of iid draws, possible cell j having weight h_j + pseudocount.

    The multiset of drawn records is all of the release: records are exchangeable,
    so it is held as counts per drawn cell. Memory grows with the occupied cells,
    a chunk of draws, and the distinct cells drawn.

    Args:
        table: Private counts h.
        pseudocount: A positive fraction.
        records: Number of draws m >= 0.
        rng: Source of bits; cryptographic in production.
        progress: Called with the number of records drawn after each chunk.

    Returns:
        A table of the same domain whose counts add up to ``records``.
    """
    cells, bounds = table.cells, np.cumsum(table.counts)
    from_data = np.zeros(len(cells), dtype=np.int64)
    from_domain = _Tally(table.domain.n_cells)
    draw = _uniform_ranks(table, pseudocount, rng)
    remaining = records
    while remaining:
        size = min(remaining, _CHUNK)
        ranks, uniform_cells = draw(size)
        ranks.sort()
        if len(bounds) <= len(ranks):
            # Ranks below bounds[i] belong to cells 0..i.
            from_data += np.diff(np.searchsorted(ranks, bounds), prepend=0)
        else:
            drawn, times = _run_lengths(np.searchsorted(bounds, ranks, side="right"))
            from_data[drawn] += times
        from_domain.add(uniform_cells)
        remaining -= size
        if progress is not None:
            progress(size)
    kept = from_data > 0
    other, times = from_domain.result()
    if not len(other):
        return ContingencyTable(table.domain, cells[kept], from_data[kept])
    return ContingencyTable.from_cells(
        table.domain,
        np.concatenate([cells[kept], other]),
        np.concatenate([from_data[kept], times]),
    )


def _uniform_ranks(
    table: ContingencyTable, pseudocount: Fraction, rng: np.random.Generator
) -> Callable[[int], tuple[Codes, Codes]]:
    """A function of k: ranks of the draws that fall on the data, cells of the others.

    With pseudocount a/b, an integer uniform on 0..bn + a|domain| - 1 falls on the
    data if it is below bn, and then its quotient by b is the rank of a record;
    otherwise its excess over bn, divided by a, is the place of a possible cell.
    """
    n, n_cells = table.n_records, table.domain.n_possible
    cells_at = _possible_cells(table.domain, rng)
    a, b = pseudocount.numerator, pseudocount.denominator
    data_weight, total = b * n, b * n + a * n_cells

    def in_one_word(size: int) -> tuple[Codes, Codes]:
        u = rng.integers(0, total, size=size, dtype=np.int64)
        on_data = u < data_weight
        ranks, excess = u[on_data], u[~on_data] - data_weight
        return (ranks // b if b > 1 else ranks), cells_at(excess // a if a > 1 else excess)

    def in_words(size: int) -> tuple[Codes, Codes]:
        # The same event and, given it, the same uniform rank or cell.
        k = int(np.count_nonzero(below(data_weight, total, size, rng)))
        ranks = rng.integers(0, n, size=k, dtype=np.int64)
        return ranks, cells_at(rng.integers(0, n_cells, size=size - k, dtype=np.int64))

    return in_one_word if total < _WORD else in_words


def _possible_cells(domain: Domain, rng: np.random.Generator) -> Callable[[Codes], Codes]:
    """A function from uniform places among the possible cells to uniform possible cells.

    Without structural zeros the places are the codes. A small domain is listed. In a
    larger one as many codes are drawn afresh, and those that are impossible again: given
    that it is possible, a uniform code is uniform on the possible ones.
    """
    if not domain.zeros:
        return lambda places: places
    if domain.n_cells <= LISTED:
        listed = domain.possible_cells()
        return lambda places: np.asarray(listed[places])

    def by_rejection(places: Codes) -> Codes:
        cells = np.empty(len(places), dtype=np.int64)
        missing = np.arange(len(places))
        while len(missing):
            cells[missing] = rng.integers(0, domain.n_cells, size=len(missing), dtype=np.int64)
            missing = missing[~domain.is_possible(cells[missing])]
        return cells

    return by_rejection


def below(threshold: int, total: int, size: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """bool[size]: for each of size integers uniform on 0..total-1, is it below threshold?

    The integers may have any number of bits; rejection keeps them exactly uniform.
    """
    words = -(-total.bit_length() // 64)
    top_bits = total.bit_length() - 64 * (words - 1)
    accepted: list[NDArray[np.bool_]] = []
    missing = size
    while missing:
        u = rng.integers(0, 1 << 64, size=(words, 2 * missing), dtype=np.uint64, endpoint=False)
        u[0] >>= np.uint64(64 - top_bits)
        fits = _less(u, total)
        accepted.append(_less(u[:, fits], threshold)[:missing])
        missing -= len(accepted[-1])
    return np.concatenate(accepted) if accepted else np.zeros(0, dtype=np.bool_)


def _less(words: NDArray[np.uint64], bound: int) -> NDArray[np.bool_]:
    """Whether big-endian 64-bit words uint64[w, k] are below a Python integer."""
    result = np.zeros(words.shape[1], dtype=np.bool_)
    equal = np.ones(words.shape[1], dtype=np.bool_)
    for i, row in enumerate(words):
        digit = np.uint64((bound >> (64 * (len(words) - 1 - i))) & (2**64 - 1))
        result |= equal & (row < digit)
        equal &= row == digit
    return result


def _run_lengths(ordered: Codes) -> tuple[Codes, Codes]:
    """Distinct values of a sorted int64[k], and how often each occurs."""
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-1)))
    return ordered[starts], np.diff(starts, append=len(ordered))


@dataclass
class _Tally:
    """Counts per cell of arrays of cells, in memory of the distinct cells seen."""

    n_cells: int
    dense: Codes | None = None
    parts: list[tuple[Codes, Codes]] = field(default_factory=list)
    pending: int = 0

    def add(self, cells: Codes) -> None:
        if not len(cells):
            return
        if self.n_cells <= _CHUNK:  # fits where a chunk of draws fits
            counts = np.bincount(cells, minlength=self.n_cells)
            self.dense = counts if self.dense is None else self.dense + counts
            return
        cells.sort()
        self.parts.append(_run_lengths(cells))
        self.pending += len(self.parts[-1][0])
        if self.pending > 2 * len(self.parts[0][0]) + _CHUNK:
            self._merge()

    def _merge(self) -> None:
        cells, counts = zip(*self.parts, strict=True)
        self.parts = [sum_by_cell(np.concatenate(cells), np.concatenate(counts))]
        self.pending = 0

    def result(self) -> tuple[Codes, Codes]:
        """Distinct cells int64[k], ascending, and their counts int64[k]."""
        if self.dense is not None:
            cells = np.flatnonzero(self.dense)
            return cells, self.dense[cells]
        if not self.parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if len(self.parts) > 1:
            self._merge()
        return self.parts[0]
