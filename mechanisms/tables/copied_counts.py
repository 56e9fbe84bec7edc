"""Copies of a noisy table: counts of all cells as they may be in truth, given the noise.

Records that are drawn from one noisy table hide its noise, so intervals from them are too short.
Copies show it, as those of ``mechanisms.marginals.copies`` do: each is a draw of the confidential
table, whose records are combined by Rubin's rule (1987, Multiple Imputation for Nonresponse in
Surveys, 3.1). They are a function of what was released and cost nothing.

**A cell** of true count x has the noisy count y = x + e, e taken as normal with the stated error s.
Counts of cells of one table are either 0 or spread out, which the noisy counts tell together
(empirical Bayes): x is 0, or exponential with one of ``_MEANS`` means, with probabilities that
maximise the likelihood of all y. With a mean m,

    p(y) = exp(s^2/(2 m^2) - y/m) Phi((y - s^2/m)/s) / m,

and x given y is normal about y - s^2/m with error s, cut off at 0. So empty cells stay empty, and
a large count moves by s^2/m, which is little.

**Margins.** What is little in a cell adds up in a sum of many. Every column, and every pair of
columns, is drawn in the same way from its own sums, whose errors are s times the root of the number
of cells that they add up. The pairs are then scaled to the columns, and the cells to the pairs, by
iterative proportional fitting. Without it the columns of a table of four are covered in half of all
cases where they should be in 95 of 100.

**Trends.** Counts that are cut off at 0 in the corners of a pair weaken its trend. So the
covariance of two columns with an order, and of one with an order the mean at every code of the
other, are those of counts that are not cut off, y less another draw of the noise: the counts c of
the pair are multiplied by exp(l w), with w the weight of a cell in such a sum and l by Newton's
method, between two rounds of the fitting.

Counts are whole numbers in the end, and add up to the records.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Codes, Column, Ordinal
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.rounding import round_systematically

Floats = NDArray[np.float64]

_MEANS, _ROUNDS = 12, 100
_CERTAIN = 0.5  # of a cell's weight, spread over all kinds of counts: no kind is ruled out
_FITTED, _MOST_FITS, _MOST_SHIFTS = 1e-6, 40, 20
_LEAST = 1e-9  # of a cell, so that a margin can be met that was drawn above 0
_LEAST_ERROR = 1e-3  # in records; of a budget that hides nothing the stated error is 0


@dataclass(frozen=True, eq=False)
class _Counts:
    """Counts that have noise, and what they may be.

    Attributes:
        values: float64[K], unbiased.
        errors: float64[K], standard errors, above 0.
        means: float64[m], of the exponential laws.
        kinds: float64[K, m + 1], probabilities that a count is 0, or of each law.
        places: int64[L], of each cell its row in ``values``; None where every cell has its own.
    """

    values: Floats
    errors: Floats
    means: Floats
    kinds: Floats
    places: Codes | None

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> _Counts:
        """Fit the probabilities of all kinds of counts."""
        from scipy.special import log_ndtr

        places, times = None, np.ones(len(values), dtype=np.int64)
        if len(values) and errors.min() == errors.max():  # many cells have the same count
            values, first, places, times = np.unique(
                values, return_index=True, return_inverse=True, return_counts=True
            )
            errors = errors[first]
        means = np.geomspace(
            float(errors.min()) / 4, max(float(values.max()), float(errors.max())), _MEANS
        )
        y, s = values[:, None], errors[:, None]
        logs = np.empty((len(values), 1 + _MEANS))
        logs[:, 0] = -0.5 * (values / errors) ** 2 - np.log(errors * math.sqrt(2 * math.pi))
        logs[:, 1:] = 0.5 * (s / means) ** 2 - y / means - np.log(means)
        logs[:, 1:] += log_ndtr((y - s**2 / means) / s)
        likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
        chances = np.full(1 + _MEANS, 1 / (1 + _MEANS))
        for _ in range(_ROUNDS):
            kinds = likelihoods * chances
            kinds /= kinds.sum(axis=1, keepdims=True)
            chances = times @ kinds + _CERTAIN / (1 + _MEANS)
            chances /= chances.sum()
        return cls(values, errors, means, kinds, places)

    @property
    def rows(self) -> Codes:
        """int64[L]: of each cell its row in ``values``."""
        return np.arange(len(self.values)) if self.places is None else self.places

    def uncut(self, rng: np.random.Generator) -> Floats:
        """Noisy counts less another draw of the noise, float64[L], which may be negative."""
        rows = self.rows
        return self.values[rows] + self.errors[rows] * rng.standard_normal(len(rows))

    def draw(self, rng: np.random.Generator) -> Floats:
        """Counts of all cells, float64[L], at least 0."""
        from scipy.special import log_ndtr, ndtri_exp

        rows = self.rows
        reached = self.kinds.cumsum(axis=1)[:, :-1][rows]
        kind = (rng.random((len(rows), 1)) > reached).sum(axis=1)
        y, s = self.values[rows], self.errors[rows]
        middle = y - s**2 / np.append(np.inf, self.means)[kind]
        # By the upper tail of the law that is cut off at 0, in logarithms: far tails keep digits.
        tail = np.log1p(-rng.random(len(rows))) + log_ndtr(middle / s)
        drawn = np.maximum(middle - s * ndtri_exp(tail), 0.0)
        return np.where(kind > 0, drawn, 0.0)


@dataclass(frozen=True, eq=False)
class _Margin:
    """The sums over cells of a table for some of its columns, one or two.

    Attributes:
        counts: The sums, and what they may be.
        inside: int64[K], the sum that each cell of the table is in.
        codes: Of each column the codes int64[S] of the sums, by their order among those that occur.
        scores: Of each column that has an order the place of the sums along it, float64[S]; NaN of
            codes without one.
    """

    counts: _Counts
    inside: Codes
    codes: Sequence[Codes]
    scores: Sequence[Floats | None]

    @classmethod
    def of(
        cls, columns: Sequence[Column], codes: Sequence[Codes], estimates: Floats, error: float
    ) -> _Margin:
        """Of the codes int64[K] of every cell, with its count and the error of each."""
        sizes = [column.size for column in columns]
        whole = np.ravel_multi_index(tuple(codes), sizes)
        present, inside, added = np.unique(whole, return_inverse=True, return_counts=True)
        sums = np.bincount(inside, weights=estimates).astype(np.float64)
        of_sums = np.unravel_index(present, sizes)
        return cls(
            _Counts.of(sums, error * np.sqrt(added)),
            inside,
            [np.unique(each, return_inverse=True)[1] for each in of_sums],
            [
                None if (places := _places(column)) is None else places[each]
                for column, each in zip(columns, of_sums, strict=True)
            ],
        )

    def draw(self, rng: np.random.Generator, sides: Sequence[Floats], total: int) -> Floats:
        """Counts float64[S] that have the sums of their columns, and the trends of the noisy ones.

        Args:
            rng: Public.
            sides: What was drawn for each of two columns; none for a single one.
            total: What all add up to.
        """
        drawn = self.counts.draw(rng)
        if not sides:
            return _fitted(drawn, (), (), total)
        both = list(zip(self.codes, sides, strict=True))
        free = self.counts.uncut(rng)
        for _ in range(_MOST_SHIFTS):  # to the drawn columns, each by the same amount in its cells
            for codes, wanted in both:
                missed = wanted - np.bincount(codes, weights=free)
                free = free + (missed / np.bincount(codes))[codes]
        return _fitted(drawn, both, self._trends(free, sides), total)

    def _trends(self, free: Floats, sides: Sequence[Floats]) -> list[_Trend]:
        """Sums to keep, of counts that may be negative."""
        weights: list[Floats | None] = []
        for scores, codes, wanted in zip(self.scores, self.codes, sides, strict=True):
            if scores is None:
                weights.append(None)
                continue
            placed = np.isfinite(scores)
            times = (wanted / np.bincount(codes))[codes] * placed
            middle = (np.where(placed, scores, 0.0) @ times) / max(float(times.sum()), _LEAST)
            weights.append(np.where(placed, scores - middle, 0.0))
        one, other = weights
        if one is not None and other is not None:
            kept = [(np.zeros(len(free), dtype=np.int64), one * other)]
        else:
            at = 0 if one is not None else 1
            own = weights[at]
            kept = [] if own is None else [(self.codes[1 - at], own)]
        return [
            _Trend(groups, each, np.bincount(groups, weights=each * free).astype(np.float64))
            for groups, each in kept
        ]


@dataclass(frozen=True, eq=False)
class _Trend:
    """Weighted sums of counts that are kept.

    Attributes:
        groups: int64[S], the sum that a count is in.
        weights: float64[S].
        wanted: float64[G], the sums.
    """

    groups: Codes
    weights: Floats
    wanted: Floats

    def nearer(self, counts: Floats) -> Floats:
        """Counts after a step of Newton's method, float64[S]."""
        missed = self.wanted - np.bincount(self.groups, weights=self.weights * counts)
        slope = np.bincount(self.groups, weights=self.weights**2 * counts)
        longest = max(float(np.abs(self.weights).max()), _LEAST)
        step = np.clip(missed / np.maximum(slope, _LEAST), -1 / longest, 1 / longest)
        return np.asarray(counts * np.exp(step[self.groups] * self.weights))


