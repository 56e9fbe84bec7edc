"""The release flow: one config in, one bundle out, published or prepared for its approval.

The flow after it publishes an approved bundle. Both upload what they have published.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.mechanisms.errors import UploadError
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.orchestration.drawing_workers import open_workers
from statpress.tasks.orchestration.lineage import Lineage, followed
from statpress.tasks.orchestration.monitoring import (
    DrawingProgress,
    name_publication,
    show_approval,
    show_budget,
    show_plan,
    show_release,
    show_waiting,
)
from statpress.tasks.orchestration.server import one_at_a_time
from statpress.tasks.private_zone.guards import is_interruption
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.private_zone.workers import limited_threads
from statpress.tasks.release.curator_report import report_to_curator
from statpress.tasks.release.review import Prepared, check_decided
from statpress.tasks.release.runs import Outcome, open_run
from statpress.tasks.release.series_periods import refresh_page, released_meanwhile, take_period
from statpress.tasks.release.steps import (
    charge_ledger,
    check_budget,
    check_counts,
    check_input,
    check_products,
    count_once,
    draw_records,
    fix_plan,
    giving_back,
    hand_over_counts,
    noting_refusals,
    postprocess,
    prepare_bundle,
    publish_bundle,
    read_config,
    record_look,
    rehearse,
    saying_charged,
    take_size,
    write_products,
)
from statpress.tasks.uploads.upload import check_targets, targets_in, upload

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from statpress.configs.upload_targets import Target


def press(
    context: RunContext,
    order: Order | PlannedOrder,
    *,
    again: bool = False,
    beside_undecided: bool = True,
    insecure_seed: int | None = None,
    signer: Ed25519PrivateKey | None = None,
) -> Outcome:
    """Press one release.

    Args:
        context: The run.
        order: The release config with what differs from it; planned, if the command did that.
        again: Whether a period of a series is charged once more that was charged and published
            nothing.
        beside_undecided: Whether it may be charged while another release of the dataset waits
            for its approval.
        insecure_seed: For tests only; marks the bundle as not publishable.
        signer: Signs the bundle; by default the key that the config names, if it names one.

    Returns:
        What the run leaves behind; of one that is done already, what it left.

    Raises:
        StatpressError: One of its kinds; before "charge ledger" nothing was charged. An
            ``UploadError`` comes after the release, which stands.
    """
    release = read_config(order)
    take_period(context, release, again=again, seeded=insecure_seed is not None)
    if release.config.privacy.is_from_source:
        release = take_size(context, release)
    plan = fix_plan(context, order, release, seeded=insecure_seed is not None)
    show_plan(context, release, plan, context.run_id)
    reviewed, done = check_budget(context, release, plan, insecure_seed is not None)
    if done is not None:
        return finish_uploads(context, done)
    check_uploads(release.config.publish.targets, reviewed=reviewed)
    with (
        followed(context, release) as lineage,
        limited_threads(release.config.resources.threads),
        one_at_a_time(context, release.config.dataset),
        open_run(
            context,
            release,
            plan,
            reviewed=reviewed,
            insecure_seed=insecure_seed,
            advance=DrawingProgress.of(context, release, plan),
            signer=signer,
        ) as run,
        closing(run.snapshot),
        open_workers(run, plan) as workers,
        giving_back(context, release),
        noting_refusals(context, release),
    ):
        if release.period is not None and (done := released_meanwhile(context)) is not None:
            return finish_uploads(context, done)
        if not beside_undecided:
            check_decided(context, release.config.dataset)
        rehearse(run, release, plan, workers)

        # Noisy gates draw noise themselves, so that they are charged before the source is opened.
        charged = charge_ledger(run, release, plan) if plan.gate is not None else None

        # Private zone: what the source holds, and whether it passed its checks.
        with saying_charged(context, charged[0] if charged else None):
            record_look(context, release)
            found = check_input(run, release, plan, charged[0] if charged else None)
            counted = count_once(run, release, plan, found)
            check_counts(run, release, plan, counted)
            if workers is not None:
                hand_over_counts(run, counted)

        charge, spent = charged or charge_ledger(run, release, plan)
        show_budget(context, context.home, release.config.dataset)

        # Public zone: everything from the draw on.
        with saying_charged(context, charge):
            drawn = draw_records(run, plan, counted, charge, workers)
            products = postprocess(run, plan, drawn)
            write_products(run, release, plan, charge, spent, products)
            check_products(run, release, plan, products)
        if reviewed:
            outcome = prepare_bundle(run, release, charge)
        else:
            outcome = publish_bundle(run, release, charge)
        lineage.outcome = outcome
        told_to_end = release.config.curator.report and report_to_curator(
            run, release, plan, found.profile, counted, products, outcome.bundle
        )
    if reviewed:
        show_waiting(context, release.config.title, outcome, context.home)
        return outcome
    told_to_end = refresh_page(context, outcome.bundle, told_to_end=told_to_end)
    show_release(context, outcome)
    targets = release.config.publish.targets
    return upload_release(context, outcome, targets, told_to_end=told_to_end)


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


def finish_uploads(context: RunContext, outcome: Outcome) -> Outcome:
    """Upload the release of a run that is started again, as far as it is not uploaded.

    Args:
        context: The run.
        outcome: What it left; a bundle that is prepared, or no longer there, is not uploaded.

    Raises:
        StatpressError: As ``upload_release``.
    """
    published = outcome.status is Status.PUBLISHED and outcome.bundle.is_dir()
    return upload_release(context, outcome, targets_in(outcome.bundle) if published else ())


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
    approved = Prepared.approved(home, run_id)
    name_publication(context, approved.charge.entry.body["dataset"], run_id)
    place = approved.published
    if place is None:
        with approved.open_publication(home) as building:
            place = approved.find_moved()
            if place is None:
                approved.copy_bundle(building)
                place = approved.move_into_place(building)
    outcome = approved.note_publication(home, place)
    told_to_end = refresh_page(context, outcome.bundle)
    show_release(context, outcome)
    show_approval(context, outcome)
    Lineage.of_publication(context, outcome).ended()
    targets = targets_in(outcome.bundle)
    return upload_release(context, outcome, targets, told_to_end=told_to_end)
