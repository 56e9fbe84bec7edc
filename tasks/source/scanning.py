"""One scan of a source: its profile, and its tables or coded columns in private files.

The engine discretises each record once and hands over its codes as a few integers
(mechanisms.domain.contingency_table); here they are unpacked, chunk by chunk, into one file for
each column, raw unsigned integers of the smallest size. Every later table is counted from there.
The order of the records in the files is the engine's, and means nothing.

Every digit of the cell code is given its record's fate as well: whether the value is kept, null,
outside the declaration or unreadable. So the one GROUP BY that counts the cells counts the fates,
and the occupied cells are few enough to be told apart here. Columns that no table has are counted
by their fates only, some at a time, in grouping sets of the same scan. Where codes of records are
wanted and no table, the fates are counted as the codes are written.

``scan_of``, ``kept_profile`` and ``counted_of`` do this as a release's config and plan ask for it.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from statpress.configs.loading import Release
from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.domain.contingency_table import (
    ContingencyTable,
    Counted,
    Counts,
    GroupCounts,
    PackedCodes,
    Room,
    check_groups,
    smallest_unsigned,
)
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import EmptySourceError
from statpress.mechanisms.parallel import in_threads, threads
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.source import aggregates, discretise, linked
from statpress.tasks.source.aggregates import (
    ColumnProfile,
    SourceProfile,
    Units,
    kept_records,
    typed,
    units_of,
)
from statpress.tasks.source.discretise import (
    N_FATES,
    NULL,
    OUTSIDE,
    UNREADABLE,
    Coded,
    Place,
    coded_column,
)
from statpress.tasks.source.engine import OpenSource, Source, engine_of, open_source
from statpress.tasks.source.file_numbers import FileRoom
from statpress.tasks.source.guarding import new_file, writable, write_all

if TYPE_CHECKING:
    import ibis.expr.types as ir

CHUNK = 1 << 17
"""Records that are in memory at once, of each thread."""
MOST_CELLS_EACH = 1 << 21
"""Cells of tables that every thread has a copy of, if there are several."""
Unpack = Callable[[list[NDArray[np.int64]]], Iterable[NDArray[Any]]]


@dataclass(frozen=True, eq=False, repr=False)
class SpilledColumns:
    """The codes of a source's records on disk; private, and gone with the run's folder.

    Args:
        domain: The declared columns; absent records are counted apart.
        folder: Of mode 0700, with a file for each column.
        n_present: Records in the files.
        n_absent: Records that the units are padded with.
    """

    domain: Domain
    folder: Path
    n_present: int
    n_absent: int

    def __repr__(self) -> str:
        return f"SpilledColumns({', '.join(self.domain.names)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("codes of records are never pickled: they are private")

    @property
    def n_records(self) -> int:
        """Number of records, the absent ones included; public once the table gate has passed."""
        return self.n_present + self.n_absent

    def tables(self, groups: Sequence[tuple[int, ...]]) -> list[NDArray[np.int64]]:
        """Counts of present records by the codes of each group of columns, in one pass.

        Threads count a part of the records each, if their tables are small.
        """
        check_groups(self.domain, groups)
        sizes = [column.size for column in self.domain.columns]
        total = GroupCounts(sizes, groups)
        parts = threads() if total.n_counted <= MOST_CELLS_EACH else 1
        ends = [self.n_present * part // parts for part in range(parts + 1)]

        def counted(part: int) -> GroupCounts:
            counting = GroupCounts(sizes, groups) if part else total
            for chunk in self._chunks(counting.columns, ends[part], ends[part + 1]):
                counting.add(chunk)
            return counting

        for other in in_threads(counted, range(parts))[1:]:
            total.merge(other)
        return total.tables()

    def table_at(
        self, column: int, places: NDArray[np.int64], n: int, group: tuple[int, ...]
    ) -> NDArray[np.int64]:
        """Counts of present records by place and the codes of a group of columns, in one pass."""
        sizes = [column.size for column in self.domain.columns]
        chunks = self._chunks(sorted({column, *group}))
        return counted_at(chunks, sizes, column, places, n, group)

    @property
    def room(self) -> Room:
        """Large arrays are files in the run's folder."""
        return FileRoom(self.folder)

    def _chunks(
        self, columns: Sequence[int], first: int = 0, last: int | None = None
    ) -> Iterator[dict[int, NDArray[Any]]]:
        """The codes of some columns of a part of the records, so many at a time."""
        kinds = {column: smallest_unsigned(self.domain.columns[column].size) for column in columns}
        last = self.n_present if last is None else last
        with ExitStack() as stack:
            files = {c: stack.enter_context(_path(self.folder, c).open("rb")) for c in columns}
            for column, file in files.items():
                file.seek(first * kinds[column].itemsize)
            for start in range(first, last, CHUNK):
                size = min(CHUNK, last - start)
                chunk = {c: np.fromfile(file, kinds[c], size) for c, file in files.items()}
                if any(len(codes) < size for codes in chunk.values()):
                    raise OSError("a file of coded columns is shorter than it was written")
                yield chunk


