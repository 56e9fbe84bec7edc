"""``series.html``: a series on one page, with its figures as files, beside its periods' folders.

The prose of the page is in the template ``series.html.jinja``. Whatever the page says is in the
public files of the bundles (``series_data``), so that it is the same whenever it is made.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from statpress.mechanisms.errors import BundleVerificationError, OutputNotWritableError
from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.catalogues.sdmx import Series, components
from statpress.tasks.catalogues.usage import contributor
from statpress.tasks.pages.blocks import Grid, Page, Section, Text, Trend, Trends, code, link
from statpress.tasks.pages.numbers import amount, measured, share, short
from statpress.tasks.pages.rendering import rendered
from statpress.tasks.private_zone.folders import replacing
from statpress.tasks.products.distributions import CONFIDENCE, WEIGHTED, Reading, heading
from statpress.tasks.report.privacy_page import MEASURES
from statpress.tasks.report.series_data import KEYS, Line, SeriesBundle, SeriesData

PAGE, CSV, PACKAGE = "series.html", "series.csv", "datapackage.json"
SDMX = {
    "series_sdmx.csv": "The same figures as SDMX-CSV 2.0",
    "series_structure.xml": "Their structure as SDMX-ML 3.0",
}
"""Further files of a series whose newest config asks for SDMX."""
_MOST_OPEN = 16
"""Charts of a column up to which they are not folded."""


def write_series(folder: Path, *, patience: float = 30.0) -> SeriesData:
    """Write the page of a series and its files anew; each is replaced in one step.

    Nothing is written before all of it is made. Of several processes at once one reads and writes
    after the other, so that what stands in the end has what the last of them published.

    Args:
        folder: Of the series, in the publishing directory.
        patience: Seconds that another process may take to write the files.

    Raises:
        BundleVerificationError: No bundle counts.
        OutputNotWritableError: A file cannot be written.
        StatpressError: One of its kinds.
    """
    flaw = None
    try:
        with _alone(folder, patience):
            return _written(folder)
    except OSError as error:
        flaw = error.strerror or type(error).__name__
    raise OutputNotWritableError(
        f"The page of the series cannot be written ({flaw}).", where=str(folder)
    )


def _written(folder: Path) -> SeriesData:
    """Read the bundles, make all, then write all."""
    data = SeriesData.read(folder)
    if not data.bundles:
        flaws = "; ".join(f"{path}: {why}" for path, why in data.left_out.items())
        raise BundleVerificationError(
            f"The series has no bundle to show{': ' if flaws else '.'}{flaws}",
            where=str(folder),
            next_step="Release a period, or find out who changed its bundle.",
        )
    texts = dict(series_files(data))
    for name, text in texts.items():
        with replacing(folder / name, mode=0o644) as file:
            file.write(text)
    for name in SDMX.keys() - texts.keys():
        (folder / name).unlink(missing_ok=True)
    return data


@contextmanager
def _alone(folder: Path, patience: float) -> Iterator[None]:
    """Wait until no other process writes the files of the series, where the system has locks.

    Raises:
        OutputNotWritableError: Another process has had the folder all the time: whoever may read
            it can hold its lock, and must not hold up releases.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + patience
        while _is_held(descriptor):
            if time.monotonic() > end:
                raise OutputNotWritableError(
                    "Another process keeps the folder locked.",
                    where=str(folder),
                    next_step="End it, then run 'statpress series' with the config.",
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _is_held(descriptor: int) -> bool:
    """Take the lock unless another process has it; no lock is needed where there are none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def series_files(data: SeriesData) -> Iterator[tuple[str, str]]:
    """Names and texts, the page last; the same bundles give the same."""
    newest, series = data.newest, data.series
    publish = newest.config.get("publish", {})
    further = SDMX if publish.get("sdmx") and data.lines else {}
    yield CSV, data.csv_text()
    yield PACKAGE, data.package_text({**further, PAGE: "The figures as charts"})
    if further:
        (id,) = components([series.name])
        rows = list(data.rows())
        flow = Series(newest.publication, id, data.title, series.period.by, KEYS, rows)
        yield from zip(further, (flow.observations(), flow.structure().decode()), strict=True)
    yield PAGE, series_page(data, [CSV, *further], pictures=publish.get("plots", True))


def series_page(data: SeriesData, files: Sequence[str], *, pictures: bool) -> str:
    """The page.

    Args:
        data: The series.
        files: The names of those that have its figures.
        pictures: Whether charts are drawn; if not, their figures stand as tables.
    """
    words = SeriesWords(data)
    publisher = contributor(data.newest.publication.package, "publisher")
    by = f", published by {publisher['title']}" if publisher else ""
    return rendered(
        Page(
            data.title,
            words.products,
            subtitle=f"{words.frequency} series {data.series.name}{by}",
            marks=words.marks,
        ),
        pictures=pictures,
        template="series.html.jinja",
        words=words,
        files=[link(f"./{name}", name) for name in (*files, PACKAGE)],
        budget=words.budget,
        account=words.account,
        bundles=words.bundles,
        breaks=words.breaks,
    )


@dataclass(frozen=True)
class SeriesWords:
    """What the template says of a series."""

    data: SeriesData

    @property
    def frequency(self) -> str:
        """How often it has a period, as an adjective."""
        by = {"year": "Yearly", "quarter": "Quarterly", "month": "Monthly", "week": "Weekly"}
        return by[self.data.series.period.by]

    @property
    def marks(self) -> list[str]:
        """The bundles that are left out, and why."""
        return [f"Left out of this page: {path}. {why}" for path, why in self.data.left_out.items()]

    @property
    def missing(self) -> str:
        """The periods that have no bundle that counts; empty without one."""
        return ", ".join(map(str, self.data.missing))

    @property
    def newest(self) -> Text:
        """The last period, with its report."""
        return _report(self.data.newest, str(self.data.newest.period))

    @property
    def lifetime(self) -> Mapping[str, Any]:
        """What the newest bundle states of the account."""
        lifetime: Mapping[str, Any] = self.data.newest.publication.privacy["lifetime"]
        return lifetime

    @property
    def used(self) -> str:
        """What the newest release left used of the first measure of the account."""
        measure, limit = next(iter(self.lifetime["limit"].items()))
        spent = short(Decimal(self.lifetime["spent"][measure]))
        return f"{MEASURES[measure]} = {spent} of {amount(limit)}"

    @cached_property
    def products(self) -> list[Section]:
        """A section for each product: charts for each column or pair of columns, or its map.

        A map is that of the newest period.
        """
        groups: dict[str, dict[tuple[str, ...], list[Line]]] = {}
        for line in self.data.lines:
            names = tuple(name for name, _ in line.cell)
            groups.setdefault(line.product, {}).setdefault(names, []).append(line)
        maps = {
            name: replace(drawn, title=f"{drawn.title}, {self.data.newest.period}")
            for name, drawn in self.data.newest.maps.items()
        }
        titles = {
            each["name"]: each.get("title", each["name"])
            for bundle in self.data.bundles
            for each in bundle.publication.package.get("products", ())
        }
        return [
            Section(
                f"product-{name}",
                titles.get(name, name),
                [
                    *(self._trends(names, lines) for names, lines in groups.get(name, {}).items()),
                    *([maps[name]] if name in maps else []),
                ],
            )
            for name in dict.fromkeys((*groups, *maps))
        ]

    def _trends(self, names: Sequence[str], lines: Sequence[Line]) -> Trends:
        """The charts of a column, of two together, or of estimates."""
        columns = dict.fromkeys(c for line in lines for c in self.data.columns_of(line))
        changes = [each for each in self.data.breaks if each.column in columns]
        notes = [f"From {each.period} on, {each.column}: {each.words}" for each in changes]
        if any(line.figure == WEIGHTED for line in lines):
            notes.insert(0, "Records count by their survey weight.")
        title = " by ".join(self._heading(name) for name in names) or "Estimates"
        folded = f"All {len(lines)} charts" if len(lines) > _MOST_OPEN else ""
        return Trends(
            title,
            [str(period) for period in self.data.periods],
            [self._trend(line) for line in lines],
            share if names else measured,
            shared=bool(names),
            most=1.0 if names else None,
            cuts={self._place(each.period) for each in changes if each.cuts},
            marks={self._place(each.period) for each in changes},
            note=" ".join(notes),
            folded=folded,
        )

    def _trend(self, line: Line) -> Trend:
        figures = self.data.lines[line]
        found = [figures.get(period) for period in self.data.periods]
        readings = [Reading(None) if each is None else each.reading for each in found]
        newest = figures[max(figures)]
        usual = newest.confidence in (CONFIDENCE, None)
        level = "" if usual else f" ({share(newest.confidence)} interval)"
        return Trend(
            newest.label + level,
            [each.value for each in readings],
            [each.lower for each in readings],
            [each.upper for each in readings],
            banded=[
                each is not None and None not in (each.reading.value, each.confidence)
                for each in found
            ],
        )

    def _place(self, period: SeriesPeriod) -> int:
        return period.number - self.data.periods[0].number

    def _heading(self, name: str) -> str:
        return next(
            heading(each.columns[name])
            for each in reversed(self.data.bundles)
            if name in each.columns
        )

    @property
    def breaks(self) -> Grid | None:
        """What is declared otherwise than before; None if nothing is."""
        rows = [
            (str(each.period), each.column, each.words, "yes" if each.cuts else "")
            for each in self.data.breaks
        ]
        return Grid(("from", "column", "what changed", "lines cut"), rows) if rows else None

    @property
    def budget(self) -> Trends:
        """What was used of the limit, right after the release of each period."""
        stated = {each.period: self._spent(each) for each in self.data.bundles}
        measures = dict.fromkeys(measure for each in stated.values() for measure in each)
        lines = []
        for measure in measures:
            found = [stated.get(each, {}).get(measure) for each in self.data.periods]
            lines.append(
                Trend(
                    MEASURES[measure],
                    [None if each is None else float(each[0]) for each in found],
                    limit=[None if each is None else float(each[1]) for each in found],
                )
            )
        periods = [str(period) for period in self.data.periods]
        return Trends("What is used of the limit", periods, lines, short, shared=False)

    @staticmethod
    def _spent(bundle: SeriesBundle) -> dict[str, tuple[str, str]]:
        """By measure what was spent right after a release, and the limit."""
        life = bundle.publication.privacy["lifetime"]
        return {key: (life["spent"][key], limit) for key, limit in life["limit"].items()}

    @property
    def account(self) -> Grid:
        """The account right after the release of each period."""
        rows = []
        for bundle in self.data.bundles:
            stated = bundle.publication.privacy
            life = stated["lifetime"]
            for measure, limit in life["limit"].items():
                figures = (
                    stated.get(measure, "0"), life["spent"][measure], life["remaining"][measure],
                    limit,
                )  # fmt: skip
                rows.append([str(bundle.period), MEASURES[measure], *map(amount, figures)])
        headings = ("period", "measure", "by this release", "used", "left", "limit")
        return Grid(headings, rows, title="The account after each release", folded=True)

    @property
    def bundles(self) -> Grid:
        """Every period with its bundle, and the bundles that it supersedes."""
        by_period = {each.period: each for each in self.data.bundles}
        rows: list[Sequence[Text]] = []
        for period in self.data.periods:
            bundle = by_period.get(period)
            if bundle is None:
                rows.append((str(period), "none", "", "", ""))
                continue
            earlier = [_report(each, f"of {_made(each)}") for each in self.data.kept[period]]
            seal = f"{bundle.manifest['seal'][:16]}…"
            rows.append(
                (
                    str(period),
                    _report(bundle, "report"),
                    _made(bundle),
                    code(seal),
                    _joined(earlier),
                )
            )
        headings = ["period", "release", "made on", "seal", "earlier ones of the period"]
        kept = 5 if any(self.data.kept.values()) else 4
        return Grid(headings[:kept], [row[:kept] for row in rows])


def _made(bundle: SeriesBundle) -> str:
    """The day on which a bundle was made, as it says."""
    return str(bundle.manifest["created"])[:10]


def _report(bundle: SeriesBundle, words: str) -> Text:
    """A link to the report of a bundle, or to its folder if it has none."""
    there = (bundle.publication.folder / "report.html").is_file()
    return link(f"./{quote(bundle.path)}/{'report.html' if there else ''}", words)


def _joined(listed: Iterable[Text]) -> Text:
    from markupsafe import Markup

    return Markup(", ").join(listed)
