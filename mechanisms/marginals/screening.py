"""What noisy scores say of how far pairs are from independence.

The score of a pair is its L1 distance from the product of the noisy one-way tables, so it holds
the true distance L, what the noise of the one-ways adds (the bias b) and noise of its own. With
N(sqrt(L^2 + b^2), s^2) as likelihood, the distribution of L over all pairs is estimated from the
scores themselves by expectation maximisation on a grid (nonparametric maximum likelihood, Kiefer
and Wolfowitz 1956, doi 10.1214/aoms/1177728066), and each L by its posterior mean.
"""

from __future__ import annotations

import math

import numpy as np

from mechanisms.records.target_table import Floats

_POINTS, _ROUNDS = 80, 60


def score_bias(n: float, shares: Floats, sigma: float) -> float:
    """About the distance from the product that the noise of one column's one-way makes.

    Args:
        n: Number of records.
        shares: float64[k], of the column's cells.
        sigma: Standard deviation of the noise of a count.
    """
    return 0.8 * float(np.minimum(sigma, n * shares + 0.4 * sigma).sum())


def expected_distances(scores: Floats, biases: Floats, sigma: float) -> Floats:
    """Posterior mean float64[P] of every pair's distance from independence, at least 1.

    Args:
        scores: float64[P], noisy distances in records.
        biases: float64[P], what the noise of the one-ways adds.
        sigma: Standard deviation of the scores' noise.
    """
    top = max(float(scores.max()), 3 * sigma)
    points = np.linspace(0.0, top, _POINTS)
    means = np.sqrt(points**2 + biases[:, None] ** 2)
    logs = -0.5 * ((scores[:, None] - means) / sigma) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    prior = np.full(_POINTS, 1 / _POINTS)
    for _ in range(_ROUNDS):
        posterior = likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    # Sums in a fixed order, whatever the number of threads.
    found: Floats = np.maximum((posterior * points).sum(axis=1), 1.0)
    return found


def pair_bias(one: float, other: float) -> float:
    """The bias of a pair from those of its columns."""
    return math.hypot(one, other)
