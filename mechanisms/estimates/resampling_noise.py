"""How much noise each of many resamples needs, by the composed privacy curve.

**Noise** is calibrated strictly at the finite number of resamples. A goal is a list of points
(epsilon, largest delta). ``largest_mu_squared`` finds the least noise whose proven composed curve
is below all of them: a search on a quick double-precision composition, then the proven one of
statpress.mechanisms.accounting.privacy_loss_distributions at the value found; only the latter
decides.

**mu-GDP down to a delta.** No finite noise puts the bootstrap's curve below that of a Gaussian
mechanism everywhere, its tail being heavier. ``gaussian_goal`` asks for it where the
Gaussian's delta is at least a floor. Curves are convex in x = e^epsilon, so between two
points a curve is below its chord, and the Gaussian's is above each of its tangents
Phi(a) - x Phi(b); the limits are the tangents' values at both ends of each piece.

The paper's noise (Wang, Cheng and Awan 2022, arXiv 2210.06140, Theorem 3.7) is asymptotic and
always too small; ``paper_mu_squared`` has it for comparison, ``composed`` its true cost.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from flint import arb

from statpress.mechanisms.accounting.balls import ball, enclosed, fast_length, twice_above
from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import ResampledGaussianLoss
from statpress.mechanisms.accounting.privacy_loss_distributions import tail_account
from statpress.mechanisms.errors import InfeasibleBudgetError
from statpress.mechanisms.estimates.fieller import Floats

DELTA_FLOOR = 1e-10
"""Smallest delta down to which a calibration to mu is checked."""

Goal = tuple[tuple[float, float], ...]
NoiseSearch = Callable[..., Fraction]
"""``largest_mu_squared``, or ``promising_mu_squared`` with the same arguments."""

_PIECES = 256  # of the range of epsilon, each with a tangent of its own
_INTERVAL = 0.09  # of the grid, over the mu of the goal and the square root of B
_SLACK = 1e-5  # relative, of mu, what is searched for over what is tried first; then twice it
_TRIES = 12
_CLOSE, _NEAR = 1e-6, 1e-4  # relative, how well a mu is searched for, and if only to compare
_GUESSES = 30
_LEAST = 1e-300
_MOST_POINTS = 1 << 20


@functools.lru_cache(maxsize=64)
def gaussian_goal(mu: Fraction, floor: float = DELTA_FLOOR) -> Goal:
    """The curve of mu-GDP where its delta is at least the floor, by tangents from below."""
    if mu <= 0 or not 0 < floor < 1:
        raise ValueError("mu must be positive and the floor in (0, 1)")
    loss = GaussianLoss(mu)
    end = loss.epsilon(floor).upper
    ends = [end * k / _PIECES for k in range(_PIECES + 1)]
    touch = [(a + b) / 2 for a, b in itertools.pairwise(ends)]

    def tangent(at: float, epsilon: float) -> float:
        def value() -> arb:
            m, e = ball(mu), arb(at)
            up, down = twice_above(e / m - m / 2), twice_above(e / m + m / 2)
            return (up - arb(epsilon).exp() * down) / 2

        return enclosed(value).lower

    limits = []
    for k, epsilon in enumerate(ends):
        others = touch[max(k - 1, 0) : k + 1]
        limits.append((epsilon, min(tangent(at, epsilon) for at in others)))
    return tuple(limits)


def composed(
    part: ResampledGaussianLoss, times: int, others: Sequence[PrivacyLoss] = ()
) -> PrivacyLoss:
    """The loss of all resamples, and of what else is released."""
    return compose([part] * times + list(others))


@functools.lru_cache(maxsize=256)
def largest_mu_squared(
    like: ResampledGaussianLoss,
    times: int,
    goal: Goal,
    others: tuple[GaussianLoss, ...] = (),
) -> Fraction:
    """The largest mu squared of one resample, within about 0.01 %, that is proven to meet a goal.

    The kind of resampling is that of ``like``, whose own mu is not looked at; ``others`` are
    released with the resamples.

    Raises:
        InfeasibleBudgetError: The others already exceed the goal.
    """
    search, h = _quick_search(like, times, goal, others)
    lowered = 0.0
    for attempt in range(_TRIES):
        limits = tuple((epsilon, delta - lowered) for epsilon, delta in goal)
        mu = search(limits, _CLOSE)[0] * (1 - _SLACK * 2**attempt)
        rounded = Fraction(math.floor(mu * 2**40), 2**40)
        excess = _excess(like.at(rounded**2), times, h, goal, others)
        if excess <= 0:
            return rounded**2
        lowered += 1.1 * excess
    raise InfeasibleBudgetError(
        "No noise was proven to meet the budget.", next_step="Ask for fewer resamples."
    )


@functools.lru_cache(maxsize=256)
def promising_mu_squared(
    like: ResampledGaussianLoss,
    times: int,
    goal: Goal,
    others: tuple[GaussianLoss, ...] = (),
) -> Fraction:
    """What ``largest_mu_squared`` can give at most: a guide for comparisons, which proves nothing.

    Raises:
        InfeasibleBudgetError: The others already exceed the goal.
    """
    search, _ = _quick_search(like, times, goal, others)
    return Fraction(math.ceil(search(goal, _NEAR)[1] * 2**40), 2**40) ** 2


def _quick_search(
    like: ResampledGaussianLoss, times: int, goal: Goal, others: tuple[GaussianLoss, ...]
) -> tuple[Callable[[Goal, float], tuple[float, float]], float]:
    """A search in doubles for the largest mu that meets a goal near this one, and its grid."""
    if times < 1:
        raise ValueError("times must be at least 1")
    square = sum((loss.mu_squared for loss in others), Fraction(0))
    plain = _goal_mu(goal) / math.sqrt(times)  # without amplification, near enough
    mantissa, exponent = math.frexp(_INTERVAL * plain)
    h = math.ldexp(math.floor(16 * mantissa) / 16, exponent)
    passed = _quick_check(like, times, h, math.sqrt(square))
    return lambda limits, width: _search(functools.partial(passed, limits), plain, width), h


def _excess(
    part: ResampledGaussianLoss, times: int, h: float, goal: Goal, others: tuple[GaussianLoss, ...]
) -> float:
    """By how much the proven curve passes a point of the goal at most; 0 or less is met."""
    rest = ((compose(others), 1),) if others else ()
    whole = tail_account(((part, times), *rest), h)
    return max(whole.upper(epsilon) - delta for epsilon, delta in goal)


def _goal_mu(goal: Goal) -> float:
    """The mu of a Gaussian loss whose curve is below all points, near enough."""
    epsilon, delta = np.array(goal, dtype=np.float64).T
    low, high = 2.0**-40, 2.0**20
    while high / low > 1.01:
        mu = math.sqrt(low * high)
        met = bool(np.all(_gaussian(epsilon, mu) <= 1.001 * delta))
        low, high = (mu, high) if met else (low, mu)
    return low


def _search(passed: Callable[[float], float], start: float, width: float) -> tuple[float, float]:
    """A mu that meets a goal and one that does not, apart by a relative width.

    The factor by which a goal is passed grows with mu, so that halving need not ask where the
    answer follows from what was seen at another point.
    """
    seen: dict[float, float] = {}

    def factor(mu: float) -> float:
        if mu not in seen:
            seen[mu] = passed(mu)
        return seen[mu]

    def fits(mu: float) -> bool:
        if any(mu <= point and seen[point] <= 1 for point in seen):
            return True
        if any(mu >= point and seen[point] > 1 for point in seen):
            return False
        return factor(mu) <= 1

    low, high = _bracket(fits, start)
    _narrow(factor, low, high, width / 10)
    while high / low > 1 + width:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, high


def _narrow(factor: Callable[[float], float], low: float, high: float, apart: float) -> None:
    """Look where the factor seems to pass 1, till two looks on either side are hardly apart.

    False position on logarithms, with the end that stays weighed less and less (Illinois).
    """
    left, right = (math.log(max(factor(end), _LEAST)) for end in (low, high))
    moved = 0
    for _ in range(_GUESSES):
        if high / low <= 1 + 2 * apart or left >= right:
            return
        guess = low * (high / low) ** (left / (left - right))
        guess = min(max(guess, low * (1 + apart)), high / (1 + apart))
        value, before = math.log(max(factor(guess), _LEAST)), moved
        if value <= 0:
            low, left, moved = guess, value, -1
            right /= 2 if moved == before else 1
        else:
            high, right, moved = guess, value, 1
            left /= 2 if moved == before else 1


def _bracket(fits: Callable[[float], bool], start: float) -> tuple[float, float]:
    """A mu that meets the goal and one, larger by 2, that does not."""
    mu = start
    while not fits(mu):
        mu /= 2
        if mu < start * 2**-20:
            raise InfeasibleBudgetError("No noise on the resamples meets the budget.")
    while fits(2 * mu) and mu < start * 2**20:
        mu *= 2
    return mu, 2 * mu


def _quick_check(
    like: ResampledGaussianLoss, times: int, h: float, others: float
) -> Callable[[Goal, float], float]:
    """The factor by which a goal is passed at most, in double precision; 1 or less is met."""
    law = like.hits(64)
    chances = np.array([float(p.mid()) for p in law.times])
    copies = np.arange(1.0, len(chances) + 1)
    some = float(law.any.mid())
    rest = _chords(lambda epsilon: _gaussian(epsilon, others), h) if others else np.ones(1)

    def passed(goal: Goal, mu: float) -> float:
        def curve(epsilon: Floats) -> Floats:
            inner = np.log1p(np.expm1(epsilon) / some)
            return np.asarray(_gaussian(inner[:, None], copies * mu) @ chances)

        epsilon, delta = np.array(goal, dtype=np.float64).T
        read = _read(_chords(curve, h), times, rest, h, epsilon)
        return float(np.max(read / np.maximum(delta, _LEAST)))

    return passed


def _gaussian(epsilon: Floats, mu: float | Floats) -> Floats:
    """Curves of Gaussian losses, in doubles."""
    from scipy.special import log_ndtr

    up = log_ndtr(-epsilon / mu + mu / 2)
    down = log_ndtr(-epsilon / mu - mu / 2) + epsilon
    return np.asarray(np.exp(up) * -np.expm1(np.minimum(down - up, 0.0)))


def _chords(curve: Callable[[Floats], Floats], h: float) -> Floats:
    """Masses at h (-count .. count) of the chords of a curve."""
    far = h
    while curve(np.array([far]))[0] > 1e-19 and far < _MOST_POINTS * h:
        far *= 1.5
    count = math.ceil(far / h) + 1
    grid: Floats = h * np.arange(count + 1, dtype=np.float64)
    steps = np.diff(np.minimum.accumulate(curve(grid)))
    inner = (steps[1:] - math.exp(h) * steps[:-1]) / math.expm1(h)
    ahead = np.append(inner, steps[-1] / math.expm1(-h)).clip(min=0.0)
    behind = (ahead * np.exp(-grid[1:]))[::-1]
    return np.concatenate([behind, [max(0.0, 1 - ahead.sum() - behind.sum())], ahead])


def _read(masses: Floats, times: int, rest: Floats, h: float, epsilon: Floats) -> Floats:
    """The composed curve at some epsilons >= 0."""
    half, other = len(masses) // 2, len(rest) // 2
    offsets = np.arange(-half, half + 1)
    mean, square = float(offsets @ masses), float(offsets**2 @ masses)
    width = 14 * math.sqrt(times * square) + 2 * half + len(rest)
    size = fast_length(int(min(2 * width, 2.0 * half * times + len(rest), _MOST_POINTS)))
    start = int(times * mean) - size // 2
    spectrum = np.fft.rfft(masses, size) ** times * np.fft.rfft(rest, size)
    whole = np.roll(np.fft.irfft(spectrum, size), -(start + half * times + other) % size).clip(
        min=0.0
    )
    weights = whole * np.exp(-np.maximum(h * (start + np.arange(size)), -700.0))
    after, tail = (np.append(np.cumsum(x[::-1])[::-1], 0.0) for x in (whole, weights))
    place = np.clip(np.floor(epsilon / h).astype(np.int64) + 1 - start, 0, size)
    return np.asarray(after[place] - np.exp(epsilon) * tail[place])
