"""Text types of a config."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr
from pydantic_core import PydanticCustomError


def _printable(text: str) -> str:
    """One line without control characters, which could repaint a terminal."""
    if not text.isprintable():
        raise PydanticCustomError("ConfigError", "must be one line of printable text")
    return text


def _path(text: str) -> str:
    """A path, and not the key itself: the config is published with the bundle."""
    if "PRIVATE KEY" in text or re.match("M(C4|FE)CAQ|[0-9A-Fa-f]{64}$", text):
        raise PydanticCustomError(
            "ConfigError",
            "must be the path of a key file; the key itself must never stand in a config, which is "
            "published with the bundle: make a new one",
        )
    return text


def _paragraphs(text: str) -> str:
    """Lines without control characters; a break at the end, which YAML leaves, is dropped."""
    text = text.strip("\n ")
    if not text or not all(map(str.isprintable, text.split("\n"))):
        raise PydanticCustomError("ConfigError", "must be lines of printable text")
    return text


Line = Annotated[StrictStr, Field(min_length=1, max_length=1000), AfterValidator(_printable)]
KeyPath = Annotated[Line, AfterValidator(_path)]
Paragraphs = Annotated[
    StrictStr, Field(min_length=1, max_length=10_000), AfterValidator(_paragraphs)
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
