"""A ledger in the hands of an attacker: its history, the file, and the attacker's tools."""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from census_ledger import KEY, TERMS
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.mechanisms.errors import LedgerIntegrityError
from statpress.tasks.ledger import ledger_table
from statpress.tasks.ledger import ledger_table as ledger_guards
from statpress.tasks.ledger.chain import inspect
from statpress.tasks.ledger.entries import Entry, public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import RULES

Row = tuple[Any, ...]  # sequence, kind, body, previous, hash, dataset, run_id
COLUMNS = ("sequence", "kind", "body", "previous", "hash", "dataset", "run_id")
KINDS = sorted(RULES)
SECOND = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
THIEF = Ed25519PrivateKey.from_private_bytes(b"t" * 32)
LAST_CHECKPOINT = 12
LENGTH = 16


def charge(
    ledger: Ledger,
    dataset: str,
    run_id: str,
    epsilon: str,
    rho: str,
    mechanism: str = "laplace",
) -> None:
    described = {"mechanism": mechanism, "edges": [1, 20], "own": True, "note": None, "é": {}}
    fields = {"epsilon": epsilon, "delta": "1e-9", "rho": rho, "rho_delta": "0", **TERMS}
    fields |= {"mechanisms": [described, {"scale": "2"}], "config_sha256": "a1" * 32}
    fields |= {"insecure_seed": False, "version": "0.1.0"}
    ledger.charge(dataset=dataset, run_id=run_id, **fields)


def publish(ledger: Ledger, dataset: str, run_id: str) -> None:
    names = {"dataset": dataset, "run_id": run_id, "bundle": f"releases/{run_id}"}
    ledger.publish(**names, manifest_sha256="b2" * 32)


def write_history(ledger: Ledger) -> None:
    """Sixteen entries, of every kind before and after the last checkpoint but one."""
    ledger.register(dataset="census", epsilon=1, delta="1e-8", **TERMS)
    ledger.register(dataset="other", policy="zcdp", rho="1", rho_delta=0, **TERMS)
    charge(ledger, "census", "run-1", "0.3", "0.045")
    ledger.draw(dataset="census", run_id="run-1")
    publish(ledger, "census", "run-1")
    charge(ledger, "census", "run-2", "0.2", "0.02")
    ledger.void(dataset="census", run_id="run-2", reason="the source was late")
    ledger.checkpoint(KEY)
    ledger.amend(dataset="census", policy="basic", epsilon="0.9", delta="1e-8")
    charge(ledger, "other", "run-3", "5", "0.5")
    ledger.amend(dataset="census", policy="zcdp", rho="0.5", rho_delta=0, reason="zcdp now")
    ledger.checkpoint(KEY)
    ledger.draw(dataset="other", run_id="run-3")
    charge(ledger, "census", "run-4", "0.1", "0.005")
    ledger.amend(dataset="other", policy="zcdp", rho="2", rho_delta=0, reason="more years")
    publish(ledger, "other", "run-3")


def write_review(ledger: Ledger) -> None:
    """A release approved, a change of who approves, and a refusal answered for."""
    ledger.register(dataset="census", epsilon=1, delta="1e-8", **TERMS)
    ledger.set_approvers(dataset="census", approvers=[public_text(KEY)])
    charge(ledger, "census", "run-1", "0.3", "0.045")
    ledger.draw(dataset="census", run_id="run-1")
    names = {"dataset": "census", "run_id": "run-1"}
    ledger.prepare(**names, bundle="releases/run-1", manifest_sha256="b2" * 32)
    found = ledger.charged(**names)
    ledger.decide(charge=found, manifest_sha256="b2" * 32, decision="approve", key=KEY)
    publish(ledger, "census", "run-1")
    keys = [public_text(KEY), public_text(SECOND)]
    ledger.set_approvers(dataset="census", approvers=keys, reason="two now", key=KEY)
    ledger.look(dataset="census", run="run-2", config_sha256="a1" * 32)
    ledger.refuse(dataset="census", run_id="run-2", config_sha256="a1" * 32)
    ledger.reopen(dataset="census", reason="a file of last year", key=KEY)


NOISY = {"gates": "noisy", "form": "f0" * 8}


