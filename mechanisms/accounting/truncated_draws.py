"""The approximate rho of records drawn from a smoothed table (mechanisms/README.md, section 2).

The dominating pair (up, down, rest), its loss l and the sum S of m steps are those of ``draws.py``.
What the whole loss costs under zero-concentrated privacy is nearly all due to draws that all fall
on two cells, which is next to impossible. Two events leave them out; either has the same
probability under both of the pair, and the smaller rho is charged.

**Theorem (moved draws).** Let T be the number of draws that do not fall on "rest",
Binomial(m, up + down) under both. For every t the m draws are delta-approximately
rho-zero-concentrated (Bun and Steinke 2016, arXiv 1605.02065, Definition 8.1) with
delta = Pr[T > t] and

    rho = sup over u > 0 of K(u)/(u (1 + u)),  K(u) = log E[r(u)^T | T <= t],
    r(u) = cosh(l (u + 1/2))/cosh(l/2).

*Proof.* The event T <= t has the probability 1 - delta under either of the pair, so the pair given
the event is what the definition asks for. Given the event the weights of T = 0, .., t are the same
in both, and given T the loss is that of T randomised responses of l. With order 1 + u the mean of
(P/Q)^u under P is the mean over T of what these have: u D = log E[r^T | T <= t], since one of them
has (e^(l (u + 1)) + e^(-l u))/(e^l + 1) = r(u). A post-processing of the pair, as each release is
for its neighbours, is post-processing under the event too. []

**Theorem (net steps).** The same holds for every s with delta = Pr[|S| > s] and

    K(u) = log E[c(u, |S|) | |S| <= s],  c(u, j) = cosh(l j (u + 1/2))/cosh(l j/2).

*Proof.* P and Q differ in which of two outcomes is +1 and which is -1, so S has under Q the law
that -S has under P: |S| has one law under both, and |S| <= s has the probability 1 - delta under
either. A sequence of outcomes whose steps add up to j is e^(l j) times as likely under P as under
Q, so its loss is l S. Hence given |S| = j the loss is that of one randomised response of l j, and
the mean of (P/Q)^u under P is c(u, j). The rest is as above. []

K is convex with K(0) = 0, and K(u) <= t l u or s l u, so that ``balls.supremum`` applies. The least
t, or s, with a delta that is allowed is best: by it the law of T, or of |S|, given the event is
least in the order of likelihood ratios, and K grows with either. As |S| <= T, the least s is at
most the least t. Where both are the same T <= t leaves out more, and may have the smaller rho.
Where s < t the first rho was the smaller one in none of 6000 random settings, but for the width of
the bounds, and is not looked for; if there are such settings, they are charged more than needed.

**Evaluation of moved draws.** E[r^T; T <= t] is a sum of terms whose ratios from t downwards fall,
and those from t + 1 upwards too, in which case it is the rest of (1 + (up + down)(r - 1))^m. Either
is summed from its largest term on for a number of terms; a geometric series is the bound on the
rest. Over that largest term the sum is a polynomial in 1/r, or in r, whose coefficients are the
same for all u.

**Evaluation of net steps.** Pr[S = j] = B_j e^(l j/2)/B with symmetric B_j = B_-j, B_0 = 1. The
coefficients of phi^m, phi(z) = rest + up z + down/z, obey phi z (phi^m)' = m z phi' phi^m, which
says of the ratios r_j = B_(j+1)/B_j, with a = rest/sqrt(up down), that

    r_(j-1) = f_j(r_j),  f_j(r) = (m + 1 - j)/((m + 1 + j) r + a j).

Downwards all terms are positive and errors of a ratio shrink at every step. It starts at j = m,
where r is 0, or at a J above which next to nothing lies. For a >= 1 the step (down, rest, up) is
log-concave, and so are sums of such steps (Hoggar 1974): the ratios fall. So r_J <= r_(J-1) =
f_J(r_J), which with f_J falling says that r_J is at most the fixed point x of f_J; and r_J =
f_(J+1)(r_(J+1)) >= f_(J+1)(r_J) >= f_(J+1)(x). The probabilities beyond J are at most a geometric
series of ratio r_J e^(l/2). Then E[c(u, |S|); |S| <= s] is, but for B, the sum of
B_j e^(l j (u + 1/2)) over -s <= j <= s.

Where J would be large the number of moved draws hardly varies, and both rhos are near the mean
loss: there only the first is looked at.

All arithmetic is ball arithmetic, and every result is rounded outwards.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import NamedTuple, Protocol

from flint import arb, arb_poly, ctx

from statpress.mechanisms.accounting.balls import MOST_PIECES, Bounds, ball, outwards, supremum

_BITS, _STEP_BITS = 192, 128
_TERMS = 160  # of a sum, before the rest is bounded
_MOST_STEPS = 512  # up to which the law of the net number of steps is tabulated
_BEYOND = 45.0  # natural logarithm of how much less than delta may lie beyond the table
_FEWER_PIECES = 128  # of a supremum over a tabulated law

MOVED_DRAWS, NET_STEPS = "moved_draws", "net_steps"
RULES = (MOVED_DRAWS, NET_STEPS)
"""The events but for which a rho may hold, by the names that charges give them."""


class Draws(Hashable, Protocol):
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
        rho: Bounds on the smallest that the rule proves.
        delta: Up to which it holds, rounded up.
        rule: Of ``RULES``, by which event it holds.
        most: The t of moved draws or the s of net steps that the event allows.
    """

    rho: Bounds
    delta: float
    rule: str
    most: int


