"""The ledger in an SQLite file: what it keeps, refuses, restores, and reads of a long history."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import time_machine
from census_ledger import (
    KEY,
    TERMS,
    assert_plain,
    charge,
    draw,
    long_history,
    new_ledger,
    publish,
    register,
    void,
)
from sqlalchemy import event

from statpress.mechanisms.errors import (
    AlreadyRegisteredError,
    AmountError,
    InsufficientBudgetError,
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    StatpressError,
    UnregisteredDatasetError,
)
from statpress.tasks.ledger.chain import Verification
from statpress.tasks.ledger.entries import ZERO_HASH, Entry
from statpress.tasks.ledger.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """A ledger with census registered."""
    with new_ledger(path) as opened:
        register(opened)
        yield opened


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger with one account, to which nothing is ever added."""
    with Ledger.open(tmp_path_factory.mktemp("refusing") / "ledger.db") as opened:
        register(opened)
        yield opened


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- names of accounts ----------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", " ", " a", "a ", "a  b", "a\u00a0b", "../b", "a/b", "a\\b", ".hidden", "-x", "<b>a</b>"]
    + ["a`b`", "a|b", "a*", "a\nb", "a\u200bb", "a\u202eb", "c\u0435nsus", "census\u00b2"]
    + ["\uff43ensus", "a" * 201, "cafe\u0301"],
)
def test_a_name_that_could_be_taken_for_another_is_not_registered(
    refusing: Ledger, name: str
) -> None:
    with pytest.raises(LedgerError, match="cannot be registered by this name"):
        refusing.register(dataset=name, epsilon=1, delta=0, **TERMS)
    assert [entry.body["dataset"] for entry in refusing.entries()] == ["census"]


@pytest.mark.parametrize(
    "name",
    [
        "census (1900)",
        "Enqu\u00eate m\u00e9nages",
        "2024_q1.v2",
        "\u52b4\u50cd\u529b\u30c7\u30fc\u30bf",
    ]
    + [
        "\u043f\u0435\u0440\u0435\u043f\u0438\u0441\u044c",
        "\u091c\u0928\u0917\u0923\u0928\u093e 2027",
    ],
)
def test_a_name_of_any_one_script_is(ledger: Ledger, name: str) -> None:
    ledger.register(dataset=name, epsilon=1, delta=0, **TERMS)
    assert ledger.account(name).dataset == name


def test_accounts_keep_names_of_earlier_versions(ledger: Ledger) -> None:
    body = {"dataset": "../old", "policy": "basic", "epsilon": "1", "delta": "0"}
    ledger.append("register", body | TERMS)
    ledger.amend(dataset="../old", epsilon=2, delta=0, reason="more")
    assert ledger.verify().entries == len(list(ledger.entries()))


# --- opening --------------------------------------------------------------------


@pytest.fixture
def not_a_copy(path: Path) -> Iterator[Ledger]:
    """A ledger whose file was made for this test."""
    with Ledger.open(path) as opened:
        register(opened)
        yield opened


def test_a_new_ledger_is_for_its_owner_alone(not_a_copy: Ledger, path: Path) -> None:
    assert mode(path.parent) == 0o700
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    assert len(list(path.parent.iterdir())) == 4  # the ledger, its log, the log's index, the queue


def test_it_logs_ahead_and_waits_for_the_disk(not_a_copy: Ledger) -> None:
    with not_a_copy.store.writer.begin() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_path_text_and_address_name_the_same_ledger(ledger: Ledger, path: Path) -> None:
    for location in (str(path), f"sqlite:///{path}", f"sqlite+pysqlite:///{path}"):
        with Ledger.open(location, create=False) as same:
            assert same.where == str(path)
            assert list(same.state().accounts) == ["census"]


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?mode=ro.db", "a#b.db", "ü.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with Ledger.open(tmp_path / name) as made:
        register(made)
    assert {file.name for file in tmp_path.iterdir()} == {name, f"{name}-queue"}


