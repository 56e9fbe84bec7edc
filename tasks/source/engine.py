"""What an engine offers to counting, and which engine a source has.

An engine is a module of this room, named as its key in ``configs.sources``. Counting builds one
Ibis expression; an engine opens the source as a table, and runs that expression where the data
lies. All that comes back is whole numbers: codes and counts. A new engine is a module here and a
line in ``_MODULE_OF_BACKEND``.

Declared numbers are compared in the engine's own types: a column keeps its type, and the declared
edge or category is brought into it, never the other way round, so that nothing is rounded.

Every engine checks here whether a source has the declared columns, in each of its files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Category
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    OutOfMemoryError,
    SourceAccessError,
    together,
)
from statpress.tasks.source.guarding import text_of_owner

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The form of a CSV with a header and double quotes.

    Attributes:
        delimiter: One character between fields.
        encoding: Of the text, by Python's name.
        decimal: Decimal mark of numbers, ``.`` or ``,``.
        thousands: One character between groups of digits, if numbers may have one.
        date_format: Of dates, in the directives of ``strptime``; None for ISO 8601.
        null_values: Fields that stand for no value, besides the empty one.
        unit: Column that names units, in which only an empty field stands for none: else a config
            could ask whether a name is there.
    """

    delimiter: str = ","
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str | None = None
    date_format: str | None = None
    null_values: tuple[str, ...] = ()
    unit: str | None = None


MEMORY_LIMIT = 300 * 10**6
"""Bytes beyond which the engine spills, unless a config declares the memory of a run."""

LEAST_SHARE, RUN = 150 * 2**20, 900 * 2**20
"""Bytes of the engine at least, and of all that a run has in memory besides what it works on:
its libraries, and its quality process."""


