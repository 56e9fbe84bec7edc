"""The curator's report: true errors of a release, written where only the curator can read it.

It is made last, when the bundle is in its place and noted: it can change neither what was drawn
and published nor whether. A failure of it is not a failure of the run, and a run that is told to
end meanwhile ends as what it is: published. The page is written into the run's private folder
first, which is removed however the run ends, then moved beside the curator log; so there is never
half a page, and a killed run leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from configs.loading import Release
from mechanisms.domain.counted import Counted
from mechanisms.errors import StatpressError
from mechanisms.planning.plan import Plan
from tasks.counting.aggregates import SourceProfile
from tasks.execution.folders import sync
from tasks.execution.interruption import is_interruption
from tasks.execution.side_channels import as_text
from tasks.execution.steps import step
from tasks.pages.page import rendered
from tasks.products.registry import kind_of
from tasks.products.true_errors import TrueErrors
from tasks.quality.gates import fates
from tasks.release.build import Released
from tasks.release.places import Run
from tasks.report.curator_page import Frame, curator_page
from tasks.source.private_files import new_file, write_all


def report_to_curator(
    run: Run,
    release: Release,
    plan: Plan,
    profile: SourceProfile,
    counted: Counted,
    products: Released,
    bundle: Path,
) -> bool:
    """Write the report; whatever fails in it is for the curator log only.

    Args:
        run: Whose bundle is in its place.
        release: The config.
        plan: Of that.
        profile: What the input gate saw; private.
        counted: What the mechanisms were given; private.
        products: What was published.
        bundle: Where that lies.

    Returns:
        Whether the run was told to end meanwhile, which ends the report only.
    """
    told_to_end = False
    said = "The curator's report could not be written; the release is as it should be."
    try:
        _report(run, release, plan, profile, counted, products, bundle)
    except BaseException as error:  # of a step: it has nothing private
        told_to_end = is_interruption(error)
        if not told_to_end and not isinstance(error, StatpressError):
            raise
    place = _place(run)
    if place.exists():
        said = f"RESTRICTED, for the curator only: exact errors of this release are in {place}"
    elif told_to_end:
        said = (
            "The run was told to end: the curator's report was not finished; the release is as it "
            "should be."
        )
    else:
        said += f" The curator finds the detail in the curator log {run.run_id}.log."
    run.context.notify(said)
    run.context.deliver_notices()
    return told_to_end


@step("report to curator")
def _report(
    run: Run,
    release: Release,
    plan: Plan,
    profile: SourceProfile,
    counted: Counted,
    products: Released,
    bundle: Path,
) -> None:
    """Compute and write the page; an error in it is written to the curator log."""
    try:
        errors = true_errors(plan, counted, products.derived)
        page = curator_page(
            _frame(run, release, bundle), _figures(profile), fates(release, profile), errors
        )
        _write(run, rendered(page, pictures=release.config.publish.plots))
    except Exception as error:
        run.context.log.write(as_text(error, trace=True))


def true_errors(
    plan: Plan, counted: Counted, derived: Mapping[str, object]
) -> dict[str, TrueErrors | None]:
    """Of every product, by name; private."""
    found = {}
    for product in plan.products:
        kind = kind_of(product)
        private = kind.private_input(product, counted)
        found[product.name] = kind.true_errors(product, derived[product.name], private)
    return found


def _frame(run: Run, release: Release, bundle: Path) -> Frame:
    facts = {
        "Dataset": release.config.dataset,
        "Run": run.run_id,
        "Created": run.created,
        "Bundle": str(bundle),
        "Config, SHA-256": release.sha256,
    }
    if run.insecure_seed is not None:
        facts["Randomness"] = "of a known seed, for tests only"
    return Frame(title=release.config.title, facts=facts)


def _figures(profile: SourceProfile) -> dict[str, int]:
    """Counts of the whole source."""
    figures = {"records": profile.n_records, "in a structural zero": profile.n_impossible}
    if profile.n_units is not None:
        figures |= {"units": profile.n_units, "without a unit": profile.n_unnamed}
    return figures


def _place(run: Run) -> Path:
    """Where the page goes."""
    return run.home.folder("curator") / f"{run.run_id}.html"


def _write(run: Run, text: str) -> None:
    """Write the page for its owner only."""
    place = _place(run)
    page = run.work / place.name
    with new_file(page) as file:
        write_all(file, memoryview(text.encode("utf-8", errors="backslashreplace")))
        os.fsync(file.fileno())
    os.replace(page, place)
    sync(place.parent)
