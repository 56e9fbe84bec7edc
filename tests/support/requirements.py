"""What a test needs of its machine: without it the test is skipped, and fails where ``CI=true``."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import NoReturn

import pytest


def lacking(reason: str) -> NoReturn:
    """Skip for this reason; where ``CI=true``, where nothing may be missing, fail for it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} With CI=true nothing may be missing.", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def needed(name: str) -> ModuleType:
    """Import a module of an extra or of the dependency group ``system``."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        lacking(f"{error}. Install it with: uv sync --locked --all-extras")