def write_noisy(ledger: Ledger) -> None:
    """Two runs whose gates are noisy: one is stopped, the other published."""
    ledger.register(dataset="census", noisy_gates=True, epsilon=1, delta="1e-8", **TERMS)
    for run, passed in (("run-1", False), ("run-2", True)):
        charge(ledger, "census", run, "0.3", "0.045", mechanism="noisy_checks")
        ledger.look(dataset="census", run=run, config_sha256="a1" * 32, **NOISY)
        ledger.draw(dataset="census", run_id=run)
        ledger.settle(dataset="census", run_id=run, passed=passed)
    publish(ledger, "census", "run-2")
    ledger.bind(dataset="census", sources=["/data/census-*.csv"])
    ledger.set_approvers(dataset="census", approvers=[public_text(KEY)])
    ledger.bind(dataset="census", sources=["/data/*"], reason="moved", key=KEY)
    ledger.amend(dataset="census", epsilon="2", reason="more", key=KEY)


def named(error: LedgerIntegrityError) -> int:
    """The entry that an error names, in its field and in its words."""
    assert error.sequence is not None
    assert error.where == f"entry {error.sequence}"
    return error.sequence


class Found(NamedTuple):
    """A row as a database gives it."""

    sequence: Any
    kind: Any
    body: Any
    previous: Any
    hash: Any
    dataset: Any
    run_id: Any


class Attack:
    """A ledger file in the hands of an attacker, and what verify says of it."""

    def __init__(self, path: Path, history: Callable[[Ledger], None] = write_history) -> None:
        with Ledger.open(path) as made:
            history(made)
        self.ledger = Ledger.open(path, create=False)
        self.raw = sqlite3.connect(path, isolation_level=None)
        self.raw.execute("PRAGMA synchronous=OFF")
        self.rows: list[Row] = self.raw.execute("SELECT * FROM entries ORDER BY 1").fetchall()
        self.read = {id(row): ledger_table._entry(Found(*row)) for row in self.rows}
        self.head = self.rows[-1][4]
        self.held: list[Row] | None = None  # what was written last
        self.raw.execute("BEGIN")
        self.raw.execute("DROP TABLE entries")
        self.raw.execute(f"CREATE TABLE entries ({', '.join(COLUMNS)})")
        self.raw.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", self.rows)
        for trigger in ledger_guards._SQLITE.values():
            self.raw.execute(trigger)
        self.raw.execute("COMMIT")

    def write(self, rows: list[Row]) -> None:
        """Put these rows in the place of all others, behind the same triggers."""
        self.raw.execute("BEGIN")
        for name in ledger_guards._SQLITE:
            self.raw.execute(f"DROP TRIGGER {name}")
        self.raw.execute("DELETE FROM entries")
        self.raw.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        for trigger in ledger_guards._SQLITE.values():
            self.raw.execute(trigger)
        self.raw.execute("COMMIT")
        self.held = rows

    def verdict(self, rows: list[Row], **known: Any) -> int | None:
        """The entry that verify names when it reads these rows; None if it passes."""
        found = sorted(rows, key=lambda row: row[0])
        try:
            inspect((self.entry_of(row) for row in found), **known)
        except LedgerIntegrityError as error:
            return named(error)
        return None

    def entry_of(self, row: Row) -> Entry:
        """What a row holds; a true one was read before."""
        return self.read.get(id(row)) or ledger_table._entry(Found(*row))

    def verdict_on_file(self, rows: list[Row], **known: Any) -> int | None:
        """The same, when the file holds these rows."""
        if rows is not self.held:
            self.write(rows)
        try:
            self.ledger.verify(**known)
        except LedgerIntegrityError as error:
            return named(error)
        return None

    def with_row(self, sequence: int, row: Row) -> list[Row]:
        """The true rows with another one in this place."""
        return [*self.rows[: sequence - 1], row, *self.rows[sequence:]]

    def close(self) -> None:
        self.raw.close()
        self.ledger.close()


def text_of(body: Any) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


@functools.lru_cache(maxsize=1024, typed=True)
def hash_of(sequence: int, kind: str, body: str, previous: str) -> str:
    text = text_of([sequence, kind, json.loads(body), previous])
    return hashlib.sha256(text.encode()).hexdigest()


