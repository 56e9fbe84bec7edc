"""What earlier versions left, as the folders of ``tests/golden`` keep it."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path


def bundles_of(version: Path, folder: Path) -> Path:
    """The bundles of a version, byte for byte as they were published, in a folder of the test."""
    with tarfile.open(version / "bundles.tar.xz") as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "releases"


def home_of(version: Path, folder: Path) -> Path:
    """A home in a folder of the test, with the ledger that charged for these bundles."""
    place = folder / "home"
    place.mkdir(mode=0o700)
    shutil.copyfile(version / "ledger.sqlite", place / "ledger.sqlite")
    (place / "ledger.sqlite").chmod(0o600)
    return place