def spill(
    source: Source,
    domain: Domain,
    *,
    n_records: int,
    folder: Path,
    units: Units | None = None,
    key: str = "",
) -> SpilledColumns:
    """Write the codes of every record, with one pass of the engine over the source.

    With units, at most ``max_records`` of each unit's records are kept, chosen as for a
    contingency table (tasks.source.aggregates); the padding is only a number.

    Args:
        source: The private source.
        domain: The declared columns; with an absent cell if units hold several records.
        n_records: Public number of records, the absent ones included.
        folder: Private; the files, and what the engine spills, go below it.
        units: The privacy unit, if it is not the record.
        key: For the choice of the records that are kept; random, secret, used once.

    Raises:
        SourceError: Not found, unreadable or empty; a column missing or of a wrong type.
        OutputNotWritableError: The disk has no room for the files, or fails.
    """
    check_absent(domain, units)
    padded = units is not None and units.max_records > 1
    place = folder / "codes"
    _writable(lambda: _make(place, 0 if padded else n_records * bytes_per_record(domain)), place)

    def unpack(words: list[NDArray[np.int64]]) -> list[NDArray[Any]]:
        codes = PackedCodes.of(domain).unpack(words)
        return [*domain.made_possible(dict(zip(domain.names, codes, strict=True))).values()]

    def run(table: ir.Table, unit: str | None) -> SpilledColumns:
        records = discretise.packed_table(domain, table, unit=unit, text=opened.text)
        if units is not None:
            # Codes first, windows after: both at once may need too much memory.
            coded = engine_of(records).stored(records)
            records = kept_records(coded, units, key).drop("unit")
        present, absent = _write(domain, records, place, unpack)
        if not present:
            raise EmptySourceError("The source has no records.", where=source.where)
        return SpilledColumns(domain, place, present, absent)

    try:
        with open_source(source, scratch=folder, wanted=domain.names) as opened:
            return opened.read(lambda: run(*typed(opened, units)))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def check_absent(domain: Domain, units: Units | None) -> None:
    """Units of several records are padded, for which the domain needs its absent cell."""
    if units is not None and units.max_records > 1 and not domain.absent:
        raise ValueError("units of several records need a domain with an absent cell")


def bytes_per_record(domain: Domain) -> int:
    """Size of a record's codes on disk."""
    return sum(smallest_unsigned(column.size).itemsize for column in domain.columns)


def spill_packed(
    opened: OpenSource,
    domain: Domain,
    records: ir.Table,
    unpack: Unpack,
    *,
    n_records: int,
    folder: Path,
) -> SpilledColumns:
    """Write the codes of records that the caller packed, each a unit; there may be none.

    Args:
        opened: The open source.
        domain: The columns to write.
        records: int64 columns ``word_0``, ``word_1``, ...
        unpack: From those of some records to the codes of each column, as unsigned integers.
        n_records: Public number of records.
        folder: Private.

    Raises:
        SourceError: The source is unreadable.
        OutputNotWritableError: The disk has no room for the files, or fails.
    """
    place = folder / "codes"
    _writable(lambda: _make(place, n_records * bytes_per_record(domain)), place)
    try:
        present, _ = opened.read(lambda: _write(domain, records, place, unpack))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return SpilledColumns(domain, place, present, 0)


