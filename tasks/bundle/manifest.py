"""The manifest that seals a bundle, its signature and approval, and their verification anywhere.

The publisher's signature lies in a file beside the manifest whose seal it signs. The manifest names
the public key, so that a bundle without its signature, or with another's, is not whole. What is
signed begins with words of its own: no approval and no checkpoint of the ledger can be taken for
it, nor it for them.

A manifest is sealed before anyone has approved it. So it says that the release is reviewed, and
``approval.json`` holds the ledger's own entry of the decision, which names the seal and is signed
by the officer. Whoever has the officer's public key can check it without the ledger.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.errors import (
    ApprovalError,
    BundleVerificationError,
    ConfigError,
    RehearsalError,
    SignatureError,
    StatpressError,
)
from statpress.tasks.bundle.locations import Folder, Location, contents_of
from statpress.tasks.ledger.entries import (
    Entry,
    canonical_json,
    entry_hash,
    is_public_text,
    public_text,
    sign_statement,
    statement_signed,
)
from statpress.tasks.ledger.rules import check_decision

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


SIGNATURE_NAME = "signature.json"
SIGNATURE_FORMAT = "statpress-signature/1"
SIGNER = "signer"
"""The fact of a manifest that names the key, as raw bytes in hexadecimal."""
_LONGEST_SIGNATURE = 2**12


def bundle_statement(seal: str) -> list[object]:
    """What a publisher signs: the seal, which holds for the whole manifest."""
    return ["statpress bundle signature", SIGNATURE_FORMAT, seal]


def write_signature(folder: Path, key: Ed25519PrivateKey, seal: str) -> None:
    """Write the signature beside the manifest of a bundle under construction."""
    signature = sign_statement(key, bundle_statement(seal))
    (folder / SIGNATURE_NAME).write_text(
        _signature_text(public_text(key), seal, signature), encoding="ascii"
    )


def signature_at(location: Location, manifest: Mapping[str, Any]) -> None:
    """Check the signature of a bundle whose manifest names a key; of another there is none."""
    if SIGNER not in manifest:
        return
    content = location.text(SIGNATURE_NAME, _LONGEST_SIGNATURE)
    if content is None:
        raise BundleVerificationError(f"{SIGNATURE_NAME} is missing.", where=location.where)
    key, seal = manifest[SIGNER], manifest["seal"]
    whole = False
    try:
        signature = json.loads(content)["signature"]
        whole = re.fullmatch("[0-9a-f]{128}", signature) is not None
        whole = whole and content == _signature_text(key, seal, signature).encode("ascii")
        whole = whole and statement_signed(key, signature, bundle_statement(seal))
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    if not whole:
        raise BundleVerificationError(
            f"{SIGNATURE_NAME} is not the signature of this bundle "
            "by the key that its manifest names.",
            where=location.where,
        )


def signed_by(
    where: str, manifest: Mapping[str, Any], trusted: Collection[str]
) -> Mapping[str, Any] | None:
    """Who signed a verified bundle; None if nobody did and no key is given.

    Args:
        where: The bundle, for messages.
        manifest: Its manifest, whose signature holds.
        trusted: Public keys; with any, one of them must have signed it.

    Returns:
        ``public_key``, its ``fingerprint``, and whether it is ``trusted``.

    Raises:
        SignatureError: None of the given keys signed it.
    """
    key = manifest.get(SIGNER)
    if trusted and key not in trusted:
        other = f"a key with the fingerprint {fingerprint(key)}" if key else "nobody"
        raise SignatureError(
            f"None of the given keys signed this bundle; it is signed by {other}.", where=where
        )
    if key is None:
        return None
    return {"public_key": key, "fingerprint": fingerprint(key), "trusted": key in trusted}


_DER = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: what stands before the raw key


def fingerprint(public_key: str) -> str:
    """What people compare of a public key: SHA-256 of its DER form, in hexadecimal.

    ``openssl pkey -pubin -in public.pem -outform DER | sha256sum`` prints the same.
    """
    return hashlib.sha256(_DER + bytes.fromhex(public_key)).hexdigest()


def _signature_text(public_key: str, seal: str, signature: str) -> str:
    """What the file holds, letter for letter."""
    stated = {
        "format": SIGNATURE_FORMAT,
        "algorithm": "Ed25519",
        "public_key": public_key,
        "fingerprint": fingerprint(public_key),
        "seal": seal,
        "signature": signature,
    }
    return json.dumps(stated, indent=2) + "\n"


APPROVAL_NAME = "approval.json"
_PARTS = ("sequence", "kind", "body", "previous", "hash")
_LONGEST_APPROVAL = 2**16


def approval_text(decision: Entry) -> str:
    """What the file holds: the ledger's entry."""
    parts = {name: getattr(decision, name) for name in _PARTS}
    return json.dumps(parts, indent=2, ensure_ascii=True) + "\n"


