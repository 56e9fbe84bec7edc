"""Charges a second with 32 processes at one account, and the cost of a long history.

The baseline of the same run is the database alone: as many bare inserts of a row of
the same size, each with its own commit, by as many processes with the raw driver
(``sqlite3``, ``psycopg``), in the same table without triggers. ``-m study``
runs the full size and holds the rates to their targets.
"""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import next_entry
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.rules import RULES
from tests.benchmarks.timing import in_a_fresh_process

PROCESSES = 32
TARGETS = {"sqlite": 400, "postgres": 300}  # charges a second at full size
RATIOS = {"sqlite": 15, "postgres": 60}
"""Charging takes at most so many times as long as bare inserts; 3 and 16 were measured."""
TERMS: dict[str, Any] = {
    "adjacency": "replace_one",
    "unit": "record",
    "unit_records": 1,
    "n_records": 1000,
}
LIMITS: dict[str, Any] = {"dataset": "census", "epsilon": "1000", "delta": "0.5"}
LOSS = {"epsilon": "0.001", "delta": "1e-12", "rho": "5e-7", "rho_delta": "0"}
WORK: dict[str, Any] = {
    "mechanisms": [{"mechanism": "laplace", "scale": "1000"}],
    "config_sha256": "a" * 64,
    "insecure_seed": False,
    "version": "0.1.0",
}
ROW = ("charge", "x" * 620, "b" * 64, "census")  # a charge's row is as long


def charge(ledger: Ledger, run_id: str, period: str | None = None) -> Entry:
    return ledger.charge(dataset="census", run_id=run_id, period=period, **LOSS, **WORK, **TERMS)


# What the processes do.


def charging(location: str, worker: int) -> Callable[[int], object]:
    """A way to charge once, on a ledger of this process."""
    ledger = Ledger.open(location, create=False)
    charge(ledger, f"warm-{worker}")
    return lambda number: charge(ledger, f"run-{worker}-{number}")


