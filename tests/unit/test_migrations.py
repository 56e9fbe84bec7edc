"""From one form of the ledger's schema to the next: entries stay, unknown forms are refused."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from census_ledger import TERMS

from statpress.mechanisms.errors import (
    LedgerIntegrityError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from statpress.tasks.ledger import ledger_table as guards
from statpress.tasks.ledger import ledger_table as schema
from statpress.tasks.ledger.ledger import Ledger

THIRD_FORM = """
import sqlalchemy as sa
from alembic import op

revision = "third"
down_revision = "second"


def upgrade() -> None:
    op.add_column("entries", sa.Column("note", sa.Text))
"""


def charge(ledger: Ledger, run: str) -> Any:
    fields = {"dataset": "census", "run_id": run, "epsilon": "0.2", "delta": 0, **TERMS}
    fields |= {"rho": "0.01", "rho_delta": 0, "mechanisms": [], "config_sha256": "a" * 64}
    return ledger.charge(**fields, insecure_seed=False, version="0.2.0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of the present form with one charge."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.register(dataset="census", epsilon=1, delta="1e-8", **TERMS)
        charge(ledger, "run-1")
    return path


@pytest.fixture
def later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the ledger is written, a later version of statpress with a further form."""
    place = path.with_name("migrations")
    shutil.copytree(Path(schema.__file__).with_name("migrations"), place)
    (place / "versions" / "third_form.py").write_text(THIRD_FORM)
    form = dict(schema.SCHEMA.sqlite)
    form["entries"] = form["entries"].replace("PRIMARY KEY", "note TEXT, PRIMARY KEY")
    later = schema.Schema(forms=("second", "third"), migrations=str(place), sqlite=form)
    monkeypatch.setattr(schema, "SCHEMA", later)


def everything(path: Path) -> list[str]:
    """The whole database as statements."""
    raw = sqlite3.connect(path)
    statements = list(raw.iterdump())
    raw.close()
    return statements


def rows(path: Path) -> list[Any]:
    """The columns of every form, as they are stored."""
    raw = sqlite3.connect(path)
    columns = "sequence, kind, body, previous, hash, dataset, run_id"
    stored = raw.execute(f"SELECT {columns} FROM entries ORDER BY sequence").fetchall()
    raw.close()
    return stored


def shape(path: Path) -> tuple[Any, ...]:
    """Columns, indexes, triggers and the name of the form."""
    raw = sqlite3.connect(path)
    objects = "SELECT type, name, sql FROM sqlite_master WHERE type <> 'table' ORDER BY name"
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    parts = (
        raw.execute("PRAGMA table_info(entries)").fetchall(),
        raw.execute("PRAGMA index_list(entries)").fetchall(),
        raw.execute(objects).fetchall(),
        raw.execute(tables).fetchall(),
        raw.execute("SELECT * FROM schema_version").fetchall(),
    )
    raw.close()
    return parts


def change(path: Path, *statements: str) -> None:
    """Do to the file what the triggers would refuse, and put the triggers back."""
    raw = sqlite3.connect(path, isolation_level=None)
    for name in guards._SQLITE:
        raw.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        raw.execute(statement)
    for trigger in guards._SQLITE.values():
        raw.execute(trigger)
    raw.close()


def test_a_new_ledger_is_of_the_form_that_older_versions_wrote(path: Path) -> None:
    columns, indexes, objects, tables, form = shape(path)
    assert form == [("second",)]
    assert [(name, kind) for _, name, kind, *_ in columns] == [
        ("sequence", "INTEGER"),
        *((name, "TEXT") for name in ("kind", "body", "previous", "hash", "dataset", "run_id")),
    ]
    assert [name for (name,) in tables] == ["entries", "schema_version"]
    assert {name: unique for _, name, unique, *_ in indexes} == {
        "entries_by_dataset": 0,
        "entries_by_run": 1,
        "sqlite_autoindex_entries_1": 1,
    }
    assert {name for kind, name, _ in objects if kind == "trigger"} == set(guards._SQLITE)


def test_an_upgrade_of_the_present_form_changes_nothing(path: Path) -> None:
    before = everything(path)
    assert Ledger.upgrade(path) == "second"
    assert everything(path) == before
    assert {file.name for file in path.parent.iterdir()} == {"ledger.db", "ledger.db-queue"}


@pytest.mark.usefixtures("later")
def test_an_older_ledger_is_not_opened_and_not_changed(path: Path) -> None:
    before = path.read_bytes()
    for create in (True, False):
        with pytest.raises(LedgerSchemaError, match="older form 'second'") as caught:
            Ledger.open(path, create=create)
        assert "ledger upgrade" in caught.value.next_step
        assert caught.value.where == str(path)
    assert path.read_bytes() == before


@pytest.mark.usefixtures("later")
def test_an_upgrade_keeps_every_entry_and_charges_follow(path: Path) -> None:
    before = rows(path)
    assert Ledger.upgrade(path) == "second"
    assert rows(path) == before
    Ledger.open(path.with_name("new.db")).close()
    assert shape(path) == shape(path.with_name("new.db"))
    assert shape(path)[-1] == [("third",)]
    with Ledger.open(path, create=False) as ledger:
        assert ledger.verify(head=before[-1][4]).entries == 2
        assert charge(ledger, "run-2").body["spent"]["epsilon"] == "0.4"
    after = everything(path)
    assert Ledger.upgrade(path) == "third"
    assert everything(path) == after


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    ("sequence", "statement"),
    [
        (2, "UPDATE entries SET body = replace(body, '0.2', '0.1') WHERE sequence = 2"),
        (2, "UPDATE entries SET body = '[]' WHERE sequence = 2"),
        (2, "UPDATE entries SET dataset = 'other' WHERE sequence = 2"),
        (1, "DELETE FROM entries WHERE sequence = 1"),
    ],
)
def test_an_upgrade_of_a_tampered_ledger_changes_nothing(
    path: Path, sequence: int, statement: str
) -> None:
    change(path, statement)
    before, dump = path.read_bytes(), everything(path)
    with pytest.raises(LedgerIntegrityError) as caught:
        Ledger.upgrade(path)
    assert caught.value.sequence == sequence
    assert everything(path) == dump
    assert path.read_bytes() == before
    with pytest.raises(LedgerSchemaError):
        Ledger.open(path)


@pytest.mark.parametrize("name", ["third", "first", "first,second", "0002", ""])
def test_a_ledger_of_an_unknown_form_is_not_upgraded(path: Path, name: str) -> None:
    raw = sqlite3.connect(path)
    raw.execute("UPDATE schema_version SET version_num = ?", (name,))
    raw.commit()
    raw.close()
    before = everything(path)
    for attempt in (Ledger.upgrade, Ledger.open):
        with pytest.raises(LedgerSchemaError, match="does not know") as caught:
            attempt(path)
        assert caught.value.exit_code == 34
        assert "version of statpress" in caught.value.next_step
    assert everything(path) == before


def test_a_table_of_entries_without_a_form_is_something_else(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE entries (sequence INTEGER PRIMARY KEY)")
    raw.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
    raw.close()
    before = everything(path)
    for attempt in (Ledger.upgrade, Ledger.open):
        with pytest.raises(LedgerIntegrityError, match="something else"):
            attempt(path)
    assert everything(path) == before


def test_where_there_is_no_ledger_none_is_made_by_an_upgrade(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="no ledger here"):
        Ledger.upgrade(tmp_path / "ledger.db")
    assert list(tmp_path.iterdir()) == []
