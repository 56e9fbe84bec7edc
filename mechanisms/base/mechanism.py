"""What every mechanism offers; the planner, the schema and the flow use only this."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from mechanisms.accounting.analytic import GaussianLoss, PureLoss
from mechanisms.accounting.privacy_loss import PrivacyLoss
from mechanisms.base.citation import Citation
from mechanisms.base.kind import ExpectedError, Kind
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError

if TYPE_CHECKING:
    from mechanisms.sampling.randomness import Progress, Randomness

_FIRST, _LAST, _DIGITS = -9, 6, 12  # powers of ten and digits of a pure epsilon
_ASKED = 1 << 14  # answers of losses that are kept
_SMALLEST_MU, _LARGEST_MU = 2.0**-30, 2.0**6


@dataclass(frozen=True, kw_only=True)
class Target:
    """A budget to meet, with the public quantities that decide what it buys.

    Attributes:
        epsilon: To be met at ``delta``.
        delta: At least 0.
        n_cells: Number of possible cells, the absent one included.
        rho: If given, the budget is this much of zero-concentrated privacy instead.
        rho_delta: But for which that has to hold.
        renyi: If given, it is a Rényi divergence instead, of the curves that will be composed:
            the order, above 1, and the most.
        shape: Number of codes of each column, for mechanisms that know cells as places;
            empty for the cells of one column, (0,) if not all combinations are cells or
            not all cells are combinations.
        domain: The product's columns, for mechanisms that go by their values.
    """

    epsilon: float
    delta: float
    n_records: int
    n_cells: int
    unit_records: int = 1
    rho: float | None = None
    rho_delta: float = 0.0
    renyi: tuple[int, float] | None = None
    shape: tuple[int, ...] = ()
    domain: Domain | None = None

    @property
    def frame(self) -> dict[str, int]:
        """The public quantities, as ``Mechanism.loss`` takes them."""
        return {
            "n_records": self.n_records,
            "n_cells": self.n_cells,
            "unit_records": self.unit_records,
        }

    def allows(self, loss: PrivacyLoss) -> bool:
        """Whether a loss is proven to be within the budget."""
        if self.rho is not None:
            return _rho_but_for(loss, self.rho_delta) <= self.rho
        if self.renyi is not None:
            order, most = self.renyi
            return _divergence(loss, order) <= most
        if not self.delta and self.epsilon < loss.pure_epsilon.lower:
            return False  # and so would its delta say, which is above 0
        return _delta(loss, self.epsilon) <= self.delta

    def pure_epsilon(self, loss: Callable[[Fraction], PrivacyLoss] = PureLoss) -> Decimal:
        """Largest epsilon per record that a pure guarantee may have, to twelve digits below.

        A unit of c records is charged c times this.

        Args:
            loss: What is charged for an epsilon: ``BoundedRangeLoss`` where the range of the loss
                is proven to be at most that.

        Raises:
            InfeasibleBudgetError: The budget does not allow 1e-9.
        """
        return _largest_pure_epsilon(self._budget, loss)

    def largest_mu(self) -> Fraction:
        """The largest mu for which mu-GDP is proven to be within the budget, to one in 10^9.

        Raises:
            InfeasibleBudgetError: The budget allows none; without delta no Gaussian noise does.
        """
        return _largest_mu(self._budget)

    @property
    def _budget(self) -> Target:
        """The same for any table: all that ``allows`` goes by, and the unit."""
        return replace(self, n_records=1, n_cells=1, shape=(), domain=None)

    def grid(self, mechanism: str, *, columns: int | None = None, instead: str) -> tuple[int, ...]:
        """Number of codes of each column, whose combinations must all be cells.

        Args:
            mechanism: For whom.
            columns: Most columns that it can serve, by default any number.
            instead: What could serve a product that it cannot.

        Raises:
            ConfigError: The mechanism cannot serve this product.
        """
        shape = self.shape or (self.n_cells,)
        problem = ""
        if math.prod(shape) != self.n_cells:
            problem = "knows no cells that are impossible or stand for no value"
        elif columns is not None and len(shape) > columns:
            problem = f"serves products of only {columns} column, whose order it goes by"
        if problem:
            raise ConfigError(f"The mechanism '{mechanism}' {problem}.", next_step=instead)
        return shape


@functools.lru_cache(maxsize=256)
def _largest_pure_epsilon(budget: Target, loss: Callable[[Fraction], PrivacyLoss]) -> Decimal:
    """The largest pure epsilon, found once for all products of one budget."""

    def fits(epsilon: Decimal) -> bool:
        return budget.allows(loss(Fraction(epsilon) * budget.unit_records))

    powers = [p for p in range(_FIRST, _LAST + 1) if fits(Decimal(1).scaleb(p))]
    if not powers:
        raise InfeasibleBudgetError("The budget does not allow an epsilon of 1e-9 a record.")
    place = powers[-1] - _DIGITS + 1
    low, high = 10 ** (_DIGITS - 1), 10**_DIGITS
    while powers[-1] < _LAST and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(Decimal(middle).scaleb(place)) else (low, middle)
    return Decimal(low).scaleb(place).normalize()


@functools.lru_cache(maxsize=256)
def _largest_mu(budget: Target) -> Fraction:
    """The largest mu, likewise."""

    def fits(mu: float) -> bool:
        return budget.allows(GaussianLoss(Fraction(mu)))

    low, high = _SMALLEST_MU, _LARGEST_MU
    if not fits(low):
        raise InfeasibleBudgetError(
            "The budget does not allow Gaussian noise, which needs a delta above 0 (or a rho)."
        )
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Fraction(low)


@functools.lru_cache(maxsize=_ASKED)
def _rho_but_for(loss: PrivacyLoss, delta: float) -> float:
    """What a loss is asked for, again for every product of a plan of many: a proven rho."""
    return loss.approximate_rho(delta).rho.upper


@functools.lru_cache(maxsize=_ASKED)
def _divergence(loss: PrivacyLoss, order: int) -> float:
    """The same: a Rényi divergence of its curve."""
    return loss.renyi_of_curve(order).upper


@functools.lru_cache(maxsize=_ASKED)
def _delta(loss: PrivacyLoss, epsilon: float) -> float:
    """The same: a delta."""
    return loss.delta(epsilon).upper


def check_frame(*, n_records: int, n_cells: int, unit_records: int = 1) -> None:
    """Refuse a size that cannot be.

    Raises:
        RecordsError: Not 1 <= unit_records <= n_records, or no cell.
    """
    if n_cells < 1 or n_records < 1:
        raise RecordsError("n_records and n_cells must be positive.")
    if not 1 <= unit_records <= n_records:
        raise RecordsError("unit_records must be between 1 and n_records.")


Needs = Literal["joint", "columns"]
"""What a mechanism is given of the count: a contingency table, or coded columns."""


def needs_of(mechanism: Mechanism | type[Mechanism]) -> Needs:
    """What a mechanism needs; the joint table unless its class says ``needs = "columns"``."""
    needs: Needs = getattr(mechanism, "needs", "joint")
    return needs


class Mechanism(Protocol):
    """A mechanism at fixed parameters.

    ``name`` is its key in the registry and in a config; ``citations`` are where its guarantee
    is proven, for the privacy statement of a bundle; ``kinds`` are the
    products it can serve; ``pure`` says that it needs no delta and is charged
    none; ``knobs`` is a frozen dataclass of what a config may set, its field
    names the keys of the YAML. A class that has ``needs = "columns"`` is given coded columns
    (mechanisms.domain.coded_columns) and serves products with any number of columns.
    """

    name: ClassVar[str]
    citations: ClassVar[tuple[Citation, ...]]
    kinds: ClassVar[tuple[Kind, ...]]
    knobs: ClassVar[type]
    pure: ClassVar[bool]

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet the target, from public quantities only."""
        ...

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss; takes no data."""
        ...

    def release(
        self,
        table: Any,
        rng: Randomness,
        progress: Progress | None = None,
    ) -> Any:
        """The private step; what it gives back is public.

        Args:
            table: A ``ContingencyTable``, or ``CodedColumns`` as ``needs_of`` says; private. Its
                size must be the public n.
            rng: Of all random bits; charge the ledger before building it.
            progress: Called with the number of records drawn, or of cells with noise, since the
                last call.
        """
        ...

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedError:
        """Expected error from public quantities only, a dataclass."""
        ...

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild the mechanism's loss and post-processing."""
        ...

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        ...
