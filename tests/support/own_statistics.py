"""User-defined statistics, as a user writes them: honest ones, and ones that lie."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from statpress.configs.requests import user_defined


def imported(said: dict[str, Any], noun: str = "statistic") -> dict[str, Any]:
    """Knobs with the object that their ``function`` names, if they name one."""
    if "function" not in said:
        return said
    return said | {"function": user_defined(said["function"], noun)}


@dataclass(frozen=True)
class SecondMoment:
    """The mean of squares: one record moves it by at most 1/m."""

    columns: int = 1
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (0.0, 1.0)

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return weights @ columns[:, :1] ** 2 / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class BothMeans(SecondMoment):
    """Two means: in Euclidean length they move by at most sqrt(2)/m, below 17/12 of 1/m."""

    columns: int = 2
    dimension: int = 2
    constant: Fraction = Fraction(17, 12)
    unbiased: bool = True

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return weights @ columns / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class ThreeMeans(BothMeans):
    """Three means: in Euclidean length they move by at most sqrt(3)/m."""

    columns: int = 3
    dimension: int = 3
    constant: Fraction = Fraction(7, 4)


@dataclass(frozen=True)
class FalselyUnbiased(SecondMoment):
    """The variance with m: its mean over subsets is smaller than its value on all records."""

    unbiased: bool = True

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        share = weights / weights.sum(axis=1, keepdims=True)
        return share @ columns[:, :1] ** 2 - (share @ columns[:, :1]) ** 2


class Largest(SecondMoment):
    """Moves by 1, and not by 1/m."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.max(np.where(weights > 0, columns[:, 0], 0.0), axis=1)[:, None]


class SlightlyMore(SecondMoment):
    """Off by a thousandth."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return 1.001 * super().evaluate(weights, columns)


class Flat(SecondMoment):
    """An array of the wrong shape."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return super().evaluate(weights, columns)[:, 0]


class Failing(SecondMoment):
    """An error of its own."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError


class NeverFinite(SecondMoment):
    """No number, ever: it becomes the lower bound."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.full((len(weights), 1), np.nan)


@dataclass(frozen=True)
class Unbounded(SecondMoment):
    """Without finite bounds."""

    bounds: tuple[float, float] = (0.0, float("inf"))


@dataclass(frozen=True)
class Floating(SecondMoment):
    """A constant that is no exact number."""

    constant: float = 1.0  # type: ignore[assignment]


class Cells(SecondMoment):
    """Takes cells for records, whatever their weights."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return np.full((len(weights), 1), columns[:, 0].mean())


class Occupied(SecondMoment):
    """Takes occupied cells for records."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        there = weights > 0
        return (there @ columns[:, :1]) / there.sum(axis=1, keepdims=True)


class Centring(SecondMoment):
    """Writes to what it is given, which is then centred twice."""

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        columns -= 0.5
        return super().evaluate(weights, columns)


@dataclass(frozen=True)
class Far(SecondMoment):
    """Bounds so far away that a step of the noise's grid is lost in a double."""

    bounds: tuple[float, float] = (0.0, 1e12)


second_moment, both_means, largest, slightly_more = (
    SecondMoment(), BothMeans(), Largest(), SlightlyMore()
)  # fmt: skip
cells, occupied, centring, far = Cells(), Occupied(), Centring(), Far()
three_means, falsely_unbiased = ThreeMeans(), FalselyUnbiased()
flat, failing, never_finite, unbounded, floating = (
    Flat(), Failing(), NeverFinite(), Unbounded(), Floating()
)  # fmt: skip
