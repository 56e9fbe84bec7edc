"""The form of a ledger entry: its fields, its canonical text, its hash.

An entry is written as canonical JSON, of which there is exactly one for a given
body, and carries the SHA-256 of itself and of the entry before. What an entry may
say after the ones before it is the matter of ``tasks.ledger_rules.chain``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mechanisms.errors import AmountError, LedgerError, LedgerIntegrityError, StatpressError
from tasks.ledger_rules.amounts import canonical, exact

Body = dict[str, Any]
ZERO_HASH = "0" * 64
OF_ACCOUNT = ("register", "amend-policy", "set-approvers")
"""Kinds of entries on which every later act on an account depends."""
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One link of the chain: sequence counts from 1, hashes are hex SHA-256."""

    sequence: int
    kind: str
    body: Body
    previous: str
    hash: str


def entry_hash(sequence: int, kind: str, body: Body, previous: str) -> str:
    """The hash of an entry: SHA-256 over the canonical JSON of its four fields."""
    text = canonical_json([sequence, kind, body, previous])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def parse_entry(
    sequence: object, kind: object, text: object, previous: object, hash_: object
) -> Entry:
    """The entry that stored or exported parts stand for.

    Raises:
        LedgerIntegrityError: A part is not text, or the body is not the canonical
            JSON of an object.
    """
    parts = kind, text, previous, hash_
    body: object = None
    try:
        body = json.loads(str(text))
        whole = all(isinstance(part, str) for part in parts) and canonical_json(body) == text
    except (ValueError, RecursionError, StatpressError):
        whole = False
    if not (whole and isinstance(body, dict)) or type(sequence) is not int:
        raise LedgerIntegrityError(
            "The entry is not in the form it was written in.",
            sequence=sequence if type(sequence) is int else None,
            where=f"entry {str(sequence)[:60]}",
        )
    return Entry(sequence, str(kind), body, str(previous), str(hash_))


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no spaces and ASCII alone, of a value without floats.

    Raises:
        AmountError: The value holds a binary float.
        LedgerError: It holds anything else that JSON does not carry unchanged.
    """
    _refuse_inexact(value, "body")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _refuse_inexact(value: object, where: str, depth: int = 0) -> None:
    """Raise unless JSON gives the value back as it is, every digit kept, anywhere."""
    if depth > _DEEPEST:
        raise LedgerError(
            "A ledger entry is not nested as deep as this.",
            where=where[:200],
            next_step=f"Nest lists and objects at most {_DEEPEST} deep.",
        )
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int) and abs(value) < 2**63:
        return
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for key, child in value.items():
            _refuse_inexact(child, f"{where}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            _refuse_inexact(child, f"{where}[{index}]", depth + 1)
    elif isinstance(value, float):
        raise AmountError("A ledger entry holds no binary floats.", where=where)
    else:
        raise LedgerError(
            f"A ledger entry cannot hold this {type(value).__name__}.",
            where=where,
            next_step="Give text, whole numbers below 2**63, true, false, lists or objects.",
        )


def check_fields(body: Body, names: frozenset[str]) -> None:
    """Raise unless the body has exactly these fields, each of a usable form.

    Raises:
        AmountError: An amount or a number of records is not usable.
        LedgerError: A field is missing, unknown or not usable.
    """
    if body.keys() != names:
        odd = ", ".join(sorted(body.keys() ^ names))
        raise LedgerError(
            f"Fields missing or not known: {odd}.",
            where="ledger entry",
            next_step="Give exactly the fields of this kind of entry.",
        )
    for name in sorted(names):
        _FORMS.get(name, _short_text)(name, body[name])


def check_place(value: str) -> None:
    """Raise unless a bundle's path is one that the ledger can note.

    Raises:
        LedgerError: It is not.
    """
    _long_text("bundle", value)


def check_name(name: str, value: object) -> None:
    """Raise unless the value is text such as a dataset or a run is named by.

    Raises:
        LedgerError: It is not.
    """
    _short_text(name, value)


def _short_text(name: str, value: object) -> None:
    """Names, identifiers, versions and times."""
    _text(name, value, 200)


def _long_text(name: str, value: object) -> None:
    """Paths and addresses."""
    _text(name, value, 4000)


def _text(name: str, value: object, most: int) -> None:
    usable = isinstance(value, str) and 0 < len(value) <= most and value.isprintable()
    _require(usable, name, f"printable text of 1 to {most} characters")


def _digest(name: str, value: object) -> None:
    usable = isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None
    _require(usable, name, "64 lower-case hexadecimal digits")


def _signature(name: str, value: object) -> None:
    usable = isinstance(value, str) and re.fullmatch(r"[0-9a-f]{128}", value) is not None
    _require(usable, name, "an Ed25519 signature in 128 lower-case hexadecimal digits")


def _reason(name: str, value: object) -> None:
    if value is not None:
        _text(name, value, 1000)


def _keys(name: str, value: object) -> None:
    usable = isinstance(value, list) and len(value) <= 100
    for each in value if isinstance(value, list) else ():
        _digest(name, each)
    usable = usable and isinstance(value, list) and value == sorted(set(value))
    _require(usable, name, "at most 100 different public keys, in ascending order")


def _decision(name: str, value: object) -> None:
    _require(value in ("approve", "reject"), name, "'approve' or 'reject'")


def _flag(name: str, value: object) -> None:
    _require(isinstance(value, bool), name, "true or false")


def _objects(name: str, value: object) -> None:
    usable = isinstance(value, list) and all(isinstance(item, dict) for item in value)
    _require(usable, name, "a list of objects, one for each mechanism")


def _require(usable: bool, name: str, form: str) -> None:
    if not usable:
        raise LedgerError(
            "The value is not usable in the ledger.", where=name, next_step=f"Give {form}."
        )


def _amount(name: str, value: object) -> None:
    if value != canonical(exact(value, where=name)):
        raise AmountError("The amount is not in its canonical text form.", where=name)


def _delta(name: str, value: object) -> None:
    _amount(name, value)
    if exact(value) >= 1:
        raise AmountError("A delta must be below 1.", where=name)


def _count(name: str, value: object) -> None:
    if type(value) is not int or not 0 < value < 2**63:
        raise AmountError(
            "This number of records is not a positive whole number.",
            where=name,
            next_step="Give a whole number of at least 1.",
        )


_FORMS: dict[str, Callable[[str, object], None]] = {
    "approvers": _keys,
    "bundle": _long_text,
    "charge": _digest,
    "config_sha256": _digest,
    "decision": _decision,
    "delta": _delta,
    "epsilon": _amount,
    "insecure_seed": _flag,
    "manifest_sha256": _digest,
    "mechanisms": _objects,
    "n_records": _count,
    "public_key": _digest,
    "reason": _reason,
    "rho": _amount,
    "rho_delta": _delta,
    "signature": _signature,
    "unit_records": _count,
    "unsigned": _flag,
}
