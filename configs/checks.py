"""What the parts of a config must be to each other, and the limits of the checks on its input."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext

from configs.release import CheckConfig, ReleaseConfig
from configs.yaml_text import Document
from configs.yaml_text import Path as Keys
from mechanisms.domain.columns import Column
from mechanisms.domain.domain import Domain
from mechanisms.errors import BudgetValueError, ConfigError, DuplicateColumnError

_PARTS = ("", "_debiased", "_estimates", "_table", "_raw", "_distribution")  # of the names of files
RESERVED_COLUMNS = ("estimate", "projected", "raw", "raw_block", "standard_error")


def check_columns(config: ReleaseConfig, domain: Domain, document: Document) -> None:
    """Check names of columns and of files, and that the shares sum to 1.

    Raises:
        ConfigError: Or one of its kinds, naming file, line and field.
    """
    stems: set[str] = set()
    for product, request in config.products.items():
        place: Keys = ("products", product, "columns")
        written = {f"{product}{part}".casefold() for part in _PARTS}
        if written & stems:
            raise ConfigError(
                "This product and another would be written to the same file.",
                where=document.where(("products", product)),
                next_step="Rename one of them.",
            )
        stems |= written
        for i, name in enumerate(request.columns):
            if name not in domain.names:
                raise ConfigError(
                    f"The domain declares no column '{name}'.", where=document.where((*place, i))
                )
            if name in RESERVED_COLUMNS:
                raise ConfigError(
                    f"'{name}' is the name of a column of every debiased table.",
                    where=document.where((*place, i)),
                    next_step="Rename the column in the source.",
                )
            if name in request.columns[:i]:
                raise DuplicateColumnError(
                    f"Column '{name}' is named twice.", where=document.where((*place, i))
                )
    for name in config.checks:
        if name not in domain.names:
            raise ConfigError(
                f"The domain declares no column '{name}'.", where=document.where(("checks", name))
            )
    for column in domain.columns:
        misfit = config.source.misfit(column)
        if misfit is not None:
            raise ConfigError(misfit, where=document.where(("domain", column.name)))
    with localcontext(prec=1000):
        shares = sum((p.share for p in config.products.values()), Decimal(0))
    if shares != 1:
        raise BudgetValueError(
            f"The products' shares add up to {shares}, not 1 (one that is not given counts as 1).",
            where=document.where(("products",)),
        )


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
