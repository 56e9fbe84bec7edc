"""Statistics and functions that a user brings, by the name that a config gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class UserDefined:
    """A user-defined object; it is imported where configs are read, never here.

    Two of the same name are equal, since the object itself may not be hashable.

    Attributes:
        name: ``module:name``.
        value: The object.
    """

    name: str
    value: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name
