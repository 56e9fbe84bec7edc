"""Tests of what files may be read and written, also where root runs them.

Root reads and writes everything by two capabilities of its threads. Without them it is held to the
mode of its own files, and still finds the modules of a checkout in its private home, which another
user would not.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION = 0x20080522  # of the kernel's interface, with two words for each set
_OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


@contextmanager
def held_to_modes() -> Iterator[None]:
    """Let this thread, and those it starts, read and write only what the modes of files allow."""
    if os.geteuid() != 0:
        yield
        return
    system = ctypes.CDLL(None, use_errno=True)
    header, sets = _Header(_VERSION, 0), (_Sets * 2)()

    def call(name: str) -> None:
        if getattr(system, name)(ctypes.byref(header), sets):
            raise OSError(ctypes.get_errno(), name)

    call("capget")
    before = sets[0].effective
    sets[0].effective = before & ~_OVERRIDES
    call("capset")
    try:
        yield
    finally:
        sets[0].effective = before
        call("capset")
