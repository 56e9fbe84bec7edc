"""What all errors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar


class StatpressError(Exception):
    """Base of all errors with a message fit for the public zone.

    Args:
        what: What is wrong, one sentence.
        where: Place: file, line and column, field, dataset or path.
        next_step: What the reader can do about it.

    Attributes:
        also: Further errors that were found at the same time; this one is raised for all.
    """

    also: tuple[StatpressError, ...] = ()
    exit_code = 70
    next_step = "Look up the incident in the curator log, then report it."

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.next_step = next_step or type(self).next_step
        super().__init__(what)

    @property
    def kind(self) -> str:
        """The class name without ``Error``, the stable name of this kind."""
        return type(self).__name__.removesuffix("Error")

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return "\n".join((f"{place}{self.what} {self.next_step}".strip(), *map(str, self.also)))

    def __reduce__(self) -> tuple[object, ...]:
        # An orchestrator may pickle an exception; keep the keyword fields.
        return (_rebuild, (type(self), self.args, self.__dict__))


E = TypeVar("E", bound=StatpressError)


def together(errors: Sequence[E]) -> E:
    """The first of some errors, which brings the others along."""
    first, *others = errors
    rest: list[StatpressError] = []
    for other in others:
        rest += [other, *other.also]
        other.also = ()
    first.also = (*first.also, *rest)
    first.args = (str(first),)
    return first


def _rebuild(
    kind: type[StatpressError], args: tuple[object, ...], state: dict[str, object]
) -> StatpressError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InternalError(StatpressError):
    """Something unforeseen; its detail is only in the curator log."""

    exit_code = 70
