"""The checkup of an installation: home, ledger, clock, disk, copies, and what waits.

Only public facts: places and modes in the home, times, names of datasets, ids of runs. What hangs
on the Prefect server is in ``tasks.orchestration.server``.

**Metrics** of a ledger are in Prometheus' text format, for the textfile collector of node_exporter.
They have only what the ledger and the home's upkeep say. Amounts are exact decimals in the ledger;
a metric is a float, at most as large as what is left.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from statpress.mechanisms.errors import ConfigError, StatpressError
from statpress.tasks.ledger.accounts import Account, State, Status
from statpress.tasks.ledger.home_ledger import Kept, open_ledger
from statpress.tasks.private_zone.folders import Home, at_work
from statpress.tasks.release.ledger_check import DATABASE_NOT_CHECKED
from statpress.tasks.release.runs import looks_in_words, unpublished
from statpress.tasks.upkeep.retention import kept_days, killed, overdue

if TYPE_CHECKING:
    from statpress.tasks.ledger.ledger import Ledger

LEAST_SPACE = 2**30
"""Bytes that should be free where home and ledger lie."""

SKEW = timedelta(minutes=1)
"""How much the clocks of two workers may differ."""

VERIFIED_WITHIN, COPIED_WITHIN = timedelta(days=32), timedelta(days=2)
"""How old a verification may be, and the first entry that no copy of the ledger has."""

HEAD_TO = "STATPRESS_HEAD_TO"
"""Where the environment says that the ledger's head is to be sent after every release."""

_SHOWN = 3
_LEDGER_FILES = ("", "-wal", "-shm", "-queue")
_PRIVATE = ("curator", "prepared", "drawn", "heads", "upkeep")


class Verdict(StrEnum):
    """What a finding means."""

    FINE = "fine"
    """As it should be."""

    NOTE = "note"
    """Worth knowing; nothing has to be done."""

    WRONG = "wrong"
    """Somebody has to do something."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found; public.

    Attributes:
        check: What was checked, in a word.
        verdict: What it means.
        what: What was found.
        next_step: What to do about it, if there is something.
    """

    check: str
    verdict: Verdict
    what: str
    next_step: str = ""


@dataclass(frozen=True, kw_only=True)
class Books:
    """What the checks read of a ledger.

    Attributes:
        where: Its place, without a password.
        state: All accounts and charges.
        times: When each entry was written, in order.
        upkeep: What this home last did for it.
    """

    where: str
    state: State
    times: Sequence[datetime]
    upkeep: dict[str, Kept]


def examine(
    home: Home,
    now: datetime | None = None,
    *,
    user: int | None = None,
    least_space: int = LEAST_SPACE,
) -> list[Finding]:
    """Check a home and its ledger.

    Args:
        home: The home.
        now: The time; by default the present.
        user: Number of the user who will work in it; by default of this process.
        least_space: Free bytes that a release needs at least.
    """
    now = now or datetime.now(UTC)
    user = os.geteuid() if user is None else user
    found = [*_modes(home, user), *_space(home, least_space)]
    if _of_another_user(home, user):
        return found
    try:
        with open_ledger(home) as ledger:
            books = read_books(ledger)
            found.append(_fine("ledger", f"{books.where}: the chain and its sums hold."))
            found += _database(ledger)
    except StatpressError as error:
        place = f"{error.where}: " if error.where else ""
        return [*found, _wrong("ledger", f"{place}{error.what}", error.next_step)]
    return [
        *found,
        *_clock(books, now),
        *_verification(books, now),
        *_copies(books, now),
        *_head(books, now),
        *_accounts(books),
        *_waiting(books),
        *_unfinished(home, books),
        *_retention(home, books, now),
    ]


def read_books(ledger: Ledger) -> Books:
    """Read a ledger once, and compare it with what the home remembers.

    Raises:
        LedgerIntegrityError: The chain does not hold, or is not the one that the home has seen.
    """
    state = ledger.state()
    assert ledger.memory is not None
    ledger.memory.check(ledger.hash_at)
    ledger.memory.check_draws(state.charges, lambda: ledger.state().charges)
    times = [datetime.fromisoformat(entry.body["created"]) for entry in ledger.entries()]
    return Books(where=ledger.where, state=state, times=times, upkeep=ledger.memory.upkeep())


