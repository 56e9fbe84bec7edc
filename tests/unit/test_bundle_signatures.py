"""Signed bundles in a folder, a zip file and on a server: whatever was tampered with is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from signed_bundles import FOREIGN, PLACES, PUBLISHER, facts, make_bundle

from statpress.mechanisms.errors import BundleVerificationError, SignatureError
from statpress.tasks.bundle.locations import Folder
from statpress.tasks.bundle.manifest import (
    MANIFEST_NAME,
    SIGNATURE_FORMAT,
    SIGNER,
    bundle_statement,
    fingerprint,
    seal,
    seal_and_sign,
    signed_by,
    verify_bundle,
    verify_location,
    write_signature,
)
from statpress.tasks.bundle.manifest import SIGNATURE_NAME as SIGNATURE
from statpress.tasks.ledger.entries import (
    checkpoint_statement,
    public_text,
    sign_statement,
    statement_signed,
)
from statpress.tasks.ledger.rules import decision_statement

Tamper = Callable[[Path], str]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "first")


def flawed(bundle: Path, place: str = "folder") -> str:
    """What verifying says is wrong."""
    with PLACES[place](bundle) as found, pytest.raises(BundleVerificationError) as caught:
        verify_location(found)
    return caught.value.what


def sign_again(bundle: Path, **changes: Any) -> None:
    """Change what the signature's file says."""
    path = bundle / SIGNATURE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2) + "\n")


@pytest.mark.parametrize("place", PLACES)
def test_a_whole_bundle_verifies_and_says_who_signed_it(bundle: Path, place: str) -> None:
    ours, theirs = public_text(PUBLISHER), public_text(FOREIGN)
    with PLACES[place](bundle) as found:
        manifest = verify_location(found)
    assert manifest["signer"] == ours and SIGNATURE not in str(manifest["files"])
    known = {"public_key": ours, "fingerprint": fingerprint(ours)}
    assert signed_by("-", manifest, [theirs, ours]) == known | {"trusted": True}
    assert signed_by("-", manifest, []) == known | {"trusted": False}
    with pytest.raises(SignatureError, match=fingerprint(ours)):
        signed_by("-", manifest, [theirs])


@pytest.mark.parametrize("place", PLACES)
def test_a_bundle_without_a_signature_is_no_signed_one(tmp_path: Path, place: str) -> None:
    with PLACES[place](make_bundle(tmp_path / "plain", None)) as found:
        manifest = verify_location(found)
    assert manifest["format"] == "statpress-bundle/2"
    assert signed_by("-", manifest, []) is None
    with pytest.raises(SignatureError, match="nobody"):
        signed_by("-", manifest, [public_text(PUBLISHER)])


def _change(bundle: Path) -> str:
    path = bundle / "data" / "wages.csv"
    path.write_bytes(path.read_bytes()[:-2] + b"9\n")
    return "data/wages.csv was changed"


def _shorten(bundle: Path) -> str:
    path = bundle / "data" / "wages.csv"
    path.write_bytes(path.read_bytes()[:-1])
    return "data/wages.csv was changed"


def _lengthen(bundle: Path) -> str:
    with (bundle / "privacy.json").open("a") as file:
        file.write("\n" * 100_000)
    return "privacy.json was changed"


def _swap(bundle: Path) -> str:
    first, second = bundle / "data" / "wages.csv", bundle / "data" / "ages.csv"
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    return "data/ages.csv was changed; data/wages.csv was changed"


def _rename(bundle: Path) -> str:
    (bundle / "privacy.json").rename(bundle / "privacy.txt")
    return "privacy.json is missing"


def _remove(bundle: Path) -> str:
    (bundle / "data" / "ages.csv").unlink()
    return "data/ages.csv is missing"


def _unsign(bundle: Path) -> str:
    (bundle / SIGNATURE).unlink()
    return "signature.json is missing"


