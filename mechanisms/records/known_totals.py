"""Public exact totals of single columns and of pairs, which records meet and no budget is spent on.

Integer records with given tables of pairs always exist where the pairs form no cycle: along a
tree each column is drawn given one other. With a cycle it is intractable to say whether they do
(Irving and Jerrum 1994, doi 10.1137/S0097539790191010).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError
from mechanisms.records.impossible import boxes_of, possible_cells
from mechanisms.records.target_table import Group

_WHERE = "known"
_MOST = 2**62


@dataclass(frozen=True, kw_only=True)
class KnownTotal:
    """Public exact totals of one column or two: a file of them, or the counts themselves.

    Attributes:
        columns: Names; by default the one name that the totals are given under.
        file: CSV with a column for each of them and one called ``count``.
        counts: By combination of cells, that of the last column running fastest.
    """

    columns: tuple[str, ...] = ()
    file: str | None = None
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.counts is not None:
            object.__setattr__(self, "counts", tuple(self.counts))
        if (self.file is None) == (self.counts is None):
            raise ConfigError("Give either a file of known totals, or counts.", where="known")


def totals_of(known: Mapping[str, KnownTotal], domain: Domain) -> dict[Group, NDArray[np.int64]]:
    """Known totals with their counts by ascending positions of their columns.

    Raises:
        ConfigError: A column does not exist, occurs twice, or the counts do not fit it.
    """
    found: dict[Group, NDArray[np.int64]] = {}
    for name, total in known.items():
        columns = total.columns or (name,)
        if not set(columns) <= set(domain.names) or len(set(columns)) < len(columns):
            raise ConfigError("Known totals name columns of the product, each once.", where=_WHERE)
        shape = [domain[column].size for column in columns]
        if any(abs(count) > _MOST for count in total.counts or ()):
            raise ConfigError(
                f"The known totals '{name}' have a count that no table of records has.",
                where=_WHERE,
            )
        counts = np.array(total.counts or (), dtype=np.int64)
        if counts.size != math.prod(shape):
            raise ConfigError(
                f"The known totals '{name}' have {counts.size:,} counts for "
                f"{math.prod(shape):,} cells.",
                where=_WHERE,
            )
        positions = [domain.names.index(column) for column in columns]
        order = sorted(range(len(columns)), key=lambda i: positions[i])
        group = tuple(positions[i] for i in order)
        if group in found:
            raise ConfigError("Known totals of the same columns are given twice.", where=_WHERE)
        found[group] = np.ascontiguousarray(counts.reshape(shape).transpose(order))
    return found


def check_known(
    known: Mapping[Group, NDArray[np.int64]], domain: Domain, n_records: int
) -> dict[Group, NDArray[np.int64]]:
    """Known totals that agree with the domain, with each other and with the number of records.

    Args:
        known: By ascending positions of one column or two, int64 of the shape of their sizes.
        domain: The declared columns.
        n_records: Public number of records.

    Raises:
        ConfigError: They contradict each other, the number of records or the structural zeros,
            form a cycle, or records may be absent.
    """
    if known and domain.absent:
        raise ConfigError(
            "Totals cannot be met exactly where the number of records is private.",
            where=_WHERE,
            next_step="Leave the known totals out, or release records of single-record units.",
        )
    margins: dict[int, NDArray[np.int64]] = {}
    component = list(range(len(domain.columns)))
    for group, table in sorted(known.items()):
        names = " and ".join(f"'{domain.columns[column].name}'" for column in group)
        _check_table(group, table, domain, n_records, names)
        for axis, column in enumerate(group):
            margin = table.sum(axis=tuple(i for i in range(len(group)) if i != axis))
            if not np.array_equal(margins.setdefault(column, margin), margin):
                raise ConfigError(
                    f"The known totals of column '{domain.columns[column].name}' differ between "
                    "tables.",
                    where=_WHERE,
                    next_step="Give tables that agree in the columns they share.",
                )
        if len(group) == 2:
            one, other = (component[column] for column in group)
            if one == other:
                raise ConfigError(
                    f"The known totals of {names} close a cycle of pairs.",
                    where=_WHERE,
                    next_step="Leave one pair of the cycle out.",
                )
            component = [one if each == other else each for each in component]
    _check_boxes(margins, domain, n_records)
    return dict(sorted(known.items()))


def _check_table(
    group: Group, table: NDArray[np.int64], domain: Domain, n_records: int, names: str
) -> None:
    sizes = [column.size for column in domain.columns]
    problem = ""
    if len(group) not in (1, 2) or tuple(sorted(set(group))) != group:
        raise ConfigError("Known totals are of one column or of two.", where=_WHERE)
    if table.shape != tuple(sizes[column] for column in group) or table.dtype != np.int64:
        problem = "do not have one whole number for each cell"
    elif table.min() < 0:
        problem = "have a negative count"
    elif int(table.max()) > n_records or sum(table.ravel().tolist()) != n_records:
        problem = "do not add up to the number of records"
    elif table[~possible_cells(group, sizes, boxes_of(domain))].any():
        problem = "count records in cells that are declared impossible"
    if problem:
        raise ConfigError(f"The known totals of {names} {problem}.", where=_WHERE)


def _check_boxes(margins: Mapping[int, NDArray[np.int64]], domain: Domain, n_records: int) -> None:
    """Refuse one-way totals that force a record into an impossible box, by the union bound."""
    for box in boxes_of(domain):
        if set(box.columns) <= set(margins):
            inside = sum(
                int(margins[column][mask].sum())
                for column, mask in zip(box.columns, box.inside, strict=True)
            )
            if inside > n_records * (len(box.columns) - 1):
                raise ConfigError(
                    "The known totals leave no place for some records but declared zeros.",
                    where=_WHERE,
                    next_step="Correct the totals, or the structural zeros.",
                )
