"""What the parts of a config must be to each other, and the limits of the checks on its input."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from configs.findings import Findings
from configs.models.release import CheckConfig
from configs.partial import declared_columns
from configs.yaml_text import Document
from configs.yaml_text import Path as Keys
from mechanisms.domain.columns import Column
from mechanisms.errors import ConfigError, DuplicateColumnError

_PARTS = (
    "", "_debiased", "_estimates", "_table", "_raw", "_distribution", "_cells_band",
    "_cumulative_band",
)  # fmt: skip
"""Of the names of files."""
RESERVED_COLUMNS = ("estimate", "projected", "raw", "raw_block", "standard_error")
OF_BANDS = ("count_lower", "count_upper", "share_lower", "share_upper")


def check_columns(document: Document, findings: Findings) -> None:
    """Check names of columns and of files; what is wrong with them goes to the findings.

    Products and checks with other faults are checked as well.
    """
    stems: set[str] = set()
    declared = declared_columns(document)
    for product, said in _written(document, "products").items():
        place: Keys = ("products", product, "columns")
        written = {f"{product}{part}".casefold() for part in _PARTS}
        if written & stems:
            found = ConfigError(
                "This product and another would be written to the same file.",
                where=document.where(("products", product)),
                next_step="Rename one of them.",
            )
            findings.errors.append(found)
        stems |= written
        for i, name in enumerate(before := _named_columns(said)):
            with findings.noting():
                if name in OF_BANDS and said.get("bands"):
                    raise ConfigError(
                        f"'{name}' is the name of a column of every band.",
                        where=document.where((*place, i)),
                        next_step="Rename the column in the source, or leave out 'bands'.",
                    )
                _check_column(name, before[:i], declared, document.where((*place, i)))
    for name in _written(document, "checks"):
        if name not in declared:
            findings.errors.append(_undeclared(name, document.where(("checks", name))))


def _written(document: Document, section: str) -> dict[str, Any]:
    """A section as it is written, with the entries that are at fault."""
    said = document.value.get(section) if isinstance(document.value, dict) else None
    if not isinstance(said, dict):
        return {}
    return {key: value for key, value in said.items() if isinstance(key, str)}


def _named_columns(product: Any) -> list[str]:
    """The columns of a product as it is written; none where they are not a list of names."""
    columns = product.get("columns") if isinstance(product, dict) else None
    if not isinstance(columns, list) or not all(isinstance(each, str) for each in columns):
        return []
    return columns


def _check_column(name: str, before: Sequence[str], declared: Collection[str], where: str) -> None:
    """Refuse a column of a product that is not declared, is reserved, or is named twice."""
    if name not in declared:
        raise _undeclared(name, where)
    if name in RESERVED_COLUMNS:
        raise ConfigError(
            f"'{name}' is the name of a column of every debiased table.",
            where=where,
            next_step="Rename the column in the source.",
        )
    if name in before:
        raise DuplicateColumnError(f"Column '{name}' is named twice.", where=where)


def _undeclared(name: str, where: str) -> ConfigError:
    return ConfigError(f"The domain declares no column '{name}'.", where=where)


@dataclass(frozen=True)
class Limits:
    """The largest shares of a column's values that the input gate accepts.

    Attributes:
        missing: Of nulls.
        outside: Of undeclared or clamped values; None if they are not limited.
        unreadable: Of values that are there and cannot be read as declared.
    """

    missing: Decimal
    outside: Decimal | None
    unreadable: Decimal


def limits(column: Column, declared: CheckConfig | None) -> Limits:
    """What the input gate accepts of a column.

    Without a declaration a value that has no cell of its own is not accepted, nor is one that
    cannot be read; clamped values are not limited.
    """
    declared = declared or CheckConfig()
    missing, outside = declared.missing_at_most, declared.outside_at_most
    if missing is None:
        missing = Decimal(1) if column.missing else Decimal(0)
    if outside is None and column.kind in ("categorical", "ordinal") and column.other_code is None:
        outside = Decimal(0)
    return Limits(missing, outside, declared.unreadable_at_most or Decimal(0))
