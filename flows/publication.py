"""The publishing flow: one approved bundle in, the same bundle published."""

from __future__ import annotations

from tasks.execution.home import Home
from tasks.orchestration.monitoring import show_bundle
from tasks.release.publication import (
    check_approval,
    copy_bundle,
    find_moved,
    move_into_place,
    note_publication,
    open_publication,
)
from tasks.release.steps import Outcome


def publish(run_id: str, *, home: Home) -> Outcome:
    """Publish the prepared and approved bundle of a run; again, it changes nothing.

    Args:
        run_id: The run that prepared it.
        home: Where ledger and prepared bundles lie.

    Raises:
        StatpressError: One of its kinds; ``ApprovalError`` unless the bundle is approved
            and to the last byte the one that was.
    """
    approved = check_approval(home, run_id)
    place = approved.published
    if place is None:
        with open_publication(home, approved) as building:
            place = find_moved(approved)
            if place is None:
                copy_bundle(approved, building)
                place = move_into_place(approved, building)
    outcome = note_publication(home, approved, place)
    show_bundle(outcome)
    return outcome
