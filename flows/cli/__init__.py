"""Command line: parses, calls, prints. Heavy packages are imported where used."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter

from flows.cli import review as review_cli
from flows.cli.ledger import HomeFolder, Json, home_of, ledger_app
from flows.cli.rerelease import NoOrchestrator, Overrides, Timings, Yes, order_of, rerelease
from mechanisms.errors import StatpressError


def _version() -> str:
    """The version that is installed."""
    from importlib.metadata import version

    return version("statpress")


app = App(
    name="statpress",
    help="The press of a statistical agency: one reviewed YAML file in, a differentially "
    "private release out.",
    version=_version,
    version_flags=["--version"],
    result_action="return_value",
)
app.command(ledger_app)
app.command(rerelease)
review_cli.register(app)

Seed = Annotated[
    int | None,
    Parameter(name="--insecure-seed", help="Draw from a known seed; never publishable."),
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
    from configs.order import Order
    from flows.pressing import press_order
    from flows.report.terminal import confirm
    from flows.runner import session
    from tasks.execution.home import Home

    home = Home(directory.absolute() / "home")
    with session(home) as opened:
        from flows.demo import cost_of_another, prepare

        config, known = prepare(directory.absolute(), home)
        if known and not yes:
            confirm(cost_of_another(config, home), "Charge again?")
        press_order(
            opened,
            Order(config),
            started=started,
            orchestrated=not no_orchestrator,
            timings=timings,
            as_json=json,
        )


@app.command
def validate(config: Path, *, set_: Overrides = None, json: Json = False) -> None:
    """Check a config without opening its source.

    Args:
        config: The release config.
    """
    from configs.loading import load_order
    from flows.report.terminal import show, show_json

    release = load_order(order_of(config, set_))
    plan = release.plan()
    facts = {"valid": True, "config_sha256": release.sha256, "cells": str(plan.domain.n_possible)}
    show_json(facts) if json else show(f"{config}: valid ({plan.domain.n_possible:,} cells).")


@app.command
def plan(
    config: Path,
    *,
    compare: bool = False,
    set_: Overrides = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Print what a release will draw, cost and err by, without opening its source.

    Args:
        config: The release config.
        compare: Show what every mechanism would do for each product.
    """
    from configs.loading import load_order
    from flows.report import plan as reports
    from flows.report.terminal import show, show_json
    from tasks.release.steps import remaining_budget

    release = load_order(order_of(config, set_))
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
    set_: Overrides = None,
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
    from flows.pressing import press_order
    from flows.runner import session

    order = order_of(config, set_)
    with session(home_of(home)) as opened:
        press_order(
            opened,
            order,
            started=started,
            orchestrated=not no_orchestrator,
            insecure_seed=insecure_seed,
            timings=timings,
            as_json=json,
        )


@app.command
def verify(
    bundle: Path,
    *,
    public_key: list[Path] | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Check every file of a bundle against its manifest, and its approval, without the ledger.

    Of a reprint also check that it follows from what was drawn for its original. With --home
    also check that the ledger knows the bundle, or the original, its charge and its approval.

    Args:
        bundle: The bundle's folder.
        public_key: PEM file of a trusted officer's key; one of them must have approved it.
    """
    from flows.report import outcomes as reports
    from flows.report.terminal import show, show_json
    from tasks.bundle.approval import approved_by
    from tasks.bundle.manifest import verify_bundle
    from tasks.ledger_rules.signing import read_public_key

    manifest = verify_bundle(bundle)
    approval = approved_by(bundle, manifest, [read_public_key(path) for path in public_key or []])
    rederived = None
    if manifest.get("reprint_of"):
        from tasks.derivation.reprint import check_reprint

        rederived = check_reprint(bundle)
    if home is not None:
        from tasks.release.ledger_check import check_bundle

        check_bundle(home_of(home), bundle, manifest)
    if json:
        facts = {"approval": reports.decision_facts(approval)} if approval else {}
        checks = {"against_ledger": home is not None, "rederived": rederived}
        show_json({"verified": True, **checks, **facts, **manifest})
        return
    mark = "" if manifest["publishable"] else " It is NOT PUBLISHABLE (known seed)."
    if rederived is not None:
        mark = f" A reprint of what was drawn for {manifest['reprint_of']['seal']}.{mark}"
        if not rederived:
            mark += " Its estimates, by other versions, were not derived again."
    show(f"{bundle}: {len(manifest['files'])} files, all as the manifest says.{mark}")
    if home is not None:
        show("The ledger has the charge for it.")
    if approval:
        show(reports.decision_report(approval))


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
    from flows.report import outcomes as reports
    from flows.report.terminal import Progress, show, show_json
    from tasks.derivation.refine import Options
    from tasks.derivation.refine import refine as refined

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

    from flows.report.terminal import show, show_json
    from tasks.orchestration.deployment import apply

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
