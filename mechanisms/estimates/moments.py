"""Estimates from noisy sums of functions of records: the frame of three mechanisms.

``joint_moments`` releases the first two moments of one column, ``pair_moments`` moments of one or
two columns up to degree 4, ``regression_moments`` the first two of several columns. All have
intervals by normal approximation, and for some statistics of the first two limits that hold for
every population (mechanisms.estimates.guaranteed).

**Units with several records.** A unit's records x_1 .. x_k add F = sum of a_i f(x_i) to the sums, f
the functions of one record. *Each record counts one* (``per: record``): a unit is padded to c
records, absent ones have a fixed f too, and all a_i are 1. By the triangle inequality, record by
record, a replaced unit moves the sums by at most c times what a replaced record does, and by as
much where all of its records are alike. *Each unit counts one* (``per: unit``): the a_i are not
negative and add up to 1. For another unit's G = sum of b_j f(y_j), |F - G| = |sum of a_i b_j
(f(x_i) - f(y_j))| is at most the largest |f(x) - f(y)|: the loss is that of one record, whatever c
is.

*Totals.* For a sum a unit may also count by what all of its records hold, clamped to declared
bounds: a single value, of which everything holds that holds of a record's.

*Sampling.* Units are independent, their records are not. What a unit adds is the mean of f over its
records, weighted by the a_i, times c or 1. By the law of total variance the variance of such means
of g(f), g linear, is at most that of g(f(x)) for one x drawn so from each unit, and that is what
the released moments estimate. It is divided by the number of units, not of records: intervals are
as wide as if the records of a unit were alike, and cover more often than they say where these
differ.

**How far rare values can bring the coverage of a normal interval down**, by public quantities. Of n
records in [0, 1] nearly all have one value and a few, about Poisson(L) of them, another one further
off: as n grows, these are the populations whose sums are furthest from normal, and no public bound
on the records rules them out. Their skewness is hidden by noise of a few records, and without noise
no normal interval covers at its level for all L. In units of the jump from the one value to the
other, with noise of deviation s in the sum and c s in its estimated variance, the interval holds
the truth if

    (K - L + s e)^2 <= z^2 (max(K + c s e', 0) + c s + s^2),   K ~ Poisson(L),

which is summed over K and over the noise; the least coverage over a grid of L is what a plan
states. An interval is *approximate* if that is below its level by more than ``most_shortfall``: a
fact of the noise and the level, and not of any data.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.estimates.estimand import Estimand, EstimandKnobs
from statpress.mechanisms.estimates.estimate import EstimateMechanism, Inference, estimand_for
from statpress.mechanisms.estimates.fieller import Floats
from statpress.mechanisms.mechanism import Target, check_frame


def most_shortfall(level: float) -> float:
    """By how much the coverage of an interval may be below its level for rare values.

    1.5 points, and no more than makes the miss rate 1.3 times the nominal one: .003 at .99.
    """
    return min(0.015, 0.3 * (1 - level))


MANY = 5.0
"""Noise in jumps beyond which rare values are hidden, at levels up to .999."""

RATES = 24
"""How many rates of rare values coverage is computed at."""

_NOISE, _OTHER, _MOST_COUNTS = 121, 5, 60


@dataclass(frozen=True, kw_only=True)
class MomentsEstimate(EstimateMechanism):
    """Estimates from noisy sums of functions of records; all parameters are public.

    Attributes:
        moments: The noise on the sums, of columns in [0, 1].
        guaranteed: Whether the interval covers for every population.
        of_unit: Records of a unit that count one each, c; 1 where each unit counts one.
        n_records: Of what it was calibrated for; None where it was rebuilt from its description.
    """

    moments: Any
    serves_units: ClassVar[bool] = True

    guaranteed: bool = False
    of_unit: int = 1
    n_records: int | None = field(default=None, compare=False)

    @classmethod
    @abstractmethod
    def calibrated(cls, estimand: Estimand, target: Target) -> dict[str, Any]:
        """The fields of a subclass, with the least noise that meets the target."""

    @property
    @abstractmethod
    def worst_coverage(self) -> float:
        """Coverage of the interval for populations whose rare values decide."""

    @abstractmethod
    def expected_width(self, n_records: int, *, guaranteed: bool) -> float:
        """The width of the last interval for records spread evenly, of columns in [0, 1]."""

    @property
    def has_guarantee(self) -> bool:
        """Whether there is an interval that covers for every population."""
        return True

    @classmethod
    def calibrate(cls, knobs: EstimandKnobs, target: Target) -> Self:
        """The least noise that meets the target.

        Raises:
            ConfigError: The statistic is not one of these, or the columns do not suit it.
            InfeasibleBudgetError: The budget has no delta.
        """
        cls.check_serves(knobs)
        estimand = estimand_for(knobs, target, cls.name, several=True)
        return cls(
            **cls.calibrated(estimand, target),
            guaranteed=knobs.guaranteed,
            of_unit=target.unit_records,
            estimand=estimand,
            n_records=target.n_records,
        )

    def whole_loss(self) -> PrivacyLoss:
        """The privacy loss of all sums."""
        loss: PrivacyLoss = self.moments.loss()
        return loss

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss of all sums, to units of so many records; takes no data."""
        check_frame(n_records=n_records, n_cells=n_cells, unit_records=unit_records)
        return GaussianLoss(Fraction(0), self.moments.loss().mu_squared * unit_records**2)

    @property
    def takes_parts(self) -> bool:
        """Whether each unit counts one by parts; a guarantee takes a record drawn of each unit."""
        estimand = self.estimand
        if estimand is None or estimand.knobs.total is not None:
            return False
        return estimand.knobs.per == "unit" and not self.guaranteed

    @property
    def guarantee_cost(self) -> float | None:
        """Expected width of a guaranteed interval over that of one by approximation, if any."""
        if self.n_records is None or not self.has_guarantee:
            return None
        certain, normal = (
            self.expected_width(self.n_records, guaranteed=guaranteed)
            for guaranteed in (True, False)
        )
        return certain / normal

    @property
    def inference(self) -> Inference:
        """How the coverage of the interval is known."""
        if self.guaranteed:
            return "guaranteed"
        return inference_words(self.worst_coverage, self.terms.confidence)

    def remarks(self) -> Iterator[tuple[str, str]]:
        """How far rare values bring the coverage down, and what a guarantee costs."""
        worst, level = self.worst_coverage, self.terms.confidence
        if not self.guaranteed and inference_words(worst, level) == "approximate":
            yield (
                "the interval is",
                f"approximate: where rare values decide it may cover with {worst:.3f} in place "
                f"of {level:g}",
            )
        cost = self.guarantee_cost
        if cost is not None:
            words = "guaranteed: it is" if self.guaranteed else "a guaranteed one would be"
            yield "width for every population", f"{words} {cost:.2f} times that by approximation"

    def described(self) -> dict[str, str | int]:
        """A guarantee and larger units, as part of a description; by default nothing."""
        of_unit = {"of_unit": self.of_unit} if self.of_unit > 1 else {}
        return {**({"inference": "guaranteed"} if self.guaranteed else {}), **of_unit}

    @staticmethod
    def read(description: Mapping[str, object]) -> dict[str, Any]:
        """The fields that ``described`` wrote."""
        return {
            "guaranteed": description.get("inference") == "guaranteed",
            "of_unit": int(str(description.get("of_unit", 1))),
        }


