"""How the program ends: at once, but not before all have cleaned up and its words are written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from statpress.mechanisms.errors import UnwrittenResultError

SCRIPT = Path(sys.executable).with_name("statpress")
CONFIGS = Path(__file__).parents[2] / "configs"
VALID = ["validate", str(CONFIGS / "census2000.yaml")]
WRONG = ["validate", "none.yaml"]
WORK = """
import atexit, os, signal, sys, threading
from statpress.flows.cli import main, program, status_of

class Kept:
    def __del__(self, write=os.write):
        write(1, b"freed ")

def work(command, **options):
    atexit.register(print, "handler")
    main = threading.main_thread()
    threading.Thread(target=lambda: (main.join(), print("thread"))).start()
    print("command")
    return status_of(lambda: {ending}, **options)

import statpress.flows.cli
kept, status_of, statpress.flows.cli.status_of = Kept(), status_of, work
{entry}()
"""


def ended(entry: str, ending: str) -> tuple[int, list[str], str]:
    """Exit code, words and errors of a process whose command ends so."""
    code = WORK.format(entry=entry, ending=ending)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.split(), done.stderr


def environment(unbuffered: str) -> Mapping[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": unbuffered}


@pytest.mark.parametrize(
    ("ending", "status"), [("None", 0), ("sys.exit(0)", 0), ("sys.exit(23)", 23)]
)
def test_threads_and_handlers_end_first(ending: str, status: int) -> None:
    assert ended("program", ending) == (status, ["command", "thread", "handler"], "")


def test_the_rest_is_left_to_the_system() -> None:
    """The twin frees what is left, one object after the other."""
    assert ended("main", "None") == (0, ["command", "thread", "handler", "freed"], "")


def test_an_error_that_nobody_expects_ends_as_python_ends() -> None:
    status, words, errors = ended("program", "1 / 0")
    assert (status, words) == (1, ["command", "thread", "handler", "freed"])
    assert "ZeroDivisionError" in errors


@pytest.mark.parametrize("signalled", ["SIGINT", "SIGTERM"])
def test_an_interrupted_command_says_so(signalled: str) -> None:
    """As it comes out of the command line's own handling of a command."""
    code = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
from statpress.flows.cli import app, program
import sys
sys.argv[1:] = ["wait"]

@app.command
def wait():
    os.kill(os.getpid(), signal.{signalled})
    signal.pause()

program()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "Interrupted. What was charged, if anything, stays spent.\n"


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        pytest.param(["--help"], "", marks=pytest.mark.nightly),
        (VALID, "1"),
        pytest.param([*WRONG, "--json"], "", marks=pytest.mark.nightly),
    ],
)
def test_a_reader_that_has_gone(arguments: list[str], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [SCRIPT, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(unbuffered),
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("arguments", "status", "unbuffered"),
    [
        pytest.param(VALID, 0, "", marks=pytest.mark.nightly),
        ([*WRONG, "--json"], 11, "1"),
        (["--version"], 0, ""),
    ],
)
def test_closed_output(arguments: list[str], status: int, unbuffered: str) -> None:
    command = 'exec "$0" "$@" >&-'
    done = subprocess.run(
        ["sh", "-c", command, SCRIPT, *arguments],
        stderr=subprocess.PIPE,
        env=environment(unbuffered),
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize(
    ("json", "unbuffered"), [pytest.param([], "", marks=pytest.mark.nightly), (["--json"], "1")]
)
def test_a_result_that_finds_no_room_is_an_error_and_the_work_done(
    json: list[str], unbuffered: str
) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [SCRIPT, *VALID, *json],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(unbuffered),
            text=True,
            check=False,
        )
    assert done.returncode == UnwrittenResultError.exit_code
    assert "has done its work" in done.stderr
    assert "Do not repeat a release" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_ends_with_its_code() -> None:
    for arguments, status in ((["--version"], 0), (WRONG, 11), (["no"], 2)):
        done: Any = subprocess.run([SCRIPT, *arguments], capture_output=True, check=False)
        assert done.returncode == status, done.stderr
        assert done.stdout or done.stderr
