"""Gaussian noise on a fine integer grid, charged as if it were continuous.

No floating point may touch the noise of a release, so statistics are integers, multiples of a
grid far finer than the noise, and the noise is the discrete Gaussian.

**Lemma.** Up to a factor within 1 +- 10**-2000, the discrete Gaussian with scale s about any
integer is a post-processing of the normal distribution with variance s^2 - 256 about it, by a
kernel that commutes with integer shifts: draw x from the latter, then an integer from the discrete
Gaussian of scale 16 centred at x (Peikert 2010, doi 10.1007/978-3-642-14623-7_5, Theorem 3.1).
*Proof.* That integer is y with probability the integral of phi_{s'}(x) rho(y - x) / rho(Z - x),
where rho(t) = exp(-t^2/512); by Poisson summation rho(Z - x) is 16 sqrt(2 pi) within a factor 1 +-
3 exp(-512 pi^2), whatever x is; without it the integral is phi_s(y).

So the curve of the release is at most that of N(0, s^2 - 256), shifted alike, plus e^epsilon
10**-1999. For epsilon <= 3800 that is less than the smallest double, and every upper bound
is rounded up by at least this much. The same holds coordinate by coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from mechanisms.accounting.numerics.enclosures import double_above
from mechanisms.errors import RecordsError
from mechanisms.sampling.randomness import Randomness

KERNEL = 256
"""What the discrete Gaussian's variance exceeds that of the equivalent normal by."""

LEAST_SCALE = 2**8
_MOST_SCALE = 2**56


def scale_for(sigma_squared: Fraction) -> Fraction:
    """Scale of the discrete Gaussian, a double, equivalent to at least this normal variance.

    Raises:
        RecordsError: The scale is below 2**8 grid steps, or too large for its sampler.
    """
    square = sigma_squared + KERNEL
    scale = Fraction(double_above(Fraction(math.isqrt(math.ceil(square * 2**64)) + 1, 2**32)))
    if not LEAST_SCALE <= scale <= _MOST_SCALE:
        raise RecordsError("The noise does not suit the grid; mu is too large or too small.")
    return scale


def equivalent_variance(scale: Fraction) -> Fraction:
    """Variance of the normal distribution of which the noise is a post-processing."""
    return scale**2 - KERNEL


def noisy(values: Sequence[int], scale: Fraction, rng: Randomness) -> list[int]:
    """Integers with discrete Gaussian noise of one scale added."""
    noise = rng.discrete_gaussian(scale, len(values)).tolist()
    return [value + z for value, z in zip(values, noise, strict=True)]
