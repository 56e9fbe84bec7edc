"""What a guarantee protects: the neighbouring relation and the privacy unit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mechanisms.errors import ConfigError, RecordsError

_TOO_MANY = 2**62  # a table's counts add up to less


class Adjacency(StrEnum):
    """Neighbouring relations; never a default, always written down."""

    REPLACE_ONE = "replace_one"
    """Two datasets of one public size that differ in one privacy unit."""


class Unit(StrEnum):
    """Whose data is protected, where no column says it."""

    RECORD = "record"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The guarantee's frame of reference, all of it public.

    Attributes:
        adjacency: The neighbouring relation.
        unit: The privacy unit: ``record``, or the label of a column, see ``of_units``.
        n_records: Number of records n; public under replace-one.
        unit_records: Records that one unit contributes, c.
    """

    adjacency: Adjacency
    unit: str
    n_records: int
    unit_records: int = 1

    def __post_init__(self) -> None:
        if self.n_records < 1:
            raise RecordsError("n_records must be at least 1.", where="privacy.n_records")
        if not 1 <= self.unit_records <= self.n_records:
            raise ConfigError("unit_records must be between 1 and n_records.")

    @classmethod
    def of_units(
        cls, *, adjacency: Adjacency, column: str, max_records: int, n_units: int
    ) -> Privacy:
        """The frame where a column names every record's unit (mechanisms/README.md, section 8).

        Of each unit at most ``max_records`` are kept, and what it lacks is padded with
        records in the absent cell, so that every unit has exactly as many.

        Raises:
            RecordsError: A number is below 1, or there are too many records to count.
        """
        if max_records < 1 or n_units < 1:
            raise RecordsError("max_records and n_units must be at least 1.", where="unit")
        if max_records * n_units >= _TOO_MANY:
            raise RecordsError("max_records times n_units must be below 2**62.", where="n_units")
        return cls(
            adjacency=adjacency,
            unit=f"column {column}",
            n_records=max_records * n_units,
            unit_records=max_records,
        )

    @property
    def n_units(self) -> int:
        """Number of units, public."""
        return self.n_records // self.unit_records

    @property
    def words(self) -> str:
        """The unit in plain words."""
        if self.unit == Unit.RECORD:
            return "one record"
        column = self.unit.removeprefix("column ")
        return (
            f"all records of one `{column}`, of which at most {self.unit_records}, "
            "chosen at random, are used"
        )
