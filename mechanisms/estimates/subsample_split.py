"""A statistic of all records, and of many small subsamples for its variance.

Part of the budget goes to the statistic g of all n records, of sensitivity c/n, with normal noise
of standard deviation s. The rest goes to B random subsamples of m = p n records drawn without
replacement, each statistic with noise of standard deviation t, amplified by the sampling
(mechanisms.accounting.noise_losses.SubsampleLoss). Replace-one neighbours. Variances and
covariances are those with n - 1.

**Interval.** The subsamples' statistics have variance S^2 = (1 - p)/p V + t^2 about, V the variance
of g. So V is estimated by p/(1 - p) (S^2 - t^2), and the half-width of the interval follows from
S^2 by the rule of statpress.mechanisms.estimates.resampling_noise, which keeps the level for every
V from 0 to n D^2/4, D = c/n. Its constants are computed at calibration and stand in the
description.

**The centre.** If the statistic is unbiased (mechanisms.estimates.statistics.is_unbiased), the mean
of the subsamples estimates g as well, with variance ((1 - p)/p V + t^2)/B. The centre is then
(1 - w) times the statistic of all records plus w times that mean, w by their variances at the
presumed V. Its variance is b V + (1 - w)^2 s^2 + w^2 t^2/B with b = 1 + w^2 (1 - p)/(p B), which
the rule is told. So what was spent on the subsamples also makes the estimate more precise. For any
other statistic w is 0.

**The split of the budget** is from public quantities only. A design is the share of mu^2 for the
statistic of all records, the size m of a subsample, and their number B. ``default_design`` takes
the one of a grid for which

    b V + s^2 + (1/2) sqrt(2/B) (V + t^2/a) + 2 V/m

is least: the variance of the centre; half of the standard error of the estimated variance, for
which intervals have to allow; and by how much small subsamples overstate the variance of what is
not linear (that of a variance by 2.6 V/m, if records are evenly spread). V is the presumed variance
of the statistic. The noise t of a subsample is 1 + 2/sqrt(B) times that of the limit of many
subsamples (Dong, Roth and Su 2022, doi 10.1111/rssb.12454, Corollary 4.1), in which they spend

    mu^2 = 2 p^2 B (e^(m^2) Phi(3m/2) + 3 Phi(-m/2) - 2),

m the mu of one. All that only ranks designs: the noise itself is calibrated strictly, to a proven
loss. The constants 1/2 and 2/sqrt(B) were fitted to a search over strictly calibrated designs for
n from 500 to 3000 and mu from 0.1 to 0.7: without the last term, what is chosen is within 0.6 % of
the best on average and 8 % at worst.

**Intervals of version 1** were g + noise +- k sqrt(max(V, 0) + s^2 + a), truncated by the cap. The
descriptions of that time name no constants; ``former_multiplier`` computes them as they were: the
shortest pair of which the coverage is no more than 5 % of 1 - level below the level for every V
from 0 to n D^2/4.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import SubsampleLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.estimate import RawEstimates, number
from statpress.mechanisms.estimates.fieller import Floats, normal_quantile
from statpress.mechanisms.estimates.resampled import (
    DeclaredStatistic,
    Interval,
    ResampledEstimate,
    proven,
)
from statpress.mechanisms.estimates.resampling_noise import (
    Goal,
    NoiseSearch,
    NoisyVariance,
    WidthRule,
    chi_square,
    composed,
    gaussian_goal,
    largest_mu_squared,
    widths_from_description,
)
from statpress.mechanisms.estimates.statistics import (
    NamedStatistic,
    Scale,
    Statistic,
    Terms,
    evaluated,
    is_unbiased,
)
from statpress.mechanisms.mechanism import (
    BALLE_BARTHE_GABOARDI,
    BALLE_WANG,
    PROOF,
    Citation,
    Target,
)
from statpress.mechanisms.sampling.randomness import Randomness, StatisticNoise

LEAST_SUBSAMPLE = 30
"""Records in a subsample, for statistics that are not linear."""

_FULL = tuple(Fraction(k, 20) for k in (3, 6, 10, 14, 17))
_COUNTS = (64, 128, 256)
_SIZES = 12
_MOST_MU = 1.2  # of a subsample; beyond it the limit is far from the strict noise
_UNCERTAINTY, _STRICT, _CURVED = 0.5, 2.0, 2.0


@dataclass(frozen=True)
class SplitDesign:
    """How the budget is split; from public quantities only."""

    full: Fraction  # share of mu^2 for the statistic of all records
    share: Fraction  # records in a subsample over n, p
    subsamples: int  # their number B

    def __post_init__(self) -> None:
        if not (0 < self.full < 1 and 0 < self.share <= Fraction(1, 2) and self.subsamples >= 2):
            raise RecordsError("A split needs shares in (0, 1) and (0, 1/2], two subsamples.")


def default_design(
    mu: Fraction, n_records: int, *, sensitivity: float, variance: float, unbiased: bool
) -> SplitDesign:
    """The design of least expected width, with subsamples of at least 30 records.

    ``mu`` is of everything released, ``sensitivity`` and the presumed ``variance`` are of the
    statistic of all records.
    """
    if n_records < 2 * LEAST_SUBSAMPLE:
        raise RecordsError("A split needs at least 60 records.")
    sizes = np.unique(np.rint(np.geomspace(LEAST_SUBSAMPLE, n_records // 2, _SIZES))).astype(int)
    grid = list(itertools.product(_FULL, sizes.tolist(), _COUNTS))
    full, size, count = (np.array(column, np.float64) for column in zip(*grid, strict=True))
    p = size / n_records
    part_mu = _part_mu((1 - full) * float(mu) ** 2 / (2 * p**2 * count))
    gain = (1 - p) / p
    part = (sensitivity / p / part_mu * (1 + _STRICT / np.sqrt(count))) ** 2
    noise = (sensitivity / float(mu)) ** 2 / full
    of_mean = (gain * variance + part) / count
    weight = noise / (noise + of_mean) if unbiased else np.zeros(len(grid))
    centre = variance + (1 - weight) ** 2 * noise + weight**2 * of_mean
    price = centre + _UNCERTAINTY * np.sqrt(2 / count) * (variance + part / gain)
    price += _CURVED * variance / size
    best = grid[int(np.argmin(price))]
    return SplitDesign(best[0], Fraction(best[1], n_records), best[2])


def _part_mu(wanted: Floats) -> Floats:
    """The m at which e^(m^2) Phi(3m/2) + 3 Phi(-m/2) - 2 is as wanted, at most 1.2."""
    from scipy.special import ndtr

    low, high = np.zeros(len(wanted)), np.full(len(wanted), _MOST_MU)
    for _ in range(30):
        m = (low + high) / 2
        below = np.exp(m**2) * ndtr(1.5 * m) + 3 * ndtr(-m / 2) - 2 < wanted
        low, high = np.where(below, m, low), np.where(below, high, m)
    return np.asarray(np.maximum(low, math.ldexp(1, -20)))


@dataclass(frozen=True)
class SubsampleSplit:
    """The release of one statistic at fixed parameters; all of them are public."""

    statistic: Statistic  # of sensitivity c/m
    n_records: int  # number of records n
    size: int  # records m in a subsample
    subsamples: int  # their number B
    full: StatisticNoise  # noise on the statistic of all records
    part: StatisticNoise  # noise on that of a subsample
    part_weight: float = 0.0  # weight w of the subsamples' mean in the centre

    @classmethod
    def calibrate(
        cls,
        statistic: Statistic,
        mu: Fraction,
        *,
        n_records: int,
        n_cells: int | None = None,
        design: SplitDesign | None = None,
        goal: Goal | None = None,
        presumed: float | None = None,
        search: NoiseSearch = largest_mu_squared,
    ) -> SubsampleSplit:
        """The least noise on the subsamples proven to meet a goal together with the full one.

        Args:
            statistic: Of sensitivity c/m.
            mu: Of everything released, by which it is split.
            n_records: Number of records n.
            n_cells: Of the declared domain; as many as records if not given.
            design: How the budget is split; a good one by default.
            goal: Points (epsilon, largest delta); by default those of mu-GDP down to 1e-10.
            presumed: Variance of the statistic; by default a third of the largest.
            search: For the noise on the subsamples.
        """
        StatisticNoise.check_accuracy(n_records=n_records, n_cells=n_cells or n_records)
        move, dimension = Fraction(statistic.constant) / n_records, statistic.dimension
        variance = n_records * float(move) ** 2 / 12 if presumed is None else presumed
        unbiased = is_unbiased(statistic)
        design = design or default_design(
            mu, n_records, sensitivity=float(move), variance=variance, unbiased=unbiased
        )
        size = max(2, round(design.share * n_records))
        full = StatisticNoise.calibrate(design.full * mu**2, sensitivity=move, dimension=dimension)
        full.check_bounds(*statistic.bounds)  # its steps are smaller than those of the parts
        square = search(
            SubsampleLoss(Fraction(1), Fraction(size, n_records)),
            design.subsamples,
            goal or gaussian_goal(mu),
            (GaussianLoss(Fraction(0), full.mu_squared),),
        )
        part = StatisticNoise.calibrate(
            square, sensitivity=Fraction(statistic.constant) / size, dimension=dimension
        )
        made = cls(statistic, n_records, size, design.subsamples, full, part)
        if not unbiased:
            return made
        known, noise = made.known, full.sigma**2
        mean = (known.spread_gain * variance + known.spread_noise) / design.subsamples
        return dataclasses.replace(made, part_weight=noise / (noise + mean))

    def loss(self) -> PrivacyLoss:
        """The privacy loss of everything released; takes no data."""
        share = Fraction(self.size, self.n_records)
        return composed(
            SubsampleLoss(self.part.mu_squared, share),
            self.subsamples,
            (GaussianLoss(Fraction(0), self.full.mu_squared),),
        )

    def release(self, counts: Codes, columns: Floats, rng: Randomness) -> tuple[Floats, Floats]:
        """The noisy statistic float64[d] of all records, and those float64[B, d] of subsamples.

        Args:
            counts: int64[k], private counts of the occupied cells, adding up to n.
            columns: float64[k, c], values of the statistic's columns in [0, 1].
            rng: Source of bits; charge the ledger before building it.
        """
        weights = subset_counts(counts, self.size, self.subsamples, rng)
        whole = self.full.release(evaluated(self.statistic, counts[None, :], columns), rng)
        parts = self.part.release(evaluated(self.statistic, weights, columns), rng)
        return whole[0], parts

    @property
    def known(self) -> NoisyVariance:
        """What the half-width of an interval follows from."""
        share, w, count = self.size / self.n_records, self.part_weight, self.subsamples
        gain, noise = (1 - share) / share, self.part.sigma**2
        return NoisyVariance(
            spread_gain=gain,
            spread_noise=noise,
            freedom=count - 1,
            centre_gain=1 + w**2 * gain / count,
            centre_noise=(1 - w) ** 2 * self.full.sigma**2 + w**2 * noise / count,
            most=self.n_records * float(self.full.sensitivity) ** 2 / 4,
        )

    def centre(self, value: float, parts: Floats) -> float:
        """The estimate, from one coordinate of what was released."""
        if not self.part_weight:
            return value
        return (1 - self.part_weight) * value + self.part_weight * float(np.mean(parts))

    def interval(self, value: float, parts: Floats, level: float, rule: WidthRule) -> Interval:
        """The interval for what one coordinate estimates, within the statistic's bounds."""
        spread, centre = np.var(parts, ddof=1, keepdims=True), self.centre(value, parts)
        reach = float(rule.half_width(self.known, spread, level)[0])
        low, high = self.statistic.bounds
        lower, upper = (min(max(centre + sign * reach, low), high) for sign in (-1, 1))
        return Interval(centre, lower, upper, reach / normal_quantile(level))


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


