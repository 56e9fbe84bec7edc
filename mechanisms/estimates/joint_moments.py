"""Means, proportions, sums and counts by the joint release of two moments.

The mechanism is mechanisms.inference.moments.one_column: the sum and the sum of squares about the
middle of the declared range, jointly mu-GDP, and the interval of Wilson's form. A sum or a count is
n times a mean, n being public. Of a proportion the squares are known, 1/4 each, so their noisy sum
is not used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import BALLE_WANG, DONG_ROTH_SU, PROOF, Citation
from mechanisms.base.kind import Kind
from mechanisms.base.mechanism import Target, check_frame
from mechanisms.domain.columns import Codes
from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.estimates.estimand import Argument, Estimand
from mechanisms.estimates.kind import ESTIMATE
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.mechanism import (
    REFERENCE_VARIANCE,
    ExpectedInterval,
    check_loss_frame,
    check_serves,
    estimand_for,
    guarantee_described,
    is_guaranteed,
)
from mechanisms.estimates.released import (
    Estimate,
    Inference,
    RawEstimates,
    SamplingDistribution,
    normal_error,
)
from mechanisms.estimates.terms import Terms
from mechanisms.inference.moments.one_column import JointMoments, NoisyMoments
from mechanisms.inference.moments.rare_values import inference_words, worst_of_mean, worst_of_share
from mechanisms.sampling.randomness import Progress, Randomness

_QUARTER = 1 << 40  # of a square in grid steps 2**-42


@dataclass(frozen=True)
class MeanEstimate:
    """The release at fixed parameters; all of them are public.

    Attributes:
        moments: The noise on both sums, of columns in [0, 1].
        terms: What is stated of the estimate.
        share: Whether every record counts as 0 or 1.
        guaranteed: Whether the interval covers for every population.
        estimand: To count by; None where the mechanism was rebuilt from its description.
        n_records: Of what it was calibrated for; likewise.
    """

    name: ClassVar[str] = "joint_moments"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_WANG.at("Theorem 8"),
        DONG_ROTH_SU,
        PROOF.at("Lemma 5.1, Theorem 5.2"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    knobs: ClassVar[type] = EstimandKnobs
    pure: ClassVar[bool] = False

    moments: JointMoments
    terms: Terms
    share: bool
    guaranteed: bool = False
    estimand: Estimand | None = dataclasses.field(default=None, compare=False)
    n_records: int | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def calibrate(cls, knobs: EstimandKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: The statistic is not one of these.
            InfeasibleBudgetError: The budget has no delta.
        """
        check_serves(
            knobs,
            cls.name,
            lambda statistic: statistic.is_mean,
            guarantees=lambda statistic: statistic.is_mean,
        )
        estimand = estimand_for(knobs, target, cls.name)
        if estimand.kept and not estimand.statistic.is_total:
            raise ConfigError(
                f"The mechanism '{cls.name}' takes means over all records, and here some do not "
                "count.",
                where="where",
                next_step="Write 'mechanism: auto', or leave the key out.",
            )
        argument = column_with_zero(estimand)
        scales = estimand.statistic.own_units((argument,), target.n_records)
        terms = Terms((estimand.quantity(),), scales, knobs.confidence)
        moments = JointMoments.calibrate(target.largest_mu(), lower=0.0, upper=1.0)
        share = estimand.statistic.is_share
        return cls(moments, terms, share, knobs.guaranteed, estimand, target.n_records)

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of both sums; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        check_loss_frame(n_records, unit_records)
        return self.moments.loss()

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Add the noise to the two sums."""
        assert self.estimand is not None
        values = values_with_zero(self.estimand, table.domain, table.cells)
        found = self.moments.release(values, table.counts, rng)
        numbers = {"sum": (found.total,), "sum_of_squares": (found.squares,)}
        return RawEstimates(numbers, found.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimate with its interval."""
        n, (total,), (squares,) = raw.n_records, raw.numbers["sum"], raw.numbers["sum_of_squares"]
        known = n * _QUARTER if self.share else int(squares)
        found = NoisyMoments(self.moments, n, int(total), known)
        (scale,), confidence = self.terms.scales, self.terms.confidence
        ends = found.interval(confidence, squares_known=self.share)
        error = normal_error(*ends, confidence)
        if self.guaranteed:
            ends = found.guaranteed_interval(confidence, squares_known=self.share)
        lower, upper = map(scale.value, ends)
        return (
            Estimate(
                quantity=self.terms.quantities[0],
                value=scale.value(found.mean),
                lower=lower,
                upper=upper,
                confidence=confidence,
                standard_error=scale.factor * error,
                inference=self.inference,
            ),
        )

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """The normal approximation."""
        found = SamplingDistribution.normal(*self.estimates(raw))
        return () if found is None else (found,)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The width 2 z sqrt(V/n + s^2) at the reference variance V."""
        (scale,) = self.terms.scales
        width = self._expected_width(n_records, guaranteed=self.guaranteed)
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=(scale.factor * width,),
            noise_sd=(scale.factor * self.moments.sigma / n_records,),
        )

    @property
    def guarantee_cost(self) -> float | None:
        """Expected width of a guaranteed interval over that of one by approximation."""
        if self.n_records is None:
            return None
        certain, normal = (
            self._expected_width(self.n_records, guaranteed=each) for each in (True, False)
        )
        return certain / normal

    def _expected_width(self, n_records: int, *, guaranteed: bool) -> float:
        variance = 0.25 if self.share else REFERENCE_VARIANCE
        if not guaranteed:
            return self.moments.expected_width(self.terms.confidence, n_records, variance)
        squares = int(n_records * variance * 4 * _QUARTER)
        middle = NoisyMoments(self.moments, n_records, 0, squares)
        lower, upper = middle.guaranteed_interval(self.terms.confidence, squares_known=self.share)
        return upper - lower

    @property
    def worst_coverage(self) -> float:
        """Of the interval, for populations whose rare values decide."""
        level = self.terms.confidence
        if self.share:
            return worst_of_share(self.moments.sigma, level)
        return worst_of_mean(self.moments.sigma, self.moments.square_weight, level)

    @property
    def inference(self) -> Inference:
        """How the interval's coverage is known."""
        if self.guaranteed:
            return "guaranteed"
        return inference_words(self.worst_coverage, self.terms.confidence)

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the estimate counts by."""
        return {
            "mechanism": self.name,
            "scale": str(self.moments.scale),
            "square_scale": str(self.moments.square_scale),
            "is_share": int(self.share),
            **guarantee_described(self.guaranteed),
            **self.terms.describe(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        scales = (Fraction(str(description[name])) for name in ("scale", "square_scale"))
        moments = JointMoments(0.0, 1.0, *scales)
        return cls(
            moments,
            Terms.from_description(description),
            description["is_share"] == 1,
            is_guaranteed(description),
        )


def column_with_zero(estimand: Estimand) -> Argument:
    """The column; its bounds hold 0 if records that do not count are 0 in it."""
    (argument,) = estimand.arguments
    if not estimand.kept:
        return argument
    return dataclasses.replace(
        argument, lower=min(argument.lower, 0.0), upper=max(argument.upper, 0.0)
    )


def values_with_zero(estimand: Estimand, domain: Domain, cells: Codes) -> NDArray[np.float64]:
    """float64[k] in [0, 1] of cells int64[k]; 0 in its own units for what does not count."""
    argument = column_with_zero(estimand)
    values = argument.scaled(domain, cells)
    if not estimand.kept:
        return values
    zero = -argument.lower / (argument.upper - argument.lower)
    return np.asarray(np.where(estimand.keeps(domain, cells) > 0, values, zero))
