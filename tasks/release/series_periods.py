"""Periods of a series: which is due, which run of the ledger it is, and where the newest one lies.

The run of a period has an id that follows from the account, the series, the period, the bundle
that it supersedes, and how many runs before it ended for good. The ledger charges and draws a run
once (``tasks.ledger.rules``), and so it does a period, however many processes release it at once
and wherever they are. Nothing else records what was released.

The calendar and the ledger are public. Whether a source is there is a question about its name, and
not a look at its records.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from statpress.configs.loading import Release, load_order
from statpress.configs.order import Order
from statpress.configs.series import stated_series
from statpress.configs.yaml_text import parse
from statpress.mechanisms.errors import PeriodError, SourceNotFoundError, StatpressError
from statpress.mechanisms.periods import SeriesPeriod
from statpress.tasks.bundle.manifest import CONFIG, MANIFEST_NAME
from statpress.tasks.ledger.accounts import State, Status
from statpress.tasks.ledger.entries import Loss, canonical_json
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home, at_work
from statpress.tasks.private_zone.guards import is_interruption
from statpress.tasks.private_zone.run_context import RunContext, step
from statpress.tasks.release.runs import Outcome, done_before
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.engine import reader_named

LATEST = "latest"
"""The link beside the folders of a series' periods that leads to the newest bundle."""


class Stage(StrEnum):
    """How far a period has come, by the ledger."""

    OPEN = "open"
    """Nothing of it was charged, or a charge that began to draw nothing and counts, or is void."""

    RELEASED = "released"
    """A bundle is published, or prepared for its approval."""

    STOPPED = "stopped by its checks"
    """A gate refused the source before anything was charged."""

    LOST = "charged and not published"
    """Its budget is spent: the run was killed, its noisy checks stopped it, or it was rejected."""


@dataclass(frozen=True)
class Standing:
    """What the ledger has of one period.

    Attributes:
        stage: How far it has come.
        run_id: The run that goes on with the period, or has released it.
        last: The last run of it, if there was one.
        spent: What all its runs were charged, without what was given back.
    """

    stage: Stage
    run_id: str
    last: str | None
    spent: Loss


def standing(state: State, release: Release, period: SeriesPeriod) -> Standing:
    """What the ledger has of a period of the series that a release is of."""
    last, charge, spent = None, None, Loss.nothing()
    for attempt in itertools.count(1):
        run_id = _run_of(release, period, attempt)
        if run_id not in state.charges and run_id not in state.refused:
            break
        last, charge = run_id, state.charges.get(run_id)
        if charge is not None and charge.status is not Status.VOID:
            spent += charge.loss
    if last is None:
        return Standing(Stage.OPEN, run_id, None, spent)
    if charge is None:
        return Standing(Stage.STOPPED, run_id, last, spent)
    if charge.status is Status.VOID:
        return Standing(Stage.OPEN, run_id, last, spent)
    if charge.status is Status.RESERVED and last not in state.refused:
        return Standing(Stage.OPEN, last, last, spent)
    if charge.status in (Status.PREPARED, Status.APPROVED, Status.PUBLISHED):
        return Standing(Stage.RELEASED, last, last, spent)
    return Standing(Stage.LOST, run_id, last, spent)


def _run_of(release: Release, period: SeriesPeriod, attempt: int) -> str:
    """The id of the run that releases a period, of those before it that ended for good apart."""
    series = release.config.series
    assert series is not None
    parts = [
        "statpress series", release.config.dataset, series.name, str(period), release.supersedes,
        attempt,
    ]  # fmt: skip
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:32]


def today() -> datetime.date:
    """The day, in UTC."""
    return datetime.datetime.now(datetime.UTC).date()


@step("name the run by its period")
def take_period(context: RunContext, release: Release, *, again: bool, seeded: bool) -> None:
    """Give a run the id of its period; one that is not of a series keeps its own.

    Args:
        context: The run.
        release: What it releases.
        again: Whether a period is charged once more that was charged and published nothing.
        seeded: Whether it draws from a known seed; it releases no period, and keeps its own id.

    Raises:
        PeriodError: The period is not named, not due, or was tried and may not be tried again.
        SourceNotFoundError: Its source is not there; that is neither a look nor a charge.
    """
    series, period = release.config.series, release.period
    if series is None:
        return
    where = release.document.where(("series",))
    if period is None:
        raise PeriodError(
            "The config is of a series, and no period is named.",
            where=where,
            next_step=f"Name one with --period, such as {series.period.first}.",
        )
    due = period.due_on(series.period.lag_days)
    if today() < due:
        raise PeriodError(f"{period} is not due before {due}.", where=where)
    if seeded:
        return
    with open_ledger(context.home) as ledger:
        found = standing(ledger.state(), release, period)
    if found.stage is Stage.LOST:
        _check_again(context.home, release, found, again)
    if found.stage is not Stage.RELEASED and not _is_there(release):
        raise SourceNotFoundError(
            f"The source of {period} is not there.",
            where=release.config.source.place,
            next_step="Run it again once it is. Nothing was looked at or charged.",
        )
    context.log.become(found.run_id)


