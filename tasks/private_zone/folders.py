"""The home, where statpress keeps what must not lie in a bundle, and folders that a run claims.

The home is ``$STATPRESS_HOME`` or ``~/.local/share/statpress``. One place per user, whatever the
current folder, because a second ledger would be a second budget. Workers on several machines share
a ledger that ``$STATPRESS_LEDGER`` names; a home remembers that address in its file
``ledger-address``, without a password, so that later commands need no variable.

A claimed folder is locked while its run is at work, and removed after it. A run that was killed
leaves folders that nobody holds a lock on; the next run removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from statpress.mechanisms.errors import (
    ExposedLedgerError,
    LedgerUnavailableError,
    OutputNotWritableError,
)
from statpress.tasks.private_zone.guards import uninterrupted


def make_private(folder: Path) -> None:
    """Make a folder and what is missing above it, each for its owner only."""
    for part in (*reversed(folder.parents), folder):
        if not part.is_dir():
            part.mkdir(mode=0o700, exist_ok=True)


def check_not_exposed(path: Path) -> None:
    """Refuse a file or folder that every user may write to; a group may share one.

    Raises:
        ExposedLedgerError: It is there, and everybody may.
    """
    try:
        exposed = path.stat().st_mode & stat.S_IWOTH
    except OSError:
        return  # who opens it says why that fails
    if exposed:
        raise ExposedLedgerError(
            "Every user of this machine can write here, and so change what was spent.",
            where=str(path),
            next_step=f"Run 'chmod o-w {path}', then 'statpress ledger verify'.",
        )


def _expanded(text: str, name: str) -> Path:
    """A path with its ~ resolved."""
    with contextlib.suppress(RuntimeError):
        return Path(text).expanduser()
    raise OutputNotWritableError(
        "There is no such user's home.", where=name, next_step="Give a path without '~'."
    )


def _absolute(text: str, name: str) -> Path:
    """A path from the environment: relative, it would mean another one in every folder.

    The value is not shown, since it may be an address with a password, mistyped.
    """
    path = _expanded(text, name)
    if not path.is_absolute():
        raise OutputNotWritableError(
            "This is neither an absolute path nor an address such as postgresql://host/database.",
            where=name,
            next_step=f"Set {name} to an absolute path.",
        )
    return path


_ADDRESS = "ledger-address"
_PASSWORD = re.compile(r"^([\w+]+://[^:/@]*):[^@]*@")  # what SQLAlchemy takes for one


def _remembered_address(root: Path) -> str | None:
    """The address of the ledger that a home remembers; None if it has its own, or none yet."""
    place = root / _ADDRESS
    check_not_exposed(place)
    try:
        return place.read_text(encoding="utf-8").strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
    raise LedgerUnavailableError(
        f"The home's note of where its ledger lies cannot be read ({reason}).",
        where=str(place),
        next_step="Run the command as the user whose home this is.",
    )


@dataclass(frozen=True)
class Home:
    """A home folder; only its owner can enter it.

    Attributes:
        root: The folder.
        address: Where the ledger lies if not in the folder: an address such as
            ``postgresql://host/database``, or a path.
    """

    root: Path
    address: str | None = None

    @classmethod
    def default(cls) -> Home:
        """The home that the environment names, with the ledger that it names or that is remembered.

        Raises:
            LedgerUnavailableError: The home remembers another ledger than the environment names.
        """
        data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        chosen = os.environ.get("STATPRESS_HOME") or f"{data}/statpress"
        address = os.environ.get("STATPRESS_LEDGER") or None
        if address and "://" not in address:
            address = str(_absolute(address, "STATPRESS_LEDGER"))
        root = _absolute(chosen, "STATPRESS_HOME")
        remembered = _remembered_address(root)
        if address and remembered and _PASSWORD.sub(r"\1@", address) != remembered:
            raise LedgerUnavailableError(
                "STATPRESS_LEDGER names another ledger than the one that this home remembers,"
                f" {remembered}; a second ledger would be a second budget.",
                where=str(root / _ADDRESS),
                next_step="Unset STATPRESS_LEDGER, or write it as the file has it. Only if the"
                " ledger was moved there by export and import, remove the file.",
            )
        return cls(root, address or remembered)

    @classmethod
    def of(cls, folder: Path) -> Home:
        """The home in a folder that a person named, and the ledger in it or that it remembers."""
        root = _expanded(str(folder), "--home").absolute()
        return cls(root, _remembered_address(root))

    def remember_address(self) -> None:
        """Note where the ledger lies, without its password; if that fails the variable is needed.

        A home whose ledger lies in it notes nothing, and a note that is there stays.
        """
        place = self.root / _ADDRESS
        if self.address is None or place.exists():
            return
        with contextlib.suppress(OSError, OutputNotWritableError):
            self.folder("")
            with replacing(place) as file:
                file.write(_PASSWORD.sub(r"\1@", self.address) + "\n")

    @property
    def ledger(self) -> Path | str:
        """The ledger's file or address."""
        return self.address or self.root / "ledger.sqlite"

    def folder(self, name: str) -> Path:
        """A private folder of the home, made with mode 0700.

        Raises:
            ExposedLedgerError: Every user may write to the home.
            OutputNotWritableError: It cannot be made.
        """
        check_not_exposed(self.root)
        folder = self.root / name
        try:
            make_private(folder)
            folder.chmod(0o700)
            reason = None
        except OSError as error:
            reason = error.strerror
        if reason is not None:
            raise OutputNotWritableError(
                f"The home folder cannot be made ({reason}).",
                where=str(folder),
                next_step="Set STATPRESS_HOME to a folder of your own.",
            )
        return folder


