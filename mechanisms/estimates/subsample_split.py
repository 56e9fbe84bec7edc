"""Means, variances, covariances and user-defined statistics by one release and subsamples.

The mechanism is mechanisms.inference.subsample_release: a part of the budget goes to the statistic
of all records, the rest to that of many small subsamples, which give its variance. It serves any
statistic of one number with a known sensitivity c/m. Variances and covariances are those with n -
1.
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
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Target, check_frame
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.errors import ConfigError, RecordsError
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
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.terms import Terms
from mechanisms.inference.resampling_calibration import Goal
from mechanisms.inference.subsample_release import (
    LEAST_SUBSAMPLE,
    SplitDesign,
    SubsampleSplit,
    default_design,
)
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

    def design(self, mu: Fraction, n_records: int) -> SplitDesign:
        """The design for this budget.

        Raises:
            RecordsError: A subsample would have fewer than 30 records.
        """
        found = default_design(mu, n_records)
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
        terms: What is stated of the estimate.
        estimand: To count by; None where the mechanism was rebuilt from its description.
        variance: Presumed of the statistic, for the expected width; likewise.
    """

    name: ClassVar[str] = "subsample_split"
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    knobs: ClassVar[type] = SplitKnobs
    pure: ClassVar[bool] = False

    split: SubsampleSplit
    terms: Terms
    estimand: Estimand | None = dataclasses.field(default=None, compare=False)
    variance: float = dataclasses.field(default=math.nan, compare=False)

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
        if statistic.dimension != 1:
            raise ConfigError(
                f"The mechanism '{cls.name}' takes statistics of one number.",
                where="function",
                next_step="Write 'mechanism: dp_bootstrap', or 'auto'.",
            )
        mu, n = target.largest_mu(), target.n_records
        design = knobs.design(mu, n)

        def meeting(points: Goal) -> SubsampleSplit:
            return SubsampleSplit.calibrate(
                statistic, mu, n_records=n, n_cells=target.n_cells, design=design, goal=points
            )

        split = proven(target, goal, meeting)
        terms = terms_of(estimand, n)
        split.half_width(0.0, knobs.confidence)  # an error if no interval keeps the level
        return cls(split, terms, estimand, *even_variances(estimand, statistic, n))

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
        return RawEstimates({"value": (value,), "parts": tuple(parts.tolist())}, table.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimate with its interval."""
        (value,), parts = raw.numbers["value"], np.array(raw.numbers["parts"], np.float64)
        (scale,), level = self.terms.scales, self.terms.confidence
        lower, upper = self.split.interval(value, parts, level)
        reach = float(self.split.half_width(float(np.var(parts, ddof=1)), level))
        return (
            Estimate(
                quantity=self.terms.quantities[0],
                value=scale.value(value),
                lower=scale.value(lower),
                upper=scale.value(upper),
                confidence=level,
                inference="approximate",
                standard_error=scale.factor * normal_error(-reach, reach, level),
            ),
        )

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """The normal approximation."""
        found = SamplingDistribution.normal(*self.estimates(raw))
        return () if found is None else (found,)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The width for records spread evenly."""
        (scale,) = self.terms.scales
        width = self.split.expected_width(self.variance, self.terms.confidence)
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=(scale.factor * width,),
            noise_sd=(scale.factor * self.split.full.sigma,),
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
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        statistic = DeclaredStatistic.from_description(description)
        n, size, subsamples = (
            int(str(description[key])) for key in ("n_records", "subsample_size", "subsamples")
        )
        split = SubsampleSplit(
            statistic,
            n,
            size,
            subsamples,
            StatisticNoise(statistic.constant / n, 1, number(description, "full_scale")),
            StatisticNoise(statistic.constant / size, 1, number(description, "part_scale")),
        )
        return cls(split, Terms.from_description(description))


def _serves(statistic: NamedStatistic) -> bool:
    """Shares and totals are left to mechanisms that need no subsamples for their variance."""
    return statistic.bounded is not None and not statistic.is_share and not statistic.is_total
