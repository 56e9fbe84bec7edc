"""Dividing a release's budget among its products, so that together they just meet it.

All parameters of a release are fixed before any data is read, so the losses of its products
compose (mechanisms.accounting.composition), and n products cost far less than their epsilons added
up. What is divided has to add up all the same, and it does in these currencies:

* **a budget of rho**: zero-concentrated privacy adds up, so a share of rho is a target of its own
  (Bun and Steinke 2016, arXiv 1605.02065, Lemma 2.3), and so does the delta but for which it
  holds (their section 8);
* **one product, or a budget without delta**: a share of epsilon, at delta or at 0; and so
  where parameters that are fixed fit no other division, a share of each;
* **several products at (epsilon, delta)**: a share of the Rényi divergence of one order a,
  which adds up too (Mironov 2017, Proposition 1). The order is the one that matters at
  (epsilon, delta): the least of the bound (a - 1)(a mu^2/2 - epsilon) on log delta, for the
  Gaussian mu of the budget, is at a = 1/2 + epsilon/mu^2. For Gaussian noise this is a share of
  mu^2, whatever the order. Of the shares, scaled by s^2 together, only the proportions matter:
  mechanisms.planning.calibration finds the s at which the composed loss just meets (epsilon,
  delta).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

from mechanisms.accounting.analytic import GaussianLoss
from mechanisms.accounting.numerics.enclosures import double_below
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.mechanism import Mechanism, Target
from mechanisms.domain.domain import Domain

_EXACT = Context(prec=1000)
_LARGEST_MU = 64.0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a release may cost: epsilon at delta, or rho.

    Attributes:
        delta: At least 0; with rho, where the epsilon of the release is stated.
        epsilon: Above 0, or None.
        rho: Above 0, or None; one of the two is given.
        rho_delta: The largest delta with which the rho of products may fail; by default ``delta``.
    """

    delta: Decimal
    epsilon: Decimal | None = None
    rho: Decimal | None = None
    rho_delta: Decimal | None = None

    def __post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError("a budget is of epsilon or of rho")

    def rho_delta_of(self, share: Decimal) -> Decimal:
        """A share's part of the delta of rho, exactly."""
        return part_of(self.delta if self.rho_delta is None else self.rho_delta, share)


@dataclass(frozen=True)
class Part:
    """One product's part: its share and the public quantities of its table.

    Attributes:
        shape: As a ``Target`` has it.
        domain: The product's columns.
    """

    share: Decimal
    n_records: int
    n_cells: int
    unit_records: int
    shape: tuple[int, ...] = ()
    domain: Domain | None = None

    def _target(
        self,
        epsilon: float,
        delta: float,
        *,
        rho: float | None = None,
        rho_delta: float = 0.0,
        renyi: tuple[int, float] | None = None,
    ) -> Target:
        return Target(
            epsilon=epsilon,
            delta=delta,
            n_records=self.n_records,
            n_cells=self.n_cells,
            unit_records=self.unit_records,
            rho=rho,
            rho_delta=rho_delta,
            renyi=renyi,
            shape=self.shape,
            domain=self.domain,
        )


def part_of(amount: Decimal, share: Decimal) -> Decimal:
    """Share times amount, exactly."""
    return _EXACT.multiply(amount, share)


def targets(
    budget: Budget,
    parts: Sequence[Part],
    *,
    scale: float = 1.0,
    pure: bool = False,
    added: bool = False,
) -> list[Target]:
    """What each product may spend.

    Args:
        budget: Of the release.
        parts: Its products; their shares add up to 1.
        scale: Multiplies epsilon, or mu; exactly nothing is lost at 1.
        pure: Leave delta aside.
        added: Divide epsilon and delta, whose sums bound any composition.
    """
    delta = Decimal(0) if pure else budget.delta
    factor = Decimal(scale)
    if budget.rho is not None:
        rhos = [_EXACT.multiply(part_of(budget.rho, part.share), factor**2) for part in parts]
        return [
            part._target(
                *_gaussian(2 * float(rho), delta, part),
                rho=double_below(rho),
                rho_delta=double_below(budget.rho_delta_of(part.share)),
            )
            for rho, part in zip(rhos, parts, strict=True)
        ]
    assert budget.epsilon is not None
    if added or len(parts) == 1 or not delta:
        return [
            part._target(
                double_below(_EXACT.multiply(part_of(budget.epsilon, part.share), factor)),
                double_below(part_of(delta, part.share)),
            )
            for part in parts
        ]
    mu = gaussian_mu(float(budget.epsilon), float(delta))
    order = max(2, round(0.5 + float(budget.epsilon) / mu**2))
    squares = [(scale * mu) ** 2 * float(part.share) for part in parts]
    return [
        part._target(*_gaussian(square, delta, part), renyi=(order, order * square / 2))
        for square, part in zip(squares, parts, strict=True)
    ]


def losses_of(mechanisms: Sequence[Mechanism], parts: Sequence[Part]) -> list[PrivacyLoss]:
    """Each mechanism's loss on its product's table."""
    return [
        mechanism.loss(
            n_records=part.n_records, n_cells=part.n_cells, unit_records=part.unit_records
        )
        for mechanism, part in zip(mechanisms, parts, strict=True)
    ]


@functools.lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """About the mu of the Gaussian loss with this delta at this epsilon; a guide, not a bound."""
    low, high = 0.0, _LARGEST_MU
    for _ in range(60):
        middle = (low + high) / 2
        if GaussianLoss(Fraction(middle)).delta(epsilon).upper > delta:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    return high


def _gaussian(mu_squared: float, delta: Decimal, part: Part) -> tuple[float, float]:
    """(epsilon, delta) of the Gaussian loss, at the product's part of delta."""
    own = double_below(part_of(delta, part.share))
    if not own:
        return mu_squared / 2, 0.0
    return _epsilon(mu_squared, own), own


@functools.lru_cache(maxsize=256)
def _epsilon(mu_squared: float, delta: float) -> float:
    """Epsilon of the Gaussian loss, found once for all products of one share."""
    return GaussianLoss(Fraction(mu_squared**0.5)).epsilon(delta).upper
