"""Pressing a release from the command line: the run, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from configs.order import Order
    from flows.runner import Session


def press_order(
    opened: Session,
    order: Order,
    *,
    started: float,
    orchestrated: bool = True,
    insecure_seed: int | None = None,
    timings: bool = False,
    as_json: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Run the flow with progress, then say what came of it.

    Args:
        opened: The session.
        order: The config, and what differs from it.
        started: When the command began.
        orchestrated: Whether as a Prefect flow.
        insecure_seed: For tests alone.
        timings: Whether to say where the time went.
        as_json: Whether to say all as one JSON object.
        facts: What that object holds besides.
    """
    from configs.loading import load_order
    from flows.report import outcomes as reports
    from flows.report.terminal import Progress, show, show_json
    from tasks.release.steps import remaining_budget

    load_order(order).plan()  # a faulty config need not wait for a server
    planned = time.perf_counter() - started
    with Progress(shown=not as_json) as progress:
        opened.announce, opened.advance = progress.announce, progress.advance
        opened.tell = progress.tell
        outcome = opened.run(order, orchestrated=orchestrated, insecure_seed=insecure_seed)
    remaining = remaining_budget(opened.home, outcome.dataset)
    spent = {
        "plan beforehand": planned,
        **opened.timings,
        "total": time.perf_counter() - started,
    }
    if as_json:
        told = reports.outcome_facts(outcome, remaining, spent if timings else None)
        show_json(told | dict(facts or {}))
        return
    show(reports.outcome_report(outcome, remaining))
    if timings:
        show(reports.timings_report(spent))
