"""The curator's page: the exact errors of a release, which only the curator may see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from tasks.pages.blocks import Block, Fact, Facts, Grid, Page, Prose, Section
from tasks.pages.numbers import count, share
from tasks.products.true_errors import TrueErrors, compared_grid

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
