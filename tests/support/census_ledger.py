"""A ledger with an account named census, and the acts on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.mechanisms.errors import StatpressError
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import replay
from statpress.tasks.ledger.entries import ZERO_HASH, Entry, entry_hash
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import make_private

TERMS: dict[str, Any] = {
    "adjacency": "replace_one",
    "unit": "record",
    "unit_records": 1,
    "n_records": 1000,
}
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
_EMPTY: list[bytes] = []
"""The file of a ledger without entries, once one was made."""


def new_ledger(path: Path) -> Ledger:
    """A ledger without entries; the first one is made, others are copies, which takes a fifth."""
    if not _EMPTY:
        Ledger.open(path).close()
        _EMPTY.append(path.read_bytes())
    elif not path.exists():
        make_private(path.parent)
        path.touch(0o600)
        path.write_bytes(_EMPTY[0])
    return Ledger.open(path)


def register(ledger: Ledger, dataset: str = "census", **changes: Any) -> Any:
    return ledger.register(
        **{"dataset": dataset, "epsilon": 1, "delta": "1e-8", **TERMS, **changes}
    )


def charge(ledger: Ledger, run_id: str = "run-1", **changes: Any) -> Any:
    fields = {"dataset": "census", "run_id": run_id, "epsilon": 0.1, "delta": 0, **TERMS}
    fields |= {"rho": "0.005", "rho_delta": 0, "version": "0.1.0"}
    fields |= {"mechanisms": [{"mechanism": "laplace", "edges": (1, 2)}]}
    fields |= {"config_sha256": "a" * 64, "insecure_seed": False}
    return ledger.charge(**{**fields, **changes})


def draw(ledger: Ledger, run_id: str = "run-1") -> Any:
    return ledger.draw(run_id=run_id, dataset="census")


def void(ledger: Ledger, run_id: str = "run-1", reason: str = "late") -> Any:
    return ledger.void(run_id=run_id, dataset="census", reason=reason)


def publish(ledger: Ledger, run_id: str = "run-1", **changes: Any) -> Any:
    fields = {"run_id": run_id, "dataset": "census", "bundle": "releases/one"}
    return ledger.publish(**{**fields, "manifest_sha256": "b" * 64, **changes})


def long_history(runs: int) -> list[Entry]:
    """A registration, then charges that are drawn at once, written without the ledger."""
    limit = {"epsilon": str(runs), "delta": "0", "policy": "basic", "dataset": "census"}
    rows: list[tuple[str, dict[str, Any]]] = [("register", {**limit, **TERMS})]
    for number in range(1, runs + 1):
        run = {"dataset": "census", "run_id": f"old-{number}"}
        loss = {"epsilon": "0.5", "delta": "0", "rho": "0.125", "rho_delta": "0"}
        spent = {"epsilon": f"{number / 2:g}", "delta": "0", "rho": f"{number / 8:.15g}"}
        body = {**run, **loss, **TERMS, "spent": {**spent, "rho_delta": "0"}, "mechanisms": []}
        body |= {"config_sha256": "a" * 64, "insecure_seed": False, "version": "0.1.0"}
        rows += [("charge", body), ("draw", run)]
    entries, previous = [], ZERO_HASH
    for sequence, (kind, body) in enumerate(rows, start=1):
        body = {**body, "created": "2026-01-01T00:00:00+00:00"}
        hash_ = entry_hash(sequence, kind, body, previous)
        entries.append(Entry(sequence, kind, body, previous, hash_))
        previous = hash_
    return entries


def assert_plain(error: StatpressError) -> None:
    """The message is ours, and nothing of the database rides along."""
    assert error.__context__ is None
    assert error.__cause__ is None
    for word in ("sqlalchemy", "Traceback", "sqlite3.", "(Background"):
        assert word not in str(error)
    assert error.where
    assert error.next_step


def apply(state: State, entry: Entry) -> State:
    """The state after one more entry."""
    return replay((entry,), state)
