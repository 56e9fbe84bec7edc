"""The manifest that seals a bundle, and its verification anywhere, without a ledger."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechanisms.errors import BundleVerificationError

FORMAT = "statpress-bundle/1"
NAME = "manifest.json"
_SEAL = "seal"


def seal(folder: Path, facts: Mapping[str, Any]) -> str:
    """Write the manifest of a folder; nothing may be added to it afterwards.

    Args:
        folder: The bundle under construction.
        facts: Dataset, run, ledger entry, versions: JSON values.

    Returns:
        The seal: SHA-256 over the manifest's canonical content.
    """
    manifest = {
        "format": FORMAT,
        **facts,
        "files": [
            {"path": path, "bytes": size, "sha256": digest}
            for path, (size, digest) in sorted(_contents(folder).items())
        ],
    }
    digest = _digest_of(manifest)
    text = json.dumps({**manifest, _SEAL: digest}, indent=2, ensure_ascii=False)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")
    return digest


def verify_bundle(folder: Path) -> dict[str, Any]:
    """Check every file of a bundle against its manifest.

    Returns:
        The manifest.

    Raises:
        BundleVerificationError: Naming each file that is changed, missing or added.
    """
    manifest = _read_manifest(folder)
    declared = {each["path"]: (each["bytes"], each["sha256"]) for each in manifest["files"]}
    found = _contents(folder)
    problems = [f"{path} is missing" for path in sorted(declared.keys() - found.keys())]
    problems += [f"{path} was added" for path in sorted(found.keys() - declared.keys())]
    problems += [
        f"{path} was changed"
        for path in sorted(declared.keys() & found.keys())
        if declared[path] != found[path]
    ]
    if problems:
        raise BundleVerificationError(f"{'; '.join(problems)}.", where=str(folder))
    return manifest


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    if path.is_symlink() or not path.is_file():
        raise BundleVerificationError(f"{NAME} is missing.", where=str(folder))
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        stated = manifest.pop(_SEAL)
        whole = manifest["format"] == FORMAT and stated == _digest_of(manifest)
        whole = whole and all({"path", "bytes", "sha256"} <= f.keys() for f in manifest["files"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise BundleVerificationError(f"{NAME} was changed.", where=str(folder))
    return {**manifest, _SEAL: stated}


def _digest_of(manifest: Mapping[str, Any]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _contents(folder: Path) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of every file but the manifest, by its path in the bundle.

    Anything that is neither a file nor a folder counts as a file of size -1, and so
    does an empty folder, so that neither can be slipped in.
    """
    found: dict[str, tuple[int, str]] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                if relative != NAME:
                    with path.open("rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    found[relative] = (path.stat().st_size, digest)
            elif not stat.S_ISDIR(mode) or not any(path.iterdir()):
                found[relative] = (-1, "")
    return found
