"""Whatever touches source or table is sealed: by its code, its files' modes, its process."""

from __future__ import annotations

import ast
import ctypes
import logging
import os
import pickle
import stat
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from acting import DRAWING, raising, run_acting

from statpress.configs.loading import load
from statpress.flows.cli import ledger_commands
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import InternalError
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import (
    BETWEEN_STEPS,
    IN_A_STEP,
    CuratorLog,
    closed,
    guarded,
)
from statpress.tasks.release.ledger_check import read_account
from statpress.tasks.source import scanning
from statpress.tasks.source.aggregates import source_of

ROOT = Path(__file__).parents[2]
PRIVATE_TYPES = {"ContingencyTable", "Run", "Scan", "SourceProfile"}
READERS = {"count", "profile", "scan", "open_source"}
READING = {"aggregates", "scanning", "open_source"}
COUNTING = {"scan_of", "counted_of"}


def unsealed(source: str) -> list[str]:
    """Functions of a module that hold private things and are no step."""
    found = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        sealed = any(
            isinstance(each, ast.Call) and getattr(each.func, "id", "") == "step"
            for each in node.decorator_list
        )
        arguments = [*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs]
        annotations = [a.annotation for a in arguments if a.annotation] + [node.returns]
        types = {
            n.id
            for each in annotations
            if each is not None
            for n in ast.walk(each)
            if isinstance(n, ast.Name)
        }
        reads = {
            n.attr
            for n in ast.walk(node)
            if isinstance(n, ast.Attribute)
            and getattr(n.value, "id", "") in ("aggregates", "scanning")
        }
        if not sealed and (types & PRIVATE_TYPES or reads & READERS):
            found.append(node.name)
    return found


def test_every_function_of_the_pipeline_that_touches_private_things_is_a_step() -> None:
    source = (ROOT / "tasks" / "release" / "steps.py").read_text()
    assert unsealed(source) == []
    twin = source.replace('@step("check counts")\n', "").replace('@step("check input")\n', "")
    assert unsealed(twin) == ["check_input", "check_counts"]


@pytest.fixture(scope="module")
def users() -> dict[Path, set[str]]:
    """What the files of tasks and flows name that have one of the words in their text."""
    return {
        path: {getattr(n, "attr", getattr(n, "id", "")) for n in ast.walk(ast.parse(text))}
        for path in (*(ROOT / "tasks").rglob("*.py"), *(ROOT / "flows").rglob("*.py"))
        for text in [path.read_text()]
        if any(word in text for word in READING | COUNTING)
    }


def test_the_source_is_read_by_the_pipeline_alone(users: dict[Path, set[str]]) -> None:
    readers = [path.name for path, used in users.items() if used & READING]
    assert sorted(readers) == ["aggregates.py", "duckdb.py", "scanning.py"]


def test_only_the_steps_count_the_source_and_no_made_up_run_can_name_it(
    users: dict[Path, set[str]],
) -> None:
    """What counts is given a source; audits and rehearsals give it files that they made up."""
    counting = {p.name: used for p, used in users.items() if used & COUNTING}
    assert counting.keys() == {"steps.py", "audit.py", "made_up.py"}
    assert "source_of" in counting["steps.py"]
    named = counting["audit.py"] | counting["made_up.py"]
    assert not named & {"source_of", "located", "open_ledger", "Home"}


def test_a_table_is_never_pickled() -> None:
    domain = Domain((Integer(name="age", lower=0, upper=9),))
    table = ContingencyTable(domain, np.zeros(1, np.int64), np.ones(1, np.int64))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(table, protocol)


def test_modes_and_spill_files_under_the_widest_umask(agency: Any) -> None:
    seen: dict[str, Any] = {}

    def look() -> None:
        (scratch,) = (agency.home.root / "work").iterdir()
        with scanning.open_source(source_of(load(agency.config)), scratch=scratch) as opened:
            engine = opened.table.get_backend().con
            query = "SELECT current_setting('temp_directory')"
            seen["spills to"] = engine.execute(query).fetchone()[0]
        seen["work"] = stat.S_IMODE(scratch.stat().st_mode)
        seen["root"] = stat.S_IMODE(scratch.parent.stat().st_mode)
        seen["log"] = stat.S_IMODE(agency.inspector.log.path.stat().st_mode)
        seen["scratch"] = str(scratch)

    before = os.umask(0)
    try:
        run_acting(agency, {"check input": look})
    finally:
        os.umask(before)
    assert seen["spills to"] == seen["scratch"]
    assert (seen["work"], seen["root"], seen["log"]) == (0o700, 0o700, 0o600)
    assert not Path(seen["scratch"]).exists()


