"""A ledger with nothing left, what is damaged of it, and what verify and a charge say then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from census_ledger import TERMS
from sqlalchemy import create_engine

from statpress.mechanisms.errors import LedgerIntegrityError, StatpressError
from statpress.tasks.ledger import ledger_table
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import next_entry
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.home_ledger import open_ledger, remember
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import RULES
from statpress.tasks.private_zone.folders import Home

DATASETS = ("alpha", "beta", "gamma")
WORK: dict[str, Any] = {
    "delta": "0",
    "rho": "0",
    "rho_delta": "0",
    "mechanisms": [{"mechanism": "laplace", "scale": "1000"}],
    "config_sha256": "a" * 64,
    "insecure_seed": False,
    "version": "0.1.0",
    **TERMS,
}


def spent_ledger(runs: int) -> list[Entry]:
    """The entries of a ledger of three datasets, of which two end with nothing left.

    Their limits were lowered to what is spent, so that an entry that is hidden, of whatever
    kind, makes room for a charge.
    """
    state, entries = State(), list[Entry]()

    def follow(kind: str, **body: Any) -> None:
        nonlocal state
        entry = next_entry(state, kind, body | {"created": "2026-01-01T00:00:00+00:00"})
        RULES[kind].record(state, entry)
        state = replace(state, head=entry.hash, next_sequence=entry.sequence + 1)
        entries.append(entry)

    limits = {"policy": "basic", "delta": "0.5"}
    for dataset in DATASETS:
        follow("register", dataset=dataset, epsilon="1000", **limits, **TERMS)
    for number in range(runs):
        of = {"dataset": DATASETS[number % 3], "run_id": f"run-{number}"}
        follow("charge", **of, epsilon="1", **WORK)
        if number % 7 == 3:
            follow("void", **of, reason="late")
        else:
            follow("draw", **of)
            follow("publish", **of, bundle="releases/one", manifest_sha256="b" * 64)
    for dataset in DATASETS[:2]:
        spent = state.accounts[dataset].spent.texts()["epsilon"]
        follow("amend-policy", dataset=dataset, epsilon=spent, **limits, reason=None)
    return entries


def cut_back(home: Home, length: int) -> None:
    """Leave this many entries of a ledger, as whoever owns its database can."""
    at = home.ledger if isinstance(home.ledger, str) else f"sqlite:///{home.ledger}"
    engine = create_engine(at.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("DROP TRIGGER entries_no_delete")
        else:
            connection.exec_driver_sql("SET search_path = statpress, pg_temp")
            connection.exec_driver_sql("ALTER TABLE entries DISABLE TRIGGER ALL")
        connection.exec_driver_sql(f"DELETE FROM entries WHERE sequence > {length}")
        ledger_table.install(connection)
    engine.dispose()


def verdict(home: Home) -> str | tuple[int, str]:
    """The kind of error that verifying ends with; or number of entries and head."""
    try:
        with open_ledger(home) as ledger:
            found = ledger.verify()
            remember(ledger, found.state)
        return found.entries, found.head
    except StatpressError as error:
        return error.kind


def failure(home: Home, act: Callable[[Ledger], object]) -> str:
    """What the ledger says when an act finds it damaged."""
    with Ledger.open(home.ledger, create=False) as ledger:
        try:
            act(ledger)
        except LedgerIntegrityError as error:
            return str(error)
    raise AssertionError("nothing was found")


def overspends(home: Home) -> list[str]:
    """The datasets with nothing left that a charge of epsilon 1 was accepted for."""
    return [dataset for dataset in DATASETS[:2] if _charged(home, dataset)]


def _charged(home: Home, dataset: str) -> bool:
    """Whether a charge is accepted, of a run as every run asks for it."""
    try:
        with open_ledger(home) as ledger:
            ledger.charge(dataset=dataset, run_id=f"new-{dataset}", epsilon="1", **WORK)
        return True
    except StatpressError:
        return False


def flipped(data: bytes, place: int, bit: int) -> bytes:
    """The bytes with one bit of one of them flipped."""
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def put(path: Path, data: bytes) -> None:
    """Put a database file in place of another and of its log."""
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.write_bytes(data)
