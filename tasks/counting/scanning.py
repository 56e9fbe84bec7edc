"""One scan of a source for its profile and its contingency tables, or its coded columns.

Every digit of the cell code is given its record's fate as well: whether the value is kept, null,
outside the declaration or unreadable. So the one GROUP BY that counts the cells counts the fates,
and the occupied cells are few enough to be told apart here. Columns that no table has are counted
by their fates only, some at a time, in grouping sets of the same scan. Where codes of records are
wanted and no table, the fates are counted as the codes are written.
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
from mechanisms.domain.group_counts import smallest_unsigned
from mechanisms.domain.packed_codes import PackedCodes
from tasks.counting import discretise
from tasks.counting.aggregates import ColumnProfile, SourceProfile
from tasks.counting.digits import N_FATES, NULL, OUTSIDE, UNREADABLE, Coded, Place, coded_column
from tasks.counting.spilled_columns import SpilledColumns, spill_packed
from tasks.engines.engine import OpenSource, Source
from tasks.engines.registry import engine_of, open_source

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
        coded: The codes of the records, if they were written in the same scan.
    """

    profile: SourceProfile
    counted: tuple[tuple[Domain, _Counts, _Counts], ...] = ()
    coded: SpilledColumns | None = None

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
        table: The domain of those whose codes are wanted; of the others only the fates are.
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
        wanted = table.names if table is not None else ()
        sizes = [N_FATES * (domain[name].size if name in wanted else 1) for name in names]
        packed = PackedCodes.of_sizes(sizes)
        words = tuple(f"word_{index}_{word}" for word in range(len(packed.words)))
        return cls(table, tuple(map(domain.names.index, names)), packed, words)

    def words(self, domain: Domain, derived: ir.Table) -> dict[str, Any]:
        """The words of every record, by name."""
        coded: list[Coded] = []
        for column, place in zip(self.columns, discretise.places_of(self.packed), strict=True):
            wanted = self.table is not None and domain.names[column] in self.table.names
            stride = place.stride * N_FATES if wanted else 0
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
) -> Scan:
    """Read a source of one record a unit once, for its profile and its tables.

    Args:
        source: The private source.
        domain: All declared columns.
        joint: Domains of some of them, to count tables of.
        scratch: Private directory for what the engine spills.

    Raises:
        SourceError: Not found or unreadable; a column missing or of a wrong type.
        DomainTooLargeError: A table's domain has no joint table.
    """
    for each in joint:
        each.check_joint()
    taken = {name for each in joint for name in each.names}
    left = [name for name in domain.names if name not in taken]
    parts: list[tuple[tuple[str, ...], Domain | None]] = [(each.names, each) for each in joint]
    parts += [(tuple(left[at : at + _AT_ONCE]), None) for at in range(0, len(left), _AT_ONCE)]
    groups = [_Group.of(index, domain, *part) for index, part in enumerate(parts)]
    with open_source(source, scratch=scratch, wanted=domain.names) as opened:
        return opened.read(lambda: _counted(opened, domain, groups))


def scan_wide(
    source: Source,
    domain: Domain,
    coded: Domain,
    *,
    n_records: int,
    folder: Path,
) -> Scan:
    """Read a source of one record a unit once, for its profile and the codes of its records.

    Args:
        source: The private source.
        domain: All declared columns.
        coded: Those whose codes are written.
        n_records: Public number of records.
        folder: Private; the files, and what the engine spills, go below it.

    Raises:
        SourceError: Not found or unreadable; a column missing or of a wrong type.
        OutputNotWritableError: The disk has no room for the files, or fails.
    """
    group = _Group.of(0, domain, domain.names, coded)
    dtypes = {column.name: smallest_unsigned(column.size) for column in coded.columns}
    fates = np.zeros((len(domain.columns), N_FATES), np.int64)
    n_impossible = 0

    def packed(opened: OpenSource) -> ir.Table:
        derived = discretise.read_columns(domain, opened.table, text=opened.text)
        words = group.words(domain, derived)
        if domain.zeros:
            words[f"word_{_IMPOSSIBLE}"] = _impossible(domain, derived).cast("int64")
        return derived.select(**words)

    def unpack(words: list[_Counts]) -> list[NDArray[Any]]:
        nonlocal n_impossible
        if domain.zeros:
            n_impossible += int(words.pop().sum())
        codes = {}
        columns = zip(domain.names, fates, group.packed.unpack(words), strict=True)
        for name, counts, marked in columns:
            counts += np.bincount(marked % N_FATES, minlength=N_FATES)
            if name in dtypes:
                codes[name] = (marked // N_FATES).astype(dtypes[name])
        return [codes[name] for name in coded.names]

    with open_source(source, scratch=folder, wanted=domain.names) as opened:
        records = opened.read(lambda: packed(opened))
        written = spill_packed(opened, coded, records, unpack, n_records=n_records, folder=folder)
    return Scan(_profile(domain, written.n_present, fates, n_impossible), coded=written)


def _counted(opened: OpenSource, domain: Domain, groups: Sequence[_Group]) -> Scan:
    derived = discretise.read_columns(domain, opened.table, text=opened.text)
    keys = {name: key for group in groups for name, key in group.words(domain, derived).items()}
    sets = [group.names for group in groups]
    if domain.zeros:
        keys[_IMPOSSIBLE] = _impossible(domain, derived)
        sets.append((_IMPOSSIBLE,))
    found = _by_sets(derived.select(**keys), sets)
    fates = np.zeros((len(domain.columns), N_FATES), np.int64)
    counted, seen, n_records = [], set(), 0
    for group in groups:
        words, records = found[group.names]
        n_records = int(records.sum())
        codes = {}
        for column, marked in zip(group.columns, group.packed.unpack(words), strict=True):
            codes[domain.names[column]] = (marked // N_FATES).astype(np.int64)
            if column not in seen:
                np.add.at(fates[column], marked % N_FATES, records)
            seen.add(column)
        if group.table is not None:
            counted.append((group.table, group.table.encode(codes), records))
    n_impossible = 0
    if domain.zeros:
        (is_impossible,), records = found[_IMPOSSIBLE,]
        n_impossible = int(records[is_impossible.astype(bool)].sum())
    return Scan(_profile(domain, n_records, fates, n_impossible), tuple(counted))


def _impossible(domain: Domain, derived: ir.Table) -> Any:
    """Whether a record lies in a structural zero."""
    places = discretise.places_of(PackedCodes.of(domain))
    coded = [coded_column(c, derived, p) for c, p in zip(domain.columns, places, strict=True)]
    return discretise.impossible(domain, coded)


def _profile(domain: Domain, n_records: int, fates: _Counts, n_impossible: int) -> SourceProfile:
    """The profile of a source from the counts of fates, int64[columns, fates]."""
    columns = (
        ColumnProfile(name, *(int(counts[fate]) for fate in (NULL, OUTSIDE, UNREADABLE)))
        for name, counts in zip(domain.names, fates, strict=True)
    )
    return SourceProfile(n_records=n_records, columns=tuple(columns), n_impossible=n_impossible)


def _by_sets(
    records: ir.Table, sets: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], tuple[list[Any], _Counts]]:
    """By set of columns their combinations, an array for each column, and how many records each."""
    table = engine_of(records).by_sets(records, sets)
    found = {}
    for names in sets:
        of_set = table.filter(table[names[0]].is_valid())  # null in the rows of other sets
        words = [of_set[name].to_numpy() for name in names]
        found[names] = words, of_set["records"].to_numpy().astype(np.int64)
    return found
