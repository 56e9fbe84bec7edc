"""One run: the places that it claims, what it says of unfinished runs before it, and its outcome.

Everything is claimed before the charge, so that a folder that cannot be written or a name that is
taken costs nothing.

What is said of earlier runs are public facts only: the ledger's, and run ids.
"""

from __future__ import annotations

import datetime
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from statpress.configs.loading import Release
from statpress.mechanisms.errors import BundleExistsError, OutputNotWritableError, SigningKeyError
from statpress.mechanisms.periods import SeriesPeriod
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.bundle.manifest import MANIFEST_NAME as MANIFEST
from statpress.tasks.ledger.accounts import Account, Charge, Status
from statpress.tasks.ledger.entries import Entry, Loss, check_field
from statpress.tasks.private_zone.folders import Home, claims, remove_abandoned, sync
from statpress.tasks.private_zone.run_context import Gatekeeper, RunContext
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.source.engine import Snapshot

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


BUILDING = ".building-"
REHEARSAL = "rehearsal-"
"""How the id of a rehearsal begins, so that whatever is said of one names it as such."""
PREPARED = "prepared"
"""Folder of the home for the bundles that wait for their approval, each named by its run."""


def publishing_key(release: Release) -> Ed25519PrivateKey | None:
    """The key that a release is signed with; None if its config names none.

    Nobody can be asked for a passphrase: the runs of a deployment read the same config.

    Raises:
        SigningKeyError: There is no such key, others can use its file, or it has a passphrase.
    """
    named = release.config.publish.sign
    if named is None:
        return None
    from statpress.tasks.ledger.entries import read_private_key

    path = release.located(named)
    try:
        return read_private_key(path)
    except SigningKeyError as error:
        error.where = f"{release.document.where(('publish', 'sign'))}: {path}"
        if "passphrase" in error.what:
            error.next_step = (
                "Give the key with --sign on a terminal, which asks for it, or name one without."
            )
        raise


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """The open places of one run; its ``repr`` shows the run's id only.

    Attributes:
        context: The run.
        reviewed: Whether the bundle waits for an approval instead of being published.
        insecure_seed: A test's seed; marks the bundle as not publishable.
        work: Private folder of mode 0700 for spill files.
        building: The bundle under construction: beside its final place, or where it waits.
        target: The final place.
        advance: Called with the number of records drawn, for a progress bar.
        started: UTC time, to the second.
        snapshot: Holds the source from its first reading to its last.
        signer: The key that signs the bundle, if it is signed.
        rehearsal: Whether its data are made up; marks what it leaves as not publishable.
    """

    context: RunContext
    reviewed: bool
    insecure_seed: int | None
    work: Path
    building: Path
    target: Path
    advance: Callable[[int], None]
    started: datetime.datetime = field(default_factory=_now)
    snapshot: Snapshot
    signer: Ed25519PrivateKey | None = None
    rehearsal: bool = False

    def __repr__(self) -> str:
        return f"Run({self.run_id})"

    @property
    def home(self) -> Home:
        """Where the ledger lies."""
        return self.context.home

    @property
    def publishable(self) -> bool:
        """Whether its data are those of the source, and its randomness is secret."""
        return self.insecure_seed is None and not self.rehearsal

    @property
    def run_id(self) -> str:
        """Public identifier, the idempotency key of the charge."""
        return self.context.run_id

    @property
    def inspector(self) -> Gatekeeper:
        """The quality process."""
        assert self.context.inspector is not None
        return self.context.inspector

    @property
    def created(self) -> str:
        """Start time as ISO 8601 text."""
        return self.started.isoformat().replace("+00:00", "Z")

    def keep_folder(self) -> Path:
        """Put the sealed bundle where it waits, for its owner only; returns that place."""
        _settle(self.building, 0o700, 0o600)
        place = self.home.folder(PREPARED) / self.run_id
        try:
            os.rename(self.building, place)
            sync(place.parent)
            return place
        except OSError as error:
            reason = error.strerror
        raise OutputNotWritableError(f"The bundle cannot be kept ({reason}).", where=str(place))


