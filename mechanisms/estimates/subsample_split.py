"""Estimates by one release on all records and many subsamples.

The half-widths of splits released before version 2 of their intervals.

The interval was g + noise +- k sqrt(max(V, 0) + s^2 + a), truncated by the cap. Bundles of that
time name no constants; these are theirs, computed as they were: the shortest pair of which the
coverage is no more than 5 % of 1 - level below the level for every V from 0 to n D^2/4. New
releases have those of statpress.mechanisms.estimates.resampling_noise, and name them.

How a budget is split between all records and subsamples; from public quantities only.

A design is the share of mu^2 for the statistic of all records, the size m = p n of a subsample, and
their number B. ``default_design`` takes the one of a grid for which

    b V + s^2 + (1/2) sqrt(2/B) (V + t^2/a) + 2 V/m

is least: the variance of the centre; half of the standard error of the estimated variance, for
which intervals have to allow (mechanisms.estimates.resampling_noise); and by how much
small subsamples overstate the variance of what is not linear (that of a variance by 2.6 V/m, if
records are evenly spread). V is the presumed variance of the statistic. The noise t of a subsample
is 1 + 2/sqrt(B) times that of the limit of many subsamples (Dong, Roth and Su 2022, doi
10.1111/rssb.12454, Corollary 4.1), in which they spend

    mu^2 = 2 p^2 B (e^(m^2) Phi(3m/2) + 3 Phi(-m/2) - 2),

m the mu of one. All that only ranks designs: the noise itself is calibrated strictly, to a proven
loss. The constants 1/2 and 2/sqrt(B) were fitted to a search over strictly calibrated designs for
n from 500 to 3000 and mu from 0.1 to 0.7: without the last term, what is chosen is within 0.6 % of
the best on average and 8 % at worst.

One release of a statistic of sensitivity c/m, and many small subsamples for its variance.

Part of the budget goes to the statistic g of all n records, with normal noise of standard
deviation s. The rest goes to B random subsamples of m = p n records drawn without
replacement, each statistic with noise of standard deviation t, amplified by the sampling
(mechanisms.accounting.noise_losses.SubsampleLoss). Replace-one neighbours.

The subsamples' statistics have variance S^2 = (1 - p)/p V + t^2 about, V the variance of g. So V is
estimated by p/(1 - p) (S^2 - t^2), and the half-width of the interval follows from S^2 by the rule
of statpress.mechanisms.estimates.resampling_noise, which keeps the level for every V from 0 to n
D^2/4, D = c/n.

**The centre.** If the statistic is unbiased (mechanisms.estimates.statistics.is_unbiased), the mean
of the subsamples estimates g as well, with variance ((1 - p)/p V + t^2)/B. The centre is then
(1 - w) times the statistic of all records plus w times that mean, w by their variances at the
presumed V. Its variance is b V + (1 - w)^2 s^2 + w^2 t^2/B with b = 1 + w^2 (1 - p)/(p B), which
the rule is told. So what was spent on the subsamples also makes the estimate more precise. For any
other statistic w is 0.

Means, variances, covariances and user-defined statistics by one release and subsamples.

The mechanism is statpress.mechanisms.estimates.subsample_split: a part of the budget goes to the
statistic of all records, the rest to that of many small subsamples, which give its variance and, if
the statistic is unbiased, make the estimate itself more precise. It serves any statistic with a
known sensitivity c/m. Variances and covariances are those with n - 1.

The constants of its intervals are computed at calibration and stand in the description. One without
them is of an earlier version, whose intervals are made as they were then
(mechanisms.estimates.subsample_split).
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
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import SubsampleLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.estimates import resampling_noise
from statpress.mechanisms.estimates.declared_statistics import (
    DeclaredStatistic,
    check_all_count,
    columns_of,
    described,
    even_variances,
    statistic_of,
    terms_of,
)
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.estimate import (
    ESTIMATE,
    Estimate,
    ExpectedInterval,
    RawEstimates,
    SamplingDistribution,
    check_loss_frame,
    check_serves,
    estimand_for,
    normal_error,
    number,
    proven,
    resampling_goal,
)
from statpress.mechanisms.estimates.fieller import normal_quantile
from statpress.mechanisms.estimates.resampling_noise import (
    Goal,
    NoisyVariance,
    Reach,
    WidthRule,
    chi_square,
    composed,
    gaussian_goal,
    largest_mu_squared,
    least_reach,
    mean_width,
)
from statpress.mechanisms.estimates.statistics import (
    NamedStatistic,
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
    Kind,
    Target,
    check_frame,
)
from statpress.mechanisms.sampling.randomness import Progress, Randomness, StatisticNoise
from statpress.mechanisms.sampling.record_sampler import subset_counts

_NODES, _VARIANCES = 400, 120
_TOLERANCE = 0.05  # of 1 - level
_TYPICAL = (0.3, 0.1, 0.02)  # variances over the largest, at which the width counts
_MULTIPLIERS = (1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5)  # over z
_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Multiplier:
    """That rule, with its two constants k and a, and the p of the subsamples.

    Sums and products are in the order of that time, so that the figures are the same ones.
    """

    factor: float
    addend: float
    share: float

    def half_width(self, known: NoisyVariance, spread: _Doubles, level: float) -> _Doubles:
        """The half-width at these S^2."""
        share = self.share
        variance = np.maximum(share / (1 - share) * (spread - known.spread_noise), 0.0)
        found = self.factor * np.sqrt(variance + known.centre_noise + self.addend)
        return known.capped(found, level)


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

    found: list[tuple[float, float, float]] = []
    for k in (z * factor for factor in _MULTIPLIERS):
        low, high = 0.0, 4 * known.most
        if not covers(k, high):
            continue
        while high > low + 1e-4 * known.most:
            middle = (low + high) / 2
            low, high = (low, middle) if covers(k, middle) else (middle, high)
        reach = Multiplier(k, high, share).half_width(known, typical, level)
        found.append((float(np.mean(reach / oracle)), k, high))
    if not found:
        raise RecordsError("No interval keeps the level; ask for more subsamples.")
    return Multiplier(*min(found)[1:], share)


LEAST_SUBSAMPLE = 30
"""Records in a subsample, for statistics that are not linear."""

_FULL = tuple(Fraction(k, 20) for k in (3, 6, 10, 14, 17))
_COUNTS = (64, 128, 256)
_SIZES = 12
_MOST_MU = 1.2  # of a subsample; beyond it the limit is far from the strict noise
_UNCERTAINTY, _STRICT, _CURVED = 0.5, 2.0, 2.0


@dataclass(frozen=True)
class SplitDesign:
    """How the budget is split; from public quantities only.

    Attributes:
        full: Share of mu^2 for the statistic of all records.
        share: Records in a subsample over n, p.
        subsamples: Their number B.
    """

    full: Fraction
    share: Fraction
    subsamples: int

    def __post_init__(self) -> None:
        if not (0 < self.full < 1 and 0 < self.share <= Fraction(1, 2) and self.subsamples >= 2):
            raise RecordsError("A split needs shares in (0, 1) and (0, 1/2], two subsamples.")


def default_design(
    mu: Fraction, n_records: int, *, sensitivity: float, variance: float, unbiased: bool
) -> SplitDesign:
    """The design of least expected width, with subsamples of at least 30 records.

    Args:
        mu: Of everything released.
        n_records: Number of records n.
        sensitivity: Most that one record moves the statistic of all records.
        variance: Presumed of the statistic.
        unbiased: Whether the mean over subsamples is the statistic of all records.

    Raises:
        RecordsError: Fewer than 60 records.
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


