"""Commands that lead from a config to a release, and to deployments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice, Number

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
    Yes,
    home_of,
    order_of,
    overrides_of,
    private_key,
)
from statpress.mechanisms.errors import ConfirmationError

if TYPE_CHECKING:
    from rich.table import Table

    from statpress.configs.loading import PlannedOrder
    from statpress.configs.order import Order
    from statpress.tasks.private_zone.run_context import RunContext
    from statpress.tasks.release.made_up import Rehearsed
    from statpress.tasks.release.runs import Outcome

Seed = Annotated[int | None, Parameter(help="Draw from a known seed; never publishable.")]


Again = bool


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
    from statpress.flows.runner import open_context, run_release
    from statpress.flows.terminal import Progress
    from statpress.tasks.private_zone.folders import Home

    home = Home(directory.absolute() / "home")
    from statpress.flows.demo import cost_of_another, folder_of_its_own, next_commands, prepare

    with (
        Progress(shown=not json) as progress,
        folder_of_its_own(directory.absolute()),
        open_context(home, orchestrated=not no_orchestrator, listener=progress) as context,
    ):
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


def validate(
    config: Path, *, period: Period = None, set_: Overrides = None, json: Json = False
) -> Result:
    """Check a config without opening its source.

    Args:
        config: The release config.
    """
    from statpress.configs.loading import load_order
    from statpress.mechanisms.errors import together
    from statpress.tasks.release.foreseen import plan_or_faults, warnings

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


def plan(
    config: Path,
    *,
    compare: Annotated[bool, Parameter(negative="--no-compare")] = False,
    html: Path | None = None,
    period: Period = None,
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
    from statpress.configs.loading import PlannedOrder, leaves_period_open, load_order
    from statpress.flows import plan_facts as reports
    from statpress.mechanisms.errors import MemoryLimitError, PolicyMismatchError
    from statpress.tasks.ledger.entries import Loss
    from statpress.tasks.ledger.home_ledger import account_terms, remaining_budget
    from statpress.tasks.release.foreseen import foreseen, plan_for_account
    from statpress.tasks.release.runs import (
        design_in_words,
        lasting_in_words,
        sources_in_words,
    )

    if html is not None:
        from statpress.tasks.release.plan_page import check_page

        check_page(html)
    written, place = order_of(config, set_, period), home_of(home)
    calendar = None
    if leaves_period_open(written):
        from statpress.tasks.release.series_periods import calendar_of

        calendar = calendar_of(place, load_order(written))
        written = written.at_period(str(calendar.first_open))
    order = PlannedOrder.of(written)
    if calendar is None and order.release.config.series is not None:
        from statpress.tasks.release.series_periods import calendar_of

        calendar = calendar_of(place, order.release)
    remaining = remaining_budget(place, order.release.config.dataset, order.release.period_text)
    account = account_terms(place, order.release.config.dataset)
    looks = None if account is None else account.looks_left
    planned = plan_for_account(place, order.release, order.plan)
    stopping = foreseen(order.release, planned)
    if account is not None:
        from statpress.tasks.ledger.rules import check_period, check_terms
        from statpress.tasks.release.ledger_check import terms_of

        try:
            check_terms(account, terms_of(planned.privacy))
            check_period(account, order.release.period_text)
        except PolicyMismatchError as error:
            stopping.append(error)
    page: dict[str, Any] = {}
    if html is not None:
        from statpress.flows.terminal import Progress
        from statpress.tasks.release.plan_page import write_plan_page

        with Progress(shown=not json) as progress:
            write_plan_page(
                html, place, order.release, planned, remaining, stopping, progress.announce
            )
        page = {"page": str(html)}

    def facts() -> dict[str, Any]:
        compared = {"comparison": reports.comparison_facts(planned)} if compare else {}
        stops = {"looks_left": looks, "would_stop": [str(each) for each in stopping]}
        said = reports.plan_facts(order.release, planned, remaining)
        if account is not None and account.has_design:
            said |= {"design": account.design, "design_in_words": account.panel.words}
        if calendar is not None:
            said |= {"series": calendar.facts() | {"planned": str(order.release.period)}}
        return said | stops | compared | page

    def report() -> Iterator[Any]:
        yield from reports.plan_report(order.release, planned, remaining)
        if calendar is not None:
            yield f"Series {calendar.name}, planned here: {order.release.period}."
            yield from calendar.words()
        if account is not None and account.has_design:
            yield design_in_words(account)
        if account is not None and calendar is not None:
            yield lasting_in_words(account, Loss(planned.amounts), str(calendar.first_open))
        if looks is not None:
            yield f"Looks at the data that are left before it has to be reopened: {looks}."
        if account is not None and not account.sources:
            yield sources_in_words(account)
        yield from (f"A run would stop: {each}" for each in stopping)
        yield from reports.comparison_report(planned) if compare else ()
        if html is not None:
            yield f"Wrote {html}."

    short = [each.exit_code for each in stopping if isinstance(each, MemoryLimitError)]
    return Result(json=json, facts=facts, report=report, exit_code=short[0] if short else 0)


def rehearse(
    config: Path,
    *,
    directory: Path | None = None,
    set_: Overrides = None,
    json: Json = False,
) -> Result:
    """Press a release of made-up data, to see what it will look like; charges nothing.

    Neither the source nor a ledger is opened. What it makes is NOT PUBLISHABLE, and says so.

    Args:
        config: The release config.
        directory: Folder for rehearsals; by default 'rehearsals' beside the config.
    """
    from statpress.configs.loading import PlannedOrder
    from statpress.flows.rehearsal import run_rehearsal
    from statpress.flows.terminal import Progress

    order = PlannedOrder.of(order_of(config, set_))
    with Progress(shown=not json) as progress:
        done = run_rehearsal(order, directory, progress)
    return Result(
        json=json,
        facts=lambda: rehearsal_facts(done),
        report=lambda: rehearsal_report(done),
    )


def audit(
    config: Path,
    *,
    runs: Annotated[int, Parameter(validator=Number(gte=100))] = 5000,
    html: Path | None = None,
    set_: Overrides = None,
    insecure_seed: Seed = None,
    json: Json = False,
) -> Result:
    """Release made-up data many times, and bound from below what a config's mechanisms give away.

    Neither the source nor a ledger is opened. It finds faults, and is no proof of privacy.

    Args:
        config: The release config.
        runs: Releases of each of two made-up datasets that differ in one unit.
        html: Write a page with the bounds and the trade-off curves.
    """
    from statpress.configs.loading import PlannedOrder
    from statpress.flows.terminal import Progress, table
    from statpress.tasks.release.audit import (
        HEADINGS,
        NO_PROOF,
        audit_facts,
        audit_page,
        check_found,
        rows,
    )
    from statpress.tasks.release.audit import audit as audited_products
    from statpress.tasks.release.plan_page import check_page, put_page

    if html is not None:
        check_page(html)
    order = PlannedOrder.of(order_of(config, set_))
    with Progress(shown=not json) as progress:
        found = audited_products(
            order.release,
            order.plan,
            runs=runs,
            announce=progress.announce,
            insecure_seed=insecure_seed,
        )
    if html is not None:
        put_page(html, audit_page(order.release, found))
    check_found(found)
    written = {} if html is None else {"page": str(html)}

    def report() -> Iterator[Any]:
        for each in found:
            title = f"{each.product.name}, {each.product.mechanism.name}: {each.verdict}"
            yield table(title, HEADINGS, rows(each))
        yield NO_PROOF
        if html is not None:
            yield f"Wrote {html}."

    return Result(json=json, facts=lambda: audit_facts(found) | written, report=report)


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
            from statpress.tasks.release.foreseen import check_places

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


_HOW = Group("How", validator=LimitedChoice(1, 1), help="Give exactly one.")


def rerelease(
    bundle: Path,
    *,
    reprint: Annotated[bool, Parameter(group=_HOW)] = False,
    renew: Annotated[bool, Parameter(group=_HOW)] = False,
    revise: Annotated[Path | None, Parameter(group=_HOW)] = None,
    set_: Overrides = None,
    name: str | None = None,
    folder: Path | None = None,
    plan_only: bool = False,
    again: Again = False,
    yes: Yes = False,
    home: HomeFolder = None,
    no_orchestrator: NoOrchestrator = False,
    sign: Sign = None,
    workers: WorkerCount = None,
    dask: Dask = None,
    timings: Timings = False,
    json: Json = False,
) -> Result:
    """Release a published bundle anew: derived again, on new data, or with a changed config.

    Args:
        bundle: The bundle's folder.
        reprint: Derive its products again from what was drawn; free, without data or ledger.
        renew: The same config on the data of today; charged as a run of its own.
        revise: A changed config, whose changes are shown first; charged as a run of its own.
        name: Of the new bundle; the same as --set publish.name.
        folder: Where the config's paths are taken from under --renew; by default the folder of
            the bundle's own config if the data is there, else the current one.
        plan_only: Show what it would change and cost, and stop.
        again: Charge it once more, if it is of a period, was charged and published nothing.
    """
    started = time.perf_counter()
    from statpress.configs.order import from_options
    from statpress.flows import rerelease as flow
    from statpress.flows.terminal import Progress, show
    from statpress.tasks.private_zone.workers import Parallel

    parallel = Parallel.of(os.environ, workers, dask)
    options = [*(set_ or ()), *([] if name is None else [f"publish.name={name}"])]
    signer = private_key(sign) if sign else None
    if reprint:
        with Progress(shown=not json) as progress:
            facts = flow.reprint(bundle, from_options(options), progress, signer)
        return Result(json=json, facts=lambda: facts, report=lambda: flow.reprint_report(facts))
    place = home_of(home)
    proposal = flow.propose(bundle, revise, overrides_of(options), folder, place)
    planned = time.perf_counter() - started
    if plan_only:
        return Result(
            json=json,
            facts=lambda: {"plan": proposal.facts()},
            report=lambda: flow.proposal_report(proposal),
        )
    for part in () if json else flow.proposal_report(proposal):
        show(part)  # before the question
    proposal.check(place)
    if not yes:
        confirm(proposal.words, "Charge this?")
    from statpress.flows.runner import open_context, run_release

    with (
        Progress(shown=not json) as progress,
        open_context(
            place,
            orchestrated=not no_orchestrator,
            listener=progress,
            parallel=parallel,
        ) as context,
    ):
        outcome = run_release(context, proposal.planned, again=again, signer=signer)
    return outcome_result(
        json,
        outcome,
        context,
        started,
        planned if timings else None,
        {"plan": proposal.facts()},
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


def rehearsal_facts(done: Rehearsed) -> dict[str, Any]:
    """What a rehearsal made."""
    return {
        "run_id": done.run_id,
        "dataset": done.dataset,
        "status": "rehearsed",
        "bundle": str(done.bundle),
        "publishable": False,
        "charged": False,
        "would_charge": {"epsilon": done.epsilon, "delta": done.delta},
    }


def rehearsal_report(done: Rehearsed) -> str:
    """What a rehearsal made, in a few lines."""
    return (
        f"Rehearsed {done.bundle}\n"
        "  NOT PUBLISHABLE: its data are made up; no source was opened and nothing was charged\n"
        f"  a run would be charged epsilon {done.epsilon}, delta {done.delta}\n"
        f"  look at   {done.bundle / 'report.html'}"
    )


def timings_report(timings: dict[str, float]) -> Table:
    """Seconds per step."""
    from statpress.flows.terminal import table

    return table("Timings", ["step", "seconds"], [[k, f"{v:.2f}"] for k, v in timings.items()])