@contextmanager
def open_run(
    context: RunContext,
    release: Release,
    plan: Plan,
    *,
    reviewed: bool,
    insecure_seed: int | None,
    advance: Callable[[int], None],
    signer: Ed25519PrivateKey | None = None,
) -> Iterator[Run]:
    """Claim the places of a run, find its key, and give the places back whatever happens.

    A bundle that waits for its approval is built where it will wait, so that nothing of it
    is ever in the publishing directory before. It is signed by ``signer``, or else by the key
    that the config names.
    """
    key = publishing_key(release) if signer is None else signer
    home, run_id = context.home, context.run_id
    with claims() as claim:
        work_root = home.folder("work")
        directory = release.directory
        target = directory / _bundle_name(release, run_id, insecure_seed)
        check_field("bundle", f"{target}-{run_id}")
        if os.path.lexists(target):
            raise BundleExistsError("A bundle of this name is already there.", where=str(target))
        for killed in remove_abandoned(work_root, ""):
            context.notify(f"Removed the private folder of run {killed}, which was killed.")
        work = claim(work_root / run_id)
        make_directory(directory, home)
        remove_abandoned(directory, BUILDING)
        waiting = home.folder(PREPARED)
        remove_abandoned(waiting, BUILDING)  # never a prepared bundle: that has another name
        beside = waiting if reviewed else directory
        building = claim(beside / f"{BUILDING}{run_id}")
        for place in dict.fromkeys((directory, beside)):
            check_space(place, work, plan, len(release.config.publish.formats))
        yield Run(
            context=context,
            reviewed=reviewed,
            insecure_seed=insecure_seed,
            work=work,
            building=building,
            target=target,
            advance=advance,
            signer=key,
            snapshot=Snapshot(work),
        )


@contextmanager
def writing(run: Run, *, charged: bool = True) -> Iterator[None]:
    """Say what is wrong where a bundle cannot be written; nothing is published."""
    reason = None
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "the disk fails"
    if reason is not None:
        so = "The run was charged, and stays so" if charged else "Nothing was charged"
        raise OutputNotWritableError(
            f"The bundle cannot be written ({reason}). {so}.",
            where=str(run.target.parent),
            next_step=f"Mend the disk, then run again{', which is charged again' * charged}.",
        )


def publish_folder(building: Path, target: Path, run_id: str) -> Path:
    """Move the finished bundle into place in one step; returns its final place.

    Its files are on disk before it appears. If another run took the name in the
    meantime, the bundle goes beside it under a name with the run's id, since its
    budget is spent.
    """
    _settle(building, 0o755, 0o644)
    for place in final_places(target, run_id):
        try:
            os.rename(building, place)
        except OSError as error:
            if os.path.lexists(place):
                continue
            raise OutputNotWritableError(
                f"The bundle cannot be moved into place ({error.strerror}).", where=str(place)
            ) from None
        sync(place.parent)
        return place
    raise BundleExistsError("A bundle of this name is already there.", where=str(target))


def final_places(target: Path, run_id: str) -> tuple[Path, Path]:
    """Where a bundle may go: its place, and beside it if another run took the name."""
    return target, target.with_name(f"{target.name}-{run_id[:8]}")


def _settle(folder: Path, for_folders: int, for_files: int) -> None:
    """Give a folder and all in it their modes, and have it on disk."""
    for path in (*folder.rglob("*"), folder):
        path.chmod(for_folders if path.is_dir() else for_files)
        sync(path)


def _bundle_name(release: Release, run_id: str, insecure_seed: int | None) -> str:
    """The declared name, or the dataset with time and run; tests are marked."""
    name = release.config.publish.name
    if name is None:
        name = stamped_name(release, run_id)
    return name if insecure_seed is None else f"{name}-NOT-PUBLISHABLE"


