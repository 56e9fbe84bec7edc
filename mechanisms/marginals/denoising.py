"""The two-way residuals of all pairs, denoised together.

The deviation of a pair's table from independence is taken as a random matrix with covariance
t C_a x C_b: the covariances C_j of columns are shared by all pairs of a column and learnt from
them (empirical Bayes), so a pair with much noise borrows from the others which contrasts of its
columns matter. The strength t of a pair is integrated over a grid, its score included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.marginals.allocation import MEAN_ABSOLUTE
from mechanisms.records.target_table import Floats, Group

_POINTS, _UPDATES = 16, 4
_LEAST_EIGENVALUE = 2e-3
_PRIOR_WEIGHT = 5.0
_MODEL_ERROR = 0.25


@dataclass(frozen=True)
class Score:
    """What is known of a pair's distance from independence, in records.

    Attributes:
        distance: The noisy score.
        bias: What the noise of the one-ways adds.
        sigma: Standard deviation of its noise.
    """

    distance: float
    bias: float
    sigma: float


@dataclass(frozen=True, eq=False)
class Deviation:
    """A denoised deviation from independence.

    Attributes:
        table: float64[k_a, k_b], in records; rows and columns add up to 0.
        signal: Squares of the posterior means, over the posterior variances: about the signal
            over the noise.
        error: Sum of the posterior variances of all cells, in squared records.
    """

    table: Floats
    signal: float
    error: float


@dataclass(frozen=True, eq=False)
class _Posterior:
    mean: Floats
    variance: Floats
    strength: float
    kept: float


@dataclass(frozen=True, eq=False)
class _Basis:
    vectors: Floats
    values: Floats
    spread: float  # sum of the cells' standard deviations

    @classmethod
    def of(cls, covariance: Floats) -> _Basis:
        values, vectors = np.linalg.eigh(covariance)
        kept = values > _LEAST_EIGENVALUE * values[-1]
        deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return cls(vectors[:, kept], values[kept], float(deviations.sum()))


def denoise(
    shares: Sequence[Floats],
    deviations: Mapping[Group, Floats],
    variances: Mapping[Group, float],
    scores: Mapping[Group, Score],
    similarities: Sequence[Floats],
) -> dict[Group, Deviation]:
    """Posterior means of all measured pairs.

    Args:
        shares: One-way shares of every column.
        deviations: By pair float64[k_a, k_b], centred noisy deviations from independence.
        variances: By pair the variance of their noise in every cell, before centring.
        scores: By pair, where there is one.
        similarities: Prior correlations float64[k, k] of the cells of every column.
    """
    if not deviations:
        return {}
    start = [_first_covariance(p, s) for p, s in zip(shares, similarities, strict=True)]
    bases = [_Basis.of(c) for c in start]
    for _ in range(_UPDATES):
        found = _all(deviations, variances, scores, bases)
        bases = [_Basis.of(c) for c in _updated(start, bases, found)]
    found = _all(deviations, variances, scores, bases)
    return {
        pair: Deviation(
            bases[pair[0]].vectors @ p.mean @ bases[pair[1]].vectors.T,
            float((p.mean**2).sum() / p.variance.sum()),
            float(p.variance.sum()),
        )
        for pair, p in found.items()
    }


def _all(
    deviations: Mapping[Group, Floats],
    variances: Mapping[Group, float],
    scores: Mapping[Group, Score],
    bases: Sequence[_Basis],
) -> dict[Group, _Posterior]:
    return {
        (a, b): _posterior(table, variances[a, b], scores.get((a, b)), bases[a], bases[b])
        for (a, b), table in deviations.items()
    }


def _first_covariance(shares: Floats, similarity: Floats) -> Floats:
    """Centred, growing with the shares, of trace k - 1."""
    k = len(shares)
    centre = np.eye(k) - 1 / k
    deviations = np.maximum(shares, 1e-12) ** 0.75
    found: Floats = centre @ (deviations[:, None] * similarity * deviations) @ centre
    found *= (k - 1) / np.trace(found)
    return found


def _posterior(
    table: Floats, variance: float, score: Score | None, one: _Basis, other: _Basis
) -> _Posterior:
    z = one.vectors.T @ table @ other.vectors
    squares = z**2
    spread = np.multiply.outer(one.values, other.values)
    top = 3 * max(float(squares.mean()), variance)
    strengths = np.geomspace(0.002 * min(variance, top), top, _POINTS)
    total = strengths[:, None, None] * spread + variance
    logs = -0.5 * (np.log(total) + squares / total).sum(axis=(1, 2))
    if score is not None:
        expected = MEAN_ABSOLUTE * np.sqrt(strengths) * one.spread * other.spread
        expected = np.sqrt(expected**2 + score.bias**2)
        error = score.sigma**2 + (_MODEL_ERROR * expected) ** 2
        logs -= 0.5 * (np.log(error) + (score.distance - expected) ** 2 / error)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    gains = strengths[:, None, None] * spread / total
    gain = (weights[:, None, None] * gains).sum(axis=0)
    kept = float((gain * spread).sum() / spread.sum())
    return _Posterior(z * gain, variance * gain, float((weights * strengths).sum()), kept)


def _updated(
    start: Sequence[Floats], bases: Sequence[_Basis], found: Mapping[Group, _Posterior]
) -> list[Floats]:
    """The covariances of all columns from the posteriors of their pairs."""
    sums = [_PRIOR_WEIGHT * c for c in start]
    weights = [_PRIOR_WEIGHT] * len(start)
    for (a, b), p in found.items():
        moments = (p.mean, p.variance), (p.mean.T, p.variance.T)
        for column, partner, (mean, variance) in zip((a, b), (b, a), moments, strict=True):
            q, inner = bases[column].vectors, bases[partner].values
            inside = (mean / inner) @ mean.T + np.diag((variance / inner).sum(axis=1))
            sums[column] = sums[column] + p.kept * (q @ inside @ q.T) / p.strength
            weights[column] += p.kept * len(inner)
    found_covariances = []
    for total, weight in zip(sums, weights, strict=True):
        covariance = total / weight
        k = len(covariance)
        found_covariances.append(covariance * ((k - 1) / np.trace(covariance)))
    return found_covariances
