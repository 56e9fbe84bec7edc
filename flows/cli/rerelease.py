"""The command that releases a bundle anew: parses, calls, returns the result."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice

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
    overrides_of,
    private_key,
)
from flows.cli.release import outcome_result
from flows.cli.result import Result

_HOW = Group("How", validator=LimitedChoice(1, 1), help="Give exactly one.")


def rerelease(
    bundle: Path,
    *,
    reprint: Annotated[bool, Parameter(group=_HOW, negative="")] = False,
    renew: Annotated[bool, Parameter(group=_HOW, negative="")] = False,
    revise: Annotated[Path | None, Parameter(group=_HOW)] = None,
    set_: Overrides = None,
    name: str | None = None,
    folder: Path | None = None,
    plan_only: Annotated[bool, Parameter(negative="")] = False,
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
    """
    started = time.perf_counter()
    from configs.order import from_options
    from flows import rerelease as flow
    from flows.report.terminal import Progress, confirm, show
    from tasks.execution.workers import Parallel

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
    from flows.runner import open_context, run_release

    with (
        Progress(shown=not json) as progress,
        open_context(
            place,
            orchestrated=not no_orchestrator,
            listener=progress,
            parallel=parallel,
        ) as context,
    ):
        outcome = run_release(context, proposal.planned, signer=signer)
    return outcome_result(
        json,
        outcome,
        context,
        started,
        planned if timings else None,
        {"plan": proposal.facts()},
    )
