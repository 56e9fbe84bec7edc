"""Estimates with intervals: the kind of product, what is released, and a mechanism's frame.

``EstimateMechanism`` has what all mechanisms for estimates do alike: which statistics they serve,
the size for which a loss holds, the order of a description and normal sampling distributions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np

from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.fieller import INTERVAL, Floats
from statpress.mechanisms.estimates.statistics import STATISTICS, NamedStatistic, Terms, named
from statpress.mechanisms.mechanism import (
    Citation,
    Kind,
    Mechanism,
    Needs,
    NoiseFigure,
    Per,
    Target,
    Variant,
    check_frame,
    in_words,
)
from statpress.mechanisms.sampling.randomness import Progress, Randomness

Number = int | float
Inference = Literal["guaranteed", "asymptotic", "approximate", "one variance"]
"""Whether an interval covers at its level for every population in the declared bounds; nearly so
for every one, by normal approximation; not for some whose rare values decide; or, but for these,
where residuals have one variance whatever the predictors are."""

_POINTS, _REACH = 401, 4.0


@dataclass(frozen=True)
class RawEstimates:
    """What a private step gives back for estimates; public from then on."""

    numbers: Mapping[str, tuple[Number, ...]]  # the released numbers by what they are of
    n_records: int  # number of records n: public, or the nearest to a noisy number


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate with its interval, in the units of the declaration.

    Attributes:
        quantity: What it is of.
        value: The estimate, perhaps outside the possible range; NaN if there is none.
        lower: Lower end of the interval.
        upper: Upper end.
        confidence: The interval's level.
        standard_error: Of the estimate, sampling and noise together; None if not known.
        valid: Whether the interval's approximation can be trusted; if not, it is as wide as
            can be.
        cells: How many cells of the column the interval spans; None if it does not end at cells.
        shape: What the confidence set is, of statpress.mechanisms.estimates.fieller.SHAPES.
        gap: Between which no value is in the set, if it is in two pieces.
        inference: How its coverage is known.
    """

    quantity: str
    value: float
    lower: float
    upper: float
    confidence: float
    standard_error: float | None
    valid: bool = True
    cells: int | None = None
    shape: str = INTERVAL
    gap: tuple[float, float] | None = None
    inference: Inference = "asymptotic"


@dataclass(frozen=True, eq=False)
class SamplingDistribution:
    """Where an estimate would fall if the survey were taken again; recovered or approximated."""

    quantity: str  # of which estimate
    points: Floats  # float64[m], ascending
    masses: Floats  # float64[m], adding up to 1

    @classmethod
    def normal(cls, estimate: Estimate) -> SamplingDistribution | None:
        """The normal approximation; None if there is no standard error."""
        sd = estimate.standard_error
        if not (sd and math.isfinite(sd) and math.isfinite(estimate.value)):
            return None
        deviations = np.linspace(-_REACH, _REACH, _POINTS)
        masses = np.exp(-(deviations**2) / 2)
        return cls(estimate.quantity, estimate.value + sd * deviations, masses / masses.sum())


WIDTH = "interval_width"
"""What decides between mechanisms for an estimate."""


class EstimateKind(Kind):
    """Estimates of a declared statistic."""

    name = "estimate"
    left_open = EstimandKnobs
    may_omit = True
    user_defined = "statistic"
    criteria = MappingProxyType({WIDTH: "width of the interval"})
    compared = MappingProxyType({"width": "expected width of the intervals"})

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        declared = {key.name: getattr(knobs, key.name) for key in fields(EstimandKnobs)}
        inference = declared.pop("inference")
        for mechanism in serving:
            if inference != "guaranteed":  # elsewhere 'inference' may mean something else
                yield mechanism.name, mechanism, mechanism.knobs(**declared)
            elif mechanism.knobs is EstimandKnobs:
                yield mechanism.name, mechanism, EstimandKnobs(**declared, inference=inference)

    def objection(self, mechanism: Any, target: Target) -> str:
        del target
        words: str = mechanism.objection
        return words

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        yield from error.rows()
        yield from mechanism.remarks()

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """Half the width of the last interval, as a share of what the declared ranges allow."""
        del target
        share = min(error.deciding(WIDTH) / 2 / mechanism.span, 1.0)
        return NoiseFigure("half the expected interval, as a share of the declared range", share)

    def check(self, knobs: Any, target: Target) -> None:
        estimand_for(knobs, target, "auto", several=True)


