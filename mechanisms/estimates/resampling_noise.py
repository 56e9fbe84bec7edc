"""How much noise each of many resamples needs, and the intervals of a variance that noise hides.

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

**Half-widths** of intervals where noise hides the variance.

They are of normal intervals whose variance is itself estimated from noisy replicates. A
centre has variance b V + s^2, where V in [0, M] is the unknown variance of a statistic. Independent
of it is S^2, a chi-square variable with f degrees of freedom, over f, times a V + t^2. Everything
but V is public. So (S^2 - t^2)/a =: v estimates V without bias, but where t^2 is large beside a V
it can be far off, and often negative.

**Rule.** The half-width is z sqrt(s^2 + b max(0, alpha + beta v)), no more than the cap
z sqrt(s^2 + b M). Alpha and beta are the pair with the least mean width, over variances from a
quarter to four times the one presumed, of which the coverage is below the level by no more than
5 % of 1 - level **for every V from 0 to M**, by quadrature over the law of S^2, before any data is
seen. (At the level itself no finite pair is: a cap reached by chance can only lose.) Adding alpha
before the maximum is taken, not after, keeps what a negative v says.

How close that is to the best of all functions of S^2 is computed by duality in
tests/benchmarks/black_box_bound.py.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from flint import arb

from statpress.mechanisms.accounting.balls import ball, enclosed, twice_above
from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss
from statpress.mechanisms.accounting.noise_losses import ResampledGaussianLoss
from statpress.mechanisms.accounting.privacy_loss_distributions import Account, fast_length
from statpress.mechanisms.errors import InfeasibleBudgetError
from statpress.mechanisms.estimates.fieller import Floats, normal_quantile

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
    whole = Account.of_tails(((part, times), *rest), h)
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


_NODES, _VARIANCES, _HALVINGS = 400, 72, 15
TOLERANCE = 0.05
"""By which part of 1 - level the coverage in the model may be below the level."""
AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Variances over the presumed one at which the width counts."""
_FACTORS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 2.5)


@dataclass(frozen=True)
class NoisyVariance:
    """What is public of a centre and of replicates."""

    spread_gain: float  # the a of the variance a V + t^2 of a replicate
    spread_noise: float  # the t^2
    freedom: int  # degrees of freedom f of the replicates' variance S^2
    centre_gain: float  # the b of the variance b V + s^2 of the centre
    centre_noise: float  # the s^2
    most: float  # the largest V there can be, M

    def variance_of_centre(self, variance: Floats) -> Floats:
        """The variance of the centre at these V."""
        return self.centre_gain * variance + self.centre_noise

    def estimated(self, spread: Floats) -> Floats:
        """V estimated from S^2, without bias; perhaps negative."""
        return (spread - self.spread_noise) / self.spread_gain

    def spreads(self, variances: Floats, nodes: int = _NODES) -> Floats:
        """Equally likely values float64[.., nodes] of S^2 at these V."""
        means = self.spread_gain * variances + self.spread_noise
        return means[..., None] * chi_square(self.freedom, nodes)

    def capped(self, half_width: Floats, level: float) -> Floats:
        """No wider than what follows from the largest V."""
        largest = self.centre_gain * self.most + self.centre_noise
        return np.minimum(half_width, normal_quantile(level) * math.sqrt(largest))


class WidthRule(Protocol):
    """From S^2 to the half-width of an interval."""

    def half_width(self, known: NoisyVariance, spread: Floats, level: float) -> Floats:
        """float64 of the shape of ``spread``."""


