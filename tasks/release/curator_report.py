"""The curator's report: true errors of a release, which only the curator may see.

The curator's page: the exact errors of a release, which only the curator may see.

The curator's report: true errors of a release, written where only the curator can read it.

It is made last, when the bundle is in its place and noted: it can change neither what was drawn
and published nor whether. A failure of it is not a failure of the run, and a run that is told to
end meanwhile ends as what it is: published. The page is written into the run's private folder
first, which is removed however the run ends, then moved beside the curator log; so there is never
half a page, and a killed run leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from statpress.configs.loading import Release
from statpress.mechanisms.domain.contingency_table import Counted
from statpress.mechanisms.errors import StatpressError
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.pages.blocks import Block, Fact, Facts, Grid, Page, Prose, Section
from statpress.tasks.pages.numbers import count, share
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.private_zone.folders import sync
from statpress.tasks.private_zone.guards import as_text, is_interruption
from statpress.tasks.private_zone.run_context import step
from statpress.tasks.products.product_kind import kind_of, private_input
from statpress.tasks.products.true_errors import Compared, TrueErrors
from statpress.tasks.release.build import Released
from statpress.tasks.release.quality_gates import fates
from statpress.tasks.release.runs import Run
from statpress.tasks.source.aggregates import SourceProfile
from statpress.tasks.source.guarding import new_file, write_all

BANNER = "RESTRICTED: exact values of confidential data. For the curator only; not for publication."

_WHY = (
    "Beside the published figures, these errors give exact counts of confidential records. Keep "
    "this page where it is, show it to nobody who may not see the records, and delete it when it "
    "has been read. What you do because of it (publish or not, release again, change a config) "
    "is outside the guarantee: decide that before you read on."
)
_HOW = (
    "The plan promises the mean error for public reference data, and these records are others: an "
    "error of half or of twice the promise is nothing unusual. A 95 % interval holds the true "
    "value in 95 of 100 releases, so that one in twenty misses on average. Those of one release "
    "share noise and may miss together: where more miss than promised, it is said how often so "
    "many do at most, whatever the intervals share. It is often far less often; that few miss says "
    "nothing."
)
_FATES = {"missing": "missing", "outside": "undeclared or clamped", "unreadable": "unreadable"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Frame:
    """What the release is; public.

    Attributes:
        title: Of the config.
        facts: Label and value of the run, the dataset, the config and so on.
    """

    title: str
    facts: Mapping[str, str]


def curator_page(
    frame: Frame,
    figures: Mapping[str, int],
    fates: Iterable[tuple[str, str, int, Decimal | None]],
    products: Mapping[str, TrueErrors | None],
) -> Page:
    """The page; private.

    Args:
        frame: What the release is.
        figures: Counts of the whole source by what they are of.
        fates: Per column and fate of its values how many there are, and the share of the records
            that may have it; None if that is not limited.
        products: By name what is known of each product's errors.
    """
    known = {name: each for name, each in products.items() if each is not None}
    summary: list[Block] = [
        Prose([_WHY], "warning"),
        Facts([Fact(label, value) for label, value in frame.facts.items()]),
        *(compared_grid(each.compared, name) for name, each in known.items()),
        Prose([_HOW], "note"),
    ]
    silent = [name for name in products if name not in known]
    if silent:
        summary.append(Prose([f"Nothing is compared of: {', '.join(silent)}."]))
    return Page(
        f"{frame.title}: true errors",
        [
            Section("summary", "Promised and true", summary),
            Section("quality", "Quality of the source", _quality(figures, fates)),
            *(each.section for each in known.values()),
        ],
        subtitle="The curator's report of a release",
        banner=BANNER,
    )


def compared_grid(rows: Sequence[Compared], title: str = "") -> Grid:
    """A table of errors beside promises."""
    return Grid(("error", "promised", "true", "verdict"), rows, title=title)


def _quality(
    figures: Mapping[str, int], fates: Iterable[tuple[str, str, int, Decimal | None]]
) -> list[Block]:
    """What the gates saw, all of which passed."""
    records = figures["records"]
    by_column: dict[str, list[str]] = {}
    for column, _, found, most in fates:
        allowed = "any" if most is None else share(float(most))
        shown = f"{count(found)}, {share(found / records)}" if found else "0"
        by_column.setdefault(column, []).extend([shown, allowed])
    headings = ["column"]
    for words in _FATES.values():
        headings += [words, "allowed"]
    return [
        Prose(["The source passed its checks, or there would be no release."]),
        Facts([Fact(label, count(value)) for label, value in figures.items()]),
        Grid(headings, [[column, *cells] for column, cells in by_column.items()]),
    ]


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
        found[product.name] = kind_of(product).true_errors(
            product, derived[product.name], private_input(product, counted)
        )
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