@dataclass(frozen=True, eq=False)
class CopiedCounts:
    """Draws of all cells of a table, given its noisy counts.

    Attributes:
        total: Records of each copy.
        cells: The counts of cells.
        columns: The sums of every column.
        pairs: By the places of its columns the sums of every pair.
    """

    total: int
    cells: _Counts
    columns: Sequence[_Margin]
    pairs: Mapping[tuple[int, int], _Margin]

    @classmethod
    def of(
        cls, domain: Domain, cells: Codes, estimates: Floats, error: float, total: int
    ) -> CopiedCounts:
        """From unbiased counts with independent errors.

        Args:
            domain: Without absent records.
            cells: int64[K], ascending: every possible cell.
            estimates: float64[K], in records.
            error: The standard error of each, in records.
            total: Records of each copy.
        """
        error = max(error, _LEAST_ERROR)
        columns, codes = domain.columns, [domain.codes(cells, name) for name in domain.names]

        def margin(*places: int) -> _Margin:
            own = [columns[c] for c in places], [codes[c] for c in places]
            return _Margin.of(*own, estimates, error)

        return cls(
            total,
            _Counts.of(estimates.astype(np.float64), np.full(len(estimates), error)),
            [margin(c) for c in range(len(columns))],
            {pair: margin(*pair) for pair in itertools.combinations(range(len(columns)), 2)},
        )

    def draw(self, rng: np.random.Generator) -> Codes:
        """Records in every cell, int64[K], which add up to the total."""
        columns = [column.draw(rng, (), self.total) for column in self.columns]
        sides = [
            (pair.inside, pair.draw(rng, [columns[c] for c in places], self.total))
            for places, pair in self.pairs.items()
        ]
        if len(columns) > 2:
            found = _fitted(self.cells.draw(rng), sides, (), self.total)
        else:  # the cells are those of the only pair, or column
            inside, of_cells = sides[0] if sides else (self.columns[0].inside, columns[0])
            found = of_cells[inside]
        return round_systematically(found, self.total)