def approval_at(location: Location, manifest: Mapping[str, Any]) -> Entry:
    """The approval of a bundle, if it is one of exactly this bundle."""
    content = location.text(APPROVAL_NAME, _LONGEST_APPROVAL)
    if content is None:
        raise BundleVerificationError(
            f"Its files are whole, with the seal {manifest[_SEAL]}."
            " The release needs an approval and has none.",
            where=location.where,
            next_step="Do not use this bundle: its publisher has not released it.",
        )
    whole = False
    try:
        text = content.decode("utf-8")
        decision = Entry(**json.loads(text))
        check_decision(decision.body)  # whose signature it bears
        whole = text == approval_text(decision) and _of_this(decision, manifest)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    except StatpressError:
        pass  # a field that no decision has, or a signature that does not hold
    if not whole:
        raise BundleVerificationError(
            f"{APPROVAL_NAME} is no approval of this bundle.", where=location.where
        )
    return decision


def approved_by(
    bundle: Path | Location, manifest: Mapping[str, Any], trusted: Collection[str]
) -> Entry | None:
    """The approval of a verified bundle, by one of the trusted keys if there are any, or None."""
    location = Folder(bundle) if isinstance(bundle, Path) else bundle
    approval = approval_at(location, manifest) if "review" in manifest else None
    if trusted and (approval is None or approval.body.get("public_key") not in trusted):
        raise ApprovalError(
            "None of the given keys signed an approval of this bundle.",
            where=location.where,
            next_step="Ask its publisher who approves their releases.",
        )
    return approval


def _of_this(decision: Entry, manifest: Mapping[str, Any]) -> bool:
    """Whether a decision approves the run, charge and seal of a manifest."""
    expected = {
        "decision": "approve",
        "dataset": manifest["dataset"],
        "run_id": manifest["run_id"],
        "charge": manifest["ledger_entry"]["hash"],
        "manifest_sha256": manifest["seal"],
    }
    hashed = entry_hash(decision.sequence, decision.kind, decision.body, decision.previous)
    stated = {name: decision.body[name] for name in expected}
    same = canonical_json(stated) == canonical_json(expected)
    return same and decision.kind == "decide" and decision.hash == hashed


MANIFEST_NAME = "manifest.json"
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
REHEARSAL_FORMAT = "statpress-rehearsal/1"
"""Of a folder that looks like a bundle and holds made-up data; a version that knows nothing of
rehearsals refuses it as well."""
REHEARSED = {"rehearsal": True}
"""A fact of rehearsals alone, which nobody may take for a release."""
_SEAL = "seal"
_ENTRY = {"sequence": int, "hash": str}
_LONGEST_MANIFEST = 16 * 2**20
_MOST_SHOWN = 20
"""Files that an error names; whoever adds files to a bundle may add very many."""
_COMPILED = r"__pycache__/evaluate\.[\w.-]+\.pyc was added"
_REMOVE_COMPILED = (
    "Python leaves that when evaluate.py is imported inside the bundle: remove the folder "
    "__pycache__, verify again, and import from a copy of evaluate.py."
)


def seal(folder: Path, facts: Mapping[str, Any]) -> str:
    """Write the manifest of a folder, each file with its size and hash; none may be added later.

    Args:
        folder: The bundle under construction.
        facts: The values named in ``FACTS``, as JSON; with ``REVIEWED``, if it is, and with
            ``SIGNER``, the public key, if its seal will be signed; with ``REHEARSED``, if it is
            a rehearsal.

    Returns:
        The seal: SHA-256 over the manifest's canonical content.
    """
    released = SIGNED_FORMAT if SIGNER in facts else FORMAT
    manifest = {
        "format": REHEARSAL_FORMAT if REHEARSED.items() <= facts.items() else released,
        **facts,
        "files": [
            {"path": path, "bytes": size, "sha256": digest}
            for path, (size, digest) in sorted(contents_of(folder).items())
            if path != MANIFEST_NAME
        ],
    }
    digest = _digest_of(manifest)
    (folder / MANIFEST_NAME).write_text(_text({**manifest, _SEAL: digest}), encoding="utf-8")
    return digest


def seal_and_sign(folder: Path, facts: Mapping[str, Any], key: Ed25519PrivateKey | None) -> str:
    """Write the manifest of a folder, as ``seal`` does, and its signature by a key, if any."""
    if key is None:
        return seal(folder, facts)
    digest = seal(folder, {**facts, SIGNER: public_text(key)})
    write_signature(folder, key, digest)
    return digest


def verify_bundle(folder: Path, *, prepared: bool = False) -> dict[str, Any]:
    """Check a bundle that is a folder; for arguments and errors see ``verify_location``."""
    return verify_location(Folder(folder), prepared=prepared)


