"""What a person sees: progress, tables, errors, and commands that run as printed.

Commands that messages name have the home that the command line gave. ``NO_COLOR`` is honoured by
rich.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from statpress.mechanisms.errors import StatpressError

if TYPE_CHECKING:
    from rich.table import Table

    from statpress.configs.release_config import ReleaseConfig

_HOME: ContextVar[Path | None] = ContextVar("statpress_home_option", default=None)

_COMMAND = re.compile(
    r"\bstatpress (?:ledger [a-z-]+|review|approve|reject|publish|upload|plan|run|rerelease"
    r"|verify)\b(?![^'`\n]*--home)"
)
"""A command that has the option ``--home`` and is named without it."""


def remember_home(folder: Path | None) -> None:
    """Keep what ``--home`` gave, for the commands that are printed from here on."""
    _HOME.set(folder)


def registration(config: ReleaseConfig, sources: Sequence[str] = ()) -> str:
    """The command that registers a config's dataset, but for the limits.

    Args:
        config: Of the release.
        sources: What the account is about, if the command says so.
    """
    from statpress.configs.release_config import UnitColumn
    from statpress.mechanisms.domain.domain import Adjacency, Unit

    unit, words = config.privacy.unit, ["statpress", "ledger", "register", config.dataset]
    if isinstance(unit, UnitColumn):
        words += ["--unit-column", unit.column, "--max-records", str(unit.max_records)]
    elif unit is not Unit.RECORD:
        words += ["--unit", unit]
    size: object = "from_source" if config.privacy.is_from_source else config.privacy.size
    if config.privacy.adjacency is Adjacency.ADD_REMOVE:
        words += ["--adjacency", config.privacy.adjacency]
    else:
        words += [f"--{config.privacy.size_name.replace('_', '-')}", str(size)]
    for source in sources:
        words += ["--source", source]
    limit = "--epsilon EPSILON" if config.budget.rho is None else "--policy zcdp --rho RHO"
    return f"{shlex.join(words)} {limit} --delta DELTA"


def with_home(text: str) -> str:
    """Text whose commands name the home as the command line did.

    >>> remember_home(Path("my home"))
    >>> with_home("Then run 'statpress publish 52f3'.")
    "Then run 'statpress publish --home 'my home' 52f3'."
    >>> remember_home(None)
    >>> with_home("Then run 'statpress publish 52f3'.")
    "Then run 'statpress publish 52f3'."
    """
    folder = _HOME.get()
    if folder is None:
        return text
    option = f"--home {shlex.quote(str(folder))}"
    return _COMMAND.sub(lambda found: f"{found[0]} {option}", text)


def show(value: Any) -> None:
    """Print text or a rich table to standard output."""
    if isinstance(value, str):
        print(plain(with_home(value)))
        return
    from rich.console import Console

    Console(soft_wrap=True).print(value, markup=False, highlight=False)


def plain(text: str) -> str:
    """Text that cannot repaint a terminal: control and direction marks are spelled out."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def show_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object to standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def show_error(error: StatpressError, *, as_json: bool) -> None:
    """Print an error and what was found with it: JSON on standard output, text on standard error.

    Each has a line of its own; a next step stands once, below all that it is for.
    """
    found = (error, *error.also)
    if as_json:
        facts = [
            {
                "kind": each.kind,
                "exit_code": each.exit_code,
                "what": each.what,
                "where": each.where,
                "next_step": with_home(each.next_step),
            }
            for each in found
        ]
        also = {"also": facts[1:]} if error.also else {}
        show_json({"error": facts[0] | also})
        return
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    for i, each in enumerate(found):
        console.print("error: ", style="bold red", end="")
        place = f"{each.where}: " if each.where else ""
        console.print(plain(f"{place}{each.what}"), markup=False, highlight=False)
        if each.next_step not in {later.next_step for later in found[i + 1 :]}:
            step = plain(with_home(f"       {each.next_step}"))
            console.print(step, markup=False, highlight=False)


_NARROW = 14


def table(
    title: str, columns: list[str], rows: list[list[str]], *, ends_in_words: bool = False
) -> Table:
    """A plain table; figures are right-aligned. Without names of columns it has no header."""
    from rich.table import Table
    from rich.text import Text

    result = Table(title=title, title_justify="left", title_style="bold", show_header=any(columns))
    for i, column in enumerate(columns):
        words = i == 0 or (ends_in_words and i == len(columns) - 1)
        result.add_column(
            column,
            justify="left" if words else "right",
            overflow="fold",
            no_wrap=ends_in_words and i == 0,
            max_width=None if words or not ends_in_words else _NARROW,
        )
    for row in rows:
        result.add_row(*(Text(plain(cell)) for cell in row))
    return result


class Progress:
    """The listener of a terminal: the step at work and a count of records; notices to people.

    The bar appears with the first step, so that a question asked before stays in place.
    """

    def __init__(self, *, shown: bool) -> None:
        self._bar: Any = None
        self._task: Any = None
        self.shown = shown and sys.stderr.isatty()
        # Its own, since a run keeps everything else from standard error.
        self._stream = os.fdopen(os.dup(2), "w", errors="backslashreplace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._stream.close()

    def notify(self, text: str) -> None:
        """Print a note on standard error, above the bar."""
        text = with_home(text)
        if self._bar is not None:
            self._bar.console.print(plain(text), markup=False, highlight=False, soft_wrap=True)
        else:
            print(plain(text), file=self._stream, flush=True)

    def announce(self, title: str) -> None:
        """A step begins."""
        if self.shown and self._bar is None:
            self._start()
        if self._bar is not None:
            self._bar.reset(self._task, description=title, total=None, records="")

    def advance(self, records: int) -> None:
        """More records are done."""
        if self._bar is not None:
            self._bar.advance(self._task, records)
            done = int(self._bar.tasks[0].completed)
            self._bar.update(self._task, records=f"{done:,} records")

    def _start(self) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._bar = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[records]}"),
            TimeElapsedColumn(),
            console=Console(file=self._stream),
            transient=True,
        )
        self._bar.start()
        self._task = self._bar.add_task("start", total=None, records="")
