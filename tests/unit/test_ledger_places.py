"""Where a ledger may lie: no second budget by accident, no password on a screen."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from census_ledger import TERMS, charge, register
from privileges import held_to_modes
from requirements import needed

from statpress.flows.runner import plain_context
from statpress.mechanisms.domain.domain import Adjacency, Privacy, Unit
from statpress.mechanisms.errors import (
    ExposedLedgerError,
    LedgerError,
    LedgerUnavailableError,
    StatpressError,
)
from statpress.tasks.ledger.entries import canonical_json
from statpress.tasks.ledger.export import write_export
from statpress.tasks.ledger.home_ledger import account_terms, open_ledger, register_dataset
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

PRIVACY = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=1000)


@pytest.mark.parametrize("name", ["STATPRESS_LEDGER", "STATPRESS_HOME"])
@pytest.mark.parametrize(
    "value",
    [
        "ledger.db",
        "postgresql:/u:hush-7719@host/db",
        "host=h password=hush-7719",
        "~nosuchuser/hush-7719",
    ],
)
def test_a_relative_place_in_the_environment_is_refused_unseen(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StatpressError) as caught:
        Home.default()
    assert caught.value.where == name
    assert "hush-7719" not in str(caught.value)


def test_places_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path))
    monkeypatch.delenv("STATPRESS_LEDGER", raising=False)
    assert Home.default().ledger == tmp_path / "ledger.sqlite"
    for value in ("/srv/ledger.db", "postgresql://h/db", "sqlite:////srv/ledger.db"):
        monkeypatch.setenv("STATPRESS_LEDGER", value)
        assert Home.default().ledger == value
    assert Home.of(tmp_path / "x").ledger == tmp_path / "x" / "ledger.sqlite"


def test_a_home_remembers_where_its_ledger_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, ledger = tmp_path / "home", tmp_path / "ledger.db"
    monkeypatch.setenv("STATPRESS_HOME", str(root))
    monkeypatch.setenv("STATPRESS_LEDGER", str(ledger))
    register_dataset(Home.default(), "d", PRIVACY, epsilon=1, delta=0)
    note = root / "ledger-address"
    assert note.read_text() == f"{ledger}\n"
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    monkeypatch.delenv("STATPRESS_LEDGER")
    for home in (Home.default(), Home.of(root)):
        assert home.ledger == str(ledger)
        assert account_terms(home, "d") is not None
    monkeypatch.setenv("STATPRESS_LEDGER", str(tmp_path / "other.db"))
    with pytest.raises(LedgerUnavailableError, match="second budget") as caught:
        Home.default()
    assert caught.value.where == str(note)
    assert Home.of(root).ledger == str(ledger)  # --home goes by the home, not by the variable
    note.chmod(0o602)
    with pytest.raises(ExposedLedgerError):
        Home.of(root)


def test_a_home_with_its_own_ledger_remembers_no_address(tmp_path: Path) -> None:
    home = Home.of(tmp_path / "home")
    register_dataset(home, "d", PRIVACY, epsilon=1, delta=0)
    assert not (home.root / "ledger-address").exists()


@pytest.mark.parametrize(
    ("address", "remembered"),
    [
        ("postgresql://u:hush-7719@h/db", "postgresql://u@h/db"),
        ("postgresql://u:hush/7719:x@h:5433/db?host=/run", "postgresql://u@h:5433/db?host=/run"),
        ("postgresql+psycopg://:hush-7719@/db", "postgresql+psycopg://@/db"),
        ("postgresql:///?service=ledger", "postgresql:///?service=ledger"),
    ],
)
def test_a_password_is_not_remembered(
    address: str, remembered: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STATPRESS_LEDGER", address)
    Home.default().remember_address()
    assert (tmp_path / "home" / "ledger-address").read_text() == f"{remembered}\n"
    assert Home.default().ledger == address
    assert Home.of(tmp_path / "home").ledger == remembered


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("postgresql://u:s3/cret@hush-7719@127.0.0.1:1/db", marks=pytest.mark.system),
        pytest.param("postgresql://h/db?plugin=hush-7719", marks=pytest.mark.system),
        pytest.param("postgresql://h/db?host=a&host=b", marks=pytest.mark.system),
        pytest.param(
            "postgresql://h/db?options=-csearch_path%3Dhush-7719", marks=pytest.mark.system
        ),
        "sqlite:///relative-hush-7719.db",
        "mysql://u:hush-7719@h/db",
    ],
)
def test_an_unclear_address_is_refused_unseen(address: str, tmp_path: Path) -> None:
    if address.startswith("postgresql"):
        needed("psycopg")
    with pytest.raises(LedgerUnavailableError) as caught:
        Ledger.open(address)
    error = caught.value
    assert "hush-7719" not in f"{error} {error.where}"
    assert error.__context__ is None


def test_two_slashes_are_no_host(tmp_path: Path) -> None:
    with Ledger.open(f"/{tmp_path}/ledger.db") as ledger:
        assert ledger.where == str(tmp_path / "ledger.db")


def test_every_folder_made_on_the_way_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Home(tmp_path / "a" / "b").folder("work")
        with Ledger.open(tmp_path / "c" / "d" / "ledger.db") as ledger:
            ledger.register(dataset="d", epsilon=1, delta=0, **TERMS)
    finally:
        os.umask(before)
    for folder in ("a", "a/b", "a/b/work", "c", "c/d"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700, folder


def test_what_nobody_may_enter_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o000)
    with held_to_modes(), pytest.raises(LedgerUnavailableError, match="Permission denied"):
        Ledger.exists(tmp_path / "closed" / "ledger.db")


def test_an_export_leaves_other_files_alone(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.register(dataset="d", epsilon=1, delta=0, **TERMS)
        beside = tmp_path / "export.new"
        beside.write_text("precious")
        (tmp_path / "kept").mkdir()
        link = tmp_path / "export"
        link.symlink_to(tmp_path / "kept" / "export")
        write_export(ledger, link)
        assert link.is_symlink()
        assert (tmp_path / "kept" / "export").is_file()
        assert beside.read_text() == "precious"
        os.mkfifo(tmp_path / "pipe")
        for bad in (tmp_path / "pipe", tmp_path / ("x" * 300), tmp_path / "ledger.db" / "x"):
            with pytest.raises(LedgerUnavailableError):
                write_export(ledger, bad)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".new-")] == []


def test_deep_descriptions_are_refused() -> None:
    deep: Any = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(LedgerError, match="nested"):
        canonical_json({"mechanisms": [{"a": deep}]})


# --- places that everybody may write to ------------------------------------

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
