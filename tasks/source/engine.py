"""The counting engine: in memory, with a bound on it, and no trace but in one private folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mechanisms.errors import SourceError

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


def connect(scratch: Path, limits: Limits = Limits(), **settings: Any) -> Any:
    """An engine of its own, which installs nothing.

    Args:
        scratch: Private directory for what the engine spills.
        limits: What it may take.
        settings: More of the engine's settings, which go before its limits.
    """
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


def out_of_memory(error: Exception, where: str) -> SourceError | None:
    """The public error for an engine that needed more than it may take; None for another failure.

    Args:
        error: Of the engine.
        where: Public name of the source.
    """
    import duckdb

    if not isinstance(error, duckdb.OutOfMemoryException):
        return None
    return SourceError(
        "Counting needs more memory, or more room to spill, than it may use.",
        where=where,
        next_step="Raise resources.memory, or free space in the work directory.",
    )
