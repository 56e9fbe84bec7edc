"""What can be wrong with a PostgreSQL database, its server or its roles."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import census_ledger
import psycopg
import pytest
from census_ledger import TERMS
from postgres import Server, run
from sqlalchemy import Connection, event, make_url

from statpress.mechanisms.errors import (
    LedgerError,
    LedgerIntegrityError,
    LedgerLockedError,
    LedgerReadOnlyError,
    LedgerSchemaError,
    LedgerUnavailableError,
    StatpressError,
)
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.ledger import Ledger

pytestmark = pytest.mark.system

PASSWORD = "s3cret-of/the:keeper"


def charge(ledger: Ledger, run_id: str = "one") -> Entry:
    found: Entry = census_ledger.charge(ledger, run_id, epsilon="0.01", delta="1e-9", rho="0.00005")
    return found


def name_in(url: str) -> str:
    """The name of the database in an address."""
    return str(make_url(url).database)


@pytest.fixture
def url(postgres_url: str) -> str:
    """A database with a ledger of one account."""
    with Ledger.open(postgres_url) as ledger:
        ledger.register(dataset="census", epsilon="1", delta="0.5", **TERMS)
    return postgres_url


@pytest.fixture
def keeper(postgres_server: Server, url: str) -> str:
    """The address of the same database for a role that needs its password."""
    role = postgres_server.keeper(PASSWORD)
    run(
        url,
        f"GRANT USAGE ON SCHEMA statpress TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA statpress TO {role}",
    )
    return postgres_server.url(name_in(url), user=role, password=PASSWORD)


def fails(
    kind: type[StatpressError], said: str, act: Callable[[], object], secret: str = PASSWORD
) -> StatpressError:
    """The act fails with exactly this kind, in words for people, and nothing rides along."""
    with pytest.raises(StatpressError) as caught:
        act()
    error = caught.value
    text = f"{error} {error!r} {error.where} {error.__dict__}"
    assert error.__context__ is None and error.__cause__ is None, repr(error.__context__)
    for word in ("sqlalchemy", "psycopg", "sqlalche.me", "Error:", "[SQL", "parameters", secret):
        assert word not in text
    assert type(error) is kind, text
    assert said in error.what, text
    return error


def unchanged(url: str, charges: int = 0) -> None:
    """The ledger is whole, and holds the account and so many charges."""
    with Ledger.open(url, create=False) as ledger:
        assert ledger.verify().entries == 1 + charges
        assert len(ledger.account("census").charges) == charges


def opening(url: str, **options: Any) -> Callable[[], object]:
    return lambda: Ledger.open(url, **options)


# The way to the server.


def test_a_wrong_password_says_so_and_is_never_repeated(keeper: str, url: str) -> None:
    wrong = keeper.replace("s3cret", "wr0ng")
    fails(
        LedgerUnavailableError,
        "does not accept this user, password",
        opening(wrong),
        secret="wr0ng",
    )
    unchanged(url)


def test_an_unknown_role_says_so(postgres_server: Server) -> None:
    address = postgres_server.url("postgres", user="nobody_here")
    fails(LedgerUnavailableError, "does not accept this user, password", opening(address))


def test_an_unknown_database_says_so(postgres_server: Server) -> None:
    fails(LedgerUnavailableError, "or database", opening(postgres_server.url("nowhere")))


def test_the_password_is_in_no_place_and_no_message(keeper: str, url: str) -> None:
    with Ledger.open(keeper, create=False) as ledger:
        assert PASSWORD not in ledger.where and "s3cret" not in ledger.where
        writer = ledger.store.writer
        assert "s3cret" not in repr(writer.url) + str(writer)
        error = fails(LedgerReadOnlyError, "may not", lambda: charge(ledger))
        assert "s3cret" not in str(error)
    unchanged(url)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://keeper:s3cret@no-such-host.invalid/census",
        "postgresql://keeper:s3cret@127.0.0.1:{port}/census",
        "postgresql://keeper:s3cret@/census?host=/nonexistent",
    ],
    ids=["unknown host", "closed port", "no socket"],
)
def test_no_server_there(address: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = address.format(port=unused.getsockname()[1])
        fails(LedgerUnavailableError, "cannot be reached", opening(address), secret="s3cret")


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"postgresql://keeper:s3cret@127.0.0.1:{mute.getsockname()[1]}/census"
        fails(LedgerUnavailableError, "cannot be reached", opening(address), secret="s3cret")


def test_too_many_connections_say_so(postgres_server: Server, url: str) -> None:
    postgres_server.run("CREATE ROLE one_seat LOGIN CONNECTION LIMIT 1")
    address = postgres_server.url(name_in(url), user="one_seat")
    with psycopg.connect(address):
        fails(LedgerUnavailableError, "connections", opening(address))
    postgres_server.run("DROP ROLE one_seat")
    unchanged(url)


def test_no_ledger_in_the_database_and_none_to_be_made(postgres_url: str) -> None:
    fails(LedgerUnavailableError, "no ledger here", opening(postgres_url, create=False))
    assert run(postgres_url, "SELECT to_regnamespace('statpress')") == [(None,)]


# What may be written, and when.


def test_a_role_without_insert(keeper: str, url: str) -> None:
    with Ledger.open(keeper, create=False) as ledger:
        fails(LedgerReadOnlyError, "may not", lambda: charge(ledger))
        assert ledger.verify().entries == 1
    unchanged(url)


def test_a_role_that_may_insert_and_lock_can_charge_and_not_rewrite(keeper: str, url: str) -> None:
    role = make_url(keeper).username
    run(url, f"GRANT INSERT ON {TABLE} TO {role}")
    with Ledger.open(keeper, create=False) as ledger:
        fails(LedgerReadOnlyError, "may not", lambda: charge(ledger))  # LOCK TABLE needs more
        run(url, f"GRANT MAINTAIN ON {TABLE} TO {role}")
        assert charge(ledger).sequence == 2
    for statement in (f"DELETE FROM {TABLE}", f"TRUNCATE {TABLE}", f"DROP TABLE {TABLE}"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(keeper, statement)
    unchanged(url, charges=1)


def test_a_database_that_is_read_only(url: str) -> None:
    run(url, f"ALTER DATABASE {name_in(url)} SET default_transaction_read_only TO on")
    with Ledger.open(url, create=False) as ledger:
        fails(LedgerReadOnlyError, "read-only", lambda: charge(ledger))
        assert ledger.verify().entries == 1
    unchanged(url)


def test_a_new_ledger_where_nothing_may_be_made(postgres_server: Server, postgres_url: str) -> None:
    postgres_server.run("CREATE ROLE guest LOGIN")
    address = postgres_server.url(name_in(postgres_url), user="guest")
    fails(LedgerReadOnlyError, "may not", opening(address))
    postgres_server.run("DROP ROLE guest")


def test_a_table_that_another_session_keeps_locked(url: str) -> None:
    with Ledger.open(url, create=False, patience=0.3) as ledger, psycopg.connect(url) as other:
        other.execute("LOCK TABLE statpress.entries IN EXCLUSIVE MODE")
        fails(LedgerLockedError, "locked", lambda: charge(ledger))
        assert ledger.verify().entries == 1  # reading goes on
        other.rollback()
        assert charge(ledger).sequence == 2
    unchanged(url, charges=1)


def test_a_lock_that_is_let_go_is_waited_for(url: str) -> None:
    with Ledger.open(url, create=False) as ledger, psycopg.connect(url) as other:
        other.execute("LOCK TABLE statpress.entries IN EXCLUSIVE MODE")
        timer = threading.Timer(0.5, other.rollback)
        timer.start()
        assert charge(ledger).sequence == 2
        timer.join()


def test_entries_are_on_disk_before_they_are_acknowledged(
    postgres_server: Server, url: str
) -> None:
    postgres_server.run(f"ALTER DATABASE {name_in(url)} SET synchronous_commit TO off")
    assert run(url, "SHOW synchronous_commit") == [("off",)]
    with Ledger.open(url, create=False) as ledger:
        for engine in (ledger.store.writer, ledger.store.maker):
            with engine.begin() as connection:
                assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        with ledger.store.writer.begin() as connection:
            level = connection.exec_driver_sql("SHOW transaction_isolation").scalar()
        assert level == "serializable"


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_transaction_that_others_undid_is_run_again(url: str, state: str) -> None:
    undone: list[str] = []
    with Ledger.open(url, create=False) as ledger:
        _fail_at_commit(ledger, state, undone, times=3)
        assert charge(ledger).sequence == 2
        assert charge(ledger).sequence == 2
    assert len(undone) == 3
    unchanged(url, charges=1)


def test_a_transaction_that_is_always_undone_is_given_up(url: str) -> None:
    undone: list[str] = []
    with Ledger.open(url, create=False, patience=1.0) as ledger:
        _fail_at_commit(ledger, "40001", undone, times=10**6)
        began = time.monotonic()
        fails(LedgerLockedError, "undid", lambda: charge(ledger))
    assert time.monotonic() - began >= 1 and len(undone) > 1
    unchanged(url)


def _fail_at_commit(ledger: Ledger, state: str, undone: list[str], times: int) -> None:
    """Let the server raise this state at the end of so many writing transactions."""

    @event.listens_for(ledger.store.writer, "commit")
    def undo(connection: Connection) -> None:
        if len(undone) < times:
            undone.append(state)
            connection.exec_driver_sql(
                f"DO $$BEGIN RAISE EXCEPTION 'undone' USING ERRCODE = '{state}'; END$$"
            )


def test_two_sessions_that_would_not_serialise_end_with_one_charge_each(url: str) -> None:
    with Ledger.open(url, create=False) as one, Ledger.open(url, create=False) as two:
        threads = [
            threading.Thread(target=charge, args=(ledger, f"run-{number}"))
            for number, ledger in enumerate((one, two))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(600)
    unchanged(url, charges=2)


def test_an_act_that_the_server_cancels(url: str) -> None:
    with Ledger.open(url, create=False) as ledger:

        @event.listens_for(ledger.store.writer, "commit")
        def cancel(connection: Connection) -> None:
            connection.exec_driver_sql("SET LOCAL statement_timeout TO 10; SELECT pg_sleep(5)")

        fails(LedgerLockedError, "cancelled", lambda: charge(ledger))
    unchanged(url)


# The form of the schema, and its guards.


def test_a_ledger_of_a_newer_form(url: str) -> None:
    run(url, "UPDATE statpress.schema_version SET version_num = 'third'")
    error = fails(LedgerSchemaError, "'third'", opening(url))
    assert "version of statpress" in error.next_step
    run(url, "UPDATE statpress.schema_version SET version_num = 'second'")
    unchanged(url)


def test_a_schema_of_something_else(postgres_url: str) -> None:
    run(postgres_url, "CREATE SCHEMA statpress", "CREATE TABLE statpress.wages (amount integer)")
    fails(LedgerIntegrityError, "something else", opening(postgres_url))


def test_a_table_that_is_gone(url: str) -> None:
    with Ledger.open(url, create=False) as ledger:
        run(url, "ALTER TABLE statpress.entries RENAME TO elsewhere")
        fails(LedgerIntegrityError, "missing", lambda: charge(ledger))
        fails(LedgerIntegrityError, "missing", ledger.verify)
    fails(LedgerIntegrityError, "something else", opening(url))


TABLE, GUARD = "statpress.entries", "entries_no_change"
REPLACED = f"DROP TRIGGER {GUARD} ON {TABLE}", f"ALTER TABLE {TABLE} ENABLE ALWAYS TRIGGER {GUARD}"
REFUSE = "FOR EACH ROW {when}EXECUTE FUNCTION statpress.entries_refuse()"
ALTERATIONS: dict[str, tuple[str, ...]] = {
    "disabled trigger": (f"ALTER TABLE {TABLE} DISABLE TRIGGER entries_follow",),
    "trigger not always enabled": (f"ALTER TABLE {TABLE} ENABLE TRIGGER entries_follow",),
    "dropped trigger": (f"DROP TRIGGER {GUARD} ON {TABLE}",),
    "dropped guard of truncation": (f"DROP TRIGGER entries_no_truncate ON {TABLE}",),
    "replaced function": (
        "CREATE OR REPLACE FUNCTION statpress.entries_follow() RETURNS trigger"
        " LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    ),
    "function with another path": (
        "ALTER FUNCTION statpress.entries_follow() SET search_path TO public",
    ),
    "trigger of some rows": (
        REPLACED[0],
        f"CREATE TRIGGER {GUARD} BEFORE UPDATE OR DELETE ON {TABLE} "
        + REFUSE.format(when="WHEN (OLD.sequence > 1) "),
        REPLACED[1],
    ),
    "trigger of some columns": (
        REPLACED[0],
        f"CREATE TRIGGER {GUARD} BEFORE UPDATE OF kind OR DELETE ON {TABLE} "
        + REFUSE.format(when=""),
        REPLACED[1],
    ),
    "added trigger": (f"CREATE TRIGGER another AFTER INSERT ON {TABLE} {REFUSE.format(when='')}",),
    "added rule": (f"CREATE RULE swallow AS ON INSERT TO {TABLE} DO INSTEAD NOTHING",),
    "added table": ("CREATE TABLE statpress.more (amount integer)",),
    "added view": ("CREATE VIEW statpress.more AS SELECT 1",),
    "dropped index that keeps runs unique": ("DROP INDEX statpress.entries_by_run",),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_altered_guard_is_noticed(url: str, name: str) -> None:
    run(url, *ALTERATIONS[name])
    error = fails(LedgerIntegrityError, "guards of the ledger were altered", opening(url))
    assert "backup" in error.next_step


def test_a_rule_that_swallows_entries_is_noticed_by_the_next_act(url: str) -> None:
    with Ledger.open(url, create=False) as ledger:
        run(url, *ALTERATIONS["added rule"])
        fails(LedgerIntegrityError, "does not take entries", lambda: charge(ledger))
        run(url, "DROP RULE swallow ON statpress.entries")
    unchanged(url)


# What the database itself refuses, even to its superuser.

ROW = "INSERT INTO statpress.entries (sequence, kind, body, previous, hash, dataset) VALUES "
HEAD = "(SELECT hash FROM statpress.entries ORDER BY sequence DESC LIMIT 1)"
REFUSED = {
    "update": "UPDATE statpress.entries SET body = body",
    "delete": "DELETE FROM statpress.entries",
    "truncate": "TRUNCATE statpress.entries",
    "delete as a replica": "SET session_replication_role TO replica; DELETE FROM statpress.entries",
    "gap": f"{ROW} (3, 'charge', '{{}}', {HEAD}, 'x', 'census')",
    "number taken": f"{ROW} (1, 'charge', '{{}}', {HEAD}, 'x', 'census')",
    "another head": f"{ROW} (2, 'charge', '{{}}', 'x', 'x', 'census')",
    "no head": f"{ROW} (2, 'charge', '{{}}', NULL, 'x', 'census')",
    "no dataset": f"{ROW} (2, 'charge', '{{}}', {HEAD}, 'x', NULL)",
    "hash taken": f"{ROW} (2, 'charge', '{{}}', {HEAD}, {HEAD}, 'census')",
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_database_refuses(url: str, name: str) -> None:
    with pytest.raises(psycopg.Error):
        run(url, *REFUSED[name].split("; "))
    unchanged(url)


def test_a_second_charge_of_a_run_is_refused_by_the_database(url: str) -> None:
    with Ledger.open(url, create=False) as ledger:
        charge(ledger)
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(
            url,
            "INSERT INTO statpress.entries SELECT 3, kind, body, hash, 'x', dataset, run_id"
            " FROM statpress.entries WHERE sequence = 2",
        )
    unchanged(url, charges=1)


def test_an_entry_that_the_database_refuses_is_an_error_of_integrity(url: str) -> None:
    def skew(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> tuple[str, Any]:
        if statement.startswith("INSERT"):
            parameters = {**parameters, "sequence": parameters["sequence"] + 1}
        return statement, parameters

    with Ledger.open(url, create=False) as opened:
        event.listen(opened.store.writer, "before_cursor_execute", skew, retval=True)
        fails(LedgerIntegrityError, "does not follow", lambda: charge(opened))
    unchanged(url)


def test_entries_rolled_back_by_a_restored_backup_are_noticed(url: str) -> None:
    with Ledger.open(url, create=False) as ledger:
        charge(ledger)
        run(
            url,
            "ALTER TABLE statpress.entries DISABLE TRIGGER ALL",
            "DELETE FROM statpress.entries WHERE sequence = 2",
            "ALTER TABLE statpress.entries ENABLE TRIGGER ALL",
        )
        fails(LedgerIntegrityError, "no longer", lambda: charge(ledger, "two"))


def test_a_missing_address_part_is_no_crash() -> None:
    for address in (
        "postgresql://",
        "postgresql:///",
        "mysql://host/base",
        "postgresql+pg8000://h/d",
    ):
        with pytest.raises(LedgerError) as caught:
            Ledger.open(address)
        assert caught.value.__context__ is None