def stamped_name(release: Release, run_id: str) -> str:
    """The dataset with time and run, whose id names a rehearsal as such."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in release.config.dataset)
    kept = len(REHEARSAL) * run_id.startswith(REHEARSAL) + 8
    return f"{safe[:60]}-{now}-{run_id[:kept]}"


def make_directory(directory: Path, home: Home) -> None:
    """Make the publishing directory unless it is there, and see that bundles may lie in it."""
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True)
            directory.chmod(0o755)
        mode = directory.stat().st_mode
        reason = None
    except OSError as error:
        reason = f"cannot be made ({error.strerror})"
    if reason is None and mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        reason = "can be written by everyone, who could replace a bundle"
    real = directory.resolve()
    if reason is None and (real == home.root.resolve() or home.root.resolve() in real.parents):
        reason = "lies inside the private home"
    if reason is None and any((part / MANIFEST).exists() for part in (real, *real.parents)):
        reason = "lies inside a bundle"
    if reason is not None:
        raise OutputNotWritableError(f"The publishing directory {reason}.", where=str(directory))


def check_space(directory: Path, work: Path, plan: Plan, n_formats: int) -> None:
    """Refuse before the charge what clearly cannot be written after it."""
    from statpress.tasks.source.scanning import bytes_per_record  # takes long

    values = sum(kind_of(product).publication(product).most_values for product in plan.products)
    bundle = 4 * values * n_formats + 2**20
    files = sum(kind_of(product).working_memory(product).files for product in plan.products)
    if files and plan.coded is not None and plan.privacy.unit_records == 1:
        files += plan.privacy.n_records * bytes_per_record(plan.coded)
    together = bundle + files if os.stat(work).st_dev == os.stat(directory).st_dev else 0
    for folder, needed, what in (
        (directory, bundle, "The bundle"),
        (work, files, "The run's private folder"),
        (directory, together, "The bundle and the run's private folder together"),
    ):
        if shutil.disk_usage(folder).free < needed:
            raise OutputNotWritableError(
                f"{what} may need {needed / 2**20:,.0f} MiB; the disk has less free. "
                "Nothing was charged.",
                where=str(folder),
                next_step="Free space on the disk, or use another one.",
            )


_TOLD = 3


def unpublished(account: Account) -> list[Charge]:
    """Charges after the account's last publication that published nothing, in order.

    The chain's order decides, not the clock: a run that is killed is told of until a
    later one publishes, and then stands in the history alone.
    """
    charges = account.charges.values()
    last = max((c.publication.sequence for c in charges if c.publication), default=0)
    open_ones = (Status.RESERVED, Status.DRAWN)
    return [c for c in charges if c.status in open_ones and c.entry.sequence > last]


def undecided(account: Account) -> list[str]:
    """The runs whose prepared bundles wait for a decision, in order."""
    return [run for run, c in account.charges.items() if c.status is Status.PREPARED]


def unfinished_in_words(
    account: Account, at_work: Callable[[str], bool] = lambda run_id: False
) -> Iterator[str]:
    """A sentence or two on each run that was charged and has published nothing."""
    left = [c for c in unpublished(account) if not at_work(c.entry.body["run_id"])]
    if len(left) > _TOLD:
        yield (
            f"{len(left) - _TOLD} more runs of {account.dataset} were charged and published "
            "nothing: see 'statpress ledger charge-history'."
        )
    for charge in left[-_TOLD:]:
        run_id, created = charge.entry.body["run_id"], charge.entry.body["created"]
        loss = charge.loss.within(account.limit.amounts)
        if charge.status is Status.RESERVED:
            then = (
                "never began to draw. If it is not at work, its budget can be given back: "
                f"statpress ledger void {run_id} --reason …"
            )
        else:
            then = (
                "published nothing. Its budget stays spent. Only a run that was stopped while it "
                "published can have left its bundle: then note it with statpress ledger note BUNDLE"
            )
        yield f"Run {run_id} was charged {loss} at {created} and {then}"


def looks_in_words(account: Account) -> str:
    """How often runs of a dataset looked and were stopped, and what follows from that."""
    looks, stopped = account.open_looks, account.open_refusals
    text = (
        f"Runs looked at {account.dataset} {looks} time{'s' * (looks != 1)} since it was"
        f" {'reopened' if account.reopenings else 'registered'}, and gates stopped {stopped};"
        f" the limits are {account.max_looks} and {account.max_refusals}."
    )
    if account.closed:
        text += (
            " No further run looks at the data. Look into them, then: statpress ledger amend"
            f" {account.dataset} --reopen --reason …"
        )
    return text


def sources_in_words(account: Account) -> str:
    """What an account is about; or that nobody has said so, and how to."""
    if account.sources:
        return f"About {', '.join(account.sources)}."
    return (
        f"{account.dataset} is bound to no source: the same people can be charged in another"
        f" account as well. Bind it with 'statpress ledger amend {account.dataset} --source PATH'."
    )


def design_in_words(account: Account) -> str:
    """In which periods a person takes part, by the account's design, and which were charged."""
    periods = account.by_period.periods
    text = f"Design '{account.design}': {account.panel.words}. The limit is one person's."
    if not periods:
        first = "" if account.panel.design.by else " The first charge decides how long a period is."
        return f"{text} No period was charged yet.{first}"
    one = "1 period was" if len(periods) == 1 else f"{len(periods):,} periods were"
    return f"{text} {one} charged, {min(periods)} to {max(periods)}."


LOOKED_AHEAD = 24
"""So many periods are looked at for how long a budget lasts."""


def left_in_words(account: Account) -> str:
    """For how long the budget lasts, each period charged as the last one was; else nothing."""
    last = account.last_of_a_period
    if last is None or account.next_period is None:
        return ""
    return lasting_in_words(account, last.loss, account.next_period, f", as {last.period} was")


