"""One run's places: private work folder, curator log, bundle under construction.

Everything is claimed before the charge, so that a folder that cannot be written
or a name that is taken costs nothing.
"""

from __future__ import annotations

import datetime
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from configs.loading import Release
from mechanisms.errors import BundleExistsError, OutputNotWritableError
from mechanisms.planning.plan import Plan
from tasks.bundle.manifest import NAME as MANIFEST
from tasks.engines.snapshot import Snapshot
from tasks.execution.folders import claims, remove_abandoned, sync
from tasks.execution.home import Home
from tasks.execution.run_context import Gatekeeper, RunContext
from tasks.ledger_rules.fields import check_place
from tasks.plans.publishing_key import publishing_key
from tasks.products.registry import kind_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BUILDING = ".building-"
PREPARED = "prepared"
"""Folder of the home for the bundles that wait for their approval, each named by its run."""


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
    """

    context: RunContext
    reviewed: bool
    insecure_seed: int | None
    work: Path
    building: Path
    target: Path
    advance: Callable[[int], None]
    started: datetime.datetime
    snapshot: Snapshot
    signer: Ed25519PrivateKey | None = None

    def __repr__(self) -> str:
        return f"Run({self.run_id})"

    @property
    def home(self) -> Home:
        """Where the ledger lies."""
        return self.context.home

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
    is ever in the publishing directory before.

    Raises:
        OutputNotWritableError: A folder cannot be made, or lacks space.
        BundleExistsError: A bundle of the declared name is there.
        SigningKeyError: The key that the config names cannot be used; with ``signer`` that signs.
    """
    key = publishing_key(release) if signer is None else signer
    home, run_id = context.home, context.run_id
    with claims() as claim:
        work_root = home.folder("work")
        directory = release.located(release.config.publish.directory)
        target = directory / _bundle_name(release, run_id, insecure_seed)
        check_place(f"{target}-{run_id}")
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
        _check_space(directory, plan, len(release.config.publish.formats))
        yield Run(
            context=context,
            reviewed=reviewed,
            insecure_seed=insecure_seed,
            work=work,
            building=building,
            target=target,
            advance=advance,
            started=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
            signer=key,
            snapshot=Snapshot(work),
        )


@contextmanager
def writing(run: Run, *, charged: bool = True) -> Iterator[None]:
    """Say what is wrong where a bundle cannot be written; nothing is published.

    Raises:
        OutputNotWritableError: The disk is full, or fails.
    """
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


def keep_folder(run: Run) -> Path:
    """Put the sealed bundle where it waits, for its owner only; returns that place."""
    _settle(run.building, 0o700, 0o600)
    place = run.home.folder(PREPARED) / run.run_id
    try:
        os.rename(run.building, place)
        sync(place.parent)
        return place
    except OSError as error:
        reason = error.strerror
    raise OutputNotWritableError(f"The bundle cannot be kept ({reason}).", where=str(place))


def _settle(folder: Path, for_folders: int, for_files: int) -> None:
    """Give a folder and all in it their modes, and have it on disk."""
    for path in (*folder.rglob("*"), folder):
        path.chmod(for_folders if path.is_dir() else for_files)
        sync(path)


def _bundle_name(release: Release, run_id: str, insecure_seed: int | None) -> str:
    """The declared name, or the dataset with time and run; tests are marked."""
    name = release.config.publish.name
    if name is None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in release.config.dataset)
        name = f"{safe[:60]}-{now}-{run_id[:8]}"
    return name if insecure_seed is None else f"{name}-NOT-PUBLISHABLE"


def make_directory(directory: Path, home: Home) -> None:
    """Make the publishing directory unless it is there, and see that bundles may lie in it.

    Raises:
        OutputNotWritableError: They may not.
    """
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


def _check_space(directory: Path, plan: Plan, n_formats: int) -> None:
    """Refuse before the charge what clearly cannot be written after it."""
    values = sum(kind_of(product).size(product) for product in plan.products)
    needed = 4 * values * n_formats + 2**20
    if shutil.disk_usage(directory).free < needed:
        raise OutputNotWritableError(
            f"The bundle may need {needed / 2**20:.0f} MiB; the disk has less free.",
            where=str(directory),
        )
