"""Equal and unequal bins by arithmetic, proven on every edge before the engine sees them.

Addition, subtraction, multiplication and floor of doubles give the same result in every engine
(IEEE 754), so what NumPy finds here is what the engine will find.

A great number of unequal bins, by a guess of the place of each value.

An engine in this process hands NumPy its values: ``BinFinder`` guesses a bin not above that of the
value, and goes up from there. Any other engine joins a table of the bins. A record is joined on its
bucket, a coarse guess of its place, with the few bins that reach into that bucket, and of these it
keeps the one whose edges it lies between. Buckets are equally wide over a run of bins; a run whose
bins differ too much in width is cut in two, until no bucket holds many.
Both guesses are made of subtraction, multiplication by a positive number and floor, of which none
decreases, as rounded in doubles too: a bin reaches into the buckets from that of its least double
to that of its greatest, and into no other; and a bin whose upper edge lies in a bucket below that
of a value lies below the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.contingency_table import smallest_unsigned
from statpress.tasks.source.engine import double, engine_of, floor

if TYPE_CHECKING:
    import ibis.expr.types as ir


_SIGNIFICANT = 53  # bits of a double
_MOST_PATCHES = 16


@dataclass(frozen=True)
class EdgeFormula:
    """The edges as (start + i * step) + (start_rest + i * step_rest), rounded after each operation.

    ``start`` and ``step`` are multiples of one power of two, so large that the first sum is exact
    for every edge. The rest is so small that the last sum is nearly always the double nearest to
    the exact edge; where it is not, the edge is one of the ``patches``.

    Attributes:
        start: With its rest the first edge.
        step: With its rest the width of a bin.
        patches: Edges that the formula misses, by index.
    """

    start: float
    start_rest: float
    step: float
    step_rest: float
    patches: tuple[tuple[int, float], ...] = ()

    def at(self, index: NDArray[np.float64]) -> NDArray[np.float64]:
        """The formula's edges at whole indices, patches aside."""
        with np.errstate(all="ignore"):
            first = self.start + index * self.step
            return np.asarray(first + (self.start_rest + index * self.step_rest))

    @classmethod
    def of(cls, edges: NDArray[np.float64]) -> EdgeFormula | None:
        """A formula that gives every one of the edges, float64[n_bins + 1]; None if none does."""
        low, high = Fraction(float(edges[0])), Fraction(float(edges[-1]))
        width = (high - low) / (len(edges) - 1)
        unit = Fraction(2) ** (_exponent(2 * max(abs(low), abs(high))) - _SIGNIFICANT + 1)
        start, step = (round(number / unit) * unit for number in (low, width))
        try:
            found = cls(float(start), float(low - start), float(step), float(width - step))
        except OverflowError:
            return None
        missed = np.flatnonzero(found.at(np.arange(len(edges), dtype=np.float64)) != edges)
        if len(missed) > _MOST_PATCHES:
            return None
        patches = tuple((int(i), float(edges[i])) for i in missed)
        return replace(found, patches=patches)


def _exponent(number: Fraction) -> int:
    """The power of two above a positive number, or the one above that."""
    return number.numerator.bit_length() - number.denominator.bit_length() + 1


_MOST_IN_A_BUCKET = 32
_BUCKETS_PER_BIN = 2
_MOST_STEPS = 16  # up from the guess; a search by bisection takes as long as some more

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BucketRun:
    """Bins whose buckets are equally wide.

    Attributes:
        start: Lower edge of the first bin.
        scale: Buckets per unit; 0 for a single bucket.
        first: The first bucket.
        buckets: float64[n], a row for each bin and bucket that it reaches into.
        bins: int64[n], the bins of these rows.
    """

    start: float
    scale: float
    first: int
    buckets: Floats
    bins: NDArray[np.int64]


