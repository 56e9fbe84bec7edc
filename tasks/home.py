"""Where statpress keeps what must not lie in a bundle: ledger, curator logs, work.

The home is ``$STATPRESS_HOME`` or ``~/.local/share/statpress``. One place per
user, whatever the current folder, because a second ledger would be a second
budget. Workers on several machines share a ledger that ``$STATPRESS_LEDGER`` names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mechanisms.errors import OutputNotWritableError


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
        data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        chosen = os.environ.get("STATPRESS_HOME") or Path(data) / "statpress"
        address = os.environ.get("STATPRESS_LEDGER") or None
        return cls(Path(chosen).expanduser().absolute(), address)

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
            for part in (self.root, folder):
                part.mkdir(parents=True, exist_ok=True, mode=0o700)
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
