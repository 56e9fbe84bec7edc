"""What mechanisms for estimates with intervals offer and release.

What is released of an estimate: raw numbers, intervals and sampling distributions.
The kind of product that is an estimate with an interval.
What mechanisms for estimates with intervals offer, in addition to what all mechanisms do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.composition import compose_quickly
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.fieller import INTERVAL, normal_quantile
from statpress.mechanisms.estimates.resampling_noise import DELTA_FLOOR, Goal, gaussian_goal
from statpress.mechanisms.estimates.statistics import STATISTICS, NamedStatistic, Terms, named
from statpress.mechanisms.mechanism import Kind, Mechanism, NoiseFigure, Target, Variant, in_words

Number = int | float
Inference = Literal["guaranteed", "asymptotic", "approximate"]
"""Whether an interval covers at its level for every population in the declared bounds; nearly so
for every one, by normal approximation; or not for some whose rare values decide."""

_POINTS, _REACH = 401, 4.0


@dataclass(frozen=True)
class RawEstimates:
    """What a private step gives back for estimates; public from then on.

    Attributes:
        numbers: The released numbers by what they are of.
        n_records: Number of records n, public.
    """

    numbers: Mapping[str, tuple[Number, ...]]
    n_records: int


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
    """Where an estimate would fall if the survey were taken again; recovered or approximated.

    Attributes:
        quantity: Of which estimate.
        points: float64[m], ascending.
        masses: float64[m], adding up to 1.
    """

    quantity: str
    points: NDArray[np.float64]
    masses: NDArray[np.float64]

    @classmethod
    def normal(cls, found: Estimate) -> SamplingDistribution | None:
        """The normal approximation; None if there is no standard error."""
        sd = found.standard_error
        if not (sd and math.isfinite(sd) and math.isfinite(found.value)):
            return None
        deviations = np.linspace(-_REACH, _REACH, _POINTS)
        masses = np.exp(-(deviations**2) / 2)
        return cls(found.quantity, found.value + sd * deviations, masses / masses.sum())


def normal_error(lower: float, upper: float, confidence: float) -> float:
    """The standard error that a normal interval of this width stands for."""
    return (upper - lower) / (2 * normal_quantile(confidence))


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

    def criterion(self, knobs: Any) -> str:
        return WIDTH

    def variants(self, knobs: Any, serving: Sequence[type[Mechanism]]) -> Iterator[Variant]:
        said = {each.name: getattr(knobs, each.name) for each in fields(EstimandKnobs)}
        asked = said.pop("inference")
        guaranteed = asked == "guaranteed"
        for mechanism in serving:
            if not guaranteed:  # elsewhere 'inference' may mean something else
                yield mechanism.name, mechanism, mechanism.knobs(**said)
            elif mechanism.knobs is EstimandKnobs:
                yield mechanism.name, mechanism, EstimandKnobs(**said, inference=asked)

    def draws(self, mechanism: Any, n_cells: int) -> int:
        return 0

    def error_rows(self, mechanism: Any, error: Any) -> Iterator[tuple[str, str]]:
        yield from error.rows()
        if getattr(mechanism, "expected_cells", None) == 1:
            yield "the interval is", "one cell: only narrower cells would tell more"
        if getattr(mechanism, "inference", None) == "approximate":
            worst, level = mechanism.worst_coverage, mechanism.terms.confidence
            yield (
                "the interval is",
                f"approximate: where rare values decide it may cover with {worst:.3f} in place "
                f"of {level:g}",
            )
        cost = getattr(mechanism, "guarantee_cost", None)
        if cost is not None:
            words = "guaranteed: it is" if mechanism.guaranteed else "a guaranteed one would be"
            yield "width for every population", f"{words} {cost:.2f} times that by approximation"

    def noise_figure(self, mechanism: Any, error: Any, target: Target) -> NoiseFigure | None:
        """Half the width of the last interval, as a share of what the declared ranges allow."""
        del target
        own: float | None = getattr(mechanism, "span", None)
        span = abs(mechanism.terms.scales[-1].factor) if own is None else own
        share = min(error.deciding(WIDTH) / 2 / span, 1.0)
        return NoiseFigure("half the expected interval, as a share of the declared range", share)

    def check(self, knobs: Any, target: Target) -> None:
        estimand_for(knobs, target, "auto")

    def extra_columns(self, knobs: Any) -> tuple[str, ...]:
        columns: tuple[str, ...] = knobs.columns_beside
        return columns


ESTIMATE = EstimateKind()


_TRIES = 5

REFERENCE_VARIANCE = 1 / 12
"""Of records spread evenly over the declared range, in ranges squared."""


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

    def summary(self) -> str:
        """All that is known."""
        return in_words(self.rows())


def _digits(value: float, digits: int) -> str:
    """A few significant digits, without an exponent for what a person counts.

    >>> _digits(15437.2, 4), _digits(0.0338066, 5), _digits(1.5e-12, 4)
    ('15437', '0.033807', '1.5e-12')
    """
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e15 else f"{value:.{digits}g}"


class HasLoss(Protocol):
    """A release at fixed parameters."""

    def loss(self) -> PrivacyLoss:
        """Its privacy loss; takes no data."""


Resampled = TypeVar("Resampled", bound=HasLoss)


class EstimateMechanism(Mechanism, Protocol):
    """A mechanism for estimates at fixed parameters."""

    @property
    def terms(self) -> Terms:
        """What is stated of its estimates: quantities, scales, level."""
        ...

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """Expected widths from public quantities only."""
        ...

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates with their intervals: free post-processing of what was released."""
        ...

    def distributions(self, raw: RawEstimates) -> tuple[SamplingDistribution, ...]:
        """Sampling distributions for those estimates that have one."""
        ...


