"""Exact Poisson draws for many means at once, by inversion of a table for each mean.

A draw is the x with F(x - 1) <= U < F(x), where F is the law's distribution function and U is
uniform on [0, 1): by that its law is exactly Poisson. U is a row of random bits, of which only
so many are drawn as it takes to know x:

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
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes

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
