"""Records drawn from a density estimate mixed with the uniform distribution.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 4, Theorems 8 to 10; the
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

**Two estimators** of ``density``:

* ``histogram`` spreads a record evenly over its bin. By default each cell is a bin, of any
  number of columns. ``bins`` groups the cells of one column, in order, into that
  many bins of equal size but for one cell; fewer bins buy more draws.
* ``kde`` spreads a record of one column by a Gaussian of standard deviation ``bandwidth``
  cells, cut off at the ends. Its default is Silverman's 1.06 sigma n^(-1/5) for uniform
  data, sigma = s/sqrt 12, and at least half a cell.

Estimates of the counts take the uniform part away. With a bin for each cell they are
unbiased. Otherwise they are unbiased only for the smoothed counts: the bias of smoothing
stays, and no public quantity bounds it. The standard errors are those of m multinomial
draws in either case: that bias is not in them.

**Smoothed histogram**: the bootstrap's draws, few enough for a budget without delta. Released are
m iid draws from (1 - w) h/n + w/|domain|, which is the bootstrapping mechanism's distribution at
the pseudocount n w/(|domain| (1 - w)) (mechanisms/README.md, section 2). So ``smoothed_histogram``
is that mechanism under another calibration: its loss is the same exact value, whose epsilon at
delta 0 is m log((c + pseudocount)/pseudocount), the theorem's equation 8 in one of c records.

By default m balances the error of sampling against w (``_balanced_draws``), and w is the
smallest that meets the budget. Theorem 9 counts w as a bias of the records drawn; the
estimates of the counts are free of it, and vary least for m near n epsilon/|domain|, where w
is about a half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from flint import ctx
from numpy.typing import NDArray

from statpress.mechanisms.accounting.balls import Bounds, ball, outwards
from statpress.mechanisms.accounting.losses import PrivacyLoss, PureLoss
from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.mechanism import (
    PROOF,
    WASSERMAN_ZHOU,
    Citation,
    Target,
    check_frame,
)
from statpress.mechanisms.postprocessing.covariance import Covariance, OtherErrors
from statpress.mechanisms.sampling.randomness import Progress, Randomness
from statpress.mechanisms.sampling.record_sampler import below
from statpress.mechanisms.tables.bootstrap import Bootstrap, BootstrapKnobs, SmoothedDraws
from statpress.mechanisms.tables.exponential_ks import check_records, dense_counts, sparse_table

_LARGEST_KERNEL_BITS = 40


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
        """int64[m], a cell drawn from K_x for each x of the cells int64[m]."""
        sizes, order = self._sizes, np.argsort(self.bins, kind="stable")
        bins = self.bins[origins]
        starts = np.cumsum(sizes) - sizes
        cells: Codes = order[starts[bins] + rng.integers(0, sizes[bins], dtype=np.int64)]
        return cells

    def extremes(self) -> set[tuple[Fraction, Fraction]]:
        """The pairs (a(y), b(y)) that occur over all cells y."""
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
        """int64[m], a cell drawn from K_x for each x of the cells int64[m]."""
        ranks = rng.integers(0, 1 << self.bits, size=len(origins), dtype=np.int64)
        cells = np.empty(len(origins), dtype=np.int64)
        for origin in np.unique(origins):
            here = origins == origin
            bounds = np.cumsum(self.table[origin])
            cells[here] = np.searchsorted(bounds, ranks[here], side="right")
        return cells

    def extremes(self) -> set[tuple[Fraction, Fraction]]:
        """The pairs (a(y), b(y)) that occur over all cells y."""
        columns = set(
            zip(self.table.min(axis=0).tolist(), self.table.max(axis=0).tolist(), strict=True)
        )
        return {(Fraction(a, 1 << self.bits), Fraction(b, 1 << self.bits)) for a, b in columns}


Kernel = HistogramKernel | TableKernel
"""How a record's cell is spread over the cells; public."""


