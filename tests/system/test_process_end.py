"""How the program ends: at once, but not before everybody has cleaned up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("statpress")
WORK = """
import atexit, sys, threading
from flows import cli

class Kept:
    def __del__(self):
        print("freed")

def work():
    atexit.register(print, "handler")
    main = threading.main_thread()
    threading.Thread(target=lambda: (main.join(), print("thread"))).start()
    print("command")
    {ending}

kept, cli.main = Kept(), work
cli.{entry}()
"""


def ended(entry: str, ending: str) -> tuple[int, list[str]]:
    """Exit code and output of a process whose command ends so."""
    code = WORK.format(entry=entry, ending=ending)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.split()


@pytest.mark.parametrize(
    ("ending", "status"), [("pass", 0), ("sys.exit(0)", 0), ("sys.exit(66)", 66)]
)
def test_threads_and_handlers_end_first(ending: str, status: int) -> None:
    assert ended("program", ending) == (status, ["command", "thread", "handler"])


def test_the_rest_is_left_to_the_system() -> None:
    """The twin frees what is left, one object after the other."""
    assert ended("main", "pass") == (0, ["command", "thread", "handler", "freed"])


def test_an_error_that_nobody_expects_ends_as_python_ends() -> None:
    assert ended("program", "1 / 0") == (1, ["command", "thread", "handler", "freed"])


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_words_that_cannot_be_written_are_an_error(stream: str) -> None:
    arguments = ["--version"] if stream == "stdout" else ["no-such-command"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([SCRIPT, *arguments], check=False, **{stream: full})
    assert done.returncode != 0


def test_a_command_ends_with_its_code() -> None:
    for arguments, status in ((["--version"], 0), (["validate", "none.yaml"], 11), (["no"], 2)):
        done = subprocess.run([SCRIPT, *arguments], capture_output=True, check=False)
        assert done.returncode == status, done.stderr
        assert done.stdout or done.stderr
