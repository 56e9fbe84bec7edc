"""What is released of an estimate: raw numbers, intervals and sampling distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mechanisms.inference.fieller import INTERVAL
from mechanisms.inference.intervals import normal_quantile

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
        shape: What the confidence set is, of mechanisms.inference.fieller.SHAPES.
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
