"""A ledger's process killed at every statement, its connection cut, its server killed."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import census_ledger
import pytest
from census_ledger import TERMS
from command_forks import printed_in_fork
from postgres import Server, run
from sqlalchemy import Engine, Pool, event
from sqlalchemy.engine.default import DefaultDialect

from statpress.mechanisms.errors import AlreadyRegisteredError, LedgerError, LedgerUnavailableError
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger

pytestmark = pytest.mark.system


def charge(ledger: Ledger, run_id: str, epsilon: str = "0.01") -> Entry:
    found: Entry = census_ledger.charge(
        ledger, run_id, epsilon=epsilon, delta="1e-9", rho="0.00005"
    )
    return found


def register(ledger: Ledger) -> Entry:
    return ledger.register(dataset="census", epsilon="1", delta="0.5", **TERMS)


def publish(ledger: Ledger) -> Entry:
    return ledger.publish(run_id="one", dataset="census", bundle="b", manifest_sha256="b" * 64)


def amend(ledger: Ledger) -> Entry:
    limits = {"epsilon": "2", "delta": "0.5"}
    return ledger.amend(dataset="census", policy="basic", reason="more", **limits)


def checkpoint(ledger: Ledger) -> Entry:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return ledger.checkpoint(Ed25519PrivateKey.from_private_bytes(bytes(32)))


# What each act does, and what the ledger says to its repetition if it does not repeat.
ACTS: dict[str, tuple[Callable[[Ledger], Entry], str]] = {
    "register": (register, "Registered at"),
    "charge one": (lambda ledger: charge(ledger, "one", "0.25"), ""),
    "draw one": (lambda ledger: ledger.draw(run_id="one", dataset="census"), "may have drawn"),
    "publish one": (publish, ""),
    "charge two": (lambda ledger: charge(ledger, "two", "0.5"), "is void"),
    "void two": (lambda ledger: ledger.void(run_id="two", dataset="census", reason="no"), ""),
    "amend": (amend, "in force already"),
    "checkpoint": (checkpoint, ""),
    "charge three": (lambda ledger: charge(ledger, "three"), ""),
}
SPENT = "0.26"


def repeat_all(ledger: Ledger) -> None:
    """Bring the history to its end, wherever it stopped."""
    for act, said in ACTS.values():
        try:
            act(ledger)
        except (LedgerError, AlreadyRegisteredError) as error:
            if not said or said not in str(error):
                raise


def outcome(
    ledger: Ledger, acknowledged: list[str], before: set[tuple[str, ...]]
) -> dict[str, Any]:
    """What is there after a death, and after the repetition of everything.

    Everything is repeated once more where what the first repetition met was not there before.
    """
    result: dict[str, Any] = {"entries": ledger.verify().entries}
    result["kept"] = [entry.hash for entry in ledger.entries()]
    if "draw one" in acknowledged:
        result["voided"] = True
        try:
            ledger.void(run_id="one", dataset="census", reason="not drawn?")
        except LedgerError as error:
            result["voided"] = "may have begun" not in error.what
    repeat_all(ledger)
    met = (str(result["entries"]), *acknowledged)
    if met not in before:
        before.add(met)
        repeat_all(ledger)
    account = ledger.account("census")
    charged = [entry.body["run_id"] for entry in ledger.entries() if entry.kind == "charge"]
    result["charged"], result["spent"] = charged, str(account.spent["epsilon"])
    result["statuses"] = {run_id: str(c.status) for run_id, c in account.charges.items()}
    assert ledger.verify().entries > 8
    return result


# What runs in the process that forks: a child for each step of the history, killed there.


def history(location: str, written: int, last_step: int) -> None:
    """Live the history up to a step, and die by ``SIGKILL``; tell the steps of a whole life."""
    step = 0

    def pass_step(name: str) -> None:
        nonlocal step
        step += 1
        if not last_step:
            os.write(written, json.dumps({"passed": name}).encode() + b"\n")
        elif step == last_step:
            os.write(written, json.dumps({"killed": name}).encode() + b"\n")
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "before_cursor_execute")
    def before(connection: object, cursor: object, statement: str, *rest: object) -> None:
        pass_step("before " + statement.strip())

    @event.listens_for(Engine, "after_cursor_execute")
    def after(connection: object, cursor: object, statement: str, *rest: object) -> None:
        pass_step("after " + statement.strip())

    @event.listens_for(Pool, "connect")
    def connect(raw: object, record: object) -> None:
        pass_step("after connecting")

    @event.listens_for(Pool, "checkin")
    def checkin(raw: object, record: object) -> None:
        pass_step("after the transaction")

    honest = DefaultDialect.do_commit

    def commit(dialect: DefaultDialect, connection: Any) -> None:
        pass_step("before COMMIT")
        honest(dialect, connection)
        pass_step("after COMMIT")

    DefaultDialect.do_commit = commit  # type: ignore[method-assign]
    with Ledger.open(location) as ledger:
        for name, (act, _) in ACTS.items():
            entry = act(ledger)
            told = {"acknowledged": name, "hash": entry.hash}
            os.write(written, json.dumps(told).encode() + b"\n")


def chosen(steps: list[str], every: bool) -> list[int]:
    """The numbers of the steps to die at: all, or those around each entry and one of each kind.

    Readings of one table are of one kind.
    """
    seen: set[str] = set()
    found = []
    for number, name in enumerate(steps, 1):
        kind, words = name, name.split()
        if words[1] in ("CREATE", "DROP", "ALTER"):
            kind = " ".join(words[:3])
        elif words[1] == "SELECT" and "FROM" in words:
            kind = " ".join((*words[:2], words[words.index("FROM") + 1]))
        if name.startswith("before INSERT INTO entries"):
            seen -= {kind, "before COMMIT", "after COMMIT"}
        if every or kind not in seen:
            found.append(number)
        seen.add(kind)
    return found


def deaths_at_steps(location: str, every: bool, scratch: Path) -> None:
    """Print what was left after a whole life, and then after the death at each of its steps."""
    checkpoint(Ledger.open(Path(tempfile.mkdtemp(dir=scratch)) / "warm.db"))
    before: set[tuple[str, ...]] = set()
    steps = [0]
    for step in steps:
        place = fresh(location, step)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                history(place, write, step)
                os._exit(0)
            except BaseException as error:
                os.write(2, repr(error).encode())
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as lines:
            said = [json.loads(line) for line in lines]
        _, status = os.waitpid(child, 0)
        assert status == (signal.SIGKILL if step else 0)
        if not step:
            steps += chosen([line["passed"] for line in said if "passed" in line], every)
        acknowledged = {line["acknowledged"]: line["hash"] for line in said if "hash" in line}
        with Ledger.open(place) as ledger:
            left = outcome(ledger, list(acknowledged), before)
        killed = next((line["killed"] for line in said if "killed" in line), None)
        print(json.dumps({"killed": killed, "acknowledged": acknowledged, **left}))


def fresh(location: str, step: int) -> str:
    """A place without a ledger: a file, or the one database, emptied."""
    if "://" not in location:
        return str(Path(location).parent / str(step) / "ledger.db")
    run(
        location,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "DROP SCHEMA IF EXISTS statpress CASCADE",
    )
    return location


@pytest.fixture(
    scope="module",
    params=[
        ("sqlite", False),
        *(
            pytest.param((database, every), marks=pytest.mark.nightly)
            for database, every in (("sqlite", True), ("postgres", False), ("postgres", True))
        ),
    ],
    ids=lambda param: f"{param[0]}-{'full' if param[1] else 'quick'}",
)
def deaths(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What was left after a life to the end, and after deaths at its steps.

    The quick form dies before and after every entry's commit, before its insertion, and once at
    each other kind of statement.
    """
    database, every = request.param
    folder = tmp_path_factory.mktemp("deaths")
    if database == "sqlite":
        location = str(folder / "ledger.db")
    else:
        location = request.getfixturevalue("postgres_server").database()
    told = printed_in_fork(deaths_at_steps, location, every, folder)
    return [json.loads(line) for line in told.splitlines()]