def bucket_runs(edges: Floats) -> list[BucketRun]:
    """Runs that together hold all bins between edges float64[n_bins + 1], in order."""
    found: list[BucketRun] = []
    left = [(0, len(edges) - 1)]  # bins from the first up to the second, the nearest last
    bucket = 0
    while left:
        first, end = left.pop()
        start, count = float(edges[first]), end - first
        with np.errstate(all="ignore"):
            scale = float(count / (edges[end] - start)) if count > _MOST_IN_A_BUCKET else 0.0
            if not (np.isfinite(scale) and (scale or count <= _MOST_IN_A_BUCKET)):
                left += _halves(first, end)
                continue
            lows = np.floor((edges[first:end] - start) * scale)
            below = np.nextafter(edges[first + 1 : end + 1], -np.inf)
            reached = (np.floor((below - start) * scale) - lows).astype(np.int64) + 1
        bins = np.repeat(np.arange(first, end), reached)
        before = np.repeat(np.cumsum(reached) - reached, reached)
        buckets = np.repeat(lows, reached) + (np.arange(len(bins)) - before).astype(np.float64)
        if scale and np.bincount(buckets.astype(np.int64)).max() > _MOST_IN_A_BUCKET:
            left += _halves(first, end)
            continue
        found.append(BucketRun(start, scale, bucket, buckets + float(bucket), bins))
        bucket += int(buckets[-1]) + 1
    return found


class BinFinder:
    """The bins of doubles.

    Args:
        edges: float64[n_bins + 1], increasing.
    """

    def __init__(self, edges: Floats) -> None:
        self._first, self._last = edges[0], edges[-1]
        self._inner = edges[1:-1]
        self._guesses: NDArray[np.unsignedinteger[Any]] | None = None
        with np.errstate(all="ignore"):
            self._scale = _BUCKETS_PER_BIN * (len(edges) - 1) / (self._last - self._first)
            if not 0 < self._scale < np.inf:
                return
            below = np.bincount(self._buckets(self._inner), minlength=self._buckets(self._last) + 1)
        if below.max() <= _MOST_STEPS:
            self._uppers = np.append(self._inner, np.inf)
            self._guesses = (below.cumsum() - below).astype(smallest_unsigned(len(edges) - 1))

    def __call__(self, values: Floats) -> Floats:
        """The bins of values, as doubles; of those outside and of NaN an outer one."""
        values = np.fmin(np.fmax(values, self._first), self._last)
        if self._guesses is None:
            found = np.searchsorted(self._inner, values, side="right")
            return np.asarray(found, dtype=np.float64)
        bins = self._guesses.take(self._buckets(values))
        left = np.flatnonzero(values >= self._uppers.take(bins))
        while len(left):
            bins[left] += 1
            left = left[values[left] >= self._uppers.take(bins[left])]
        return np.asarray(bins, dtype=np.float64)

    def _buckets(self, values: Any) -> Any:
        return ((values - self._first) * self._scale).astype(np.intp)


def with_bins(derived: ir.Table, value: Any, edges: Floats, index: int) -> ir.Table:
    """The table with the bin of each double ``value`` as a double, named ``bin_{index}``."""
    mapped = engine_of(derived).mapped(value, lambda: BinFinder(edges))
    if mapped is not None:
        return derived.mutate(**{f"bin_{index}": mapped})
    return _joined(derived, value, edges, index)


def _joined(derived: ir.Table, value: Any, edges: Floats, index: int) -> ir.Table:
    """The bin of each value, found by a join with a table of the bins."""
    import ibis
    import ibis.expr.datatypes as dt

    runs = bucket_runs(edges)
    bins = np.concatenate([run.bins for run in runs])
    names = [f"{name}_{index}" for name in ("bucket", "low", "high", "bin")]
    columns = (
        np.concatenate([run.buckets for run in runs]),
        edges[bins],
        edges[bins + 1],
        bins.astype(np.float64),
    )
    listed = {name: (dt.float64, each) for name, each in zip(names, columns, strict=True)}
    table = engine_of(derived).constants(derived, listed)
    bucket, low, high, _ = (table[name] for name in names)
    # Within the edges, since there are engines in which a product that is too large fails.
    within = ibis.greatest(ibis.least(value, double(edges[-1])), double(edges[0]))
    guess = _bucket(within, runs)
    return derived.left_join(table, [guess == bucket, value >= low, value < high])


def _bucket(value: Any, runs: list[BucketRun]) -> Any:
    """The bucket of a value, by bisection of the runs."""
    if len(runs) == 1:
        (run,) = runs
        if not run.scale:
            return double(run.first)
        guess = floor((value - double(run.start)) * double(run.scale))
        return guess + double(run.first) if run.first else guess
    middle = len(runs) // 2
    low, high = _bucket(value, runs[:middle]), _bucket(value, runs[middle:])
    return (value < double(runs[middle].start)).ifelse(low, high)


def _halves(first: int, end: int) -> list[tuple[int, int]]:
    """A run in two, the one to take next last."""
    middle = (first + end) // 2
    return [(middle, end), (first, middle)]
