"""Amounts of privacy loss as exact decimals, and their one text form.

Binary floats would let a thousand small charges drift past the limit. Here every
sum keeps every digit, or it raises: nothing is ever rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
        f"{shown} is not a finite, non-negative decimal of at most {_DIGITS} digits"
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
    def sums(cls, texts: Mapping[str, str]) -> Loss:
        """The sums that ``texts`` wrote, which may be longer than any single amount."""
        return cls({measure: _EXACT.create_decimal(texts[measure]) for measure in MEASURES})

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
        """The same loss in some of its measures."""
        return Loss({m: self[m] for m in measures})

    def covers(self, other: Loss) -> bool:
        """Whether the other loss is no larger in any of this loss's measures."""
        return all(self[m] >= other[m] for m in self.amounts)

    def texts(self) -> dict[str, str]:
        """Canonical text by measure."""
        return {m: canonical(amount) for m, amount in self.amounts.items()}

    def __str__(self) -> str:
        return " and ".join(f"{_NAMES.get(m, m)} {text}" for m, text in self.texts().items())
