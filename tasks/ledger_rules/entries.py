"""A ledger entry, its canonical text and its hash.

An entry is written as canonical JSON, of which there is exactly one for a given body,
and carries the SHA-256 of itself and of the entry before it. Which fields it holds is
the subject of ``tasks.ledger_rules.fields``, and whether it may follow the entries
before it that of ``tasks.ledger_rules.rules``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from mechanisms.errors import AmountError, LedgerError, LedgerIntegrityError, StatpressError

Body = dict[str, Any]
ZERO_HASH = "0" * 64
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
    return text_hash(sequence, kind, canonical_json(body), previous)


def text_hash(sequence: int, kind: str, body: str, previous: str) -> str:
    """The same, of an entry whose body is given as the text it is stored as."""
    text = f"[{sequence},{json.dumps(kind)},{body},{json.dumps(previous)}]"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
    """ASCII JSON of a value without floats, with sorted keys and no spaces.

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
            "The value is nested too deeply for a ledger entry.",
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
        raise AmountError("A ledger entry cannot hold a binary float.", where=where)
    else:
        raise LedgerError(
            f"A ledger entry cannot hold this {type(value).__name__}.",
            where=where,
            next_step="Give text, whole numbers below 2**63, true, false, lists or objects.",
        )
