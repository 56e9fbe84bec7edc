"""Perturbed histograms: integer Laplace or Gaussian noise on every possible cell of a table.

Microdata are the projected counts rounded to whole records, a post-processing.

Source: Wasserman and Zhou (2010, doi 10.1198/jasa.2009.tm08651), section 4; the noise is discrete,
as in Ghosh, Roughgarden and Sundararajan (2012, arXiv 0811.2841) for the Laplace form and Canonne,
Kamath and Steinke (2020, arXiv 2004.00010) for the Gaussian one, so that no floating point reaches
the output.

Adjacency: replace-one, or add-remove. A record that moves takes one from a cell and adds one to
another: two independent cells whose counts move by 1, and no other. For units of one record the
loss of the table is that of these two cells, exactly. A unit of c records can move them
between many cells: some counts fall, by at most c in all, others rise, by at most c in
all. The worst that it can do is to move all of them from one cell to another.

**Theorem.** Let p be log-concave on the integers and a_1, .., a_r >= 0 add up to at most c. Noise
of law p in one cell that moves by c dominates independent noise of law p in r cells that move by
the a_i.

*Proof.* Let T_s(x) be the least power of a test of p against p moved by s that has the power x
under p: for every test f, E_moved f >= T_s(E_p f). As p is log-concave the likelihood ratio is
monotone, and the best tests are half-lines, at the end of which a coin is tossed (Neyman and
Pearson): with F the distribution function, T_s goes linearly from each point (F(t - 1),
F(t - 1 - s)) to (F(t), F(t - s)). So T_1 maps the piece from F(t - 1) to F(t) linearly onto that
from F(t - 2) to F(t - 1), and applied s times it is T_s: T_a(T_b(x)) = T_(a+b)(x). Now move the r
cells one after the other. When the i-th moves, the others have the same law before and after, so a
test whose power was x has at least T_(a_i)(x) then. T is monotone, hence at the end it has at
least T_(a_r)(..T_(a_1)(x)) = T_(a_1+..+a_r)(x) >= T_c(x): the loss of power by group privacy (Dong,
Roth and Su 2022, doi 10.1111/rssb.12454, section 2.4), which shifts of one cell attain. The
hockey-stick divergence is the largest x - e^epsilon T(x). []

It holds for the counts that fall and for those that rise, whose noises are independent, and
dominating pairs of independent parts multiply. Discrete Gaussian noise is log-concave, and is
charged the loss of two cells whose counts move by c, exactly. So is Laplace noise; it is charged
somewhat more, a randomised response of c/scale for each of the two cells, which dominates a pure
guarantee (Kairouz, Oh and Viswanath 2015, arXiv 1311.0776).

Under add-remove the counts only rise, or only fall, and both noises are charged for one such cell;
also where the table has but one, since its count is that of the records. The total is then
estimated by the sum of the noisy counts.

Released are the noisy counts of all possible cells. As for every mechanism, the records
lie in possible cells, in a table and in its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.balls import double_above
from statpress.mechanisms.accounting.losses import PrivacyLoss, PureLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.mechanism import (
    CANONNE_KAMATH_STEINKE,
    DWORK,
    GHOSH,
    IMPLIES_NOTHING,
    PROOF,
    Citation,
    Target,
    check_copies,
    check_frame,
)
from statpress.mechanisms.postprocessing.covariance import (
    Covariance,
    DebiasedTable,
    EstimatedTotal,
    IndependentErrors,
)
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    of_noise,
)
from statpress.mechanisms.tables.band_limits import DiscreteNoise
from statpress.mechanisms.tables.bands import BandLaw
from statpress.mechanisms.tables.count_tables import TableMechanism
from statpress.mechanisms.tables.expected import ExpectedCounts

MOST_CELLS, MOST_COPIED = 10_000_000, 1_000_000
"""Cells of a table, and of one that copies are drawn of."""
_CHUNK = 1 << 16
_FINEST, _WIDEST = Fraction(1, 2**20), Fraction(2**40)
_ENDS = (-20 * 1024, 40 * 1024)  # their places on the grid


@dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts:
    """Noisy counts of every possible cell of a domain.

    Attributes:
        domain: The release's domain.
        cells: int64[n_possible], ascending: every possible cell.
        counts: int64[n_possible]; may be negative.
    """

    domain: Domain
    cells: NDArray[np.int64]
    counts: NDArray[np.int64]

    def figures(self) -> dict[str, NDArray[np.int64]]:
        """The columns that are published as they are."""
        return {"raw": self.counts}


@dataclass(frozen=True, kw_only=True)
class PerturbedKnobs:
    """What a config may say about this mechanism.

    Attributes:
        scale: Of the noise, in records: exp(-|z|/scale) for Laplace, the standard
            deviation for Gaussian; by default the smallest that meets the budget.
        copies: Of microdata, how many more sets of records to draw, for intervals of whatever is
            computed from them (``mechanisms.tables.copied_counts``), 1 to 100; by default, and
            where it is 1, none.
    """

    scale: Fraction | None = None
    copies: int | None = field(default=None, metadata=IMPLIES_NOTHING)

    def __post_init__(self) -> None:
        if self.scale is not None:
            check_scale(self.scale, "scale")
        if self.copies is not None:
            check_copies(self.copies)


@dataclass(frozen=True)
class Perturbed(TableMechanism):
    """Independent noise of one scale on every cell.

    A subclass gives ``name``, ``citations``, ``_loss``, ``_noise`` and ``sd``, and with
    ``is_laplace`` the law that its bands and expected errors go by: discrete Laplace noise of
    this scale, or Gaussian. Noise of another law overrides ``band_law`` and ``expected_error``
    as well; a mechanism whose bands are not known is a ``TableMechanism`` that holds one instead.
    With ``pure`` it says that a budget is best spent on it without delta. One that lists add-remove
    in ``adjacencies`` charges for ``moved`` cells.

    Attributes:
        scale: A fraction that is exactly a double, as the samplers take it.
        adjacency: The neighbouring relation; None for replace-one.
        copies: More sets of records of microdata, at least 2; None for none.
    """

    knobs: ClassVar[type] = PerturbedKnobs
    unbiased: ClassVar[bool] = True
    is_laplace: ClassVar[bool]

    scale: Fraction
    adjacency: Adjacency | None = field(default=None, kw_only=True)
    copies: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        if Fraction(float(self.scale)) != self.scale:
            raise RecordsError("The scale must be exactly a double.", where="scale")

    def _loss(self, unit_records: int) -> PrivacyLoss:
        raise NotImplementedError

    def _noise(self, rng: Randomness, size: int) -> NDArray[np.int64]:
        """Noise int64[size] from ``rng``, which in production is ``tasks.release.entropy``."""
        raise NotImplementedError

    @property
    def moved(self) -> int:
        """Cells that a unit moves at worst, each by all of its records."""
        return (self.adjacency or Adjacency.REPLACE_ONE).moved

    @property
    def sd(self) -> float:
        """Standard deviation of the noise on a cell, in records."""
        raise NotImplementedError

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of the whole table; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        if n_cells == 1 and self.moved == 2:  # every dataset of this size is the same table
            return PureLoss(Fraction(0))
        return self._loss(unit_records)

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> NoisyCounts:
        """Add the noise."""
        cells = table.domain.possible_cells()
        noisy = noise_of_cells(lambda size: self._noise(rng, size), len(cells), progress)
        noisy[np.searchsorted(cells, table.cells)] += table.counts
        return NoisyCounts(table.domain, cells, noisy)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by the counts of the cells that differ."""
        exact = [self.release(table, NoNoise()).counts for table in (one, other)]
        ratio = of_noise(exact, float(self.scale), laplace=self.is_laplace)
        return lambda release: ratio(release.counts)

    def total(self, release: NoisyCounts) -> EstimatedTotal:
        """The number of records that are counted, from all cells, absent records included."""
        return EstimatedTotal(float(release.counts.sum()), len(release.counts) * self.sd**2)

    def postprocess(self, release: NoisyCounts, *, n_records: int) -> DebiasedTable:
        """The noisy counts are unbiased as they are; their error is the noise's."""
        return DebiasedTable(
            domain=release.domain,
            cells=release.cells,
            estimates=release.counts.astype(np.float64),
            standard_errors=np.full(len(release.counts), self.sd),
            undrawn_estimate=0.0,
            undrawn_standard_error=0.0,
        )

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """Independent noise on every cell."""
        return IndependentErrors()

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        return ExpectedCounts.of_noise(
            self.sd, n_records=n_records, n_cells=n_cells, laplace=self.is_laplace
        )

    def band_law(self, *, n_records: int, n_cells: int) -> BandLaw:
        """Independent noise on every cell, for confidence bands."""
        noise = DiscreteNoise(float(self.scale), laplace=self.is_laplace)
        return BandLaw.of_noise(noise, n_records=n_records, n_cells=n_cells)

    @classmethod
    def calibrate(cls, knobs: PerturbedKnobs, target: Target) -> Self:
        """The given scale, or the smallest within a thousandth that meets the target.

        Raises:
            InfeasibleBudgetError: No scale, or not the given one, meets it.
            ConfigError: Copies are asked for that cannot be drawn.
        """
        relation = target.adjacency
        adjacency = None if relation is Adjacency.REPLACE_ONE else relation
        copies = knobs.copies if knobs.copies != 1 else None
        if copies and target.domain is not None and target.domain.absent:
            raise ConfigError(
                "Copies of a noisy table are for units of one record.",
                where="copies",
                next_step="Leave out 'copies', or use 'marginals'.",
            )
        if copies and target.n_cells > MOST_COPIED:
            raise ConfigError(
                f"Copies are drawn of a table of at most {MOST_COPIED:,} cells; here are "
                f"{target.n_cells:,}.",
                where="copies",
                next_step="Leave out 'copies', declare fewer cells, or use 'marginals'.",
            )

        def loss(scale: Fraction) -> PrivacyLoss:
            return cls(scale, adjacency=adjacency).loss(**target.frame)

        return cls(scale_for(knobs.scale, target, loss), adjacency=adjacency, copies=copies)