def _places(column: Column) -> Floats | None:
    """The number, or place in the order, of each code, float64[k]; NaN of one without; or None."""
    if isinstance(column, Categorical) and not isinstance(column, Ordinal):
        return None
    codes = np.arange(column.size)
    without = column.is_missing(codes)
    if column.other_code is not None:
        without = without | (codes == column.other_code)
    decoded = column.decode(codes).tolist()
    numbers = all(
        isinstance(value, (int, float))
        for value, out in zip(decoded, without, strict=True)
        if not out
    )
    values = np.array(
        [math.nan if out else float(value) if numbers else at
         for at, (value, out) in enumerate(zip(decoded, without, strict=True))]
    )  # fmt: skip
    return values


def _fitted(
    counts: Floats,
    sides: Sequence[tuple[Codes, Floats]],
    trends: Sequence[_Trend],
    total: int,
) -> Floats:
    """Counts scaled to sums over cells, and then to the total, by iterative proportional fitting.

    Args:
        counts: float64[K], at least 0.
        sides: Of each the place int64[K] that a cell is added up in, and the sums float64[S].
        trends: Sums that are kept besides.
        total: What all cells add up to.
    """
    found = counts + _LEAST
    for _ in range(_MOST_FITS if sides else 0):
        before = found
        for trend in trends:
            found = trend.nearer(found)
        for places, wanted in sides:
            sums = np.bincount(places, weights=found, minlength=len(wanted))
            found = found * (wanted / np.maximum(sums, _LEAST**2))[places]
        if np.abs(found - before).sum() <= _FITTED * total:
            break
    whole = float(found.sum())
    if not whole:  # all sums were drawn as 0
        return np.full(len(found), total / len(found))
    return found * (total / whole)