def _check_again(home: Home, release: Release, found: Standing, again: bool) -> None:
    """Raise unless a period that was charged and not published may be charged once more."""
    where, last = f"run {found.last!r}", found.last or ""
    if not again:
        raise PeriodError(
            f"{release.period} was charged and not published.",
            where=where,
            next_step="To charge it once more, run it with --again. Nothing was charged now.",
        )
    if at_work(home, last):
        raise PeriodError(
            f"The run that was charged for {release.period} is at work.",
            where=where,
            next_step="Wait until it has ended. Nothing was charged now.",
        )
    for manifest in release.directory.glob(f"*/{MANIFEST_NAME}"):
        if stated_manifest(manifest.parent).get("run_id") == last:
            raise PeriodError(
                f"{release.period} is published, and the ledger did not note it.",
                where=str(manifest.parent),
                next_step=f"Run 'statpress ledger note {manifest.parent}'. Nothing was charged.",
            )


@dataclass(frozen=True)
class Calendar:
    """The periods of a series by its calendar and the ledger.

    Attributes:
        name: Of the series.
        due: What the ledger has of each period that is due and not skipped, in order.
        following: The first period that is not due yet.
        day: When it is.
    """

    name: str
    due: Mapping[SeriesPeriod, Standing]
    following: SeriesPeriod
    day: datetime.date

    @classmethod
    def of(cls, release: Release, state: State) -> Calendar:
        """The calendar of the series of a release, as of today."""
        series = release.config.series
        assert series is not None
        skipped, lag = set(series.period.skip), series.period.lag_days
        due = list(series.period.start.due_from(lag, today()))
        following = due[-1].following if due else series.period.start
        while str(following) in skipped:
            following = following.following
        kept = [period for period in due if str(period) not in skipped]
        standings = {period: standing(state, release, period) for period in kept}
        return cls(series.name, standings, following, following.due_on(lag))

    @property
    def first_open(self) -> SeriesPeriod:
        """The first period that is not released, due or not."""
        open_ = (period for period, found in self.due.items() if found.stage is Stage.OPEN)
        return next(open_, self.following)

    @property
    def next_words(self) -> str:
        """What comes once all that is due is released."""
        return f"nothing else is due before {self.day}, when {self.following} is"

    def facts(self) -> dict[str, Any]:
        """The calendar as JSON."""
        return {
            "name": self.name,
            "due": {str(period): str(found.stage) for period, found in self.due.items()},
            "next": {"period": str(self.following), "due": self.day.isoformat()},
        }

    def words(self) -> Iterator[str]:
        """A line for each stage that periods are in, then what comes next."""
        for stage in Stage:
            periods = [str(period) for period, each in self.due.items() if each.stage is stage]
            if periods:
                yield f"Series {self.name}, {stage}: {', '.join(periods)}."
        yield f"Series {self.name}: {self.next_words}."


def calendar_of(home: Home, release: Release) -> Calendar:
    """The calendar of the series that a release is of; reads no source."""
    state = State()
    if Ledger.exists(home.ledger):
        with open_ledger(home) as ledger:
            state = ledger.state()
    return Calendar.of(release, state)


@dataclass(frozen=True)
class Due:
    """What a schedule finds.

    Attributes:
        period: The next one to release; None if there is none now.
        words: Why there is none.
        waits: Whether that is since the source of a period is not there yet.
    """

    period: str | None
    words: str = ""
    waits: bool = False


