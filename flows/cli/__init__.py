"""Command line: parses, calls, prints. A command is imported when it is called."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import Any

from cyclopts import App

from flows.cli.commands import COMMANDS
from flows.cli.ending import leave_at_once, print_outcome, status_of

_YOUNG = 100_000
"""Objects made between two looks for garbage: imports make thousands, and none is garbage."""


def _version() -> str:
    """The version that is installed."""
    from importlib.metadata import version

    return version("statpress")


app = App(
    name="statpress",
    help="The press of a statistical agency: one reviewed YAML file in, a differentially "
    "private release out.",
    help_format="plaintext",
    version=_version,
    version_flags=["--version"],
    result_action=print_outcome,
    suppress_keyboard_interrupt=False,  # what is said then is ours
)
for name, (function, text) in COMMANDS.items():
    app.command(f"flows.cli.{function}", name=name, help=text)


def program() -> None:
    """Entry point of the console script: ``main`` in a process that does nothing else."""
    gc.set_threshold(_YOUNG)
    # A plugin would be shown every value that pydantic validates; to look for some takes as long
    # as to read a config.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    ended: list[int] = []
    leave_at_once(ended)
    ended.append(_run())
    sys.exit(ended[0])


def main() -> None:
    """Run the command of ``sys.argv``; ends by SystemExit where it fails."""
    if status := _run():
        sys.exit(status)


def _run() -> int:
    """Exit code of the command of ``sys.argv``."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again
    return status_of(lambda: app(sys.argv[1:], exit_on_error=False), as_json="--json" in sys.argv)


def _interrupt(number: int, frame: object) -> None:
    """Let a termination clean up as an interruption does."""
    raise KeyboardInterrupt


def _interrupt_again(unraisable: Any) -> None:
    """Repeat an interruption that came inside a callback, from where none gets out."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)
