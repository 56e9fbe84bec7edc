"""The command ``rehearse``: a whole release on made-up data, without source, ledger or charge.

Its steps are those of a release. Neither the config's own source nor a ledger, a key or a target is
opened. The noise is that of production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from statpress.configs.loading import PlannedOrder, Release
from statpress.flows.cli.options import Json, Overrides, Result, order_of
from statpress.flows.runner import open_context, run_inside
from statpress.flows.terminal import Progress
from statpress.mechanisms.errors import OutputNotWritableError
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.ledger.entries import canonical
from statpress.tasks.private_zone.folders import Home, claims, remove_abandoned
from statpress.tasks.private_zone.guards import keeping_log, new_run_id
from statpress.tasks.private_zone.run_context import Listener, RunContext, step
from statpress.tasks.private_zone.workers import Parallel, limited_threads
from statpress.tasks.release import build as bundle
from statpress.tasks.release.build import Released
from statpress.tasks.release.foreseen import check_memory, check_verdicts
from statpress.tasks.release.made_up import count_made_up, draw_made_up, make_up_source
from statpress.tasks.release.runs import (
    BUILDING,
    REHEARSAL,
    Run,
    check_space,
    make_directory,
    publish_folder,
    stamped_name,
    writing,
)
from statpress.tasks.release.steps import check_products, postprocess
from statpress.tasks.release.steps import rehearse as rehearse_bundle
from statpress.tasks.source.engine import Snapshot

FOLDER = "rehearsals"
"""Beside the config, where rehearsals lie unless another folder is named."""


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What a rehearsal leaves behind; public.

    Attributes:
        run_id: Its id, which no ledger knows.
        dataset: The account that a run would charge.
        bundle: Where it lies.
        epsilon: What a run would be charged, as decimal text.
        delta: What a run would be charged.
    """

    run_id: str
    dataset: str
    bundle: Path
    epsilon: str
    delta: str


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
    for text in _check_plan(release, plan):
        context.notify(text)
    with (
        limited_threads(release.config.resources.threads),
        _open_rehearsal(context, release, plan, folder, context.listener.advance) as run,
    ):
        rehearse_bundle(run, release, plan)
        source = make_up_source(run, release)
        counted = count_made_up(run, release, plan, source)
        drawn = draw_made_up(run, plan, counted)
        products = postprocess(run, plan, drawn)
        _write_rehearsal(run, release, plan, products)
        check_products(run, release, plan, products)
        return _seal_rehearsal(run, release, plan)


@contextmanager
def _open_rehearsal(
    context: RunContext,
    release: Release,
    plan: Plan,
    directory: Path,
    advance: Callable[[int], None],
) -> Iterator[Run]:
    """Claim the places of a rehearsal, whose bundle never lies where releases do."""
    home, run_id = context.home, context.run_id
    publishing, real = release.located(release.config.publish.directory), directory.resolve()
    if publishing.resolve() in (real, *real.parents):
        raise OutputNotWritableError(
            "A rehearsal does not go into the publishing directory.",
            where=str(directory),
            next_step="Name another folder with --directory.",
        )
    with claims() as claim:
        work = claim(home.folder("work") / run_id)
        make_directory(directory, home)
        remove_abandoned(directory, BUILDING)
        check_space(directory, work, plan, len(release.config.publish.formats))
        yield Run(
            context=context,
            reviewed=False,
            insecure_seed=None,
            work=work,
            building=claim(directory / f"{BUILDING}{run_id}"),
            target=directory / f"{stamped_name(release, run_id)}-NOT-PUBLISHABLE",
            advance=advance,
            snapshot=Snapshot(work),
            rehearsal=True,
        )


def _marked(release: Release) -> Release:
    """The release under a title that says what it is in every page and catalogue, without a DOI."""
    config = release.config
    about = config.about.model_copy(update={"identifier": None})
    title = f"REHEARSAL, NOT PUBLISHABLE: {config.title}"
    return replace(release, config=config.model_copy(update={"title": title, "about": about}))


@step("check plan")
def _check_plan(release: Release, plan: Plan) -> list[str]:
    """Refuse what a run would refuse of a plan; returns what else a person should know."""
    check_memory(release, plan)
    return check_verdicts(release, plan)


@step("write bundle")
def _write_rehearsal(run: Run, release: Release, plan: Plan, products: Released) -> None:
    """Write all that a bundle has, without a charge."""
    with writing(run, charged=False):
        bundle.write_bundle(run, release, plan, None, {}, products)


@step("seal rehearsal")
def _seal_rehearsal(run: Run, release: Release, plan: Plan) -> Rehearsed:
    """Seal it as what it is, unsigned, and move it into place."""
    with writing(run, charged=False):
        bundle.seal_bundle(run, release, None)
        place = publish_folder(run.building, run.target, run.run_id)
    return Rehearsed(
        run_id=run.run_id,
        dataset=release.config.dataset,
        bundle=place,
        epsilon=canonical(plan.epsilon),
        delta=canonical(plan.delta),
    )
