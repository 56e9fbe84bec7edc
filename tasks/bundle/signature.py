"""The publisher's signature of a bundle, in a file beside the manifest whose seal it signs.

The manifest names the public key, so that a bundle without its signature, or with another's,
is not whole. What is signed begins with words of its own: no approval and no checkpoint of the
ledger can be taken for it, nor it for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.errors import BundleVerificationError, SignatureError
from tasks.bundle.places import Place
from tasks.ledger_rules.signing import fingerprint, public_text, sign_statement, statement_signed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME = "signature.json"
FORMAT = "statpress-signature/1"
SIGNER = "signer"
"""The fact of a manifest that names the key, as raw bytes in hexadecimal."""
_LONGEST = 2**12


def bundle_statement(seal: str) -> list[object]:
    """What a publisher signs: the seal, which holds for the whole manifest."""
    return ["statpress bundle signature", FORMAT, seal]


def write_signature(folder: Path, key: Ed25519PrivateKey, seal: str) -> None:
    """Write the signature beside the manifest of a bundle under construction.

    Args:
        folder: The bundle, whose manifest names the key.
        key: The publisher's.
        seal: Of the manifest.
    """
    signature = sign_statement(key, bundle_statement(seal))
    (folder / NAME).write_text(_text(public_text(key), seal, signature), encoding="ascii")


def signature_at(place: Place, manifest: Mapping[str, Any]) -> None:
    """Check the signature of a bundle whose manifest names a key; of another there is none.

    Args:
        place: The bundle.
        manifest: Its manifest, which holds.

    Raises:
        BundleVerificationError: The signature is missing, of another form, another's, or wrong.
    """
    if SIGNER not in manifest:
        return
    content = place.text(NAME, _LONGEST)
    if content is None:
        raise BundleVerificationError(f"{NAME} is missing.", where=place.where)
    key, seal = manifest[SIGNER], manifest["seal"]
    whole = False
    try:
        signature = json.loads(content)["signature"]
        whole = re.fullmatch("[0-9a-f]{128}", signature) is not None
        whole = whole and content == _text(key, seal, signature).encode("ascii")
        whole = whole and statement_signed(key, signature, bundle_statement(seal))
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    if not whole:
        raise BundleVerificationError(
            f"{NAME} is not the signature of this bundle by the key that its manifest names.",
            where=place.where,
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


def _text(public_key: str, seal: str, signature: str) -> str:
    """What the file holds, letter for letter."""
    stated = {
        "format": FORMAT,
        "algorithm": "Ed25519",
        "public_key": public_key,
        "fingerprint": fingerprint(public_key),
        "seal": seal,
        "signature": signature,
    }
    return json.dumps(stated, indent=2) + "\n"
