"""The key that a config names to sign its bundles, found before anything is charged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from configs.loading import Release
from mechanisms.errors import SigningKeyError
from tasks.ledger_rules.signing import read_private_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def publishing_key(release: Release) -> Ed25519PrivateKey | None:
    """The key that a release is signed with; None if its config names none.

    Nobody can be asked for a passphrase: the runs of a deployment read the same config.

    Raises:
        SigningKeyError: There is no such key, others can use its file, or it has a passphrase.
    """
    named = release.config.publish.sign
    if named is None:
        return None
    path = release.located(named)
    try:
        return read_private_key(path)
    except SigningKeyError as error:
        error.where = f"{release.document.where(('publish', 'sign'))}: {path}"
        if "passphrase" in error.what:
            error.next_step = (
                "Give the key with --sign on a terminal, which asks for it, or name one without."
            )
        raise


def key_faults(release: Release) -> Iterator[SigningKeyError]:
    """What is wrong with the key that a config names, if it names one."""
    try:
        publishing_key(release)
    except SigningKeyError as error:
        yield error
