"""What every mechanism offers; the planner, the schema and the flow use only this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

from mechanisms.accuracy import ExpectedError
from mechanisms.columns import Codes
from mechanisms.debias import DebiasedTable
from mechanisms.domain import Domain
from mechanisms.losses import PrivacyLoss
from mechanisms.randomness import Randomness
from mechanisms.sampling import Progress
from mechanisms.table import ContingencyTable


class RawTable(Protocol):
    """What a private step gives back: integers by cell, public from then on."""

    @property
    def domain(self) -> Domain:
        """The release's domain."""

    @property
    def cells(self) -> Codes:
        """int64[K], ascending: the listed cells."""

    @property
    def counts(self) -> Codes:
        """int64[K]: drawn or noisy counts."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A budget to meet, with the public quantities that decide what it buys.

    Attributes:
        epsilon: To be met at ``delta``.
        delta: At least 0.
        n_cells: Number of possible cells, the absent one included.
        rho: If given, the budget is this much of zero-concentrated privacy instead.
    """

    epsilon: float
    delta: float
    n_records: int
    n_cells: int
    unit_records: int = 1
    rho: float | None = None

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
            return loss.rho.upper <= self.rho
        return loss.delta(self.epsilon).upper <= self.delta


class Mechanism(Protocol):
    """A mechanism at fixed parameters.

    ``name`` is its key in the registry and in a config; ``kinds`` are the
    products it can serve; ``pure`` says that it needs no delta and is charged
    none; ``knobs`` is a frozen dataclass of what a config may set, its field
    names the keys of the YAML.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    knobs: ClassVar[type]
    pure: ClassVar[bool]

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet the target, from public quantities alone."""
        ...

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> PrivacyLoss:
        """The privacy loss; takes no data."""
        ...

    def rows(self, *, n_cells: int) -> int:
        """Most cells that a release can list."""
        ...

    def release(
        self,
        table: ContingencyTable,
        rng: Randomness,
        progress: Progress | None = None,
    ) -> RawTable:
        """The private step."""
        ...

    def postprocess(self, release: Any, *, n_records: int) -> DebiasedTable:
        """Free improvement of a release."""
        ...

    def expected_error(self, *, n_records: int, n_cells: int) -> ExpectedError:
        """Expected error from public quantities alone."""
        ...

    def describe(self) -> dict[str, str | int]:
        """The parameters, enough to rebuild the mechanism."""
        ...

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the mechanism from ``describe``."""
        ...
