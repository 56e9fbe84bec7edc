"""Answers with intervals from what was released, for any marginal and any sum of its cells.

Answers come from the measurements and never from the records. Their noise is a sum of discrete
normal variables with known variances (mechanisms.marginals.residuals), so the intervals are exact
up to the grid where the amounts of the steps did not depend on noise; where scores chose the
pairs, they hold given that choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.errors import ConfigError
from mechanisms.marginals.residuals import Residuals
from mechanisms.records.target_table import Floats, Group


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An unbiased estimate in records; it may be negative.

    Attributes:
        value: The estimate.
        standard_error: Of its noise, and of sampling if asked for.
        lower: Lower end of the interval.
        upper: Upper end.
        confidence: Of the interval.
    """

    value: float
    standard_error: float
    lower: float
    upper: float
    confidence: float


def query(
    residuals: Residuals,
    columns: Sequence[int],
    weights: ArrayLike,
    *,
    confidence: float = 0.95,
    population: bool = False,
) -> Answer:
    """The sum of weights times the cells of a marginal.

    Args:
        residuals: ``NoisyMarginals.residuals()``.
        columns: Positions of the marginal's columns, in any order.
        weights: float64 of the shape of their sizes: 1 for the cells to add up.
        confidence: Of the interval, between 0 and 1.
        population: Whether the records are a simple random sample of which more is to be said;
            the variance of sampling is added then.

    Raises:
        NotMeasuredError: No measured table holds these columns together.
        ConfigError: A column occurs twice or does not exist, the weights do not fit, or the
            confidence is not between 0 and 1.
    """
    group, ordered = _ordered(residuals, columns, weights)
    if not 0 < confidence < 1:
        raise ConfigError("A confidence lies between 0 and 1.", where="confidence")
    table = residuals.table(group)
    value = float((table * ordered).sum())
    variance = residuals.query_variance(group, ordered)
    if population:
        # Unbiased shares: those cut off at 0 would add up the noise of many cells.
        n = max(float(residuals.values[()]), 1.0)
        mean = value / n
        square = float((table * ordered**2).sum()) / n - mean**2
        variance += n * max(square, 0.0)
    error = math.sqrt(variance)
    reach = _quantile(confidence) * error
    return Answer(
        value=value,
        standard_error=error,
        lower=value - reach,
        upper=value + reach,
        confidence=confidence,
    )


def table_with_errors(residuals: Residuals, group: Group) -> tuple[Floats, float]:
    """A marginal's unbiased estimates, in records, and the standard error of each cell.

    Raises:
        NotMeasuredError: No measured table holds these columns together.
    """
    return residuals.table(group), math.sqrt(residuals.table_variance(group))


def _ordered(
    residuals: Residuals, columns: Sequence[int], weights: ArrayLike
) -> tuple[Group, Floats]:
    """The group ascending, and the weights with their axes in that order."""
    given = np.asarray(weights, dtype=np.float64)
    if len(set(columns)) < len(columns) or not all(
        0 <= column < len(residuals.sizes) for column in columns
    ):
        raise ConfigError("Name existing columns, each once.", where="columns")
    if given.shape != tuple(residuals.sizes[column] for column in columns):
        raise ConfigError("There is one weight for each cell of the columns.", where="weights")
    if not np.isfinite(given).all():
        raise ConfigError("A weight is not a finite number.", where="weights")
    order = sorted(range(len(columns)), key=lambda i: columns[i])
    return tuple(columns[i] for i in order), given.transpose(order)


def _quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + confidence) / 2))
