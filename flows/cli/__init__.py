"""Command line: parses, calls, prints. A command is imported when it is called."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from typing import Any

from cyclopts import App, CycloptsError

from flows.cli.commands import COMMANDS

_YOUNG = 100_000
"""Objects made between two looks for garbage: imports make thousands, and none is garbage."""


def _version() -> str:
    """The version that is installed."""
    from importlib.metadata import version

    return version("statpress")


def _print(result: Any) -> None:
    """Print what a command returned."""
    if result is not None:  # else cyclopts has printed the help or the version
        from flows.cli.result import print_result

        print_result(result)


app = App(
    name="statpress",
    help="The press of a statistical agency: one reviewed YAML file in, a differentially "
    "private release out.",
    help_format="plaintext",
    version=_version,
    version_flags=["--version"],
    result_action=_print,
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
    # What is registered first is called last: once threads have ended and all others have cleaned
    # up. What Python would still do, to free modules one by one, takes a fifth of a command.
    atexit.register(lambda: ended and _leave(ended[0]))
    try:
        main()
        ended.append(0)
    except SystemExit as end:
        if isinstance(end.code, int):
            ended.append(end.code)
        raise


def _leave(status: int) -> None:
    """End the process at once, unless its last words cannot be written."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # Python says so, and changes the status
    os._exit(status)


def main() -> None:
    """Run the command of ``sys.argv``; ends by SystemExit where it fails."""
    as_json = "--json" in sys.argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _interrupt)
    sys.unraisablehook = _interrupt_again
    try:
        app(sys.argv[1:], exit_on_error=False)
    except CycloptsError:
        sys.exit(2)  # cyclopts has printed what is wrong
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        print("Interrupted. What was charged stays spent.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        from mechanisms.errors import StatpressError

        if not isinstance(error, StatpressError):
            raise
        from flows.report.terminal import show_error

        show_error(error, as_json=as_json)
        sys.exit(error.exit_code)


def _interrupt(number: int, frame: object) -> None:
    """Let a termination clean up as an interruption does."""
    raise KeyboardInterrupt


def _interrupt_again(unraisable: Any) -> None:
    """Repeat an interruption that came inside a callback, from where none gets out."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)
