"""The shares of the budget: those that are given, and what is left for the others."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_DOWN, Context, Decimal, localcontext

from mechanisms.errors import BudgetValueError

_DIGITS = Context(prec=12, rounding=ROUND_DOWN)


def divided(given: Mapping[str, Decimal | None]) -> dict[str, Decimal]:
    """Every product's share; they add up to 1 exactly.

    Those without a share divide equally what the others leave. Each gets twelve digits of its part,
    and the last of them the rest.

    Args:
        given: By product its share, None where it is left out.

    Raises:
        BudgetValueError: The shares do not add up to 1, or leave nothing for the others.

    >>> divided({"a": Decimal("0.5"), "b": None, "c": None})
    {'a': Decimal('0.5'), 'b': Decimal('0.25'), 'c': Decimal('0.25')}
    """
    without = [name for name, share in given.items() if share is None]
    known = {name: share for name, share in given.items() if share is not None}
    with localcontext(prec=1000):
        total = sum(known.values(), Decimal(0))
        left = 1 - total
        if not without and left:
            raise BudgetValueError(f"The products' shares add up to {total}, not 1.")
        if without and left <= 0:
            named = ", ".join(f"'{name}'" for name in without)
            raise BudgetValueError(
                f"The shares that are given add up to {total} and leave nothing for {named}."
            )
        parts = {}
        if without:
            each = _DIGITS.divide(left, len(without))
            parts = dict.fromkeys(without, each)
            parts[without[-1]] = left - each * (len(without) - 1)
    return {name: known[name] if name in known else parts[name] for name in given}