@dataclass(frozen=True)
class CalibratedWidth:
    """The rule of this module, with its two constants."""

    factor: float  # Beta, on the estimated variance
    addend: float  # Alpha, a variance

    @classmethod
    @functools.lru_cache(maxsize=256)
    def narrowest(cls, known: NoisyVariance, presumed: float, level: float) -> CalibratedWidth:
        """The constants of the narrowest intervals around a presumed variance that keep the level.

        With the factor 1 and the largest addend an interval is the cap, whatever was drawn. With a
        larger factor it need not be, so that no rule is taken that was not seen to keep the level.
        """
        least = level - TOLERANCE * (1 - level)
        every = np.concatenate([[0.0], known.most * np.geomspace(1e-6, 1.0, _VARIANCES - 1)])
        typical = np.minimum(presumed * np.array(AROUND), known.most)
        oracle = np.sqrt(known.variance_of_centre(typical))
        estimated = known.estimated(known.spreads(every))
        deviation = np.sqrt(2 * known.variance_of_centre(every))[:, None]

        hardest = 0  # where the coverage was least, which refuses most rules by itself

        def covers(rule: CalibratedWidth) -> bool:
            nonlocal hardest
            one = slice(hardest, hardest + 1)
            if _covered(rule.around(known, estimated[one], level), deviation[one])[0] < least:
                return False
            covered = _covered(rule.around(known, estimated, level), deviation)
            hardest = int(np.argmin(covered))
            return bool(covered[hardest] >= least)

        def width(rule: CalibratedWidth) -> float:
            return float(np.mean(mean_width(rule, known, typical, level) / oracle))

        best: tuple[float, CalibratedWidth] | None = None
        for factor in _FACTORS:
            low, high = -known.most, 4 * known.most + 2 * known.spread_noise / known.spread_gain
            if not covers(cls(factor, high)):
                continue
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                if covers(cls(factor, middle)):
                    high = middle
                    continue
                low = middle
                if best is not None and width(cls(factor, low)) >= best[0]:
                    break  # wider already, as it grows with the addend
            else:
                rule = cls(factor, high)
                if best is None or width(rule) < best[0]:
                    best = width(rule), rule
        assert best is not None
        return best[1]

    def half_width(self, known: NoisyVariance, spread: Floats, level: float) -> Floats:
        """The half-width at these S^2."""
        return self.around(known, known.estimated(spread), level)

    def around(self, known: NoisyVariance, estimated: Floats, level: float) -> Floats:
        """The half-width where V is estimated to be so much."""
        presumed = self.addend + self.factor * estimated
        square = known.variance_of_centre(np.maximum(presumed, 0.0))
        return known.capped(normal_quantile(level) * np.sqrt(square), level)


def widths_from_description(
    description: Mapping[str, object], count: int
) -> tuple[CalibratedWidth, ...]:
    """The rules of so many numbers, from the constants that a description states."""
    return tuple(
        CalibratedWidth(
            *(float(str(description[f"reach_{name}_{i}"])) for name in ("factor", "addend"))
        )
        for i in range(1, count + 1)
    )


def coverage(
    rule: WidthRule, known: NoisyVariance, variances: Floats, level: float, nodes: int = _NODES
) -> Floats:
    """Coverage of the intervals of a rule at each of these V, in the model."""
    deviation = np.sqrt(2 * known.variance_of_centre(variances))[:, None]
    return _covered(rule.half_width(known, known.spreads(variances, nodes), level), deviation)


def _covered(reach: Floats, deviation: Floats) -> Floats:
    """Coverage of intervals that reach so far, by rows with the centre's deviation by root 2."""
    from scipy.special import erf

    return np.asarray(np.mean(erf(reach / deviation), axis=1))


def mean_width(rule: WidthRule, known: NoisyVariance, variances: Floats, level: float) -> Floats:
    """Mean widths of the intervals of a rule, at each of these V."""
    half = rule.half_width(known, known.spreads(variances), level)
    return np.asarray(2 * np.mean(half, axis=-1))


@functools.lru_cache(maxsize=64)
def chi_square(freedom: int, nodes: int) -> Floats:
    """Equally likely values of a chi-square variable over its degrees of freedom."""
    from scipy.special import gammaincinv

    places = (np.arange(nodes) + 0.5) / nodes
    values: Floats = gammaincinv(freedom / 2, places) / (freedom / 2)
    values.flags.writeable = False
    return values
