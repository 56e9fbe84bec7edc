"""What an upload takes and what a target offers for it."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from mechanisms.errors import UploadError

POINTER = "statpress-latest/1"
_MEDIA = {
    ".csv": "text/csv",
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".parquet": "application/vnd.apache.parquet",
    ".yaml": "application/yaml",
}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A published bundle as it is uploaded.

    Attributes:
        folder: Where it lies.
        name: That of its folder, under which a target has it.
        manifest: Verified.
        files: Size in bytes and SHA-256 by path, in the order of the upload: the manifest last.
    """

    folder: Path
    name: str
    manifest: Mapping[str, Any]
    files: Mapping[str, tuple[int, str]]

    @property
    def pointer(self) -> dict[str, Any]:
        """What a pointer to the newest release says, as JSON."""
        stated = {key: self.manifest[key] for key in ("dataset", "created", "run_id", "seal")}
        return {"format": POINTER, "name": self.name, **stated}


class Store(Protocol):
    """A target with the place of one release; every method raises ``UploadError``."""

    place: str
    """Address of the release there, for people."""

    def held(self) -> Mapping[str, int | None]:
        """Sizes in bytes, where known, of the release's files that are there, by path."""

    def read(self, path: str) -> Iterator[bytes]:
        """A file as the target gives it back, in pieces."""

    def write(self, path: str) -> None:
        """Send a file of the bundle, in place of one that is there."""

    def show(self) -> str:
        """Once all files are there: let people see them, and replace the pointer if asked.

        Returns:
            What the pointer says now, in words; nothing where there is none.
        """


def replaces(bundle: Bundle, there: object, place: str) -> bool:
    """Whether a bundle takes the place of what a pointer says: never of a newer release.

    Raises:
        UploadError: What is there is not a pointer of ours, or another dataset's.
    """
    known = there if isinstance(there, dict) and there.get("format") == POINTER else {}
    if known.get("dataset") != bundle.manifest["dataset"]:
        raise UploadError(
            "What is there belongs to another dataset, or is not a pointer to a release."
            if known
            else "What is there is not a pointer to a release.",
            where=place,
            next_step="Give each dataset another name under 'latest'; nothing was replaced.",
        )
    return str(known.get("created")) <= str(bundle.manifest["created"])


def said_of_pointer(bundle: Bundle, name: str, there: Mapping[str, Any]) -> str:
    """What a pointer says, in words."""
    if there == bundle.pointer:
        return f"{name} names this release."
    return f"{name} stays with {there.get('name')}, which is newer."


def pointer_text(bundle: Bundle) -> bytes:
    """The pointer as a file."""
    return (json.dumps(bundle.pointer, indent=2, ensure_ascii=True) + "\n").encode()


def media_type(path: str) -> str:
    """The media type of a file by its suffix."""
    suffix = PurePosixPath(path).suffix
    return _MEDIA.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
