"""Commands that messages name, with the home that the command line gave: they run as printed."""

from __future__ import annotations

import re
import shlex
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from configs.models.release import ReleaseConfig

_HOME: ContextVar[Path | None] = ContextVar("statpress_home_option", default=None)

_COMMAND = re.compile(
    r"\bstatpress (?:ledger [a-z-]+|review|approve|reject|publish|upload|plan|run|rerelease"
    r"|verify)\b(?![^'`\n]*--home)"
)
"""A command that has the option ``--home`` and is named without it."""


def remember_home(folder: Path | None) -> None:
    """Keep what ``--home`` gave, for the commands that are printed from here on."""
    _HOME.set(folder)


def registration(config: ReleaseConfig) -> str:
    """The command that registers a config's dataset, but for the limits."""
    from configs.models.release import UnitColumn

    unit, words = config.privacy.unit, ["statpress", "ledger", "register", config.dataset]
    if isinstance(unit, UnitColumn):
        words += ["--unit-column", unit.column, "--max-records", str(unit.max_records)]
        words += ["--n-units", str(config.privacy.n_units)]
    else:
        words += ["--n-records", str(config.privacy.n_records)]
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
