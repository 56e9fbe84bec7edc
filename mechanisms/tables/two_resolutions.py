"""Noisy counts at two resolutions, made consistent: small errors of cumulative shares.

A share below some cell adds up the noise of all cells below it. Released are the noisy counts of
all s cells in their order and, with the same noise, of k blocks of b = s/k neighbouring cells each
(sizes differ by at most 1); a share then adds up a few blocks and the cells of one. For trees of
more levels see Hay, Rastogi, Miklau and Suciu (2010, arXiv 0904.0942), whose least squares this
is.

**Privacy.** Adjacency: replace-one. A record that moves to another block leaves a cell and its
block and enters others: four independent counts that move by 1, of which the loss is exactly that
of discrete Gaussian noise in four cells. A record that moves within its block moves two of them,
whose pair is a marginal of the pair for four and so never more apart. For units of c records the
counts of cells fall by at most c in all and rise by as much, those of blocks too. Each of these
four parts is dominated by one count that moves by c (the theorem in ``perturbed.py``), which all c
records attain that move from one cell to one of another block.

**Estimates.** Let v be the variance of the noise, y_0 the noisy count of a block of b cells and
y_1..y_b theirs. Its best linear estimate is t = (b y_0 + y_1 + .. + y_b)/(b + 1), of variance
w = v b/(b + 1); the number of records n being public, t moves by w/(sum of all w) of what all
blocks miss of n, which leaves Var(t) = w (1 - w/(sum of all w)). A cell is estimated by
y_i - mean(y) + t/b, of variance v (1 - 1/b) + Var(t)/b^2, as the deviations from the mean are
independent of the sums.

**Cumulative shares.** The noise of the blocks up to a point is a bridge over k steps of variance
w, and that within the block reached a bridge over b steps of v; at their peak the variance is
(k w + b v)/4 = v s (k/(s + k) + 1/k)/4, which is least at k = s/(sqrt(s) - 1).

**Bands**, from a scale s >= 3 on (the walk and its bound are those of
statpress.mechanisms.tables.band_limits). Let U_B be the sum of the noise of
the b cells of block B, V_B the noise of its own count. Least squares errs by e_B = U_B - b/(b + 1)
(U_B - V_B) in a block's total, before the totals are moved to n in proportion to w_B = s^2 b/(b +
1). Given all U_B - V_B, which are released, and the sum of all U_B, the e_B are Gaussian on shifted
integers with variances w_B, given their sum: a walk with steps of variances w_B, so that the
errors C of the cumulated totals have P(max |C| >= x) <= 2 exp(-2a^2/(sum of w_B)). Given all U_B
and V_B the sums within the blocks, less their share of U_B, are independent, each of P(max >= x) <=
2 exp(-2a^2/(b s^2)). A cumulative count errs by at most the sum of both maxima, and the second
bound holds whatever the first part is: so P(max + max >= x) <= E G(x - C'), C' being as large as
the first bound allows and G the second one for all blocks.

**Projected** are first the blocks, onto the simplex of n, then the cells of each onto its
block's count: this keeps the accuracy of the blocks, which projecting all cells at once loses.
Where noise hides most cells the total variation is up to a fifth less than that of noise on cells
only if neighbouring cells hold much the same, and a few per cent more if not; where it hides few,
half of the budget went to blocks in vain. No closed form has all this, and expected errors are
simulated with noise of a known seed, on the reference shapes of
statpress.mechanisms.tables.expected in an order: all cells alike; counts that fall as 1/rank from
cell to cell; the same on a tenth of the cells, scattered.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, RecordsError
from statpress.mechanisms.mechanism import (
    CANONNE_KAMATH_STEINKE,
    HAY,
    PROOF,
    Citation,
    Target,
    check_frame,
)
from statpress.mechanisms.postprocessing.consistency import Floats, project_to_simplex
from statpress.mechanisms.postprocessing.covariance import Covariance, DebiasedTable, OtherErrors
from statpress.mechanisms.sampling.randomness import (
    Evidence,
    NoNoise,
    Progress,
    Randomness,
    SimulatedRandomness,
    of_noise,
)
from statpress.mechanisms.tables.band_limits import DiscreteNoise, Strays, added, bridge_tail
from statpress.mechanisms.tables.bands import BandLaw
from statpress.mechanisms.tables.count_tables import RawTable, TableMechanism
from statpress.mechanisms.tables.expected import BRIDGE, ExpectedCounts, ordered_references
from statpress.mechanisms.tables.perturbed import (
    NoisyCounts,
    check_scale,
    noise_of_cells,
    scale_for,
)

MOST_SIMULATED = 1 << 20
"""Cells up to which expected errors are simulated."""

_CELLS_IN_ALL, _REPETITIONS = 1 << 15, 100


def ends_of(blocks: int, n_cells: int) -> Codes:
    """Places int64[blocks + 1] of the first cell of every block, and of the end."""
    return np.arange(blocks + 1) * n_cells // blocks


def least_squares(
    cells: Floats, blocks: Floats, ends: Codes, n_records: int
) -> tuple[Floats, Floats]:
    """Estimates of blocks and cells from their noisy counts."""
    starts, widths = ends[:-1], np.diff(ends)
    sums = np.add.reduceat(cells, starts, axis=-1)
    part = widths / (widths + 1)
    totals = part * blocks + sums / (widths + 1)
    totals += part * ((n_records - totals.sum(axis=-1, keepdims=True)) / part.sum())
    return totals, cells + np.repeat((totals - sums) / widths, widths, axis=-1)


def projected_by_blocks(totals: Floats, estimates: Floats, ends: Codes, n_records: int) -> Floats:
    """First the blocks, then the cells of each onto its block's count."""
    projected = np.empty_like(estimates)
    whole = project_to_simplex(totals, float(n_records)).values.tolist()
    for start, end, total in zip(ends[:-1].tolist(), ends[1:].tolist(), whole, strict=True):
        projected[start:end] = project_to_simplex(estimates[start:end], total).values
    return projected


