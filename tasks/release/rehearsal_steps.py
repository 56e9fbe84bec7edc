"""The steps of a rehearsal: those of a release, on a made-up source and without a ledger.

Nothing here is private: the source is made up from the config (tasks.release.made_up), and neither
the config's own source nor a ledger, a key or a target is opened. The noise is that of production.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from statpress.configs.loading import Release
from statpress.mechanisms.domain.contingency_table import Counted
from statpress.mechanisms.errors import OutputNotWritableError
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.ledger.entries import canonical
from statpress.tasks.private_zone.run_context import step
from statpress.tasks.products.product_kind import private_input
from statpress.tasks.release import build as bundle
from statpress.tasks.release import quality_gates as quality
from statpress.tasks.release.build import Released
from statpress.tasks.release.entropy import generator_of_made_up, key_of_choice
from statpress.tasks.release.foreseen import check_memory, check_verdicts
from statpress.tasks.release.made_up import make_up
from statpress.tasks.release.run_places import Run, publish_folder, writing
from statpress.tasks.source.engine import Source
from statpress.tasks.source.scanning import counted_of, kept_profile, scan_of

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


def marked(release: Release) -> Release:
    """The release under a title that says what it is in every page and catalogue, without a DOI."""
    config = release.config
    about = config.about.model_copy(update={"identifier": None})
    title = f"REHEARSAL, NOT PUBLISHABLE: {config.title}"
    return replace(release, config=config.model_copy(update={"title": title, "about": about}))


@step("check plan")
def check_plan(release: Release, plan: Plan) -> list[str]:
    """Refuse what a run would refuse of a plan; returns what else a person should know."""
    check_memory(release, plan)
    return check_verdicts(release, plan)


@step("make up source")
def make_up_source(run: Run, release: Release) -> Source:
    """Write a source as the config describes it, into a folder that is removed afterwards."""
    with _making(run.work):
        return make_up(release, run.work)


@contextmanager
def _making(folder: Path) -> Iterator[None]:
    reason = ""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the disk fails"
    if reason:
        raise OutputNotWritableError(
            f"The made-up source cannot be written ({reason}).",
            where=str(folder),
            next_step="Make room there, or name another folder with the variable TMPDIR.",
        )


@step("count once")
def count_made_up(run: Run, release: Release, plan: Plan, source: Source) -> Counted:
    """Profile and count it as a source is, and judge both by the gates of a run."""
    key, scan = key_of_choice(), scan_of(source, release, plan, run.work)
    if plan.gate is None:
        quality.check_source(run.inspector, release, scan.profile, lambda refused: ())
    else:
        quality.check_size(run.inspector, release, scan.profile)
        kept = kept_profile(source, release, scan, folder=run.work, key=key)
        noise = generator_of_made_up()
        quality.check_noisily(run.inspector, release, kept, plan.gate.mechanism, noise)
    counted = counted_of(source, release, plan, scan, folder=run.work, key=key)
    for table in counted.joint:
        quality.check_table(run.inspector, release, table)
    if counted.coded is not None:
        quality.check_coded(run.inspector, release, counted.coded)
    return counted


@step("draw records")
def draw_made_up(run: Run, plan: Plan, counted: Counted) -> dict[str, Any]:
    """Run the mechanisms, each with a generator of its own."""
    return {
        product.name: product.mechanism.release(
            private_input(product, counted), generator_of_made_up(), run.advance
        )
        for product in plan.products
    }


@step("write bundle")
def write_rehearsal(run: Run, release: Release, plan: Plan, products: Released) -> None:
    """Write all that a bundle has, without a charge."""
    with writing(run, charged=False):
        bundle.write_bundle(run, release, plan, None, {}, products)


@step("seal rehearsal")
def seal_rehearsal(run: Run, release: Release, plan: Plan) -> Rehearsed:
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
