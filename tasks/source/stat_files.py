"""Files of Stata, SPSS and SAS, copied in chunks as Parquet into the run's private folder.

Only the declared columns are copied. Numbers become doubles, or int64 where the file stores whole
numbers. Blank text is null, and so are the packages' missing values, user-defined ones too. What a
format shows as a date, with or without a time, becomes the date. Value labels are not looked at:
codes are counted, and the config says what they mean.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from statpress.configs.formats import StatFormat
from statpress.mechanisms.errors import SourceUnreadableError
from statpress.tasks.source.guarding import new_file, writable

if TYPE_CHECKING:
    import pyarrow as pa


VALUES = 1 << 21
"""Values that are in memory at once."""
_STORED_WHOLE = ("int8", "int16", "int32")
_DAY = 86_400  # seconds
_FROM_1960 = -3653  # days from 1970-01-01
_FROM_1582 = -141_428
_SPSS = frozenset(
    {"DATE", "ADATE", "EDATE", "JDATE", "SDATE", "DATETIME", "YMDHMS", "MOYR", "QYR", "WKYR"}
)
_SAS_TIMES = frozenset(
    {"DATETIME", "E8601DT", "E8601DN", "B8601DT", "B8601DN", "IS8601DT", "DATEAMPM", "MDYAMPM"}
)
_SAS_DAYS = re.compile(
    r"DATE|DTDATE|JULIAN|MONYY|NENGO|WEEKDAT[EX]|WORDDAT[EX]|(E8601|B8601|IS8601)DA|YYMON"
    r"|(DDMMYY|MMDDYY|YYMMDD)[BCDNPS]?|(YYMM|MMYY)[CDNPS]?"
)
_PRIVATE = logging.getLogger("statpress.private")  # heard only by a run's curator log
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Column:
    """A column of a file: its type in the copy, and how its numbers are dates if they are.

    Attributes:
        dtype: Of the copy.
        per_day: Units of the numbers in a day; None if they are no dates.
        origin: Their zero, in days from 1970-01-01.
    """

    dtype: pa.DataType
    per_day: int | None = None
    origin: int = 0

    def array(self, values: Any) -> pa.Array:
        """The values of a chunk, as pyreadstat lists them, as an array of the type."""
        import pyarrow as pa

        if self.dtype == pa.string():
            return pa.array([value or None for value in values], self.dtype)
        numbers = np.asarray(values, dtype=np.float64)  # None becomes NaN
        if self.per_day is not None:
            numbers = np.floor(numbers / self.per_day) + self.origin
        found = pa.array(numbers, from_pandas=True)  # NaN becomes null
        if self.per_day is not None:
            return found.cast(pa.int32()).cast(self.dtype)
        return found.cast(self.dtype)


def copied(
    form: StatFormat,
    paths: Sequence[str],
    columns: Sequence[str],
    folder: Path,
    *,
    pattern: str,
    unit: str | None = None,
) -> list[str]:
    """Copies of files as Parquet, made when they are first asked for.

    Args:
        form: Of the files.
        paths: The files.
        columns: Names of those that are copied, as far as the files have them.
        folder: Private; it ends with the run.
        pattern: Of the source, which alone messages may name.
        unit: A further column whose numbers name units, and so have to be whole.

    Raises:
        SourceUnreadableError: A file is corrupt, or its text is not of the encoding it states.
        OutputNotWritableError: The disk has no room for a copy, or fails.
    """
    wanted = (*columns, *([unit] if unit is not None else []))
    digest = hashlib.sha256("\0".join([*paths, "", *wanted]).encode(errors="surrogateescape"))
    place = folder / f"stat-{digest.hexdigest()[:16]}"
    copies = [place / f"{i}.parquet" for i in range(len(paths))]
    if not place.is_dir():
        building = place.with_suffix(".new")
        shutil.rmtree(building, ignore_errors=True)
        try:
            _writable(lambda: building.mkdir(mode=0o700), folder)
            for path, copy in zip(paths, copies, strict=True):
                _copy(_Reading(form, path, pattern), wanted, unit, building / copy.name)
            _writable(lambda: building.rename(place), folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return [str(copy) for copy in copies]


def _copy(reading: _Reading, wanted: Sequence[str], unit: str | None, copy: Path) -> None:
    """Write one file's columns as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    described = reading.guarded(lambda: reading.columns(wanted, unit))
    schema = pa.schema([pa.field(name, column.dtype) for name, column in described.items()])
    chunks = reading.chunks(described)
    file = _writable(lambda: BufferedWriter(new_file(copy)), copy.parent)
    try:
        writer = _writable(lambda: pq.ParquetWriter(file, schema), copy.parent)
        try:
            while (chunk := reading.guarded(lambda: next(chunks, None))) is not None:
                _writable(functools.partial(writer.write_batch, chunk), copy.parent)
            _writable(writer.close, copy.parent)
        finally:
            with suppress(Exception):  # if it is not closed yet, the copy goes
                writer.close()
        _writable(file.flush, copy.parent)
    finally:
        with suppress(OSError):
            file.close()


