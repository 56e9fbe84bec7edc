"""Faults of a config, with their places, collected so that all are named at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from configs.yaml_text import Document, Path
from mechanisms.errors import (
    ConfigError,
    InfeasibleBudgetError,
    StatpressError,
    UnknownKeyError,
    together,
)


class Findings:
    """Errors that do not keep the rest from being checked."""

    def __init__(self) -> None:
        self.errors: list[StatpressError] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an error of the config for later."""
        try:
            yield
        except (ConfigError, InfeasibleBudgetError) as error:
            self.errors.append(error)

    def settle(self) -> None:
        """Raise what was found: unknown keys, then the rest, each in the order of the file.

        Raises:
            StatpressError: The first, with the others.
        """
        once: dict[tuple[str, str], StatpressError] = {}
        for error in self.errors:
            for each in (error, *error.also):
                once.setdefault((each.where, each.what), each)
        for each in once.values():
            each.also = ()
        if once:
            raise together(sorted(once.values(), key=_order))


def _order(error: StatpressError) -> tuple[bool, float, float]:
    """Where an error stands among others; last if it is of no line, as one of an override."""
    found = re.match(r".*?:(\d+):(\d+)(?:: |$)", error.where)
    line, column = map(int, found.groups()) if found else (math.inf, math.inf)
    return not isinstance(error, UnknownKeyError), line, column


@contextmanager
def placed(document: Document, keys: Path) -> Iterator[None]:
    """Give errors of the core the place in the file where they arose."""
    try:
        yield
        return
    except (ConfigError, InfeasibleBudgetError) as error:
        found: StatpressError = error
    inner = found.where
    if document.name not in inner:
        known = (*keys, inner) if inner and (*keys, inner) in document.places else keys
        found.where = document.where(known)
    raise found
