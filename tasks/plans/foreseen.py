"""What would stop a run, as far as it can be known without data or ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator

from configs.findings import Findings
from configs.loading import Release
from configs.models.formats import STAT
from mechanisms.errors import BundleExistsError, ConfigError, StatpressError
from mechanisms.planning.plan import Plan
from tasks.plans.publishing_key import key_faults


def foreseen(release: Release, plan: Plan | None) -> list[StatpressError]:
    """Files or steps too large, functions that fail on any table, a wrong key, a taken name.

    Args:
        release: The config.
        plan: Of that; None if there is none.
    """
    publish, findings = release.config.publish, Findings()
    for product in plan.products if plan is not None else ():
        place = release.document.where(("products", product.name))
        if {*STAT} & {*publish.formats}:
            from tasks.products.files import check_size

            with findings.noting():
                check_size(product, publish, place)
        rehearse = getattr(product.mechanism, "rehearse", None)
        if rehearse is not None:
            try:
                rehearse(product.domain)
            except ConfigError as error:
                error.where = place
                findings.errors.append(error)
    if plan is not None and release.config.resources.memory is not None:
        from tasks.plans.memory import memory_faults

        findings.errors += memory_faults(release, plan)
    return [*findings.errors, *key_faults(release), *taken_name(release)]


def taken_name(release: Release) -> Iterator[BundleExistsError]:
    """An error if the bundle's place is taken."""
    publish = release.config.publish
    if publish.name is None:
        return
    target = release.located(publish.directory) / publish.name
    if os.path.lexists(target):
        yield BundleExistsError(
            "A bundle of this name is already there.",
            where=f"{release.document.where(('publish', 'name'))}: {target}",
        )


def plan_or_faults(release: Release) -> tuple[Plan | None, list[StatpressError]]:
    """The plan if there is one, and all that would stop a run; opens no data."""
    try:
        plan = release.plan()
    except StatpressError as error:
        return None, [error, *foreseen(release, None)]
    return plan, foreseen(release, plan)
