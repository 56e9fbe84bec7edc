"""Homes and ledgers that every user of the machine may write to are refused; a group may share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from census_ledger import charge, register

from statpress.flows.runner import plain_context
from statpress.mechanisms.errors import ExposedLedgerError
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

FULL = pytest.mark.nightly


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose ledger has census registered."""
    made = Home(tmp_path / "home")
    made.folder("")
    with open_ledger(made, create=True) as ledger:
        register(ledger)
    return made


USES: dict[str, Callable[[Home], Any]] = {
    "open": open_ledger,
    "exists": lambda home: Ledger.exists(home.ledger),
    "create": lambda home: open_ledger(home, create=True),
    "upgrade": lambda home: Ledger.upgrade(home.ledger),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mode", [0o602, *(pytest.param(m, marks=FULL) for m in (0o666, 0o777))])
def test_a_ledger_that_everybody_may_write_to_is_refused(home: Home, use: str, mode: int) -> None:
    place = home.root / "ledger.sqlite"
    place.chmod(mode)
    with pytest.raises(ExposedLedgerError) as caught:
        USES[use](home)
    assert caught.value.exit_code == 39
    assert f"chmod o-w {place}" in caught.value.next_step
    place.chmod(mode & ~0o002 | 0o600)
    with open_ledger(home) as ledger:
        charge(ledger)


@pytest.mark.parametrize("use", [*USES, "run", "register"])
@pytest.mark.parametrize("mode", [0o1777, 0o703, pytest.param(0o777, marks=FULL)])
def test_a_home_that_everybody_may_write_to_is_refused(home: Home, use: str, mode: int) -> None:
    """Also with a sticky bit: SQLite goes by a journal that anybody lays beside the ledger."""
    uses = USES | {"run": plain_context, "register": lambda home: home.folder("")}
    home.root.chmod(mode)
    with pytest.raises(ExposedLedgerError, match="Every user") as caught:
        uses[use](home)
    assert f"chmod o-w {home.root}" in caught.value.next_step
    assert home.root.stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize(("folder", "file"), [(0o2770, 0o660), (0o755, 0o644), (0o775, 0o664)])
def test_a_group_may_share_a_ledger_and_others_may_read(home: Home, folder: int, file: int) -> None:
    home.root.chmod(folder)
    (home.root / "ledger.sqlite").chmod(file)
    with open_ledger(home) as ledger:
        charge(ledger)


def test_nothing_is_made_in_a_folder_that_everybody_may_write_to(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ExposedLedgerError):
        Ledger.open(folder / "ledger.db")
    assert list(folder.iterdir()) == []