@dataclass(frozen=True)
class _Reading:
    """A file that is read.

    Attributes:
        form: Its package.
        path: Where it lies.
        pattern: Of the source, for messages.
    """

    form: StatFormat
    path: str
    pattern: str

    def columns(self, wanted: Sequence[str], unit: str | None) -> dict[str, _Column]:
        """The columns that are wanted; one at least, since Parquet has no rows without."""
        import pyarrow as pa

        _, stated = self._function()(self.path, metadataonly=True, output_format="dict")
        found = [name for name in stated.column_names if name in wanted] or stated.column_names[:1]
        columns = {}
        for name in found:
            stored = stated.readstat_variable_types[name]
            per_day, origin = _dates(self.form, stated.original_variable_types.get(name) or "")
            if stored.startswith("string"):
                columns[name] = _Column(pa.string())
            elif name == unit or (stored in _STORED_WHOLE and per_day is None):
                columns[name] = _Column(pa.int64())
            elif per_day is not None:
                columns[name] = _Column(pa.date32(), per_day, origin)
            else:
                columns[name] = _Column(pa.float64())
        return columns

    def chunks(self, columns: Mapping[str, _Column]) -> Iterator[pa.RecordBatch]:
        """The rows, so many values at a time."""
        import pyarrow as pa

        # Not pyreadstat's own generator, which does not end where a file does not state its size.
        rows, start = max(1, VALUES // len(columns)), 0
        while True:
            chunk, _ = self._function()(
                self.path,
                usecols=list(columns),
                row_offset=start,
                row_limit=rows,
                output_format="dict",
                disable_datetime_conversion=True,
            )
            batch = pa.record_batch({name: c.array(chunk[name]) for name, c in columns.items()})
            yield batch
            start += batch.num_rows
            if batch.num_rows < rows:
                break

    def guarded(self, act: Callable[[], _Result]) -> _Result:
        """Read, silencing whatever the library says, since it may quote values."""
        try:
            return act()
        except Exception:
            _PRIVATE.exception("reading a file of Stata, SPSS or SAS")
        raise SourceUnreadableError(
            f"The source cannot be read as {self.form}.",
            where=self.pattern,
            next_step="Open it in its package and save it again; the curator log has the detail.",
        )

    def _function(self) -> Any:
        """What reads the file, by its suffix."""
        import pyreadstat

        suffix = PurePath(self.path).suffix.lower()
        if self.form == "stata":
            return pyreadstat.read_dta
        if self.form == "spss":
            return pyreadstat.read_por if suffix == ".por" else pyreadstat.read_sav
        return pyreadstat.read_xport if suffix == ".xpt" else pyreadstat.read_sas7bdat


def _dates(form: StatFormat, shown: str) -> tuple[int | None, int]:
    """How numbers of a format are dates: units in a day and origin; None if they are not."""
    if form == "stata":
        if shown.startswith(("%td", "%-td", "%d", "%-d")):
            return 1, _FROM_1960
        milliseconds = shown.lower().startswith(("%tc", "%-tc"))
        return (1000 * _DAY if milliseconds else None), _FROM_1960
    letters = re.match(r".*[A-Z]", shown.upper())  # what follows is its width
    name = letters[0] if letters else ""
    if form == "spss":
        return (_DAY if name in _SPSS else None), _FROM_1582
    if name in _SAS_TIMES:
        return _DAY, _FROM_1960
    return (1 if _SAS_DAYS.fullmatch(name) else None), _FROM_1960


def _writable(act: Callable[[], _Result], place: Path) -> _Result:
    """Say what is wrong where a copy cannot be written."""
    return writable(act, place, "the source", "declare fewer columns")