@dataclass(frozen=True, kw_only=True)
class SplitKnobs(EstimandKnobs):
    """What a config may say about this mechanism; what is left out is chosen by the budget.

    Attributes:
        full_share: Share of the squared budget for the statistic of all records.
        subsample_share: Records in a subsample, over all records.
        subsamples: Their number.
    """

    full_share: Fraction | None = None
    subsample_share: Fraction | None = None
    subsamples: int | None = None


@dataclass(frozen=True, kw_only=True)
class SplitEstimate(ResampledEstimate):
    """The release at fixed parameters; all of them are public.

    Attributes:
        resamples: The noise on the statistic of all records and of subsamples.
    """

    name: ClassVar[str] = "subsample_split"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_BARTHE_GABOARDI.at("Theorem 10"),
        BALLE_WANG.at("Theorem 8"),
        PROOF.at("Theorem 5.3"),
    )
    knobs: ClassVar[type] = SplitKnobs

    resamples: SubsampleSplit

    @staticmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Shares and totals are left to mechanisms that need no subsamples for their variance."""
        bounded = statistic.bounded is not None
        return bounded and not statistic.is_share and not statistic.is_total

    @classmethod
    def resampling(
        cls,
        knobs: SplitKnobs,
        target: Target,
        statistic: Statistic,
        goal: Goal,
        presumed: float,
        search: NoiseSearch,
    ) -> SubsampleSplit:
        """The least noise that meets the goal, by the design asked for or a good one."""
        mu, n = target.largest_mu(), target.n_records
        design = _design(knobs, mu, n, statistic, presumed)
        return proven(
            target,
            goal,
            search,
            lambda points: SubsampleSplit.calibrate(
                statistic,
                mu,
                n_records=n,
                n_cells=target.n_cells,
                design=design,
                goal=points,
                presumed=presumed,
                search=search,
            ),
        )

    def draw(self, counts: Codes, columns: Floats, rng: Randomness) -> dict[str, Floats]:
        """The statistic of all records and of the subsamples, with noise."""
        value, parts = self.resamples.release(counts, columns, rng)
        return {"value": value, **dict(zip(self._parts(), parts.T, strict=True))}

    def _parts(self) -> tuple[str, ...]:
        """What the subsamples' figures are called, one name a coordinate."""
        count = len(self.terms.quantities)
        return ("parts",) if count == 1 else tuple(f"parts_{i}" for i in range(1, count + 1))

    def interval(self, raw: RawEstimates, i: int) -> Interval:
        """The interval of one number."""
        parts = np.array(raw.numbers[self._parts()[i]], np.float64)
        value, level = raw.numbers["value"][i], self.terms.confidence
        return self.resamples.interval(value, parts, level, self.rules[i])

    def noise_sd(self, scale: Scale) -> float:
        """Standard deviation of the noise on an estimate, in its own units."""
        return scale.factor * math.sqrt(self.resamples.known.centre_noise)

    def own_parameters(self) -> dict[str, str | int]:
        """The subsamples, and the noise on both parts."""
        return {
            "n_records": self.resamples.n_records,
            "subsample_size": self.resamples.size,
            "subsamples": self.resamples.subsamples,
            "full_scale": str(self.resamples.full.scale),
            "part_scale": str(self.resamples.part.scale),
        }

    def constants(self) -> dict[str, str]:
        """The constants of the centre and of the intervals; version 1 did without."""
        if any(isinstance(rule, Multiplier) for rule in self.rules):
            return {}
        return {"part_weight": repr(self.resamples.part_weight), **super().constants()}

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        statistic = DeclaredStatistic.from_description(description)
        n, size, subsamples = (
            int(str(description[key])) for key in ("n_records", "subsample_size", "subsamples")
        )
        dimension = statistic.dimension
        first_version = not any(key.startswith(("part_weight", "reach_")) for key in description)
        split = SubsampleSplit(
            statistic,
            n,
            size,
            subsamples,
            StatisticNoise(statistic.constant / n, dimension, number(description, "full_scale")),
            StatisticNoise(statistic.constant / size, dimension, number(description, "part_scale")),
            0.0 if first_version else float(str(description["part_weight"])),
        )
        terms = Terms.from_description(description)
        rules: tuple[WidthRule, ...]
        if first_version:
            rules = (former_multiplier(split.known, size / n, terms.confidence),)
        else:
            rules = widths_from_description(description, dimension)
        return cls(terms=terms, resamples=split, rules=rules)


