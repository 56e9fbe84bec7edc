"""Exact sampling of records: Poisson counts, resamples and subsets.

Which records of a unit are counted is chosen elsewhere, in the engine: ``tasks.source.aggregates``.

No floating point decides an output's probability, and nothing of the size of the domain is stored.

**Poisson counts**, for many means at once, by inversion of a table for each mean. A draw is the x
with F(x - 1) <= U < F(x), where F is the law's distribution function and U is uniform on [0, 1): by
that its law is exactly Poisson. U is a row of random bits, of which only so many are drawn as it
takes to know x:

1. Its first bits name a bucket, an interval of U. Where no F(x) lies in it, or so near that
   this is not proven, only the bucket gives x.
2. Else U is drawn to 52 bits and compared with F in doubles. Where they are further apart than
   a bound on all errors, their order is proven.
3. Else, once in 2^29 draws for means of 1000 and in 2^20 for the largest, F(x) is enclosed by
   ball arithmetic and bits are added to U until their order is proven.

So doubles save time and decide nothing that is not proven; the law depends on no rounding.

**The bound.** Let m be the mean, a double without rounding, q(lo) = 1 and
q(x) = q(x - 1) m / x for x = lo + 1, ..., hi: the W masses of lo..hi up to one factor. A computed
q has at most 2W roundings and a sum of them at most W more, so that the quotient of two sums,
which is at most 1, is off by less than 8 W 2^-53 (nothing underflows: q stays between 10^-100 and
10^100). The mass below lo is less than q(lo) t / (1 - t), t = lo / m, and the mass above hi less
than q(hi) s / (1 - s), s = m / (hi + 1), by geometric series. To leave both out moves F by no more
than their sum over the sum of q. The bound in use is twice all this, and 2^-50 more for the
roundings of a comparison.

**Resamples.** The privacy of a replicate rests on the law of what is drawn
(mechanisms.accounting.noise_losses): its copies of one record must be binomial, for every
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
  few different means occur.

The rate r is 1 - 3 / sqrt(n) rounded, a function of n only: N > n about once in 700 replicates,
and some 3 sqrt(n) records a replicate are left to be drawn one by one.

**Subsets.** Records are chosen without replacement by ranks; NumPy's choice draws integers
by rejection and is exact as well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.errors import RecordsError

LARGEST_MULTIPLE = 1 << 20
"""Of the rate, for which the bound above is still small."""

_Doubles = NDArray[np.float64]
_BITS = 52  # of U that a double is compared with
_DEVIATIONS = 7.5  # from its mean to the ends of a table
_WORKING_SET = 1 << 17  # entries of tables made at a time
_WORD_BITS, _LEAST_BITS, _ALL_BITS = 16, 10, 17  # of buckets: at most, at least, of all tables


class PoissonTables:
    """Tables of the Poisson laws of means rate * multiples[i]."""

    def __init__(self, rate: float, multiples: Codes) -> None:
        """Make the tables.

        Args:
            rate: The mean of multiple 1, a multiple of 2**-24 in [1/4, 1].
            multiples: int64[t], ascending and distinct, from 1 to LARGEST_MULTIPLE.
        """
        self._means: _Doubles = rate * multiples.astype(np.float64)
        self._bits = max(min(_ALL_BITS - len(multiples).bit_length(), _WORD_BITS), _LEAST_BITS)
        self._direct = np.empty((len(multiples), 1 << self._bits), np.int32)
        self._margin = 0.0
        spread = _DEVIATIONS * np.sqrt(self._means)
        lowest = np.maximum(self._means - spread, 0).astype(np.int64)
        widths = (self._means + spread).astype(np.int64) + 16 - lowest
        made: list[_Open] = []
        before = _Before()
        while before.tables < len(multiples):
            start = before.tables
            alike = int(np.searchsorted(multiples, 2 * multiples[start], side="right"))
            most = 1 + _WORKING_SET // (int(widths[start]) + (1 << self._bits))
            rows = slice(start, min(alike, start + most))
            width = int(widths[rows].max())
            values, margin = _distributions(self._means[rows], lowest[rows], width)
            self._margin = max(self._margin, margin)
            self._direct[rows], left = _buckets(values, margin, lowest[rows], self._bits, before)
            made.append(left)
            before = before.and_also(left, rows.stop)
        self._open = _Open(*(np.concatenate(parts) for parts in zip(*made, strict=True)))

    def draw(self, tables: Codes, size: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """Independent draws.

        Args:
            tables: int64[j], the place of each row's multiple.
            size: Draws a row.
            rng: Source of bits; cryptographic in production.

        Returns:
            int32[j, size].
        """
        count = len(tables) * size
        words = rng.integers(0, 2**64, size=-(-count // 4), dtype=np.uint64)
        buckets = words.view(np.uint16)[:count] >> np.uint16(_WORD_BITS - self._bits)
        places = buckets.reshape(len(tables), size)
        if len(self._means) > 1:
            places = places + (tables << self._bits)[:, None]
        found: NDArray[np.int32] = self._direct.ravel().take(places)
        flat = found.reshape(-1)
        left = np.flatnonzero(flat < 0)
        if len(left):
            flat[left] = self._compare(~flat[left], buckets[left], rng)
        return found

    def _compare(
        self, cases: NDArray[np.int32], buckets: NDArray[np.uint16], rng: np.random.Generator
    ) -> Codes:
        """Draws int64[j] in buckets that do not decide: by bisection among the values of F."""
        rest = _BITS - self._bits
        bits = buckets.astype(np.int64) << rest
        bits |= rng.integers(0, 1 << rest, len(bits))
        low, high = self._open.least[cases], self._open.most[cases]
        doubtful: set[int] = set()
        left = np.arange(len(bits))
        while len(left):
            middle = (low[left] + high[left]) >> 1
            gap = bits[left] * 2.0**-_BITS - self._open.values[middle]
            above = gap >= self._margin
            doubtful.update(left[~above & (gap > -self._margin)].tolist())
            low[left] = np.where(above, middle + 1, low[left])
            high[left] = np.where(above, high[left], middle)
            left = left[low[left] < high[left]]
        found: Codes = low - self._open.shift[cases]
        for i in doubtful:
            mean = float(self._means[self._open.table[cases[i]]])
            found[i] = _quantile(mean, int(bits[i]), int(found[i]), rng)
        return found


class _Open(NamedTuple):
    """Buckets that do not decide, and the values of F they are decided by.

    Attributes:
        values: float64[v], F(x) of a table's x = lowest - 1, ..., then of the next table.
        least: int64[o], the place of the first value that may be above U.
        most: int64[o], the place of the first value that is, or the end of its table.
        shift: int64[o], what is taken off the place of the first value above U to get x.
        table: int64[o].
    """

    values: _Doubles
    least: Codes
    most: Codes
    shift: Codes
    table: Codes


class _Before(NamedTuple):
    """How many tables, values of F and open buckets there are before those being made."""

    tables: int = 0
    values: int = 0
    open: int = 0

    def and_also(self, made: _Open, tables: int) -> _Before:
        """Those before the next."""
        return _Before(tables, self.values + made.values.size, self.open + made.table.size)


def _distributions(means: _Doubles, lowest: Codes, width: int) -> tuple[_Doubles, float]:
    """F(x) from x = lowest - 1 on, float64[t, width + 1], and the bound on all errors.

    The first value is 0; or -1 if lowest is 0, where F is 0 and every U is above.
    """
    masses = np.empty((len(means), width))
    masses[:, 0] = 1
    np.divide(means[:, None], lowest[:, None] + np.arange(1, width), out=masses[:, 1:])
    np.cumprod(masses, axis=1, out=masses)
    values = np.empty((len(means), width + 1))
    values[:, 0] = np.where(lowest > 0, 0.0, -1.0)
    sums = np.cumsum(masses, axis=1, out=values[:, 1:])
    low, high = lowest / means, means / (lowest + width)
    beyond = (low / (1 - low) + masses[:, -1] * high / (1 - high)) / sums[:, -1]
    sums /= sums[:, -1:].copy()
    return values, 2 * float(beyond.max()) + 16 * width * 2.0**-53 + 2.0**-50


def _buckets(
    values: _Doubles, margin: float, lowest: Codes, bits: int, before: _Before
) -> tuple[Codes, _Open]:
    """What buckets decide, int64[t, 2**bits]: x, or ~i if it is the i-th open one; and these."""
    tables, width = values.shape
    buckets = 1 << bits

    def below(ends: _Doubles) -> Codes:
        """How many values of its table end at a bucket's place or before, int64[t, 2**bits]."""
        at = np.clip(ends, 0, buckets).astype(np.int64)
        at += np.arange(tables)[:, None] * (buckets + 1)
        times = np.bincount(at.ravel(), minlength=tables * (buckets + 1))
        return np.cumsum(times.reshape(tables, -1)[:, :-1], axis=1)

    least = below(np.ceil((values + margin) * buckets))  # below all of a bucket
    most = below(np.floor((values - margin) * buckets))  # perhaps below some of it
    places = np.flatnonzero(least != most)
    table = places >> bits
    first = before.values + table * width
    left = _Open(
        values.ravel(),
        first + least.ravel()[places],
        first + most.ravel()[places],
        first + 1 - lowest[table],
        before.tables + table,
    )
    least += lowest[:, None] - 1
    least.ravel()[places] = ~(before.open + np.arange(len(places)))
    return least, left


