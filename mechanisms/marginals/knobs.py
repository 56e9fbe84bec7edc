"""What a config may say about the mechanism ``marginals``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mechanisms.domain.coded_columns import check_groups
from mechanisms.domain.domain import Domain
from mechanisms.errors import ConfigError, DomainTooLargeError, RecordsError
from mechanisms.marginals.measurement import MOST_RECORDS
from mechanisms.records.known_totals import KnownTotal
from mechanisms.records.target_table import Group

ALL_PAIRS = "all pairs"
"""How a description names the workload of all pairs, alike."""
SCREENED_FROM = 2
"""Pairs above which they are scored unless a config says otherwise."""
MOST_COLUMNS, MOST_GROUP = 100, 6
"""Columns of a product, and of a table."""
MOST_CODES = 4096
"""Cells of a column that has pairs: its covariance is a matrix of the square of them."""
MOST_WEIGHT = 1e6
"""Of a group; the least is one over it."""


@dataclass(frozen=True, kw_only=True)
class ColumnGroup:
    """Columns whose joint table matters.

    Attributes:
        columns: Two names or more.
        weight: How much its error counts against that of other groups.
    """

    columns: tuple[str, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise ConfigError("A group needs two different columns or more.", where="pairs")
        if not 1 / MOST_WEIGHT <= self.weight <= MOST_WEIGHT:
            raise ConfigError(
                f"A weight must be a number between {1 / MOST_WEIGHT:g} and {MOST_WEIGHT:g}.",
                where="pairs",
            )


@dataclass(frozen=True, kw_only=True)
class MarginalsKnobs:
    """What a config may say about this mechanism.

    Attributes:
        pairs: ``all`` pairs of columns, or the groups whose tables matter.
        screen: Whether noisy scores decide which pairs are measured; ``auto`` for many pairs.
        records: Number of records to publish, or ``n`` for as many as there are.
        one_way_share: Of the budget for tables of single columns; by default from the size
            of the data and of the tables.
        screen_share: Of the budget for the scores, likewise.
        within_cells: Where in its cell a number or a date of a record lies: in the ``middle``, or
            drawn, ``uniform``.
        known: Public exact totals of single columns and pairs without a cycle, by a name or that
            of the column; the records meet them, and no budget is spent on them.
    """

    pairs: Literal["all"] | tuple[ColumnGroup, ...] = "all"
    screen: Literal["auto", "yes", "no"] = "auto"
    records: Literal["n"] | int = "n"
    one_way_share: float | None = None
    screen_share: float | None = None
    within_cells: Literal["middle", "uniform"] = "middle"
    known: Mapping[str, KnownTotal] | None = None

    def __post_init__(self) -> None:
        if self.pairs != "all":
            object.__setattr__(self, "pairs", tuple(self.pairs))
            groups = [frozenset(group.columns) for group in self.pairs]
            if not groups or len(set(groups)) < len(groups):
                raise ConfigError("Give each group of columns once, at least one.", where="pairs")
        if self.records != "n" and self.records < 1:
            raise ConfigError("At least one record must be published.", where="records")
        shares = {"one_way_share": self.one_way_share, "screen_share": self.screen_share}
        for name, share in shares.items():
            if share is not None and not 0 < share < 1:
                raise ConfigError("A share of the budget lies between 0 and 1.", where=name)
        if (self.one_way_share or 0.0) + (self.screen_share or 0.0) >= 1:
            raise ConfigError(
                "The shares leave nothing for tables of several columns.", where="one_way_share"
            )
        if self.screen == "no" and self.screen_share is not None:
            raise ConfigError(
                "Pairs are not screened, so that step has no share.", where="screen_share"
            )


def all_pairs(n_columns: int) -> tuple[tuple[Group, float], ...]:
    """The workload of all pairs of columns, alike."""
    return tuple((pair, 1.0) for pair in itertools.combinations(range(n_columns), 2))


def groups_of(knobs: MarginalsKnobs, domain: Domain) -> tuple[tuple[Group, float], ...]:
    """The workload by column positions.

    Raises:
        ConfigError: A group names a column that the product does not have.
    """
    names = [column.name for column in domain.columns]
    if isinstance(knobs.pairs, str):
        return all_pairs(len(names))
    found = []
    for group in knobs.pairs:
        for name in group.columns:
            if name not in names:
                raise ConfigError(f"The product has no column '{name}'.", where="pairs")
        if len(group.columns) > MOST_GROUP:
            raise ConfigError(f"A group has at most {MOST_GROUP} columns.", where="pairs")
        found.append((tuple(sorted(map(names.index, group.columns))), group.weight))
    return tuple(sorted(found))


def is_screened(knobs: MarginalsKnobs, groups: tuple[tuple[Group, float], ...]) -> bool:
    """Whether pairs are scored before they are measured."""
    pairs = sum(len(group) == 2 for group, _ in groups)
    if knobs.screen == "auto":
        return pairs > SCREENED_FROM
    return knobs.screen == "yes" and pairs > 1


def check_sizes(domain: Domain, groups: tuple[tuple[Group, float], ...], n_records: int) -> None:
    """Refuse columns and tables that are too many, too large or hold nothing.

    Raises:
        ConfigError: There are such.
        RecordsError: More records than can be counted on the grid.
    """
    columns = domain.columns
    if len(columns) > MOST_COLUMNS:
        raise ConfigError(f"At most {MOST_COLUMNS} columns can be served.", where="columns")
    if n_records > MOST_RECORDS:
        raise RecordsError(f"At most {MOST_RECORDS:,} records can be counted on the noise's grid.")
    for column in columns:
        if column.size < 2:
            raise ConfigError(
                f"The column '{column.name}' has only one cell, and so nothing to release.",
                where=column.name,
                next_step="Leave it out; readers can add it.",
            )
    single: list[Group] = [(column,) for column in range(len(columns))]
    check_groups(domain, single)
    check_groups(domain, [group for group, _ in groups])
    # Records are fitted to the tables of all pairs, whether they are measured or not.
    check_groups(domain, list(itertools.combinations(range(len(columns)), 2)))
    for column in columns:
        if groups and column.size > MOST_CODES:
            raise DomainTooLargeError(
                f"The column '{column.name}' has {column.size:,} cells, more than the "
                f"{MOST_CODES:,} of a column that is fitted together with others.",
                where=column.name,
                next_step="Use fewer cells, or a product of this column only.",
            )
