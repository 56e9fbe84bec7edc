"""Servers for the tests: one PostgreSQL server for ledgers, one Prefect server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import Server
from prefect_server import started


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The one server of the session; without it tests fail, none is skipped."""
    with Server() as server:
        yield server


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


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a client of the session's one Prefect server, which has a password."""
    with started(tmp_path_factory.mktemp("prefect-server")) as environment:
        yield environment
