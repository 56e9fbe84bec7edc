"""The counting engine: in memory, with a bound on it, and no trace but in one private folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MEMORY_LIMIT = "300MB"
"""Beyond which the engine spills."""


def connect(scratch: Path, **settings: Any) -> Any:
    """An engine of its own, which installs nothing.

    Args:
        scratch: Private directory for what the engine spills.
        settings: More of the engine's settings.
    """
    import ibis

    chosen = {"preserve_insertion_order": False} | settings
    connection = ibis.duckdb.connect(
        ":memory:",
        temp_directory=str(scratch),
        memory_limit=MEMORY_LIMIT,
        autoinstall_known_extensions=False,
        autoload_known_extensions=False,
        **chosen,
    )
    connection.raw_sql("SET enable_progress_bar = false")  # it goes to standard output
    return connection