@pytest.mark.parametrize(
    "address",
    ["mysql://press:secret@host/db", "sqlite://", "sqlite:///:memory:", "x://y:z:w"]
    + ["oracle://h/d", "sqlite:///a.db?mode=memory", "sqlite+aiosqlite:///a.db", "://"],
)
def test_other_databases_are_refused(address: str) -> None:
    with pytest.raises(LedgerUnavailableError, match="SQLite file") as caught:
        Ledger.open(address)
    assert_plain(caught.value)
    assert "secret" not in str(caught.value)


def test_reading_a_missing_ledger_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="There is no ledger here") as caught:
        Ledger.open(tmp_path / "sub" / "ledger.db", create=False)
    assert_plain(caught.value)
    assert "ledger register" in caught.value.next_step
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_becomes_a_ledger_only_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.touch()
    with pytest.raises(LedgerUnavailableError, match="empty"):
        Ledger.open(file, create=False)
    assert file.stat().st_size == 0
    with Ledger.open(file) as made:
        register(made)


def test_reading_leaves_every_byte_as_it_was(ledger: Ledger, path: Path, tmp_path: Path) -> None:
    charge(ledger)
    # A copy taken mid-flight has its last entries in the log alone, as after a crash.
    copy = tmp_path / "copy"
    shutil.copytree(path.parent, copy)
    watched = [copy / "ledger.db", copy / "ledger.db-wal"]
    before = [file.read_bytes() for file in watched]
    assert len(before[1]) > 0
    for create in (False, True):
        with Ledger.open(copy / "ledger.db", create=create) as reader:
            assert reader.verify().entries == 2
            assert len(list(reader.entries())) == 2
            assert reader.account("census").spent["epsilon"] == Decimal("0.1")
        assert [file.read_bytes() for file in watched] == before
    ledger.close()
    before = [path.read_bytes()]
    with Ledger.open(path, create=False) as reader:
        assert reader.verify().entries == 2
    assert [path.read_bytes()] == before


# --- writing --------------------------------------------------------------------


def test_accounts_are_exact_and_survive_reopening(ledger: Ledger, path: Path) -> None:
    ledger.register(dataset="other", policy="zcdp", rho="0.30", rho_delta=0, **TERMS)
    for number in range(10):
        charge(ledger, f"run-{number}", delta="1e-9")
    draw(ledger, "run-3")
    publish(ledger, "run-3")
    ledger.close()
    with Ledger.open(path, create=False) as again:
        account = again.account("census")
        assert account.limit.texts() == {"epsilon": "1", "delta": "1e-8"}
        assert account.spent.texts() == {**account.limit.texts(), "rho": "0.05", "rho_delta": "0"}
        assert account.remaining.texts() == {"epsilon": "0", "delta": "0"}
        assert account.reserved["epsilon"] == Decimal("0.9")
        assert [run for run, c in account.charges.items() if c.published] == ["run-3"]
        assert list(account.charges) == [f"run-{number}" for number in range(10)]
        losses = {"epsilon": "0.1", "delta": "1e-9", "rho": "0.005", "rho_delta": "0"}
        assert account.charges["run-0"].loss.texts() == losses
        assert list(again.state().accounts) == ["census", "other"]
        assert again.account("other").limit.texts() == {"rho": "0.3", "rho_delta": "0"}
        with pytest.raises(InsufficientBudgetError):
            charge(again, "one-more", epsilon="1e-300")
        kinds = ["register", "register", *["charge"] * 10, "draw", "publish"]
        assert [entry.kind for entry in again.entries()] == kinds
        assert again.verify() == Verification(14, again.state().head)


