"""One scan of a source for its profile and its contingency tables.

Every digit of the cell code is given its record's fate as well: whether the value is kept, null,
outside the declaration or unreadable. So the one GROUP BY that counts the cells counts the fates,
and the occupied cells are few enough to be told apart here. Columns that no table has are counted
by their fates only, some at a time, in grouping sets of the same scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.contingency_table import ContingencyTable
from mechanisms.domain.domain import Domain
from mechanisms.domain.packed_codes import PackedCodes
from tasks.source import discretise
from tasks.source.counting import ColumnProfile, SourceProfile
from tasks.source.digits import N_FATES, NULL, OUTSIDE, UNREADABLE, Coded, Place, coded_column
from tasks.source.engine import MEMORY_LIMIT
from tasks.source.files import OpenSource, Source, open_source

if TYPE_CHECKING:
    import ibis.expr.types as ir

_Counts = NDArray[np.int64]
_AT_ONCE = 6
"""Columns without a table that are counted together: by at most 4096 combinations of fates."""
_IMPOSSIBLE = "impossible"


@dataclass(frozen=True, repr=False)
class Scan:
    """What one scan of a source found; private.

    Attributes:
        profile: For the input gate.
        counted: For each table its domain, and codes and counts of cells, with repeats.
    """

    profile: SourceProfile
    counted: tuple[tuple[Domain, _Counts, _Counts], ...] = ()

    def __repr__(self) -> str:
        return "Scan()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("counts are never pickled: they are private")

    def tables(self) -> tuple[ContingencyTable, ...]:
        """The contingency tables, of a source whose profile passed its gate.

        Raises:
            ValueError: A record lies in a structural zero.
        """
        return tuple(ContingencyTable.from_cells(*each) for each in self.counted)


@dataclass(frozen=True)
class _Group:
    """Columns that are counted together.

    Attributes:
        table: The domain of their table; None if only their fates are counted.
        columns: Their positions in the source's domain.
        packed: Their codes, each times four and with its fate.
        names: Of their words in the query.
    """

    table: Domain | None
    columns: tuple[int, ...]
    packed: PackedCodes
    names: tuple[str, ...]

    @classmethod
    def of(cls, index: int, domain: Domain, names: Sequence[str], table: Domain | None) -> _Group:
        """A group of columns of a domain, by name."""
        sizes = [N_FATES * (domain[name].size if table is not None else 1) for name in names]
        packed = PackedCodes.of_sizes(sizes)
        words = tuple(f"word_{index}_{word}" for word in range(len(packed.words)))
        return cls(table, tuple(map(domain.names.index, names)), packed, words)

    def words(self, domain: Domain, derived: ir.Table) -> dict[str, Any]:
        """The words of every record, by name."""
        coded: list[Coded] = []
        for column, place in zip(self.columns, discretise.places_of(self.packed), strict=True):
            stride = place.stride * N_FATES if self.table is not None else 0
            marked = Place(column, stride, place.dtype, mark=place.stride)
            coded.append(coded_column(domain.columns[column], derived, marked))
        return {
            name: discretise.sum_of(coded[position] for position in word)
            for name, word in zip(self.names, self.packed.words, strict=True)
        }


def scan(
    source: Source,
    domain: Domain,
    joint: Sequence[Domain],
    *,
    scratch: Path,
    memory_limit: str = MEMORY_LIMIT,
) -> Scan:
    """Read a source of one record a unit once, for its profile and its tables.

    Args:
        source: The private source.
        domain: All declared columns.
        joint: Domains of some of them, to count tables of.
        scratch: Private directory for what the engine spills.
        memory_limit: The engine's limit, beyond which it spills.

    Raises:
        SourceError: Not found or unreadable; a column missing or of a wrong type.
        DomainTooLargeError: A table's domain has no joint table.
    """
    for each in joint:
        each.check_joint()
    taken = {name for each in joint for name in each.names}
    left = [name for name in domain.names if name not in taken]
    parts = [(each.names, each) for each in joint]
    parts += [(tuple(left[at : at + _AT_ONCE]), None) for at in range(0, len(left), _AT_ONCE)]
    groups = [_Group.of(index, domain, *part) for index, part in enumerate(parts)]
    with open_source(
        source, scratch=scratch, memory_limit=memory_limit, wanted=domain.names
    ) as opened:
        return opened.read(lambda: _counted(opened, domain, groups))


def _counted(opened: OpenSource, domain: Domain, groups: Sequence[_Group]) -> Scan:
    derived = discretise.read_columns(domain, opened.table, text=opened.text)
    keys = {name: key for group in groups for name, key in group.words(domain, derived).items()}
    sets = [group.names for group in groups]
    if domain.zeros:
        places = discretise.places_of(PackedCodes.of(domain))
        plain = [
            coded_column(*each)
            for each in zip(domain.columns, [derived] * len(places), places, strict=True)
        ]
        keys[_IMPOSSIBLE] = discretise.impossible(domain, plain)
        sets.append((_IMPOSSIBLE,))
    found = _by_sets(derived.select(**keys), sets)
    n_null, n_outside, n_unreadable = (np.zeros(len(domain.columns), int) for _ in range(3))
    counted, seen, n_records = [], set(), 0
    for group in groups:
        words, records = found[group.names]
        n_records = int(records.sum())
        codes = {}
        for column, marked in zip(group.columns, group.packed.unpack(words), strict=True):
            fates = marked % N_FATES
            codes[domain.names[column]] = (marked // N_FATES).astype(np.int64)
            if column not in seen:
                for kind, fate in (
                    (n_null, NULL),
                    (n_outside, OUTSIDE),
                    (n_unreadable, UNREADABLE),
                ):
                    kind[column] = records[fates == fate].sum()
            seen.add(column)
        if group.table is not None:
            counted.append((group.table, group.table.encode(codes), records))
    n_impossible = 0
    if domain.zeros:
        (is_impossible,), records = found[_IMPOSSIBLE,]
        n_impossible = int(records[is_impossible.astype(bool)].sum())
    columns = zip(
        domain.names, n_null.tolist(), n_outside.tolist(), n_unreadable.tolist(), strict=True
    )
    profile = SourceProfile(
        n_records=n_records,
        columns=tuple(ColumnProfile(*each) for each in columns),
        n_impossible=n_impossible,
    )
    return Scan(profile, tuple(counted))


def _by_sets(
    records: ir.Table, sets: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[list[Any], _Counts]]:
    """By set of columns their combinations, an array for each column, and how many records each."""
    engine: Any = records.get_backend()
    engine.create_view("coded_records", records)
    listed = ", ".join(f"({', '.join(names)})" for names in sets)
    query = (
        f"SELECT {', '.join(records.columns)}, count(*) AS records FROM coded_records "  # noqa: S608
        f"GROUP BY GROUPING SETS ({listed})"
    )
    table = engine.con.sql(query).to_arrow_table()
    found = {}
    for names in sets:
        of_set = table.filter(table[names[0]].is_valid())  # null in the rows of other sets
        words = [of_set[name].to_numpy() for name in names]
        found[names] = words, of_set["records"].to_numpy().astype(np.int64)
    return found
