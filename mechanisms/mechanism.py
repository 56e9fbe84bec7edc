"""What every mechanism offers; the planner, the schema and the flow use only this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from mechanisms.accuracy import ExpectedError
from mechanisms.debias import DebiasedTable
from mechanisms.lattice import LatticeLoss
from mechanisms.sampling import Progress
from mechanisms.table import ContingencyTable


@dataclass(frozen=True, kw_only=True)
class Target:
    """A budget to meet, with the public quantities that decide what it buys."""

    epsilon: float
    delta: float
    n_records: int
    n_cells: int
    unit_records: int = 1


class Mechanism(Protocol):
    """A mechanism at fixed parameters.

    ``name`` is its key in the registry and in a config; ``kinds`` are the
    products it can serve; ``knobs`` is a frozen dataclass of what a config may
    set, its field names the keys of the YAML.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]
    knobs: ClassVar[type]

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """Parameters that meet the target, from public quantities alone."""
        ...

    def loss(self, *, n_records: int, n_cells: int, unit_records: int = 1) -> LatticeLoss:
        """The privacy loss; takes no data."""
        ...

    def release(
        self,
        table: ContingencyTable,
        rng: np.random.Generator,
        progress: Progress | None = None,
    ) -> ContingencyTable:
        """The private step."""
        ...

    def postprocess(self, release: ContingencyTable, *, n_records: int) -> DebiasedTable:
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
