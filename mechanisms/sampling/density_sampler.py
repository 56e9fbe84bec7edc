"""Records drawn from a density estimate mixed with the uniform distribution.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 4, Theorems 8 and 10; the
tight ratio is Theorem 4.4 of mechanisms/README.md. On s cells, from counts h of n records,
released are m iid draws from

    p(y) = (1 - w) (1/n) sum over x of h_x K_x(y) + w/s,

with a public kernel: K_x is the distribution that a record in cell x is spread over. The
histogram has K_x uniform on the bin of x; a kernel density estimate has a K_x that falls
with the distance from x.

**Privacy.** Adjacency replace-one: of a neighbour, the c records of a unit lie in other
cells. Write a(y) and b(y) for the least and the largest of K_x(y) over x. For a fixed y,
p(y) of one side over p(y) of the other is

    (R + sum of K over the new cells)/(R + sum over the old ones),

R being the part of both. It rises with the first sum, falls with the second, and falls
with R where it is above 1; each is attained at its end, so the supremum over all data
is the same fraction with R = (n - c) a(y), new cells at b(y), old ones at a(y):

    ratio = max over y of
        [(1 - w)((n - c) a(y) + c b(y))/n + w/s] / [(1 - w) a(y) + w/s].

One draw is log(ratio)-DP, tightly, and m draws are m log(ratio)-DP (Theorem 10), also
tightly: all draws may fall in the one cell. As a >= 0 it is at most
1 + (1 - w) c s K_max/(n w), which for the histogram of equal bins is Theorem 8.

**Sampling** is exact, in integers: a draw is uniform with probability w, a fraction;
otherwise it is that of a uniform record's kernel, whose values are multiples of a public
unit. Nothing has to be added to epsilon for arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from flint import ctx
from numpy.typing import NDArray

from mechanisms.accounting.numerics.enclosures import Bounds, ball, outwards
from mechanisms.domain.columns import Codes
from mechanisms.sampling.smoothed_records import below

_LARGEST_KERNEL_BITS = 40


class Kernel(Protocol):
    """How a record's cell is spread over the cells; public."""

    @property
    def n_cells(self) -> int:
        """Number of cells s."""

    def spread(self, origins: Codes, rng: np.random.Generator) -> Codes:
        """int64[m], a cell drawn from K_x for each x of the cells int64[m]."""

    def value(self, origin: int, cell: int) -> Fraction:
        """K_origin(cell)."""

    def extremes(self) -> set[tuple[Fraction, Fraction]]:
        """The pairs (a(y), b(y)) that occur over all cells y."""


@dataclass(frozen=True, eq=False)
class HistogramKernel:
    """Uniform on the bin that holds the record.

    Args:
        bins: int64[s], the bin 0..B-1 of each cell, each bin being used.
    """

    bins: Codes

    def __post_init__(self) -> None:
        if self.bins.ndim != 1 or not len(self.bins) or self.bins.min() < 0:
            raise ValueError("bins must be a bin of at least 0 for each cell")
        if np.any(self._sizes == 0):
            raise ValueError("a bin has no cell")

    @property
    def n_cells(self) -> int:
        return len(self.bins)

    @property
    def _sizes(self) -> Codes:
        return np.bincount(self.bins)

    def spread(self, origins: Codes, rng: np.random.Generator) -> Codes:
        sizes, order = self._sizes, np.argsort(self.bins, kind="stable")
        bins = self.bins[origins]
        starts = np.cumsum(sizes) - sizes
        cells: Codes = order[starts[bins] + rng.integers(0, sizes[bins], dtype=np.int64)]
        return cells

    def value(self, origin: int, cell: int) -> Fraction:
        same = self.bins[origin] == self.bins[cell]
        return Fraction(1, int(self._sizes[self.bins[cell]])) if same else Fraction(0)

    def extremes(self) -> set[tuple[Fraction, Fraction]]:
        sizes = {Fraction(1, int(size)) for size in np.unique(self._sizes)}
        return {(Fraction(0) if len(self._sizes) > 1 else size, size) for size in sizes}


@dataclass(frozen=True, eq=False)
class TableKernel:
    """Any kernel whose values are multiples of 2**-bits.

    Args:
        table: int64[s, s], 2**bits times K_x(y) at row x and column y.
        bits: At most 40.
    """

    table: NDArray[np.int64]
    bits: int

    def __post_init__(self) -> None:
        square = self.table.ndim == 2 and self.table.shape[0] == self.table.shape[1]
        if not (square and len(self.table) and 0 <= self.bits <= _LARGEST_KERNEL_BITS):
            raise ValueError("the kernel must be a square table of at most 40 bits")
        if np.any(self.table < 0) or np.any(self.table.sum(axis=1) != 1 << self.bits):
            raise ValueError("a row of the kernel does not add up to 2**bits")

    @property
    def n_cells(self) -> int:
        return len(self.table)

    def spread(self, origins: Codes, rng: np.random.Generator) -> Codes:
        ranks = rng.integers(0, 1 << self.bits, size=len(origins), dtype=np.int64)
        cells = np.empty(len(origins), dtype=np.int64)
        for origin in np.unique(origins):
            here = origins == origin
            bounds = np.cumsum(self.table[origin])
            cells[here] = np.searchsorted(bounds, ranks[here], side="right")
        return cells

    def value(self, origin: int, cell: int) -> Fraction:
        return Fraction(int(self.table[origin, cell]), 1 << self.bits)

    def extremes(self) -> set[tuple[Fraction, Fraction]]:
        columns = set(
            zip(self.table.min(axis=0).tolist(), self.table.max(axis=0).tolist(), strict=True)
        )
        return {(Fraction(a, 1 << self.bits), Fraction(b, 1 << self.bits)) for a, b in columns}


