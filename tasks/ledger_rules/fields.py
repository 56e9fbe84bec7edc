"""The fields of a ledger entry, and the form of each.

A field has the same form in every kind of entry. A field without a row in ``_FORMS`` is
a short printable text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mechanisms.errors import AmountError, LedgerError
from tasks.ledger_rules.amounts import canonical, exact
from tasks.ledger_rules.entries import Body

OF_DATASET = frozenset({"dataset", "created"})
"""Fields of every entry about a dataset."""

OF_RUN = OF_DATASET | {"run_id"}
"""Fields of every entry about a run."""

BY_KEY = frozenset({"public_key", "signature"})
"""Fields of an entry that someone signed."""


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
            "This number is not a positive whole number.",
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
    "max_refusals": _count,
    "n_records": _count,
    "public_key": _digest,
    "reason": _reason,
    "rho": _amount,
    "rho_delta": _delta,
    "signature": _signature,
    "unit_records": _count,
    "unsigned": _flag,
}