ESTIMATE = EstimateKind()


@dataclass(frozen=True, kw_only=True)
class ExpectedInterval:
    """What an analyst can expect of an estimate before any data is read.

    Attributes:
        quantities: What is estimated.
        width: Expected width of each interval, for records spread evenly over the declared
            range (or half of them counting): a guide, not a bound. None if it is infinite.
        noise_sd: Standard deviation of the noise on each estimate; None where the noise is not
            of one size.
    """

    quantities: tuple[str, ...]
    width: tuple[float | None, ...]
    noise_sd: tuple[float | None, ...]

    def deciding(self, criterion: str) -> float:
        """The width of the last interval; infinite if it has no end."""
        width = self.width[-1]
        return math.inf if width is None else width

    def rows(self) -> Iterator[tuple[str, str]]:
        """A width for each quantity."""
        for quantity, width, sd in zip(self.quantities, self.width, self.noise_sd, strict=True):
            unbounded = "without end: the confidence set may be the whole line"
            shown = unbounded if width is None else _digits(width, 5)
            noise = "" if sd is None else f" (sd of its noise {_digits(sd, 4)})"
            yield f"expected width: {quantity}", shown + noise
        yield (
            "widths are for",
            "records spread evenly over the declared range: where many values are 0 or few are "
            "large, a mean's is usually shorter and an upper quantile's longer",
        )

    def summary(self) -> str:
        """All that is known."""
        return in_words(self.rows())


def _digits(value: float, digits: int) -> str:
    """A few significant digits, without an exponent for what a person counts.

    >>> _digits(15437.2, 4), _digits(0.0338066, 5), _digits(1.5e-12, 4)
    ('15437', '0.033807', '1.5e-12')
    """
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e15 else f"{value:.{digits}g}"


