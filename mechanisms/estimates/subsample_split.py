"""Means, variances, covariances and user-defined statistics by one release and subsamples.

The mechanism is mechanisms.inference.resampling.subsample_release: a part of the budget goes to the
statistic of all records, the rest to that of many small subsamples, which give its variance and, if
the statistic is unbiased, make the estimate itself more precise. It serves any statistic with a
known sensitivity c/m. Variances and covariances are those with n - 1.

The constants of its intervals are computed at calibration and stand in the description. One without
them is of an earlier version, whose intervals are made as they were then
(mechanisms.inference.resampling.split_multipliers).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import BALLE_BARTHE_GABOARDI, BALLE_WANG, PROOF, Citation
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Target, check_frame
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import RecordsError
from mechanisms.estimates.declared_statistics import (
    DeclaredStatistic,
    check_all_count,
    columns_of,
    described,
    even_variances,
    statistic_of,
    terms_of,
)
from mechanisms.estimates.estimand import Estimand
from mechanisms.estimates.kind import ESTIMATE
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.mechanism import (
    ExpectedInterval,
    check_loss_frame,
    check_serves,
    estimand_for,
    number,
    proven,
    resampling_goal,
)
from mechanisms.estimates.released import Estimate, RawEstimates, SamplingDistribution, normal_error
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.terms import Terms
from mechanisms.inference.resampling import unknown_variance
from mechanisms.inference.resampling.resampling_calibration import Goal
from mechanisms.inference.resampling.split_multipliers import Multiplier, former_multiplier
from mechanisms.inference.resampling.subsample_designs import (
    LEAST_SUBSAMPLE,
    SplitDesign,
    default_design,
)
from mechanisms.inference.resampling.subsample_release import SubsampleSplit
from mechanisms.inference.resampling.unknown_variance import Reach, least_reach, mean_width
from mechanisms.inference.statistics import Statistic, is_unbiased
from mechanisms.sampling.randomness import Progress, Randomness
from mechanisms.sampling.statistic_noise import StatisticNoise


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
            rules = unknown_variance.from_description(description, dimension)
        return cls(split, terms, rules)

    def _constants(self) -> dict[str, str]:
        """Those of the centre and of the intervals, unless an earlier version did without."""
        named = [rule for rule in self.rules if isinstance(rule, Reach)]
        if len(named) < len(self.rules):
            return {}
        weight = repr(self.split.part_weight)
        return {"part_weight": weight, **unknown_variance.described(named)}

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
