"""Bootstrap resamples and random subsets of a table's records, exactly.

The privacy of a replicate rests on the law of what is drawn
(mechanisms.accounting.resampling_losses): its copies of one record must be binomial, for every
dataset. A multinomial sampler in floating point, NumPy's among them, has probabilities and an
acceptance test that are rounded, and no bound on the error of its law is known that would be
small compared with a delta of 1e-10. So here only integers and proven orders decide: all that is
assumed is that the generator's bits are uniform and independent.

**Bootstrap.** A resample of n records is the counts per cell of n records drawn independently
and uniformly, multinomial with chances c_j / n of cells of c_j records. Most of it is drawn
cell by cell, by three facts, all of them exact:

* If X_j are independent and Poisson of means r c_j, then given their sum N they are
  multinomial, N draws with chances c_j / n, whatever r is (Devroye 1986, Non-Uniform Random
  Variate Generation, section XI.1). So this is also their law given N and N <= n: a replicate
  with N > n is drawn afresh, all of it.
* The sum of this and of n - N further records, drawn independently of it, is multinomial with
  n draws. As it is so for every value of N, it is so.
* Poisson counts add up: a cell of many records is cut into parts of fewer, so that
  few different means occur (mechanisms.sampling.poisson_sampler draws them exactly).

The rate r is 1 - 3 / sqrt(n) rounded, a function of n only: N > n about once in 700 replicates,
and some 3 sqrt(n) records a replicate are left to be drawn one by one.

**Subsets.** Records are chosen without replacement by ranks; NumPy's choice draws integers
by rejection and is exact as well.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.domain.columns import Codes
from mechanisms.errors import RecordsError
from mechanisms.sampling.poisson_sampler import LARGEST_MULTIPLE, PoissonTables

_MOST_RECORDS = 2**40
_RATE_BITS = 24
_LARGEST_PART = 1 << 12  # up to here each count has a table of its own
_BLOCK = 1 << 18  # draws at a time
_BUCKETS = 16  # a cell


class BootstrapSampler:
    """Draws resamples of one table of counts; what they share is made once."""

    def __init__(self, counts: Codes) -> None:
        """Make the tables.

        Args:
            counts: int64[k], the records of each cell.

        Raises:
            RecordsError: They are not between 1 and 2**40 in all.
        """
        n = int(counts.sum())
        if not 1 <= n <= _MOST_RECORDS or np.any(counts < 0):
            raise RecordsError("A bootstrap needs between 1 and 2**40 records.")
        self._n, self._k = n, len(counts)
        self._records = _Records(counts)
        self._cells, multiples = _parts(counts)
        occurs = np.bincount(multiples) > 0
        distinct, self._tables = np.flatnonzero(occurs), np.cumsum(occurs)[multiples] - 1
        self._poisson = PoissonTables(_rate(n), distinct)
        self._alike = len(self._cells) == self._k and bool(np.all(counts == counts[0]))

    def draw(self, replicates: int, rng: np.random.Generator, out: Codes | None = None) -> Codes:
        """Independent resamples.

        Args:
            replicates: Number of resamples B.
            rng: Source of bits; cryptographic in production.
            out: int64[B, k] to write them to; many calls are faster with one of these.

        Returns:
            int64[B, k], each row adding up to n.
        """
        found = np.empty((replicates, self._k), np.int64) if out is None else out
        self._poisson_counts(found, rng)
        missing = self._n - found.sum(axis=1)
        while len(again := np.flatnonzero(missing < 0)):
            afresh = np.empty((len(again), self._k), np.int64)
            self._poisson_counts(afresh, rng)
            found[again], missing[again] = afresh, self._n - afresh.sum(axis=1)
        for row, size in zip(found, missing.tolist(), strict=True):
            np.add.at(row, self._records.cells(rng.integers(0, self._n, size)), 1)
        return found

    def _poisson_counts(self, found: Codes, rng: np.random.Generator) -> None:
        """Independent Poisson counts of means r c, int64[B, k]."""
        replicates = len(found)
        if not self._alike:
            found[:] = 0
        step = max(1, _BLOCK // replicates)
        for start in range(0, len(self._cells), step):
            cells = self._cells[start : start + step]
            drawn = self._poisson.draw(self._tables[start : start + step], replicates, rng)
            if self._alike:  # all draws are: they may be arranged as is fastest
                found[:, start : start + step] = drawn.reshape(replicates, -1)
                continue
            firsts = np.flatnonzero(np.diff(cells, prepend=-1))
            if len(firsts) < len(cells):
                cells, drawn = cells[firsts], np.add.reduceat(drawn, firsts, axis=0, dtype=np.int64)
            if cells[-1] - cells[0] < len(cells):
                found[:, cells[0] : cells[-1] + 1] += drawn.T
            else:
                found[:, cells] += drawn.T


class _Records:
    """The cell of each record, records being numbered cell by cell."""

    def __init__(self, counts: Codes) -> None:
        n, self._bounds = int(counts.sum()), np.cumsum(counts)
        self._shift = max(0, n.bit_length() - (_BUCKETS * len(counts)).bit_length())
        if self._shift == 0:
            self._cell = np.repeat(np.arange(len(counts)), counts)
            return
        buckets = (n >> self._shift) + 1
        at_start = self._bounds + ((1 << self._shift) - 1) >> self._shift
        first, last = (
            np.cumsum(np.bincount(ends, minlength=buckets + 1)[:buckets])
            for ends in (at_start, self._bounds >> self._shift)
        )
        self._cell = np.where(first == last, first, -1)

    def cells(self, records: Codes) -> Codes:
        """Cells int64[j] of records, by a bucket of them if it has one cell, else by a search."""
        found: Codes = self._cell[records >> self._shift]
        left = np.flatnonzero(found < 0)
        found[left] = np.searchsorted(self._bounds, records[left], side="right")
        return found


def subset_counts(counts: Codes, size: int, subsets: int, rng: np.random.Generator) -> Codes:
    """Counts per cell of random subsets of a fixed size, drawn without replacement.

    Returns:
        int64[subsets, k], each row adding up to ``size``.
    """
    n, bounds = int(counts.sum()), np.cumsum(counts)
    if not 1 <= size <= n:
        raise RecordsError("A subset must have between 1 and n records.")
    found = np.empty((subsets, len(counts)), np.int64)
    for row in found:
        ranks = rng.choice(n, size, replace=False, shuffle=False)
        cells = np.searchsorted(bounds, ranks, side="right")
        row[:] = np.bincount(cells, minlength=len(counts))
    return found


def _rate(n: int) -> float:
    """The Poisson mean of one record, exactly a multiple of 2**-24."""
    most = math.floor((1 - 3 / math.sqrt(n)) * (1 << _RATE_BITS))
    return max(0.25, most / (1 << _RATE_BITS))


def _parts(counts: Codes) -> tuple[Codes, Codes]:
    """Cells int64[j], ascending, and numbers of records int64[j] that their counts are cut into.

    What a count has above _LARGEST_PART is cut into powers of two up to LARGEST_MULTIPLE.
    """
    cells = [np.arange(len(counts))]
    records = [counts % _LARGEST_PART]
    size = _LARGEST_PART
    while size <= LARGEST_MULTIPLE and np.any(counts >= size):
        times = counts // size if size == LARGEST_MULTIPLE else counts // size % 2
        cells.append(np.repeat(np.arange(len(counts)), times))
        records.append(np.full(len(cells[-1]), size))
        size *= 2
    cell, record = np.concatenate(cells), np.concatenate(records)
    if not np.all(record):
        cell, record = cell[record > 0], record[record > 0]
    if len(cells) > 1:
        order = np.argsort(cell, kind="stable")
        cell, record = cell[order], record[order]
    return cell, record
