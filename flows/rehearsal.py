"""The rehearsal of a release: its whole way on made-up data, without source, ledger or charge."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from statpress.configs.loading import PlannedOrder
from statpress.flows.runner import open_context, run_inside
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import keeping_log, new_run_id
from statpress.tasks.private_zone.run_context import Listener, RunContext
from statpress.tasks.private_zone.workers import Parallel, limited_threads
from statpress.tasks.release.made_up import (
    FOLDER,
    Rehearsed,
    check_plan,
    count_made_up,
    draw_made_up,
    make_up_source,
    marked,
    seal_rehearsal,
    write_rehearsal,
)
from statpress.tasks.release.runs import REHEARSAL, open_rehearsal
from statpress.tasks.release.steps import check_products, postprocess, rehearse


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
    release, plan = marked(order.release), order.plan
    for text in check_plan(release, plan):
        context.notify(text)
    with (
        limited_threads(release.config.resources.threads),
        open_rehearsal(context, release, plan, folder, context.listener.advance) as run,
    ):
        rehearse(run, release, plan)
        source = make_up_source(run, release)
        counted = count_made_up(run, release, plan, source)
        drawn = draw_made_up(run, plan, counted)
        products = postprocess(run, plan, drawn)
        write_rehearsal(run, release, plan, products)
        check_products(run, release, plan, products)
        return seal_rehearsal(run, release, plan)
