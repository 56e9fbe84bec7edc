"""Limits for means and variances that hold for every population in the declared bounds.

The noise is included. Records x_1 .. x_n are independent with one law on [0, 1] of mean m and
variance v; S is their sum, and released is S + N with discrete Gaussian noise. Every limit below
comes from a bound on P(S + N >= t) for a presumed m: a value of m is excluded where the bound at
what was released is below the level's share, so that the true m is excluded with at most that
probability. Upper limits are those of 1 - x.

**The noise.** The discrete Gaussian on a grid, of scale s >= 2^8 steps, is at most a normal of
deviation s plus one step: with Z its normalising sum, Z >= s sqrt(2 pi), for every integer j >= 1

    P(N >= j) = sum over k >= j of exp(-k^2/2s^2)/Z <= integral from j - 1 = P(s G >= j - 1),

G standard normal, as the terms decrease; for j <= 0 P(N >= j) = 1 - P(N >= 1 - j), and for i >= 1
P(N >= i) is at least the integral from i over Z, P(s G >= i) up to the factor s sqrt(2 pi)/Z >= 1
- 3 exp(-2 pi^2 s^2) (Poisson summation), which is within 10^-2000 of 1 and disappears in the margin
below. So P(S + N >= t) <= P(S + s G + step >= t), and E f(S + N) <= E f(S + s G + step) for every f
that does not decrease. ``slack`` below is the step, with what rounding records to a grid may add.

**0 and 1.** Where all x are 0 or 1, S is Binomial(n, m): P(S + s G >= t) is computed exactly, as by
Clopper and Pearson (1934, doi 10.1093/biomet/26.4.404) without noise.

**Any x.** E f(x) <= (1 - m) f(0) + m f(1) for convex f, so E f(S + c) <= E f(B + c) with B of
Binomial(n, m), one record after the other (Hoeffding 1963, doi 10.1080/01621459.1963.10500830).
With f(y) = max(y - h, 0), any h < t, Markov's inequality gives

    P(S + N >= t) <= E max(B + s G + slack - h, 0) / (t - h).

**A known variance.** If x - m <= b = 1 - m and v <= w, then for every h

    E max(x - m - h, 0)^2 <= E max(T - h, 0)^2,

T being b with probability p = w/(w + b^2) and else -a, a = w/b (Bentkus 2004, doi
10.1214/009117904000000360). *Proof.* T has mean 0 and variance w. For h >= b both are 0. For
h <= -a the left is at most E (x - m - h)^2 <= w + h^2, which the right equals, both values of T
being at least h. Else let q(y) = (b - h)^2 ((y + a)/(b + a))^2: (y + a)(b - h)/(b + a) is a line
through (-a, 0) and (b, b - h), on [-a, b] not below the convex max(y - h, 0); below -a that is 0.
So the left is at most E q(x - m) <= (b - h)^2 (w + a^2)/(b + a)^2 = E q(T), and q is
max(y - h, 0)^2 at both values of T. QED One record after the other, and with the noise, for any
h < t

    P(S + N - n m >= t) <= E max(T_1 + .. + T_n + s G + slack - h, 0)^2 / (t - h)^2.

The variance is not known, but released are the squares y = (2x - 1)^2 in [0, 1] as well. The bound
for any x gives an upper limit for E y at an eighth of what the level leaves to 1, and v = E y/4 -
(m - 1/2)^2. If that limit holds, a bound with the w that follows from it holds; the rest of the
probability is divided between both ends. So empirical squares enter without any approximation.

**Arithmetic.** A binomial law of standard deviation d > 200 is rounded up to multiples of about
d/100, which makes the expectation of a function that does not decrease larger, never smaller.
Masses beyond 12 d + 40 are below 10^-25. The margin, 10^-6 of every probability, is more than all
rounding. Which h are tried, and where limits are searched, decides only how narrow an interval is:
an excluded stretch of m is one for which the bound is too small even with the least t - n m, the
largest w and the largest b on it.

**A variance.** Its limits are those of means of squares about every mean that there can be.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from statpress.mechanisms.estimates.fieller import Floats

FOR_SQUARES = 1 / 8
"""Share of what the level leaves to 1 that the limit on the squares may use."""

MARGIN = 1e-6
"""Share of every probability that is kept for rounding."""

_REACH, _FINENESS = 12.0, 100
_HEIGHTS = np.concatenate([np.linspace(0.08, 1.2, 15), np.linspace(1.4, 4.0, 9)])
_LEAST_VARIANCE = 1e-15
_LEAST_STEP = 1e-9  # of a mean, at most to which limits are searched
_PRECISION = 1e-4  # of a limit's distance from the estimate


def mean_limits(
    total: float,
    squares: float | None,
    *,
    n_records: int,
    noise: float,
    square_noise: float,
    level: float,
    slack: float,
    square_slack: float = 0.0,
) -> tuple[float, float]:
    """Limits of the mean of records in [0, 1].

    Args:
        total: Noisy sum of the records.
        squares: Noisy sum of (2x - 1)^2; None: all records are 0 or 1.
        n_records: Number of records n.
        noise: Scale of the noise on ``total``.
        square_noise: Scale of the noise on ``squares``.
        level: Probability with which they hold, at least.
        slack: How far rounding may have moved ``total``, with a step of its grid.
        square_slack: How far it may have moved ``squares``.
    """
    alpha = (1 - level) * (1 - MARGIN)
    most = None
    if squares is not None:
        above = squares + square_slack
        most = 1 - mean_limit(n_records - above, None, n_records, square_noise, alpha * FOR_SQUARES)
        alpha *= 1 - FOR_SQUARES
    share = squares is None
    low = mean_limit(total - slack, most, n_records, noise, alpha / 2, share=share)
    high = mean_limit(n_records - total - slack, most, n_records, noise, alpha / 2, share=share)
    return low, max(low, 1 - high)


def excluded(
    total: float,
    most_square: float | None,
    stretch: tuple[float, float],
    *,
    n_records: int,
    noise: float,
    alpha: float,
    share: bool = False,
) -> bool:
    """Whether every mean in a stretch makes a sum of ``total`` or more less likely than alpha.

    ``total`` is the noisy sum with slack taken off, ``most_square`` an upper limit on E (2x - 1)^2
    if there is one, and ``share`` says that all records are 0 or 1.
    """
    low, high = stretch
    over = total - n_records * high
    if over <= 0 or high >= 1:
        return False
    if share:
        return _exact(total, n_records, high, noise) < alpha
    if _any_law(total, n_records, high, noise) < alpha:
        return True
    if most_square is None:
        return False
    nearest = min(max(low, 0.5), high)
    variance = most_square / 4 - (nearest - 0.5) ** 2
    if variance < 0:
        return True  # no such mean goes with the squares
    variance = max(variance, _LEAST_VARIANCE)
    if variance >= high * (1 - low):
        return False
    return _known_variance(over, n_records, variance, 1 - low, noise) < alpha


@functools.lru_cache(maxsize=4096)
def mean_limit(
    total: float,
    most_square: float | None,
    n_records: int,
    noise: float,
    alpha: float,
    *,
    share: bool = False,
) -> float:
    """The lower limit of a mean, too high with probability alpha at most.

    It is the end of the stretch from 0 on that is ``excluded``.
    """
    at, centre = 0.0, min(total / n_records, 1.0)
    step = centre / 2
    while step > max(_LEAST_STEP, _PRECISION * (centre - at)):
        if excluded(
            total,
            most_square,
            (at, at + step),
            n_records=n_records,
            noise=noise,
            alpha=alpha,
            share=share,
        ):
            at += step
        else:
            step /= 2
    return at


def _exact(t: float, n: int, mean: float, noise: float) -> float:
    """P(Binomial(n, mean) + noise G >= t)."""
    from scipy.special import ndtr

    counts, masses = _law(n, mean)
    return float(masses @ ndtr((counts - t) / noise))


def _any_law(t: float, n: int, mean: float, noise: float) -> float:
    """The least bound over h from the convex order."""
    counts, masses = _law(n, mean)
    sd = math.sqrt(n * mean * (1 - mean) + noise**2)
    gaps = sd * _HEIGHTS
    return float(np.min(_positive_part(counts - t, masses, gaps, noise, 1) / gaps))


def _known_variance(over: float, n: int, variance: float, b: float, noise: float) -> float:
    """The least bound over h from two points of this variance, for a sum ``over`` its mean."""
    a = variance / b
    counts, masses = _law(n, variance / (variance + b**2))
    values = counts * (a + b) - n * a
    gaps = math.sqrt(n * variance + noise**2) * _HEIGHTS
    return float(np.min(_positive_part(values - over, masses, gaps, noise, 2) / gaps**2))


def _positive_part(
    values: Floats, masses: Floats, gaps: Floats, noise: float, power: int
) -> Floats:
    """E max(X + gap + noise G, 0)^power for every gap; X takes the values with the masses."""
    from scipy.special import ndtr

    d = values[None, :] + gaps[:, None]
    density = np.exp(-((d / noise) ** 2) / 2) / math.sqrt(2 * math.pi)
    below = ndtr(d / noise)
    if power == 1:
        expected = d * below + noise * density
    else:
        expected = (d**2 + noise**2) * below + d * noise * density
    return np.asarray(expected @ masses)


@functools.lru_cache(maxsize=8)
def _law(n: int, p: float) -> tuple[Floats, Floats]:
    """A law that is stochastically larger than Binomial(n, p): every count, or every so many."""
    from scipy.special import bdtr

    sd = math.sqrt(n * p * (1 - p))
    reach = _REACH * sd + 40
    first, last = max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach))
    width = math.floor(sd / _FINENESS)
    if width > 1:
        steps = math.ceil((last - first) / width)
        edges = first + width * np.arange(-1, steps + 1, dtype=np.float64)
        return edges[1:], np.diff(np.append(0.0, bdtr(np.maximum(edges[1:], 0), n, p)))
    counts = np.arange(first, last + 1, dtype=np.float64)
    ratios = np.log((n - counts[:-1]) / (counts[:-1] + 1)) + math.log(p) - math.log1p(-p)
    logs = np.append(0.0, np.cumsum(ratios))
    masses = np.exp(logs - logs.max())
    return counts, masses / masses.sum()


FOR_MEAN = 1 / 4
"""Share of what the level leaves to 1 that the limits of the mean may use."""

_STRETCHES = 8


def variance_limits(
    sums: Floats,
    noise: Floats,
    slacks: Floats,
    *,
    n_records: int,
    level: float,
) -> tuple[float, float]:
    """Limits of the variance of records in [0, 1].

    Let m be the mean, d = m - 1/2, B = max(m, 1 - m)^2 and z = (x - m)^2/B in [0, 1], so that the
    variance is B E z. For every m, sum z and sum (2z - 1)^2 are known up to noise, being linear in
    the sums of powers of u = x - 1/2. Limits of the mean hold at a quarter of what the level leaves
    to 1; at the true m, those of E z hold at the rest. So the least and the largest that they are
    for any m between the limits of the mean hold as well. They are taken over a few stretches of m:
    with the least sum z for the lower one and the largest for the upper one, and everywhere the
    largest B, noise and squares.

    Args:
        sums: float64[4], noisy sums of u, u^2, u^3 and u^4.
        noise: float64[4, k], of each its noise in independent terms of deviation 1.
        slacks: float64[4], how far rounding may have moved each, with a step of its grid.
        n_records: Number of records n.
        level: Probability with which they hold, at least.
    """
    n, alpha, sizes = n_records, (1 - level) * (1 - MARGIN), np.linalg.norm(noise, axis=1)
    first, last = mean_limits(
        float(sums[0] + n / 2),
        float(4 * sums[1]),
        n_records=n,
        noise=float(sizes[0]),
        square_noise=float(4 * sizes[1]),
        level=1 - (1 - level) * FOR_MEAN,
        slack=float(slacks[0]),
        square_slack=float(4 * slacks[1]),
    )
    alpha *= 1 - FOR_MEAN
    limits = []
    for low, high in itertools.pairwise(np.linspace(first - 0.5, last - 0.5, _STRETCHES + 1)):
        half, far = (high - low) / 2, max(-low, high)
        scale = (0.5 + far) ** 2
        nearest = min(max(sums[0] / n, low), high)
        least, most = nearest, low if nearest - low > high - nearest else high
        total = [float(powers(d, 2) @ [n, *sums[:2]]) / scale for d in (least, most)]
        spread = max(np.linalg.norm(powers(d, 2)[1:] @ noise[:2]) for d in (low, high)) / scale
        slack = float(np.abs(powers(-far, 2)[1:]) @ slacks[:2]) / scale
        # 4 z^2 - 4 z + 1 as a polynomial of d, at the middle and how much more it can be.
        middle = (low + high) / 2
        weights = squares_of(middle, scale)
        steepest = _steepest(far, scale)
        squares = float(weights @ [n, *sums] + half * (steepest @ np.abs([n, *sums])))
        moved = float(np.linalg.norm(weights[1:] @ noise) + half * (steepest[1:] @ sizes))
        above = float(squares + (np.abs(weights[1:]) + half * steepest[1:]) @ slacks)
        limit = 1 - mean_limit(n - above, None, n, moved, alpha * FOR_SQUARES)
        one = alpha * (1 - FOR_SQUARES) / 2
        lower = mean_limit(total[0] - slack, limit, n, float(spread), one)
        upper = 1 - mean_limit(n - total[1] - slack, limit, n, float(spread), one)
        limits.append((scale * lower, scale * upper))
    return min(ends[0] for ends in limits), min(0.25, max(ends[1] for ends in limits))


def powers(d: float, degree: int) -> Floats:
    """(u - d)^degree as a polynomial of u: float64[degree + 1]."""
    return np.array([math.comb(degree, k) * (-d) ** (degree - k) for k in range(degree + 1)])


def squares_of(d: float, scale: float) -> Floats:
    """4 z^2 - 4 z + 1, z = (u - d)^2/scale, as a polynomial of u: float64[5]."""
    coefficients = 4 * powers(d, 4) / scale**2
    coefficients[:3] -= 4 * powers(d, 2) / scale
    coefficients[0] += 1
    return coefficients


def _steepest(far: float, scale: float) -> Floats:
    """Bounds on the derivatives of these coefficients in d, for |d| up to ``far``: float64[5]."""
    bounds = np.zeros(5)
    bounds[:4] += 16 * np.abs(powers(far, 3)) / scale**2
    bounds[:2] += 8 * np.abs(powers(far, 1)) / scale
    return bounds
