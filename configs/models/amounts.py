"""Number types of a config: exact decimals for budgets, finite doubles for edges."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


def _decimal(value: Any) -> Decimal:
    if isinstance(value, (int, Decimal, str)) and not isinstance(value, bool):
        try:
            exact = Decimal(value)
        except InvalidOperation:
            exact = Decimal("nan")
        if exact.is_finite():
            return exact
    raise PydanticCustomError("BudgetValueError", "must be a finite number")


def _epsilon(value: Any) -> Decimal:
    exact = _decimal(value)
    if not exact > 0:
        raise PydanticCustomError("BudgetValueError", "must be above 0")
    return exact


def _delta(value: Any) -> Decimal:
    exact = _decimal(value)
    if not 0 <= exact < 1:
        raise PydanticCustomError("BudgetValueError", "must be at least 0 and below 1")
    return exact


def _share(value: Any) -> Decimal:
    exact = _decimal(value)
    if not 0 < exact <= 1:
        raise PydanticCustomError("BudgetValueError", "must be above 0 and at most 1")
    return exact


def _finite(value: Any) -> float:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise PydanticCustomError("EdgesError", "must be a finite number")


def _positive_count(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise PydanticCustomError("RecordsError", "must be a whole number, 1 or more")


Epsilon = Annotated[Decimal, BeforeValidator(_epsilon), Field(gt=0)]
Delta = Annotated[Decimal, BeforeValidator(_delta), Field(ge=0, lt=1)]
Share = Annotated[Decimal, BeforeValidator(_share), Field(gt=0, le=1)]
FiniteNumber = Annotated[float, BeforeValidator(_finite)]
Count = Annotated[int, BeforeValidator(_positive_count), Field(ge=1)]
