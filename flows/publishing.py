"""The flows after a release: publishing an approved bundle, and uploading a published one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from statpress.mechanisms.errors import UploadError
from statpress.tasks.orchestration.lineage import tell_publication
from statpress.tasks.orchestration.monitoring import name_publication, show_approval, show_release
from statpress.tasks.private_zone.guards import is_interruption
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.review import (
    check_approval,
    copy_bundle,
    find_moved,
    move_into_place,
    note_publication,
    open_publication,
)
from statpress.tasks.release.run_places import Outcome, Uploaded
from statpress.tasks.release.series_periods import refresh_page
from statpress.tasks.uploads.upload import read_targets, targets_in, upload

if TYPE_CHECKING:
    from statpress.configs.upload_targets import Target


def upload_release(
    context: RunContext,
    outcome: Outcome,
    targets: Sequence[Target],
    *,
    told_to_end: bool = False,
) -> Outcome:
    """Upload a release that was just published; without targets nothing happens.

    Args:
        context: The run that published it.
        outcome: What it published.
        targets: Those of its config.
        told_to_end: Whether the run was told to end after it had published; then nothing is
            uploaded.

    Raises:
        UploadError: A target failed, or the run was told to end before all of them had the bundle.
        StatpressError: One of its kinds. The release stands, whatever a target does.
    """
    if not targets:
        return outcome
    if not outcome.publishable:
        context.notify("A bundle that is NOT PUBLISHABLE is not uploaded.")
        return outcome
    uploads = None
    if not told_to_end:
        try:
            uploads = upload(context.home, outcome.bundle, targets)
        except BaseException as error:
            if not is_interruption(error):
                raise
    if uploads is None:
        raise UploadError(
            "The run was told to end before all uploads were done; the bundle is published.",
            next_step=f"Then run 'statpress upload {outcome.bundle}'.",
        )
    return replace(outcome, uploads=uploads)


def upload_again(context: RunContext, bundle: Path, config: Path | None) -> tuple[Uploaded, ...]:
    """Upload a published bundle by itself; again, it changes nothing.

    Args:
        context: The run; its home has the ledger that published the bundle.
        bundle: Its folder.
        config: Names the targets in place of the bundle's own config.

    Raises:
        StatpressError: One of its kinds; ``UploadError`` where a target fails.
    """
    return upload(context.home, bundle, read_targets(bundle, config))


def publish(context: RunContext, run_id: str) -> Outcome:
    """Publish the prepared and approved bundle of a run; again, it changes nothing.

    Args:
        context: The run that publishes; its home has the ledger and the prepared bundles.
        run_id: The run that prepared the bundle.

    Raises:
        StatpressError: One of its kinds; ``ApprovalError`` unless the bundle is approved
            and to the last byte the one that was, ``UploadError`` where a target fails.
    """
    home = context.home
    approved = check_approval(home, run_id)
    name_publication(context, approved.charge.entry.body["dataset"], run_id)
    place = approved.published
    if place is None:
        with open_publication(home, approved) as building:
            place = find_moved(approved)
            if place is None:
                copy_bundle(approved, building)
                place = move_into_place(approved, building)
    outcome = note_publication(home, approved, place)
    told_to_end = refresh_page(context, outcome.bundle)
    show_release(context, outcome)
    show_approval(context, outcome)
    tell_publication(context, outcome)
    targets = targets_in(outcome.bundle)
    return upload_release(context, outcome, targets, told_to_end=told_to_end)
