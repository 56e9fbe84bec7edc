"""Rows of a long study, kept in a file, so that the study goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Key = tuple[Any, ...]


def kept_rows(
    path: Path | None, names: tuple[str, ...], keys: Iterable[Key], make: Callable[..., Any]
) -> dict[Key, Any]:
    """Make the rows that a file does not have yet, and return all of them by their keys.

    Args:
        path: File of JSON lines. With None nothing is kept.
        names: Names of the parts of a key.
        keys: Keys of the rows, in the order in which they are made.
        make: Function of the parts of a key; returns what JSON can store.
    """
    there: dict[Key, Any] = {}
    if path is not None and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            there[tuple(each[name] for name in names)] = each["row"]
    found = {}
    for key in keys:
        if key not in there:
            there[key] = make(*key)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                line = json.dumps(dict(zip(names, key, strict=True)) | {"row": there[key]})
                with path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
        found[key] = there[key]
    return found