def gaussian_kernel(n_cells: int, bandwidth: Fraction | float, bits: int = 30) -> TableKernel:
    """A Gaussian on ordered cells, cut off at the ends and rounded; public.

    Its values are the same on every machine, as what they cost is.
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
    """Counts int64[s] of iid draws from the mixture."""
    _check_share(uniform)
    n = int(counts.sum())
    if n < 1 or counts.shape != (kernel.n_cells,) or np.any(counts < 0):
        raise ValueError("needs a count of at least 0 for each cell, and a record")
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
    """The largest ratio of a cell's probabilities on two neighbours, exactly."""
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


def _balanced_draws(n_records: int, epsilon: Fraction, density: Fraction) -> int:
    """The number of draws that Theorem 9 balances against the uniform share.

    Its proof bounds the expected Cramer-von Mises distance by a term of the bins and
    w^2 + 1/(4m), and by its equation 9 w is about B m/(n epsilon) with B bins. With the bins
    as declared that is least at m = (n epsilon/B)^(2/3)/2, where w is about
    (n epsilon/B)^(-1/3)/2. If B grows as n^(r/(r + 3)) these are the theorem's rates in r
    dimensions, n^(2/(r + 3)) and n^(-1/(r + 3)).
    """
    balanced = math.pow(n_records * epsilon / density, 2 / 3) / 2
    return max(1, round(min(balanced, 1e9)))


def _check_share(uniform: Fraction) -> None:
    if not 0 < uniform <= 1:
        raise ValueError("the uniform share must be above 0 and at most 1")


@dataclass(frozen=True, kw_only=True)
class SmoothedHistogramKnobs:
    """What a config may say about this mechanism.

    Attributes:
        records: Number of draws m.
        uniform: Share w of the uniform distribution, above 0 and below 1.
    """

    records: int | None = None
    uniform: Fraction | None = None

    def __post_init__(self) -> None:
        if self.records is not None:
            check_records(self.records, "records")
        _check_uniform(self.uniform)


