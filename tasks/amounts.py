"""Amounts of privacy loss as exact decimals, and their one text form.

Binary floats would let a thousand small charges drift past the limit. Here every
sum keeps every digit, or it raises: nothing is ever rounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from mechanisms.errors import AmountError

_DIGITS = 400  # allowed on each side of the decimal point
_EXACT = Context(prec=2000, Emin=-2000, Emax=2000, traps=[Inexact, InvalidOperation])
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def exact(amount: object, *, where: str = "") -> Decimal:
    """The exact decimal that a text or a number stands for.

    A binary float stands for its shortest text that reads back as the same float.

    Args:
        amount: Text, int, float or Decimal.
        where: The field it comes from, for the message.

    Raises:
        AmountError: It is not finite, is negative, or has more than 400 digits on
            one side of the decimal point.
    """
    source = float.__repr__(amount) if isinstance(amount, float) else amount
    if isinstance(source, str) and not (len(source) <= 1000 and _NUMBER.fullmatch(source)):
        source = None
    number = Decimal("NaN")
    if isinstance(source, (str, int, Decimal)) and not isinstance(source, bool):
        try:
            number = _EXACT.normalize(_EXACT.create_decimal(source))
        except ArithmeticError:
            number = Decimal("NaN")
    if number.is_finite() and number >= 0 and _short(number):
        return number.copy_abs()
    shown = repr(amount)[:60] if isinstance(amount, (str, float)) else type(amount).__name__
    raise AmountError(
        f"{shown} is no finite, non-negative decimal of at most {_DIGITS} digits"
        " on each side of the point.",
        where=where,
    )


def _short(number: Decimal) -> bool:
    """Whether it has at most 400 digits on each side of the point."""
    return number.adjusted() < _DIGITS and int(number.as_tuple().exponent) >= -_DIGITS


def canonical(number: Decimal) -> str:
    """The one text of a decimal: no trailing zeros, no loss, ``1e-8`` for small ones."""
    least = _EXACT.normalize(number)
    plain = int(least.as_tuple().exponent) > 0 and least.adjusted() < 16
    return format(least, "f") if plain else str(least).lower()


@dataclass(frozen=True, slots=True)
class Loss:
    """A privacy loss, or a limit of it: epsilon and delta as exact decimals."""

    epsilon: Decimal
    delta: Decimal

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Loss:
        """The loss an entry's body states."""
        return cls(exact(body["epsilon"]), exact(body["delta"]))

    def __add__(self, other: Loss) -> Loss:
        add = _EXACT.add
        return Loss(add(self.epsilon, other.epsilon), add(self.delta, other.delta))

    def __sub__(self, other: Loss) -> Loss:
        take = _EXACT.subtract
        return Loss(take(self.epsilon, other.epsilon), take(self.delta, other.delta))

    def covers(self, other: Loss) -> bool:
        """Whether the other loss is no larger, in epsilon as well as in delta."""
        return self.epsilon >= other.epsilon and self.delta >= other.delta

    def __str__(self) -> str:
        return f"epsilon {canonical(self.epsilon)} and delta {canonical(self.delta)}"


NOTHING = Loss(Decimal(0), Decimal(0))