def estimand_for(knobs: EstimandKnobs, target: Target, mechanism: str) -> Estimand:
    """The estimand of a product, for a mechanism of units of one record.

    Raises:
        ConfigError: The columns do not suit, or a unit has several records.
    """
    if target.unit_records != 1 or target.domain is None or target.domain.absent:
        raise ConfigError(
            f"The mechanism '{mechanism}' serves only units of one record.",
            next_step="Write 'unit: record', or a unit with max_records 1; or make a table of this"
            " product.",
        )
    return Estimand.resolve(knobs, target.domain)


def check_serves(
    knobs: EstimandKnobs,
    mechanism: str,
    serves: Callable[[NamedStatistic], bool],
    *,
    functions: bool = False,
    guarantees: Callable[[NamedStatistic], bool] = lambda statistic: False,
) -> None:
    """Refuse a statistic that a mechanism does not serve.

    Args:
        knobs: With the statistic.
        mechanism: Its name.
        serves: Whether it serves a statistic with a name.
        functions: Whether it serves user-defined ones.
        guarantees: Whether it has intervals for one that cover for every population.

    Raises:
        ConfigError: With the statistics that it serves.
    """
    if knobs.guaranteed and not (knobs.statistic and guarantees(named(knobs.statistic))):
        raise ConfigError(
            f"The mechanism '{mechanism}' has no guaranteed interval for {knobs.named}. Counts, "
            "sums, means and proportions of all records, variances and quantiles have one.",
            where="inference",
            next_step="Leave 'inference' out, or ask for another statistic.",
        )
    if not (functions if knobs.statistic is None else serves(named(knobs.statistic))):
        names = [name for name, statistic in STATISTICS.items() if serves(statistic)]
        known = ", ".join(names + ["a user-defined statistic"] * functions)
        raise ConfigError(
            f"The mechanism '{mechanism}' does not serve {knobs.named}; it serves {known}.",
            where="statistic",
            next_step="Write 'mechanism: auto', or leave the key out.",
        )


def resampling_goal(target: Target, mechanism: str) -> Goal:
    """Points (epsilon, largest delta) that noisy resamples must meet.

    Raises:
        ConfigError: The budget is one of rho, in which no bound on resamples is known.
        InfeasibleBudgetError: No delta, or one below which no composition is known.
    """
    if target.rho is not None:
        raise ConfigError(
            f"No zero-concentrated (rho) bound is known for the mechanism '{mechanism}'.",
            next_step="Give the release a budget of epsilon and delta, or choose another.",
        )
    if not target.delta:
        raise InfeasibleBudgetError(f"The mechanism '{mechanism}' needs a delta above 0.")
    if target.delta < DELTA_FLOOR * (1 - 1e-9):
        raise InfeasibleBudgetError(
            f"The loss of the mechanism '{mechanism}' is known only down to a delta of "
            f"{DELTA_FLOOR:g}, and its part of the release's is {target.delta:.3g}.",
            next_step="Raise delta or the product's share, or choose another mechanism.",
        )
    if target.renyi is None:
        return ((target.epsilon, target.delta),)
    order, most = target.renyi
    return gaussian_goal(Fraction(math.sqrt(2 * most / order)))


def proven(target: Target, goal: Goal, calibrate: Callable[[Goal], Resampled]) -> Resampled:
    """A mechanism calibrated to a goal, of which the planner's composition proves the same.

    The calibration and the planner compose on different grids, which differ by some 10^-11.

    Raises:
        InfeasibleBudgetError: No noise was proven to meet the target.
    """
    found = calibrate(goal)
    for _ in range(_TRIES):
        loss = compose_quickly([found.loss()])
        if target.renyi is not None or target.allows(loss):
            return found
        excess = loss.delta(target.epsilon).upper - target.delta
        goal = tuple((epsilon, delta - 1.5 * excess) for epsilon, delta in goal)
        if goal[0][1] <= 0:
            break
        found = calibrate(goal)
    raise InfeasibleBudgetError("No noise was proven to meet the budget.")


def check_loss_frame(n_records: int, unit_records: int, *, stated: int | None = None) -> None:
    """Refuse to state a loss for another size than a mechanism was calibrated for.

    Args:
        n_records: For which a loss is asked.
        unit_records: For which it is asked.
        stated: The size it was calibrated for, where the loss depends on that.

    Raises:
        ConfigError: Other sizes.
    """
    if unit_records != 1 or stated not in (None, n_records):
        raise ConfigError("An estimate's loss is known for its own size and units of one record.")


def guarantee_described(guaranteed: bool) -> dict[str, str]:
    """That an interval is guaranteed, as part of a description; by default nothing."""
    return {"inference": "guaranteed"} if guaranteed else {}


def is_guaranteed(description: Mapping[str, object]) -> bool:
    """Read back what ``guarantee_described`` wrote."""
    return description.get("inference") == "guaranteed"


def finite(value: float | None) -> float | None:
    """The number, or None if it is missing or infinite."""
    return value if value is not None and math.isfinite(value) else None


def text(amount: float | Fraction | Decimal) -> str:
    """A parameter, exactly."""
    return str(amount) if not isinstance(amount, float) else repr(amount)


def number(description: Mapping[str, Any], name: str) -> Fraction:
    """A parameter out of a description."""
    return Fraction(str(description[name]))