def _design(
    knobs: SplitKnobs, mu: Fraction, n_records: int, statistic: Statistic, variance: float
) -> SplitDesign:
    """The design that was asked for, its open parts by this budget and presumed variance."""
    default = default_design(
        mu,
        n_records,
        sensitivity=float(statistic.constant) / n_records,
        variance=variance,
        unbiased=is_unbiased(statistic),
    )
    design = SplitDesign(
        knobs.full_share or default.full,
        knobs.subsample_share or default.share,
        knobs.subsamples or default.subsamples,
    )
    if round(design.share * n_records) < LEAST_SUBSAMPLE:
        raise RecordsError(
            f"A subsample would have fewer than {LEAST_SUBSAMPLE} records.",
            where="subsample_share",
            next_step="Ask for a larger share, or leave the key out.",
        )
    return design


_NODES, _VARIANCES = 400, 120
_TOLERANCE = 0.05  # of 1 - level
_TYPICAL = (0.3, 0.1, 0.02)  # variances over the largest, at which the width counts
_MULTIPLIERS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5)  # over z


@dataclass(frozen=True)
class Multiplier:
    """The rule of version 1, with its two constants k and a, and the p of the subsamples.

    Sums and products are in the order of that time, so that the figures are the same ones.
    """

    factor: float
    addend: float
    share: float

    def half_width(self, known: NoisyVariance, spread: Floats, level: float) -> Floats:
        """The half-width at these S^2."""
        share = self.share
        variance = np.maximum(share / (1 - share) * (spread - known.spread_noise), 0.0)
        half_width = self.factor * np.sqrt(variance + known.centre_noise + self.addend)
        return known.capped(half_width, level)


