"""Records drawn from a density estimate: a histogram, or a kernel density estimate.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 4, Theorem 10; sampler
and proof are mechanisms.sampling.density_sampler. Released are m iid draws from (1 - w) times the
estimate plus w times the uniform distribution, at the pure epsilon m log(ratio), which is tight.

* ``histogram`` spreads a record evenly over its bin. By default each cell is a bin, of any
  number of columns. ``bins`` groups the cells of one column, in order, into that
  many bins of equal size but for one cell; fewer bins buy more draws.
* ``kde`` spreads a record of one column by a Gaussian of standard deviation ``bandwidth``
  cells, cut off at the ends. Its default is Silverman's 1.06 sigma n^(-1/5) for uniform
  data, sigma = s/sqrt 12, and at least half a cell.

**Estimates** of the counts take the uniform part away. With a bin for each cell they are
unbiased. Otherwise they are unbiased only for the smoothed counts: the bias of smoothing
stays, and no public quantity bounds it. The standard errors are those of m multinomial
draws in either case: that bias is not in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import ClassVar, Literal, Self, cast

import numpy as np

from mechanisms.accounting.analytic import PureLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import PROOF, WASSERMAN_ZHOU, Citation
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Target, check_frame
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError, InfeasibleBudgetError
from mechanisms.postprocessing.covariance import Covariance, MultinomialErrors, OtherErrors
from mechanisms.postprocessing.debias import DebiasedTable, debias
from mechanisms.sampling.density_sampler import (
    HistogramKernel,
    Kernel,
    balanced_draws,
    density_epsilon,
    gaussian_kernel,
    sample_density,
)
from mechanisms.sampling.randomness import Progress, Randomness
from mechanisms.tables.drawn.exponential_records import check_records, dense_counts, sparse_table
from mechanisms.tables.drawn.smoothed_histogram import check_uniform, needed_epsilon
from mechanisms.tables.expected_error import ExpectedCounts
from mechanisms.tables.kind import MICRODATA, TABLE

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
        check_uniform(self.uniform)


@dataclass(frozen=True, kw_only=True)
class Density:
    """The mechanism at fixed parameters; see its knobs."""

    name: ClassVar[str] = "density"
    citations: ClassVar[tuple[Citation, ...]] = (
        WASSERMAN_ZHOU.at("Theorem 10"),
        PROOF.at("Theorem 4.4"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (MICRODATA, TABLE)
    knobs: ClassVar[type] = DensityKnobs
    pure: ClassVar[bool] = True
    raw: ClassVar[tuple[str, ...]] = ("raw",)

    records: int
    uniform: Fraction
    estimator: Estimator = "histogram"
    bins: int | None = None
    bandwidth: Fraction | None = None

    def __post_init__(self) -> None:
        _check(self.estimator, self.bins, self.bandwidth)
        check_records(self.records)
        check_uniform(self.uniform)
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

    def rows(self, *, n_cells: int) -> int:
        return min(self.records, n_cells)

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> ContingencyTable:
        """Draw the records, held as counts per drawn cell."""
        counts = dense_counts(table)
        kernel, drawn = self.kernel(len(counts)), np.zeros_like(counts)
        for start in range(0, self.records, _CHUNK):
            size = min(_CHUNK, self.records - start)
            drawn += sample_density(counts, kernel, self.uniform, size, rng)
            if progress is not None:
                progress(size)
        return sparse_table(table.domain, drawn)

    def postprocess(self, release: ContingencyTable, *, n_records: int) -> DebiasedTable:
        """Estimates without the uniform part, see the module's text; costs nothing."""
        pseudocount = self.pseudocount(n_records, release.domain.n_possible)
        return debias(release, pseudocount, n_records=n_records)

    def pseudocount(self, n_records: int, n_cells: int) -> Fraction:
        """What added to each cell is the uniform part."""
        return n_records * self.uniform / (n_cells * (1 - self.uniform))

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """That of independent draws, where nothing is smoothed."""
        if not self.unbiased:
            return OtherErrors("The estimates are smoothed, and their bias is not known.")
        return MultinomialErrors(self.pseudocount(n_records, n_cells), self.records)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Sampling error from public quantities only, without the bias of smoothing."""
        pseudocount = self.pseudocount(n_records, n_cells)
        return ExpectedCounts.of_bootstrap(
            pseudocount, self.records, n_records=n_records, n_cells=n_cells
        )

    def describe(self) -> dict[str, str | int]:
        described: dict[str, str | int] = {
            "mechanism": self.name,
            "estimator": self.estimator,
            "records": self.records,
            "uniform": str(self.uniform),
        }
        if self.bins is not None:
            described["bins"] = self.bins
        if self.bandwidth is not None:
            described["bandwidth"] = str(self.bandwidth)
        return described

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        bins, bandwidth = description.get("bins"), description.get("bandwidth")
        return cls(
            records=int(str(description["records"])),
            uniform=Fraction(str(description["uniform"])),
            estimator=cast(Estimator, description["estimator"]),
            bins=None if bins is None else int(str(bins)),
            bandwidth=None if bandwidth is None else Fraction(str(bandwidth)),
        )

    @classmethod
    def calibrate(cls, knobs: DensityKnobs, target: Target) -> Self:
        """Parameters that meet a target, from public quantities only.

        Raises:
            ConfigError: The product has too many columns or cells.
            InfeasibleBudgetError: No share, or not the given one, meets the budget.
        """
        smooth = knobs.estimator == "kde" or knobs.bins is not None
        target.grid(cls.name, columns=1 if smooth else None, instead=_INSTEAD)
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
            records = balanced_draws(n, Fraction(target.pure_epsilon()), cells * largest)

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
            needed = needed_epsilon(at(uniform=tried).loss(**target.frame))
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
