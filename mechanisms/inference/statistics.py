"""Statistics of records in [0, 1] whose move under a replacement is known at every size.

Each has **sensitivity c/m on m records**: if one of the m records is replaced, the statistic
moves by at most c/m (in Euclidean length). Columns are scaled to [0, 1] by declared bounds
first. With r the mean of the other m - 1 records, a and b the old and new value:

* mean: (a - b)/m, so c = 1. A proportion is the mean of an indicator, a count or a sum n times
  a mean.
* variance (with m - 1): the variance of the others times (m - 2)/(m - 1) plus (a - r)^2/m, so
  it moves by |(a - r)^2 - (b - r)^2|/m, and c = 1 since both squares are in [0, 1].
* covariance (with m - 1): likewise by |(a - r)(a' - r') - (b - r)(b' - r')|/m. For r, r' in
  [0, 1] such products lie between -max(r(1-r'), (1-r)r') and max(rr', (1-r)(1-r')), whose
  distance is one of r, r', 1-r, 1-r': c = 1.

A user-defined statistic is any object of this protocol. What it declares is believed, so
``largest_move`` searches for neighbours that belie it; run it before the first release. It may
also declare ``unbiased = True``: its mean over all subsets of a size is its value on all records,
as for means, and for variances and covariances with m - 1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.errors import ConfigError

_Doubles = NDArray[np.float64]
Weights = NDArray[np.int64]
_BLOCK = 1 << 16


class Statistic(Protocol):
    """A function of weighted records with a declared sensitivity."""

    @property
    def columns(self) -> int:
        """How many columns it takes."""

    @property
    def dimension(self) -> int:
        """How many numbers it gives."""

    @property
    def constant(self) -> Fraction:
        """The c of its sensitivity c/m on any m >= 2 records, see ``evaluated``."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which each number lies; what does not is clipped."""

    def evaluate(self, weights: Weights, columns: _Doubles) -> _Doubles:
        """The statistic of several weightings of the same cells.

        Args:
            weights: int64[B, k], records per cell; all rows have the same sum m >= 2.
            columns: float64[k, columns], values in [0, 1] of each cell.

        Returns:
            float64[B, dimension].
        """


@dataclass(frozen=True)
class Mean:
    """The mean of one column."""

    columns: int = 1
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (0.0, 1.0)
    unbiased: bool = True

    def evaluate(self, weights: Weights, columns: _Doubles) -> _Doubles:
        found: _Doubles = _sums(weights, columns[:, 0]) / weights.sum(axis=1, keepdims=True)
        return found


@dataclass(frozen=True)
class Covariance:
    """The covariance of two columns, with m - 1."""

    columns: int = 2
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (-1.0, 1.0)
    unbiased: bool = True

    def evaluate(self, weights: Weights, columns: _Doubles) -> _Doubles:
        x, y = columns[:, 0] - 0.5, columns[:, 1] - 0.5
        m = weights.sum(axis=1)
        sums = _sums(weights, x, y, x * y)
        product = sums[:, 2] - sums[:, 0] * sums[:, 1] / m
        return np.asarray(product / (m - 1), np.float64)[:, None]


@dataclass(frozen=True)
class Variance:
    """The variance of one column, with m - 1."""

    columns: int = 1
    dimension: int = 1
    constant: Fraction = Fraction(1)
    bounds: tuple[float, float] = (0.0, 1.0)
    unbiased: bool = True

    def evaluate(self, weights: Weights, columns: _Doubles) -> _Doubles:
        return Covariance().evaluate(weights, np.repeat(columns[:, :1], 2, axis=1))


def is_unbiased(statistic: Statistic) -> bool:
    """Whether it declares that its mean over all subsets of a size is its value on all records."""
    return getattr(statistic, "unbiased", False) is True


def _sums(weights: Weights, *columns: _Doubles) -> _Doubles:
    """Weighted sums float64[B, c] of c columns, by blocks of cells that stay in the cache.

    BLAS would share few long rows among threads that wait for one another.
    """
    found = np.zeros((len(weights), len(columns)))
    step = 1 + _BLOCK // max(len(weights), 1)
    for start in range(0, weights.shape[1], step):
        part = slice(start, start + step)
        values = np.stack([column[part] for column in columns])
        found += np.einsum("bk,ck->bc", weights[:, part].astype(np.float64), values)
    return found


def evaluated(statistic: Statistic, weights: Weights, columns: _Doubles) -> _Doubles:
    """The statistic, clipped to its bounds; what is not a number becomes the lower one.

    So does what fails, each row by itself: no value of private records can stop a release.
    Clipping cannot enlarge a move; the lower bound in place of a value could, so it is of the
    statistic completed in this way that the declared sensitivity must hold. The statistic cannot
    write to what it is given, which the next evaluation is given too.
    """
    low, high = statistic.bounds
    given = weights.view(), columns.view()
    for each in given:
        each.flags.writeable = False
    try:
        found = np.asarray(statistic.evaluate(*given), np.float64)
    except Exception:
        found = np.concatenate([_of_row(statistic, row[None, :], given[1]) for row in given[0]])
    if found.shape != (len(weights), statistic.dimension):
        raise ConfigError("The statistic does not give an array of its declared dimension.")
    return np.clip(np.where(np.isfinite(found), found, low), low, high)


def _of_row(statistic: Statistic, row: Weights, columns: _Doubles) -> _Doubles:
    """The statistic of one row of weights; NaN if it fails."""
    try:
        return np.asarray(statistic.evaluate(row, columns), np.float64)
    except Exception:
        return np.full((1, statistic.dimension), np.nan)


def scaled(values: _Doubles, lower: float, upper: float) -> _Doubles:
    """Public cell values in [0, 1] by declared bounds, clamped.

    Raises:
        ConfigError: Bounds missing, not finite or not in order, or a value that is not a number.
    """
    if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise ConfigError("An estimate needs finite lower and upper bounds, in order.")
    if np.any(np.isnan(values)):
        raise ConfigError("A cell of a column of an estimate has no value.")
    found: _Doubles = (np.clip(values, lower, upper) - lower) / (upper - lower)
    return found


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


def _alone(statistic: Statistic, records: _Doubles) -> _Doubles:
    """The statistic float64[dimension] of records float64[m, columns], equal ones in one cell."""
    cells = records[np.lexsort(records.T[::-1])]
    first = np.flatnonzero(np.append(True, np.any(cells[1:] != cells[:-1], axis=1)))
    counts = np.diff(np.append(first, len(cells)))
    return np.asarray(evaluated(statistic, counts[None, :].astype(np.int64), cells[first])[0])