def noise_of_cells(
    draw: Callable[[int], NDArray[np.int64]], n_cells: int, progress: Progress | None = None
) -> NDArray[np.int64]:
    """Noise int64[n_cells], drawn in chunks, of each of which ``progress`` hears."""
    noise = np.empty(n_cells, np.int64)
    for start in range(0, n_cells, _CHUNK):
        part = noise[start : start + _CHUNK]
        part[:] = draw(len(part))
        if progress is not None:
            progress(len(part))
    return noise


def scale_for(
    given: Fraction | None, target: Target, loss: Callable[[Fraction], PrivacyLoss]
) -> Fraction:
    """The given scale, or the smallest within a thousandth, at which a loss meets the target."""
    if target.n_cells > MOST_CELLS:
        raise InfeasibleBudgetError(
            f"A noisy table has a row per cell; {target.n_cells:,} are too many.",
            next_step=f"Declare at most {MOST_CELLS:,} cells, or use 'bootstrap'.",
        )

    def fits(scale: Fraction) -> bool:
        return target.allows(loss(scale))

    if given is None:
        return _smallest(fits)
    scale = Fraction(double_above(given))
    if not fits(scale):
        least = _smallest(fits)
        raise InfeasibleBudgetError(
            f"Noise of scale {float(scale):g} is too little for the budget.",
            next_step=f"Give a scale of at least {float(least):.6g}, leave it out, or"
            " raise the budget.",
        )
    return scale


