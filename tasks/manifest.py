"""The manifest that seals a bundle, and its verification anywhere, without a ledger."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechanisms.errors import BundleVerificationError

FORMAT = "statpress-bundle/1"
NAME = "manifest.json"
FACTS = (
    "dataset", "title", "run_id", "created", "publishable", "config_sha256", "ledger_entry",
    "versions",
)  # fmt: skip
_SEAL = "seal"
_ENTRY = {"sequence": int, "hash": str}
_LONGEST = 16 * 2**20
_COMPILED = r"__pycache__/evaluate\.[\w.-]+\.pyc was added"
_REMOVE_COMPILED = (
    "Python leaves that when evaluate.py is imported inside the bundle: remove the folder "
    "__pycache__, verify again, and import from a copy of evaluate.py."
)


def seal(folder: Path, facts: Mapping[str, Any]) -> str:
    """Write the manifest of a folder; nothing may be added to it afterwards.

    Args:
        folder: The bundle under construction.
        facts: The values named in ``FACTS``, as JSON.

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
    (folder / NAME).write_text(_text({**manifest, _SEAL: digest}), encoding="utf-8")
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
        compiled = all(re.fullmatch(_COMPILED, problem) for problem in problems)
        raise BundleVerificationError(
            f"{'; '.join(problems)}.",
            where=str(folder),
            next_step=_REMOVE_COMPILED if compiled else "",
        )
    return manifest


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, if it is letter for letter what ``seal`` writes."""
    path = folder / NAME
    if path.is_symlink() or not path.is_file():
        raise BundleVerificationError(f"{NAME} is missing.", where=str(folder))
    manifest: dict[str, Any] = {}
    try:
        text = path.read_text(encoding="utf-8") if path.stat().st_size <= _LONGEST else ""
        manifest = json.loads(text)
        sealed = {key: value for key, value in manifest.items() if key != _SEAL}
        whole = (
            text == _text(manifest)
            and manifest.keys() == {"format", *FACTS, "files", _SEAL}
            and manifest["format"] == FORMAT
            and manifest[_SEAL] == _digest_of(sealed)
            and isinstance(manifest["publishable"], bool)
            and all(isinstance(manifest["ledger_entry"][key], t) for key, t in _ENTRY.items())
            and all(_is_file_record(each) for each in manifest["files"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise BundleVerificationError(f"{NAME} was changed.", where=str(folder))
    return manifest


def _is_file_record(each: Any) -> bool:
    return (
        each.keys() == {"path", "bytes", "sha256"}
        and isinstance(each["path"], str)
        and type(each["bytes"]) is int
        and each["bytes"] >= 0
        and re.fullmatch("[0-9a-f]{64}", each["sha256"]) is not None
    )


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


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
