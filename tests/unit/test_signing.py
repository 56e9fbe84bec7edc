"""Signatures over the head of the chain, the keys they are made with, and inspection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from census_ledger import apply
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError, SigningKeyError
from statpress.tasks.ledger.accounts import State
from statpress.tasks.ledger.chain import Verification, inspect, next_entry, replay
from statpress.tasks.ledger.entries import (
    ZERO_HASH,
    Entry,
    Loss,
    canonical_json,
    checkpoint_statement,
    public_text,
    read_private_key,
    read_public_key,
    sign_statement,
    statement_signed,
)

NOW = "2026-01-01T00:00:00+00:00"


def key(number: int) -> Ed25519PrivateKey:
    """A key that is always the same."""
    return Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))


def registration(dataset: str) -> dict[str, Any]:
    body = {"dataset": dataset, "policy": "basic", "epsilon": "1", "delta": "0", "created": NOW}
    terms = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 9}
    return {**body, **terms}


def checkpoint(state: State, by: Ed25519PrivateKey) -> dict[str, Any]:
    """The body of a checkpoint at this place."""
    signature = sign_statement(by, checkpoint_statement(state.next_sequence, state.head))
    return {"created": NOW, "public_key": public_text(by), "signature": signature}


def signed_chain(*signers: int) -> list[Entry]:
    """A registration before each checkpoint by these keys, and one after them all."""
    state, entries = State(), []
    for place, number in enumerate((*signers, 0)):
        entries.append(next_entry(state, "register", registration(f"data-{place}")))
        state = apply(state, entries[-1])
        if number:
            entries.append(next_entry(state, "checkpoint", checkpoint(state, key(number))))
            state = apply(state, entries[-1])
    return entries


# --- signatures -------------------------------------------------------------------


def test_what_is_signed_is_the_place_and_the_hash_before() -> None:
    message = canonical_json(checkpoint_statement(7, ZERO_HASH)).encode("ascii")
    assert message == b'["statpress ledger checkpoint",7,"' + b"0" * 64 + b'"]'
    text = sign_statement(key(1), checkpoint_statement(7, ZERO_HASH))
    key(1).public_key().verify(bytes.fromhex(text), message)
    assert statement_signed(public_text(key(1)), text, checkpoint_statement(7, ZERO_HASH))


def test_a_signature_is_for_one_key_place_and_head() -> None:
    public, text = public_text(key(1)), sign_statement(key(1), checkpoint_statement(7, ZERO_HASH))
    for other in (
        statement_signed(public_text(key(2)), text, checkpoint_statement(7, ZERO_HASH)),
        statement_signed(public, text, checkpoint_statement(8, ZERO_HASH)),
        statement_signed(public, text, checkpoint_statement(7, "1" + ZERO_HASH[1:])),
        statement_signed(
            public,
            text[:-1] + ("0" if text[-1] != "0" else "1"),
            checkpoint_statement(7, ZERO_HASH),
        ),
        statement_signed(public, "0" * 128, checkpoint_statement(7, ZERO_HASH)),
        statement_signed(public, text[:-2], checkpoint_statement(7, ZERO_HASH)),
        statement_signed(public, "zz" * 64, checkpoint_statement(7, ZERO_HASH)),
        statement_signed("f" * 64, text, checkpoint_statement(7, ZERO_HASH)),
    ):
        assert other is False


def test_the_other_form_of_a_signature_is_none() -> None:
    """S and S plus the group's order would verify alike if nobody looked."""
    order = 2**252 + 27742317777372353535851937790883648493
    raw = bytes.fromhex(sign_statement(key(1), checkpoint_statement(1, ZERO_HASH)))
    twin = raw[:32] + (int.from_bytes(raw[32:], "little") + order).to_bytes(32, "little")
    assert not statement_signed(public_text(key(1)), twin.hex(), checkpoint_statement(1, ZERO_HASH))


def test_a_checkpoint_signs_its_own_place_alone() -> None:
    state = replay(signed_chain())
    body = checkpoint(state, key(1))
    after = apply(state, next_entry(state, "checkpoint", body))
    assert after.accounts.keys() == state.accounts.keys()
    with pytest.raises(LedgerError, match="not this key's over the head"):
        next_entry(after, "checkpoint", body)
    for changes in (
        {"public_key": public_text(key(2))},
        {"signature": "0" * 128},
        {"signature": body["signature"].upper()},
        {"signature": body["signature"][:-2]},
        {"public_key": ""},
        {"surplus": "x"},
        {"created": ""},
    ):
        with pytest.raises(LedgerError):
            next_entry(state, "checkpoint", {**body, **changes})


# --- inspection -------------------------------------------------------------------


