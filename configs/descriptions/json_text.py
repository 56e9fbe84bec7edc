"""JSON with exact numbers, and access to what may be of any shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NoReturn

from mechanisms.errors import DescriptionError


def parse_json(text: str, name: str) -> Any:
    """The value of a JSON text; numbers with a point are decimals.

    Raises:
        DescriptionError: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refused)
    except json.JSONDecodeError as error:
        problem = f"This is not JSON: {error.msg}."
        where = f"{name}:{error.lineno}:{error.colno}"
    except RecursionError:
        problem, where = "The JSON is nested too deeply.", name
    except ValueError:
        problem, where = "This is not JSON: it holds a number that JSON cannot.", name
    raise DescriptionError(problem, where=where)


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """The value if it is a list, else an empty one; a single value is a list of itself."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _refused(constant: str) -> NoReturn:
    raise ValueError(constant)