def _edit(bundle: Path) -> str:
    path = bundle / MANIFEST_NAME
    path.write_text(path.read_text().replace("Wages", "Wagers"))
    return "manifest.json was changed"


def _garbage(bundle: Path) -> str:
    (bundle / MANIFEST_NAME).write_text("[1, 2]")
    return "manifest.json was changed"


def _reseal(bundle: Path) -> str:
    """The work of somebody who has no key: all is in order but the signature."""
    (bundle / "data" / "wages.csv").write_text("age,raw\n1,9\n")
    (bundle / MANIFEST_NAME).unlink()
    kept = (bundle / SIGNATURE).read_bytes()
    (bundle / SIGNATURE).unlink()
    seal(bundle, facts(signer=public_text(PUBLISHER)))
    (bundle / SIGNATURE).write_bytes(kept)
    return "signature.json is not the signature of this bundle"


def _foreign(bundle: Path) -> str:
    """A signature by another key over the right seal."""
    sealed = json.loads((bundle / MANIFEST_NAME).read_text())["seal"]
    write_signature(bundle, FOREIGN, sealed)
    return "signature.json is not the signature of this bundle"


def _moved(bundle: Path) -> str:
    """The publisher's own signature, of another bundle."""
    other = make_bundle(bundle.parent / "other", title="Other")
    shutil.copyfile(other / SIGNATURE, bundle / SIGNATURE)
    return "signature.json is not the signature of this bundle"


def _moved_with_its_seal(bundle: Path) -> str:
    _moved(bundle)
    sign_again(bundle, seal=json.loads((bundle / MANIFEST_NAME).read_text())["seal"])
    return "signature.json is not the signature of this bundle"


def _upper(bundle: Path) -> str:
    path = bundle / SIGNATURE
    signature = json.loads(path.read_text())["signature"]
    sign_again(bundle, signature=signature.upper())
    return "signature.json is not the signature of this bundle"


def _older_signature(bundle: Path) -> str:
    sign_again(bundle, format="statpress-signature/0")
    return "signature.json is not the signature of this bundle"


def _older_bundle(bundle: Path) -> str:
    """A true signature beside the manifest of a form that knows of none."""
    for name in (MANIFEST_NAME, SIGNATURE):
        (bundle / name).unlink()
    write_signature(bundle, PUBLISHER, seal(bundle, facts()))
    return "signature.json was added"


def _deep(bundle: Path) -> str:
    (bundle / SIGNATURE).write_text("[" * 4000)
    return "signature.json is not the signature of this bundle"


def _add(bundle: Path) -> str:
    (bundle / "data" / ".extra").write_text("")
    return "data/.extra was added"


def _add_folder(bundle: Path) -> str:
    (bundle / "more").mkdir()
    return "more was added"


def _link(bundle: Path) -> str:
    kept = bundle.parent / "kept"
    (bundle / "config.yaml").rename(kept)
    (bundle / "config.yaml").symlink_to(kept)
    return "config.yaml was changed"


