"""From what a person names to the place where a bundle lies."""

from __future__ import annotations

import re
from pathlib import Path

from tasks.bundle.places import Folder, Place
from tasks.bundle.web_prefix import WebPrefix
from tasks.bundle.zip_file import ZipFile


def place_of(bundle: str) -> Place:
    """The place of a bundle: a folder, a zip file, or the files below a web address.

    Args:
        bundle: Path or address.

    Raises:
        BundleVerificationError: It is a zip file or an address that no bundle can have.
    """
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", bundle):
        return WebPrefix(bundle)
    path = Path(bundle)
    if path.is_file() and _begins_as_zip(path):
        return ZipFile(path)
    return Folder(path)


def _begins_as_zip(path: Path) -> bool:
    """Whether a file is meant as a zip file."""
    with path.open("rb") as file:
        return file.read(2) == b"PK" or path.suffix.lower() == ".zip"
