"""The widths and colours in which a test looks at a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def looks_at(widths: Sequence[int]) -> list[Any]:
    """Ways to look at a page, as parameters of a test: a narrow dark and a wide light one, or all.

    Args:
        widths: Of the window, from the narrowest to the widest.
    """
    quick = [(widths[0], "dark"), (widths[-1], "light")]
    every = [(width, scheme) for width in widths for scheme in ("light", "dark")]
    full = pytest.param(every, id="all", marks=pytest.mark.nightly)
    return [pytest.param(quick, id="quick"), full]
