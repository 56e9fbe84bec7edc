"""The uploading flow: one published bundle in, the same bundle in every target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.errors import UploadError
from tasks.execution.interruption import is_interruption
from tasks.execution.run_context import RunContext
from tasks.release.outcome import Outcome, Uploaded
from tasks.targets.upload import check_targets, read_targets, upload

if TYPE_CHECKING:
    from configs.models.targets import Target


def check_uploads(targets: Sequence[Target], *, reviewed: bool) -> None:
    """See before the charge that uploads can begin, unless that is for whoever publishes later.

    Args:
        targets: Those of the config.
        reviewed: Whether the release waits for its approval first.

    Raises:
        UploadError: There are no credentials; nothing was charged.
        DependencyError: An extra is not installed.
    """
    if targets and not reviewed:
        check_targets(targets)


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