class SmoothedHistogram(Bootstrap):
    """The mechanism at fixed parameters: those of ``Bootstrap``."""

    name: ClassVar[str] = "smoothed_histogram"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorems 8 and 9"),
        PROOF.at("Theorems 2.1 to 2.4"),
    )
    knobs: ClassVar[type] = SmoothedHistogramKnobs
    pure: ClassVar[bool] = True

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet a target, from public quantities only.

        Raises:
            InfeasibleBudgetError: No parameters, or not the given ones, meet it.
        """
        n, cells, w, records = target.n_records, target.n_cells, knobs.uniform, knobs.records
        if records is None:
            epsilon = Fraction(target.pure_epsilon())
            records = _balanced_draws(n, epsilon, Fraction(cells))
        if w is not None:
            given = cls(n * w / (cells * (1 - w)), records)
            loss = given.loss(**target.frame)
            if target.allows(loss):
                return given
        least = super().calibrate(BootstrapKnobs(records=records), target)
        if w is not None:
            share = least.pseudocount * cells / (n + least.pseudocount * cells)
            raise InfeasibleBudgetError(
                f"{records:,} records at the uniform share {float(w):g} need an epsilon of "
                f"{_needed_epsilon(loss)}.",
                next_step=f"Give a share of {math.ceil(share * 10**6) / 10**6:g}, fewer "
                "records, or a budget of at least that epsilon.",
            )
        return least


def _needed_epsilon(loss: PrivacyLoss) -> str:
    """The budget without delta that a loss needs, to six digits rounded up."""
    exact = Decimal(loss.pure_epsilon.upper)
    return f"{Context(prec=6, rounding=ROUND_CEILING).create_decimal(exact):f}"


def _check_uniform(uniform: Fraction | None) -> None:
    """Refuse a share that leaves nothing, or nothing but, the uniform distribution."""
    if uniform is not None and not 0 < uniform < 1:
        raise ConfigError("The uniform share must be above 0 and below 1.", where="uniform")


Estimator = Literal["histogram", "kde"]
MOST_CELLS = {"histogram": 1_000_000, "kde": 2_000}
_CHUNK = 1 << 20
_FINEST = 12  # digits of a uniform share
_MOST_UNIFORM = Fraction(999, 1000)  # of a share that is not given
_INSTEAD = "Use 'smoothed_histogram' or 'bootstrap', or declare fewer cells."


@dataclass(frozen=True, kw_only=True)
class DensityKnobs:
    """What a config may say about this mechanism.

    Attributes:
        estimator: Of the density.
        bins: Of the histogram, over one column; by default a bin for each cell.
        bandwidth: Of the kernel density estimate, in cells, 1/100 to 1e6.
        records: Number of draws m; by default what Theorem 9 balances against w.
        uniform: Share w of the uniform distribution; by default the smallest that meets
            the budget.
    """

    estimator: Estimator = "histogram"
    bins: int | None = None
    bandwidth: Fraction | None = None
    records: int | None = None
    uniform: Fraction | None = None

    def __post_init__(self) -> None:
        _check(self.estimator, self.bins, self.bandwidth)
        if self.records is not None:
            check_records(self.records, "records")
        _check_uniform(self.uniform)


@dataclass(frozen=True, kw_only=True)
class Density(SmoothedDraws):
    """The mechanism at fixed parameters; see its knobs."""

    name: ClassVar[str] = "density"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorem 10"),
        PROOF.at("Theorem 4.4"),
    )
    knobs: ClassVar[type] = DensityKnobs
    pure: ClassVar[bool] = True

    estimator: Estimator = "histogram"
    records: int
    uniform: Fraction
    bins: int | None = None
    bandwidth: Fraction | None = None

    def __post_init__(self) -> None:
        _check(self.estimator, self.bins, self.bandwidth)
        check_records(self.records)
        _check_uniform(self.uniform)
        if self.estimator == "kde" and self.bandwidth is None:
            raise ConfigError("A kernel density estimate needs a bandwidth.")

    @property
    def unbiased(self) -> bool:
        """Only with a bin for each cell."""
        return self.estimator == "histogram" and self.bins is None

    def kernel(self, n_cells: int) -> Kernel:
        """How a record's cell is spread over so many cells; public."""
        return _kernel(n_cells, self.bins, self.bandwidth)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the whole release; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        bounds = density_epsilon(
            self.kernel(n_cells),
            self.uniform,
            self.records,
            n_records=n_records,
            unit_records=unit_records,
        )
        return PureLoss(Fraction(bounds.upper))

    def release(
        self,
        table: ContingencyTable,
        rng: Randomness,
        progress: Progress | None = None,
        *,
        chunk: int = _CHUNK,
    ) -> ContingencyTable:
        """Draw the records, so many at a time, held as counts per drawn cell."""
        counts = dense_counts(table)
        kernel, drawn = self.kernel(len(counts)), np.zeros_like(counts)
        for start in range(0, self.records, chunk):
            size = min(chunk, self.records - start)
            drawn += sample_density(counts, kernel, self.uniform, size, rng)
            if progress is not None:
                progress(size)
        return sparse_table(table.domain, drawn)

    def pseudocount_of(self, n_records: int, n_cells: int) -> Fraction:
        """What added to each cell is the uniform part."""
        return n_records * self.uniform / (n_cells * (1 - self.uniform))

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """The covariance of independent draws, where nothing is smoothed."""
        if not self.unbiased:
            return OtherErrors("The estimates are smoothed, and their bias is not known.")
        return super().covariance(n_records=n_records, n_cells=n_cells)

    @classmethod
    def calibrate(cls, knobs: DensityKnobs, target: Target) -> Self:
        """Parameters that meet a target, from public quantities only.

        Raises:
            ConfigError: The product has too many columns or cells.
            InfeasibleBudgetError: No share, or not the given one, meets the budget.
        """
        smooth = knobs.estimator == "kde" or knobs.bins is not None
        target.grid(cls.name, columns=1 if smooth else None, instead=_INSTEAD)
        columns = target.domain.columns if smooth and target.domain else ()
        if any(isinstance(column, Ranges) and column.special for column in columns):
            raise ConfigError(
                f"The mechanism '{cls.name}' spreads records over neighbouring cells, and so over "
                "those of special values.",
                next_step="Leave out 'estimator' and 'bins', or choose another mechanism.",
            )
        n, cells, most = target.n_records, target.n_cells, MOST_CELLS[knobs.estimator]
        if cells > most:
            raise ConfigError(
                f"'estimator: {knobs.estimator}' serves at most {most:,} cells; {cells:,} are "
                "too many.",
                next_step=_INSTEAD,
            )
        bandwidth = knobs.bandwidth
        if knobs.estimator == "kde" and bandwidth is None:
            bandwidth = Fraction(f"{max(1.06 * cells / math.sqrt(12) / n**0.2, 0.5):.3g}")
        kernel = _kernel(cells, knobs.bins, bandwidth)
        records = knobs.records
        if records is None:
            largest = max(b for _, b in kernel.extremes())
            records = _balanced_draws(n, Fraction(target.pure_epsilon()), cells * largest)

        at = partial(
            cls,
            records=records,
            estimator=knobs.estimator,
            bins=knobs.bins,
            bandwidth=bandwidth,
        )

        def fits(uniform: Fraction) -> bool:
            return target.allows(at(uniform=uniform).loss(**target.frame))

        share = knobs.uniform
        if share is not None and fits(share):
            return at(uniform=share)
        least = _least(fits)
        if least is None or share is not None:
            tried = share or _MOST_UNIFORM
            needed = _needed_epsilon(at(uniform=tried).loss(**target.frame))
            remedy = "fewer records" if least is None else f"a share of {float(least):g}"
            raise InfeasibleBudgetError(
                f"{records:,} records at the uniform share {float(tried):g} "
                f"need an epsilon of {needed}.",
                next_step=f"Give {remedy}, or a budget of at least that epsilon.",
            )
        return at(uniform=least)


