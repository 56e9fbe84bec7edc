"""A run that is told to end, at any moment, leaves no folder behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from command_forks import forked

from statpress.configs.loading import load
from statpress.flows import cli
from statpress.mechanisms.errors import InternalError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.private_zone import folders as claiming
from statpress.tasks.private_zone import guards
from statpress.tasks.release import runs
from statpress.tasks.release.runs import PREPARED, open_run
from statpress.tasks.source import guarding


def terminated(
    agency: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> subprocess.CompletedProcess[str]:
    """What a command that presses says and its exit code, where SIGTERM comes in a step."""
    reached, work, before = agency.folder / "reached", agency.home.root / "work", os.getpid()

    def held(*arguments: Any, **named: Any) -> None:
        assert os.getpid() != before
        assert len(agency.bundles()) == len(list(work.iterdir())) == 1
        reached.touch()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            time.sleep(0.05)

    monkeypatch.setattr(step, held)
    home = ("--home", str(agency.home.root))
    command = ("run", str(agency.config), *home, "--no-orchestrator", "--json")
    done = forked(*command, cwd=agency.folder)
    assert reached.exists(), done
    assert list(work.iterdir()) == []
    return done


def test_a_terminated_run_leaves_no_folder(agency: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done = terminated(agency, monkeypatch, "statpress.flows.release.check_counts")
    assert done.returncode == 130, done
    assert agency.bundles() == []


def test_a_run_terminated_in_the_curators_report_is_published(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agency.replace("publish:", "curator: {report: true}\npublish:")
    step = "statpress.tasks.release.curator_report.true_errors"
    done = terminated(agency, monkeypatch, step)
    assert done.returncode == 0, done
    facts = json.loads(done.stdout)
    assert facts["status"] == "published"
    verify_bundle(agency.releases / "first")
    assert [entry.kind for entry in agency.entries()] == [
        "register",
        "look",
        "charge",
        "draw",
        "publish",
    ]
    log = agency.home.root / "curator" / f"{facts['run_id']}.log"
    assert log.read_text().count("the curator's report was not finished") == 1
    assert not log.with_suffix(".html").exists()


def signalled_at(number: int, work: Callable[[], None]) -> tuple[str, bool]:
    """Work, with SIGTERM before one of the lines that claim and give back a folder.

    Returns:
        The line, or "" if there are fewer; and whether the work was interrupted.
    """
    files = {module.__file__ for module in (runs, claiming, guards, contextlib)}
    lines, hit, before = count(), "", sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal hit
        if frame.f_code.co_filename not in files:
            return None
        if event == "line" and next(lines) == number:
            hit = f"{frame.f_code.co_name}:{frame.f_lineno}"
            os.kill(os.getpid(), signal.SIGTERM)
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return hit, True
    finally:
        sys.settrace(before)
    return hit, False


def left_behind(work: Callable[[], None], *folders: Path) -> list[str]:
    """The lines of the code at which a signal leaves something in the folders.

    A fork tries them all: an exception out of a trace function may leave its mark on the
    interpreter.
    """
    result = folders[0].parent / "lines.json"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGTERM, cli._interrupt)
            result.write_text(json.dumps(list(_lines_that_leave(work, folders))))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    lines: list[str] = json.loads(result.read_text())
    return lines


def _lines_that_leave(work: Callable[[], None], folders: tuple[Path, ...]) -> Iterator[str]:
    for number in count():
        line, interrupted = signalled_at(number, work)
        assert interrupted is bool(line), f"the signal at {line} was lost"
        left = [path for folder in folders for path in folder.iterdir()]
        if not line:
            assert number > 20 and not left
            return
        if left:
            yield line
        for path in left:
            path.rmdir()


def test_a_signal_at_any_line_leaves_no_folder(agency) -> None:
    release = load(agency.config)
    plan = release.plan()
    agency.releases.mkdir()

    def work() -> None:
        with open_run(
            agency.context(),
            release,
            plan,
            reviewed=False,
            insecure_seed=None,
            advance=lambda records: None,
        ) as opened:
            assert opened.work.is_dir() and opened.building.is_dir()

    waiting = agency.home.folder(PREPARED)
    assert left_behind(work, agency.releases, agency.home.folder("work"), waiting) == []


def test_a_broken_twin_whose_signals_do_not_wait_leaves_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "places"
    folder.mkdir()

    def work() -> None:
        with claiming.claims() as claim:
            assert claim(folder / "claimed").is_dir()

    assert left_behind(work, folder) == []
    monkeypatch.setattr(claiming, "uninterrupted", nullcontext)
    assert any(line.startswith("_made") for line in left_behind(work, folder))


def test_an_interruption_inside_a_callback_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ending:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def end() -> None:
        ending = Ending()
        del ending
        while True:
            time.sleep(0.05)

    before = signal.signal(signal.SIGALRM, cli._interrupt)
    monkeypatch.setattr(sys, "unraisablehook", cli._interrupt_again)
    try:
        with pytest.raises(KeyboardInterrupt):
            end()
    finally:
        signal.signal(signal.SIGALRM, before)


class _Told(BaseException):
    """Raised by a handler, as the command line's is."""


def _told(number: int, frame: FrameType | None) -> None:
    raise _Told(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_signal_while_the_engine_counts_is_no_error_of_the_source(
    number: int, swallowed: bool
) -> None:
    """DuckDB makes an error of its own of what the handler raised, and loses it."""

    def count() -> None:
        with contextlib.suppress(_Told):
            signal.raise_signal(number)
        if not swallowed:
            raise RuntimeError("Query interrupted")

    with _handlers(_told), pytest.raises(_Told) as caught:
        guarding.guarded("people.csv", count, lambda error: None)
    assert caught.value.args == (number,)


def test_errors_and_results_without_a_signal_are_as_they_were() -> None:
    def fail() -> None:
        raise RuntimeError("something else")

    with _handlers(_told):
        assert guarding.guarded("people.csv", lambda: 5, lambda error: None) == 5
        with pytest.raises(InternalError, match="Counting failed"):
            guarding.guarded("people.csv", fail, lambda error: None)


@contextlib.contextmanager
def _handlers(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
        assert {signal.getsignal(number) for number in numbers} == {handle}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_every_signal_that_came_is_delivered_once() -> None:
    told: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise _Told

    def nested() -> None:
        with guards.uninterrupted():
            with guards.uninterrupted():
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                    signal.raise_signal(number)
            assert told == []

    with _handlers(handle), pytest.raises(_Told):
        nested()
    assert sorted(told) == [signal.SIGINT, signal.SIGTERM]


def test_a_signal_while_the_handlers_return_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        told.append(number)
        raise _Told

    honest = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        before = honest(number, handler)
        if handler is handle and number not in told:
            signal.raise_signal(number)
        return before

    with _handlers(handle):
        with monkeypatch.context() as patched:
            patched.setattr(guards.signal, "signal", interrupted)
            with pytest.raises(_Told), guards.uninterrupted():
                signal.raise_signal(signal.SIGALRM)
        assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM} == set(told)
