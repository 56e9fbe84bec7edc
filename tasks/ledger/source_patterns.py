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

_WILD = re.compile(r"[*?\[{]")  # braces are wildcards to Spark
_TABLE = re.compile(r"(postgres|spark):[^/]+")
_STORES = {"s3a": "s3", "s3n": "s3"}


def literal_of(pattern: str) -> str:
    """The part before the first wildcard."""
    return _WILD.split(pattern, maxsplit=1)[0]


def of_table(engine: str, table: str) -> str:
    """The name of a server's table; Spark knows no case, and names its own database or not."""
    if engine == "spark":
        table = table.casefold().removeprefix("spark_catalog.").removeprefix("default.")
    return f"{engine}:{table}"


def of_path(path: str, folder: str = "") -> str:
    """The name of a path, pattern or URL: absolute, links resolved as far as names are known."""
    scheme, _, rest = path.partition("://")
    if rest and scheme != "file":
        return f"{_STORES.get(scheme, scheme)}://{rest}"
    absolute = os.path.join(os.path.abspath(folder or os.curdir), rest or path)
    known = literal_of(absolute)
    if known == absolute or os.path.lexists(absolute):
        return os.path.realpath(absolute)
    directory = os.path.dirname(known)
    return os.path.realpath(directory).rstrip("/") + absolute[len(directory.rstrip("/")) :]


def named(given: str) -> str:
    """The name of what a person gives: of a table if it has that form, else of a path."""
    if _TABLE.fullmatch(given):
        return of_table(*given.split(":", maxsplit=1))
    return of_path(given)


def is_about(source: str, patterns: Iterable[str]) -> bool:
    """Whether every file that a source can stand for lies in one of the patterns.

    A source that is a pattern itself has to be one of them, or to begin as one that ends with its
    only wildcard, ``*``; and nothing in it may lead upwards.
    """
    if ".." in source.split("/"):
        return False
    if not _WILD.search(source):
        return any(fnmatchcase(source, pattern) for pattern in patterns)
    return any(
        source == pattern
        or (f"{literal_of(pattern)}*" == pattern and literal_of(source).startswith(pattern[:-1]))
        for pattern in patterns
    )


def overlap(one: str, other: str) -> bool:
    """Whether some source may lie in both patterns; where that is not known, it may.

    A folder is a table, so that what lies in it is the same source.
    """
    if any(_inside(*pair) for pair in ((one, other), (other, one))):
        return True
    if "{" in one + other:
        return literal_of(one).startswith(literal_of(other)) or literal_of(other).startswith(
            literal_of(one)
        )
    if not _WILD.search(one):
        return fnmatchcase(one, other)
    if not _WILD.search(other):
        return fnmatchcase(other, one)
    begins = sorted((literal_of(one), literal_of(other)), key=len)
    ends = sorted((_WILD.split(each)[-1] for each in (one, other)), key=len)
    if any("]" in end for end in ends):
        ends = ["", ""]
    return begins[1].startswith(begins[0]) and ends[1].endswith(ends[0])


def _inside(folder: str, other: str) -> bool:
    return not _WILD.search(folder) and literal_of(other).startswith(folder.rstrip("/") + "/")