@functools.lru_cache(maxsize=256)
def former_multiplier(known: NoisyVariance, share: float, level: float) -> Multiplier:
    """The k and a of the shortest interval that keeps the level for every variance."""
    from scipy.special import erf

    z, least = normal_quantile(level), level - _TOLERANCE * (1 - level)
    chi = chi_square(known.freedom, _NODES)
    variances = np.concatenate([[0.0], known.most * np.geomspace(1e-6, 1.0, _VARIANCES - 1)])
    spread = (known.spread_gain * variances + known.spread_noise)[:, None] * chi
    deviation = np.sqrt(2 * (variances + known.centre_noise))[:, None]
    oracle = np.sqrt(known.most * np.array(_TYPICAL) + known.centre_noise)[:, None]
    gains = known.spread_gain * known.most * np.array(_TYPICAL)
    typical = (gains + known.spread_noise)[:, None] * chi

    def covers(k: float, a: float) -> bool:
        reach = Multiplier(k, a, share).half_width(known, spread, level)
        return bool(np.min(np.mean(erf(reach / deviation), axis=1)) >= least)

    pairs: list[tuple[float, float, float]] = []
    for k in (z * factor for factor in _MULTIPLIERS):
        low, high = 0.0, 4 * known.most
        if not covers(k, high):
            continue
        while high > low + 1e-4 * known.most:
            middle = (low + high) / 2
            low, high = (low, middle) if covers(k, middle) else (middle, high)
        reach = Multiplier(k, high, share).half_width(known, typical, level)
        pairs.append((float(np.mean(reach / oracle)), k, high))
    if not pairs:
        raise RecordsError("No interval keeps the level; ask for more subsamples.")
    return Multiplier(*min(pairs)[1:], share)
