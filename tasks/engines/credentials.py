"""The credentials of a source, from the environment or a file; nothing here keeps or shows them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mechanisms.errors import SourceAccessError
from tasks.source.private_files import text_of_owner

_LONGEST = 10_000


@dataclass(frozen=True)
class Credentials:
    """Where they are found.

    Attributes:
        env: Name of an environment variable.
        file: Path of a file, if it is not a variable.
    """

    env: str | None = None
    file: Path | None = None

    def read(self) -> str:
        """What is there.

        Raises:
            SourceAccessError: Nothing is, or others can read the file.
        """
        if self.env is not None:
            found = os.environ.get(self.env, "").strip()
            if not found:
                raise SourceAccessError(
                    "The environment variable with the credentials is not set.",
                    where=self.env,
                    next_step="Set it for whoever runs the release, or name another in "
                    "source.credentials.",
                )
            return found
        assert self.file is not None
        data, fault = text_of_owner(self.file, _LONGEST)
        found = data.decode(errors="replace").strip()
        if fault or not found:
            raise SourceAccessError(
                f"The file with the credentials cannot be used ({fault or 'it is empty'}).",
                where=str(self.file),
                next_step=f"Run 'chmod 600 {self.file}'." if "others" in fault else "",
            )
        return found
