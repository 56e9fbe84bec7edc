"""Command line: parses, calls, prints. Heavy packages are imported where they are used."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any

from cyclopts import App, CycloptsError

from flows.cli import bundle, deployment, release, review
from flows.cli.init import init
from flows.cli.rerelease import rerelease
from flows.cli.result import print_result
from mechanisms.errors import StatpressError


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
    result_action=print_result,
)
for command in (
    *(release.demo, init, release.validate, release.plan, release.run, rerelease),
    *(review.review, review.approve, review.reject, review.publish),
    *(bundle.verify, bundle.refine, bundle.query, deployment.deploy),
):
    app.command(command)
app.command(
    "flows.cli.ledger:ledger_app", name="ledger", help="The account of every unit of privacy loss."
)


def main() -> None:
    """Entry point of the console script."""
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
    except StatpressError as error:
        from flows.report.terminal import show_error

        show_error(error, as_json=as_json)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # whoever read the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except KeyboardInterrupt:
        print("Interrupted. What was charged stays spent.", file=sys.stderr)
        sys.exit(130)


def _interrupt(number: int, frame: object) -> None:
    """Let a termination clean up as an interruption does."""
    raise KeyboardInterrupt


def _interrupt_again(unraisable: Any) -> None:
    """Repeat an interruption that came inside a callback, from where none gets out."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(unraisable)
