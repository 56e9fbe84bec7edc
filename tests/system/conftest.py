"""Databases for ledgers, on the session's one PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import Server


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The address of a fresh and empty PostgreSQL database."""
    return postgres_server.database()


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made, on either kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return str(request.getfixturevalue("postgres_url"))
