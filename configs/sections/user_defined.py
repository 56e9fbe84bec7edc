"""Imports the statistics and functions that a config names as ``module:name``."""

from __future__ import annotations

import importlib
from typing import Any

from mechanisms.base.user_defined import UserDefined
from mechanisms.errors import ConfigError


def user_defined(name: str, noun: str) -> UserDefined:
    """The object ``module:name``.

    Args:
        name: As written in the config.
        noun: What it is to be, for the message.

    Raises:
        ConfigError: It cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        value: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the module's own code runs, and may fail in any way
        raise ConfigError(
            f"There is no {noun} '{name}' ({type(error).__name__}).",
            where="function",
            next_step=f"Write module:name of a {noun} that can be imported where runs are made.",
        ) from None
    return UserDefined(name, value)