def needing_attention(findings: Iterable[Finding]) -> list[Finding]:
    """Those findings that somebody has to do something about."""
    return [each for each in findings if each.verdict is Verdict.WRONG]


def _fine(check: str, what: str) -> Finding:
    return Finding(check=check, verdict=Verdict.FINE, what=what)


def _note(check: str, what: str, next_step: str = "") -> Finding:
    return Finding(check=check, verdict=Verdict.NOTE, what=what, next_step=next_step)


def _wrong(check: str, what: str, next_step: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WRONG, what=what, next_step=next_step)


def _modes(home: Home, user: int) -> Iterator[Finding]:
    """Who may enter the home, and read and write what is in it."""
    if not home.root.is_dir():
        step = "Name the home with STATPRESS_HOME or --home."
        yield _wrong("modes", f"{home.root}: there is no home here.", step)
        return
    ledger = _ledger_files(home)
    inside = [path for name in _PRIVATE for path in _everything(home.root / name)]
    work = home.root / "work"
    open_to_all = [p for p in (home.root, *ledger) if _mode(p) & 0o007]
    open_to_all += [p for p in (*inside, *([work] if work.is_dir() else [])) if _mode(p) & 0o077]
    if open_to_all:
        step = "Take the rights away with 'chmod go=' ('o=' where a group shares the home)."
        yield _wrong("modes", f"Others than the owner may use {_some(open_to_all)}.", step)
    shared = [p for p in (home.root, *ledger) if _mode(p) & 0o070 and p not in open_to_all]
    owner = home.root.stat().st_uid
    if shared:
        yield _note("modes", f"A group shares {_some(shared)}.")
        return
    if _of_another_user(home, user):
        step = "Run statpress as the worker's user, with its home."
        what = f"{home.root} belongs to another user than this one. The ledger was not opened:"
        yield _wrong("modes", f"{what} files that this user makes may lock the owner out.", step)
        return
    strange = [path for path in (*ledger, *inside) if path.lstat().st_uid != owner]
    if strange:
        step = "Give them back to the owner of the home with 'chown'."
        yield _wrong("modes", f"Others own {_some(strange)}: who was at work here?", step)
    if not (open_to_all or strange):
        yield _fine("modes", f"Only its owner can enter {home.root}.")


def _of_another_user(home: Home, user: int) -> bool:
    """Whether a home belongs to another user, who does not share it with a group."""
    try:
        found = home.root.stat()
    except OSError:
        return False
    return found.st_uid != user and not found.st_mode & 0o070


def _ledger_files(home: Home) -> list[Path]:
    """The files of a ledger in SQLite that are there."""
    place = home.ledger
    if not isinstance(place, Path):
        if "://" in place:
            return []
        place = Path(place)
    files = (place.with_name(place.name + suffix) for suffix in _LEDGER_FILES)
    return [path for path in files if path.exists()]


def _everything(folder: Path) -> Iterator[Path]:
    """A folder and all that is in it, if it is there."""
    if folder.is_dir():
        yield folder
        yield from sorted(folder.rglob("*"))


def _mode(path: Path) -> int:
    try:
        found = path.lstat()
    except FileNotFoundError:  # a run that ended took it away
        return 0
    return 0 if stat.S_ISLNK(found.st_mode) else stat.S_IMODE(found.st_mode)


def _some(paths: Sequence[Path]) -> str:
    """The first few paths with their modes, and how many more there are."""
    named = [f"{path} ({_mode(path):04o})" for path in paths[:_SHOWN]]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{', '.join(named)}{more}"


def _space(home: Home, least: int) -> Iterator[Finding]:
    """Whether there is room for what a run writes before and after its charge."""
    folders = {path.parent for path in _ledger_files(home)[:1]}
    for folder in sorted({home.root, *folders}):
        if not folder.is_dir():
            continue
        free = shutil.disk_usage(folder).free
        text = f"{folder}: {free / 2**30:.1f} GiB are free."
        if free < least:
            yield _wrong("space", text, "Make room before the next release.")
        else:
            yield _fine("space", text)


