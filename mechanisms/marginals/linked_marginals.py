"""Households and their persons from noisy low-order marginals of one record a household.

All private steps are those of ``mechanisms.marginals.marginals`` on the household's record: its own
columns, its number of persons, and the columns of as many persons as it may have. Each household is
one record and has one cell in every table, whatever its size; so replacing a household with all its
persons moves two counts of a table by one each, and the loss is that of units of one record. That
the record depends on the household's own rows alone is for whoever makes it
(``tasks.source.linked``).

That sizes and persons agree follows from the columns (``mechanisms.marginals.presence``), and is
held to by the start of the records and by every swap, as are the declared rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from statpress.mechanisms.domain.columns import Column, Slot
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.marginals import (
    ColumnGroup,
    Marginals,
    MarginalsKnobs,
    check_groups_differ,
    unknown_column,
)
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.survey_weights import SurveyWeight
from statpress.mechanisms.marginals.target_tables import KnownTotal
from statpress.mechanisms.mechanism import OF_A_SECTION, Kind, Target, check_copies
from statpress.mechanisms.tables.count_tables import PAIRS, MicrodataKind


@dataclass(frozen=True, kw_only=True)
class LinkedKnobs:
    """What a config may say of linked households and persons.

    Attributes:
        one_way_share: Of the budget for tables of single columns; by default from the size of the
            data and of the tables.
        screen_share: Of the budget for the scores of pairs, likewise.
        groups: Columns whose joint tables matter too, by the names of their tables: of households
            and of one person, in every place. One name of a place, such as ``age_2``, is of it.
        known: Public exact totals of households by their columns and their number of persons, as of
            ``MarginalsKnobs``.
        copies: How many more sets of households and persons to draw, for intervals of whatever is
            computed from them; 1 for none.
        weight: Of households, set by the section ``weight`` of a config.
    """

    one_way_share: float | None = None
    screen_share: float | None = None
    groups: tuple[ColumnGroup, ...] = ()
    known: Mapping[str, KnownTotal] | None = None
    copies: int = 1
    weight: SurveyWeight | None = field(default=None, metadata=OF_A_SECTION)

    def __post_init__(self) -> None:
        check_groups_differ(self.groups)
        check_copies(self.copies)


class LinkedKind(MicrodataKind):
    """Two tables of records, households and persons."""

    left_open: type = LinkedKnobs

    def criterion(self, knobs: Any) -> str:
        del knobs
        return PAIRS

    def check(self, knobs: Any, target: Target) -> None:
        super().check(knobs, target)
        if target.domain is not None and Presence.of(target.domain) is None:
            raise ConfigError(
                "The columns are not those of households and persons.",
                where="columns",
                next_step="Name columns of both tables of the config's section 'tables'.",
            )
        own = {column.name: column for column in target.domain.columns} if target.domain else {}
        for name, total in (getattr(knobs, "known", None) or {}).items():
            for column in total.columns or (name,):
                if isinstance(own.get(column), Slot):
                    raise ConfigError(
                        f"'{column}' is a column of the persons in one place of a household, and "
                        "known totals are of households.",
                        where=f"known.{name}",
                        next_step="Leave these totals out.",
                    )


LINKED = LinkedKind("linked")
_OF_HOUSEHOLDS, _OF_A_PERSON = 4.0, 4.0


def _weight(one: Column, other: Column) -> float:
    """How much a pair of columns counts: as a part of the tables that analysts ask for.

    These are of households, of persons, of a household with its persons, and of two persons of one
    household, and count alike. A pair of the first two kinds is more of its table than one of the
    others, whose tables are sums over more pairs of places.
    """
    places = {column.place if isinstance(column, Slot) else 0 for column in (one, other)}
    if len(places) > 1:
        return 1.0
    return _OF_HOUSEHOLDS if places == {0} else _OF_A_PERSON


def _placed(groups: Iterable[ColumnGroup], columns: Sequence[Column]) -> Iterator[ColumnGroup]:
    """Groups by the columns of a record: those of a person are in every place."""
    names = {column.name for column in columns}
    slots: dict[int, dict[str, str]] = {}
    for column in columns:
        if isinstance(column, Slot):
            slots.setdefault(column.place, {})[column.of.name] = column.name
    of_persons = [*dict.fromkeys(name for own in slots.values() for name in own)]
    for at, group in enumerate(groups):
        where = f"groups.{at}"
        for name in group.columns:
            if name not in {*names, *of_persons}:
                of_households = [c.name for c in columns if not isinstance(c, Slot)]
                raise unknown_column(name, [*of_households, *of_persons], where)
        places = [
            tuple(name if name in names else own[name] for name in group.columns)
            for own in slots.values()
        ]
        for placed in dict.fromkeys(places):
            for name, other in zip(group.columns, placed, strict=True):
                if placed.count(other) > 1 and name != other:
                    raise ConfigError(
                        f"The group names '{other}' twice: '{name}' is the column of every place.",
                        where=where,
                        next_step="Leave one of them out, or name columns of two places: "
                        f"{', '.join(own[name] for own in slots.values())}.",
                    )
            yield ColumnGroup(columns=placed, weight=group.weight)


@dataclass(frozen=True)
class LinkedMarginals(Marginals):
    """The mechanism ``marginals`` for records of households."""

    name: ClassVar[str] = "linked_marginals"
    kinds: ClassVar[tuple[Kind, ...]] = (LINKED,)
    knobs: ClassVar[type] = LinkedKnobs
    published_as: ClassVar[str] = ""  # its kind is published by this mechanism only

    @classmethod
    def calibrate(cls, knobs: Any, target: Target) -> Self:
        """As ``Marginals.calibrate``, for all pairs of columns."""
        if isinstance(knobs, LinkedKnobs):
            LINKED.check(knobs, target)
            columns = target.domain.columns if target.domain is not None else ()
            pairs = (
                ColumnGroup(columns=(one.name, other.name), weight=weight)
                for one, other in itertools.combinations(columns, 2)
                if (weight := _weight(one, other)) != 1
            )
            groups = {frozenset(group.columns): group for group in pairs}
            for group in _placed(knobs.groups, columns):
                if group.weight != 1:
                    groups[frozenset(group.columns)] = group
                else:  # what is asked for counts no less than what is not
                    groups.setdefault(frozenset(group.columns), group)
            knobs = MarginalsKnobs(
                groups=tuple(groups.values()),
                one_way_share=knobs.one_way_share,
                screen_share=knobs.screen_share,
                known=knobs.known,
                copies=knobs.copies,
                weight=knobs.weight,
            )
        return super().calibrate(knobs, target)