def _quantile(mean: float, bits: int, near: int, rng: np.random.Generator) -> int:
    """The x with F(x - 1) <= U < F(x), U beginning with 52 bits, looked for from near on."""
    length = _BITS
    least, most, x = 0, -1, max(near, 0)
    while least != most:
        with ctx.workprec(length + 64):
            value = arb(mean).gamma_upper(arb(x + 1), regularized=1) * arb(2) ** length
            above, below = value <= arb(bits), value >= arb(bits + 1)
        if above:
            least = x = x + 1
        elif below:
            most, x = x, x - 1
        else:
            bits = bits << 64 | int(rng.integers(0, 2**64, dtype=np.uint64))
            length += 64
    return most


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


_MOST_RECORDS = 2**40
_RATE_BITS = 24
_LARGEST_PART = 1 << 12  # up to here each count has a table of its own
_BLOCK = 1 << 18  # draws at a time
_BUCKETS = 16  # a cell


class BootstrapSampler:
    """Draws resamples of one table of counts; what they share is made once."""

    def __init__(
        self, counts: Codes, *, largest_part: int = _LARGEST_PART, block: int = _BLOCK
    ) -> None:
        """Make the tables.

        Args:
            counts: int64[k], the records of each cell.
            largest_part: Up to here each count has a table of its own.
            block: Draws at a time.

        Raises:
            RecordsError: They are not between 1 and 2**40 in all.
        """
        n = int(counts.sum())
        if not 1 <= n <= _MOST_RECORDS or np.any(counts < 0):
            raise RecordsError("A bootstrap needs between 1 and 2**40 records.")
        self._n, self._k = n, len(counts)
        self._records = _Records(counts)
        self._block = block
        self._cells, multiples = _parts(counts, largest_part)
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
        step = max(1, self._block // replicates)
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


def _rate(n: int) -> float:
    """The Poisson mean of one record, exactly a multiple of 2**-24."""
    most = math.floor((1 - 3 / math.sqrt(n)) * (1 << _RATE_BITS))
    return max(0.25, most / (1 << _RATE_BITS))


def _parts(counts: Codes, largest_part: int = _LARGEST_PART) -> tuple[Codes, Codes]:
    """Cells int64[j], ascending, and numbers of records int64[j] that their counts are cut into.

    What a count has above the largest part is cut into powers of two up to LARGEST_MULTIPLE.
    """
    cells = [np.arange(len(counts))]
    records = [counts % largest_part]
    size = largest_part
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