def test_inspection_lists_checkpoints_and_signers() -> None:
    entries = signed_chain(1, 2, 1)
    signers = frozenset({public_text(key(1)), public_text(key(2))})
    expected = Verification(7, entries[-1].hash, (2, 4, 6), signers)
    assert inspect(entries) == inspect(entries, trusted=signers) == expected
    assert inspect([]) == Verification(0, ZERO_HASH)


def test_a_checkpoint_by_a_stranger_is_named() -> None:
    entries = signed_chain(1, 2, 1)
    with pytest.raises(LedgerIntegrityError, match="not trusted") as caught:
        inspect(entries, trusted=frozenset({public_text(key(1))}))
    assert caught.value.sequence == 4
    assert public_text(key(2)) in str(caught.value)


def test_trust_without_any_checkpoint_is_refused() -> None:
    entries = signed_chain(1)
    trusted = frozenset({public_text(key(1))})
    assert inspect(entries, trusted=trusted).checkpoints == (2,)
    for cut in ([], entries[:1]):
        with pytest.raises(LedgerIntegrityError, match="any checkpoint") as caught:
            inspect(cut, trusted=trusted)
        assert caught.value.sequence == len(cut) + 1


def test_every_head_of_the_chain_is_known_and_no_other() -> None:
    entries = signed_chain(1, 2)
    for entry in entries:
        assert inspect(entries, head=entry.hash).head == entries[-1].hash
        before = entries[: entry.sequence - 1]
        with pytest.raises(LedgerIntegrityError, match="truncated") as caught:
            inspect(before, head=entry.hash)
        assert caught.value.sequence == entry.sequence
    assert inspect(entries, head=ZERO_HASH).entries == 5
    with pytest.raises(LedgerIntegrityError):
        inspect(entries, head="f" * 64)


@pytest.mark.parametrize("head", ["", "0" * 63, "F" * 64, "0" * 64 + "\n", "latest"])
def test_a_head_is_a_hash(head: str) -> None:
    with pytest.raises(LedgerError, match="not a hash") as caught:
        inspect(signed_chain(1), head=head)
    assert type(caught.value) is LedgerError
    assert caught.value.where == "head"


def test_the_first_flaw_comes_first_whatever_its_nature() -> None:
    entries = signed_chain(1, 2)
    broken = [*entries[:-1], Entry(5, "refund", {}, entries[3].hash, "0" * 64)]
    with pytest.raises(LedgerIntegrityError) as caught:
        inspect(broken, head="f" * 64, trusted=frozenset({public_text(key(1))}))
    assert caught.value.sequence == 4
    with pytest.raises(LedgerIntegrityError, match="refund"):
        inspect(broken, lambda body: Loss.nothing(), head="f" * 64)


# --- key files --------------------------------------------------------------------


def pem(path: Path, private: Any, mode: int = 0o600, password: bytes | None = None) -> Path:
    locked = BestAvailableEncryption(password) if password else NoEncryption()
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    path.chmod(mode)
    return path


def test_keys_are_read_from_pem_files(tmp_path: Path) -> None:
    path = pem(tmp_path / "key.pem", key(1))
    assert public_text(read_private_key(path)) == public_text(key(1))
    public = tmp_path / "public.pem"
    form = PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key(1).public_key().public_bytes(Encoding.PEM, form))
    assert read_public_key(public) == public_text(key(1))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_key_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = pem(tmp_path / "key.pem", key(1), mode)
    with pytest.raises(SigningKeyError, match="Others") as caught:
        read_private_key(path)
    assert "chmod 600" in caught.value.next_step


def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
    text.chmod(0o600)
    curve = pem(tmp_path / "curve.pem", generate_private_key(SECP256R1()))
    locked = pem(tmp_path / "locked.pem", key(1), password=b"secret")
    private = pem(tmp_path / "private.pem", key(1))
    cases = [
        (read_private_key, text, "no private Ed25519"),
        (read_private_key, curve, "no private Ed25519"),
        (read_private_key, locked, "passphrase"),
        (read_private_key, tmp_path / "none", "No such file"),
        (read_private_key, tmp_path, "cannot be read"),
        (read_public_key, text, "no public Ed25519"),
        (read_public_key, private, "no public Ed25519"),
        (read_public_key, tmp_path / "none", "No such file"),
    ]
    for read, path, said in cases:
        with pytest.raises(SigningKeyError, match=said) as caught:
            read(path)
        assert caught.value.where == str(path)
        assert caught.value.exit_code == 38
        assert "secret" not in str(caught.value)
        assert "c2VjcmV0" not in str(caught.value)
    assert os.listdir(tmp_path)  # nothing was removed
