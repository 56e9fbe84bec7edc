"""Real processes that race on one ledger, from its making until the budget is gone."""

from __future__ import annotations

import json
import os
import random
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import census_ledger
import pytest
from census_ledger import TERMS
from command_forks import printed_in_fork
from sqlalchemy import Connection, Engine, create_engine, event

import statpress.tasks.ledger.store
from statpress.mechanisms.errors import (
    AlreadyRegisteredError,
    InsufficientBudgetError,
    StatpressError,
)
from statpress.tasks.ledger.chain import next_entry, repeated
from statpress.tasks.ledger.entries import Body, Entry, entry_hash
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.ledger_table import append
from statpress.tasks.ledger.store import open_store

pytestmark = pytest.mark.system

WORKERS, ATTEMPTS = 8, 20
AMOUNTS = ("0.01", "0.001000000000000000000000000001")
SHARE = Fraction(6, 10)  # of all that is asked for, the limit covers so much
TIMEOUT = 900
PATIENCE = 600.0
"""A busy machine may keep a worker waiting for long."""


def limit_for(workers: int, attempts: int) -> str:
    """A limit that runs out in the midst, and not at a round number."""
    asked = workers * sum(Fraction(AMOUNTS[number % 2]) for number in range(attempts))
    units = int(asked * SHARE * 10**30)
    return f"{Decimal(units).scaleb(-30):f}"


def charge(ledger: Ledger, run_id: str, epsilon: str, period: str | None = None) -> Entry:
    losses = {"epsilon": epsilon, "delta": "1e-30", "rho": "1e-9"}
    found: Entry = census_ledger.charge(ledger, run_id, period=period, **losses)
    return found


# What the processes do; the parent of them all is a fork of this process, and forks.


def work(location: str, worker: int, attempts: int, limit: str, spoil: str) -> dict[str, Any]:
    """Open the ledger, register, and charge until all attempts are made."""
    with opened(location, spoil) as ledger:
        SPOILS[spoil](ledger)
        registered = True
        try:
            ledger.register(dataset="census", epsilon=limit, delta="0.5", **TERMS)
        except AlreadyRegisteredError:
            registered = False
        report: dict[str, Any] = {"registered": registered, "tries": []}
        report["shared"] = attempt(ledger, "shared", AMOUNTS[1])
        for number in range(attempts):
            epsilon, run_id = AMOUNTS[(number + worker) % 2], f"run-{worker}-{number}"
            report["tries"].append(attempt(ledger, run_id, epsilon))
        return report


def opened(location: str, spoil: str) -> Ledger:
    """A ledger; one that is spoilt, past the check of its guards."""
    if spoil:
        return Ledger(open_store(location, PATIENCE))
    return Ledger.open(location, patience=PATIENCE)


def attempt(ledger: Ledger, run_id: str, epsilon: str, period: str | None = None) -> dict[str, Any]:
    """Charge, and tell what came of it."""
    told: dict[str, Any] = {"run": run_id, "epsilon": epsilon}
    try:
        told["hash"] = charge(ledger, run_id, epsilon, period).hash
    except InsufficientBudgetError as error:
        told["remaining"] = str(error.remaining["epsilon"])
    except StatpressError as error:
        told["lost"] = f"{type(error).__name__}: {error}"
    return told


def race(folder: str, location: str, workers: int, attempts: int, limit: str, spoil: str) -> None:
    """Fork the workers, let them go at the same moment, and wait for them."""
    from statpress.tasks.ledger import ledger_table as ledger_schema  # noqa: F401 (warm before the fork)

    warm = Path(folder) / "warm.db"
    Ledger.open(warm).close()
    if spoil:  # made before one worker drops a trigger while others still open it
        Ledger.open(location).close()
    if "://" in location:
        import psycopg  # noqa: F401
        import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
    read, write = os.pipe()
    children = []
    for worker in range(workers):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)  # until the parent closes its end
            try:
                report = work(location, worker, attempts, limit, spoil)
            except BaseException:
                report = {"died": traceback.format_exc()}
            (Path(folder) / f"report-{worker}.json").write_text(json.dumps(report))
            os._exit(0)
        children.append(child)
    os.close(read)
    started = time.perf_counter()
    os.close(write)
    for child in children:
        os.waitpid(child, 0)
    print(json.dumps(time.perf_counter() - started))


MONTHS = [f"2026-{number:02}" for number in range(1, 7)]