_RUN_ID = re.compile("[0-9a-f]{32}")
_TRIES = 20


@contextmanager
def claims() -> Iterator[Callable[[Path], Path]]:
    """Make folders of mode 0700 that are locked while in use and removed after.

    A signal at any moment leaves no folder behind: signals wait while one is made and while
    it is removed, and what a signal just before the removal prevents is done again.

    Yields:
        What makes and locks a folder; it raises ``OutputNotWritableError`` if that cannot
        be made or another process works in it.
    """
    held: list[tuple[Path, int]] = []

    def claim(folder: Path) -> Path:
        with uninterrupted():
            held.append((folder, _made(folder)))
        return folder

    try:
        try:
            yield claim
        finally:
            _remove(held)
    finally:
        _remove(held)


def _made(folder: Path) -> int:
    """Make a folder and lock it; the descriptor that holds the lock."""
    for _ in range(_TRIES):  # another run's sweep may come between making and locking
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
            descriptor = _locked(folder)
            reason = "this very run is at work in another process"
        except OSError as error:
            descriptor, reason = None, str(error.strerror)
        if descriptor is not None:
            return descriptor
    raise OutputNotWritableError(
        f"A working folder cannot be made ({reason}).", where=str(folder.parent)
    )


def _remove(held: list[tuple[Path, int]]) -> None:
    """Remove folders, and only then give their locks back."""
    with uninterrupted():
        while held:
            folder, descriptor = held.pop()
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None if another has it or removed it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def at_work(home: Home, run_id: str) -> bool:
    """Whether a run holds its folder in this home just now."""
    folder = home.root / "work" / run_id
    try:
        descriptor = _locked(folder)
    except OSError:
        return False
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def remove_abandoned(parent: Path, prefix: str) -> list[str]:
    """Remove folders of runs that were killed, whose lock nobody holds; their ids."""
    removed = []
    for folder in parent.iterdir():
        name = folder.name.removeprefix(prefix)
        if folder.name != f"{prefix}{name}" or not _RUN_ID.fullmatch(name):
            continue  # not one of ours
        if remove_if_abandoned(folder):
            removed.append(name)
    return removed


def remove_if_abandoned(folder: Path) -> bool:
    """Remove a folder unless somebody holds its lock; whether nobody did."""
    try:
        descriptor = _locked(folder)
    except OSError:
        return False
    if descriptor is None:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)
    return True


@contextmanager
def replacing(place: Path, *, mode: int = 0o600) -> Iterator[TextIOWrapper]:
    """A new text file that takes the place of another once it is whole and on disk.

    Raises:
        OSError: It cannot be written; the place is as it was.
    """
    descriptor, new = tempfile.mkstemp(prefix=".new-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(new, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def sync(path: Path) -> None:
    """Have a file or folder on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