_ADDED = (_add, _add_folder)
_TAMPERS = (
    *(_change, _shorten, _lengthen, _swap, _rename, _remove, _unsign, _edit, _garbage, _reseal),
    *(_foreign, _moved, _moved_with_its_seal, _upper, _older_signature, _deep),
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("tamper", _TAMPERS)
def test_whatever_changed_is_found_wherever_it_lies(
    bundle: Path, tamper: Tamper, place: str
) -> None:
    verify_bundle(bundle)
    expected = tamper(bundle)
    assert expected in flawed(bundle, place)


@pytest.mark.parametrize("place", ["folder", "zip"])
@pytest.mark.parametrize("tamper", [*_ADDED, _older_bundle])
def test_what_was_added_is_found_where_files_are_listed(
    bundle: Path, tamper: Tamper, place: str
) -> None:
    expected = tamper(bundle)
    assert expected in flawed(bundle, place)


def test_a_server_says_nothing_of_files_that_nobody_asks_for(bundle: Path) -> None:
    _add(bundle)
    with PLACES["prefix"](bundle) as found:
        assert not found.lists
        verify_location(found)


@pytest.mark.parametrize("place", PLACES)
def test_a_manifest_that_is_missing_is_named(bundle: Path, place: str) -> None:
    (bundle / MANIFEST_NAME).unlink()
    assert "manifest.json is missing" in flawed(bundle, place)
    (bundle / "privacy.json").unlink()
    assert "no manifest.json" in flawed(bundle, place)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_flip_of_any_byte_is_found(bundle: Path, step: int) -> None:
    """Each byte with another bit; the hex digits of a signature may flip to upper case."""
    for path in sorted(bundle.rglob("*.*")):
        content = path.read_bytes()
        for at in range(0, len(content), 4 * step if path.name == MANIFEST_NAME else step):
            path.write_bytes(
                content[:at]
                + bytes([content[at] ^ (1 << (5 if at % 2 else at % 8))])
                + content[at + 1 :]
            )
            with pytest.raises(BundleVerificationError):
                verify_bundle(bundle)
        path.write_bytes(content)
    verify_bundle(bundle)


def test_a_signature_is_of_one_statement_alone(bundle: Path) -> None:
    """Neither an approval nor a checkpoint can be taken for it, nor it for them."""
    manifest = verify_bundle(bundle)
    sealed, ours = manifest["seal"], public_text(PUBLISHER)
    decision: Any = dict.fromkeys(
        ("dataset", "run_id", "charge", "decision", "reason", "created"), "x"
    )
    others = (
        checkpoint_statement(1, sealed),
        decision_statement(decision | {"manifest_sha256": sealed}),
    )
    signature = json.loads((bundle / SIGNATURE).read_text())["signature"]
    assert statement_signed(ours, signature, bundle_statement(sealed))
    for statement in others:
        assert not statement_signed(ours, signature, statement)
        sign_again(bundle, signature=sign_statement(PUBLISHER, statement))
        assert "not the signature" in flawed(bundle)
    assert bundle_statement(sealed)[1] == SIGNATURE_FORMAT


@pytest.mark.parametrize("signer", ["", "AB" * 32, 7, None])
def test_a_manifest_names_a_key_or_none(bundle: Path, signer: Any) -> None:
    for name in (MANIFEST_NAME, SIGNATURE):
        (bundle / name).unlink()
    seal(bundle, facts(**{SIGNER: signer}))
    assert "manifest.json was changed" in flawed(bundle)


def test_links_are_refused(bundle: Path, tmp_path: Path) -> None:
    assert _link(bundle) in flawed(bundle)
    (bundle / SIGNATURE).rename(tmp_path / "signature")
    (bundle / SIGNATURE).symlink_to(tmp_path / "signature")
    with pytest.raises(BundleVerificationError):
        verify_bundle(bundle)
    (bundle / "config.yaml").unlink()
    (tmp_path / "kept").rename(bundle / "config.yaml")
    assert "signature.json is missing" in flawed(bundle)


def test_a_verifier_that_does_not_look_at_the_signature_would_take_a_forgery(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _reseal(bundle)
    assert expected in flawed(bundle)
    monkeypatch.setattr(
        "statpress.tasks.bundle.manifest.signature_at", lambda place, manifest: None
    )
    verify_location(Folder(bundle))


def test_the_fingerprint_is_that_of_the_der_form() -> None:
    from hashlib import sha256

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = PUBLISHER.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint(public_text(PUBLISHER)) == sha256(der).hexdigest()


def test_a_bundle_cannot_be_sealed_twice_over_its_signature(bundle: Path) -> None:
    """A signature in the folder would be a file of the manifest, and is then found missing."""
    (bundle / MANIFEST_NAME).unlink()
    seal_and_sign(bundle, facts(), PUBLISHER)
    assert "signature.json is missing" in flawed(bundle)
