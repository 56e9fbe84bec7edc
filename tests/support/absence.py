"""Packages that are not installed, whatever the environment has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def absent(*names: str, imported_by: str = "") -> Iterator[None]:
    """Let neither an import nor ``find_spec`` find some packages; a module asks for them again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, imported_by, raising=False)
        for name in names:
            patch.setitem(sys.modules, name, None)
        yield
