"""Ed25519 signatures: over the head of the ledger's chain, and over officers' statements."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mechanisms.errors import SigningKeyError
from tasks.ledger_rules.entries import canonical_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_LARGEST = 100_000
_DER = bytes.fromhex("302a300506032b6570032100")  # RFC 8410: what stands before the raw key


def checkpoint_statement(sequence: int, head: str) -> list[object]:
    """What a checkpoint signs: its own place, and the hash of the entry before it."""
    return ["statpress ledger checkpoint", sequence, head]


def sign_statement(key: Ed25519PrivateKey, statement: list[object]) -> str:
    """The signature of a statement, in hexadecimal; its first item names its kind."""
    return key.sign(canonical_json(statement).encode("ascii")).hex()


def signature_fields(key: Ed25519PrivateKey, statement: list[object]) -> dict[str, str]:
    """The fields of a body that say who signed a statement, and how."""
    return {"public_key": public_text(key), "signature": sign_statement(key, statement)}


def statement_signed(public_key: str, signature: str, statement: list[object]) -> bool:
    """Whether the signature is this key's over the statement."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(signature), canonical_json(statement).encode("ascii"))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_text(key: Ed25519PrivateKey) -> str:
    """The raw public key of a private one, in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def is_public_text(value: object) -> bool:
    """Whether a value has the form of a raw public key in hexadecimal."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def fingerprint(public_key: str) -> str:
    """What people compare of a public key: SHA-256 of its DER form, in hexadecimal.

    ``openssl pkey -pubin -in public.pem -outform DER | sha256sum`` prints the same.

    Args:
        public_key: Raw, in hexadecimal.
    """
    return hashlib.sha256(_DER + bytes.fromhex(public_key)).hexdigest()


def read_private_key(path: Path, ask: Callable[[], str] | None = None) -> Ed25519PrivateKey:
    """A private key from a PEM file that only its owner can use.

    Args:
        path: The file.
        ask: Gives the passphrase of a key that has one.

    Raises:
        SigningKeyError: There is no such key, or others can use the file.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    text = _contents(path)
    if path.stat().st_mode & 0o077:
        raise SigningKeyError(
            "Others than its owner can use this key file.",
            where=str(path),
            next_step=f"Run 'chmod 600 {path}'.",
        )
    encrypted = b"ENCRYPTED" in text
    if encrypted and ask is None:
        raise SigningKeyError(
            "The key has a passphrase.",
            where=str(path),
            next_step="Run the command on a terminal, where it can ask for the passphrase.",
        )
    password = ask().encode(errors="surrogateescape") if encrypted and ask else None
    key: object = None
    with contextlib.suppress(TypeError, ValueError, UnsupportedAlgorithm):
        key = load_pem_private_key(text, password)
    if not isinstance(key, Ed25519PrivateKey):
        wrong = ", or the passphrase is wrong" if encrypted else ""
        raise SigningKeyError(
            f"The file holds no private Ed25519 key in PEM form{wrong}.", where=str(path)
        )
    return key


def read_public_key(path: Path) -> str:
    """A public key from a PEM file, as raw bytes in hexadecimal.

    Raises:
        SigningKeyError: There is no such key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    text, key = _contents(path), None
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        key = load_pem_public_key(text)
    if not isinstance(key, Ed25519PublicKey):
        raise SigningKeyError(
            "The file holds no public Ed25519 key in PEM form.",
            where=str(path),
            next_step="Write it with 'openssl pkey -in key.pem -pubout -out public.pem'.",
        )
    return key.public_bytes_raw().hex()


def _contents(path: Path) -> bytes:
    """The bytes of a key file."""
    failure = ""
    text = b""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST)
    except OSError as error:
        failure = error.strerror or type(error).__name__
    if failure:
        raise SigningKeyError(f"The key cannot be read: {failure}.", where=str(path))
    return text
