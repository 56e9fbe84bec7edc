"""Estimates from noisy statistics of resamples: the frame of two mechanisms.

``dp_bootstrap`` and ``subsample_split`` release a statistic of declared sensitivity many times, on
resamples of the records, with noise. They differ in how records are resampled and in what is
released of all records; what is alike is here: which statistics they take, the budget as points of
a privacy curve, expected widths by the rule of statpress.mechanisms.estimates.resampling_noise, and
what descriptions hold of the statistic.

A user-defined statistic is believed in what it declares, so it is first tried on public random
records (mechanisms.estimates.resampled.largest_move), always the same ones: what moves further
than declared, fails, or gives an array of another shape is refused before any data is read.
The trial finds lies, it proves nothing: a sensitivity has to be derived.

What a statistic's variance may be is taken from records spread evenly over the declared
ranges: a formula for those built in, a simulation on public random records for the others.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from statpress.mechanisms.accounting.composition import compose_quickly
from statpress.mechanisms.accounting.losses import PrivacyLoss
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.estimates.estimand import Estimand, checked
from statpress.mechanisms.estimates.estimate import (
    Estimate,
    EstimateMechanism,
    ExpectedInterval,
    Number,
    RawEstimates,
    estimand_for,
)
from statpress.mechanisms.estimates.fieller import Floats
from statpress.mechanisms.estimates.resampling_noise import (
    DELTA_FLOOR,
    CalibratedWidth,
    Goal,
    NoiseSearch,
    NoisyVariance,
    WidthRule,
    gaussian_goal,
    largest_mu_squared,
    mean_width,
    promising_mu_squared,
)
from statpress.mechanisms.estimates.statistics import (
    Scale,
    Statistic,
    Weights,
    evaluated,
    is_unbiased,
)
from statpress.mechanisms.mechanism import Target, UserDefined
from statpress.mechanisms.sampling.randomness import Progress, Randomness

_TRIAL_SIZES = (2, 5, 50)
_ROUNDING = 1 + 1e-9
_SAMPLES, _MOST_SIMULATED = 200, 500
_SEED = 20_220
_TRIES = 5


class Resampling(Protocol):
    """A release of noisy statistics of resamples, at fixed parameters."""

    @property
    def statistic(self) -> Statistic:
        """What is released of every resample."""

    @property
    def n_records(self) -> int:
        """Number of records n."""

    @property
    def known(self) -> NoisyVariance:
        """What the half-width of an interval follows from."""

    def loss(self) -> PrivacyLoss:
        """The privacy loss of everything released; takes no data."""


Resamples = TypeVar("Resamples", bound=Resampling)


class Interval(NamedTuple):
    """An estimate of a statistic of columns in [0, 1], with its interval."""

    value: float
    lower: float
    upper: float
    standard_error: float
    valid: bool = True  # whether its approximation can be trusted


@dataclass(frozen=True, kw_only=True)
class ResampledEstimate(EstimateMechanism):
    """Estimates from noisy statistics of resamples; all parameters are public.

    A subclass has the methods below that are abstract, and a narrower type of ``resamples``.

    Attributes:
        resamples: How records are resampled, and the noise.
        rules: From the spread of what is released to the half-width of each interval.
        variances: Presumed of the statistic, for expected widths; empty where the mechanism was
            rebuilt from its description.
    """

    serves_functions: ClassVar[bool] = True

    resamples: Any
    rules: tuple[WidthRule, ...] = ()
    variances: tuple[float, ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    @abstractmethod
    def resampling(
        cls,
        knobs: Any,
        target: Target,
        statistic: Statistic,
        goal: Goal,
        presumed: float,
        search: NoiseSearch,
    ) -> Resampling:
        """The least noise that meets the goal, at a presumed variance of the statistic."""

    @abstractmethod
    def draw(self, counts: Codes, columns: Floats, rng: Randomness) -> dict[str, Floats]:
        """The private step: what is released, by its name."""

    @abstractmethod
    def interval(self, raw: RawEstimates, i: int) -> Interval:
        """The interval of one number, counted from 0."""

    @abstractmethod
    def noise_sd(self, scale: Scale) -> float:
        """Standard deviation of the noise on an estimate, in its own units."""

    @abstractmethod
    def own_parameters(self) -> dict[str, str | int]:
        """What a description holds before the statistic."""

    @classmethod
    def rules_of(cls, knobs: Any, known: NoisyVariance, variances: tuple[float, ...]) -> Any:
        """The rules of the half-widths, around these variances."""
        return tuple(
            CalibratedWidth.narrowest(known, variance, knobs.confidence) for variance in variances
        )

    def constants(self) -> dict[str, str]:
        """What a description holds after the terms: the constants of the intervals."""
        return {
            f"reach_{name}_{i}": repr(getattr(rule, name))
            for i, rule in enumerate(self.rules, 1)
            for name in ("factor", "addend")
        }

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: The statistic is not one of these, or the budget is one of rho.
            InfeasibleBudgetError: The budget has no delta, or no noise meets it.
        """
        return cls._made(knobs, target, largest_mu_squared)

    @classmethod
    def sketch(cls, knobs: Any, target: Target) -> Self:
        """At the noise that is found before any proof: for comparing, never for a release."""
        return cls._made(knobs, target, promising_mu_squared)

    @classmethod
    def _made(cls, knobs: Any, target: Target, search: NoiseSearch) -> Self:
        cls.check_serves(knobs)
        goal = resampling_goal(target, cls.name)
        estimand = estimand_for(knobs, target, cls.name)
        statistic = statistic_of(estimand)
        cls.check_all_count(estimand, "statistics of")
        variances = _even_variances(estimand, statistic, target.n_records)
        resamples = cls.resampling(knobs, target, statistic, goal, max(variances), search)
        return cls(
            terms=estimand.terms(target.n_records, estimand.spans),
            estimand=estimand,
            resamples=resamples,
            rules=cls.rules_of(knobs, resamples.known, variances),
            variances=variances,
            **cls.kept(knobs),
        )

    @classmethod
    def kept(cls, knobs: Any) -> dict[str, Any]:
        """What is kept of the knobs, as fields."""
        return {}

    @property
    def stated_size(self) -> int:
        """The number of records for which the loss holds."""
        return int(self.resamples.n_records)

    def whole_loss(self) -> PrivacyLoss:
        """The proven privacy loss of everything released."""
        loss: PrivacyLoss = self.resamples.loss()
        return loss

    def release(
        self, table: ContingencyTable, rng: Randomness, progress: Progress | None = None
    ) -> RawEstimates:
        """Noisy statistics of resamples."""
        assert self.estimand is not None
        columns = self.estimand.columns(table.domain, table.cells)
        drawn = self.draw(table.counts, columns, rng)
        numbers: Mapping[str, tuple[Number, ...]] = {
            name: tuple(values.tolist()) for name, values in drawn.items()
        }
        return RawEstimates(numbers, table.n_records)

    def estimates(self, raw: RawEstimates) -> tuple[Estimate, ...]:
        """The estimates, with intervals within the statistic's bounds."""
        low, high = self.resamples.statistic.bounds
        estimates = []
        for i, (quantity, scale) in enumerate(
            zip(self.terms.quantities, self.terms.scales, strict=True)
        ):
            interval = self.interval(raw, i)
            estimates.append(
                Estimate(
                    quantity=quantity,
                    value=scale.value(interval.value),
                    lower=scale.value(min(max(interval.lower, low), high)),
                    upper=scale.value(min(max(interval.upper, low), high)),
                    confidence=self.terms.confidence,
                    inference="approximate",
                    standard_error=scale.factor * interval.standard_error or None,
                    valid=interval.valid,
                )
            )
        return tuple(estimates)

    def expected_width(self, i: int, variance: float) -> float:
        """The mean width of an interval of columns in [0, 1] at this variance."""
        rule, known = self.rules[i], self.resamples.known
        return float(mean_width(rule, known, np.array(variance), self.terms.confidence))

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedInterval:
        """The widths for records spread evenly."""
        scales = self.terms.scales
        variances = self.variances or (math.nan,) * len(scales)
        return ExpectedInterval(
            quantities=self.terms.quantities,
            width=tuple(
                scale.factor * self.expected_width(i, variance)
                for i, (scale, variance) in enumerate(zip(scales, variances, strict=True))
            ),
            noise_sd=tuple(map(self.noise_sd, scales)),
        )

    def parameters(self) -> dict[str, str | int]:
        """The resampling and its noise, and what the statistic declares."""
        statistic = self.resamples.statistic
        low, high = statistic.bounds
        return {
            **self.own_parameters(),
            "n_columns": statistic.columns,
            "dimension": statistic.dimension,
            "constant": str(Fraction(statistic.constant)),
            "least": repr(float(low)),
            "most": repr(float(high)),
        }

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild all but what the estimates count by."""
        return {**super().describe(), **self.constants()}


@dataclass(frozen=True)
class DeclaredStatistic:
    """What is declared of a statistic, from a description; it cannot be evaluated."""

    columns: int
    dimension: int
    constant: Fraction
    bounds: tuple[float, float]

    def evaluate(self, weights: Weights, columns: Floats) -> Floats:
        """Refused: this statistic was rebuilt from what is published of it."""
        raise TypeError("a statistic rebuilt from a description cannot be evaluated")

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> DeclaredStatistic:
        """Read back what ``parameters`` wrote of a statistic."""
        columns, dimension = (int(str(description[key])) for key in ("n_columns", "dimension"))
        low, high = (float(str(description[key])) for key in ("least", "most"))
        return cls(columns, dimension, Fraction(str(description["constant"])), (low, high))


def statistic_of(estimand: Estimand) -> Statistic:
    """The statistic of an estimand; a user-defined one is tried first."""
    if estimand.knobs.function is not None:
        return _tried(estimand.knobs.function)
    assert estimand.statistic.bounded is not None
    return estimand.statistic.bounded


@functools.lru_cache(maxsize=64)
def _tried(own: UserDefined) -> Statistic:
    """A user-defined statistic that a trial on public random records found no fault with."""
    name, statistic = own.name, checked(own)
    numbers = (statistic.columns, statistic.dimension)
    if not all(type(number) is int and number >= 1 for number in numbers) or not isinstance(
        statistic.constant, int | Fraction
    ):
        raise ConfigError(
            f"The statistic '{name}' needs whole numbers of columns and dimensions, and a constant "
            "that is a whole number or a Fraction.",
            where="function",
        )
    try:
        for size in _TRIAL_SIZES:
            records = np.random.default_rng(_SEED).random((size, statistic.columns))
            records.flags.writeable = False  # as it is given them
            statistic.evaluate(np.ones((1, size), np.int64), records)
        worst = max(
            largest_move(statistic, size, np.random.default_rng(_SEED)) for size in _TRIAL_SIZES
        )
    except ConfigError as error:
        error.where = "function"
        raise
    except Exception as error:
        raise ConfigError(
            f"The statistic '{name}' fails on public random records ({type(error).__name__}).",
            where="function",
        ) from None
    if worst > _ROUNDING:
        raise ConfigError(
            f"The statistic '{name}' moves {worst:.3g} times as far as it declares when one "
            "record is replaced.",
            where="function",
            next_step="Derive its sensitivity c/m for every m, and declare that c.",
        )
    if is_unbiased(statistic):
        bias = largest_bias(statistic, np.random.default_rng(_SEED))
        if not bias <= _ROUNDING - 1:
            raise ConfigError(
                f"The statistic '{name}' declares to be unbiased, but on public random records its "
                "mean over all subsets of a size is not its value on all of them.",
                where="function",
                next_step="Leave 'unbiased' out.",
            )
    return statistic


def largest_move(
    statistic: Statistic, size: int, rng: np.random.Generator, tries: int = 400
) -> float:
    """The largest move found over random neighbours, as a multiple of the declared c/m.

    Above 1 (but for rounding) the statistic lies. Records are drawn with many at the corners
    of their range, where moves are largest. Neighbours are compared as resamples of the same
    cells, and as tables of their own with one row for equal records: what takes cells for
    records, or counts empty cells, moves between these.
    """
    worst = 0.0
    limit = float(statistic.constant) / size
    for _ in range(tries):
        records = rng.random((size + 1, statistic.columns))
        corners = rng.random(records.shape) < rng.random()
        records = np.where(corners, np.rint(records), records)
        if rng.random() < 0.5:  # many records alike
            records[: size - 1] = records[rng.integers(0, size - 1, size - 1) % 2]
        weights = np.ones((2, size + 1), np.int64)
        weights[0, -1] = weights[1, -2] = 0
        one, two = evaluated(statistic, weights, records)
        own = (_alone(statistic, records[row > 0]) for row in weights)
        for first, second in itertools.product((one, next(own)), (two, next(own))):
            worst = max(worst, float(np.linalg.norm(first - second)) / limit)
    return worst


def largest_bias(statistic: Statistic, rng: np.random.Generator, tries: int = 20) -> float:
    """The largest distance found between the statistic and its mean over all subsets of a size.

    Of six random records, over the length by which it may move among them. A statistic that
    declares to be unbiased has none but rounding.
    """
    worst, size = 0.0, 6
    for _, chosen in itertools.product(range(tries), range(2, size)):
        records = rng.random((size, statistic.columns))
        subsets = list(itertools.combinations(range(size), chosen))
        weights = np.zeros((len(subsets), size), np.int64)
        weights[np.arange(len(subsets))[:, None], subsets] = 1
        of_all = evaluated(statistic, np.ones((1, size), np.int64), records)[0]
        away = np.linalg.norm(evaluated(statistic, weights, records).mean(axis=0) - of_all)
        worst = max(worst, float(away) * size / float(statistic.constant))
    return worst


def _alone(statistic: Statistic, records: Floats) -> Floats:
    """The statistic float64[dimension] of records float64[m, columns], equal ones in one cell."""
    cells = records[np.lexsort(records.T[::-1])]
    first = np.flatnonzero(np.append(True, np.any(cells[1:] != cells[:-1], axis=1)))
    counts = np.diff(np.append(first, len(cells)))
    return np.asarray(evaluated(statistic, counts[None, :].astype(np.int64), cells[first])[0])


def _even_variances(estimand: Estimand, statistic: Statistic, n_records: int) -> tuple[float, ...]:
    """Variances of the statistic of n records spread evenly, one a number of it."""
    own, known = estimand.knobs.function, estimand.statistic.even_variance
    if own is not None:
        of_one = _simulated(own)
    else:
        of_one = _simulated_variances(statistic) if known is None else (known,)
    return tuple(variance / n_records for variance in of_one)


@functools.lru_cache(maxsize=64)
def _simulated(own: UserDefined) -> tuple[float, ...]:
    return _simulated_variances(_tried(own))


def _simulated_variances(statistic: Statistic) -> tuple[float, ...]:
    """Variances times n of a statistic of evenly spread records, one a number of it."""
    rng = np.random.default_rng(_SEED)
    weights = np.ones((1, _MOST_SIMULATED), np.int64)
    values = [
        evaluated(statistic, weights, rng.random((_MOST_SIMULATED, statistic.columns)))[0]
        for _ in range(_SAMPLES)
    ]
    return tuple((np.var(values, axis=0, ddof=1) * _MOST_SIMULATED).tolist())


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


def proven(
    target: Target, goal: Goal, search: NoiseSearch, calibrate: Callable[[Goal], Resamples]
) -> Resamples:
    """A release calibrated to a goal, of which the planner's composition proves the same.

    The calibration and the planner compose on different grids, which differ by some 10^-11. What is
    only promising is not composed.
    """
    resamples = calibrate(goal)
    if search is promising_mu_squared:
        return resamples
    for _ in range(_TRIES):
        loss = compose_quickly([resamples.loss()])
        if target.renyi is not None or target.allows(loss):
            return resamples
        excess = loss.delta(target.epsilon).upper - target.delta
        goal = tuple((epsilon, delta - 1.5 * excess) for epsilon, delta in goal)
        if goal[0][1] <= 0:
            break
        resamples = calibrate(goal)
    raise InfeasibleBudgetError("No noise was proven to meet the budget.")
