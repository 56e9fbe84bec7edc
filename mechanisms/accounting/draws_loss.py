"""The loss of draws on a lattice, as one of the losses that compose.

The curve of a few draws is a finite sum over their outcomes, evaluated as it stands. More of them
have too many outcomes for that; then the contour integral of mechanisms.accounting.draws.lattice
takes over.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from flint import arb, arb_poly, ctx

from mechanisms.accounting.draws.lattice import LatticeLoss
from mechanisms.accounting.draws.renyi import concentrated, renyi_divergence
from mechanisms.accounting.draws.truncated_draws import approximately_concentrated
from mechanisms.accounting.numerics.enclosures import (
    Bounds,
    ball,
    enclosed,
)
from mechanisms.accounting.privacy_loss import ApproximateRho, Loss, Order

FEW_DRAWS = 1000
"""Up to which the masses of all draws are summed."""


@dataclass(frozen=True)
class DrawsLoss(Loss):
    """The loss of mechanisms.accounting.draws.lattice as one of these values.

    A few draws are summed from their exact masses, a polynomial power in balls.
    """

    lattice: LatticeLoss

    def _ahead(self, epsilon: float) -> Bounds:
        up, down, m = self.lattice.up, self.lattice.down, self.lattice.draws
        if not (up > down and 0 < m <= FEW_DRAWS):
            return self.lattice.delta(epsilon)

        def value() -> arb:
            first = (arb(epsilon) / ball(up / down).log()).floor().unique_fmpz()
            if first is None:
                return arb(0, math.inf)
            count = max(m - int(first), 0)  # of lattice points above epsilon
            p, q = _draws_sums(self.lattice, int(ctx.prec))
            return p[count] - arb(epsilon).exp() * q[count]

        return enclosed(value, 1.0)

    def epsilon(self, delta: float) -> Bounds:
        return self.lattice.epsilon(delta)

    @property
    def pure_epsilon(self) -> Bounds:
        return self.lattice.pure_epsilon

    @property
    def rho(self) -> Bounds:
        return concentrated(self.lattice)

    def approximate_rho(self, delta: float) -> ApproximateRho:
        """By the number of draws on the two cells, unless the whole loss has no larger rho."""
        found = approximately_concentrated(self.lattice, delta)
        if found is None or not self._has_more_than(found.rho.upper):
            whole = self.rho
            if found is None or found.rho.upper >= whole.upper:
                return ApproximateRho(whole, 0.0)
        return ApproximateRho(found.rho, found.delta)

    def _has_more_than(self, rho: float) -> bool:
        """Whether one divergence shows that the whole loss has a larger rho; quicker than its."""
        order = 1 + 16 / math.log1p(float(self.lattice.up / self.lattice.down - 1))
        return math.isfinite(order) and self.renyi(order).lower > rho * order * (1 + 1e-12)

    def renyi(self, order: Order) -> Bounds:
        return renyi_divergence(self.lattice, order)


@functools.lru_cache(maxsize=64)
def _draws_sums(loss: LatticeLoss, bits: int) -> tuple[list[arb], list[arb]]:
    """Running sums of both distributions over the lattice, largest loss first."""
    with ctx.workprec(bits):
        up, down, rest = ball(loss.up), ball(loss.down), ball(1 - loss.up - loss.down)
        powers = (arb_poly([up, rest, down]) ** loss.draws).coeffs()
        p, q = [arb(0)], [arb(0)]
        for mass, mirrored in zip(powers, reversed(powers), strict=True):
            p.append(p[-1] + mass)
            q.append(q[-1] + mirrored)  # the pair is symmetric
        return p, q
