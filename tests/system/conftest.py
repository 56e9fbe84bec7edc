"""Databases for ledgers, on the session's one PostgreSQL server; a browser for each file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, missing, opened
from postgres import Server
from requirements import lacking


@pytest.fixture
def postgres_url(postgres_server: Server) -> str:
    """The address of a fresh and empty PostgreSQL database."""
    return postgres_server.database()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.system)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made, on either kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures are kept: the folder that ``STATPRESS_TEST_PICTURES`` names, or pytest's."""
    kept = Path(os.environ.get("STATPRESS_TEST_PICTURES") or tmp_path_factory.mktemp("pictures"))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a file."""
    if reason := missing():
        lacking(reason)
    with opened(tmp_path_factory.mktemp("browser") / "chromium.log") as found:
        yield found
