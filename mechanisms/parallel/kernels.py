"""Compiled functions: made once, kept on disk where that is possible, and free of Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compiled_kernel(function: Callable[..., Any], signature: Any) -> Any:
    """The machine code of a function for one signature of numba's types.

    It is kept beside the function's file or in the user's cache folder; if neither can be written
    it is compiled anew in each process.
    """
    import numba

    try:
        return numba.njit(signature, cache=True, nogil=True)(function)
    except (OSError, RuntimeError):  # no place for the cache, or it cannot be written
        return numba.njit(signature, nogil=True)(function)
