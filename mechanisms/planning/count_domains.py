"""Which tables the source is counted into, so that every product finds its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mechanisms.base.mechanism import Mechanism, Target, needs_of
from mechanisms.domain.domain import MAX_CELLS, Domain

Needed = tuple[Mechanism, tuple[str, ...]]
"""A mechanism and the columns of its product."""


def check_needs(mechanism: type[Mechanism], target: Target) -> None:
    """Refuse a product whose joint table is needed and has too many cells.

    Raises:
        DomainTooLargeError: More than 2**63 - 1 cells.
    """
    if needs_of(mechanism) == "joint" and target.domain is not None:
        target.domain.check_joint()


def coded_domain(domain: Domain, products: Sequence[Needed]) -> Domain | None:
    """The columns whose codes are kept, those of all products that need them; None if none does."""
    names = {name for mechanism, own in products for name in own if needs_of(mechanism) != "joint"}
    return _of(domain, names) if names else None


SMALL_TABLE = 1 << 20
"""Cells of a joint table that products always share."""


def joint_domains(domain: Domain, products: Sequence[Needed], n_records: int) -> tuple[Domain, ...]:
    """The domains of the joint tables to count, each of as many products as fit.

    Products join, in their order, the first table that has room for their columns, as long as it
    is small or can have no more occupied cells than two tables apart: of many columns nearly every
    record has a cell of its own.

    Args:
        domain: All columns.
        products: Those that need a joint table, and others.
        n_records: Public number of records.
    """

    def together(names: set[str], own: Iterable[str]) -> bool:
        cells = _of(domain, names.union(own)).n_cells
        apart = (_of(domain, each).n_cells for each in (names, own))
        most = max(SMALL_TABLE, sum(min(each, n_records) for each in apart))
        return cells <= MAX_CELLS and min(cells, n_records) <= most

    found: list[set[str]] = []
    for mechanism, own in products:
        if needs_of(mechanism) != "joint":
            continue
        for names in found:
            if together(names, own):
                names.update(own)
                break
        else:
            found.append(set(own))
    return tuple(_of(domain, names) for names in found)


def _of(domain: Domain, names: Iterable[str]) -> Domain:
    """Some of the columns, in the domain's order."""
    wanted = set(names)
    return domain.project(name for name in domain.names if name in wanted)
