"""Choices with probabilities exactly proportional to real weights, by interval arithmetic.

All sums are of non-negative terms in balls (Arb), which enclose their rounding errors. A
uniform variate has as many bits, and the balls as many digits, as it takes for the comparison
to be certain, so each outcome is that of arithmetic without error. The epsilon of an
exponential mechanism that chooses in this way needs no addition for rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from flint import arb, ctx, fmpq

WORD = 64
"""Bits that a choice draws at a time; it looks at twice as many digits of the weights."""


def choose_real(weights: Callable[[], Sequence[arb]], rng: np.random.Generator) -> int:
    """An index with probability exactly proportional to non-negative real weights.

    A uniform variate U of the unit interval gets bits until balls show between which
    cumulative weights U times their sum lies; it is never rounded. The number of rounds
    is finite with probability 1, and one but for a chance near the number of weights
    times 2**-64.

    Args:
        weights: Returns enclosures of the weights at the precision of the moment, which
            must narrow as it grows. Their sum is positive.
        rng: Source of bits.
    """
    bits = value = 0
    while True:
        bits += WORD
        value = value << WORD | int.from_bytes(rng.bytes(WORD // 8), "big")
        with ctx.workprec(2 * bits):
            bounds = list(itertools.accumulate(weights()))
            unit = bounds[-1] / arb(2) ** bits
            low, high = unit * value, unit * (value + 1)
            # A comparison of balls is true only if it holds for all of their points.
            last = len(bounds) - 1
            at = next((i for i in range(last) if high <= bounds[i]), last)
            if at == 0 or bounds[at - 1] <= low:
                return at


def rate_of(epsilon: Fraction | float, unit_records: int) -> Fraction:
    """Epsilon/(2c), the rate of the exponential mechanism.

    Raises:
        ValueError: Epsilon is not positive and finite, or c not positive.
    """
    if not (math.isfinite(epsilon) and epsilon > 0 and unit_records >= 1):
        raise ValueError("epsilon must be positive and finite, unit_records at least 1")
    return Fraction(epsilon) / (2 * unit_records)


def decay(rate: Fraction, steps: int | None) -> arb:
    """Enclosure of exp(-rate steps) at the precision of the moment; None is infinity."""
    if steps is None:
        return arb(0)
    return arb(fmpq(-rate.numerator * steps, rate.denominator)).exp()