@pytest.mark.parametrize(
    "amount",
    [1e-300, 5e-324, 2.5e-310, 0.1, Decimal("1e-400"), -0.0, "-0", 123456789.123456789]
    + [pytest.param("0." + "7" * 400, id="400 digits after the point")]
    + [pytest.param("9" * 400, id="400 digits before the point")]
    + [pytest.param("9" * 400 + "." + "9" * 400, id="400 digits on each side")]
    + [pytest.param(10**399, id="integer of 400 digits")],
)
def test_an_amount_comes_back_from_the_disk_to_the_last_digit(
    ledger: Ledger, path: Path, amount: Any
) -> None:
    rich = "9" * 400 + "." + "9" * 400
    ledger.amend(dataset="census", policy="basic", epsilon=rich, delta=0, reason="all")
    ledger.register(dataset="z", policy="zcdp", rho=rich, rho_delta=0, **TERMS)
    charge(ledger, epsilon=amount, rho=0)
    charge(ledger, "run-2", dataset="z", epsilon=0, rho=amount)
    ledger.close()
    with Ledger.open(path, create=False) as again:
        expected = Decimal(repr(amount) if isinstance(amount, float) else amount)
        for dataset, measure in (("census", "epsilon"), ("z", "rho")):
            account = again.account(dataset)
            assert account.spent[measure] == expected
            left = Fraction(account.remaining[measure])
            assert left + Fraction(expected) == Fraction(rich)
        assert charge(again, epsilon=amount, rho=0).sequence == 4  # the same to the last digit
        assert again.verify().entries == 5


@pytest.mark.parametrize(
    "amount",
    [float("nan"), float("inf"), float("-inf"), -5e-324, "NaN", "Infinity", " 0.1", "0.1 "]
    + ["0_1", "1_0", "٠.١", "０.１", "", "1e-401", "1e400", pytest.param("1" * 401, id="long")]
    + [None, True, b"0.1", [0.1], Decimal("NaN"), Decimal("-1e-400")],
)
@pytest.mark.parametrize("measure", ["epsilon", "delta", "rho", "rho_delta"])
def test_what_is_no_amount_is_never_written(refusing: Ledger, measure: str, amount: Any) -> None:
    with pytest.raises(AmountError) as caught:
        charge(refusing, **{measure: amount})
    assert caught.value.where == measure
    limits = {"policy": "zcdp", "rho": 1, "rho_delta": 0} if "rho" in measure else {"epsilon": 1}
    limits = {"delta": 0, **limits} if "rho" not in measure else limits
    with pytest.raises(AmountError):
        refusing.register(dataset="new", **{**limits, measure: amount}, **TERMS)
    with pytest.raises(AmountError):
        refusing.amend(
            dataset="census", reason="x", **{"policy": "basic", **limits, measure: amount}
        )
    assert refusing.verify().entries == 1


def test_a_returned_entry_is_the_stored_one(ledger: Ledger) -> None:
    entry = charge(ledger, mechanisms=[{"edges": (1, 2), "name": "é"}])
    assert entry == list(ledger.entries())[-1]
    assert entry.body["mechanisms"] == [{"edges": [1, 2], "name": "é"}]
    assert entry.body["created"].endswith("+00:00")


def test_all_but_the_draw_may_be_repeated(ledger: Ledger) -> None:
    first = charge(ledger)
    draw(ledger)
    published = publish(ledger)
    charge(ledger, "run-2")
    voided = void(ledger, "run-2")
    with time_machine.travel("2099-01-01T00:00:00+00:00", tick=False):
        assert charge(ledger, epsilon="0.10") == first
        assert publish(ledger) == published
        assert void(ledger, "run-2") == voided
        created = charge(ledger, "run-3", epsilon=0).body["created"]
    assert created == "2099-01-01T00:00:00+00:00"
    assert ledger.verify().entries == 7
    for attempt, said in (
        (lambda: draw(ledger), "may have drawn"),
        (lambda: draw(ledger, "run-2"), "is void"),
        (lambda: charge(ledger, "run-2"), "is void"),
        (lambda: charge(ledger, epsilon="0.2", delta="1e-9"), "differs in delta, epsilon"),
        (lambda: publish(ledger, manifest_sha256="c" * 64), "differs in manifest_sha256"),
        (lambda: void(ledger, "run-2", "another"), "differs in reason"),
        (lambda: void(ledger), "stays spent"),
        (lambda: publish(ledger, "run-2"), "is void"),
    ):
        with pytest.raises(LedgerError, match=said) as caught:
            attempt()
        assert_plain(caught.value)
    assert ledger.verify().entries == 7


