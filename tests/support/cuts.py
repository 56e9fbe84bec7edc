"""A run that is cut off inside a function of the product, in the process of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from statpress.mechanisms.errors import StatpressError


class CutError(Exception):
    """What cuts a run off; no error of the product."""


def cut(*_: Any, **__: Any) -> None:
    """Stand in for a function that is not reached."""
    raise CutError


@contextmanager
def cut_off_at(function: str, raises: type[Exception] = StatpressError) -> Iterator[None]:
    """Expect what is done here to fail, since the function of this import path cuts it off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, cut)
        with pytest.raises(raises):
            yield