def _database(ledger: Ledger) -> Iterator[Finding]:
    """The database's own check of its pages and indexes."""
    if ledger.check_database():
        yield _fine("database", "The database's own check finds no damage.")
    else:
        what, _, step = DATABASE_NOT_CHECKED.partition(": ")
        yield _note("database", f"{what}.", step[0].upper() + step[1:])


def _clock(books: Books, now: datetime) -> Iterator[Finding]:
    """Whether the clock went back behind the ledger."""
    last = max(books.times, default=now)
    if last > now + SKEW:
        yield _wrong(
            "clock",
            f"The clock says {_at(now)}, and the ledger has an entry of {_at(last)}.",
            "Set the clock of this machine, or of the one that wrote the entry; no entry changes.",
        )
    else:
        yield _fine("clock", "The clock is not behind the ledger.")


def _verification(books: Books, now: datetime) -> Iterator[Finding]:
    """Whether this home verified the ledger lately."""
    last = books.upkeep.get("verified")
    step = "Run 'statpress ledger verify', and see that its schedule is active."
    if last is None:
        text = "This home has not verified its ledger yet."
        if now - min(books.times, default=now) > VERIFIED_WITHIN:
            yield _wrong("verification", text, step)
        else:
            yield _note("verification", text, "Run 'statpress ledger verify'.")
    elif now - last.time > VERIFIED_WITHIN:
        yield _wrong("verification", f"The ledger was last verified {last.at}.", step)
    else:
        yield _fine("verification", f"The ledger was last verified {last.at}.")


def _copies(books: Books, now: datetime) -> Iterator[Finding]:
    """Whether a copy of the ledger has its entries, but for those of the last days."""
    copies = [books.upkeep[act] for act in ("exported", "backed up") if act in books.upkeep]
    last = max(copies, key=lambda kept: kept.time, default=None)
    text = "This home has never exported its ledger."
    if last is not None:
        text = f"The ledger was last exported {last.at}, with {last.entries} entries."
    missing = books.times[0 if last is None else last.entries :]
    if missing and now - missing[0] > COPIED_WITHIN:
        since = f" The copy lacks entries since {_at(missing[0])}." if last else ""
        step = "Run 'statpress ledger export FILE', and keep the file on another machine."
        yield _wrong("export", text + since, step)
    elif last is None:
        yield _note("export", text, "Run 'statpress ledger export FILE'.")
    else:
        yield _fine("export", text)


def _head(books: Books, now: datetime) -> Iterator[Finding]:
    """Whether the ledger's head went where the environment wants it, but for the last days."""
    if not os.environ.get(HEAD_TO):
        return
    sent = books.upkeep.get("head sent")
    unsent = books.times[sent.entries if sent else 0 :]
    text = f"The head of the ledger was last sent {sent.at}." if sent else "No head was sent yet."
    if unsent and now - unsent[0] > COPIED_WITHIN:
        step = "Run 'statpress ledger export-head', which says why it fails."
        yield _wrong("head", f"{text} The ledger has gone on since.", step)
    else:
        yield _fine("head", text)


def _accounts(books: Books) -> Iterator[Finding]:
    """Whether a dataset is closed to all runs."""
    closed = [account for account in books.state.accounts.values() if account.closed]
    for account in closed:
        what, _, step = looks_in_words(account).partition(" No further run")
        yield _wrong("looks", what, f"No further run{step}")
    if not closed:
        yield _fine("looks", "No dataset is closed for its looks or refusals.")


def _waiting(books: Books) -> Iterator[Finding]:
    """Which releases wait for people."""
    charges = books.state.charges
    for status, what in (
        (Status.PREPARED, "waits for a decision"),
        (Status.APPROVED, "is approved, and waits for its publication"),
    ):
        for run_id, charge in charges.items():
            if charge.status is status and charge.preparation is not None:
                body = charge.preparation.body
                text = f"Run {run_id} of {body['dataset']} {what}, prepared {body['created']}."
                yield _note("review", text, "'statpress review' lists what waits.")