def test_a_curator_log_is_closed_from_its_first_byte(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = CuratorLog(tmp_path, "run")
        os.close(log.open())
        assert log.path.stat().st_size == 0
        assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
        (tmp_path / "link.log").symlink_to(tmp_path / "elsewhere")
        CuratorLog(tmp_path, "link").write("text")  # a link is not followed
        assert not (tmp_path / "elsewhere").exists()
    finally:
        os.umask(before)


def test_no_process_of_a_run_leaves_its_memory() -> None:
    ask = (
        "import ctypes, resource, sys\n"
        "from statpress.tasks.private_zone.guards import silence_core_dumps\n"
        "if 'silent' in sys.argv: silence_core_dumps()\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE)[1], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    for arguments, expected in ((["silent"], "0 0"), ([], None)):
        done = subprocess.run(
            [sys.executable, "-c", ask, *arguments], capture_output=True, text=True, check=True
        )
        assert expected is None or done.stdout.strip() == expected
        assert expected is not None or done.stdout.strip().endswith(" 1")
    # Its other processes are other programs, and say so for themselves before they do anything.
    for module, name, first in (
        ("release/quality_process", "main", "requests, answers = tasks_of_parent()"),
        ("release/drawing", "main", "tasks, answers = tasks_of_parent()"),
        ("private_zone/workers", "tasks_of_parent", "silence_core_dumps()"),
    ):
        source = (ROOT / "tasks" / f"{module}.py").read_text()
        (main,) = [n for n in ast.parse(source).body if getattr(n, "name", "") == name]
        assert isinstance(main, ast.FunctionDef)
        assert ast.unparse(main.body[1]) == first


def speak(text: str) -> None:
    print(text)
    os.write(1, f"{text}\n".encode())
    os.write(2, f"{text}\n".encode())
    ctypes.CDLL(None).puts(text.encode())  # held back by the C library when it is no terminal
    warnings.warn(text, stacklevel=1)
    logging.getLogger("some.library").critical("%s", text)


def test_channels_are_closed_and_open_again(tmp_path: Path, capfd: Any) -> None:
    log = CuratorLog(tmp_path, "run")
    hooks = sys.unraisablehook, threading.excepthook, warnings.showwarning
    root = logging.getLogger()
    handlers = list(root.handlers)
    guarded(lambda: speak("private"), log, IN_A_STEP)()
    out, err = capfd.readouterr()
    assert "private" not in out + err
    assert log.path.read_text().count("private") == 6
    assert hooks == (sys.unraisablehook, threading.excepthook, warnings.showwarning)
    assert root.handlers == handlers
    with pytest.warns(UserWarning, match="public"):
        speak("public")
    out, err = capfd.readouterr()
    assert (out.count("public"), err.count("public")) in ((3, 1), (2, 1))


def test_two_runs_in_one_process_never_open_each_others_channels(
    tmp_path: Path, capfd: Any
) -> None:
    """The first to come is the first to go; the second still says nothing."""
    entered, left = threading.Event(), threading.Event()
    logs = [CuratorLog(tmp_path, name) for name in ("first", "second")]

    def second() -> None:
        with closed(BETWEEN_STEPS, logs[1].write, logs[1].open):
            entered.set()
            assert left.wait(600)
            os.write(1, b"private")
            print("private")

    thread = threading.Thread(target=second)
    with closed(BETWEEN_STEPS, logs[0].write, logs[0].open):
        thread.start()
        assert entered.wait(600)
    left.set()
    thread.join()
    os.write(1, b"public")
    assert capfd.readouterr().out == "public"


def test_what_a_run_left_is_said_to_the_next_and_by_ledger_show(agency: Any) -> None:
    with pytest.raises(InternalError):
        run_acting(agency, {DRAWING: raising(ArithmeticError())})
    run_id = agency.inspector.log.run_id
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        account = ledger.account("testdata")
    shown = "\n".join(map(str, ledger_commands.account_report(account, read_account(account))))
    assert f"Run {run_id} was charged" in shown and "Its budget stays spent" in shown
    agency.run()
    assert f"Run {run_id} was charged" in agency.inspector.log.path.read_text()
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        account = ledger.account("testdata")
    shown = "\n".join(map(str, ledger_commands.account_report(account, read_account(account))))
    assert run_id not in shown  # it was said; the history has it
