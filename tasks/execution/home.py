"""Where statpress keeps what must not lie in a bundle: ledger, curator logs, work.

The home is ``$STATPRESS_HOME`` or ``~/.local/share/statpress``. One place per
user, whatever the current folder, because a second ledger would be a second
budget. Workers on several machines share a ledger that ``$STATPRESS_LEDGER`` names.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from mechanisms.errors import OutputNotWritableError


def make_private(folder: Path) -> None:
    """Make a folder and what is missing above it, each for its owner only."""
    for part in (*reversed(folder.parents), folder):
        if not part.is_dir():
            part.mkdir(mode=0o700, exist_ok=True)


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
        """The home that the environment names."""
        data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        chosen = os.environ.get("STATPRESS_HOME") or f"{data}/statpress"
        address = os.environ.get("STATPRESS_LEDGER") or None
        if address and "://" not in address:
            address = str(_absolute(address, "STATPRESS_LEDGER"))
        return cls(_absolute(chosen, "STATPRESS_HOME"), address)

    @classmethod
    def of(cls, folder: Path) -> Home:
        """The home in a folder that a person named, and the ledger in it."""
        return cls(_expanded(str(folder), "--home").absolute())

    @property
    def ledger(self) -> Path | str:
        """The ledger's file or address."""
        return self.address or self.root / "ledger.sqlite"

    def folder(self, name: str) -> Path:
        """A private folder of the home, made with mode 0700.

        Raises:
            OutputNotWritableError: It cannot be made.
        """
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
