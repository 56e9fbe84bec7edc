"""Faults of a config, with their places, collected so that all are named at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from configs.yaml_text import Document, Path
from mechanisms.errors import ConfigError, InfeasibleBudgetError, StatpressError, together


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
        """Raise what was found.

        Raises:
            StatpressError: The first, with the others.
        """
        once = {(each.where, each.what): each for each in reversed(self.errors)}
        if once:
            raise together([*reversed(once.values())])


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
