"""Commands that lead from a config to a release: parse, call, return the result."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.cli.options import (
    Dask,
    HomeFolder,
    Json,
    NoOrchestrator,
    Overrides,
    Sign,
    Timings,
    WorkerCount,
    Yes,
    home_of,
    order_of,
    private_key,
)
from flows.cli.result import Result

if TYPE_CHECKING:
    from tasks.execution.run_context import RunContext
    from tasks.release.outcome import Outcome

Seed = Annotated[
    int | None,
    Parameter(name="--insecure-seed", help="Draw from a known seed; never publishable."),
]


def demo(
    *,
    directory: Path = Path("statpress-demo"),
    yes: Yes = False,
    no_orchestrator: NoOrchestrator = False,
    timings: Timings = False,
    json: Json = False,
) -> Result:
    """Release a synthetic file of fifteen columns from real survey data, in a folder of its own.

    Args:
        directory: Folder for data, config, ledger and releases.
    """
    started = time.perf_counter()
    from flows.report.terminal import Progress, confirm
    from flows.runner import open_context, run_release
    from tasks.execution.home import Home

    home = Home(directory.absolute() / "home")
    with (
        Progress(shown=not json) as progress,
        open_context(home, orchestrated=not no_orchestrator, listener=progress) as context,
    ):
        from flows.demo import cost_of_another, next_commands, prepare

        order, known = prepare(directory.absolute(), home)
        planned = time.perf_counter() - started
        if known and not yes:
            confirm(cost_of_another(order, home), "Charge again?")
        outcome = run_release(context, order)
    steps = next_commands(directory, outcome.bundle)
    done = outcome_result(
        json, outcome, context, started, planned if timings else None, {"next": steps}
    )

    def report() -> Iterator[Any]:
        yield from done.report()
        page = directory / outcome.bundle.parent.name / outcome.bundle.name / "report.html"
        yield f"\nLook at {page}, then try"
        yield "\n".join(f"  {step}" for step in steps)

    return Result(json=json, facts=done.facts, report=report)


def validate(config: Path, *, set_: Overrides = None, json: Json = False) -> Result:
    """Check a config without opening its source.

    Args:
        config: The release config.
    """
    from configs.loading import load_order
    from mechanisms.errors import together
    from tasks.plans.foreseen import plan_or_faults
    from tasks.plans.verdicts import warnings

    release = load_order(order_of(config, set_))
    planned, faults = plan_or_faults(release)
    if planned is None or faults:
        raise together(faults)
    cells, said = planned.domain.n_possible, warnings(release, planned)
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


def plan(
    config: Path,
    *,
    compare: bool = False,
    html: Annotated[Path | None, Parameter(name="--html")] = None,
    set_: Overrides = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Print what a release draws, what it costs and the errors to expect, without the source.

    Args:
        config: The release config.
        compare: Show what every mechanism would do for each product.
        html: Write a page for deciding before paying, with the errors at other budgets.
    """
    from configs.planned_order import PlannedOrder
    from flows.report import plan as reports
    from tasks.ledger.budgets import remaining_budget
    from tasks.plans.account_plan import plan_for_account
    from tasks.plans.foreseen import foreseen

    if html is not None:
        from tasks.report.plan_file import check_page

        check_page(html)
    order, place = PlannedOrder.of(order_of(config, set_)), home_of(home)
    remaining = remaining_budget(place, order.release.config.dataset)
    planned = plan_for_account(place, order.release, order.plan)
    stopping = foreseen(order.release, planned)
    written: dict[str, Any] = {}
    if html is not None:
        from flows.report.terminal import Progress
        from tasks.report.plan_file import write_plan_page

        with Progress(shown=not json) as progress:
            write_plan_page(
                html, place, order.release, planned, remaining, stopping, progress.announce
            )
        written = {"page": str(html)}

    def facts() -> dict[str, Any]:
        compared = {"comparison": reports.comparison_facts(planned)} if compare else {}
        stops = {"would_stop": [str(each) for each in stopping]}
        return reports.plan_facts(order.release, planned, remaining) | stops | compared | written

    def report() -> Iterator[Any]:
        yield from reports.plan_report(order.release, planned, remaining)
        yield from (f"A run would stop: {each}" for each in stopping)
        yield from reports.comparison_report(planned) if compare else ()
        if html is not None:
            yield f"Wrote {html}."

    return Result(json=json, facts=facts, report=report)


def run(
    config: Path,
    *,
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

    Args:
        config: The release config.
    """
    started = time.perf_counter()
    from flows.report.terminal import Progress
    from flows.runner import open_context, run_release
    from tasks.execution.workers import Parallel

    written = order_of(config, set_)
    signer = private_key(sign) if sign else None
    parallel = Parallel.of(os.environ, workers, dask)
    with (
        Progress(shown=not json) as progress,
        open_context(
            home_of(home),
            orchestrated=not no_orchestrator,
            listener=progress,
            parallel=parallel,
        ) as context,
    ):
        from configs.planned_order import PlannedOrder
        from tasks.plans.wrong_places import check_places

        order = PlannedOrder.of(written)  # a faulty config need not wait for a server
        check_places(
            context.home, order.release, seeded=insecure_seed is not None, signed=sign is not None
        )
        planned = time.perf_counter() - started
        outcome = run_release(context, order, insecure_seed=insecure_seed, signer=signer)
    return outcome_result(json, outcome, context, started, planned if timings else None)


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
    from flows.report import outcomes as reports
    from tasks.ledger.budgets import remaining_budget

    remaining = remaining_budget(context.home, outcome.dataset)
    spent = None
    if planned is not None:
        total = time.perf_counter() - started
        spent = {"plan beforehand": planned, **context.timings}
        rest = total - sum(spent.values())
        spent |= {"orchestrator, and between steps": rest, "total": total}

    def report() -> Iterator[Any]:
        yield reports.outcome_report(outcome, remaining)
        if spent is not None:
            yield reports.timings_report(spent)

    return Result(
        json=json,
        facts=lambda: reports.outcome_facts(outcome, remaining, spent) | dict(facts or {}),
        report=report,
    )
