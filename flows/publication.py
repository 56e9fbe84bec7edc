"""The publishing flow: one approved bundle in, the same bundle published and uploaded."""

from __future__ import annotations

from flows.uploading import upload_release
from tasks.execution.run_context import RunContext
from tasks.orchestration.monitoring import show_release
from tasks.orchestration.review_notices import show_approval
from tasks.release.outcome import Outcome
from tasks.release.publication import (
    check_approval,
    copy_bundle,
    find_moved,
    move_into_place,
    note_publication,
    open_publication,
)
from tasks.targets.upload import targets_in


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
    place = approved.published
    if place is None:
        with open_publication(home, approved) as building:
            place = find_moved(approved)
            if place is None:
                copy_bundle(approved, building)
                place = move_into_place(approved, building)
    outcome = note_publication(home, approved, place)
    show_release(context, outcome)
    show_approval(context, outcome)
    return upload_release(context, outcome, targets_in(outcome.bundle))
