"""The command line: parses, calls, prints. A command is imported when it is called.

So the commands are listed here with their help, which is that of their docstrings. A command ends
when its output is written and all have cleaned up; its exit code says how it went.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, TextIO

from cyclopts import App, CycloptsError, Parameter

COMMANDS = {
    "demo": (
        "demo_command:demo",
        "Release a synthetic file of fifteen columns from real survey data, in a folder of "
        "its own.",
    ),
    "init": (
        "init_command:init",
        "Draft a config from a public description of the columns, or by asking; never reads data.",
    ),
    "validate": (
        "release_commands:validate",
        "Check a config without opening its source.",
    ),
    "plan": (
        "plan_command:plan",
        "Print what a release draws, what it costs and the errors to expect, without the source.",
    ),
    "rehearse": (
        "rehearse_command:rehearse",
        "Press a release of made-up data, to see what it will look like; charges nothing.\n\n"
        "Neither the source nor a ledger is opened. What it makes is NOT PUBLISHABLE, and says so.",
    ),
    "audit": (
        "audit_command:audit",
        "Release made-up data many times, and bound from below what a config's mechanisms give "
        "away.\n\n"
        "Neither the source nor a ledger is opened. It finds faults, and is no proof of privacy.",
    ),
    "run": (
        "release_commands:run",
        "Press a release: count, charge, draw, check, publish.\n\n"
        "Of a config with a section 'series' it releases the period that is named, or all that are "
        "due.",
    ),
    "rerelease": (
        "rerelease_command:rerelease",
        "Release a published bundle anew: derived again, on new data, or with a changed config.",
    ),
    "review": (
        "review_commands:review",
        "List the prepared bundles that wait for a decision or for their publication.",
    ),
    "approve": (
        "review_commands:approve",
        "Approve a prepared bundle, in your name, to the last byte; 'publish' then publishes it.",
    ),
    "reject": (
        "review_commands:reject",
        "Reject a prepared bundle for good; its budget stays spent.",
    ),
    "publish": (
        "review_commands:publish",
        "Publish a prepared bundle that is approved; may be repeated.",
    ),
    "upload": (
        "review_commands:upload",
        "Upload a published bundle to the targets of its config; may be repeated, charges nothing.",
    ),
    "verify": (
        "bundle_commands:verify",
        "Check every file of a bundle against its manifest, its signature and its approval.\n\n"
        "No ledger is needed. Of a folder, a reprint must also follow from what was drawn for its\n"
        "original, and with --home the ledger must know the bundle or its original, the charge "
        "and the\napproval.",
    ),
    "refine": (
        "bundle_commands:refine",
        "Derive better tables from a bundle, without data or ledger; costs no budget.",
    ),
    "query": (
        "bundle_commands:query",
        "Estimate counts, means, shares or quantiles from a bundle's noisy tables; costs no budget."
        "\n\nAnswers never come from the single file of synthetic records. What was not measured is"
        " refused,\nexcept on copies.",
    ),
    "regress": (
        "bundle_commands:regress",
        "Fit least squares to a bundle's noisy tables, by a formula; costs no budget.\n\n"
        "Numbers count as the middle of their cells. How missing values count is stated below the "
        "answer.",
    ),
    "compare": (
        "bundle_commands:compare",
        "Say what changed between two bundles, by the shares of all values; costs no budget.\n\n"
        "Of other figures 'query' and 'regress' have --since.",
    ),
    "series": (
        "bundle_commands:series",
        "Make the page of a series anew, with its figures as CSV, from the bundles of its periods."
        "\n\nNeither source nor ledger is opened. Every publication of a period does the same.",
    ),
    "deploy": (
        "release_commands:deploy",
        "Put work pools and deployments on the Prefect server that PREFECT_API_URL names.\n\n"
        "A pool that exists stays as it is; applying a file again changes nothing.",
    ),
    "doctor": (
        "upkeep_commands:doctor",
        "Check home, ledger, clock, disk and what waits; ends with 73 if something is wrong.",
    ),
    "metrics": (
        "upkeep_commands:metrics",
        "Print the budgets left, what waits and the last upkeep as metrics for Prometheus.",
    ),
    "backup": (
        "upkeep_commands:backup",
        "Back up the ledger, the marks of what drew and the prepared bundles; nothing of a "
        "source.\n\n"
        "Releases may be at work meanwhile. Logs and reports for the curator are left out.",
    ),
    "restore": (
        "upkeep_commands:restore",
        "Restore a backup into a new home and an empty ledger, then verify it.\n\n"
        "Without the newest head, charges that published nothing count as drawn: none is given "
        "back.\nA ledger in a database that was not lost is kept, if it continues the backup.",
    ),
    "tidy": (
        "upkeep_commands:tidy",
        "Remove what the home has kept too long: logs, reports, bundles that are over, folders."
        "\n\nNever the ledger, what the home remembers of it, or a bundle that waits.",
    ),
    "ledger": (
        "ledger_commands:ledger_app",
        "The account of every unit of privacy loss.",
    ),
}


_INTERRUPTED, _READER_GONE, _USAGE = 130, 141, 2


def print_outcome(result: Any) -> None:
    """Print what a command returned.

    Raises:
        UnwrittenResultError: It cannot be written, although the command has done its work.
        BrokenPipeError: Its reader has gone.
        SystemExit: The command found something wrong.
    """
    if result is None:  # cyclopts has printed the help or the version
        return
    from statpress.flows.terminal import show, show_json

    try:
        if result.json:
            show_json(result.facts())
        else:
            report = result.report()
            for part in (report,) if isinstance(report, str) else report:
                show(part)
        _flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise  # the latter is of a file
        from statpress.mechanisms.errors import UnwrittenResultError

        _forget_words()
        raise UnwrittenResultError(
            f"The command has done its work, but its result could not be written to standard "
            f"output: {error.strerror}.",
        ) from error
    if result.exit_code:
        raise SystemExit(result.exit_code)


def status_of(command: Callable[[], object], *, as_json: bool) -> int:
    """Run a command, say what is wrong if it fails, and give its exit code."""
    try:
        try:
            status = _status(command, as_json=as_json)
        except KeyboardInterrupt:
            print("Interrupted. What was charged, if anything, stays spent.", file=sys.stderr)
            status = _INTERRUPTED
        _flush()
    except BrokenPipeError:
        _forget_words()
        return _READER_GONE
    return status


def _status(command: Callable[[], object], *, as_json: bool) -> int:
    try:
        command()
    except CycloptsError:
        return _USAGE  # cyclopts has printed what is wrong
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of which rich makes an end with 1
            raise end.__context__ from None
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception as error:
        from statpress.mechanisms.errors import StatpressError, UnwrittenResultError

        if not isinstance(error, StatpressError):
            raise
        from statpress.flows.terminal import show_error

        show_error(error, as_json=as_json and not isinstance(error, UnwrittenResultError))
        return error.exit_code
    return 0


def leave_at_once(ended: list[int]) -> None:
    """End the process, once it is to end, without freeing one module after the other.

    What is registered with ``atexit`` first is called last: when threads have ended and all others
    have cleaned up. What Python would still do takes a fifth of a command.

    Args:
        ended: Gets the exit code once it is known; without one the process ends as ever.
    """
    atexit.register(_leave, ended)


def _leave(ended: list[int]) -> None:
    if not ended:
        return
    try:
        _flush()
    except OSError:
        return  # Python says so, and changes the code
    os._exit(ended[0])


def _flush() -> None:
    """Write what is buffered."""
    for stream in _streams():
        stream.flush()


def _forget_words() -> None:
    """Let what can no longer be written go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in _streams():
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def _streams() -> list[TextIO]:
    """Output and errors, where they are open; one that was closed from the start is None."""
    return [s for s in (sys.stdout, sys.stderr) if s is not None and not s.closed]


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
    default_parameter=Parameter(negative=""),  # a flag is given or not
    version=_version,
    version_flags=["--version"],
    result_action=print_outcome,
    suppress_keyboard_interrupt=False,  # what is said then is ours
)
for name, (function, text) in COMMANDS.items():
    app.command(f"statpress.flows.cli.{function}", name=name, help=text)


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
