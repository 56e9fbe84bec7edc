"""Sums of independent losses on a grid: convolutions by Fourier transform, with error bounds.

The n-fold sum is the n-th power of one transform (Koskela, Jälkö and Honkela 2020,
arXiv 1906.03049). Its transform is as long as the window in which the sum lies but for a mass
of ``TRUNCATION``, by Chernoff's bound at a few orders; what lies outside wraps around.

**Errors.** The computed transform of x has an error of at most 8 u (1 + log2 N) |x|_1 in every
entry, u = 2^-53: the textbook bound with room to spare (Higham 2002, Accuracy and Stability of
Numerical Algorithms, chapter 24). That NumPy's transform (pocketfft) obeys it is assumed. SciPy's
is the same code and gives the same bits, but its import takes longer than most plans.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TRUNCATION = 1e-15
"""Mass that a power may leave outside its window."""

UNIT = 2.0**-53
"""Relative error of one rounding."""

_ORDERS = (*range(-20, 0), *range(1, 21))  # of Chernoff's bound, over the number of masses

Floats = NDArray[np.float64]


class Power(NamedTuple):
    """The law of a sum of equally distributed losses.

    Attributes:
        first: Index of the first mass, that of a single loss being 0.
        masses: float64[k].
        error: Bound on the sum of absolute errors of the masses, without ``TRUNCATION``
            outside the window.
    """

    first: int
    masses: Floats
    error: float


def power(masses: Floats, times: int) -> Power:
    """The sum of ``times`` independent losses with the masses float64[m]."""
    first, last = _window(masses, times)
    size = last - first + 1
    length = fast_length(max(size, len(masses)))
    half = np.fft.rfft(masses, length)
    transform = np.concatenate([half, half[1 : (length + 1) // 2][::-1].conj()])
    whole = np.real(np.fft.ifft(transform**times))

    unit = 8 * UNIT * (1 + math.log2(length))
    spectrum = np.maximum(np.abs(transform) + unit, 1e-300)
    powers = spectrum**times
    phases = 4 * UNIT * (times * (np.abs(np.log(spectrum)) + math.pi) + 4)
    forward = np.linalg.norm(powers * (times * unit / spectrum + phases))
    error = float(forward + unit * np.sum(powers)) + 2 * TRUNCATION
    return Power(first, np.roll(whole, -first)[:size], error)


def product(one: Floats, two: Floats) -> Floats:
    """The sum of two independent losses: float64[a] and float64[b] to float64[a + b - 1]."""
    size = len(one) + len(two) - 1
    if min(len(one), len(two)) == 1:
        return one * two
    length = fast_length(size, largest=5)
    spectrum = np.fft.rfft(one, length) * np.fft.rfft(two, length)
    whole: Floats = np.fft.irfft(spectrum, length)
    return whole[:size].copy()


def product_error(one: Floats, two: Floats) -> float:
    """Bound on the sum of absolute errors of a product."""
    length = 2 * (len(one) + len(two))
    unit = 8 * UNIT * (1 + math.log2(length))
    a, b = float(np.linalg.norm(one)), float(np.linalg.norm(two))
    sums = float(np.abs(one).sum()) * b + float(np.abs(two).sum()) * a
    return 1.1 * unit * (math.sqrt(length) * sums + length * a * b)


def fast_length(size: int, largest: int = 11) -> int:
    """The least length of at least ``size`` without a prime factor above ``largest``."""
    found, products = 1 << (size - 1).bit_length(), [1]
    for prime in (3, 5, 7, 11):
        if prime > largest:
            break
        for each in list(products):
            grown = each * prime
            while grown < found:
                products.append(grown)
                grown *= prime
        found = min([found, *(n << max(0, -(-size // n) - 1).bit_length() for n in products)])
    return found


def _window(masses: Floats, times: int) -> tuple[int, int]:
    """First and last index within which the sum lies but for ``TRUNCATION``."""
    first, last = 0, (len(masses) - 1) * times
    places = np.arange(len(masses))
    for multiple in _ORDERS:
        order = multiple / len(masses)
        most = (len(masses) - 1) * max(order, 0.0)  # no exponent above 0
        total = float(masses @ np.exp(places * order - most))
        if not total > 0:
            continue
        moment = most + math.log(total)
        bound = (times * moment + math.log(2 / TRUNCATION)) / order
        if not math.isfinite(bound):
            continue
        if order > 0:
            last = min(last, math.ceil(bound))
        else:
            first = max(first, math.floor(bound))
    return first, max(first, last)  # of less mass than that, anywhere
