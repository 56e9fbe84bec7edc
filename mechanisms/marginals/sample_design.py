"""The variance that a declared design of a survey gives sums over the records of a sample.

Records are taken to be drawn independently within strata, or clusters of them, with replacement or
as few of many. Of sums F_h over the n_h records of strata h the variance is

    sum over strata h of n_h / (n_h - 1) (sum over their records of f^2 - F_h^2 / n_h),

and with m_h clusters of a stratum, which hold the sums F_c, at least

    sum over strata h of m_h / (m_h - 1) sum over clusters c of (F_c - mean)^2

(Wolter 2007, Introduction to Variance Estimation, 2nd edition, 2.4; doi 10.1007/978-0-387-35099-8).
Strata of one record, or of one cluster, are collapsed (2.5 there). Ratios and coefficients have it
by linearisation (Binder 1983, doi 10.2307/1402588).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.marginals.target_tables import Floats, Integers


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
