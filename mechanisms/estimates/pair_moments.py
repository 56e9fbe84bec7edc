"""Variance, covariance, correlation, ratio, regression, difference: from joint moments.

The mechanism is mechanisms.inference.moments.moment_pairs; each statistic is a function of the
means of two columns in [0, 1] and of their squares and product (its MomentFormula), which also says
which moments are released. Variances and covariances are those with n - 1. A mean of only some of
the records is a ratio too: of the sum of their values to their number, kept within the bounds.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
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
from mechanisms.errors import ConfigError, RecordsError
from mechanisms.estimates.estimand import Estimand
from mechanisms.estimates.kind import ESTIMATE
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.mechanism import (
    ExpectedInterval,
    check_loss_frame,
    check_serves,
    estimand_for,
    finite,
    guarantee_described,
    is_guaranteed,
    number,
)
from mechanisms.estimates.released import Estimate, Inference, RawEstimates, SamplingDistribution
from mechanisms.estimates.statistics.moment_formula import MomentFormula
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.statistics.registry import named
from mechanisms.estimates.terms import Terms
from mechanisms.inference.fieller import INTERVAL
from mechanisms.inference.moments.moment_designs import DESIGNS, FIRST_ONE, FIRST_PAIR, MomentDesign
from mechanisms.inference.moments.moment_functions import Derived
from mechanisms.inference.moments.moment_pairs import NoisyPair, PairMoments
from mechanisms.inference.moments.rare_values import inference_words, worst_of_quotient
from mechanisms.sampling.randomness import Progress, Randomness

_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class PairEstimate:
    """The release at fixed parameters; all of them are public.

    Attributes:
        moments: The noise on the sums, of columns in [0, 1].
        statistic: Its name.
        origin: For a regression: the predictor 0 is at x = -origin.
        terms: What is stated of the estimates.
        guaranteed: Whether the interval of a variance covers for every population.
        estimand: To count by; None where the mechanism was rebuilt from its description.
        n_records: Of what it was calibrated for; likewise.
    """

    name: ClassVar[str] = "pair_moments"
    citations: ClassVar[tuple[Citation, ...]] = (
        BALLE_WANG.at("Theorem 8"),
        DONG_ROTH_SU,
        PROOF.at("section 5, Lemma 5.1"),
    )
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    knobs: ClassVar[type] = EstimandKnobs
    pure: ClassVar[bool] = False

    moments: PairMoments
    statistic: str
    origin: float
    terms: Terms
    guaranteed: bool = False
    estimand: Estimand | None = dataclasses.field(default=None, compare=False)
    n_records: int | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def calibrate(cls, knobs: EstimandKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: The statistic is not one of these, a ratio's column can be negative, or
                there is one record.
            InfeasibleBudgetError: The budget has no delta.
        """
        check_serves(
            knobs,
            cls.name,
            lambda statistic: statistic.moments is not None,
            guarantees=lambda each: each.moments is not None and each.moments.is_variance,
        )
        estimand = estimand_for(knobs, target, cls.name)
        statistic, formula = estimand.statistic, _formula(estimand.statistic)
        if formula.of_some and not estimand.kept:
            raise ConfigError(
                f"The mechanism '{cls.name}' takes means of only some records, and here all count.",
                where="statistic",
                next_step="Write 'mechanism: auto', or leave the key out.",
            )
        if target.n_records < 2:
            raise RecordsError("These statistics need two records.")
        if formula.amounts:
            _check_amounts(estimand)
        moments = PairMoments.calibrate(
            target.largest_mu(),
            n_records=target.n_records,
            n_cells=target.n_cells,
            design=formula.design,
        )
        terms = Terms(
            statistic.quantities(estimand.quantity()),
            statistic.own_units(estimand.arguments, target.n_records),
            knobs.confidence,
        )
        origin = formula.origin(estimand.arguments)
        return cls(
            moments, statistic.name, origin, terms, knobs.guaranteed, estimand, target.n_records
        )

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of all sums; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        check_loss_frame(n_records, unit_records)
        return self.moments.loss()

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Add the noise to the sums."""
        assert self.estimand is not None
        columns = moment_columns(self.estimand, table.domain, table.cells)
        found = self.moments.release(table.counts, columns, rng)
        return RawEstimates({"sums": tuple(found.sums.tolist())}, found.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates with their intervals."""
        pair = NoisyPair(self.moments, raw.n_records, np.array(raw.numbers["sums"]))
        found, level = [], self.terms.confidence
        derived = self._derived(raw.n_records)
        for quantity, scale, wanted in zip(
            self.terms.quantities, self.terms.scales, derived, strict=True
        ):
            found_set = pair.interval(wanted, level)
            bounded = found_set.shape == INTERVAL
            gap, ends = found_set.gap, (found_set.lower, found_set.upper)
            if self.guaranteed:
                ends = pair.variance_limits(level)
            found.append(
                Estimate(
                    quantity=quantity,
                    value=scale.value(pair.estimate(wanted)),
                    lower=scale.value(ends[0]),
                    upper=scale.value(ends[1]),
                    confidence=level,
                    standard_error=scale.factor * pair.standard_error(wanted) if bounded else None,
                    shape=found_set.shape,
                    gap=None if gap is None else (scale.value(gap[0]), scale.value(gap[1])),
                    inference=self.inference,
                )
            )
        return tuple(found)

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """Normal approximations."""
        found = map(SamplingDistribution.normal, self.estimates(raw))
        return tuple(each for each in found if each is not None)

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The widths at the expected moments of records spread evenly, independent columns."""
        pair, level = self._even(n_records), self.terms.confidence
        widths, noise = [], []
        for scale, wanted in zip(self.terms.scales, self._derived(n_records), strict=True):
            interval = pair.interval(wanted, level)
            ends = interval.lower, interval.upper
            if self.guaranteed:
                ends = pair.variance_limits(level)
            widths.append(finite(scale.factor * (ends[1] - ends[0])))
            noise.append(finite(scale.factor * pair.noise_sd(wanted)))
        return ExpectedInterval(
            quantities=self.terms.quantities, width=tuple(widths), noise_sd=tuple(noise)
        )

    @property
    def guarantee_cost(self) -> float | None:
        """Expected width of a guaranteed interval over that of one by approximation, if any."""
        if self.n_records is None or not _formula(named(self.statistic)).is_variance:
            return None
        pair, level = self._even(self.n_records), self.terms.confidence
        (wanted,) = self._derived(self.n_records)
        normal, (lower, upper) = pair.interval(wanted, level), pair.variance_limits(level)
        return (upper - lower) / (normal.upper - normal.lower)

    def _even(self, n_records: int) -> NoisyPair:
        """The expected moments of records spread evenly."""
        records, masses = _reference(named(self.statistic))
        design = self.moments.design
        sums = n_records * masses @ design.values(records[:, : design.columns])
        return NoisyPair(self.moments, n_records, sums)

    @property
    def worst_coverage(self) -> float:
        """Of the sets, for populations whose rare values decide."""
        return worst_of_quotient(self.moments.noise_in_jumps, self.terms.confidence)

    @property
    def inference(self) -> Inference:
        """How the coverage of the sets is known."""
        if self.guaranteed:
            return "guaranteed"
        return inference_words(self.worst_coverage, self.terms.confidence)

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the estimates count by."""
        design = self.moments.design
        return {
            "mechanism": self.name,
            "scale": str(self.moments.noise.scale),
            "n_columns": design.columns,
            **({"design": design.name} if design.name else {}),
            "statistic": self.statistic,
            "origin": repr(self.origin),
            **guarantee_described(self.guaranteed),
            **self.terms.describe(),
        }

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        return cls(
            PairMoments.at(number(description, "scale"), _design(description)),
            str(description["statistic"]),
            float(str(description["origin"])),
            Terms.from_description(description),
            is_guaranteed(description),
        )

    def _derived(self, n_records: int) -> tuple[Derived, ...]:
        """The functions of the means, one an estimate."""
        return _formula(named(self.statistic)).functions(n_records, self.origin)


