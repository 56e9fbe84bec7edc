"""The approximate rho of records drawn from a smoothed table (mechanisms/README.md, Theorem 2.3).

The dominating pair (up, down, rest) and its loss are those of ``draws.py``.

The number T of draws that do not fall on "rest" is Binomial(m, up + down) under both orders of the
pair, and given T the loss is that of T randomised responses of l, all else being the same under
both.

**Theorem.** For every t the m draws are delta-approximately rho-zero-concentrated (Bun and Steinke
2016, arXiv 1605.02065, Definition 8.1) with delta = Pr[T > t] and

    rho = sup over s > 0 of K(s)/(s (1 + s)),  K(s) = log E[r(s)^T | T <= t],
    r(s) = cosh(l (s + 1/2))/cosh(l/2).

*Proof.* The event T <= t has the probability 1 - delta under either of the pair, so the pair given
the event is what the definition asks for. Given the event the weights of T = 0, .., t are the same
in both, and with order 1 + s the mean of (P/Q)^s under P is the mean over T of what T independent
randomised responses have: s D = log E[r^T | T <= t], since one of them has
(e^(l (s + 1)) + e^(-l s))/(e^l + 1) = r(s). A post-processing of the pair, as each release is for
its neighbours, is post-processing under the event too. []

K is convex with K(0) = 0 and K(s) <= t l s, so that ``balls.supremum`` applies. Of all t the
least with Pr[T > t] <= delta is best: by it the law of T given T <= t is least in the order of
likelihood ratios, and K grows with T.

**Evaluation.** E[r^T; T <= t] is a sum of terms whose ratios from t downwards fall, and those from
t + 1 upwards too, in which case it is the rest of (1 + (up + down)(r - 1))^m. Either is summed from
its largest term on for a number of terms; a geometric series is the bound on the rest. Over that
largest term the sum is a polynomial in 1/r, or in r, whose coefficients are the same for all s.

All arithmetic is ball arithmetic, and every result is rounded outwards.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple, Protocol

from flint import arb, arb_poly, ctx

from statpress.mechanisms.accounting.balls import Bounds, ball, outwards, supremum

_BITS = 192
_TERMS = 160  # of a sum, before the rest is bounded


class Draws(Protocol):
    """What a ``DrawsLoss`` has: m independent draws from the pair."""

    @property
    def up(self) -> Fraction: ...
    @property
    def down(self) -> Fraction: ...
    @property
    def draws(self) -> int: ...
    @property
    def is_free(self) -> bool: ...


class Approximate(NamedTuple):
    """An approximate guarantee.

    Attributes:
        rho: Bounds on the smallest that this argument proves.
        delta: Up to which it holds, rounded up.
        most_moved: The t, the most draws that fall on the two cells but for that delta.
    """

    rho: Bounds
    delta: float
    most_moved: int


@functools.lru_cache(maxsize=4096)
def approximately_concentrated(loss: Draws, delta: float) -> Approximate | None:
    """The least rho with at most this delta, or None if the draws have to be taken whole.

    Args:
        loss: The draws.
        delta: At least 0.
    """
    if not 0 <= delta < 1:
        raise ValueError("delta must be in [0, 1)")
    if loss.is_free or not delta:
        return None
    with ctx.workprec(_BITS):
        draws = _Moved(loss)
        t = draws.most(delta)
        if t >= loss.draws:
            return None
        tail = draws.tail(t)
        if t == 0:
            return Approximate(Bounds(0.0, 0.0), outwards(tail, 1.0).upper, 0)
        seen = [0.0]
        kept = (1 - tail).log()

        def cgf(s: arb) -> arb:
            value = draws.cgf(s, t) - kept
            seen.append(outwards(value / (s * (1 + s))).lower)
            return value.upper()

        response = draws.step * (draws.step / 2).tanh()  # the rho of one, and its mean
        mean = draws.mean_below(t, tail) * response
        upper = outwards(supremum(cgf, mean, t * draws.step)).upper
        # The randomised responses of t moved draws bound those of fewer.
        upper = min(upper, outwards(t * response).upper)
        return Approximate(Bounds(min(max(seen), upper), upper), outwards(tail, 1.0).upper, t)


class _Moved:
    """T of the module's text, in balls at the precision of the moment."""

    def __init__(self, loss: Draws, draws: int | None = None) -> None:
        self.loss = loss
        self.draws = loss.draws if draws is None else draws
        self.chance = loss.up + loss.down
        self.step = ball(loss.up / loss.down).log()
        self.moved, self.other = ball(self.chance), ball(1 - self.chance)
        self.odds = ball(self.chance / (1 - self.chance)) if self.chance < 1 else arb(0)
        self.chances: dict[int, arb] = {}  # logarithms of Pr[T = j]
        self.further: dict[int, _Series] = {}
        self.nearer: dict[int, _Series] = {}

    def most(self, delta: float) -> int:
        """The least t with Pr[T > t] proven to be at most delta."""
        if self.chance == 1:
            return self.draws
        low, high = math.floor(self.draws * self.chance) - 1, self.draws
        reach = math.isqrt(max(low, 1))  # about a standard deviation, or more
        while high - low > 1:
            reach *= 4
            middle = min(low + reach, (low + high) // 2)
            if middle >= 0 and self.tail(middle).upper() <= arb(delta):
                high = middle
            else:
                low = middle
        return high

    def tail(self, t: int) -> arb:
        """Pr[T > t], for t of at least the mean less 1."""
        return self._above(t, arb(1)).exp() if t < self.draws else arb(0)

    def mean_below(self, t: int, tail: arb) -> arb:
        """E[T | T <= t] for 0 < t < m, by j Pr[T = j] = E[T] Pr[T' = j - 1], T' of m - 1."""
        mean = self.moved * self.draws
        found = mean * (1 - _Moved(self.loss, self.draws - 1).tail(t - 1)) / (1 - tail)
        return found if found < mean else mean

    def cgf(self, s: arb, t: int) -> arb:
        """Log E[r(s)^T; T <= t]."""
        r = (self.step * (s + arb(0.5))).cosh() / (self.step / 2).cosh()
        whole = self.draws * (self.moved * (r - 1)).log1p()
        if float(self.odds * r) * (self.draws - t) < t + 1:  # the mean under r^T is below t
            share = 1 - (self._above(t, r) - whole).exp()
            return whole + share.log() if share > 0 else whole.union(self._term(t, r))
        found = self._below(t, r)
        return found if found.upper() < whole.upper() else whole.union(self._term(t, r))

    def _term(self, j: int, r: arb) -> arb:
        """The logarithm of the j-th term of E[r^T]."""
        if j not in self.chances:
            m = self.draws
            ways = arb(m + 1).lgamma() - arb(j + 1).lgamma() - arb(m - j + 1).lgamma()
            self.chances[j] = ways + j * self.moved.log() + (m - j) * self.other.log()
        return self.chances[j] + j * r.log()

    def _above(self, t: int, r: arb) -> arb:
        """The logarithm of the sum of the terms above t."""
        if t not in self.further:
            m, odds = self.draws, self.odds
            self.further[t] = _Series(odds * (m - j) / (j + 1) for j in range(t + 1, m))
        return self._term(t + 1, r) + self.further[t].at(r).log()

    def _below(self, t: int, r: arb) -> arb:
        """The logarithm of the sum of the terms up to t."""
        if t not in self.nearer:
            m, odds = self.draws, self.odds
            self.nearer[t] = _Series(j / (odds * (m - j + 1)) for j in range(t, 0, -1))
        return self._term(t, r) + self.nearer[t].at(1 / r).log()


class _Series:
    """1 + q_0 x + q_0 q_1 x^2 + .. for ratios q that fall."""

    def __init__(self, ratios: Iterable[arb]) -> None:
        first = list(itertools.islice(ratios, _TERMS + 1))
        self.beyond = first.pop() if len(first) > _TERMS else None
        terms = list(itertools.accumulate(first, operator.mul, initial=arb(1)))
        self.sum, self.last, self.power = arb_poly(terms), terms[-1], len(first)

    def at(self, x: arb) -> arb:
        """The sum, a ball without end where the rest does not fall."""
        total: arb = self.sum(x)
        if self.beyond is None:
            return total
        ratio = self.beyond * x
        if not ratio < 1:
            return arb(0, math.inf)
        return total.union(total + self.last * x**self.power * ratio / (1 - ratio))