def approximately_concentrated(loss: Draws, delta: float, rule: str = "") -> Approximate | None:
    """The least rho with at most this delta, or None if the draws have to be taken whole.

    Args:
        loss: The draws.
        delta: At least 0.
        rule: The one of ``RULES`` to go by; by default the one with the smaller rho.
    """
    if not 0 <= delta < 1:
        raise ValueError("delta must be in [0, 1)")
    if loss.is_free or not delta:
        return None
    net = _by_net_steps(loss, delta) if rule != MOVED_DRAWS else None
    if rule == NET_STEPS or (net and not _at_most_moved(loss, net.most, delta)):
        return net
    moved = _by_moved_draws(loss, delta)
    return min(filter(None, (moved, net)), key=lambda one: one.rho.upper, default=None)


def _at_most_moved(loss: Draws, t: int, delta: float) -> bool:
    """Whether Pr[T > t] is proven to be at most delta."""
    with ctx.workprec(_BITS):
        return _Moved(loss).leaves(t, delta)


@functools.lru_cache(maxsize=4096)
def _by_moved_draws(loss: Draws, delta: float) -> Approximate | None:
    with ctx.workprec(_BITS):
        moved = _Moved(loss)
        t = moved.most(delta)
        if t >= loss.draws:
            return None
        tail = moved.tail(t)
        response = moved.step * (moved.step / 2).tanh()  # the rho of one, and its mean
        kept = (1 - tail).log()
        rho = Bounds(0.0, 0.0)
        if t:
            mean = moved.mean_below(t, tail) * response
            # The randomised responses of t moved draws bound those of fewer.
            rho = _supremum(lambda u: moved.cgf(u, t) - kept, mean, t * moved.step, t * response)
        return Approximate(rho, outwards(tail, 1.0).upper, MOVED_DRAWS, t)


@functools.lru_cache(maxsize=4096)
def _by_net_steps(loss: Draws, delta: float) -> Approximate | None:
    rest, top = 1 - loss.up - loss.down, _reach(loss, delta)
    log_concave = rest * rest >= loss.up * loss.down
    if top > _MOST_STEPS or not rest or not (log_concave or top == loss.draws):
        return None
    with ctx.workprec(_STEP_BITS):
        steps = _NetSteps(loss, top)
        s = steps.most(delta)
        if s is None or s >= loss.draws:
            return None
        rho = Bounds(0.0, 0.0)
        if s:
            cgf, mean = steps.below(s)
            whole = s * steps.step
            rho = _supremum(cgf, mean, whole, whole * (whole / 2).tanh(), _FEWER_PIECES)
        return Approximate(rho, outwards(steps.tails[s], 1.0).upper, NET_STEPS, s)


def _supremum(
    cgf: Callable[[arb], arb], mean: arb, largest: arb, most: arb, pieces: int = MOST_PIECES
) -> Bounds:
    """``balls.supremum``, where ``most`` is another upper bound."""
    seen = [0.0]

    def upper_end(u: arb) -> arb:
        value = cgf(u)
        seen.append(outwards(value / (u * (1 + u))).lower)
        return value.upper()

    found = supremum(upper_end, mean, largest, most_pieces=pieces)
    upper = min(outwards(found).upper, outwards(most).upper)
    return Bounds(min(max(seen), upper), upper)


