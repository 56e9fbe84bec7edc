"""Coded columns in files of the run's private folder, counted in bounded memory.

The engine discretises each record once and hands over its codes as a few integers
(mechanisms.domain.packed_codes); here they are unpacked, chunk by chunk, into one file for each
column, raw unsigned integers of the smallest size. Every later table is counted from there.
The order of the records in the files is the engine's, and means nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.coded_columns import check_groups
from mechanisms.domain.domain import Domain
from mechanisms.domain.group_counts import GroupCounts, smallest_unsigned
from mechanisms.domain.packed_codes import PackedCodes
from mechanisms.errors import EmptySourceError
from mechanisms.parallel.threads import in_threads, threads
from tasks.counting import discretise
from tasks.counting.aggregates import check_absent, typed
from tasks.counting.units import Units, kept_records
from tasks.engines.engine import OpenSource, Source
from tasks.engines.registry import engine_of, open_source
from tasks.source.private_files import new_file, writable, write_all

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
    contingency table (tasks.counting.units); the padding is only a number.

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
        codes = list(PackedCodes.of(domain).unpack(words))
        _check_possible(domain, codes)
        return codes

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
    """The same for records that the caller packed, each a unit; there may be none.

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


def _check_possible(domain: Domain, codes: Sequence[NDArray[Any]]) -> None:
    """A record in a structural zero cannot be counted, as in a contingency table."""
    for zero in domain.zeros:
        named = {name: codes[domain.names.index(name)].astype(np.int64) for name in zero.names}
        if zero.contains(named).any():
            raise ValueError("a record is in a structural zero")


def _make(place: Path, needed: int) -> None:
    """Make the folder, where there is room for so many bytes."""
    if shutil.disk_usage(place.parent).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    place.mkdir(mode=0o700)


def _path(folder: Path, column: int) -> Path:
    return folder / f"{column}.codes"


_writable = functools.partial(writable, what="the coded columns", next_step="use fewer columns")
