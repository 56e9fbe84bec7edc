"""Private records as codes of declared columns, of which only tables are taken.

The joint table of many columns has more cells than an int64 can name, and nearly as many
occupied ones as there are records. Mechanisms that measure low-order marginals take this
instead of a contingency table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain
from mechanisms.errors import DomainTooLargeError

MOST_TABLE_CELLS = 10**7
"""Most cells of one table of a group of columns: 80 MB of counts."""
MOST_CELLS = 5 * 10**7
"""Most cells of all tables that are asked for at once: 400 MB of counts."""


class CodedColumns(Protocol):
    """Private records as codes of declared columns, of which only tables are taken.

    Attributes:
        domain: The declared columns; absent records are counted apart.
        n_records: Public number of records, the absent ones included.
    """

    @property
    def domain(self) -> Domain: ...

    @property
    def n_records(self) -> int: ...

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of columns.

        Args:
            groups: Positions in the domain, distinct within a group.

        Returns:
            For each group an array whose shape is the sizes of its columns.

        Raises:
            DomainTooLargeError: As ``check_groups``.
        """
        ...


def check_groups(
    domain: Domain,
    groups: Sequence[tuple[int, ...]],
) -> None:
    """Refuse tables that would not fit into memory, from public sizes only.

    Args:
        domain: The declared columns.
        groups: As for ``CodedColumns.tables``.

    Raises:
        DomainTooLargeError: There are more.
        ValueError: A group is empty, or names a column twice or one that is not there.
    """
    total, sizes = 0, [column.size for column in domain.columns]
    for group in groups:
        if not group or len(set(group)) < len(group) or not set(group) <= set(range(len(sizes))):
            raise ValueError("a group is one or more distinct positions of columns")
        cells = math.prod(sizes[column] for column in group)
        if cells > MOST_TABLE_CELLS:
            named = ", ".join(f"{domain.names[column]} {sizes[column]:,}" for column in group)
            raise DomainTooLargeError(
                f"The table of {len(group)} columns ({named}) has {cells:,} cells, more than "
                f"the {MOST_TABLE_CELLS:,} that may be measured together.",
                where=domain.names[max(group, key=lambda column: sizes[column])],
                next_step="Use fewer cells in the largest of these columns, or do not measure "
                "them together.",
            )
        total += cells
    if total > MOST_CELLS:
        raise DomainTooLargeError(
            f"The {len(groups):,} tables to measure have {total:,} cells, more than the "
            f"{MOST_CELLS:,} that are held at once.",
            next_step="Use fewer cells in the largest columns, or measure fewer tables.",
        )


@dataclass(frozen=True, repr=False, eq=False)
class SelectedColumns:
    """Some of the columns of other coded columns, in another order.

    Args:
        coded: The others.
        names: Of the columns.
    """

    coded: CodedColumns
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"SelectedColumns({', '.join(self.names)})"

    @property
    def domain(self) -> Domain:
        """The selected columns."""
        return self.coded.domain.project(self.names)

    @property
    def n_records(self) -> int:
        """Of the others."""
        return self.coded.n_records

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of the selected columns."""
        place = [self.coded.domain.names.index(name) for name in self.names]
        return self.coded.tables([tuple(place[column] for column in group) for group in groups])