def _reach(loss: Draws, delta: float) -> int:
    """Net steps beyond which next to none of delta lies, by Bernstein's inequality."""
    m, up, down = loss.draws, float(loss.up), float(loss.down)
    room = _BEYOND - math.log(delta)
    reach = room / 3 + math.sqrt((room / 3) ** 2 + 2 * m * (up + down) * room)
    return min(m, math.ceil(m * (up - down) + reach))


class _NetSteps:
    """The law of |S| of the module's text, in balls at the precision of the moment.

    Args:
        loss: The draws.
        top: The J, or all draws.

    Attributes:
        weights: B_0, .., B_J.
        tails: Pr[|S| > s] for s = 0, .., J.
    """

    def __init__(self, loss: Draws, top: int) -> None:
        m, slope = loss.draws, ball(loss.up / loss.down)
        self.step, self.root = slope.log(), slope.sqrt()
        stay = ball(1 - loss.up - loss.down) / ball(loss.up * loss.down).sqrt()

        def before(j: int, ratio: arb) -> arb:
            return (m + 1 - j) / ((m + 1 + j) * ratio + stay * j)

        ratio = arb(0)
        if top < m:
            square = (stay * top) ** 2 + 4 * (m + 1 + top) * (m + 1 - top)
            fixed = 2 * (m + 1 - top) / (stay * top + square.sqrt())
            ratio = fixed.union(before(top + 1, fixed))
        beyond = ratio * self.root
        ratios = []
        for j in range(top, 0, -1):
            ratio = before(j, ratio)
            ratios.append(ratio)
        self.weights = list(itertools.accumulate(reversed(ratios), operator.mul, initial=arb(1)))
        powers = itertools.accumulate([self.root] * top, operator.mul)
        masses = [w * (x + 1 / x) for w, x in zip(self.weights[1:], powers, strict=True)]
        left = masses[-1] * beyond / (1 - beyond) if beyond < 1 else arb(0, math.inf)
        above = list(itertools.accumulate(reversed(masses), initial=left.union(arb(0))))
        self.tails = [tail / (1 + above[-1]) for tail in reversed(above)]

    def most(self, delta: float) -> int | None:
        """The least s with Pr[|S| > s] proven to be at most delta."""
        return next((s for s, tail in enumerate(self.tails) if tail.upper() <= arb(delta)), None)

    def below(self, s: int) -> tuple[Callable[[arb], arb], arb]:
        """K of the module's text given |S| <= s, and its slope at 0, which is the mean loss."""
        half = arb_poly(self.weights[: s + 1])
        slope = half.derivative()

        def both(x: arb) -> arb:
            return half(x) + half(1 / x) - 1

        kept, x = both(self.root), self.root
        mean = self.step * (x * slope(x) - slope(1 / x) / x) / kept
        return lambda u: (both((self.step * (u + arb(0.5))).exp()) / kept).log(), mean


class _Moved:
    """The law of T of the module's text, in balls at the precision of the moment."""

    def __init__(self, loss: Draws, draws: int | None = None) -> None:
        self.loss = loss
        self.draws = loss.draws if draws is None else draws
        self.chance = loss.up + loss.down
        self.typical = math.floor(self.draws * self.chance)
        self.step = ball(loss.up / loss.down).log()
        self.moved, self.other = ball(self.chance), ball(1 - self.chance)
        self.odds = ball(self.chance / (1 - self.chance)) if self.chance < 1 else arb(0)
        self.chances: dict[int, arb] = {}  # logarithms of Pr[T = j]
        self.further: dict[int, _Series] = {}
        self.nearer: dict[int, _Series] = {}

    def leaves(self, t: int, delta: float) -> bool:
        """Whether Pr[T > t] is proven to be at most delta."""
        near = max(self.typical - 1, 0)
        return t >= self.draws or (t >= near and self.tail(t).upper() <= arb(delta))

    def most(self, delta: float) -> int:
        """The least t with Pr[T > t] proven to be at most delta."""
        if self.chance == 1:
            return self.draws
        low, high = self.typical - 1, self.draws
        reach = math.isqrt(max(low, 1))  # about a standard deviation, or more
        while high - low > 1:
            reach *= 4
            middle = min(low + reach, (low + high) // 2)
            if self.leaves(middle, delta):
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
