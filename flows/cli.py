"""Command line: parses, calls, prints. Heavy packages are imported where used."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from flows.ledger_cli import HomeFolder, Json, home_of, ledger_app
from mechanisms.errors import ConfirmationError, StatpressError

if TYPE_CHECKING:
    from flows.conduct import Session

app = App(
    name="statpress",
    help="The press of a statistical agency: one reviewed YAML file in, a differentially "
    "private release out.",
    version_flags=["--version"],
    result_action="return_value",
)
app.command(ledger_app)

NoOrchestrator = Annotated[
    bool, Parameter(name="--no-orchestrator", negative="", help="Run without Prefect.")
]
Timings = Annotated[
    bool, Parameter(name="--timings", negative="", help="Print where the time went.")
]
Seed = Annotated[
    int | None,
    Parameter(name="--insecure-seed", help="Draw from a known seed; never publishable."),
]
Yes = Annotated[
    bool, Parameter(name=["--yes", "-y"], negative="", help="Do not ask before charging again.")
]
Consistent = Annotated[
    bool,
    Parameter(
        name="--consistent",
        negative="",
        help="Make the tables agree on every marginal they share; lists every cell, at most "
        "10,000,000 in a table.",
    ),
]
Integers = Annotated[
    bool,
    Parameter(
        name="--integers",
        negative="",
        help="Round to integers that add up to the number of records, absent ones left out.",
    ),
]
Products = Annotated[
    list[str] | None,
    Parameter(
        name="--products",
        consume_multiple=True,
        negative="",
        help="Names of products; by default all whose counts are published.",
    ),
]


@app.command
def demo(
    *,
    directory: Path = Path("statpress-demo"),
    yes: Yes = False,
    no_orchestrator: NoOrchestrator = False,
    timings: Timings = False,
    json: Json = False,
) -> None:
    """Release a synthetic file from real census microdata, in a folder of its own.

    Args:
        directory: Folder for data, config, ledger and releases.
    """
    started = time.perf_counter()
    from flows.conduct import session
    from tasks.home import Home

    home = Home(directory.absolute() / "home")
    with session(home) as opened:
        from flows.demo import prepare

        config, known = prepare(directory.absolute(), home)
        if known and not yes:
            _confirm(config, home)
        _press(opened, config, no_orchestrator, None, timings, json, started)


@app.command
def validate(config: Path, *, json: Json = False) -> None:
    """Check a config without opening its source.

    Args:
        config: The release config.
    """
    from configs.loading import load
    from flows.terminal import show, show_json

    release = load(config)
    plan = release.plan()
    facts = {"valid": True, "config_sha256": release.sha256, "cells": str(plan.domain.n_possible)}
    show_json(facts) if json else show(f"{config}: valid ({plan.domain.n_possible:,} cells).")


@app.command
def plan(
    config: Path, *, compare: bool = False, home: HomeFolder = None, json: Json = False
) -> None:
    """Print what a release will draw, cost and err by, without opening its source.

    Args:
        config: The release config.
        compare: Show what every mechanism would do for each product.
    """
    from configs.loading import load
    from flows import plan_report as reports
    from flows.terminal import show, show_json
    from tasks.pipeline import remaining_budget

    release = load(config)
    planned = release.plan()
    remaining = remaining_budget(home_of(home), release.config.dataset)
    if json:
        facts = reports.plan_facts(release, planned, remaining)
        show_json(facts | ({"comparison": reports.comparison_facts(planned)} if compare else {}))
        return
    for part in reports.plan_report(release, planned, remaining):
        show(part)
    for part in reports.comparison_report(planned) if compare else ():
        show(part)


@app.command
def run(
    config: Path,
    *,
    home: HomeFolder = None,
    no_orchestrator: NoOrchestrator = False,
    timings: Timings = False,
    insecure_seed: Seed = None,
    json: Json = False,
) -> None:
    """Press a release: count, charge, draw, check, publish.

    Args:
        config: The release config.
    """
    started = time.perf_counter()
    from flows.conduct import session

    with session(home_of(home)) as opened:
        _press(opened, config, no_orchestrator, insecure_seed, timings, json, started)


@app.command
def verify(bundle: Path, *, home: HomeFolder = None, json: Json = False) -> None:
    """Check every file of a bundle against its manifest, without the ledger.

    With --home also check that the ledger knows the bundle and its charge.

    Args:
        bundle: The bundle's folder.
    """
    from flows.terminal import show, show_json
    from tasks.manifest import verify_bundle

    manifest = verify_bundle(bundle)
    if home is not None:
        from tasks.ledger_check import check_bundle

        check_bundle(home_of(home), bundle, manifest)
    if json:
        show_json({"verified": True, "against_ledger": home is not None, **manifest})
        return
    mark = "" if manifest["publishable"] else " It is NOT PUBLISHABLE (known seed)."
    show(f"{bundle}: {len(manifest['files'])} files, all as the manifest says.{mark}")


@app.command
def refine(
    bundle: Path,
    *,
    output: Path,
    consistent: Consistent = False,
    integers: Integers = False,
    products: Products = None,
    format: Literal["parquet", "csv"] = "parquet",
    json: Json = False,
) -> None:
    """Derive better tables from a bundle, without data or ledger; costs no budget.

    Args:
        bundle: The bundle's folder.
        output: A new folder for the tables, beside the bundle.
        format: Of the tables.
    """
    from flows import reports
    from flows.terminal import Progress, show, show_json
    from tasks.refining import Options
    from tasks.refining import refine as refined

    options = Options(
        consistent=consistent,
        integers=integers,
        products=None if products is None else tuple(products),
        format=format,
    )
    with Progress(shown=not json) as progress:
        facts = refined(bundle, output, options, progress.announce)
    if json:
        show_json({"output": str(output), **facts})
    else:
        for part in reports.refinement_report(output, facts):
            show(part)


@app.command
def deploy(file: Path = Path("deploy/prefect.yaml"), *, json: Json = False) -> None:
    """Put work pools and deployments on the Prefect server that PREFECT_API_URL names.

    A pool that exists stays as it is; applying a file again changes nothing.

    Args:
        file: Deployments as 'prefect deploy' reads them, and the pools they need.
    """
    from dataclasses import asdict

    from flows.deployment import apply
    from flows.terminal import show, show_json

    applied = apply(file)
    if json:
        show_json(asdict(applied))
        return
    show(f"Server {applied.api}")
    for kind, became in (("work pool", applied.pools), ("deployment", applied.deployments)):
        for name, fate in became.items():
            show(f"  {kind} {name}: {fate}")


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
        from flows.terminal import show_error

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


def _press(
    opened: Session,
    config: Path,
    no_orchestrator: bool,
    insecure_seed: int | None,
    timings: bool,
    as_json: bool,
    started: float,
) -> None:
    """Run the flow with progress, then say what came of it."""
    from configs.loading import load
    from flows import reports
    from flows.terminal import Progress, show, show_json
    from tasks.pipeline import remaining_budget

    load(config).plan()  # a faulty config need not wait for a server
    with Progress(shown=not as_json) as progress:
        opened.announce, opened.advance = progress.announce, progress.advance
        opened.tell = progress.tell
        outcome = opened.run(config, orchestrated=not no_orchestrator, insecure_seed=insecure_seed)
    remaining = remaining_budget(opened.home, outcome.dataset)
    spent = opened.timings | {"total": time.perf_counter() - started}
    if as_json:
        show_json(reports.outcome_facts(outcome, remaining, spent if timings else None))
        return
    show(reports.outcome_report(outcome, remaining))
    if timings:
        show(reports.timings_report(spent))


def _confirm(config: Path, home: Any) -> None:
    """Say what running again costs, and ask."""
    from configs.loading import load
    from tasks.pipeline import remaining_budget

    release = load(config)
    planned = release.plan()
    remaining = remaining_budget(home, release.config.dataset)
    print(
        f"The demo was set up before. Running it again charges epsilon {planned.epsilon:f}, "
        f"delta {planned.delta} of the remaining {remaining}.",
        file=sys.stderr,
    )
    if not (sys.stdin.isatty() and input("Charge again? [y/N] ").strip().lower() in ("y", "yes")):
        raise ConfirmationError("Nothing was charged.")