def inference_words(worst: float, level: float) -> Inference:
    """What an interval of this worst coverage is called."""
    return "asymptotic" if worst >= level - most_shortfall(level) else "approximate"


class RareValues(NamedTuple):
    """How many rare values there are, and the noise, on grids."""

    counts: Floats
    masses: Floats  # of the counts, Poisson
    points: Floats
    densities: Floats  # of the points, normal; they add up to 1


def rare_values(rate: float) -> RareValues:
    """Counts with their Poisson masses, and normal points with theirs."""
    from scipy.special import gammaln

    reach = 7 * math.sqrt(rate) + 7
    every = np.arange(max(0, math.floor(rate - reach)), math.ceil(rate + reach) + 1)
    counts: Floats = every[:: max(1, len(every) // _MOST_COUNTS)].astype(np.float64)
    masses = np.exp(counts * math.log(rate) - rate - gammaln(counts + 1))
    points = np.linspace(-5, 5, _NOISE)
    normal = np.exp(-(points**2) / 2)
    return RareValues(counts, masses / masses.sum(), points, normal / normal.sum())


def other_noise() -> Iterator[tuple[float, float]]:
    """Points and masses of a second normal variable."""
    points, masses = np.polynomial.hermite_e.hermegauss(_OTHER)
    for x, w in zip(points, masses, strict=True):
        yield float(x), float(w / masses.sum())