@lru_cache(maxsize=4)
def _kernel(n_cells: int, bins: int | None, bandwidth: Fraction | None) -> Kernel:
    if bandwidth is not None:
        return gaussian_kernel(n_cells, bandwidth)
    number = n_cells if bins is None else bins
    if number > n_cells:
        raise ConfigError(
            f"{number:,} bins are more than the {n_cells:,} cells.",
            where="bins",
            next_step=f"Give at most {n_cells:,} bins, or leave them out.",
        )
    return HistogramKernel(np.arange(n_cells) * number // n_cells)


def _least(fits: Callable[[Fraction], bool]) -> Fraction | None:
    """Smallest uniform share to three significant digits; None if above 0.999."""
    for digits in range(3, _FINEST + 1):
        low, high = 0, 10**digits - 1
        if not fits(Fraction(high, 10**digits)):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(Fraction(middle, 10**digits)) else (middle, high)
        if high >= 100:
            break
    return Fraction(high, 10**digits)


def _check(estimator: str, bins: int | None, bandwidth: Fraction | None) -> None:
    if estimator not in MOST_CELLS:
        raise ConfigError("The estimator is 'histogram' or 'kde'.", where="estimator")
    if bins is not None and (estimator != "histogram" or bins < 1):
        raise ConfigError("The bins are those of a histogram, at least 1.", where="bins")
    if bandwidth is None:
        return
    if estimator != "kde" or not Fraction(1, 100) <= bandwidth <= 10**6:
        raise ConfigError(
            "The bandwidth is that of 'estimator: kde', 1/100 to 1e6 cells.", where="bandwidth"
        )
    if bandwidth.denominator > 10**9:
        raise ConfigError("The bandwidth has more than 9 decimals.", where="bandwidth")