def test_the_deaths_cover_every_statement(deaths: list[dict[str, Any]]) -> None:
    whole, *killed = deaths
    assert whole["killed"] is None
    assert list(whole["acknowledged"]) == list(ACTS)
    moments = [death["killed"] for death in killed]
    assert None not in moments
    begin = "BEGIN IMMEDIATE" if "before BEGIN IMMEDIATE" in moments else "LOCK TABLE entries"
    for statement in (begin, "SELECT", "INSERT INTO entries", "CREATE TABLE", "CREATE TRIGGER"):
        for moment in ("before", "after"):
            assert any(m.startswith(moment) and statement in m for m in moments), statement
    inserts = [m for m in moments if m.startswith("before INSERT INTO entries")]
    assert len(inserts) == len(ACTS)
    # The schema and each act; the rest are readings.
    assert moments.count("before COMMIT") == moments.count("after COMMIT") > len(ACTS)
    # Some die with an entry on disk that nobody was told of, some without it.
    assert {len(d["kept"]) - len(d["acknowledged"]) for d in killed} == {0, 1}
    print(f"\n{len(killed)} deaths")


def test_an_acknowledged_entry_outlives_any_death(deaths: list[dict[str, Any]]) -> None:
    for death in deaths:
        told = list(death["acknowledged"].values())
        assert death["kept"][: len(told)] == told, death["killed"]
        assert death["entries"] == len(death["kept"])


def test_a_commit_is_what_makes_an_entry_stay(deaths: list[dict[str, Any]]) -> None:
    pending, after = False, []
    for death in deaths[1:]:
        kept = len(death["kept"]) - len(death["acknowledged"])
        if death["killed"].startswith("before INSERT INTO entries"):
            pending = True
        if pending and death["killed"] != "after COMMIT":
            assert kept == 0, death["killed"]
        elif pending:
            pending = False
            after.append(kept)
    assert after == [1] * len(ACTS)


