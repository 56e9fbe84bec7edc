"""Statistics of a declared sensitivity, as an estimate takes them: built in or user-defined.

A user-defined statistic is believed in what it declares, so it is first tried on public random
records (mechanisms.estimates.statistics.largest_move), always the same ones: what moves further
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

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import Estimand, checked
from statpress.mechanisms.estimates.joint_moments import column_with_zero, values_with_zero
from statpress.mechanisms.estimates.statistics import (
    Statistic,
    Terms,
    Weights,
    evaluated,
    is_unbiased,
    largest_bias,
    largest_move,
)
from statpress.mechanisms.mechanism import UserDefined

_Doubles = NDArray[np.float64]
_TRIAL_SIZES = (2, 5, 50)
_ROUNDING = 1 + 1e-9
_SAMPLES, _MOST_SIMULATED = 200, 500
_SEED = 20_220


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
    assert estimand.statistic.bounded is not None
    return estimand.statistic.bounded


def terms_of(estimand: Estimand, n_records: int) -> Terms:
    """What is stated of the estimates of a statistic of declared sensitivity."""
    spans = (column_with_zero(estimand),) if estimand.kept else estimand.arguments
    return Terms(
        estimand.statistic.quantities(estimand.quantity()),
        estimand.statistic.own_units(spans, n_records),
        estimand.knobs.confidence,
    )


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
    known = estimand.statistic.even_variance
    found = simulated_variances(statistic) if known is None else (known,)
    return tuple(each / n_records for each in found)


def check_all_count(estimand: Estimand, mechanism: str) -> None:
    """Refuse a mean of only some of the records, whose sensitivity is not that of a mean.

    Raises:
        ConfigError: Not all records count.
    """
    if estimand.kept and not estimand.statistic.is_total:
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


@functools.lru_cache(maxsize=64)
def _simulated(own: UserDefined) -> tuple[float, ...]:
    """Those of a user-defined statistic."""
    return simulated_variances(tried(own))


def simulated_variances(statistic: Statistic) -> tuple[float, ...]:
    """Variances times n of a statistic of evenly spread records, one a number of it."""
    rng = np.random.default_rng(_SEED)
    weights = np.ones((1, _MOST_SIMULATED), np.int64)
    found = [
        evaluated(statistic, weights, rng.random((_MOST_SIMULATED, statistic.columns)))[0]
        for _ in range(_SAMPLES)
    ]
    spread = np.var(found, axis=0, ddof=1) * _MOST_SIMULATED
    return tuple(float(each) for each in spread)
