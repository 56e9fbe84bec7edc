"""Where a bundle may lie, and how its files are read there for verifying.

A bundle is a folder; for verifying it may also be a zip file, which is never unpacked, or a
prefix of addresses on a web server.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

Contents = dict[str, tuple[int, str]]
"""Size and SHA-256 of files, by path; size -1 of what is not such a file."""

NEITHER = (-1, "")
"""What stands for anything that is not a file as it should be."""

CHUNK = 1 << 20
CHECK = "Check the path of the bundle."


class Source(Protocol):
    """What can be read to its end."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class Place(Protocol):
    """A bundle to be verified.

    Attributes:
        where: For messages.
        lists: Whether it can say which files there are besides those that are asked for.
    """

    where: str
    lists: bool

    def text(self, name: str, most: int) -> bytes | None:
        """A small file; None if it is missing or not a plain file, empty if it is too large.

        Args:
            name: Its path in the bundle.
            most: Bytes that it may have.
        """

    def contents(self, sizes: Mapping[str, int]) -> Contents:
        """What the files hold, all but the manifest; in bounded memory.

        Args:
            sizes: By path the bytes that a file should have. One with others need not be read.
        """

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        """What is wrong with a place without a manifest, and the next step; or two blanks.

        Args:
            manifest: The file that is missing.
            statement: The one that would tell a bundle which lost it from something else.
        """


class Folder:
    """A bundle as it is published."""

    lists = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = str(folder)

    def text(self, name: str, most: int) -> bytes | None:
        path = self._folder / name
        if path.is_symlink() or not path.is_file():
            return None
        return path.read_bytes() if path.stat().st_size <= most else b""

    def contents(self, sizes: Mapping[str, int]) -> Contents:
        """All files; an empty folder counts as one, so that none can be slipped in."""
        return contents_of(self._folder)

    def flaw(self, manifest: str, statement: str) -> tuple[str, str]:
        if not os.path.lexists(self._folder):
            return "There is no such folder or file.", CHECK
        if not self._folder.is_dir():
            return "This is neither a folder nor a zip file.", CHECK
        if not any(os.path.lexists(self._folder / name) for name in (manifest, statement)):
            return f"This folder is not a bundle: it has no {manifest}.", CHECK
        return "", ""


def contents_of(folder: Path) -> Contents:
    """Size and SHA-256 of every file in a folder, by its path there.

    Anything that is neither a file nor a folder counts as a file of size -1, and so
    does an empty folder, so that neither can be slipped in.
    """
    found: Contents = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                found[relative] = (path.stat().st_size, digest)
            elif not stat.S_ISDIR(mode) or not any(path.iterdir()):
                found[relative] = NEITHER
    return found


def measured(source: Source, size: int) -> tuple[int, str]:
    """Bytes and SHA-256 of what is read, or ``NEITHER`` unless it ends after so many bytes."""
    digest, found = hashlib.sha256(), 0
    while part := source.read(CHUNK):
        found += len(part)
        if found > size:
            return NEITHER
        digest.update(part)
    return found, digest.hexdigest()


def is_plain(path: str) -> bool:
    """Whether a path leads to one place below a folder, on every system."""
    parts = path.split("/")
    return (
        path.isprintable()
        and not set(path) & set('\\:*?"<>|')
        and all(part not in ("", ".", "..") for part in parts)
    )
