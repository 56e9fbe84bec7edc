"""Text types of a config."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr
from pydantic_core import PydanticCustomError


def _printable(text: str) -> str:
    """One line without control characters, which could repaint a terminal."""
    if not text.isprintable():
        raise PydanticCustomError("ConfigError", "must be one line of printable text")
    return text


Line = Annotated[StrictStr, Field(min_length=1, max_length=1000), AfterValidator(_printable)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
