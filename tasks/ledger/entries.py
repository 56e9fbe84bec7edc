"""Ledger entries: amounts of privacy loss, fields, canonical text, hash and signatures.

Amounts are exact decimals, and each has one text. Binary floats would let a thousand small charges
drift past the limit; here every sum keeps every digit, or it raises: nothing is ever rounded.

An entry is written as canonical JSON, of which there is exactly one for a given body, and carries
the SHA-256 of itself and of the entry before it. A field has the same form in every kind of entry;
which fields a kind has, and whether it may follow the entries before it, ``tasks.ledger.rules``
says.

Signatures are Ed25519: over the head of the ledger's chain, and over officers' statements.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.accounting.panel_design import FORMS, Design
from statpress.mechanisms.errors import (
    AmountError,
    LedgerError,
    LedgerIntegrityError,
    SigningKeyError,
    StatpressError,
)
from statpress.mechanisms.periods import SeriesPeriod

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_DIGITS = 400  # allowed on each side of the decimal point
_EXACT = Context(prec=2000, Emin=-2000, Emax=2000, traps=[Inexact, InvalidOperation])
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def exact(amount: object, *, where: str = "") -> Decimal:
    """The exact decimal that a text or a number stands for.

    A binary float stands for its shortest text that reads back as the same float.
    """
    source = float.__repr__(amount) if isinstance(amount, float) else amount
    number = None
    if isinstance(source, str):
        number = _of_text(source)
    elif isinstance(source, (int, Decimal)) and not isinstance(source, bool):
        number = _allowed(source)
    if number is not None:
        return number
    shown = repr(amount)[:60] if isinstance(amount, (str, float)) else type(amount).__name__
    raise AmountError(
        f"{shown} is not a finite, non-negative decimal of at most {_DIGITS} digits"
        " on each side of the point.",
        where=where,
    )


@lru_cache(maxsize=1024)
def _of_text(text: str) -> Decimal | None:
    """The number of a text that is one, if an amount may be that; a chain repeats its amounts."""
    return _allowed(text) if len(text) <= 1000 and _NUMBER.fullmatch(text) else None


def _allowed(source: str | int | Decimal) -> Decimal | None:
    try:
        number = _EXACT.normalize(_EXACT.create_decimal(source))
    except ArithmeticError:
        return None
    if number.is_finite() and number >= 0:
        exponent = int(number.as_tuple().exponent)
        if number.adjusted() < _DIGITS and exponent >= -_DIGITS:
            return number.copy_abs()
    return None


def canonical(number: Decimal) -> str:
    """The one text of a decimal: no trailing zeros, no loss, ``1e-8`` for small ones."""
    least = _EXACT.normalize(number)
    plain = int(least.as_tuple().exponent) > 0 and least.adjusted() < 16
    return format(least, "f") if plain else str(least).lower()


MEASURES = ("epsilon", "delta", "rho", "rho_delta")
"""What a charge is measured in: (epsilon, delta)-DP, and rho_delta-approximate rho-zCDP."""

_NAMES = {"rho_delta": "delta"}  # as people write them


@dataclass(frozen=True, slots=True)
class Loss:
    """A privacy loss, or a limit of it: exact decimals by measure.

    Attributes:
        amounts: Decimals by the names of some of ``MEASURES``.
    """

    amounts: Mapping[str, Decimal]

    @classmethod
    def of(cls, body: Mapping[str, Any], measures: tuple[str, ...] = MEASURES) -> Loss:
        """The loss that a mapping of amounts, as text or number, states in these measures."""
        return cls({measure: exact(body[measure], where=measure) for measure in measures})

    @classmethod
    def sums(cls, texts: Mapping[str, str], measures: Iterable[str] = MEASURES) -> Loss:
        """The sums that ``texts`` wrote, which may be longer than any single amount."""
        return cls({measure: _EXACT.create_decimal(texts[measure]) for measure in measures})

    @classmethod
    def nothing(cls) -> Loss:
        """No loss, in every measure."""
        return cls(dict.fromkeys(MEASURES, Decimal(0)))

    def __getitem__(self, measure: str) -> Decimal:
        return self.amounts[measure]

    def __add__(self, other: Loss) -> Loss:
        return Loss({m: _EXACT.add(self[m], other[m]) for m in self.amounts})

    def __sub__(self, other: Loss) -> Loss:
        """The difference in this loss's measures; below 0 where the other is larger."""
        return Loss({m: _EXACT.subtract(self[m], other[m]) for m in self.amounts})

    def within(self, measures: Iterable[str]) -> Loss:
        """This loss in some of its measures."""
        return Loss({m: self[m] for m in measures})

    def covers(self, other: Loss) -> bool:
        """Whether the other loss is no larger in any of this loss's measures."""
        return all(self[m] >= other[m] for m in self.amounts)

    def texts(self) -> dict[str, str]:
        """Canonical text by measure."""
        return {m: canonical(amount) for m, amount in self.amounts.items()}

    def __str__(self) -> str:
        return " and ".join(f"{_NAMES.get(m, m)} {text}" for m, text in self.texts().items())


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
    """The hash of an entry whose body is given as the text it is stored as."""
    text = f"[{sequence},{json.dumps(kind)},{body},{json.dumps(previous)}]"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def parse_entry(
    sequence: object, kind: object, text: object, previous: object, hash_: object
) -> Entry:
    """The entry that stored or exported parts stand for."""
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
    """ASCII JSON of a value without floats, with sorted keys and no spaces."""
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
            if type(child) is not str or depth == _DEEPEST:  # most are texts
                _refuse_inexact(child, f"{where}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, child in enumerate(value):
            if type(child) is not str or depth == _DEEPEST:
                _refuse_inexact(child, f"{where}[{index}]", depth + 1)
    elif isinstance(value, float):
        raise AmountError("A ledger entry cannot hold a binary float.", where=where)
    else:
        raise LedgerError(
            f"A ledger entry cannot hold this {type(value).__name__}.",
            where=where,
            next_step="Give text, whole numbers below 2**63, true, false, lists or objects.",
        )


_DIGEST = "[0-9a-f]{64}", "64 lower-case hexadecimal digits"
_PATTERNS = {
    "charge": _DIGEST,
    "config_sha256": _DIGEST,
    "decision": ("approve|reject", "'approve' or 'reject'"),
    "form": ("[0-9a-f]{16}", "16 lower-case hexadecimal digits"),
    "gates": ("exact|noisy", "'exact' or 'noisy'"),
    "manifest_sha256": _DIGEST,
    "public_key": _DIGEST,
    "signature": ("[0-9a-f]{128}", "an Ed25519 signature in 128 lower-case hexadecimal digits"),
}
_COUNTS = {"max_looks", "max_refusals", "n_records", "open_looks", "unit_records"}
_LONGEST = {
    "bundle": 4000,
    "reason": 1000,
    "source": 4000,
}  # of other texts: names, identifiers, versions, times


def check_field(name: str, value: object) -> None:
    """Raise unless a field's value has the form of that field.

    Raises:
        AmountError: An amount or a number of records is not usable.
        LedgerError: Another field is not usable.
    """
    if name in MEASURES:
        if value != canonical(exact(value, where=name)):
            raise AmountError("The amount is not in its canonical text form.", where=name)
        if name.endswith("delta") and exact(value) >= 1:
            raise AmountError("A delta must be below 1.", where=name)
        return
    if name in {"reason", "last_period"} and value is None:
        return
    if name in _COUNTS:
        least = 0 if name == "open_looks" else 1
        if type(value) is not int or not least <= value < 2**63:
            raise AmountError(
                "This number is not a positive whole number.",
                where=name,
                next_step=f"Give a whole number of at least {least}.",
            )
        return
    if name in _PATTERNS:
        pattern, form = _PATTERNS[name]
        usable = isinstance(value, str) and re.fullmatch(pattern, value) is not None
    elif name in _FLAGS:
        usable, form = isinstance(value, bool), "true or false"
    elif name in _READERS:
        reads, form = _READERS[name]
        usable = False
        with contextlib.suppress(ValueError):
            usable = isinstance(value, str) and reads(value)
    elif name == "mechanisms":
        usable = isinstance(value, list) and all(isinstance(item, dict) for item in value)
        form = "a list of objects, one for each mechanism"
    elif name == "approvers":
        usable, form = _are_keys(value), "at most 100 different public keys, in ascending order"
    elif name in {"also_in", "forms", "sources"}:
        usable, form = _are_lines(value), "at most 1,000 different lines of text, in order"
    else:
        longest = _LONGEST.get(name, 200)
        usable = isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()
        form = f"printable text of 1 to {longest} characters"
    if not usable:
        raise _unusable(name, form)


_FLAGS = frozenset({"apart", "insecure_seed", "new_form", "noisy_gates", "passed", "sign_terms"})
_FLAGS |= {"unsigned"}
_IS_PERIOD = (
    lambda text: bool(SeriesPeriod.read(text)),
    "a year, quarter, month or week, such as 2026, 2026-Q3, 2026-10 or 2026-W05",
)
_READERS: dict[str, tuple[Callable[[str], bool], str]] = {
    "design": (lambda text: str(Design.parse(text)) == text, FORMS),
    "period": _IS_PERIOD,
    "last_period": _IS_PERIOD,
}
"""By field, whether a text is one, raising ``ValueError`` where it is none; and its form."""


def _are_lines(value: object) -> bool:
    """Whether a field holds lines of public text, each once and in order."""
    if not isinstance(value, list) or len(value) > 1000:
        return False
    lines = [each for each in value if isinstance(each, str) and 0 < len(each) <= 4000]
    printable = all(map(str.isprintable, lines))
    return printable and len(lines) == len(value) and value == sorted(set(lines))


def _are_keys(value: object) -> bool:
    """Whether a list of public keys is short enough, without repetition and in order."""
    if not isinstance(value, list):
        return False
    if not all(map(is_public_text, value)):
        raise _unusable("approvers", _DIGEST[1])
    return len(value) <= 100 and value == sorted(set(value))


def _unusable(name: str, form: str) -> LedgerError:
    return LedgerError(
        "The value is not usable in the ledger.", where=name, next_step=f"Give {form}."
    )


_LARGEST = 100_000


def checkpoint_statement(sequence: int, head: str) -> list[object]:
    """What a checkpoint signs: its own place, and the hash of the entry before it."""
    return ["statpress ledger checkpoint", sequence, head]


def sign_statement(key: Ed25519PrivateKey, statement: list[object]) -> str:
    """The signature of a statement, in hexadecimal; its first item names its kind."""
    return key.sign(canonical_json(statement).encode("ascii")).hex()


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


def read_private_key(path: Path, ask: Callable[[], str] | None = None) -> Ed25519PrivateKey:
    """A private key from a PEM file that only its owner can use."""
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
    """A public key from a PEM file, as raw bytes in hexadecimal."""
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