def _part_mu(wanted: _Doubles) -> _Doubles:
    """The m at which e^(m^2) Phi(3m/2) + 3 Phi(-m/2) - 2 is as wanted, at most 1.2."""
    from scipy.special import ndtr

    low, high = np.zeros(len(wanted)), np.full(len(wanted), _MOST_MU)
    for _ in range(30):
        m = (low + high) / 2
        below = np.exp(m**2) * ndtr(1.5 * m) + 3 * ndtr(-m / 2) - 2 < wanted
        low, high = np.where(below, m, low), np.where(below, high, m)
    found: _Doubles = np.maximum(low, math.ldexp(1, -20))
    return found


@dataclass(frozen=True)
class SubsampleSplit:
    """The release of one statistic at fixed parameters; all of them are public.

    Attributes:
        statistic: Of sensitivity c/m.
        n_records: Number of records n.
        size: Records m in a subsample.
        subsamples: Their number B.
        full: Noise on the statistic of all records.
        part: Noise on that of a subsample.
        part_weight: Weight w of the subsamples' mean in the centre.
    """

    statistic: Statistic
    n_records: int
    size: int
    subsamples: int
    full: StatisticNoise
    part: StatisticNoise
    part_weight: float = 0.0

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
    ) -> SubsampleSplit:
        """The least noise on the subsamples proven to meet a goal together with the full one.

        Args:
            statistic: Of sensitivity c/m.
            mu: Of everything released, by which it is split.
            n_records: Number of records n.
            n_cells: Of the declared domain; as many as records if not given.
            design: How the budget is split; a good one by default.
            goal: Points (epsilon, largest delta); by default those of mu-GDP down to 1e-10.
            presumed: Variance of the statistic for which the split is made; by default a third of
                the largest.
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
        square = largest_mu_squared(
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

    def release(
        self, counts: Codes, columns: _Doubles, rng: Randomness
    ) -> tuple[_Doubles, _Doubles]:
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

    def centre(self, value: float, parts: _Doubles) -> float:
        """The estimate, from one coordinate of what was released."""
        if not self.part_weight:
            return value
        return (1 - self.part_weight) * value + self.part_weight * float(np.mean(parts))

    def interval(
        self, value: float, parts: _Doubles, level: float, rule: WidthRule
    ) -> tuple[float, float, float]:
        """The interval for what one coordinate estimates, and its half-width before clipping."""
        spread, centre = np.var(parts, ddof=1, keepdims=True), self.centre(value, parts)
        reach = float(rule.half_width(self.known, spread, level)[0])
        low, high = self.statistic.bounds
        return min(max(centre - reach, low), high), min(max(centre + reach, low), high), reach


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

    def design(
        self, mu: Fraction, n_records: int, *, statistic: Statistic, variance: float
    ) -> SplitDesign:
        """The design for this budget and presumed variance.

        Raises:
            RecordsError: A subsample would have fewer than 30 records.
        """
        found = default_design(
            mu,
            n_records,
            sensitivity=float(statistic.constant) / n_records,
            variance=variance,
            unbiased=is_unbiased(statistic),
        )
        found = SplitDesign(
            self.full_share or found.full,
            self.subsample_share or found.share,
            self.subsamples or found.subsamples,
        )
        if round(found.share * n_records) < LEAST_SUBSAMPLE:
            raise RecordsError(
                f"A subsample would have fewer than {LEAST_SUBSAMPLE} records.",
                where="subsample_share",
                next_step="Ask for a larger share, or leave the key out.",
            )
        return found


@dataclass(frozen=True)
class SplitEstimate:
    """The release at fixed parameters; all of them are public.

    Attributes:
        split: The noise on the statistic of all records and of subsamples.
        terms: What is stated of the estimates.
        rules: From the spread of subsamples to the half-width of each interval.
        estimand: To count by; None where the mechanism was rebuilt from its description.
        variances: Presumed of the statistic, for expected widths; likewise empty.
    """

    name: ClassVar[str] = "subsample_split"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_BARTHE_GABOARDI.at("Theorem 10"),
        BALLE_WANG.at("Theorem 8"),
        PROOF.at("Theorem 5.3"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    knobs: ClassVar[type] = SplitKnobs
    pure: ClassVar[bool] = False

    split: SubsampleSplit
    terms: Terms
    rules: tuple[Reach | Multiplier, ...]
    estimand: Estimand | None = dataclasses.field(default=None, compare=False)
    variances: tuple[float, ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def calibrate(cls, knobs: SplitKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: The statistic is not one of these, or the budget is one of rho.
            InfeasibleBudgetError: The budget has no delta.
        """
        check_serves(knobs, cls.name, _serves, functions=True)
        goal = resampling_goal(target, cls.name)
        estimand = estimand_for(knobs, target, cls.name)
        statistic = statistic_of(estimand)
        check_all_count(estimand, cls.name)
        mu, n = target.largest_mu(), target.n_records
        variances = even_variances(estimand, statistic, n)
        presumed = max(variances)
        design = knobs.design(mu, n, statistic=statistic, variance=presumed)

        def meeting(points: Goal) -> SubsampleSplit:
            return SubsampleSplit.calibrate(
                statistic,
                mu,
                n_records=n,
                n_cells=target.n_cells,
                design=design,
                goal=points,
                presumed=presumed,
            )

        split = proven(target, goal, meeting)
        terms = terms_of(estimand, n)
        rules = tuple(least_reach(split.known, each, knobs.confidence) for each in variances)
        return cls(split, terms, rules, estimand, variances)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of everything released; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        check_loss_frame(n_records, unit_records, stated=self.split.n_records)
        return self.split.loss()

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """The statistic of all records and of the subsamples, with noise."""
        assert self.estimand is not None
        columns = columns_of(self.estimand, table.domain, table.cells)
        value, parts = self.split.release(table.counts, columns, rng)
        names = self._parts()
        numbers = {"value": tuple(value.tolist())}
        numbers |= {name: tuple(parts[:, i].tolist()) for i, name in enumerate(names)}
        return RawEstimates(numbers, table.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates with their intervals."""
        return tuple(self._estimate(raw, i) for i in range(len(self.terms.quantities)))

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """The normal approximations."""
        found = (SamplingDistribution.normal(each) for each in self.estimates(raw))
        return tuple(each for each in found if each is not None)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The widths for records spread evenly."""
        known, level, scales = self.split.known, self.terms.confidence, self.terms.scales
        variances = self.variances or (math.nan,) * len(scales)
        widths = (
            scale.factor * float(mean_width(rule, known, np.array(variance), level))
            for scale, rule, variance in zip(scales, self.rules, variances, strict=True)
        )
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=tuple(widths),
            noise_sd=tuple(scale.factor * math.sqrt(known.centre_noise) for scale in scales),
        )

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the estimate counts by."""
        return {
            "mechanism": self.name,
            "n_records": self.split.n_records,
            "subsample_size": self.split.size,
            "subsamples": self.split.subsamples,
            "full_scale": str(self.split.full.scale),
            "part_scale": str(self.split.part.scale),
            **described(self.split.statistic),
            **self.terms.describe(),
            **self._constants(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        statistic = DeclaredStatistic.from_description(description)
        n, size, subsamples = (
            int(str(description[key])) for key in ("n_records", "subsample_size", "subsamples")
        )
        dimension = statistic.dimension
        earlier = not any(key.startswith(("part_weight", "reach_")) for key in description)
        split = SubsampleSplit(
            statistic,
            n,
            size,
            subsamples,
            StatisticNoise(statistic.constant / n, dimension, number(description, "full_scale")),
            StatisticNoise(statistic.constant / size, dimension, number(description, "part_scale")),
            0.0 if earlier else float(str(description["part_weight"])),
        )
        terms = Terms.from_description(description)
        rules: tuple[Reach | Multiplier, ...]
        if earlier:
            rules = (former_multiplier(split.known, size / n, terms.confidence),)
        else:
            rules = resampling_noise.from_description(description, dimension)
        return cls(split, terms, rules)

    def _constants(self) -> dict[str, str]:
        """Those of the centre and of the intervals, unless an earlier version did without."""
        named = [rule for rule in self.rules if isinstance(rule, Reach)]
        if len(named) < len(self.rules):
            return {}
        weight = repr(self.split.part_weight)
        return {"part_weight": weight, **resampling_noise.described(named)}

    def _parts(self) -> tuple[str, ...]:
        """What the subsamples' figures are called, one name a coordinate."""
        count = len(self.terms.quantities)
        return ("parts",) if count == 1 else tuple(f"parts_{i}" for i in range(1, count + 1))

    def _estimate(self, raw: RawEstimates, i: int) -> Estimate:
        parts = np.array(raw.numbers[self._parts()[i]], np.float64)
        value, scale, level = raw.numbers["value"][i], self.terms.scales[i], self.terms.confidence
        lower, upper, reach = self.split.interval(value, parts, level, self.rules[i])
        return Estimate(
            quantity=self.terms.quantities[i],
            value=scale.value(self.split.centre(value, parts)),
            lower=scale.value(lower),
            upper=scale.value(upper),
            confidence=level,
            inference="approximate",
            standard_error=scale.factor * normal_error(-reach, reach, level),
        )


def _serves(statistic: NamedStatistic) -> bool:
    """Shares and totals are left to mechanisms that need no subsamples for their variance."""
    return statistic.bounded is not None and not statistic.is_share and not statistic.is_total
