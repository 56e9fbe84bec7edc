"""What an engine offers to counting.

An engine is a module of this room, named as its key in ``configs.models.sources``. Counting builds
one Ibis expression; an engine opens the source as a table, and runs that expression where the data
lies. All that comes back is whole numbers: codes and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.source.csv_options import CsvOptions
from tasks.source.engine import Limits

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.types as ir
    import pyarrow as pa

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

    def place_of(self, record: int, column: str) -> str:
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

    def place_of(self, record: int, column: str) -> str:
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
        """The same table, computed once if that spares memory later."""

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
