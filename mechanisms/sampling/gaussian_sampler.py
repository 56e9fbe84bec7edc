"""Exact discrete Gaussian noise, many numbers at a time.

No floating point decides an output's probability: all that is assumed is that the generator's bits
are uniform and independent, and that NumPy's exponential is right to 2^-34 of its value.

**Law.** Integers z with probability proportional to exp(-z^2 / (2 s^2)), for a rational s > 0. They
are proposed and accepted or refused (von Neumann 1951); the sampler of Canonne, Kamath and Steinke
2020 (arXiv 2004.00010, algorithm 3) differs in what it proposes.

**Proposals.** With w = ceil(s): k with probability 2^-(k+1), k = 0, 1, ..., the number of zeros
before the first one of a row of random bits; r uniform on 0, ..., w - 1; and a sign. Proposed is
z = sign (k w + r), and minus nought is drawn afresh, so that z is proposed with probability in
proportion to 2^-k, k = |z| // w.

**Acceptance** with the probability a(z) = (2/5) 2^(k+1) exp(-z^2 / (2 s^2)). As |z| >= k w >= k s,
that is at most (2/5) 2^(k+1) exp(-k^2/2). Here 2^(k+1) exp(-k^2/2) is 2 at k = 0 and 4 exp(-1/2) <
5/2 at k = 1, and from there on it falls, by factors of 2 exp(-k - 1/2) < 1: so a(z) < 1. What is
accepted has probability in proportion to 2^-k a(z), which is that to exp(-z^2 / (2 s^2)). []

Some half of the proposals are accepted if s is not small.

**The comparison.** A proposal is accepted if U < a(z), with U uniform on [0, 1). U is drawn to 53
bits and compared with a(z) in doubles; where they are nearer to each other than ``BAND``, a(z) is
enclosed by ball arithmetic and bits are added to U until their order is proven. So doubles save
time and decide nothing that is not proven.

**The band.** Let t be half the square of z/s, and k < 63. In doubles t is off by 8 * 2^-53 of its
value. If t is at most 2^11, that is less than 2^-39; then a(z) is off by less than 2^-33 of its
value, which is below 1. If t is more, a(z) is less than 2^-1000 and so is what doubles make of it.
U is off by 2^-53. The band is 2^-32. Where k is 63 or more, once in 2^63 proposals, everything is
done in integers and balls.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

Integers = NDArray[np.int64]

BAND = 2.0**-32
AT_ONCE = 2**16
_BITS, _WORD, _ZEROS = 53, 64, 63


def discrete_gaussian(sigma: Fraction, size: int, rng: np.random.Generator) -> Integers:
    """Integers z with probability proportional to exp(-z**2 / (2 sigma**2)), int64[size].

    Args:
        sigma: Above 0 and at most 2**56.
        size: How many.
        rng: Source of bits; charge the ledger before building it.

    Raises:
        ValueError: Sigma is not within its bounds.
    """
    if not 0 < sigma <= 2**56:
        raise ValueError("sigma must be above 0 and at most 2**56")
    noise, filled = np.empty(size, np.int64), 0
    while filled < size:
        accepted = _accepted(sigma, min(AT_ONCE, 2 * (size - filled) + 16), rng)
        accepted = accepted[: size - filled]
        noise[filled : filled + len(accepted)] = accepted
        filled += len(accepted)
    return noise


def _accepted(sigma: Fraction, n: int, rng: np.random.Generator) -> Integers:
    """Those of n proposals that are accepted."""
    width = math.ceil(sigma)
    words = rng.integers(0, 2**_WORD, n, dtype=np.uint64)
    zeros = words >> np.uint64(1)
    lowest = zeros & (~zeros + np.uint64(1))
    k = np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1  # of 0 it is -1
    sizes = np.where(k < 0, 0, k) * width + rng.integers(0, width, n)
    uniform = rng.integers(0, 2**_BITS, n)
    chances = approximate(sizes, k, sigma)
    away = uniform * 2.0**-_BITS - chances
    kept, negative = away < 0, (words & np.uint64(1)).astype(bool)
    for i in np.flatnonzero((np.abs(away) <= BAND) & (k >= 0)).tolist():
        kept[i] = _is_below(int(uniform[i]), _BITS, int(sizes[i]), int(k[i]), sigma, rng)
    for i in np.flatnonzero(k < 0).tolist():
        more = _ZEROS
        while rng.integers(0, 2):
            more += 1
        size = more * width + int(sizes[i])
        kept[i] = _is_below(int(uniform[i]), _BITS, size, more, sigma, rng)
        if kept[i]:
            sizes[i] = size
    kept &= ~(negative & (sizes == 0))
    return np.where(negative, -sizes, sizes)[kept]


def approximate(sizes: Integers, k: Integers, sigma: Fraction) -> NDArray[np.float64]:
    """The chances a(z) in doubles, of |z| int64[n] and k int64[n] below 64."""
    ratios = sizes / float(sigma)
    return np.asarray(0.4 * np.ldexp(np.exp(-0.5 * ratios * ratios), k + 1))


def chance(size: int, k: int, sigma: Fraction) -> arb:
    """Enclosure of a(z) at the precision of the moment, of |z|."""
    square = Fraction(size) ** 2 / (2 * sigma**2)
    return arb(fmpq(2 ** (k + 2), 5)) * arb(fmpq(-square.numerator, square.denominator)).exp()


def _is_below(
    uniform: int, bits: int, size: int, k: int, sigma: Fraction, rng: np.random.Generator
) -> bool:
    """Whether U, of which so many bits are known, is below a(z)."""
    while True:
        with ctx.workprec(2 * bits + 64):
            exact, unit = chance(size, k, sigma), arb(2) ** -bits
            # A comparison of balls is true only if it holds for all of their points.
            if unit * (uniform + 1) <= exact:
                return True
            if unit * uniform >= exact:
                return False
        uniform = uniform << _WORD | int.from_bytes(rng.bytes(_WORD // 8), "big")
        bits += _WORD
