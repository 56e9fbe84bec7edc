"""What was found of a bundle, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def whole_report(
    where: str, manifest: Mapping[str, Any], *, lists: bool, rederived: bool | None
) -> str:
    """That every file is as its manifest says, and what else is known of it."""
    text = f"{where}: {len(manifest['files'])} files, all as the manifest says."
    if manifest.get("reprint_of"):
        text += f" A reprint of what was drawn for {manifest['reprint_of']['seal']}."
        if rederived is None:
            text += " That it follows from that was not checked: verify its folder."
        elif not rederived:
            text += " Its estimates, by other versions, were not derived again."
    if not manifest["publishable"]:
        text += " It is NOT PUBLISHABLE (known seed)."
    if not lists:
        text += " A server does not list its files: whether it has more of them is not known."
    return text


def signature_report(signed: Mapping[str, Any] | None) -> str:
    """Who signed it."""
    if signed is None:
        return "It is not signed."
    if signed["trusted"]:
        return f"Signed by the given key, whose fingerprint is {signed['fingerprint']}."
    return (
        f"Signed by a key that was not given, whose fingerprint is {signed['fingerprint']}. Anyone "
        "can sign: give the publisher's public key with --key, and have it from elsewhere."
    )
