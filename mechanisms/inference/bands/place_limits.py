"""Limits of a probability, place by place, given the law of what is released."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from mechanisms.inference.bands.noise_tails import Floats

Limits = tuple[Floats, Floats]

LEFT_OUT = 1e-3
"""Of a limit's probability, for what is beyond the last node."""

_ROUNDS = 14


class Exceeding(Protocol):
    """How likely it is that much is released."""

    def exceeding(self, y: Floats, p: Floats, alpha: float, *, other: bool) -> Floats:
        """P(released >= y) or a little more where the share is p, of all others if ``other``."""


def binomial_at_least(k: Floats, n: int, p: Floats) -> Floats:
    """P(Binomial(n, p) >= k) for integers k of any size, float64 of their common shape."""
    from scipy.special import betainc

    inside = np.clip(k, 1, n)
    return np.asarray(
        np.where(k <= 0, 1.0, np.where(k > n, 0.0, betainc(inside, n - inside + 1, p)))
    )


def place_limits(law: Exceeding, y: Floats, whole: float, near: Floats, alpha: float) -> Limits:
    """Limits of one share at every place, float64[k] each.

    Args:
        law: Of what is released.
        y: float64[k], released.
        whole: What is released, on average, of all records together.
        near: float64[k], estimates of the shares.
        alpha: Probability with which one end of one place may fail.
    """
    lower = _lower(law, y, alpha, near, other=False)
    return lower, 1 - _lower(law, whole - y, alpha, 1 - near, other=True)


def _lower(law: Exceeding, y: Floats, alpha: float, near: Floats, *, other: bool) -> Floats:
    """Lower limits float64[k]: shares up to which y or more is less likely than alpha.

    The search ends a little below them: what it returns is a share that was tried.
    """
    low, high = np.zeros(len(y)), np.arcsin(np.sqrt(np.clip(near, 0, 1)))

    def excess(angle: Floats) -> Floats:
        """Nearly a straight line in the angle whose squared sine is the share."""
        found = law.exceeding(y, np.sin(angle) ** 2, alpha, other=other)
        return np.asarray(
            np.sqrt(-2 * np.log(np.clip(found, 1e-300, 1.0))) - math.sqrt(-2 * math.log(alpha))
        )

    at_low, at_high = excess(low), np.full(len(y), -math.sqrt(-2 * math.log(alpha)) / 2)
    fits = at_low >= 0  # else not even the share 0 is excluded
    side = np.zeros(len(y))
    for _ in range(_ROUNDS):
        weight = at_low / np.maximum(at_low - at_high, 1e-300)
        middle = low + np.clip(weight, 1e-3, 1 - 1e-3) * (high - low)
        found = excess(middle)
        excluded = found >= 0
        again = side == np.where(excluded, 1, -1)  # the other end counts half (Illinois)
        low = np.where(excluded, middle, low)
        high = np.where(excluded, high, middle)
        at_low = np.where(excluded, found, np.where(again, at_low / 2, at_low))
        at_high = np.where(excluded, np.where(again, at_high / 2, at_high), found)
        side = np.where(excluded, 1, -1)
    low = np.sin(low) ** 2 * (1 - 1e-12)
    return np.where(fits, low, 0.0)
