"""Commands that lead from a config to a release, and to deployments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from statpress.flows.cli.options import (
    Dask,
    HomeFolder,
    Json,
    NoOrchestrator,
    Overrides,
    Period,
    Result,
    Sign,
    Timings,
    WorkerCount,
    home_of,
    order_of,
    private_key,
)
from statpress.mechanisms.errors import ConfirmationError

if TYPE_CHECKING:
    from rich.table import Table

    from statpress.configs.loading import PlannedOrder, Release
    from statpress.configs.order import Order
    from statpress.mechanisms.errors import StatpressError
    from statpress.mechanisms.planning.plan import Plan
    from statpress.tasks.private_zone.folders import Home
    from statpress.tasks.private_zone.run_context import RunContext
    from statpress.tasks.release.runs import Outcome

Seed = Annotated[int | None, Parameter(help="Draw from a known seed; never publishable.")]


Again = bool


def validate(
    config: Path, *, period: Period = None, set_: Overrides = None, json: Json = False
) -> Result:
    """Check a config without opening its source.

    Args:
        config: The release config.
    """
    from statpress.configs.loading import load_order
    from statpress.mechanisms.errors import together
    from statpress.tasks.release.foreseen import warnings

    release = load_order(order_of(config, set_, period))
    planned, faults = plan_or_faults(release)
    if faults:
        raise together(faults)
    cells, said = release.domain.n_possible, [] if planned is None else warnings(release, planned)
    facts = {
        "valid": True,
        "config_sha256": release.sha256,
        "cells": str(cells),
        "warnings": said,
    }

    def report() -> Iterator[str]:
        yield f"{config}: valid ({cells:,} cells)."
        yield from (f"warning: {text}" for text in said)

    return Result(json=json, facts=lambda: facts, report=report)


def plan_or_faults(release: Release) -> tuple[Plan | None, list[StatpressError]]:
    """The plan if there is one, and all that would stop a run; opens no data."""
    from statpress.mechanisms.errors import StatpressError
    from statpress.tasks.release.foreseen import foreseen

    if release.frame is None:  # a run finds the size, and so what is to be planned
        return None, foreseen(release, None)
    try:
        plan = release.plan()
    except StatpressError as error:
        return None, [error, *foreseen(release, None)]
    return plan, foreseen(release, plan)


def run(
    config: Path,
    *,
    period: Period = None,
    again: Again = False,
    set_: Overrides = None,
    home: HomeFolder = None,
    no_orchestrator: NoOrchestrator = False,
    timings: Timings = False,
    insecure_seed: Seed = None,
    sign: Sign = None,
    workers: WorkerCount = None,
    dask: Dask = None,
    json: Json = False,
) -> Result:
    """Press a release: count, charge, draw, check, publish.

    Of a config with a section 'series' it releases the period that is named, or all that are due.

    Args:
        config: The release config.
        again: Charge the period once more, which was charged and published nothing.
    """
    from statpress.configs.loading import leaves_period_open
    from statpress.flows.runner import open_context, plain_context, run_due, run_release
    from statpress.flows.terminal import Progress
    from statpress.tasks.private_zone.workers import Parallel

    written, place = order_of(config, set_, period), home_of(home)
    signer = private_key(sign) if sign else None
    parallel = Parallel.of(os.environ, workers, dask)

    def press_one(one: Order, progress: Progress, started: float) -> Result:
        with open_context(
            place, orchestrated=not no_orchestrator, listener=progress, parallel=parallel
        ) as context:
            from statpress.configs.loading import PlannedOrder, load_order

            release = load_order(one)  # a faulty config need not wait for a server
            order: Order | PlannedOrder = one
            if not release.config.privacy.is_from_source:
                order = PlannedOrder(one, release, release.plan())
            seeded, signed = insecure_seed is not None, sign is not None
            check_places(context.home, release, seeded=seeded, signed=signed)
            planned = time.perf_counter() - started if timings else None
            outcome = run_release(
                context, order, again=again, insecure_seed=insecure_seed, signer=signer
            )
        return outcome_result(json, outcome, context, started, planned)

    started = time.perf_counter()
    with Progress(shown=not json) as progress:
        if insecure_seed is not None or again or not leaves_period_open(written):
            return press_one(written, progress, started)
        context = plain_context(place, orchestrated=False, listener=progress)
        results, due = run_due(
            context, written, lambda one, _: press_one(one, progress, time.perf_counter())
        )

    def report() -> Iterator[Any]:
        for each in results:
            yield from each.report()
        yield f"{due.words[:1].upper()}{due.words[1:]}."

    return Result(
        json=json,
        facts=lambda: {
            "released": [each.facts() for each in results],
            "waits": due.waits,
            "then": due.words,
        },
        report=report,
    )


def check_places(home: Home, release: Release, *, seeded: bool, signed: bool = False) -> None:
    """Raise if ledger or source are not there, or the bundle's name is taken; reads no data.

    A run from a known seed gives its bundle another name; with ``signed`` the key is at hand.
    Whether a period of a series has a source and a free name is asked once it is known to be open.

    Raises:
        LedgerError: The ledger cannot be opened.
        SourceError: No file matches the source's path, or there are no credentials for it.
        SigningKeyError: The config's key is not there, or others can use it.
        BundleExistsError: The name is taken.
    """
    from statpress.tasks.ledger.home_ledger import open_ledger
    from statpress.tasks.release.foreseen import key_faults, taken_name
    from statpress.tasks.source.aggregates import source_of
    from statpress.tasks.source.engine import reader_named

    open_ledger(home).close()
    if release.period is None:
        source = source_of(release)
        reader_named(source.engine).check_place(source)
    for fault in () if signed else key_faults(release):
        raise fault
    for error in () if seeded or release.period else taken_name(release):
        raise error


def outcome_result(
    json: bool,
    outcome: Outcome,
    context: RunContext,
    started: float,
    planned: float | None,
    facts: Mapping[str, Any] | None = None,
) -> Result:
    """What came of a run.

    Args:
        json: Which form is asked for.
        outcome: Of the run.
        context: The run.
        started: When the command began, by ``time.perf_counter``.
        planned: Seconds until the release was planned; None if no timings are asked for.
        facts: More facts.
    """
    from statpress.flows import facts as reports
    from statpress.tasks.ledger.home_ledger import remaining_after

    left = remaining_after(context.home, outcome.dataset, outcome.run_id)
    spent = None
    if planned is not None:
        total = time.perf_counter() - started
        spent = {"plan beforehand": planned, **context.timings}
        rest = total - sum(spent.values())
        spent |= {"orchestrator, and between steps": rest, "total": total}

    def report() -> Iterator[Any]:
        yield reports.outcome_report(outcome, left)
        if spent is not None:
            yield timings_report(spent)

    return Result(
        json=json,
        facts=lambda: reports.outcome_facts(outcome, left, spent) | dict(facts or {}),
        report=report,
    )


def confirm(what: str, question: str) -> None:
    """Say what a step costs, and ask.

    Raises:
        ConfirmationError: The answer is not yes, or nobody is there to give it.
    """
    print(what, file=sys.stderr)
    if not (sys.stdin.isatty() and input(f"{question} [y/N] ").strip().lower() in ("y", "yes")):
        raise ConfirmationError("Nothing was charged.")


def deploy(file: Path = Path("deploy/prefect.yaml"), *, json: Json = False) -> Result:
    """Put work pools and deployments on the Prefect server that PREFECT_API_URL names.

    A pool that exists stays as it is; applying a file again changes nothing.

    Args:
        file: Deployments as 'prefect deploy' reads them, and the pools they need.
    """
    from dataclasses import asdict

    from statpress.tasks.orchestration.deployment import apply

    applied = apply(file)

    def report() -> Iterator[str]:
        yield f"Server {applied.api}"
        for kind, found in (("work pool", applied.pools), ("deployment", applied.deployments)):
            for name, change in found.items():
                yield f"  {kind} {name}: {change}"

    return Result(json=json, facts=lambda: asdict(applied), report=report)


def timings_report(timings: dict[str, float]) -> Table:
    """Seconds per step."""
    from statpress.flows.terminal import table

    return table("Timings", ["step", "seconds"], [[k, f"{v:.2f}"] for k, v in timings.items()])