def test_an_amended_limit_binds_at_once(ledger: Ledger) -> None:
    charge(ledger, epsilon="0.4", rho="0.08")
    ledger.amend(dataset="census", policy="basic", epsilon="0.5", delta="1e-8")
    with pytest.raises(InsufficientBudgetError):
        charge(ledger, "run-2", epsilon="0.2")
    with pytest.raises(LedgerError, match="needs a reason") as caught:
        ledger.amend(dataset="census", policy="zcdp", rho="0.1", rho_delta=0)
    assert_plain(caught.value)
    ledger.amend(dataset="census", policy="zcdp", rho="0.1", rho_delta=0, reason="tighter")
    charge(ledger, "run-2", epsilon="0.2", rho="0.02")
    with pytest.raises(InsufficientBudgetError) as over:
        charge(ledger, "run-3", epsilon=0, rho="1e-300")
    assert over.value.remaining.texts() == {"rho": "0", "rho_delta": "0"}
    account = ledger.account("census")
    assert (account.policy, len(account.amendments)) == ("zcdp", 2)
    for limits in (
        {"rho": 1, "rho_delta": 0, "epsilon": 1},
        {"epsilon": 1, "delta": 0},
    ):
        with pytest.raises(LedgerError, match="limits rho and rho_delta"):
            ledger.amend(dataset="census", policy="zcdp", reason="x", **limits)
    # What is not given stays as it is at that moment, whoever changed it before.
    ledger.amend(dataset="census", rho="0.3", reason="more")
    assert ledger.account("census").limit.texts() == {"rho": "0.3", "rho_delta": "0"}
    ledger.amend(dataset="census", rho_delta="1e-9", reason="for a mechanism without rho")
    assert ledger.account("census").limit.texts() == {"rho": "0.3", "rho_delta": "1e-9"}
    with pytest.raises(LedgerError, match="limits epsilon and delta"):
        ledger.amend(dataset="census", policy="basic", epsilon=9, reason="half of it")
    with pytest.raises(UnregisteredDatasetError):
        ledger.amend(dataset="nobody", rho=1)
    assert ledger.verify().entries == 7


def test_a_checkpoint_signs_the_head_and_repeats_at_will(ledger: Ledger) -> None:
    first, second = ledger.checkpoint(KEY), ledger.checkpoint(KEY)
    charge(ledger)
    assert (first.sequence, second.sequence) == (2, 3)
    assert first.body["signature"] != second.body["signature"]
    found = ledger.verify(trusted=[first.body["public_key"]], head=second.hash)
    assert found.checkpoints == (2, 3)
    assert found.signers == {first.body["public_key"]}
    with pytest.raises(LedgerIntegrityError, match="not trusted") as caught:
        ledger.verify(trusted={"0" * 64})
    assert caught.value.sequence == 2
    assert_plain(caught.value)
    with pytest.raises(LedgerIntegrityError, match="without the head") as caught:
        ledger.verify(head="f" * 64)
    assert caught.value.sequence == 5
    assert_plain(caught.value)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"epsilon": float("nan")}, AmountError),
        ({"epsilon": "1.1"}, InsufficientBudgetError),
        ({"dataset": "other"}, UnregisteredDatasetError),
        ({"mechanisms": [{"scale": 0.5}]}, AmountError),
        ({"run_id": ["run"]}, LedgerError),
        ({"run_id": None}, LedgerError),
    ],
)
def test_a_refusal_writes_nothing(
    ledger: Ledger, changes: dict[str, Any], kind: type[StatpressError]
) -> None:
    before = ledger.verify()
    with pytest.raises(kind) as caught:
        charge(ledger, **changes)
    assert_plain(caught.value)
    assert ledger.verify() == before
    charge(ledger)
    assert ledger.verify().entries == 2


def test_a_dataset_is_registered_once(ledger: Ledger) -> None:
    with pytest.raises(AlreadyRegisteredError, match="n_records 1000") as caught:
        register(ledger)
    assert_plain(caught.value)
    with pytest.raises(UnregisteredDatasetError, match="other"):
        ledger.account("other")