def gaussian_kernel(n_cells: int, bandwidth: Fraction | float, bits: int = 30) -> TableKernel:
    """A Gaussian on ordered cells, cut off at the ends and rounded; public.

    Its values are the same on every machine, as what they cost is.

    Args:
        n_cells: Number of cells s.
        bandwidth: Standard deviation in cells, positive; a float is taken as its exact value.
        bits: Values are multiples of 2**-bits, at most 30.
    """
    if not bandwidth > 0:
        raise ValueError("the bandwidth must be positive")
    square = 2 * Fraction(bandwidth) ** 2
    heights = np.array([_falling(distance**2 / square) for distance in range(n_cells)])
    steps = np.arange(n_cells)
    return round_kernel(heights[np.abs(steps[:, np.newaxis] - steps)], bits)


def round_kernel(weights: Codes, bits: int = 30) -> TableKernel:
    """A kernel near weights int64[s, s], each row scaled and rounded to add up to 2**bits.

    What rounding down leaves over goes to the largest value of the row.

    Args:
        weights: From 0 to 2**32, no row all 0.
        bits: At most 30.
    """
    rows = (weights << bits) // weights.sum(axis=1, keepdims=True)
    left = (1 << bits) - rows.sum(axis=1)
    rows[np.arange(len(rows)), rows.argmax(axis=1)] += left
    return TableKernel(rows, bits)


def _falling(exponent: Fraction) -> int:
    """The floor of 2**32 exp(-exponent)."""
    bits = 128
    while True:
        with ctx.workprec(bits):
            floor = ((-ball(exponent)).exp() * 2**32).floor().unique_fmpz()
        if floor is not None:
            return int(floor)
        bits *= 2


def sample_density(
    counts: Codes, kernel: Kernel, uniform: Fraction, records: int, rng: np.random.Generator
) -> Codes:
    """Counts int64[s] of iid draws from the mixture.

    Args:
        counts: int64[s], private counts h of n >= 1 records.
        kernel: Public kernel over the same cells.
        uniform: Share w of the uniform distribution, 0 < w <= 1.
        records: Number of draws m >= 0.
        rng: Source of bits; cryptographic in production.
    """
    n = _check(counts, kernel, uniform)
    spread = records - int(
        np.count_nonzero(below(uniform.numerator, uniform.denominator, records, rng))
    )
    ranks = rng.integers(0, n, size=spread, dtype=np.int64)
    origins = np.searchsorted(np.cumsum(counts), ranks, side="right").astype(np.int64)
    cells = kernel.spread(origins, rng)
    others = rng.integers(0, kernel.n_cells, size=records - spread, dtype=np.int64)
    return np.bincount(np.concatenate([cells, others]), minlength=kernel.n_cells)


def draw_ratio(
    kernel: Kernel, uniform: Fraction, n_records: int, unit_records: int = 1
) -> Fraction:
    """The largest ratio of a cell's probabilities on two neighbours, exactly.

    Args:
        kernel: Public kernel.
        uniform: Share w of the uniform distribution, 0 < w <= 1.
        n_records: Number of records n, public.
        unit_records: Records of one unit, 1 <= c <= n.
    """
    _check_share(uniform)
    if not 1 <= unit_records <= n_records:
        raise ValueError("needs 1 <= unit_records <= n_records")
    n, c, floor = n_records, unit_records, uniform / kernel.n_cells
    return max(
        ((1 - uniform) * ((n - c) * a + c * b) / n + floor) / ((1 - uniform) * a + floor)
        for a, b in kernel.extremes()
    )


def density_epsilon(
    kernel: Kernel, uniform: Fraction, records: int, *, n_records: int, unit_records: int = 1
) -> Bounds:
    """Bounds on m log(ratio), the smallest epsilon at delta = 0; charge the upper one."""
    excess = draw_ratio(kernel, uniform, n_records, unit_records) - 1
    with ctx.workprec(128):
        return outwards(ball(excess).log1p() * records)


def balanced_draws(n_records: int, epsilon: Fraction, density: Fraction) -> int:
    """The number of draws that Theorem 9 balances against the uniform share.

    Its proof bounds the expected Cramer-von Mises distance by a term of the bins and
    w^2 + 1/(4m), and by its equation 9 w is about B m/(n epsilon) with B bins. With the bins
    as declared that is least at m = (n epsilon/B)^(2/3)/2, where w is about
    (n epsilon/B)^(-1/3)/2. If B grows as n^(r/(r + 3)) these are the theorem's rates in r
    dimensions, n^(2/(r + 3)) and n^(-1/(r + 3)).

    Args:
        n_records: n.
        epsilon: Per record of a unit, at delta 0.
        density: Largest density of a record's kernel against uniform, s K_max; B for bins.
    """
    balanced = math.pow(n_records * epsilon / density, 2 / 3) / 2
    return max(1, round(min(balanced, 1e9)))


def _check(counts: Codes, kernel: Kernel, uniform: Fraction) -> int:
    """The number of records."""
    _check_share(uniform)
    n = int(counts.sum())
    if n < 1 or counts.shape != (kernel.n_cells,) or np.any(counts < 0):
        raise ValueError("needs a count of at least 0 for each cell, and a record")
    return n


def _check_share(uniform: Fraction) -> None:
    if not 0 < uniform <= 1:
        raise ValueError("the uniform share must be above 0 and at most 1")