def inserting(location: str, worker: int) -> Callable[[int], object]:
    """A way to insert and commit one row, on a connection of this process."""
    if "://" not in location:
        connection: Any = sqlite3.connect(location, timeout=60, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        marks, begin = "?, ?, ?, ?, ?", "BEGIN IMMEDIATE"
    else:
        import psycopg

        connection, begin = psycopg.connect(location, autocommit=True), "BEGIN"
        marks = "%s, %s, %s, %s, %s"
    statement = f"INSERT INTO bare (hash, kind, body, previous, dataset) VALUES ({marks})"

    def insert(number: int) -> None:
        connection.execute(begin)
        connection.execute(statement, (f"{worker:032}{number:032}", *ROW))
        connection.execute("COMMIT")

    insert(-1)
    return insert


def contend(way: str, location: str, processes: int, times: int) -> None:
    """Fork the processes, let them begin together; print the seconds until all are done."""
    if "://" in location:
        import psycopg  # noqa: F401
        import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
    ready_in, ready_out = os.pipe()
    go_in, go_out = os.pipe()
    children = []
    for worker in range(processes):
        child = os.fork()
        if child == 0:
            os.close(go_out)
            code = 1
            try:
                act = {"charge": charging, "insert": inserting}[way](location, worker)
                os.write(ready_out, b".")
                os.read(go_in, 1)  # until the parent closes its end
                for number in range(times):
                    act(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(ready_out)
    ready = 0
    while ready < processes:
        said = os.read(ready_in, processes)
        assert said, "a process died before the start"
        ready += len(said)
    started = time.perf_counter()
    os.close(go_out)
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert set(codes) == {0}
    print(json.dumps(time.perf_counter() - started))


# What the test does.


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """A PostgreSQL server that syncs every commit."""
    from postgres import Server

    with Server(fsync="on") as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Gives fresh places for ledgers of one kind."""
    if request.param == "postgres":
        return request.getfixturevalue("server").database
    names = iter(range(100))
    return lambda: str(tmp_path / f"ledger-{next(names)}.db")


def seconds(way: str, location: str, times: int) -> float:
    """How long the processes take for their acts, all together."""
    arguments = (way, location, PROCESSES, times)
    code = f"from tests.benchmarks.test_ledger_speed import contend; contend(*{arguments!r})"
    return float(json.loads(in_a_fresh_process(code)))


def make_bare_table(location: str) -> None:
    """A table like the ledger's, with the same indexes and nothing else."""
    number = "INTEGER PRIMARY KEY" if "://" not in location else "SERIAL PRIMARY KEY"
    statements = (
        f"CREATE TABLE bare (sequence {number}, kind TEXT NOT NULL, body TEXT NOT NULL,"
        " previous TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, dataset TEXT)",
        "CREATE INDEX bare_by_dataset ON bare (dataset, kind, sequence)",
    )
    if "://" in location:
        from postgres import run

        run(location, *statements)
        return
    connection = sqlite3.connect(location, isolation_level=None)
    for statement in ("PRAGMA journal_mode=WAL", *statements):
        connection.execute(statement)
    connection.close()


def measure(place: Callable[[], str], times: int) -> tuple[str, float, float]:
    """Kind of database, charges a second, and time of the charges to that of bare inserts."""
    location, bare = place(), place()
    with Ledger.open(location) as ledger:
        ledger.register(**LIMITS, **TERMS)
    make_bare_table(bare)
    baseline = seconds("insert", bare, times)
    spent = seconds("charge", location, times)
    with Ledger.open(location, create=False) as ledger:
        assert ledger.verify().entries == 1 + PROCESSES * (times + 1)
    kind = "postgres" if "://" in location else "sqlite"
    rate, ratio = PROCESSES * times / spent, spent / baseline
    print(f"{kind}: {rate:.0f} charges a second, {ratio:.2f} times as long as bare inserts")
    return kind, rate, ratio


@pytest.mark.nightly
def test_charging_at_once_quick(place: Callable[[], str]) -> None:
    kind, _, ratio = measure(place, 4)
    assert ratio < RATIOS[kind]


@pytest.mark.study
def test_charging_at_once_full(place: Callable[[], str]) -> None:
    kind, rate, _ = measure(place, 200)
    assert rate >= TARGETS[kind]


@cache
def generated(charges: int, design: str | None = None) -> tuple[Entry, ...]:
    """The entries of a ledger with so many charges; with a design, each of a month of its own."""
    return tuple(_generated(charges, design))


def _generated(charges: int, design: str | None) -> Iterator[Entry]:
    state = State()

    def follow(kind: str, body: dict[str, Any]) -> Entry:
        nonlocal state
        entry = next_entry(state, kind, body | {"created": "2026-01-01T00:00:00+00:00"})
        RULES[kind].record(state, entry)
        state = replace(state, head=entry.hash, next_sequence=entry.sequence + 1)
        return entry

    stated = {"design": design} if design else {}
    yield follow("register", {**LIMITS, **TERMS, **stated, "policy": "basic"})
    for number in range(charges):
        body = {"dataset": "census", "run_id": f"old-{number}", **LOSS, **WORK, **TERMS}
        yield follow("charge", body | ({"period": month(number)} if design else {}))


def month(number: int) -> str:
    """A month, counted from January 2000."""
    return str(SeriesPeriod.at(2000 * 12 + number, "month"))


@pytest.mark.parametrize(
    ("place", "least", "most"),
    [
        pytest.param("sqlite", 400, 2_000, marks=pytest.mark.system),
        pytest.param("postgres", 400, 2_000, marks=pytest.mark.nightly),
        *(pytest.param(k, 1_000, 20_000, marks=pytest.mark.study) for k in ("sqlite", "postgres")),
    ],
    indirect=["place"],
)
def test_the_cost_of_a_charge_does_not_grow(
    place: Callable[[], str], least: int, most: int
) -> None:
    ledgers = {}
    for charges in (least, most):
        ledgers[charges] = Ledger.open(place())
        ledgers[charges].restore(iter(generated(most)[: 1 + charges]))
    times: dict[int, list[float]] = {charges: [] for charges in ledgers}

    def in_turns() -> None:
        for number in range(40):
            for charges, ledger in ledgers.items():
                started = time.perf_counter()
                charge(ledger, f"new-{number}")
                times[charges].append(time.perf_counter() - started)

    in_turns()
    for ledger in ledgers.values():
        ledger.close()
    few, many = (min(times[charges]) for charges in ledgers)
    print(f"\na charge after {least:,}: {few * 1e3:.2f} ms; after {most:,}: {many * 1e3:.2f} ms")
    assert many / few < 1.5


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("place", "design"),
    [("sqlite", "any 8"), ("postgres", "8 consecutive"), ("sqlite", "8 within 16")],
    indirect=["place"],
)
def test_a_charge_of_a_thousand_periods_costs_little_more(
    place: Callable[[], str], design: str
) -> None:
    ledgers: dict[str | None, Ledger] = {}
    for each in (None, design):
        ledgers[each] = Ledger.open(place())
        ledgers[each].restore(iter(generated(1_000, each)))
    times: dict[str | None, list[float]] = {each: [] for each in ledgers}

    numbers = itertools.count()

    def in_turns() -> None:
        for number in itertools.islice(numbers, 60):
            for each, ledger in ledgers.items():
                # In turns the next month and one that was charged before.
                period = month(number % 2 * 500 + 500 + number) if each else None
                started = time.perf_counter()
                charge(ledger, f"new-{number}", period)
                times[each].append(time.perf_counter() - started)

    in_turns()
    for _ in range(2):  # another process may have had the machine all along
        plain, panel = (min(of) for of in times.values())
        if panel / plain >= 1.3:
            in_turns()
    plain, panel = (min(of) for of in times.values())
    for ledger in ledgers.values():
        ledger.close()
    print(f"\na charge: {plain * 1e3:.2f} ms; of a thousand periods: {panel * 1e3:.2f} ms")
    assert panel / plain < 1.3
