"""The command ``rehearse``: a whole release on made-up data, without source, ledger or charge.

Its steps are those of a release. Neither the config's own source nor a ledger, a key or a target is
opened. The noise is that of production.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from statpress.configs.loading import PlannedOrder, Release
from statpress.flows.cli.options import Json, Overrides, Result, order_of
from statpress.flows.runner import open_context, run_inside
from statpress.flows.terminal import Progress
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import keeping_log, new_run_id
from statpress.tasks.private_zone.run_context import Listener, RunContext
from statpress.tasks.private_zone.workers import Parallel, limited_threads
from statpress.tasks.release.made_up import (
    Rehearsed,
    check_plan,
    count_made_up,
    draw_made_up,
    make_up_source,
    seal_rehearsal,
    write_rehearsal,
)
from statpress.tasks.release.runs import REHEARSAL, open_rehearsal
from statpress.tasks.release.steps import check_products, postprocess
from statpress.tasks.release.steps import rehearse as rehearse_bundle

FOLDER = "rehearsals"
"""Beside the config, where rehearsals lie unless another folder is named."""


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
    order = PlannedOrder.of(order_of(config, set_))
    with Progress(shown=not json) as progress:
        done = run_rehearsal(order, directory, progress)
    return Result(
        json=json,
        facts=lambda: _facts(done),
        report=lambda: _report(done),
    )


def _facts(done: Rehearsed) -> dict[str, Any]:
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


def _report(done: Rehearsed) -> str:
    """What a rehearsal made, in a few lines."""
    return (
        f"Rehearsed {done.bundle}\n"
        "  NOT PUBLISHABLE: its data are made up; no source was opened and nothing was charged\n"
        f"  a run would be charged epsilon {done.epsilon}, delta {done.delta}\n"
        f"  look at   {done.bundle / 'report.html'}"
    )


def run_rehearsal(order: PlannedOrder, directory: Path | None, listener: Listener) -> Rehearsed:
    """Rehearse a release, always without Prefect.

    Args:
        order: The config, planned.
        directory: For the rehearsal; by default ``rehearsals`` beside the config.
        listener: Who is told of the progress.

    Raises:
        StatpressError: One of its kinds, as a run would raise it.
    """
    folder = order.release.located(FOLDER) if directory is None else directory.absolute()
    with TemporaryDirectory(prefix="statpress-rehearsal-") as root:
        home, run_id = Home(Path(root)), f"{REHEARSAL}{new_run_id()}"
        with (
            keeping_log(home.root / "curator"),
            open_context(
                home, run_id=run_id, orchestrated=False, listener=listener, parallel=Parallel()
            ) as context,
        ):
            return run_inside(context, lambda: _rehearse(context, order, folder))


def _rehearse(context: RunContext, order: PlannedOrder, folder: Path) -> Rehearsed:
    release, plan = _marked(order.release), order.plan
    for text in check_plan(release, plan):
        context.notify(text)
    with (
        limited_threads(release.config.resources.threads),
        open_rehearsal(context, release, plan, folder, context.listener.advance) as run,
    ):
        rehearse_bundle(run, release, plan)
        source = make_up_source(run, release)
        counted = count_made_up(run, release, plan, source)
        drawn = draw_made_up(run, plan, counted)
        products = postprocess(run, plan, drawn)
        write_rehearsal(run, release, plan, products)
        check_products(run, release, plan, products)
        return seal_rehearsal(run, release, plan)


def _marked(release: Release) -> Release:
    """The release under a title that says what it is in every page and catalogue, without a DOI."""
    config = release.config
    about = config.about.model_copy(update={"identifier": None})
    title = f"REHEARSAL, NOT PUBLISHABLE: {config.title}"
    return replace(release, config=config.model_copy(update={"title": title, "about": about}))
