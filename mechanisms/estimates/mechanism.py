"""What mechanisms for estimates with intervals offer, in addition to what all mechanisms do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from mechanisms.accounting.composition import compose_quickly
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.kind import in_words
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.errors import ConfigError, InfeasibleBudgetError
from mechanisms.estimates.estimand import Estimand
from mechanisms.estimates.knobs import EstimandKnobs
from mechanisms.estimates.released import Estimate, RawEstimates, SamplingDistribution
from mechanisms.estimates.statistics.named_statistic import NamedStatistic
from mechanisms.estimates.statistics.registry import STATISTICS, named
from mechanisms.estimates.terms import Terms
from mechanisms.inference.resampling.resampling_calibration import DELTA_FLOOR, Goal, gaussian_goal

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
