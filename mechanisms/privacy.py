"""What a guarantee protects: the neighbouring relation and the privacy unit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mechanisms.errors import ConfigError, RecordsError


class Adjacency(StrEnum):
    """Neighbouring relations; never a default, always written down."""

    REPLACE_ONE = "replace_one"
    """Two datasets of one public size that differ in one privacy unit."""


class Unit(StrEnum):
    """Whose data is protected."""

    RECORD = "record"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The guarantee's frame of reference, all of it public.

    Attributes:
        adjacency: The neighbouring relation.
        unit: The privacy unit.
        n_records: Number of records n; public under replace-one.
        unit_records: Records that one unit contributes, c.
    """

    adjacency: Adjacency
    unit: Unit
    n_records: int
    unit_records: int = 1

    def __post_init__(self) -> None:
        if self.n_records < 1:
            raise RecordsError("n_records must be at least 1.", where="privacy.n_records")
        if not 1 <= self.unit_records <= self.n_records:
            raise ConfigError("unit_records must be between 1 and n_records.")
