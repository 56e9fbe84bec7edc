"""Databases for ledgers, on the session's one PostgreSQL server; a browser for each process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import Browser, CannotStartError, opened
from requirements import lacking

if TYPE_CHECKING:
    from postgres import Server


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


@pytest.fixture(scope="session")
def pictures(full: bool, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Where pictures are kept: the folder that ``STATPRESS_TEST_PICTURES`` names, or pytest's.

    None by day without that variable: it takes long to draw them, and tests do not look at them.
    """
    named = os.environ.get("STATPRESS_TEST_PICTURES")
    if named is None and not full:
        return None
    kept = Path(named or tmp_path_factory.mktemp("pictures"))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(opened(tmp_path_factory.mktemp("browser") / "said.log"))
        except CannotStartError as error:
            lacking(str(error))
        yield found