def race_on_a_panel(location: str, workers: int, attempts: int, spoil: str) -> None:
    """Fork workers that charge the months of a panel, each in an order of its own."""
    if "://" in location:
        import psycopg  # noqa: F401
        import sqlalchemy.dialects.postgresql.psycopg  # noqa: F401
    children = []
    for worker in range(workers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                choose = random.Random(worker)
                with Ledger.open(location, create=False) as ledger:
                    SPOILS[spoil](ledger)
                    for number in range(attempts):
                        told = attempt(
                            ledger, f"run-{worker}-{number}", "0.05", choose.choice(MONTHS)
                        )
                        assert "lost" not in told, told
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert spoil or set(codes) == {0}


# Ledgers that are broken on purpose.


def without_a_queue(ledger: Ledger) -> None:
    """Transactions that begin without locks or turns; and no trigger on what they insert."""
    old = ledger.store.writer
    statpress.tasks.ledger.store._in_turn = lambda *_: nullcontext()  # type: ignore[assignment]
    if old.dialect.name == "sqlite":
        connect = {"timeout": 30, "isolation_level": None}
        engine, begin = create_engine(f"sqlite:///{ledger.where}", connect_args=connect), "BEGIN"
    else:
        engine = create_engine(old.url, isolation_level="READ COMMITTED")
        begin = "SET LOCAL search_path TO statpress"

    @event.listens_for(engine, "begin")
    def begin_with(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    _drop_trigger(old)
    ledger.store.writer = engine


def check_before(ledger: Ledger) -> None:
    """The budget is checked in one transaction and charged in the next."""

    def check_then_append(kind: str, body: Body, compose: object = None) -> Entry:
        given = {**body, "created": "2026-01-01T00:00:00+00:00"}
        names = (given["dataset"], given.get("run_id"))

        def standing(connection: Connection) -> Any:
            return ledger.state_for(connection, *names)

        def write(connection: Connection) -> Entry:
            now = standing(connection)
            link = (now.next_sequence, kind, checked.body, now.head)
            entry = Entry(*link, entry_hash(*link))
            append(connection, entry)
            return entry

        state = ledger.store.read(standing)
        known = repeated(state, kind, given)
        if known:
            return known
        checked = next_entry(state, kind, given)
        time.sleep(random.uniform(0, 0.005))
        return ledger.store.write(write)

    ledger.append = check_then_append  # type: ignore[method-assign]


def _drop_trigger(engine: Engine) -> None:
    on = " ON entries" if engine.dialect.name == "postgresql" else ""
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS entries_follow{on}")


def no_spoil(ledger: Ledger) -> None:
    """The ledger as it is."""


SPOILS: dict[str, Callable[[Ledger], None]] = {
    "": no_spoil,
    "without a queue": without_a_queue,
    "check before": check_before,
}


# What the test does: run the race and compare what was told with what is there.


def run_race(
    folder: Path,
    location: str,
    *,
    workers: int = WORKERS,
    attempts: int = ATTEMPTS,
    spoil: str = "",
) -> tuple[list[dict[str, Any]], float]:
    """The reports of all workers, and the seconds from the start to the last of them."""
    arguments = (str(folder), location, workers, attempts, limit_for(workers, attempts), spoil)
    seconds = json.loads(printed_in_fork(race, *arguments, seconds=TIMEOUT))  # if it hangs: fails
    files = [folder / f"report-{worker}.json" for worker in range(workers)]
    reports = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    return reports, seconds


def flaws(reports: list[dict[str, Any]], ledger: Ledger, attempts: int) -> list[str]:
    """Everything in which the reports, the chain and the limit do not agree."""
    checks = (_lost, _misjudged, _unlike_the_chain, _overspent, _unverified)
    entries = list(ledger.entries())
    return [flaw for check in checks for flaw in check(reports, entries, ledger, attempts)]


def _tries(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [told for report in reports for told in report.get("tries", ())]


def _lost(reports: list[dict[str, Any]], _: object, __: object, attempts: int) -> list[str]:
    """Attempts that were neither charged nor refused."""
    found = [f"lost: {report.get('died', report)}" for report in reports if "tries" not in report]
    made = [len(report["tries"]) for report in reports if "tries" in report]
    found += [f"lost: {number} of {attempts} attempts" for number in made if number != attempts]
    told = [*_tries(reports), *(report["shared"] for report in reports if "shared" in report)]
    return found + [f"lost: {one['lost']}" for one in told if "lost" in one]


def _misjudged(reports: list[dict[str, Any]], *_: object) -> list[str]:
    """Refusals of what would have fitted, and more than one registration."""
    refused = [told for told in _tries(reports) if "remaining" in told]
    found = [
        f"refused in error: {told}"
        for told in refused
        if Fraction(told["remaining"]) >= Fraction(told["epsilon"])
    ]
    registered = sum(report.get("registered", False) for report in reports)
    return found + ([] if registered == 1 else [f"registered: {registered} times"])


def _unlike_the_chain(reports: list[dict[str, Any]], entries: list[Entry], *_: object) -> list[str]:
    """Charges that were told and are not there, or are there and were not told."""
    charges = [entry for entry in entries if entry.kind == "charge"]
    chain = {entry.body["run_id"]: entry.hash for entry in charges}
    told = {told["run"]: told["hash"] for told in _tries(reports) if "hash" in told}
    shared = {report["shared"].get("hash") for report in reports if "shared" in report}
    found = [] if len(chain) == len(charges) else ["twice: a run has more than one charge"]
    if shared != {chain.pop("shared", None)}:
        found.append(f"twice: the shared run has the hashes {shared}")
    if told != chain:
        found.append(f"lost: {len(told.items() ^ chain.items())} charges differ from what was told")
    return found


def _overspent(
    reports: list[dict[str, Any]], entries: list[Entry], ledger: Ledger, *_: object
) -> list[str]:
    """The sum of the charges, by arithmetic of its own, against the limit."""
    spent = sum(Fraction(e.body["epsilon"]) for e in entries if e.kind == "charge")
    succeeded = sum(Fraction(told["epsilon"]) for told in _tries(reports) if "hash" in told)
    limits = [Fraction(e.body["epsilon"]) for e in entries if e.kind == "register"]
    if not limits:
        return ["lost: every registration"]
    found = [] if spent <= limits[0] else [f"overspent by {float(spent - limits[0])}"]
    if spent != succeeded + Fraction(AMOUNTS[1]):
        found.append("lost: the successes do not sum to what was spent")
    if limits[0] - spent >= Fraction(AMOUNTS[1]):
        found.append(f"left over: {float(limits[0] - spent)}")
    return found


def _unverified(_: object, entries: list[Entry], ledger: Ledger, *__: object) -> list[str]:
    """What the ledger finds in itself."""
    try:
        assert ledger.verify().entries == len(entries)
        account = ledger.account("census")
    except StatpressError as error:
        return [f"broken: {error}"]
    spent = sum(Fraction(e.body["epsilon"]) for e in entries if e.kind == "charge")
    return [] if Fraction(account.spent["epsilon"]) == spent else ["broken: another sum"]


def test_processes_at_once_never_overspend_and_lose_nothing(
    location: str, tmp_path: Path, full: bool
) -> None:
    workers, attempts = (32, 200) if full else (WORKERS, ATTEMPTS)
    reports, seconds = run_race(tmp_path, location, workers=workers, attempts=attempts)
    with Ledger.open(location, create=False) as ledger:
        assert flaws(reports, ledger, attempts) == []
        charges = len(ledger.account("census").charges)
    tries = workers * attempts
    print(
        f"\n{tries} attempts, {charges} charges in {seconds:.1f} s: {tries / seconds:.0f} a second"
    )
    assert tries / 2 < charges < tries  # the limit ran out in the midst


@pytest.mark.parametrize(
    ("location", "spoil"),
    [
        ("postgres", ""), ("sqlite", "check before"),
        pytest.param("sqlite", "", marks=pytest.mark.nightly),
        pytest.param("postgres", "check before", marks=pytest.mark.nightly),
    ],
    indirect=["location"],
)  # fmt: skip
def test_processes_at_once_never_overspend_on_one_person_of_a_panel(
    location: str, spoil: str
) -> None:
    """Of any two of six months; a ledger that charges what it checked before is caught."""
    with Ledger.open(location) as ledger:
        ledger.register(dataset="census", epsilon="1", delta="0.5", design="any 2", **TERMS)
    printed_in_fork(race_on_a_panel, location, 8, 20, spoil, seconds=TIMEOUT)
    with Ledger.open(location, create=False) as ledger:
        charges = [entry.body for entry in ledger.entries() if entry.kind == "charge"]
        sums = dict.fromkeys(MONTHS, Fraction(0))
        for body in charges:
            sums[body["period"]] += Fraction(body["epsilon"])
        one = sum(sorted(sums.values())[-2:])
        if spoil:
            assert one > 1 or _unverified([], list(ledger.entries()), ledger)
        else:
            assert Fraction(95, 100) <= one <= 1
            assert _unverified([], list(ledger.entries()), ledger) == []


@pytest.mark.parametrize(
    ("location", "spoil", "expected"),
    [
        ("sqlite", "without a queue", {"lost"}),
        ("sqlite", "check before", {"overspent", "broken"}),
        pytest.param("postgres", "without a queue", {"lost"}, marks=pytest.mark.nightly),
        pytest.param(
            "postgres", "check before", {"overspent", "broken"}, marks=pytest.mark.nightly
        ),
    ],
    indirect=["location"],
)
def test_the_race_finds_a_ledger_that_is_broken(
    location: str, tmp_path: Path, spoil: str, expected: set[str]
) -> None:
    reports, _ = run_race(tmp_path, location, workers=8, attempts=25, spoil=spoil)
    with opened(location, spoil) as ledger:
        found = flaws(reports, ledger, 25)
    kinds = {flaw.split(":")[0].split()[0] for flaw in found}
    assert expected <= kinds, found[:5]