@dataclass(frozen=True, kw_only=True)
class EstimateMechanism(ABC):
    """A mechanism for estimates at fixed parameters; all of them are public.

    A subclass has its ``calibrate``, ``release``, ``estimates``, ``expected_error`` and
    ``from_description``, and the methods below that are abstract.

    Attributes:
        terms: What is stated of the estimates: quantities, scales, level.
        estimand: To count by; None where the mechanism was rebuilt from its description.
    """

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    kinds: ClassVar[tuple[Kind, ...]] = (ESTIMATE,)
    needs: ClassVar[Needs] = "joint"
    knobs: ClassVar[type] = EstimandKnobs
    pure: ClassVar[bool] = False
    serves_functions: ClassVar[bool] = False
    """Whether it serves user-defined statistics."""
    serves_units: ClassVar[bool] = False
    """Whether it serves units of several records, each of which counts one."""

    terms: Terms
    estimand: Estimand | None = field(default=None, compare=False)

    @staticmethod
    @abstractmethod
    def serves(statistic: NamedStatistic) -> bool:
        """Whether it serves a statistic with a name."""

    @staticmethod
    def guarantees(statistic: NamedStatistic) -> bool:
        """Whether it has intervals for the statistic that cover for every population."""
        return False

    @classmethod
    @abstractmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet the target, from public quantities only."""

    @abstractmethod
    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """The private step."""

    @abstractmethod
    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates with their intervals: free post-processing of what was released."""

    @abstractmethod
    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """Expected widths from public quantities only."""

    @abstractmethod
    def parameters(self) -> dict[str, str | int]:
        """What its description holds between its name and its terms."""

    @classmethod
    @abstractmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""

    @abstractmethod
    def whole_loss(self) -> PrivacyLoss:
        """The privacy loss of everything released, to units of one record."""

    @property
    def takes_parts(self) -> bool:
        """Whether its table may count parts of units; else one record of each unit is drawn."""
        return False

    @property
    def stated_size(self) -> int | None:
        """The number of records for which the loss holds; None: any."""
        return None

    @property
    def span(self) -> float:
        """From the least to the largest value that the last estimate can have."""
        return abs(self.terms.scales[-1].factor)

    @property
    def objection(self) -> str:
        """Why ``auto`` never chooses it for what it estimates, as a sentence; empty if it may."""
        return ""

    def remarks(self) -> Iterator[tuple[str, str]]:
        """What a plan says of the intervals in addition to their widths, with labels."""
        yield from ()

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of everything released; takes no data.

        Raises:
            ConfigError: For another size than the loss holds for, or larger units.
        """
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        if unit_records != 1 or self.stated_size not in (None, n_records):
            raise ConfigError(
                "An estimate's loss is known for its own size and units of one record."
            )
        return self.whole_loss()

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """Sampling distributions for those estimates that have one: normal approximations."""
        normal = map(SamplingDistribution.normal, self.estimates(raw))
        return tuple(distribution for distribution in normal if distribution is not None)

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the estimates count by."""
        return {"mechanism": self.name, **self.parameters(), **self.terms.describe()}

    @classmethod
    def check_serves(cls, knobs: EstimandKnobs) -> None:
        """Refuse a statistic that the mechanism does not serve, naming those that it does."""
        statistic = named(knobs.statistic) if knobs.statistic else None
        if knobs.guaranteed and not (statistic and cls.guarantees(statistic)):
            raise ConfigError(
                f"The mechanism '{cls.name}' has no guaranteed interval for {knobs.named}. Counts, "
                "sums, means and proportions of all records, variances and quantiles have one.",
                where="inference",
                next_step="Leave 'inference' out, or ask for another statistic.",
            )
        if not (cls.serves(statistic) if statistic else cls.serves_functions):
            served = [each.name for each in STATISTICS.values() if cls.serves(each)]
            known = ", ".join(served + ["a user-defined statistic"] * cls.serves_functions)
            raise ConfigError(
                f"The mechanism '{cls.name}' does not serve {knobs.named}; it serves {known}.",
                where="statistic",
                next_step="Write 'mechanism: auto', or leave the key out.",
            )

    @classmethod
    def check_all_count(cls, estimand: Estimand, takes: str) -> None:
        """Refuse a figure of only some of the records, unless the others are 0 in it."""
        if estimand.of_some and not estimand.statistic.is_total:
            raise ConfigError(
                f"The mechanism '{cls.name}' takes {takes} all records, and here some do not "
                "count.",
                where="where",
                next_step="Write 'mechanism: auto', or leave the key out.",
            )


def estimand_for(
    knobs: EstimandKnobs, target: Target, mechanism: str, *, several: bool = False
) -> Estimand:
    """The estimand of a product; ``several`` records of a unit count only for some mechanisms."""
    if target.domain is None:
        raise ConfigError(f"The mechanism '{mechanism}' needs the columns of its table.")
    check_per(knobs.per, target.domain)
    if not several and (target.unit_records != 1 or target.domain.absent):
        raise ConfigError(
            f"The mechanism '{mechanism}' counts no unit more than once.",
            where="per",
            next_step="Write 'per: unit', by which each unit counts one, or 'mechanism: auto'.",
        )
    return Estimand.resolve(knobs, target.domain)


def check_per(per: Per | None, domain: Domain) -> None:
    """Refuse units of several records where nothing says what counts one."""
    if domain.absent and per is None:
        raise ConfigError(
            "Units may have several records, and nothing says what counts one here.",
            where="per",
            next_step="Write 'per: unit', by which each unit counts one, or for a sum, a count, a "
            "mean, a proportion or a ratio 'per: record', by which each record does.",
        )


def finite(value: float | None) -> float | None:
    """The number, or None if it is missing or infinite."""
    return value if value is not None and math.isfinite(value) else None


def number(description: Mapping[str, Any], name: str) -> Fraction:
    """A parameter out of a description."""
    return Fraction(str(description[name]))