def _design(description: Mapping[str, object]) -> MomentDesign:
    """The design that is named; before there were names, the first one."""
    if "design" in description:
        return DESIGNS[str(description["design"])]
    return FIRST_ONE if int(str(description["n_columns"])) == 1 else FIRST_PAIR


def _formula(statistic: NamedStatistic) -> MomentFormula:
    assert statistic.moments is not None
    return statistic.moments


def _check_amounts(estimand: Estimand) -> None:
    """Refuse columns that can be below 0."""
    for argument in estimand.arguments:
        if argument.lower < 0:
            raise ConfigError(
                f"Column '{argument.name}' can be below 0, and a {estimand.statistic.name} is one "
                "of amounts.",
                where="columns",
            )


def moment_columns(estimand: Estimand, domain: Domain, cells: Codes) -> _Doubles:
    """The columns x and y, float64[k, 2] in [0, 1]; one column for a variance."""
    arguments, formula = estimand.arguments, _formula(estimand.statistic)
    if formula.amounts:
        arguments = tuple(dataclasses.replace(each, lower=0.0) for each in arguments)
    found = [argument.scaled(domain, cells) for argument in arguments]
    if formula.of_some:
        kept = estimand.keeps(domain, cells)
        return np.column_stack([kept, found[0] * kept])
    return np.column_stack(found[::-1])  # a denominator, predictor or group first


def _reference(statistic: NamedStatistic) -> tuple[_Doubles, _Doubles]:
    """Records float64[k, 2] and masses float64[k] with the moments of evenly spread ones.

    Of three nodes Gauss's rule has the first five moments of the uniform law.
    """
    nodes, weights = np.polynomial.legendre.leggauss(3)
    even = [(float(x + 1) / 2, float(w) / 2) for x, w in zip(nodes, weights, strict=True)]
    half = [(0.0, 0.5), (1.0, 0.5)]
    of_some = _formula(statistic).of_some
    x = half if of_some or "group" in statistic.needs else even
    y = half if statistic.is_share else even
    pairs = [((a, a * b if of_some else b), p * q) for (a, p), (b, q) in itertools.product(x, y)]
    return np.array([pair for pair, _ in pairs]), np.array([mass for _, mass in pairs])