def test_threads_share_a_ledger(ledger: Ledger) -> None:
    outcomes: list[str] = []

    def spend(worker: int) -> None:
        for number in range(4):
            try:
                charge(ledger, f"run-{worker}-{number}")
                outcomes.append("charged")
            except InsufficientBudgetError:
                outcomes.append("refused")

    threads = [threading.Thread(target=spend, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] * 10 + ["refused"] * 6
    assert ledger.account("census").remaining["epsilon"] == 0


def test_a_reader_does_not_hold_up_a_charge(ledger: Ledger) -> None:
    charge(ledger)
    seen = ledger.entries()
    assert next(seen).kind == "register"
    charge(ledger, "run-2")
    assert len(list(seen)) == 1  # as of the moment reading began
    assert ledger.verify().entries == 3


# --- restoring ------------------------------------------------------------------


def full_history(ledger: Ledger) -> list[Entry]:
    """Entries of every kind."""
    charge(ledger)
    draw(ledger)
    publish(ledger)
    charge(ledger, "run-2")
    void(ledger, "run-2")
    ledger.amend(dataset="census", policy="zcdp", rho="0.5", rho_delta=0, reason="zcdp")
    ledger.checkpoint(KEY)
    return list(ledger.entries())


def test_nothing_is_restored_over_entries(ledger: Ledger, tmp_path: Path) -> None:
    entries = full_history(ledger)
    with Ledger.open(tmp_path / "copy.db") as copy:
        register(copy, "mine")
        before = list(copy.entries())
        for batch in (entries, before, []):
            with pytest.raises(LedgerError, match="holds entries already") as caught:
                copy.restore(iter(batch))
            assert_plain(caught.value)
        assert list(copy.entries()) == before
        charge(copy, dataset="mine")


def test_a_broken_export_restores_nothing(ledger: Ledger, tmp_path: Path) -> None:
    entries = full_history(ledger)
    for index, entry in enumerate(entries):
        body = {**entry.body, "created": "2099-01-01T00:00:00+00:00"}
        changed = [*entries[:index], replace(entry, body=body), *entries[index + 1 :]]
        missing = entries[:index] + entries[index + 1 :]
        for batch in [changed, missing] if entry is not entries[-1] else [changed]:
            with Ledger.open(tmp_path / "copy.db") as copy:
                with pytest.raises(LedgerIntegrityError) as caught:
                    copy.restore(iter(batch))
                assert caught.value.sequence == index + 1
                assert copy.verify() == Verification(0, ZERO_HASH)


# --- how much is read -----------------------------------------------------------


def work_of_acts(path: Path) -> tuple[list[int], list[int]]:
    """Entries that each of six acts needs, and thousands of steps of SQLite's machine it takes."""
    needed: list[int] = []
    steps: list[int] = []

    def count() -> int:
        steps[-1] += 1
        return 0

    with Ledger.open(path) as ledger:
        writer = ledger.store.writer
        event.listen(writer, "connect", lambda raw, _: raw.set_progress_handler(count, 100))
        steps.append(0)
        ledger.checkpoint(KEY)  # the first act also connects
        for run, act in (
            ("new-1", lambda: charge(ledger, "new-1", epsilon="0.1")),
            ("new-1", lambda: charge(ledger, "new-1", epsilon="0.1")),
            ("new-1", lambda: void(ledger, "new-1")),
            ("old-1", lambda: publish(ledger, "old-1")),
            (None, lambda: register(ledger, "other")),
            (None, lambda: ledger.checkpoint(KEY)),
        ):
            needed.append(len(ledger.positions.relevant("census", run)))
            steps.append(0)
            act()
    return needed, steps[1:]


def test_thousands_of_entries_are_charged_like_ten(tmp_path: Path, full: bool) -> None:
    works, more = [], 1000 if full else 300
    for runs in (5, more):
        with new_ledger(tmp_path / f"{runs}.db") as ledger:
            ledger.restore(iter(long_history(runs)))
        works.append(work_of_acts(tmp_path / f"{runs}.db"))
    (few_needed, few_steps), (many_needed, many_steps) = works
    assert few_needed == many_needed
    assert max(many_needed) <= 7
    assert max(many_steps) <= 20  # two thousand steps; a scan of 2,000 rows takes far more
    assert all(abs(many - few) <= 2 for few, many in zip(few_steps, many_steps, strict=True))
    with Ledger.open(tmp_path / f"{more}.db", create=False) as ledger:
        assert ledger.verify().entries == 2 * more + 7
        assert ledger.account("census").spent["epsilon"] == more / 2
