"""Weighted sums, and what the drawing of the sample adds to their errors.

**Of noisy tables.** The weight w_b of class b multiplies every function g of a record's cells, so a
weighted sum is one of the tables that hold the class too, with the exact covariance of their noise
(mechanisms.marginals.linear_moments). For the population that records were drawn from, f = w g adds

    sum over records of f f' - sum over strata h of F_h F_h' / n_h,

with F_h the sum of f over the n_h records of a stratum, all of them being one where none are
declared, and times n / (n - H) for H strata of n records: these are taken to be drawn independently
within strata (with replacement, or as few of many). One factor for all of them is too small where a
stratum of few records varies much more than the others. Nothing is taken off for a stratum whose
number of records the noise hides. Every cell of the column of clusters is a cluster that was drawn,
and strata with one are collapsed (Wolter 2007, 2.5). With clusters, of which m_h of a stratum were
drawn and hold the sums F_c, it is

    sum over strata h of m_h / (m_h - 1) sum over clusters c of (F_c - mean) (F_c - mean)',

and at least the former (Wolter 2007, Introduction to Variance Estimation, 2nd edition, 2.4;
doi 10.1007/978-0-387-35099-8). Ratios and coefficients have it by linearisation (Binder 1983,
doi 10.2307/1402588). Products of noisy sums are unbiased once the covariance of their noise is
taken off. Where the class, the columns of g and strata or clusters were not measured together, F is
taken as the mean weight of the stratum or cluster times the sum of g: within it weight and g are
taken as unrelated. A cluster is of the stratum that most of its records are in.

**Records of a sample**, such as those of a copy, have no noise, so that ``SampleDesign`` has the
factor n_h / (n_h - 1) for each stratum:

    sum over strata h of n_h / (n_h - 1) (sum over their records of f^2 - F_h^2 / n_h).

**Kish's factor.** Where the class and all columns of g were not measured together, the sum of w^2
over that of w multiplies what records of equal weights would add (Kish 1992, Weighting for unequal
Pi, Journal of Official Statistics 8).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.errors import NotMeasuredError
from statpress.mechanisms.marginals.linear_moments import (
    ONE,
    CellFunction,
    Moments,
    moments,
    positive,
    sampling,
)
from statpress.mechanisms.marginals.residuals import Residuals
from statpress.mechanisms.marginals.target_tables import Floats, Integers

_CLEAR = 4.0  # standard errors of its noise at which a stratum's number of records is known
_SUREST = 1 - 1e-12  # a level that normal quantiles can tell from 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights:
    """The weights of the records of combined tables, and how the records were drawn.

    Attributes:
        residuals: The combined tables.
        column: Position of the weight's classes.
        values: float64[k]: the weight of each class.
        strata: Position of the strata, if they are declared.
        cluster: Position of the clusters, if they are declared.
        total: The public sum of all weights in the population, if there is one: weighted totals
            are then scaled to it.
    """

    residuals: Residuals
    column: int
    values: Floats = field(repr=False)
    strata: int | None = None
    cluster: int | None = None
    total: float | None = None

    @property
    def of_record(self) -> CellFunction:
        """The weight of a record, by its class."""
        return CellFunction((self.column,), self.values)

    def sums(self, functions: Sequence[CellFunction]) -> Moments:
        """Weighted sums of functions, with the covariance of their noise.

        Raises:
            NotMeasuredError: No measured table holds the columns of one and the weight together.
        """
        return moments(self.residuals, [each * self.of_record for each in functions])

    @functools.cached_property
    def kish(self) -> float:
        """The sum of squared weights over that of weights."""
        weight = self.of_record
        squares, plain = moments(self.residuals, [weight * weight, weight]).values
        return max(float(squares), 0.0) / max(float(plain), 1e-300)

    @property
    def design(self) -> str:
        """How the sampling variance is made, in words."""
        named = [
            word
            for word, place in (("strata", self.strata), ("clusters", self.cluster))
            if place is not None
        ]
        return " and ".join(named) or "independent draws"

    def level(
        self, confidence: float, function: CellFunction | None = None, variance: float = 0.0
    ) -> float:
        """The confidence of a normal interval that is as wide as Student's with few clusters.

        Degrees of freedom are the clusters less the strata, or of one sum, whose variance by
        clusters has the noise of their sums too, those of Satterthwaite 1946
        (doi 10.2307/3002019): twice the squared variance over the variance of its estimate.

        Args:
            confidence: Of the interval that is asked for.
            function: Whose weighted sum it is for; None for any figure.
            variance: Of that sum, with its noise.
        """
        if self.cluster is None:
            return confidence
        from scipy.special import ndtr, stdtrit

        freedom = float(max(len(self._strata_of_clusters) - len(set(self._strata_of_clusters)), 1))
        if function is not None and variance > 0:
            try:
                between, noise = self._between([function])
            except NotMeasuredError:
                return confidence
            unsure = 2 * max(float(between[0, 0]), 0.0) ** 2 / freedom + float(noise[0])
            freedom = max(2 * variance**2 / max(unsure, 1e-300), 2.0)
        return min(2 * float(ndtr(stdtrit(freedom, (1 + confidence) / 2))) - 1, _SUREST)

    def sampling(self, functions: Sequence[CellFunction]) -> tuple[Floats, str]:
        """What sampling adds to the covariance of weighted sums, float64[m, m], and by what.

        Raises:
            NotMeasuredError: No measured table holds all columns and the weight together.
        """
        each = sampling(self.residuals, [function * self.of_record for function in functions])
        try:
            return self._of_design(functions, each), self.design
        except NotMeasuredError:
            return each, "independent draws"

    def _of_design(self, functions: Sequence[CellFunction], each: Floats) -> Floats:
        within, known, drawn = each, 0, 0.0
        for code in range(1 if self.strata is None else self.residuals.sizes[self.strata]):
            n, error, found = self._part(functions, self.strata, [code])
            drawn += max(n, 0.0)
            if n >= max(2.0, _CLEAR * error):
                within, known = within - _square(found) / n, known + 1
        within = positive(within) * max(drawn / max(drawn - known, 1.0), 1.0)
        if self.cluster is None:
            return within
        return within + positive(self._between(functions)[0] - within)

    def _between(self, functions: Sequence[CellFunction]) -> tuple[Floats, Floats]:
        """The covariance of weighted sums by clusters, and what noise adds to the variance of each.

        A square of a sum F with noise of variance v has the variance 2 v^2 + 4 v F^2 by that.
        """
        size = len(functions)
        between, noise = np.zeros((size, size)), np.zeros(size)
        for stratum in sorted(set(self._strata_of_clusters)):
            own = [c for c, h in enumerate(self._strata_of_clusters) if h == stratum]
            if len(own) < 2:
                continue
            sums = [self._part(functions, self.cluster, [c])[2] for c in own]
            together = _square(self._part(functions, self.cluster, own)[2])
            found = sum(map(_square, sums)) - together / len(own)
            between += len(own) / (len(own) - 1) * found
            variances = np.array([np.diag(each.covariance) for each in sums])
            noise += 2 * (variances**2).sum(axis=0)
            noise += 4 * variances.mean(axis=0) * np.maximum(np.diag(found), 0.0)
        return between, noise

    @functools.cached_property
    def _strata_of_clusters(self) -> list[int]:
        """Of every cluster the stratum that most of its records are in, collapsed."""
        assert self.cluster is not None
        if self.strata is None:
            return [0] * self.residuals.sizes[self.cluster]
        pair = (min(self.strata, self.cluster), max(self.strata, self.cluster))
        table = self.residuals.table(pair)
        return collapsed(table.argmax(axis=pair.index(self.strata)).tolist())

    def _part(
        self, functions: Sequence[CellFunction], column: int | None, codes: Sequence[int]
    ) -> tuple[float, float, Moments]:
        """Of the records with some codes their number, its standard error and weighted sums."""
        inside = ONE
        if column is not None:
            kept = np.zeros(self.residuals.sizes[column])
            kept[list(codes)] = 1.0
            inside = CellFunction((column,), kept)
        counted = moments(self.residuals, [inside])
        n, error = float(counted.values[0]), math.sqrt(max(counted.covariance[0, 0], 0.0))
        own = [function * inside for function in functions]
        try:
            return n, error, self.sums(own)
        except NotMeasuredError:
            plain, weight = moments(self.residuals, own), self.sums([inside])
        mean = float(weight.values[0]) / max(n, 1.0)
        spread = float(weight.covariance[0, 0]) / max(n, 1.0) ** 2
        noise = mean**2 * plain.covariance + spread * np.outer(plain.values, plain.values)
        return n, error, Moments(mean * plain.values, noise)


def _square(sums: Moments) -> Floats:
    """The products of sums, less what noise adds to them."""
    return np.asarray(np.outer(sums.values, sums.values) - sums.covariance)


def collapsed(strata: Sequence[int]) -> list[int]:
    """Of every cluster its stratum, with those of one cluster taken together.

    A single one is taken together with the smallest other.
    """
    sizes = Counter(strata)
    alone = [code for code, size in sizes.items() if size == 1]
    if len(alone) == 1 and len(sizes) > 1:
        alone.append(min(sizes.keys() - {*alone}, key=lambda code: (sizes[code], code)))
    return [alone[0] if code in alone else code for code in strata]


@dataclass(frozen=True, eq=False)
class SampleDesign:
    """How the records of a sample were drawn.

    Attributes:
        strata: int64[n], of every record; None of one stratum.
        cluster: int64[n]; None where single records were drawn.
    """

    strata: Integers | None = None
    cluster: Integers | None = None

    def variance(self, parts: Floats) -> Floats:
        """Of the sums of parts float64[n] or float64[n, k] over the records, float64[] or [k]."""
        n = len(parts)
        of_one = np.zeros(n, dtype=np.int64)
        strata = of_one if self.strata is None else _numbered(self.strata)
        drawn = strata
        if (np.bincount(strata) == 1).any():
            drawn = _numbered(np.array(collapsed(strata.tolist())))
        counts = np.bincount(drawn).astype(np.float64)
        sums, squares = _sums(parts, drawn), _sums(parts**2, drawn)
        shape = (-1, *[1] * (parts.ndim - 1))
        of_stratum = np.maximum(squares - sums**2 / counts.reshape(shape), 0.0)
        within = np.tensordot(counts / np.maximum(counts - 1, 1), of_stratum, 1)
        if self.cluster is None:
            return np.asarray(within)
        cluster = _numbered(self.cluster)
        totals, between = _sums(parts, cluster), np.zeros(np.shape(within))
        of_cluster = np.array(self._strata_of(strata, cluster))
        for stratum in np.unique(of_cluster):
            own = totals[of_cluster == stratum]
            if len(own) > 1:
                between += len(own) * own.var(axis=0, ddof=1)
        return np.asarray(np.maximum(within, between))

    @property
    def is_declared(self) -> bool:
        """Whether there is more to it than single records of one stratum."""
        return self.strata is not None or self.cluster is not None

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance: clusters less strata; infinite without clusters."""
        if self.cluster is None:
            return math.inf
        strata = np.zeros_like(self.cluster) if self.strata is None else self.strata
        found = self._strata_of(_numbered(strata), _numbered(self.cluster))
        return float(max(len(found) - len(set(found)), 1))

    def _strata_of(self, strata: Integers, cluster: Integers) -> list[int]:
        """Of every cluster the stratum that most of its records are in, collapsed."""
        table = np.zeros((int(cluster.max()) + 1, int(strata.max()) + 1), dtype=np.int64)
        np.add.at(table, (cluster, strata), 1)
        return collapsed(table.argmax(axis=1).tolist())


def _numbered(codes: NDArray[np.int64]) -> Integers:
    """Codes from 0 on, without those that no record has."""
    return np.asarray(np.unique(codes, return_inverse=True)[1], dtype=np.int64)


def _sums(parts: Floats, codes: Integers) -> Floats:
    """The sums of parts by code."""
    sums = np.zeros((int(codes.max()) + 1, *parts.shape[1:]))
    np.add.at(sums, codes, parts)
    return sums
