"""Real processes on one ledger: charging at once, and killed at every statement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tasks.ledger import Ledger

ROOT = Path(__file__).parents[2]
WORKERS = 8

COMMON = """
import json, os, signal, sys, time
from pathlib import Path

from mechanisms.errors import AlreadyRegisteredError, InsufficientBudgetError
from tasks.ledger import Ledger

TERMS = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 1000}


def register(ledger):
    return ledger.register(dataset="census", epsilon="1", delta="0.5", **TERMS)


def charge(ledger, run_id):
    return ledger.charge(
        dataset="census", run_id=run_id, epsilon="0.01", delta="1e-9",
        mechanisms=[{"mechanism": "laplace", "scale": "100"}], config_sha256="a" * 64,
        insecure_seed=False, version="0.1.0", **TERMS,
    )
"""

WORKER = """
folder, worker = Path(sys.argv[1]), sys.argv[2]
(folder / f"ready-{worker}").touch()
while not (folder / "go").exists():
    time.sleep(0.001)
ledger = Ledger.open(folder / "ledger.db")
report = {"registered": True, "charged": {}, "refused": 0}
try:
    register(ledger)
except AlreadyRegisteredError:
    report["registered"] = False
report["shared"] = charge(ledger, "shared").hash
for number in range(25):
    run_id = f"run-{worker}-{number}"
    try:
        report["charged"][run_id] = charge(ledger, run_id).hash
    except InsufficientBudgetError as error:
        report["refused"] += 1
        assert error.remaining.epsilon == 0
print(json.dumps(report))
"""

# Forks a child for each step of a history and kills it there; a step is a moment
# before or after a statement, before a commit, or when a connection is given back.
KILLER = """
from sqlalchemy import Engine, Pool, event


def history(path, written, last_step):
    step = 0

    def pass_step(name):
        nonlocal step
        step += 1
        if step == last_step:
            os.write(written, json.dumps({"killed": name}).encode() + b"\\n")
            os.kill(os.getpid(), signal.SIGKILL)

    @event.listens_for(Engine, "before_cursor_execute")
    def before(connection, cursor, statement, *rest):
        pass_step("before " + statement)

    @event.listens_for(Engine, "after_cursor_execute")
    def after(connection, cursor, statement, *rest):
        pass_step("after " + statement)

    @event.listens_for(Engine, "commit")
    def commit(connection):
        pass_step("before COMMIT")

    @event.listens_for(Pool, "checkin")
    def checkin(raw, record):
        pass_step("after the transaction")

    ledger = Ledger.open(path)
    for act in (register, lambda book: charge(book, "run-1"), lambda book: charge(book, "run-2")):
        entry = act(ledger)
        os.write(written, json.dumps({"acknowledged": entry.hash}).encode() + b"\\n")


folder = Path(sys.argv[1])
step, finished = 0, False
while not finished:
    step += 1
    path = folder / f"{step}" / "ledger.db"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            history(path, write, step)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    os.close(write)
    with os.fdopen(read) as lines:
        said = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    finished = os.WIFEXITED(status)
    assert not finished or os.WEXITSTATUS(status) == 0
    with Ledger.open(path) as ledger:
        verified = ledger.verify()
        kept = [entry.hash for entry in ledger.entries()]
        try:
            register(ledger)
        except AlreadyRegisteredError:
            pass
        again = [charge(ledger, run).sequence for run in ("run-1", "run-2", "run-1")]
        spent = str(ledger.account("census").spent.epsilon)
        assert ledger.verify().entries == 3
    print(json.dumps({
        "step": step,
        "killed": next((line["killed"] for line in said if "killed" in line), None),
        "acknowledged": [line["acknowledged"] for line in said if "acknowledged" in line],
        "kept": kept, "entries": verified.entries, "again": again, "spent": spent,
    }))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A Python process that runs the script with the project's packages."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMON + script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def reports(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The JSON lines of a process that ended well."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_processes_at_once_never_overspend_and_lose_nothing(tmp_path: Path) -> None:
    workers = [start(WORKER, str(tmp_path), str(worker)) for worker in range(WORKERS)]
    while len(list(tmp_path.glob("ready-*"))) < WORKERS:
        assert all(worker.poll() is None for worker in workers)
    (tmp_path / "go").touch()  # they race from the making of the file on
    told = [report for worker in workers for report in reports(worker)]

    assert sorted(report["registered"] for report in told) == [False] * (WORKERS - 1) + [True]
    with Ledger.open(tmp_path / "ledger.db", create=False) as ledger:
        account = ledger.account("census")
        chain = {run: charge.entry.hash for run, charge in account.charges.items()}
        assert ledger.verify().entries == 1 + len(chain)
    assert {report["shared"] for report in told} == {chain.pop("shared")}
    assert {run: hash_ for r in told for run, hash_ in r["charged"].items()} == chain
    assert len(chain) == 99  # with the shared one, a hundred times 0.01
    assert sum(report["refused"] for report in told) == WORKERS * 25 - 99
    assert account.spent.epsilon == account.limit.epsilon
    assert account.spent.delta == Decimal("1e-7")


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What was left after a death at each step, and last after a life to the end."""
    return reports(start(KILLER, str(tmp_path_factory.mktemp("deaths"))))


def test_the_deaths_cover_every_statement(deaths: list[dict[str, Any]]) -> None:
    *killed, last = deaths
    assert last["killed"] is None
    assert len(last["acknowledged"]) == 3
    moments = [death["killed"] for death in killed]
    assert None not in moments
    for statement in ("BEGIN IMMEDIATE", "INSERT INTO entries", "CREATE TABLE", "CREATE TRIGGER"):
        for moment in ("before", "after"):
            assert any(m.strip().startswith(f"{moment} {statement}") for m in moments) or any(
                m.startswith(moment) and statement in m for m in moments
            )
    # One schema, one registration, two charges, and the reading at the start.
    assert moments.count("before COMMIT") == 5
    assert moments.count("before BEGIN IMMEDIATE") == 4
    # Some die with a charge on disk that nobody was told of, some without it.
    assert {len(d["kept"]) - len(d["acknowledged"]) for d in killed} == {0, 1}


def test_an_acknowledged_charge_outlives_any_death(deaths: list[dict[str, Any]]) -> None:
    for death in deaths:
        told = death["acknowledged"]
        assert death["kept"][: len(told)] == told, death["killed"]
        assert death["entries"] == len(death["kept"])


def test_repeating_after_any_death_charges_once(deaths: list[dict[str, Any]]) -> None:
    for death in deaths:
        assert death["again"] == [2, 3, 2], death["killed"]
        assert death["spent"] == "0.02", death["killed"]
