"""What an account is about: patterns of sources, and whether a source is one of them.

A source has a name: the absolute path of a file with its links resolved, the URL of objects in a
store, ``postgres:schema.table`` or ``spark:table``. A path may be a pattern itself, as configs name
several files. In patterns ``*``, ``?`` and ``[]`` stand for characters, ``*`` for slashes too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

_WILD = re.compile(r"[*?\[]")
_SERVER = re.compile(r"(postgres|spark):|[a-z0-9+]+://")


def literal_of(pattern: str) -> str:
    """The part before the first wildcard."""
    return _WILD.split(pattern, maxsplit=1)[0]


def resolved(path: str, folder: str = "") -> str:
    """A path or pattern of files as a name: absolute, links resolved as far as names are known."""
    if _SERVER.match(path):
        return path
    absolute = os.path.join(os.path.abspath(folder or os.curdir), path)
    known = literal_of(absolute)
    if known == absolute:
        return os.path.realpath(absolute)
    directory = os.path.dirname(known)
    return os.path.realpath(directory).rstrip("/") + absolute[len(directory.rstrip("/")) :]


def is_about(source: str, patterns: Iterable[str]) -> bool:
    """Whether every file that a source can stand for lies in one of the patterns.

    A source that is a pattern itself has to be one of them, or to begin as one that ends with its
    only wildcard, ``*``.
    """
    if not _WILD.search(source):
        return any(fnmatchcase(source, pattern) for pattern in patterns)
    return any(
        source == pattern
        or (f"{literal_of(pattern)}*" == pattern and literal_of(source).startswith(pattern[:-1]))
        for pattern in patterns
    )


def overlap(one: str, other: str) -> bool:
    """Whether some source may lie in both patterns; where that is not known, it may."""
    if not _WILD.search(one):
        return fnmatchcase(one, other)
    if not _WILD.search(other):
        return fnmatchcase(other, one)
    begins = sorted((literal_of(one), literal_of(other)), key=len)
    ends = sorted((_WILD.split(each)[-1] for each in (one, other)), key=len)
    if any("]" in end for end in ends):
        ends = ["", ""]
    return begins[1].startswith(begins[0]) and ends[1].endswith(ends[0])