def lasting_in_words(account: Account, loss: Loss, first: str, like: str = "") -> str:
    """For how long the budget lasts from a period on, if each is charged a loss."""
    begin = SeriesPeriod.read(first)
    number = account.lasts(loss, first, LOOKED_AHEAD)
    until = SeriesPeriod.at(begin.number + number - 1, begin.by)
    cost = f"{loss.within(account.limit.amounts)}{like}"
    if not number:
        return f"The budget does not last for {first}, if that is charged {cost}."
    if number == LOOKED_AHEAD and account.has_design and account.panel.reach <= LOOKED_AHEAD:
        return f"The budget does not run out, if every period is charged {cost}."
    if number == LOOKED_AHEAD:
        return f"The budget lasts to {until} at least, if every period is charged {cost}."
    return f"The budget lasts to {until} and no longer, if every period is charged {cost}."


def beginning(
    account: Account | None, charge: Charge | None, at_work: Callable[[str], bool]
) -> Iterator[str]:
    """What a run says of itself and of those before it when it begins."""
    if charge is not None and charge.status is Status.RESERVED:
        yield (
            f"This run was charged before, as entry {charge.entry.sequence} of the ledger, and "
            "never began to draw: it goes on with that charge."
        )
    if account is not None and not account.closed:  # of a closed one the error tells
        share = account.open_refusals / account.max_refusals
        if max(share, account.open_looks / account.max_looks) >= 0.5:
            yield looks_in_words(account)
    if account is not None and not account.sources:
        yield sources_in_words(account)
    waiting = [] if account is None else undecided(account)
    if waiting:
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        yield (f"Run {waiting[0]}{more} of this dataset waits for a decision: 'statpress review'.")
    own = None if charge is None else charge.entry.body["run_id"]
    if account is not None:
        yield from unfinished_in_words(account, lambda run_id: run_id == own or at_work(run_id))


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    """What came of an upload to one target; public.

    Attributes:
        place: Address of the release there.
        sent: Number of files that were sent.
        kept: Number of files that were there already.
        latest: What the pointer to the newest release says now, in words; empty without one.
    """

    place: str
    sent: int
    kept: int
    latest: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run leaves behind; public.

    Attributes:
        run_id: The run.
        dataset: Its account.
        status: What became of it: published, or prepared for its approval.
        bundle: Where the bundle lies.
        seal: SHA-256 of its manifest.
        epsilon: Charged, as decimal text.
        delta: Charged.
        ledger_entry: Hash of the charge.
        publishable: Whether its randomness is secret.
        uploads: What came of the uploads to the config's targets.
    """

    run_id: str
    dataset: str
    status: Status
    bundle: Path
    seal: str
    epsilon: str
    delta: str
    ledger_entry: str
    publishable: bool
    uploads: Sequence[Uploaded] = ()


def outcome_of(charge: Entry, status: Status, place: Path, seal: str) -> Outcome:
    """What a run leaves behind, as its charge states it."""
    body = charge.body
    return Outcome(
        run_id=body["run_id"],
        dataset=body["dataset"],
        status=status,
        bundle=place,
        seal=seal,
        epsilon=body["epsilon"],
        delta=body["delta"],
        ledger_entry=charge.hash,
        publishable=not body["insecure_seed"],
    )


def done_before(home: Home, charge: Charge) -> Outcome | None:
    """What a run has left behind that published or prepared its bundle; None of any other."""
    if charge.publication is not None:
        noted, place = charge.publication, Path(charge.publication.body["bundle"])
    elif charge.preparation is not None:
        run_id = charge.entry.body["run_id"]
        noted, place = charge.preparation, home.root / PREPARED / run_id
    else:
        return None
    return outcome_of(charge.entry, charge.status, place, noted.body["manifest_sha256"])


@contextmanager
def open_rehearsal(
    context: RunContext,
    release: Release,
    plan: Plan,
    directory: Path,
    advance: Callable[[int], None],
) -> Iterator[Run]:
    """Claim the places of a rehearsal, whose bundle never lies where releases do."""
    home, run_id = context.home, context.run_id
    publishing, real = release.located(release.config.publish.directory), directory.resolve()
    if publishing.resolve() in (real, *real.parents):
        raise OutputNotWritableError(
            "A rehearsal does not go into the publishing directory.",
            where=str(directory),
            next_step="Name another folder with --directory.",
        )
    with claims() as claim:
        work = claim(home.folder("work") / run_id)
        make_directory(directory, home)
        remove_abandoned(directory, BUILDING)
        check_space(directory, work, plan, len(release.config.publish.formats))
        yield Run(
            context=context,
            reviewed=False,
            insecure_seed=None,
            work=work,
            building=claim(directory / f"{BUILDING}{run_id}"),
            target=directory / f"{stamped_name(release, run_id)}-NOT-PUBLISHABLE",
            advance=advance,
            snapshot=Snapshot(work),
            rehearsal=True,
        )
