"""Statistics of a declared sensitivity, as an estimate takes them: built in or user-defined.

A user-defined statistic is believed in what it declares, so it is first tried on public random
records (mechanisms.inference.statistics.largest_move), always the same ones: what moves further
than declared, fails, or gives an array of another shape is refused before any data is read.
The trial finds lies, it proves nothing: a sensitivity has to be derived.

What a statistic's variance may be is taken from records spread evenly over the declared
ranges: a formula for those built in, a simulation on public random records for the others.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from mechanisms.base.user_defined import UserDefined
from mechanisms.domain.columns import Codes
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.estimates.estimand import Estimand, checked
from mechanisms.estimates.joint_moments import column_with_zero, values_with_zero
from mechanisms.estimates.terms import Scale
from mechanisms.inference.statistics import (
    Covariance,
    Mean,
    Statistic,
    Variance,
    Weights,
    evaluated,
    largest_move,
)

_Doubles = NDArray[np.float64]
_TRIAL_SIZES = (2, 5, 50)
_ROUNDING = 1 + 1e-9
_SAMPLES, _MOST_SIMULATED = 200, 500
_SEED = 20_220

EVEN = {"variance": 1 / 80 - 1 / 144, "covariance": 1 / 144, "mean": 1 / 12, "share": 1 / 4}
"""Variances, times n, of statistics of n records spread evenly; of one that counts or not."""


@dataclass(frozen=True)
class DeclaredStatistic:
    """What is declared of a statistic, from a description; it cannot be evaluated."""

    columns: int
    dimension: int
    constant: Fraction
    bounds: tuple[float, float]

    def evaluate(self, weights: Weights, columns: _Doubles) -> _Doubles:
        """Refused: this statistic was rebuilt from what is published of it."""
        raise TypeError("a statistic rebuilt from a description cannot be evaluated")

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> DeclaredStatistic:
        """Read back what ``described`` wrote."""
        columns, dimension = (int(str(description[key])) for key in ("n_columns", "dimension"))
        low, high = (float(str(description[key])) for key in ("least", "most"))
        return cls(columns, dimension, Fraction(str(description["constant"])), (low, high))


def described(statistic: Statistic) -> dict[str, str | int]:
    """What a statistic declares, as part of a mechanism's description."""
    low, high = statistic.bounds
    return {
        "n_columns": statistic.columns,
        "dimension": statistic.dimension,
        "constant": str(Fraction(statistic.constant)),
        "least": repr(float(low)),
        "most": repr(float(high)),
    }


def statistic_of(estimand: Estimand) -> Statistic:
    """The statistic of an estimand; a user-defined one is tried first.

    Raises:
        ConfigError: A user-defined one moves further than it declares, fails or has another shape.
    """
    if estimand.knobs.function is not None:
        return tried(estimand.knobs.function)
    known: dict[str | None, Statistic] = {"variance": Variance(), "covariance": Covariance()}
    return known.get(estimand.knobs.statistic, Mean())


def scales_of(estimand: Estimand, statistic: Statistic, n_records: int) -> tuple[Scale, ...]:
    """From the statistic of columns in [0, 1] to its own units."""
    if estimand.knobs.function is not None:
        return (Scale(),) * statistic.dimension
    if estimand.knobs.statistic in ("variance", "covariance"):
        first, second = estimand.arguments[0], estimand.arguments[-1]
        return (Scale(0.0, (first.upper - first.lower) * (second.upper - second.lower)),)
    argument = column_with_zero(estimand)
    times = n_records if estimand.knobs.statistic in ("sum", "count") else 1
    return (Scale(times * argument.lower, times * (argument.upper - argument.lower)),)


def quantities_of(estimand: Estimand, statistic: Statistic) -> tuple[str, ...]:
    """What is estimated, one a number of the statistic."""
    words = estimand.quantity()
    if statistic.dimension == 1:
        return (words,)
    return tuple(f"{words}, number {i}" for i in range(1, statistic.dimension + 1))


def columns_of(estimand: Estimand, domain: Domain, cells: Codes) -> _Doubles:
    """The statistic's columns, float64[k, c] in [0, 1], of cells int64[k]."""
    if estimand.kept:
        return values_with_zero(estimand, domain, cells)[:, None]
    return estimand.columns(domain, cells)


def even_variances(estimand: Estimand, statistic: Statistic, n_records: int) -> tuple[float, ...]:
    """Variances of the statistic of n records spread evenly, one a number of it."""
    knobs = estimand.knobs
    if knobs.function is not None:
        return tuple(each / n_records for each in _simulated(knobs.function))
    kind = "share" if estimand.is_share else str(knobs.statistic)
    return (EVEN.get(kind, EVEN["mean"]) / n_records,)


def check_all_count(estimand: Estimand, mechanism: str) -> None:
    """Refuse a mean of only some of the records, whose sensitivity is not that of a mean.

    Raises:
        ConfigError: Not all records count.
    """
    if estimand.kept and estimand.knobs.statistic not in ("sum", "count"):
        raise ConfigError(
            f"The mechanism '{mechanism}' takes statistics of all records, and here some do not "
            "count.",
            where="where",
            next_step="Write 'mechanism: auto', or leave the key out.",
        )


@functools.lru_cache(maxsize=64)
def tried(own: UserDefined) -> Statistic:
    """A user-defined statistic that a trial on public random records found no fault with.

    Raises:
        ConfigError: It is not one, or has a fault.
    """
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
    return statistic


@functools.lru_cache(maxsize=64)
def _simulated(own: UserDefined) -> tuple[float, ...]:
    """Variances times n of a user-defined statistic of evenly spread records."""
    statistic, rng = tried(own), np.random.default_rng(_SEED)
    weights = np.ones((1, _MOST_SIMULATED), np.int64)
    found = [
        evaluated(statistic, weights, rng.random((_MOST_SIMULATED, statistic.columns)))[0]
        for _ in range(_SAMPLES)
    ]
    spread = np.var(found, axis=0, ddof=1) * _MOST_SIMULATED
    return tuple(float(each) for each in spread)