def _unfinished(home: Home, books: Books) -> Iterator[Finding]:
    """Which runs are charged, have not drawn and are not at work in this home."""
    for account in books.state.accounts.values():
        for charge in unpublished(account):
            run_id = charge.entry.body["run_id"]
            if charge.status is Status.RESERVED and not at_work(home, run_id):
                yield _note(
                    "unfinished",
                    f"Run {run_id} of {account.dataset} is charged, never began to draw, and is"
                    " not at work in this home.",
                    f"If it is not at work elsewhere: 'statpress ledger void {run_id} --reason …'.",
                )


def _retention(home: Home, books: Books, now: datetime) -> Iterator[Finding]:
    """What is kept for longer than it should be, and what killed runs left."""
    try:
        days = kept_days()
    except ConfigError as error:
        yield _wrong("retention", f"{error.where}: {error.what}", error.next_step)
        return
    late = overdue(home, books.state.charges, days, now.timestamp()) if days else []
    if late:
        what = f"Kept for more than {days} days: {_some(late)}."
        yield _wrong("retention", what, "Run 'statpress tidy', and see why no deployed run did.")
    left = [path for path in killed(home) if path not in late]
    if left:
        what = f"Runs that were killed left private folders: {_some(left)}."
        yield _note("retention", what, "The next run removes them.")
    if not late and not left:
        yield _fine("retention", "Nothing is kept for too long.")


def _at(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


_DATASET, _MEASURE = ("dataset",), ("dataset", "policy", "measure")
_WAITING = {Status.PREPARED: "decision", Status.APPROVED: "publication"}


def metrics(home: Home) -> str:
    """The metrics of a home's ledger.

    Raises:
        LedgerError: The ledger cannot be read, or is not the one that the home has seen.
    """
    with open_ledger(home) as ledger:
        books = read_books(ledger)
    registry = CollectorRegistry(auto_describe=False)
    _budgets(registry, books.state)
    _waiting_metrics(registry, books.state)
    _upkeep(registry, books.upkeep)
    _gauge(registry, "ledger_entries", "Entries of the ledger.").set(len(books.times))
    return generate_latest(registry).decode("utf-8")


def _gauge(
    registry: CollectorRegistry, name: str, words: str, labels: tuple[str, ...] = ()
) -> Gauge:
    return Gauge(f"statpress_{name}", words, labels, registry=registry)


def _budgets(registry: CollectorRegistry, state: State) -> None:
    """What each account has left."""
    limit = _gauge(registry, "budget_limit", "Limit in force of a dataset's budget.", _MEASURE)
    left = _gauge(registry, "budget_left", "What later charges may still spend.", _MEASURE)
    looks = _gauge(registry, "looks_left", "Looks at the data until it is closed.", _DATASET)
    refusals = _gauge(
        registry, "refusals_left", "Runs that gates may stop until it is closed.", _DATASET
    )
    for account in state.accounts.values():
        for measure, amount in account.limit.amounts.items():
            labels = (account.dataset, account.policy, measure)
            limit.labels(*labels).set(_at_most(amount))
            left.labels(*labels).set(_at_most(account.remaining[measure]))
        looks.labels(account.dataset).set(account.looks_left)
        refusals.labels(account.dataset).set(_refusals_left(account))


def _refusals_left(account: Account) -> int:
    return 0 if account.closed else account.max_refusals - account.open_refusals


def _waiting_metrics(registry: CollectorRegistry, state: State) -> None:
    """How many releases wait, and for what."""
    gauge = _gauge(
        registry,
        "releases_waiting",
        "Prepared releases that wait for this.",
        ("dataset", "waits_for"),
    )
    found = Counter(
        (charge.entry.body["dataset"], charge.status) for charge in state.charges.values()
    )
    for dataset in state.accounts:
        for status, what in _WAITING.items():
            gauge.labels(dataset, what).set(found[dataset, status])


def _upkeep(registry: CollectorRegistry, upkeep: dict[str, Kept]) -> None:
    """When this home last did what keeps a ledger safe; an act that was never done is left out."""
    gauge = _gauge(
        registry, "last_upkeep_timestamp_seconds", "When this home last did this.", ("act",)
    )
    for act, kept in upkeep.items():
        gauge.labels(act.replace(" ", "_")).set(kept.time.timestamp())


def _at_most(amount: Decimal) -> float:
    """The largest float that is not above an amount."""
    nearest = float(amount)
    return nearest if Decimal(nearest) <= amount else math.nextafter(nearest, -math.inf)
