"""Releases signed by a key: found before the charge, kept through review, reprint and renewal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from followed_runs import deploy
from prepared import OFFICER, write_keys
from signed_bundles import FOREIGN, PUBLISHER

from statpress.configs.loading import load
from statpress.configs.release_config import PublishConfig
from statpress.flows.cli import app
from statpress.flows.cli.release_commands import check_places
from statpress.flows.runner import plain_context, run_publication
from statpress.mechanisms.errors import SigningKeyError
from statpress.tasks.bundle.manifest import SIGNATURE_NAME, signed_by, verify_bundle
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.foreseen import foreseen
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.reprint import check_reprint, reprint
from statpress.tasks.release.review import decide

OURS = public_text(PUBLISHER)


@pytest.fixture
def signing(agency: Any) -> Any:
    """An agency whose config names a key."""
    (agency.folder / "keys").mkdir()
    write_keys(agency.folder / "keys", PUBLISHER, "press")
    agency.replace("name: first", "name: first, sign: keys/press.pem")
    return agency


def signer(bundle: Path) -> str | None:
    """Whose signature a bundle that verifies has."""
    found = signed_by("-", verify_bundle(bundle), [])
    return found["public_key"] if found else None


def test_a_config_signs_and_what_follows_is_signed_again_or_not_at_all(signing: Any) -> None:
    bundle = signing.run().bundle
    assert signer(bundle) == OURS
    assert (bundle / SIGNATURE_NAME).stat().st_mode & 0o777 == 0o644
    check_bundle(signing.home, bundle, verify_bundle(bundle))
    for path in bundle.rglob("*.*"):
        assert b"PRIVATE" not in path.read_bytes()

    copied = reprint(bundle)  # nobody has signed what it says
    assert signer(copied.bundle) is None and check_reprint(copied.bundle)
    again = reprint(bundle, signer=FOREIGN)
    assert signer(again.bundle) == public_text(FOREIGN) and check_reprint(again.bundle)
    assert verify_bundle(again.bundle)["reprint_of"] == verify_bundle(bundle)
    check_bundle(signing.home, again.bundle, verify_bundle(again.bundle))


def test_a_deployed_release_under_review_takes_the_key_of_its_config(
    signing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    with Ledger.open(signing.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])
    deploy(signing, monkeypatch)()
    (run_id,) = [entry.body["run_id"] for entry in signing.entries() if entry.kind == "charge"]
    assert (signing.home.root / "prepared" / run_id / SIGNATURE_NAME).exists()
    decide(signing.home, run_id, "approve", reason=None, key=OFFICER)
    place = run_publication(plain_context(signing.home, orchestrated=False), run_id).bundle
    assert signer(place) == OURS and {SIGNATURE_NAME, "approval.json"} < {
        p.name for p in place.iterdir()
    }
    check_bundle(signing.home, place, verify_bundle(place))


def _missing(key: Path) -> None:
    key.unlink()


def _open_to_others(key: Path) -> None:
    key.chmod(0o640)


def _public(key: Path) -> None:
    key.write_bytes(key.with_name("press-public.pem").read_bytes())


def _with_passphrase(key: Path) -> None:
    how = BestAvailableEncryption(b"x")
    key.write_bytes(PUBLISHER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def test_a_wrong_key_is_found_before_the_charge(signing: Any) -> None:
    key = signing.folder / "keys" / "press.pem"
    content = key.read_bytes()
    for harm, expected in (
        (_missing, "cannot be read"),
        (_open_to_others, "Others than its owner"),
        (_public, "no private Ed25519 key"),
        (_with_passphrase, "has a passphrase"),
    ):
        key.write_bytes(content)
        key.chmod(0o600)
        harm(key)
        release = load(signing.config)
        (fault,) = foreseen(release, release.plan())
        assert isinstance(fault, SigningKeyError) and expected in fault.what
        assert fault.where == f"release.yaml:15:84: publish.sign: {key}"
        with pytest.raises(SigningKeyError, match=expected):
            check_places(signing.home, release, seeded=False)
        with pytest.raises(SigningKeyError, match=expected):
            signing.run()
    assert [entry.kind for entry in signing.entries()] == ["register"]
    assert signing.bundles() == []


@pytest.mark.parametrize(
    "key",
    ["-----BEGIN PRIVATE KEY----- MC4", "ab" * 32, "MC4CAQAwBQYDK2VwBCIEIHBwcHBwcHBwcHBwcHBw"],
)
def test_a_key_itself_never_stands_in_a_config(key: str) -> None:
    with pytest.raises(ValueError, match="path of a key file"):
        PublishConfig(directory="releases", sign=key)
    PublishConfig(directory="releases", sign="keys/press.pem")


def test_the_option_of_the_command(agency: Any, capsys: Any, monkeypatch: Any) -> None:
    """A wrong key ends the command before anything starts; a right one is used in place of the
    config's, which is not even looked for."""
    agency.replace("name: first", "name: first, sign: keys/nowhere.pem")
    private, public = write_keys(agency.folder, PUBLISHER, "press")
    with pytest.raises(SigningKeyError):
        app(["run", str(agency.config), "--sign", str(public)], exit_on_error=False)

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[RunContext]:
        agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
        yield agency.context()

    monkeypatch.setattr("statpress.flows.runner.open_context", opened)
    words = ["--sign", str(private), "--home", str(agency.home.root), "--json"]
    app(["run", str(agency.config), *words], exit_on_error=False)
    bundle = json.loads(capsys.readouterr().out)["bundle"]
    assert signer(Path(bundle)) == OURS
