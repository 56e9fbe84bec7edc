"""The manifest that seals a bundle, and its verification anywhere, without a ledger."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.errors import BundleVerificationError
from tasks.bundle.approval import NAME as APPROVAL
from tasks.bundle.approval import approval_at
from tasks.bundle.places import Folder, Place, contents_of
from tasks.bundle.signature import NAME as SIGNATURE
from tasks.bundle.signature import SIGNER, signature_at, write_signature
from tasks.ledger_rules.signing import is_public_text, public_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME = "manifest.json"
CONFIG = "config.yaml"
STATEMENT = "privacy.json"
FACTS = (
    "dataset", "title", "run_id", "created", "publishable", "config_sha256", "ledger_entry",
    "versions", "overrides", "supersedes", "reprint_of",
)  # fmt: skip
"""Facts of a manifest. ``overrides`` lists the values that were not the file's; ``supersedes``
is the seal of the release that this one follows; ``reprint_of`` is the manifest of the release
that this one derives anew. The last two are null of any other release."""
_FORMATS = {
    "statpress-bundle/1": FACTS[:-3],  # its config_sha256 is not that of the file
    "statpress-bundle/2": FACTS,
    "statpress-bundle/3": (*FACTS, SIGNER),
}
FORMAT = "statpress-bundle/2"
SIGNED_FORMAT = "statpress-bundle/3"
"""Of a bundle whose manifest names the key that signs it: without that signature it is not whole,
and a version that knows nothing of signatures refuses it."""
REVIEWED = {"review": "required"}
"""A fact of those bundles alone that nobody may use without an approval."""
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
        facts: The values named in ``FACTS``, as JSON; with ``REVIEWED``, if it is, and with
            ``SIGNER``, the public key, if its seal will be signed.

    Returns:
        The seal: SHA-256 over the manifest's canonical content.
    """
    manifest = {
        "format": SIGNED_FORMAT if SIGNER in facts else FORMAT,
        **facts,
        "files": [
            {"path": path, "bytes": size, "sha256": digest}
            for path, (size, digest) in sorted(contents_of(folder).items())
            if path != NAME
        ],
    }
    digest = _digest_of(manifest)
    (folder / NAME).write_text(_text({**manifest, _SEAL: digest}), encoding="utf-8")
    return digest


def seal_and_sign(folder: Path, facts: Mapping[str, Any], key: Ed25519PrivateKey | None) -> str:
    """Write the manifest of a folder, as ``seal`` does, and its signature by a key, if any."""
    if key is None:
        return seal(folder, facts)
    digest = seal(folder, {**facts, SIGNER: public_text(key)})
    write_signature(folder, key, digest)
    return digest


def verify_bundle(folder: Path, *, prepared: bool = False) -> dict[str, Any]:
    """Check a bundle that is a folder; for arguments and errors see ``verify_place``."""
    return verify_place(Folder(folder), prepared=prepared)


def verify_place(place: Place, *, prepared: bool = False) -> dict[str, Any]:
    """Check every file of a bundle against its manifest, with its approval and signature if any.

    Args:
        place: The bundle.
        prepared: Whether it still waits for its approval, and has none.

    Returns:
        The manifest.

    Raises:
        BundleVerificationError: Naming each file that is changed, missing or added, or the
            bundle is of a later version's form, or without a valid approval, or without the
            signature of the key that its manifest names, if it needs one.
    """
    manifest = _read_manifest(place)
    declared = files_of(manifest)
    found = place.contents({path: size for path, (size, _) in declared.items()})
    found.pop(NAME, None)
    approved = "review" in manifest and not prepared
    for name in (APPROVAL,) * approved + (SIGNATURE,) * (SIGNER in manifest):
        found.pop(name, None)
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
            where=place.where,
            next_step=_REMOVE_COMPILED if compiled else "",
        )
    if approved:
        approval_at(place, manifest)
    signature_at(place, manifest)
    return manifest


def files_of(manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of the files of a manifest, by path."""
    return {each["path"]: (each["bytes"], each["sha256"]) for each in manifest["files"]}


def _read_manifest(place: Place) -> dict[str, Any]:
    """The manifest, if it is letter for letter what ``seal`` writes."""
    manifest: dict[str, Any] = {}
    try:
        content = place.text(NAME, _LONGEST)
        text = "" if content is None else content.decode("utf-8")
        missing = content is None
        manifest = json.loads(text or "{}")
        whole = text == _text(manifest) and manifest[_SEAL] == _digest_of(_sealed(manifest))
        later = whole and manifest["format"] not in _FORMATS
        whole = whole and (later or _is_whole(manifest))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = later = missing = False
    if missing:
        flaw, step = place.flaw(NAME, STATEMENT)
        raise BundleVerificationError(
            flaw or f"{NAME} is missing.", where=place.where, next_step=step
        )
    if not whole:
        raise BundleVerificationError(f"{NAME} was changed.", where=place.where)
    if later:
        raise BundleVerificationError(
            f"The bundle is of the form {str(manifest['format'])[:60]!r}, which this version "
            "does not know.",
            where=place.where,
            next_step="Use the version of statpress that the manifest names.",
        )
    return manifest


def _sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the seal is of."""
    return {key: value for key, value in manifest.items() if key != _SEAL}


def _is_whole(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest with a right seal says what one of a known form says."""
    original, stated = manifest.get("reprint_of"), set(_FORMATS[manifest["format"]])
    return (
        manifest.keys() - REVIEWED.keys() == stated | {"format", "files", _SEAL}
        and manifest.get("review", "required") == "required"
        and isinstance(manifest["publishable"], bool)
        and all(isinstance(manifest["ledger_entry"][key], t) for key, t in _ENTRY.items())
        and all(_is_file_record(each) for each in manifest["files"])
        and (len(stated) < len(FACTS) or _states_its_config(manifest))
        and (SIGNER not in manifest or is_public_text(manifest[SIGNER]))
        and (original is None or _is_reprint(manifest, original))
    )


def _states_its_config(manifest: Mapping[str, Any]) -> bool:
    return bool(files_of(manifest)[CONFIG][1] == manifest["config_sha256"])


def _is_reprint(manifest: Mapping[str, Any], original: Mapping[str, Any]) -> bool:
    """Whether a manifest states the same release as the original's, whose guarantee it keeps."""
    same = ("dataset", "run_id", "publishable", "ledger_entry", "supersedes")
    return (
        original[_SEAL] == _digest_of(_sealed(original))
        and original["format"] in (FORMAT, SIGNED_FORMAT)
        and original["reprint_of"] is None
        and not {"review"} & {*manifest, *original}  # what was approved is the original alone
        and _is_whole(original)
        and all(manifest[name] == original[name] for name in same)
        and files_of(manifest)[STATEMENT] == files_of(original)[STATEMENT]
    )


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