@step("find the period due")
def find_due(context: RunContext, order: Order, *, quietly: bool = False) -> Due:
    """The next period to release: of those due the first that is open, if its source is there.

    Periods that were tried in vain are told of and left to a person: whatever is done about one
    costs budget or a look. Reads the ledger and no records.

    Args:
        context: The run that looks for it.
        order: The config of a series, without a period.
        quietly: Whether those that were tried in vain have been told of.
    """
    release = load_order(order)
    with open_ledger(context.home) as ledger:
        calendar = Calendar.of(release, ledger.state())
    for period, found in calendar.due.items():
        if found.stage in (Stage.STOPPED, Stage.LOST) and not quietly:
            context.notify(_left_words(period, found))
    first = next((p for p, found in calendar.due.items() if found.stage is Stage.OPEN), None)
    if first is None:
        return Due(None, calendar.next_words)
    of_period = load_order(order.at_period(str(first)))
    if _is_there(of_period):
        return Due(str(first))
    words = f"{first} waits for its source, which is not there yet"
    context.notify(f"{words}: {of_period.config.source.place}.")
    return Due(None, words, waits=True)


def _left_words(period: SeriesPeriod, found: Standing) -> str:
    """What a person has to know of a period that no schedule tries again."""
    option = " --again" if found.stage is Stage.LOST else ""
    return (
        f"{period} was {found.stage} (run {found.last}), and no schedule tries it again. "
        f"Once you know why: 'statpress run CONFIG --period {period}{option}', or the deployment "
        "'release-on-demand' with these as its parameters."
    )


def _is_there(release: Release) -> bool:
    """Whether a source of this name is there; no record of it is read."""
    source = source_of(release)
    reader = reader_named(source.engine)
    try:
        reader.check_place(source)
        return reader.is_there(source)
    except SourceNotFoundError:
        return False


def stated_manifest(bundle: Path) -> dict[str, Any]:
    """What the manifest of a bundle says; nothing if it cannot be read."""
    try:
        stated: dict[str, Any] = json.loads((bundle / MANIFEST_NAME).read_text(encoding="utf-8"))
        return stated
    except (OSError, ValueError):
        return {}


@step("see whether it was released meanwhile")
def released_meanwhile(context: RunContext) -> Outcome | None:
    """What another process left that released the period while this one waited for its turn."""
    with open_ledger(context.home) as ledger:
        charge = ledger.state().charges.get(context.run_id)
    return None if charge is None else done_before(context.home, charge)


def folder_of_series(bundle: Path) -> Path | None:
    """The folder of the series that a published bundle is of, and lies in; None without one."""
    with suppress(OSError, ValueError):
        series = stated_series(parse((bundle / CONFIG).read_text(encoding="utf-8"), CONFIG).value)
        folder, period = bundle.parent.parent, bundle.parent.name
        named = series is not None and (series.name, str(series.of)) == (folder.name, period)
        if named and stated_manifest(bundle).get("publishable"):
            return folder
    return None


def point_latest(bundle: Path) -> None:
    """Have ``latest`` beside the periods of a series lead to a bundle, unless to a later period's.

    Of a bundle that is not of a series, and where the file system has no links, nothing happens:
    the bundle is published, and whatever is done here cannot change that.
    """
    folder, period = folder_of_series(bundle), bundle.parent.name
    if folder is None:
        return
    with suppress(OSError, ValueError):
        link = folder / LATEST
        if os.path.islink(link):
            known = SeriesPeriod.read(Path(os.readlink(link)).parts[0])
            if known.start > SeriesPeriod.read(period).start:
                return
        fresh = folder / f".{LATEST}-{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(period) / bundle.name, target_is_directory=True)
        os.replace(fresh, link)


NOT_REFRESHED = (
    "The release is published, and the page of its series is as it was: {} "
    "Then 'statpress series CONFIG' makes it anew."
)


def refresh_page(context: RunContext, bundle: Path, *, told_to_end: bool = False) -> bool:
    """Make the page of the series of a published bundle anew; the bundle stands, whatever happens.

    Args:
        context: The run that published it.
        bundle: Its folder; of one that is not of a series nothing happens.
        told_to_end: Whether the run was told to end; then the page stays as it is.

    Returns:
        Whether the run was told to end, before or meanwhile.
    """
    folder = folder_of_series(bundle)
    if folder is None:
        return told_to_end
    flaw = ""
    try:
        if not told_to_end:
            _refresh(context, folder)
            return False
    except BaseException as error:  # of a step: it has nothing private
        told_to_end = is_interruption(error)
        if not told_to_end and not isinstance(error, StatpressError):
            raise
        flaw = getattr(error, "what", "")
    said = "the run was told to end." if told_to_end else flaw
    context.notify(NOT_REFRESHED.format(said))
    context.deliver_notices()
    return told_to_end


@step("refresh the page of the series")
def _refresh(context: RunContext, folder: Path) -> None:
    """Read the bundles of the series, and nothing else."""
    from statpress.tasks.report.series_page import write_series

    del context
    write_series(folder)
