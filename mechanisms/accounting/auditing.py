"""What repeated releases prove of a privacy loss: lower bounds to hold beside what is claimed.

A mechanism releases two neighbouring tables, ``one`` and ``other``, N times each, and every release
is given its *evidence*, the log of how much likelier it is of ``one`` than of ``other``. A
symmetric test at a threshold t >= 0 decides for ``one`` where the evidence reaches t, and for
``other`` where its negative does. Of the 2N decisions that it may take, *right* are those for the
table that was released, *mistaken* those for the other one.

**Claim.** If (epsilon, delta) holds for both orders, then p and q, the mean rates of right and
mistaken decisions, satisfy p <= e^epsilon q + delta and 1 - q <= e^epsilon (1 - p) + delta. At
t = 0, where a coin decides a draw, q = 1 - p, and p <= (1 + delta(0))/2, for mu-GDP Phi(mu/2).

*Proof.* Both inequalities hold for either order by itself, and they are linear. For p at t = 0 take
epsilon = 0. QED

The decisions are independent, N of them with one chance and N with another. Their number is less
spread than a binomial one of the same mean (Hoeffding 1956, doi 10.1214/aoms/1177728178, Theorem
4), so limits after Clopper and Pearson (1934, doi 10.1093/biomet/26.4.404) hold for the mean rate;
where less than one decision is expected, at 1 - exp(-miss) in place of the miss rate.

**The ideal test** is that of the pair which attains the claimed curve. Its rates at every threshold
follow from the curve (Dong, Roth and Su 2022, doi 10.1111/rssb.12454, Proposition 2.12): at t the
trade-off has the slope -e^t. The threshold is the one whose bound would be the largest for expected
rates, and so is fixed before anything is drawn; no run is spent on its choice.

An audit finds faults, and proves no privacy: another test or another pair may tell more. How near
to the claim audits of synthesisers come: Ganev, Annamalai and Kulynych 2026, arXiv 2604.18352.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.accounting.losses import PrivacyLoss

Floats = NDArray[np.float64]

MISS = 0.05
"""How often a bound that is reported may exceed what holds."""
ALARM_MISS = 1e-6
"""How often one may that contradicts a claim."""
_THRESHOLDS = 48
_EQUAL = 1e-9
"""Of evidence: what rounding may make of two equal values."""


def rate_limits(happened: float, n: int, miss: float) -> tuple[float, float]:
    """Limits of a mean rate, each of which fails with probability at most ``miss``.

    Args:
        happened: How often it happened; a fraction for expected counts.
        n: Of so many independent trials.
        miss: In (0, 1/2).
    """
    from scipy.special import betaincinv

    chance = -math.expm1(-miss)
    low = betaincinv(happened, n - happened + 1, chance) if happened > 0 else 0.0
    high = betaincinv(happened + 1, n - happened, 1 - chance) if happened < n else 1.0
    return float(low), float(high)


@dataclass(frozen=True)
class Decisions:
    """How often a symmetric test decided; fractions for what is expected.

    Attributes:
        right: For the table that was released.
        mistaken: For the other one.
        runs: Releases of both tables together.
    """

    right: float
    mistaken: float
    runs: int

    @classmethod
    def of(
        cls, one: Floats, other: Floats, threshold: float, rng: np.random.Generator
    ) -> Decisions:
        """Those by the evidence float64[N] of releases of each table.

        Args:
            one: For ``one`` against ``other``, of releases of ``one``.
            other: Likewise, of releases of ``other``.
            threshold: At least 0.
            rng: Decides what is just at 0, where the threshold is 0.
        """
        signed = np.concatenate([one, -other])
        if threshold <= _EQUAL:
            draws = np.abs(signed) <= _EQUAL
            signed = np.where(draws, rng.integers(0, 2, len(signed)) * 2 - 1, signed)
        right, mistaken = (int((each >= threshold - _EQUAL).sum()) for each in (signed, -signed))
        return cls(right, mistaken, len(signed))

    @classmethod
    def learnt(cls, one: Floats, other: Floats) -> Decisions:
        """Decisions by any figure of releases, the threshold from the first half of the runs.

        Args:
            one: float64[N], the figure in releases of ``one``.
            other: float64[N], of ``other``.

        Returns:
            Those of the second half.
        """
        half = len(one) // 2
        figures = np.concatenate([one[:half], other[:half]])
        order = np.argsort(figures, kind="stable")
        # Right decisions, if all above the i-th are taken for ``one``; and the other way round.
        gained = np.cumsum(np.where(order < half, -1, 1))
        ends = np.append(np.diff(figures[order]) > 0, True)
        scores = np.where(ends, np.abs(gained), -1)
        best = int(np.argmax(scores))
        cut, above = figures[order[best]], gained[best] >= 0
        right = ((one[half:] > cut) == above).sum() + ((other[half:] > cut) != above).sum()
        runs = 2 * (len(one) - half)
        return cls(int(right), runs - int(right), runs)

    def epsilon(self, delta: float, miss: float) -> float:
        """An epsilon that the smallest one at this delta exceeds, at least 0."""
        right, _ = rate_limits(self.right, self.runs, miss / 2)
        _, mistaken = rate_limits(self.mistaken, self.runs, miss / 2)
        ratios = ((right - delta, mistaken), (1 - mistaken - delta, 1 - right))
        return max([0.0, *(math.log(p / q) for p, q in ratios if p > 0 and q > 0)])

    def mu(self, miss: float) -> float:
        """A mu that the smallest one exceeds, at least 0, of decisions at the threshold 0."""
        return mu_of_rate(rate_limits(self.right, self.runs, miss)[0])


def mu_of_rate(rate: float) -> float:
    """The mu of which the best test with equal errors is right at this rate, at least 0."""
    from scipy.special import ndtri

    return max(0.0, 2 * float(ndtri(rate)))


@dataclass(frozen=True)
class IdealTest:
    """The best test of a claimed loss, with what it would prove by so many runs.

    Attributes:
        loss: As claimed.
        epsilon: Claimed at ``delta``.
        delta: At least 0.
        runs: Releases of both tables together.
    """

    loss: PrivacyLoss
    epsilon: float
    delta: float
    runs: int

    @functools.cached_property
    def mu(self) -> float:
        """The mu whose curve has the claimed delta at epsilon 0; of a mu-GDP claim, that mu."""
        return mu_of_rate((1 + self.loss.delta(0.0).upper) / 2)

    @functools.cached_property
    def points(self) -> tuple[tuple[float, float, float], ...]:
        """Thresholds, each with the rates of mistaken and of right decisions."""
        return tuple(self._points())

    def _points(self) -> Iterator[tuple[float, float, float]]:
        """Where tangents of the trade-off at neighbouring slopes meet."""
        places = np.linspace(0.0, self.epsilon, _THRESHOLDS + 1).tolist()
        lines = [(e, math.exp(e), self.loss.delta(e).upper) for e in places]
        for (e, slope, delta), (after, steeper, less) in itertools.pairwise(lines):
            mistaken = min(max((delta - less) / (steeper - slope), 0.0), 1.0)
            yield (e + after) / 2, mistaken, min(delta + slope * mistaken, 1.0)

    @functools.cached_property
    def _best(self) -> tuple[float, Decisions]:
        """The threshold whose bound on epsilon would be the largest, and what it would decide."""
        expected = [
            (threshold, Decisions(right * self.runs, mistaken * self.runs, self.runs))
            for threshold, mistaken, right in self.points
        ]
        return max(expected, key=lambda each: each[1].epsilon(self.delta, MISS))

    @property
    def threshold(self) -> float:
        """Of the evidence, for the bound on epsilon."""
        return self._best[0]

    def bounds(self, miss: float = MISS) -> tuple[float, float]:
        """The bounds on epsilon and mu that it would give."""
        rate = (1 + self.loss.delta(0.0).upper) / 2
        level = Decisions(rate * self.runs, (1 - rate) * self.runs, self.runs)
        return self._best[1].epsilon(self.delta, miss), level.mu(miss)

    def contradicted_by(self, epsilon: float, mu: float) -> bool:
        """Whether bounds at ``ALARM_MISS`` exceed what is claimed."""
        return epsilon > self.epsilon or mu > self.mu
