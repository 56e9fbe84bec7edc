"""A folder with packages of a user's own, named as ours were once installed."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("mechanisms", "configs", "tasks", "flows")


def with_packages_of_its_own(folder: Path) -> Path:
    """Make packages in a folder that fail when they are imported; the folder."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text('raise RuntimeError("a user\'s own")\n')
    return folder