def test_repeating_after_any_death_charges_once(deaths: list[dict[str, Any]]) -> None:
    for death in deaths:
        assert sorted(death["charged"]) == ["one", "three", "two"], death["killed"]
        assert death["spent"] == SPENT, death["killed"]
        statuses = {"one": "published", "two": "void", "three": "reserved"}
        assert death["statuses"] == statuses, death["killed"]


def test_an_acknowledged_draw_cannot_be_voided_after_any_death(
    deaths: list[dict[str, Any]],
) -> None:
    tried = [death["voided"] for death in deaths if "voided" in death]
    assert len(tried) > 12 and not any(tried)


# The server dies, or its end of the connection.


@pytest.fixture(scope="module")
def second_server() -> Iterator[Server]:
    """A server of its own, to be killed and started again."""
    with Server() as server:
        yield server


@pytest.fixture
def mortal(second_server: Server) -> Server:
    """The second server, running, whatever the test before did to it."""
    second_server.start()
    return second_server


def begun(location: str) -> tuple[Ledger, list[str]]:
    """A ledger with an account and a charge, and the hashes that were acknowledged."""
    ledger = Ledger.open(location)
    return ledger, [register(ledger).hash, charge(ledger, "one", "0.25").hash]


def assert_nothing_rides_along(error: BaseException) -> None:
    assert error.__context__ is None and error.__cause__ is None
    for word in ("sqlalchemy", "psycopg", "INSERT", "sqlalche.me"):
        assert word not in str(error)


def kill(server: Server) -> None:
    server.kill()


def stop_at_once(server: Server) -> None:
    server.stop(immediate=True)


@pytest.mark.parametrize("end", [kill, stop_at_once])
@pytest.mark.parametrize("moment", ["before COMMIT", "after COMMIT"])
def test_the_server_dies_around_a_commit(
    mortal: Server, end: Callable[[Server], None], moment: str
) -> None:
    location = mortal.database()
    ledger, acknowledged = begun(location)

    def commit(connection: Any) -> None:
        if moment == "after COMMIT":
            connection.exec_driver_sql("COMMIT; BEGIN")  # what ends it meets a dead server, too
        end(mortal)

    event.listen(ledger.store.writer, "commit", commit)
    with ledger, pytest.raises(LedgerUnavailableError) as caught:
        charge(ledger, "two")
    event.remove(ledger.store.writer, "commit", commit)
    assert_nothing_rides_along(caught.value)
    assert "whether the entry was written is not known" in str(caught.value)
    assert "may be repeated" in str(caught.value)
    with pytest.raises(LedgerUnavailableError) as down:
        Ledger.open(location)
    assert_nothing_rides_along(down.value)

    mortal.start()
    with ledger, Ledger.open(location, create=False) as other:
        kept = [entry.hash for entry in other.entries()]
        assert kept[:2] == acknowledged
        assert len(kept) == (3 if moment == "after COMMIT" else 2)
        assert charge(ledger, "two").sequence == 3  # the same ledger, without a new opening
        assert charge(ledger, "two").sequence == 3
        assert str(other.account("census").spent["epsilon"]) == "0.26"
        assert other.verify().entries == 3


def test_a_restart_between_two_acts_goes_unnoticed(mortal: Server) -> None:
    ledger, acknowledged = begun(mortal.database())
    with ledger:
        mortal.kill()
        mortal.start()
        acknowledged.append(charge(ledger, "two").hash)
        mortal.stop()
        mortal.start()
        assert [entry.hash for entry in ledger.entries()] == acknowledged
        assert ledger.draw(run_id="two", dataset="census").sequence == 4


@pytest.mark.parametrize("moment", ["before INSERT", "after INSERT", "before COMMIT"])
def test_the_servers_end_of_the_connection_is_terminated(
    postgres_server: Server, postgres_url: str, moment: str
) -> None:
    ledger, acknowledged = begun(postgres_url)
    cut: list[str] = []

    def terminate(connection: Any) -> None:
        pid = connection.connection.driver_connection.info.backend_pid
        cut.append(moment)
        postgres_server.run(f"SELECT pg_terminate_backend({pid}, 5000)")

    def at(name: str) -> Callable[..., None]:
        def listen(connection: Any, *rest: Any) -> None:
            insert = not rest or str(rest[1]).startswith("INSERT")
            if name == moment and insert and not cut:
                terminate(connection)

        return listen

    engine = ledger.store.writer
    event.listen(engine, "before_cursor_execute", at("before INSERT"))
    event.listen(engine, "after_cursor_execute", at("after INSERT"))
    event.listen(engine, "commit", at("before COMMIT"))
    with ledger:
        with pytest.raises(LedgerUnavailableError) as caught:
            charge(ledger, "two")
        assert cut == [moment]
        assert_nothing_rides_along(caught.value)
        assert "may be repeated" in str(caught.value)
        assert [entry.hash for entry in ledger.entries()] == acknowledged
        assert charge(ledger, "two").sequence == 3
        assert ledger.verify().entries == 3