def verify_location(location: Location, *, prepared: bool = False) -> dict[str, Any]:
    """Check every file of a bundle against its manifest, with its approval and signature if any.

    Args:
        location: The bundle.
        prepared: Whether it still waits for its approval, and has none.

    Returns:
        The manifest.

    Raises:
        BundleVerificationError: Naming the files that are changed, missing or added (the first
            twenty, and how many more) or listed twice, or the bundle is of a later version's
            form, or without a valid approval, or without the signature of the key that its
            manifest names, if it needs one.
        RehearsalError: It is a rehearsal.
        BundleFetchError: A server does not give what the manifest lists, or it lists too much.
    """
    manifest = _read_manifest(location)
    declared = files_of(manifest)
    contents = location.contents({path: size for path, (size, _) in declared.items()})
    contents.pop(MANIFEST_NAME, None)
    approved = "review" in manifest and not prepared
    for name in (APPROVAL_NAME,) * approved + (SIGNATURE_NAME,) * (SIGNER in manifest):
        contents.pop(name, None)
    problems = [f"{path} is missing" for path in sorted(declared.keys() - contents.keys())]
    problems += [f"{path} was added" for path in sorted(contents.keys() - declared.keys())]
    problems += [
        f"{path} was changed"
        for path in sorted(declared.keys() & contents.keys())
        if declared[path] != contents[path]
    ]
    if problems:
        compiled = all(re.fullmatch(_COMPILED, problem) for problem in problems)
        more = len(problems) - _MOST_SHOWN
        rest = [f"and {more:,} more"] if more > 0 else []
        raise BundleVerificationError(
            f"{'; '.join([*problems[:_MOST_SHOWN], *rest])}.",
            where=location.where,
            next_step=_REMOVE_COMPILED if compiled else "",
        )
    if approved:
        approval_at(location, manifest)
    signature_at(location, manifest)
    return manifest


def files_of(manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of the files of a manifest, by path."""
    return {record["path"]: (record["bytes"], record["sha256"]) for record in manifest["files"]}


def _read_manifest(location: Location) -> dict[str, Any]:
    """The manifest, if it is letter for letter what ``seal`` writes."""
    manifest: dict[str, Any] = {}
    try:
        content = location.text(MANIFEST_NAME, _LONGEST_MANIFEST)
        text = "" if content is None else content.decode("utf-8")
        missing = content is None
        manifest = json.loads(text or "{}")
        whole = text == _text(manifest) and manifest[_SEAL] == _digest_of(_sealed(manifest))
        later = whole and manifest["format"] not in _FORMATS
        whole = whole and (later or _is_whole(manifest))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = later = missing = False
    if missing:
        flaw, step = location.flaw(MANIFEST_NAME, STATEMENT)
        raise BundleVerificationError(
            flaw or f"{MANIFEST_NAME} is missing.", where=location.where, next_step=step
        )
    if not whole:
        raise BundleVerificationError(f"{MANIFEST_NAME} was changed.", where=location.where)
    if later and manifest["format"] == REHEARSAL_FORMAT:
        raise RehearsalError(
            "This is a rehearsal, NOT PUBLISHABLE: its data are made up, and it was never charged.",
            where=location.where,
        )
    if later:
        raise BundleVerificationError(
            f"The bundle is of the form {str(manifest['format'])[:60]!r}, which this version "
            "does not know.",
            where=location.where,
            next_step="Use the version of statpress that the manifest names.",
        )
    paths = Counter(record["path"] for record in manifest["files"])
    path, times = paths.most_common(1)[0] if paths else ("", 0)
    if times > 1:  # readers would go by the one or the other
        raise BundleVerificationError(
            f"{MANIFEST_NAME} lists {path} {times} times.", where=location.where
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
        and all(_is_file_record(record) for record in manifest["files"])
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


def _is_file_record(record: Any) -> bool:
    return (
        record.keys() == {"path", "bytes", "sha256"}
        and isinstance(record["path"], str)
        and type(record["bytes"]) is int
        and record["bytes"] >= 0
        and re.fullmatch("[0-9a-f]{64}", record["sha256"]) is not None
    )


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def _digest_of(manifest: Mapping[str, Any]) -> str:
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


@contextmanager
def understood(place: Path) -> Iterator[None]:
    """Say of a whole bundle that its files do not fit each other, or this version."""
    try:
        yield
        return
    except BundleVerificationError:
        raise
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        problem = (error.what if isinstance(error, ConfigError) else str(error)).rstrip(".")
    raise BundleVerificationError(
        f"The bundle is as its manifest says, and this version cannot read it: {problem}.",
        where=str(place),
        next_step="Use the version of statpress that the manifest names.",
    )