def projected_rows(totals: Floats, estimates: Floats, ends: Codes) -> Floats:
    """Cells onto their blocks' counts, all blocks at once; equal up to rounding."""
    widths = np.diff(ends)
    inside = np.arange(int(widths.max())) < widths[:, None]
    rows = np.full((*estimates.shape[:-1], *inside.shape), -np.inf)
    rows[..., inside] = estimates
    falling = -np.sort(-rows, axis=-1)
    ranks = np.arange(1, rows.shape[-1] + 1)
    levels = (np.cumsum(falling, axis=-1) - totals[..., None]) / ranks
    kept = np.maximum((falling > levels).sum(axis=-1), 1)
    level = np.take_along_axis(levels, kept[..., None] - 1, axis=-1)[..., 0]
    projected: Floats = np.maximum(estimates - np.repeat(level, widths, axis=-1), 0.0)
    return projected


@functools.lru_cache(maxsize=256)
def simulated_variation(scale: Fraction, blocks: int, n_records: int, n_cells: int) -> float:
    """Mean total variation of projected counts over the reference shapes, 0 to 1."""
    rng, ends, differences = SimulatedRandomness(), ends_of(blocks, n_cells), []
    times = min(max(_CELLS_IN_ALL // n_cells, 1), _REPETITIONS)
    whole = np.array([0, blocks])  # the blocks as the cells of one block
    for counts in ordered_references(n_records, n_cells, rng):
        noise = rng.normal(0.0, float(scale), (times, n_cells + blocks))
        noisy = counts + noise[:, :n_cells]
        of_blocks = np.add.reduceat(counts, ends[:-1]) + noise[:, n_cells:]
        totals, estimates = least_squares(noisy, of_blocks, ends, n_records)
        kept = projected_rows(np.full((times, 1), float(n_records)), totals, whole)
        cells = projected_rows(kept, estimates, ends)
        differences += np.abs(cells - counts).sum(axis=-1).tolist()
    return float(np.mean(differences)) / (2 * n_records)


_LEAST_SCALE = 3.0  # from which on cumulated least squares have a known bound
_LEVEL = 0.05  # at which a bound of cumulated noise is compared with another


@dataclass(frozen=True, eq=False, repr=False)
class BlockCounts(NoisyCounts):
    """Noisy counts of every possible cell, and of blocks of them.

    Attributes:
        blocks: int64[k], in the order of their cells; may be negative.
    """

    blocks: Codes

    def figures(self) -> dict[str, Codes]:
        """The columns that are published as they are; every cell has its block's count."""
        widths = np.diff(ends_of(len(self.blocks), len(self.cells)))
        return {"raw": self.counts, "raw_block": np.repeat(self.blocks, widths)}


@dataclass(frozen=True, kw_only=True)
class TwoResolutionsKnobs:
    """What a config may say about this mechanism.

    Attributes:
        scale: Standard deviation of the noise, in records; by default the smallest that
            meets the budget.
        blocks: Number of blocks of neighbouring cells, at least 2; by default that of the
            least expected Kolmogorov-Smirnov distance.
    """

    scale: Fraction | None = None
    blocks: int | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            check_scale(self.scale, "scale")
        if self.blocks is not None and self.blocks < 2:
            raise ConfigError("There must be at least 2 blocks.", where="blocks")


@dataclass(frozen=True)
class TwoResolutions(TableMechanism):
    """Discrete Gaussian noise on every cell, and on blocks of neighbouring cells.

    Attributes:
        scale: Standard deviation of the noise, a fraction that is exactly a double.
        blocks: Number of blocks, at least 2; at most that of the cells.
    """

    name: ClassVar[str] = "two_resolutions"
    citations: ClassVar[tuple[Citation, ...]] = (
        CANONNE_KAMATH_STEINKE.at("Theorem 4"),
        HAY,
        PROOF.at("Theorem 3.3"),
    )
    knobs: ClassVar[type] = TwoResolutionsKnobs
    unbiased: ClassVar[bool] = True
    raw: ClassVar[tuple[str, ...]] = ("raw", "raw_block")

    scale: Fraction
    blocks: int

    def __post_init__(self) -> None:
        TwoResolutionsKnobs(scale=self.scale, blocks=self.blocks)
        if Fraction(float(self.scale)) != self.scale:
            raise RecordsError("The scale must be exactly a double.", where="scale")

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of both resolutions together; takes no data.

        Raises:
            ConfigError: There are fewer cells than blocks.
        """
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        if self.blocks > n_cells:
            raise ConfigError(
                f"{n_cells:,} cells cannot be put into {self.blocks:,} blocks.",
                where="blocks",
                next_step="Give at most as many blocks as the product has cells, or 'gaussian'.",
            )
        return DiscreteGaussianLoss(self.scale**2, unit_records, 4)

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> BlockCounts:
        """Add the noise, to the blocks first."""
        cells = table.domain.possible_cells()
        ends = ends_of(self.blocks, len(cells))
        places = np.searchsorted(cells, table.cells)
        blocks = rng.discrete_gaussian(self.scale, self.blocks)
        np.add.at(blocks, np.searchsorted(ends, places, side="right") - 1, table.counts)
        noisy = noise_of_cells(
            lambda size: rng.discrete_gaussian(self.scale, size), len(cells), progress
        )
        noisy[places] += table.counts
        return BlockCounts(table.domain, cells, noisy, blocks)

    def evidence(self, one: ContingencyTable, other: ContingencyTable) -> Evidence:
        """For audits: by the counts of cells and of blocks."""

        def numbers(release: BlockCounts) -> Codes:
            return np.append(release.counts, release.blocks)

        exact = [numbers(self.release(table, NoNoise())) for table in (one, other)]
        ratio = of_noise(exact, float(self.scale))
        return lambda release: ratio(numbers(release))

    def postprocess(self, release: RawTable, *, n_records: int) -> DebiasedTable:
        """The least squares and the projection of the module's text.

        Raises:
            ValueError: The cells of one block have several counts of their block.
        """
        raw = release.figures()
        ends = ends_of(self.blocks, len(raw["raw"]))
        starts, widths = ends[:-1], np.diff(ends)
        blocks, cells = raw["raw_block"][starts], raw["raw"].astype(np.float64)
        if np.any(np.repeat(blocks, widths) != raw["raw_block"]):
            raise ValueError("The cells of one block have several counts of their block.")
        totals, estimates = least_squares(cells, blocks.astype(np.float64), ends, n_records)
        return DebiasedTable(
            domain=release.domain,
            cells=release.cells,
            estimates=estimates,
            standard_errors=np.repeat(self._errors(widths), widths),
            undrawn_estimate=0.0,
            undrawn_standard_error=0.0,
            projected=projected_by_blocks(totals, estimates, ends, n_records),
        )

    def covariance(self, *, n_records: int, n_cells: int) -> Covariance:
        """The noise of a block is shared by its cells."""
        return OtherErrors(
            "Its cells are correlated within its blocks; least squares would state errors that "
            "are not theirs."
        )

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedCounts:
        """Expected error from public quantities only.

        The total variation of the projected counts is simulated on the reference shapes
        (mechanisms.tables.two_resolutions); of more than 2^20 cells it is taken as that of cells
        projected at once, with the error that a cell has on average. The Kolmogorov-Smirnov
        distance is taken from the peak, although each block has one of its own: simulated
        distances of estimates are 0.9 times this for 20 cells, 1.14 for 100, 1.4 for 1000.
        """
        widths = np.diff(ends_of(self.blocks, n_cells))
        errors = self._errors(widths)
        error = ExpectedCounts.of_noise(
            float(errors @ widths) / n_cells, n_records=n_records, n_cells=n_cells
        )
        peak = float(self.scale) ** 2 * _peak(self.blocks, n_cells)
        if n_cells <= MOST_SIMULATED:
            variation = simulated_variation(self.scale, self.blocks, n_records, n_cells)
            error = replace(error, projected_total_variation=variation)
        return replace(
            error,
            cell_sd_most=float(errors.max()),
            kolmogorov_smirnov=2 * BRIDGE * math.sqrt(peak) / n_records,
        )

    def band_law(self, *, n_records: int, n_cells: int) -> BandLaw:
        """Noise on cells, whose cumulated least squares stray less; for confidence bands."""
        noise = DiscreteNoise(float(self.scale))
        blocks = strays_of_blocks(float(self.scale), np.diff(ends_of(self.blocks, n_cells)))
        by_cells = BandLaw.of_noise(noise, n_records=n_records, n_cells=n_cells)
        plain = by_cells.strays(0)
        if blocks is None or (plain and plain.quantile(_LEVEL) <= blocks.quantile(_LEVEL)):
            return by_cells

        def estimates(release: RawTable, raw: Codes) -> Floats:
            derived: Floats = self.postprocess(release, n_records=n_records).estimates
            return derived

        return replace(by_cells, strays=lambda end: blocks, estimates=estimates)

    @classmethod
    def calibrate(cls, knobs: TwoResolutionsKnobs, target: Target) -> Self:
        """The given scale, or the smallest within a thousandth that meets the target.

        Raises:
            ConfigError: There are fewer cells than blocks.
            InfeasibleBudgetError: No scale, or not the given one, meets the target.
        """
        blocks = knobs.blocks or _best_blocks(target.n_cells)
        scale = scale_for(
            knobs.scale, target, lambda scale: cls(scale, blocks).loss(**target.frame)
        )
        return cls(scale, blocks)

    def _errors(self, widths: Codes) -> Floats:
        """Standard errors float64[k] of a cell of each block; the variance is at most scale^2."""
        part = widths / (widths + 1)
        left = part * (1 - part / part.sum())
        errors: Floats = float(self.scale) * np.sqrt(1 - 1 / widths + left / widths**2)
        return errors


def strays_of_blocks(scale: float, widths: Codes) -> Strays | None:
    """How far cumulated least squares stray, about themselves; None if no bound is known."""
    if scale < _LEAST_SCALE:
        return None
    between = scale**2 * float(np.sum(widths / (widths + 1)))
    longest, blocks = int(widths.max()), len(widths)
    totals, within = bridge_tail(between), bridge_tail(longest * scale**2)
    if longest == 1:
        return Strays(np.zeros(int(widths.sum())), totals, math.sqrt(between))

    def all_within(x: Floats) -> Floats:
        return np.asarray(-np.expm1(blocks * np.log1p(-np.minimum(within(x), 1 - 1e-16))))

    reach = 5 * math.sqrt(between)
    spread = math.sqrt(between) + scale * math.sqrt(longest)
    return Strays(np.zeros(int(widths.sum())), added(totals, all_within, reach), spread)


def _peak(blocks: int, n_cells: int) -> float:
    """Peak variance of a cumulative count, in variances of the noise."""
    return n_cells * (blocks / (n_cells + blocks) + 1 / blocks) / 4


def _best_blocks(n_cells: int) -> int:
    """The number of blocks with the least peak, which falls up to one place and then rises."""
    if n_cells < 3:  # two cells are two blocks; fewer are refused
        return 2
    place = math.floor(n_cells / (math.sqrt(n_cells) - 1))
    near = (min(max(2, blocks), n_cells) for blocks in (place, place + 1))
    return min(near, key=lambda blocks: _peak(blocks, n_cells))