def rewritten(row: Row, body: dict[str, Any]) -> Row:
    """The row with another body, its search columns saying the same."""
    names = (body.get("dataset"), body.get("run_id"))
    found = [name if isinstance(name, str) else None for name in names]
    return (*row[:2], text_of(body), *row[3:5], *found)


def with_own_hash(row: Row) -> Row:
    return (*row[:4], hash_of(*row[:4]), *row[5:])


def with_new_chain(rows: list[Row]) -> list[Row]:
    """All rows numbered and chained anew."""
    chained: list[Row] = []
    previous = "0" * 64
    for sequence, row in enumerate(rows, start=1):
        made = with_own_hash((sequence, row[1], row[2], previous, *row[4:]))
        chained.append(row if type(row[0]) is int and made == row else made)  # as it was read
        previous = chained[-1][4]
    return chained


def swapped_digit(text: str, place: int) -> str:
    other = "0" if text[place] != "0" else "1"
    return text[:place] + other + text[place + 1 :]


def other_values(value: Any) -> list[Any]:
    """Values of the same and of other kinds that could stand in its place."""
    if isinstance(value, bool):
        return [not value, int(value), str(value).lower(), None]
    if isinstance(value, int):
        return [value + 1, value * 10, 0, -value, str(value), value == 1, None]
    if value is None:
        return ["a reason", "", False, 0]
    if isinstance(value, (dict, list)):
        return [None, "x", {"x": "1"}, [{}], 0]
    near = [value + "0", value + " ", value[:-1], "", None, [value], {"x": value}]
    if len(value) in (64, 128) and set(value) <= set("0123456789abcdef"):
        digits = [swapped_digit(value, place) for place in (0, 31, len(value) - 1)]
        return [*near, *digits, value.upper(), value[::-1]]
    if value[0].isdigit() and "-01-" not in value and "." in value + ".":
        return [*near, "0", "0.1", "0.05", "1e-300", "7", "0" + value, value + "e0", "NaN"]
    return [*near, value.upper(), "census", "other", "run-1", "run-2", "basic", "zcdp"]


def changed(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The whole value with one place of it changed, for every place and many changes."""
    if isinstance(value, dict):
        for key in value:
            rest = {k: v for k, v in value.items() if k != key}
            yield (*path, key), rest
            for place, other in changed(value[key], (*path, key)):
                yield place, {**value, key: other}
        yield (*path, "surplus"), {**value, "surplus": "x"}
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*path, index), value[:index] + value[index + 1 :]
            for place, other in changed(item, (*path, index)):
                yield place, [*value[:index], other, *value[index + 1 :]]
        yield (*path, len(value)), [*value, {}]
    for other in other_values(value):
        if type(other) is not type(value) or other != value:
            yield path, other


def changed_rows(attack: Attack) -> Iterator[tuple[int, tuple[Any, ...], Row]]:
    """Every changed body of every entry: sequence, place in the body, row."""
    for row in attack.rows:
        for place, body in changed(json.loads(row[2])):
            if isinstance(body, dict) and place:
                yield row[0], place, rewritten(row, body)


def other_columns(attack: Attack, row: Row) -> Iterator[Row]:
    """The row with one column changed."""
    sequence, kind, _, previous, hash_ = row[:5]
    others: dict[str, list[Any]] = {
        "sequence": [sequence + 100, sequence + 2**40],
        "kind": [k for k in KINDS if k != kind] + ["refund", "", kind.upper(), kind.encode(), None],
        "previous": [swapped_digit(previous, 5), previous.upper() + " ", hash_, "", None],
        "hash": [swapped_digit(hash_, 63), hash_.upper() + " ", previous, "", None],
        "dataset": ["census", "other", "", "new", None, b"census", 7],
        "run_id": ["run-1", "run-2", "run-3", "run-9", "", None, 7],
    }
    others["hash"] += [other[4] for other in attack.rows if other != row]
    others["previous"] += [other[4] for other in attack.rows if other[4] not in (previous, hash_)]
    for name, values in others.items():
        place = COLUMNS.index(name)
        for value in values:
            if type(value) is not type(row[place]) or value != row[place]:
                yield (*row[:place], value, *row[place + 1 :])


def shifted(rows: list[Row], by: int) -> list[Row]:
    return [(row[0] + by, *row[1:]) for row in rows]