def engine_share(memory: int) -> int:
    """Bytes for the engine of a run that may take so many in all: a third of what is left.

    The rest is for what it hands over, and for what it takes beyond its limit.
    """
    return max(LEAST_SHARE, (memory - RUN) // 3)


@dataclass(frozen=True)
class Limits:
    """What an engine may take of its machine.

    Attributes:
        memory: Bytes beyond which it spills; None for its own limit.
        threads: That work at once; None for as many as there are processors.
    """

    memory: int | None = None
    threads: int | None = None

    @classmethod
    def of(cls, memory: int | None, threads: int | None) -> Limits:
        """Those of the engine of a run that may take so many bytes in all."""
        return cls(None if memory is None else engine_share(memory), threads)


_CSV_COLUMN = 1_200_000
"""Bytes that the engine holds of a column of a CSV for each thread, and thrice besides, whatever
its number of records; measured with 20 to 100 columns and 1 to 8 threads, a third to spare."""


def csv_memory(columns: int, threads: int) -> int:
    """Bytes that the engine needs to read a CSV, of which it can spill none."""
    return (3 + threads) * columns * _CSV_COLUMN


def connect(scratch: Path, limits: Limits = Limits(), **settings: Any) -> Any:
    """An engine of its own, which installs nothing."""
    import ibis

    chosen: dict[str, Any] = {"preserve_insertion_order": False}
    if limits.threads is not None:
        chosen["threads"] = limits.threads
    connection = ibis.duckdb.connect(
        ":memory:",
        temp_directory=str(scratch),
        memory_limit=f"{MEMORY_LIMIT if limits.memory is None else limits.memory}B",
        autoinstall_known_extensions=False,
        autoload_known_extensions=False,
        **(chosen | settings),
    )
    connection.raw_sql("SET enable_progress_bar = false")  # it goes to standard output
    return connection


def out_of_memory(error: Exception, where: str) -> OutOfMemoryError | None:
    """The public error for an engine that needed more than it may take; None for another failure.

    What hands records over makes an error of its own kind of it, with the same text.
    """
    import duckdb

    kinds = (duckdb.OutOfMemoryException, MemoryError)
    if not isinstance(error, kinds) and not str(error).startswith("Out of Memory Error:"):
        return None
    return OutOfMemoryError(
        "Reading the source needs more memory, or more room to spill, than it may use. That says"
        " nothing of its files. Nothing was charged.",
        where=where,
    )


_Result = TypeVar("_Result")
Constants = Mapping[str, tuple["dt.DataType", Sequence[Any]]]
"""Columns of a public table by name: their type, and Python values of it."""
ArrayFunction = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Source(Protocol):
    """Where the records lie.

    Attributes:
        engine: The key of the engine that reads it.
    """

    engine: ClassVar[str]

    @property
    def where(self) -> str:
        """Its public name, for messages."""


class OpenSource(Protocol):
    """A source that is open."""

    @property
    def table(self) -> ir.Table:
        """Its records, lazily; names and types are the source's."""

    @property
    def text(self) -> CsvOptions | None:
        """How the columns are written, if all of them are text."""

    def read(self, run: Callable[[], _Result]) -> _Result:
        """Run a step that reads the source, silencing whatever the engine says.

        Raises:
            SourceError: What is wrong, in public words.
            InternalError: Something else.
        """

    def place_of(self, record: int, column: str, unreadable_as: str = "") -> str:
        """Where a record lies, from 1 in the source's order, in words for the curator."""


@dataclass(frozen=True)
class OpenTable:
    """An open source whose values have types and whose records have no order.

    Attributes:
        table: Its records, lazily.
        guard: Runs a step, silencing whatever the engine says.
    """

    table: ir.Table
    guard: Callable[[Callable[[], Any]], Any]
    text: None = None

    def read(self, run: Callable[[], _Result]) -> _Result:
        """Run a step that reads the records."""
        found: _Result = self.guard(run)
        return found

    def place_of(self, record: int, column: str, unreadable_as: str = "") -> str:
        """Nobody asks for a place where ``parts_of`` gives no part."""
        raise NotImplementedError


class Reader(Protocol):
    """How sources are opened: the part of an engine that its module may leave to another."""

    def source_of(
        self,
        declared: Any,
        located: Callable[[str], Path],
        *,
        columns: tuple[str, ...],
        unit: str | None,
        limits: Limits,
    ) -> Source:
        """The source that a config's section declares; nothing is opened.

        Args:
            declared: The section.
            located: Makes a path of the config absolute.
            columns: Those that are wanted.
            unit: A further one of those, which names the units.
            limits: What the engine may take of this machine.
        """

    def check_place(self, source: Source) -> None:
        """Raise if a run could not begin to read a source; reads no data.

        Raises:
            SourceError: There is no such file, or there are no credentials.
        """

    def is_there(self, source: Source) -> bool:
        """Whether there is something of the source's name; reads none of its records.

        Raises:
            SourceError: That cannot be found out.
        """

    def parts_of(self, source: Source) -> Iterator[Source]:
        """The parts of a source whose records have an order, in their order; none if none has."""

    def held(self, source: Source, scratch: Path) -> AbstractContextManager[Source]:
        """The source as it stands at its first reading, for as long as the context lasts.

        All that is read of what the context gives is of one state. It ends with
        ``SourceChangedError`` where the engine cannot keep a state, and the source has another.

        Args:
            source: Which.
            scratch: Private directory.

        Raises:
            SourceError: It cannot be opened; it changed.
        """

    def opened(
        self, source: Source, scratch: Path, wanted: Sequence[str], **settings: Any
    ) -> AbstractContextManager[OpenSource]:
        """The source as a lazy Ibis table; takes all times as UTC.

        Args:
            source: Which.
            scratch: Private directory, for what the engine spills and for copies.
            wanted: Columns that are declared; the one that names the units is wanted as well.
            settings: More of the engine's settings.

        Raises:
            SourceError: In public words; a wanted column is missing, double or of several types.
        """


class Engine(Reader, Protocol):
    """The module of an engine: how it opens sources, and runs what counting asks of them."""

    def constants(self, like: ir.Table, columns: Constants) -> ir.Table:
        """A public table that can be joined with a table of the engine.

        Args:
            like: A table of the source.
            columns: What it holds.
        """

    def mapped(self, value: Any, function: Callable[[], ArrayFunction]) -> Any | None:
        """A function of arrays of doubles, where the engine runs in this process; otherwise None.

        Args:
            value: Doubles of the source.
            function: Makes it; it gives doubles, takes any, and may raise nothing.
        """

    def floor(self, number: Any) -> Any:
        """The floor of a double as a double."""

    def digest(self, text: Any) -> Any:
        """SHA-256 of text in UTF-8, in a type ordered as its hexadecimal digits are."""

    def stored(self, records: ir.Table) -> ir.Table:
        """The records, computed once if that spares memory later; once of an open source."""

    def fetched(self, result: ir.Table) -> pa.Table:
        """A small table of whole numbers, as int64."""

    def batches(self, records: ir.Table, size: int) -> Iterator[pa.RecordBatch]:
        """A large one of whole numbers, none null, never all at once.

        Args:
            records: The table.
            size: Rows of a batch, about.
        """

    def by_sets(self, records: ir.Table, sets: Sequence[tuple[str, ...]]) -> pa.Table:
        """Numbers of records by the values of sets of columns, in one pass.

        Args:
            records: Whole numbers or booleans, none null.
            sets: Names of columns.

        Returns:
            Its columns as int64, null in the rows of sets without them, and ``records``.
        """


_MODULE_OF_BACKEND = MappingProxyType(
    {"duckdb": "duckdb", "postgres": "postgres", "pyspark": "spark"}
)
"""By Ibis's name of the backend, that of the module, which is the key in a config."""


def reader_named(key: str) -> Reader:
    """What opens the sources of an engine."""
    return cast("Reader", import_module(f"{__package__}.{key}"))


def engine_of(expression: ir.Expr) -> Engine:
    """The engine that a table, or a column of it, runs on."""
    name = _MODULE_OF_BACKEND[expression.get_backend().name]
    return cast("Engine", import_module(f"{__package__}.{name}"))


@contextmanager
def open_source(
    source: Source, *, scratch: Path, wanted: tuple[str, ...] = (), **settings: Any
) -> Iterator[OpenSource]:
    """The source as a lazy Ibis table; takes and raises what ``Engine.opened`` says."""
    with reader_named(source.engine).opened(source, scratch, wanted, **settings) as opened:
        yield opened


EXACT_DOUBLES = 2**53


def literal(value: Any, dtype: Any) -> Any:
    """A constant of a type."""
    import ibis

    return ibis.literal(value, type=dtype)


def double(number: float) -> Any:
    """A double, written as text: engines take 0.1 in a query for a decimal."""
    return literal(repr(float(number)), "string").cast("float64")


def floor(number: Any) -> Any:
    """The floor as a double."""
    if number.type().is_decimal():
        whole = number.cast("int64")  # to the nearest or towards zero, as engines please
        return (whole - (whole > number).cast("int64")).cast("float64")
    return engine_of(number).floor(number)


def grid(dtype: dt.DataType) -> tuple[int, int, int]:
    """Least and greatest value of an integer or decimal type in units of 10**-scale, scale."""
    if dtype.is_decimal():
        greatest = 10 ** int(dtype.precision) - 1
        return -greatest, greatest, int(dtype.scale)
    return int(dtype.bounds.lower), int(dtype.bounds.upper), 0


def has_any_scale(dtype: dt.DataType) -> bool:
    """Whether a type holds decimals of any number of places."""
    return bool(dtype.is_decimal() and dtype.scale is None)


def _written(number: float) -> Decimal:
    """A declared number as the config writes it; beyond 2**53 what the double is."""
    short = isinstance(number, float) and abs(number) < EXACT_DOUBLES
    return Decimal(repr(number)) if short else Decimal(number)


def _units(number: float, dtype: dt.DataType) -> Fraction:
    """A declared number in the units of an integer or decimal type."""
    written = dtype.is_decimal() and isinstance(number, float) and abs(number) < EXACT_DOUBLES
    return Fraction(repr(number) if written else number) * Fraction(10) ** grid(dtype)[2]


def _of_units(units: int, dtype: dt.DataType) -> int | Decimal:
    """So many units as a value of the type."""
    return Decimal(f"{units}E-{grid(dtype)[2]}") if dtype.is_decimal() else units


def is_exact_double(category: Category) -> bool:
    """Whether a category is not an integer, or is one that some double equals."""
    try:
        return not isinstance(category, int) or float(category) == category
    except OverflowError:
        return False


def in_type(category: Category, dtype: dt.DataType) -> Any:
    """A category in the column's type, or None if no value of it is equal."""
    if isinstance(category, (str, bool)):
        return category
    if dtype.is_floating():
        return float(category) if is_exact_double(category) else None
    if has_any_scale(dtype):
        return _written(category)
    units, (lowest, highest, _) = _units(category, dtype), grid(dtype)
    whole = units.denominator == 1 and lowest <= units <= highest
    return _of_units(int(units), dtype) if whole else None


def below(value: Any, bound: float, *, or_equal: bool = False) -> Any:
    """Whether value < bound (or <=), for a value that is neither null nor NaN."""
    dtype = value.type()
    if dtype.is_floating():
        least = float(bound)
        if least < bound:  # an integer between two doubles
            least = math.nextafter(least, math.inf)
        return value <= double(least) if or_equal else value < double(least)
    if has_any_scale(dtype):
        limit = literal(_written(bound), dtype)
        return value <= limit if or_equal else value < limit
    units, (lowest, highest, _) = _units(bound, dtype), grid(dtype)
    least = math.floor(units) + 1 if or_equal else math.ceil(units)
    if not lowest < least <= highest:
        return literal(least > highest, "boolean")
    return value < literal(_of_units(least, dtype), dtype)


class Snapshot:
    """A source held from its first reading until the last.

    Args:
        scratch: Private directory.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._stack = ExitStack()
        self._held: Source | None = None

    def of(self, source: Source) -> Source:
        """The source, held from the first call on; every later call gives the same.

        Raises:
            SourceError: It cannot be opened.
        """
        if self._held is None:
            reader = reader_named(source.engine)
            self._held = self._stack.enter_context(reader.held(source, self._scratch))
        return self._held

    def settle(self) -> None:
        """End it, after the last reading.

        Raises:
            SourceChangedError: The source did not stay as it was, so that what was read is worth
                nothing.
        """
        self._held = None
        self._stack.close()

    def close(self) -> None:
        """Let go of the source, whatever it is by now."""
        with suppress(Exception):
            self.settle()


_LONGEST = 10_000


@dataclass(frozen=True)
class Credentials:
    """Where they are found.

    Attributes:
        env: Name of an environment variable.
        file: Path of a file, if it is not a variable.
    """

    env: str | None = None
    file: Path | None = None

    def read(self) -> str:
        """What is there.

        Raises:
            SourceAccessError: Nothing is, or others can read the file.
        """
        if self.env is not None:
            found = os.environ.get(self.env, "").strip()
            if not found:
                raise SourceAccessError(
                    "The environment variable with the credentials is not set.",
                    where=self.env,
                    next_step="Set it for whoever runs the release, or name another in "
                    "source.credentials.",
                )
            return found
        assert self.file is not None
        data, fault = text_of_owner(self.file, _LONGEST)
        found = data.decode(errors="replace").strip()
        if fault or not found:
            raise SourceAccessError(
                f"The file with the credentials cannot be used ({fault or 'it is empty'}).",
                where=str(self.file),
                next_step=f"Run 'chmod 600 {self.file}'." if "others" in fault else "",
            )
        return found


Schema = Sequence[tuple[str, str]]
"""Name and type of every column of a file."""


def check_source_columns(
    wanted: Iterable[str], usable: Iterable[str], schemas: Sequence[Schema]
) -> None:
    """Raise if a column is not among the usable ones.

    Raises:
        ColumnNotFoundError: With all such columns, each with its fault.
    """
    known = set(usable)
    faults = [_fault(name, schemas) for name in wanted if name not in known]
    if faults:
        raise together(faults)


def _fault(name: str, schemas: Sequence[Schema]) -> ColumnNotFoundError:
    """What is wrong with a column."""
    files = "the source" if len(schemas) == 1 else "a file of the source"
    kinds = [[kind for other, kind in schema if other == name] for schema in schemas]
    if not any(kinds):
        return missing_column(name)
    if not all(kinds):
        fault = f"Not all files of the source have a column '{name}' (names are compared exactly)."
    elif any(len(each) > 1 for each in kinds):
        fault = f"The column '{name}' is more than once in {files}."
    elif len({each[0] for each in kinds}) > 1:
        fault = f"The column '{name}' is not of one type in all files of the source."
    else:
        fault = f"Another column of {files} differs from '{name}' in upper and lower case only."
    return ColumnNotFoundError(fault, where=name)


def shared_columns(schemas: Sequence[Schema]) -> dict[str, int]:
    """Positions, in the first file, of columns that all files have with one type.

    The engine matches the columns of several files by folded name and casts
    them to the first file's type, so a name or a type that is not the same
    throughout is left out.
    """
    first = schemas[0]
    positions = unique([name for name, _ in first])
    for schema in schemas if len(schemas) > 1 else []:
        folded = unique([name.lower() for name, _ in schema])
        types = dict(schema)
        positions = {
            name: position
            for name, position in positions.items()
            if name.lower() in folded and types.get(name) == first[position][1]
        }
    return positions


def unique(names: Sequence[str]) -> dict[str, int]:
    """Positions of the names that occur once."""
    return {name: index for index, name in enumerate(names) if names.count(name) == 1}


def missing_column(name: str) -> ColumnNotFoundError:
    """The public error for a column that the source does not have."""
    flaw = f"The source has no column '{name}' (names are compared exactly)."
    return ColumnNotFoundError(flaw, where=name)