def _write(domain: Domain, records: ir.Table, place: Path, unpack: Unpack) -> tuple[int, int]:
    """Write the codes of packed records; how many there are, and how many are lacking."""
    present, absent = 0, 0
    names = [name for name in records.columns if name.startswith("word_")]
    with ExitStack() as stack:

        def opened() -> list[FileIO]:
            paths = (_path(place, column) for column in range(len(domain.columns)))
            return [stack.enter_context(new_file(path)) for path in paths]

        def append(codes: Sequence[NDArray[Any]]) -> None:
            for file, column in zip(files, codes, strict=True):
                write_all(file, column.data.cast("B"))

        files = _writable(opened, place)
        for batch in engine_of(records).batches(records, CHUNK):
            words = [batch[name].to_numpy() for name in names]
            codes = list(unpack(words))
            _writable(functools.partial(append, codes), place)
            present += len(words[0])
            if "lacking" in batch.schema.names:
                absent += int(batch["lacking"].to_numpy().sum())
    return present, absent


def _make(place: Path, needed: int) -> None:
    """Make the folder, where there is room for so many bytes."""
    if shutil.disk_usage(place.parent).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    place.mkdir(mode=0o700)


def _path(folder: Path, column: int) -> Path:
    return folder / f"{column}.codes"


_writable = functools.partial(writable, what="the coded columns", next_step="use fewer columns")


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
        """The contingency tables, of a source whose profile passed its gate."""
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

    Raises:
        SourceError: Not found or unreadable; a column missing or of a wrong type.
        OutputNotWritableError: The disk has no room for the files, or fails.
    """
    looked_at = {name for each in domain.patterns for name in each.names}
    wanted = [name for name in domain.names if name in looked_at or name in coded.names]
    group = _Group.of(0, domain, domain.names, domain.project(wanted))
    fates = np.zeros((len(domain.columns), N_FATES), np.int64)
    n_impossible = 0

    def packed(opened: OpenSource) -> ir.Table:
        derived = discretise.read_columns(domain, opened.table, text=opened.text)
        return derived.select(**group.words(domain, derived))

    def unpack(words: list[_Counts]) -> list[NDArray[Any]]:
        nonlocal n_impossible
        codes = {}
        columns = zip(domain.columns, fates, group.packed.unpack(words), strict=True)
        for column, counts, marked in columns:
            counts += np.bincount(marked % N_FATES, minlength=N_FATES)
            if column.name in wanted:
                codes[column.name] = (marked // N_FATES).astype(smallest_unsigned(column.size))
        n_impossible += int(domain.impossible(codes).sum())
        possible = coded.made_possible({name: codes[name] for name in coded.names})
        return [possible[name] for name in coded.names]

    with open_source(source, scratch=folder, wanted=domain.names) as opened:
        records = opened.read(lambda: packed(opened))
        written = spill_packed(opened, coded, records, unpack, n_records=n_records, folder=folder)
    return Scan(_profile(domain, written.n_present, fates, n_impossible), coded=written)


def profile_of_kept(
    source: Source, domain: Domain, *, scratch: Path, units: Units, key: str
) -> SourceProfile:
    """The profile of the records that are kept of each unit, at most ``max_records``.

    Which are kept depends on the unit's own records alone, as for a contingency table
    (tasks.source.aggregates), so a unit moves no count by more than that.

    Raises:
        SourceError: Not found or unreadable; a column missing or of a wrong type.
    """
    group = _Group.of(0, domain, domain.names, None)
    fates = np.zeros((len(domain.columns), N_FATES), np.int64)
    n_records = n_impossible = 0

    def run(table: ir.Table, unit: str | None) -> None:
        nonlocal n_records, n_impossible
        derived = discretise.read_columns(domain, table, unit=unit, text=opened.text)
        words = group.words(domain, derived) | {"unit": derived.unit}
        records = engine_of(table).stored(_with_impossible(domain, derived, words, _IMPOSSIBLE))
        kept = kept_records(records, units, key).drop("unit", "lacking")
        for batch in engine_of(kept).batches(kept, CHUNK):
            n_records += len(batch)
            packed = [batch[name].to_numpy() for name in group.names]
            for counts, marked in zip(fates, group.packed.unpack(packed), strict=True):
                counts += np.bincount(marked % N_FATES, minlength=N_FATES)
            if domain.patterns:
                n_impossible += int(batch[_IMPOSSIBLE].to_numpy().sum())

    with open_source(source, scratch=scratch, wanted=domain.names) as opened:
        opened.read(lambda: run(*typed(opened, units)))
    return _profile(domain, n_records, fates, n_impossible)


def _counted(opened: OpenSource, domain: Domain, groups: Sequence[_Group]) -> Scan:
    derived = discretise.read_columns(domain, opened.table, text=opened.text)
    keys = {name: key for group in groups for name, key in group.words(domain, derived).items()}
    sets = [group.names for group in groups]
    if domain.patterns:
        sets.append((_IMPOSSIBLE,))
    found = _by_sets(_with_impossible(domain, derived, keys, _IMPOSSIBLE), sets)
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
            possible = group.table.made_possible(codes)
            counted.append((group.table, group.table.encode(possible), records))
    n_impossible = 0
    if domain.patterns:
        (is_impossible,), records = found[_IMPOSSIBLE,]
        n_impossible = int(records[is_impossible.astype(bool)].sum())
    return Scan(_profile(domain, n_records, fates, n_impossible), tuple(counted))


def _with_impossible(
    domain: Domain, derived: ir.Table, keys: Mapping[str, Any], name: str
) -> ir.Table:
    """The keys, and in a column of this name 1 for a record in a structural zero, if there are any.

    The digits are columns of a view: else every box would repeat in SQL all that they are computed
    from. Rules of households, which are hundreds of boxes, do not come here: the expression would
    nest too deep, and an engine's time for it grows faster than their number.
    """
    if not domain.patterns:
        return derived.select(**keys)
    places = discretise.places_of(PackedCodes.of(domain))
    digits = {
        f"digit_{index}": coded_column(column, derived, place).digit
        for index, (column, place) in enumerate(zip(domain.columns, places, strict=True))
    }
    once = derived.select(**keys, **digits).view()
    impossible = discretise.impossible(domain, [once[digit] for digit in digits])
    return once.select(*keys, **{name: impossible.cast("int64")})


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


def scan_of(source: Source, release: Release, plan: Plan, folder: Path) -> Scan:
    """The profile of a source; where every record is a unit, with the tables or codes too."""
    domain, units = release.domain, units_of(release)
    if units is not None:
        return Scan(aggregates.profile(source, domain, scratch=folder, units=units))
    if plan.coded is None:
        found = scan(source, domain, plan.joint, scratch=folder)
    else:
        n_records = release.privacy.n_records
        found = scan_wide(source, domain, plan.coded, n_records=n_records, folder=folder)
        if plan.joint:
            columns = {column.name: column for each in plan.joint for column in each.columns}
            tables = scan(source, Domain(tuple(columns.values())), plan.joint, scratch=folder)
            found = replace(found, counted=tables.counted)
    if not isinstance(source, linked.LinkedSource):
        return found
    keys = linked.key_faults(source, folder)
    return replace(found, profile=replace(found.profile, keys=keys))


def kept_profile(
    source: Source, release: Release, scan: Scan, *, folder: Path, key: str
) -> SourceProfile:
    """The profile of what is counted: all records, or those that are kept of each unit.

    Takes the arguments of ``counted_of``.
    """
    units = units_of(release)
    if units is None:
        return scan.profile
    return profile_of_kept(source, release.domain, scratch=folder, units=units, key=key)


def counted_of(
    source: Source, release: Release, plan: Plan, scan: Scan, *, folder: Path, key: str
) -> Counted:
    """The tables of the scan, or of the records that are kept of each unit, and wide codes.

    Args:
        source: That which was scanned.
        release: How it is declared.
        plan: What is counted of it.
        scan: Of it.
        folder: As for the scan.
        key: For the choice of the records that are kept; random, secret, used once.
    """
    units = units_of(release)
    joint = (
        scan.tables()
        if units is None
        else tuple(
            aggregates.count(source, domain, scratch=folder, units=units, key=key)
            for domain in plan.joint
        )
    )
    coded = scan.coded
    if plan.coded is not None and coded is None:
        n_records = release.privacy.n_records
        coded = spill(source, plan.coded, n_records=n_records, folder=folder, units=units, key=key)
    return Counted(joint, coded)


def counted_at(
    chunks: Iterable[Mapping[int, NDArray[Any]]],
    sizes: Sequence[int],
    column: int,
    places: Codes,
    n: int,
    group: tuple[int, ...],
) -> Counts:
    """``CodedColumns.table_at`` of chunks of records, with the codes of its columns."""
    counting = GroupCounts([n if at == column else k for at, k in enumerate(sizes)],
                           [(column, *group)])  # fmt: skip
    kind = smallest_unsigned(n)
    for chunk in chunks:
        own = places[chunk[column]]
        kept = own >= 0
        codes = {other: chunk[other][kept] for other in group}
        counting.add({column: own[kept].astype(kind), **codes})
    return counting.tables()[0]
