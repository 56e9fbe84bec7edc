"""Losses of Gaussian noise on a statistic of resampled records.

A resample holds one person's record i times with probability p_i, so that a replacement of that
record moves the resample by i records and a mu-GDP statistic by i mu. Balle, Barthe and Gaboardi
(2018, arXiv 1807.01647), Theorem 10, with all of the randomness in what is drawn, give

    delta(epsilon') = sum over i >= 1 of p_i delta_i(epsilon),
    epsilon = log(1 + (e^epsilon' - 1) / p),  p = 1 - p_0,  epsilon' >= 0,

delta_i the curve of the Gaussian loss i mu, for replace-one neighbours and in both orders. It is
Theorem 3.4 with Proposition B.8 of Wang, Cheng and Awan (2022, arXiv 2210.06140) for the
bootstrap.

**Why.** Let w_0 be the output's law given that the record was not drawn, the same for both
neighbours, and w, w' the laws given that it was. Replace each drawn copy in the resample by a
fresh draw from the other records: this turns w and w' both into w_0 (for the bootstrap their
Appendix B.2; for subsets the swap with a record left out) and moves i copies. So the three
laws are pairwise as close as the mixture over i allows: H_epsilon <= D(epsilon) =
sum of (p_i / p) delta_i(epsilon). With a = p_0 + p e^epsilon = e^epsilon' and b = a / e^epsilon,

    p_0 w_0 + p w - a (p_0 w_0 + p w')  =  p (w - e^epsilon (b w' + (1 - b) w_0)),

since p_0 - a p_0 = -p e^epsilon (1 - b) and a p = p e^epsilon b. The divergence is jointly
convex, so its positive part is at most p D(epsilon). The same holds with the neighbours
exchanged.

The losses here bound a mechanism from above; their own enclosures are of that bound.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Self

from flint import arb, ctx

from mechanisms.accounting.numerics.enclosures import Bounds, ball, enclosed
from mechanisms.accounting.privacy_loss import Loss, Order, exact_order
from mechanisms.errors import RecordsError


class Hits(NamedTuple):
    """How often a record is drawn.

    Attributes:
        times: Probabilities of 1, 2, .. times.
        beyond: Upper bounds on those of more than 1, 2, .. times.
        any: Probability of any number of times but none.
    """

    times: tuple[arb, ...]
    beyond: tuple[arb, ...]
    any: arb


_LEFT_OUT = arb(2) ** -66
"""Of the curve so far, what all further terms may come to where a sum ends."""


class ResampledGaussianLoss(Loss):
    """Gaussian noise on a statistic of records drawn at random.

    Attributes:
        mu_squared: Square of the Gaussian loss mu of the statistic for one moved record.
    """

    mu_squared: Fraction

    @abc.abstractmethod
    def at(self, mu_squared: Fraction) -> Self:
        """The same resampling with another noise."""

    @abc.abstractmethod
    def hits(self, bits: int) -> Hits:
        """The law of a record's copies, the rest of it below 2**-bits."""

    def _ahead(self, epsilon: float) -> Bounds:
        if not self.mu_squared:
            return Bounds(0.0, 0.0)

        def value() -> arb:
            law = self.hits(int(ctx.prec))
            factor = 1 + arb(epsilon).expm1() / law.any  # e^epsilon of the statistic itself
            mu, root = ball(self.mu_squared).sqrt(), arb(2).sqrt()
            shift, half = factor.log() / mu / root, mu / 2 / root
            twice, apart, rest = arb(0), arb(0), arb(0)
            for i, (chance, rest) in enumerate(zip(law.times, law.beyond, strict=True), 1):
                middle, apart = shift / i, apart + half
                twice += chance * ((middle - apart).erfc() - factor * (middle + apart).erfc())
                if rest < twice * _LEFT_OUT:
                    break
            return twice / 2 + rest.union(arb(0))  # no curve passes 1

        return enclosed(value, 1.0)

    @property
    def pure_epsilon(self) -> Bounds:
        return Bounds(math.inf, math.inf) if self.mu_squared else Bounds(0.0, 0.0)

    @property
    def rho(self) -> Bounds:
        """No bound better than that of a whole dataset exchanged is known: none is claimed."""
        return Bounds(0.0, math.inf if self.mu_squared else 0.0)

    def renyi(self, order: Order) -> Bounds:
        exact_order(order)
        return self.rho


@dataclass(frozen=True)
class BootstrapLoss(ResampledGaussianLoss):
    """One bootstrap replicate: n draws with replacement, each of n records equally likely.

    Attributes:
        mu_squared: Of the statistic of n records.
        n_records: Number of records n.
    """

    mu_squared: Fraction
    n_records: int

    def __post_init__(self) -> None:
        if self.mu_squared < 0 or self.n_records < 1:
            raise RecordsError("mu_squared must not be negative and n_records at least 1.")

    def at(self, mu_squared: Fraction) -> Self:
        return dataclasses.replace(self, mu_squared=mu_squared)

    def hits(self, bits: int) -> Hits:
        return _binomial_hits(self.n_records, bits)


@dataclass(frozen=True)
class SubsampleLoss(ResampledGaussianLoss):
    """A statistic of a random subset of fixed size, drawn without replacement.

    Attributes:
        mu_squared: Of the statistic of that many records.
        share: Records in the subset over all records, p.
    """

    mu_squared: Fraction
    share: Fraction

    def __post_init__(self) -> None:
        if self.mu_squared < 0 or not 0 < self.share <= 1:
            raise RecordsError("mu_squared must not be negative, share be in (0, 1].")

    def at(self, mu_squared: Fraction) -> Self:
        return dataclasses.replace(self, mu_squared=mu_squared)

    def hits(self, bits: int) -> Hits:
        return Hits((ball(self.share),), (arb(0),), ball(self.share))


@functools.lru_cache(maxsize=32)
def _binomial_hits(n: int, bits: int) -> Hits:
    """Binomial(n, 1/n), as far as 2**-bits; the terms after the i-th fall by 1/2 and more."""
    if n == 1:
        return Hits((arb(1),), (arb(0),), arb(1))
    with ctx.workprec(bits + 32):
        none = (n * (1 - 1 / arb(n)).log()).exp()
        small, last = arb(2) ** -bits, none * n / (n - 1)
        times, more = [last], arb(0)
        while len(times) < n:
            i = len(times)
            last = last * (n - i) / ((i + 1) * (n - 1))
            if 2 * last < small:
                more = 2 * last
                break
            times.append(last)
        beyond = [more.upper()]
        for chance in times[:0:-1]:
            beyond.append((beyond[-1] + chance).upper())
        return Hits(tuple(times), tuple(reversed(beyond)), 1 - none)