def _smallest(fits: Callable[[Fraction], bool]) -> Fraction:
    """Smallest scale on the grid at which a budget is met."""
    low, high = _ENDS
    if fits(_grid(low)):
        return _grid(low)
    if not fits(_grid(high)):
        raise InfeasibleBudgetError(
            "No scale of this noise meets the budget.",
            next_step="Raise the budget; Gaussian noise needs a delta above 0, 'laplace' none.",
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(_grid(middle)) else (middle, high)
    return _grid(high)


def _grid(index: int) -> Fraction:
    """The index-th scale: 1024 steps from each power of two to the next; index 0 is 1."""
    power, step = divmod(index, 1024)
    return Fraction(1024 + step, 1024) * Fraction(2) ** power


def check_scale(scale: Fraction, where: str = "") -> None:
    """Refuse a scale outside the grid."""
    if not _FINEST <= scale <= _WIDEST:
        raise RecordsError("The scale must be between 2**-20 and 2**40 records.", where=where)


@dataclass(frozen=True)
class LaplaceTable(Perturbed):
    """Two-sided geometric noise, exp(-|z|/scale); charged its pure epsilon, 2c/scale or c/scale."""

    name: ClassVar[str] = "laplace"
    citations: ClassVar[tuple[Citation, ...]] = (
        DWORK,
        GHOSH,
        PROOF.at("Theorems 3.1 and 3.2"),
    )
    adjacencies: ClassVar[tuple[Adjacency, ...]] = tuple(Adjacency)
    pure: ClassVar[bool] = True
    is_laplace: ClassVar[bool] = True

    def _loss(self, unit_records: int) -> PrivacyLoss:
        return DiscreteLaplaceLoss(self.scale / unit_records, 1, self.moved)

    def _noise(self, rng: Randomness, size: int) -> NDArray[np.int64]:
        return rng.discrete_laplace(self.scale, size)

    @property
    def sd(self) -> float:
        """The root of 2 r / (1 - r)**2, r = exp(-1/scale)."""
        return math.sqrt(2) * math.exp(-0.5 / float(self.scale)) / -math.expm1(-1 / self.scale)


@dataclass(frozen=True)
class GaussianTable(Perturbed):
    """Discrete Gaussian noise, exp(-z**2/(2 scale**2))."""

    name: ClassVar[str] = "gaussian"
    citations: ClassVar[tuple[Citation, ...]] = (
        CANONNE_KAMATH_STEINKE.at("Theorem 4"),
        PROOF.at("Theorems 3.1 and 3.2"),
    )
    adjacencies: ClassVar[tuple[Adjacency, ...]] = tuple(Adjacency)
    is_laplace: ClassVar[bool] = False

    def _loss(self, unit_records: int) -> PrivacyLoss:
        return DiscreteGaussianLoss(self.scale**2, unit_records, self.moved)

    def _noise(self, rng: Randomness, size: int) -> NDArray[np.int64]:
        return rng.discrete_gaussian(self.scale, size)

    @property
    def sd(self) -> float:
        """At most the scale (Canonne, Kamath and Steinke 2020, Corollary 9)."""
        return float(self.scale)
