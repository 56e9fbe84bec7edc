"""Beta(10, 10), the true distribution of both papers' examples, and errors against it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import beta, betainc, hyp0f1

from tests.benchmarks.papers.bin_shares import Shares

SHAPE = 10

SQUARED_DENSITY = float(beta(2 * SHAPE - 1, 2 * SHAPE - 1) / beta(SHAPE, SHAPE) ** 2)
"""Integral of the squared density."""


def sample(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """float64[size], iid draws."""
    return rng.beta(SHAPE, SHAPE, size)


def bin_counts(values: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    """int64[bins], the number of values in each of so many equal bins of [0, 1]."""
    return np.bincount(np.minimum((values * bins).astype(np.int64), bins - 1), minlength=bins)


def density(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return (x * (1 - x)) ** (SHAPE - 1) / beta(SHAPE, SHAPE)


def kolmogorov_smirnov(shares: Shares) -> float:
    """The paper's error: sup over x in [0, 1] of |F(x) - F^(x)|, exactly.

    F is the true cdf, and F^ that of the histogram density with these shares, a line
    within each bin (bootstrapping paper, section 5.3). The difference is therefore
    greatest at an edge, or inside a bin where the density equals the histogram's height
    h; and (x(1 - x))^9 = h B(10, 10) has the two roots below.

    Args:
        shares: float64[s], of equal bins; may be negative, or not add up to 1.
    """
    s = len(shares)
    edges = np.arange(s + 1) / s
    cumulative = np.concatenate([[0.0], np.cumsum(shares)])
    at_edges = np.abs(betainc(SHAPE, SHAPE, edges) - cumulative).max()
    product = (np.maximum(shares, 0) * s * beta(SHAPE, SHAPE)) ** (1 / (SHAPE - 1))
    half = np.sqrt(np.maximum(0.25 - product, 0))
    inside = [
        np.abs(betainc(SHAPE, SHAPE, x) - cumulative[:-1] - shares * (x * s - np.arange(s))).max()
        for x in (np.clip(root, edges[:-1], edges[1:]) for root in (0.5 - half, 0.5 + half))
    ]
    return float(max(at_edges, *inside))


def cosine_coefficients(terms: int) -> NDArray[np.float64]:
    """float64[terms], integrals of sqrt 2 cos(pi j x) times the density, j = 1..terms.

    With x = 1/2 + y the density is even in y, and E cos(ty) is Bessel's 0F1(10.5; -t^2/16).
    """
    order = np.arange(1, terms + 1)
    even = np.cos(np.pi * order / 2) * (order % 2 == 0)
    return np.sqrt(2) * even * hyp0f1(SHAPE + 0.5, -((np.pi * order) ** 2) / 16)


def series_error(coefficients: NDArray[np.float64]) -> float:
    """Integrated squared error of the series with these coefficients, by Parseval.

    Args:
        coefficients: float64[m], of sqrt 2 cos(pi j x), j = 1..m, beside a constant 1.
    """
    true = cosine_coefficients(len(coefficients))
    rest = SQUARED_DENSITY - 1 - float(true @ true)
    return float(np.square(coefficients - true).sum()) + rest
