"""Silence around an engine: its messages quote values, so only their kind gets out.

Each failure is found and raised outside the ``except`` block, so that it carries no context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mechanisms.errors import InternalError, StatpressError
from tasks.source.private_log import PRIVATE

_Result = TypeVar("_Result")


def guarded(
    where: str,
    run: Callable[[], _Result],
    failure_of: Callable[[Exception], StatpressError | None],
) -> _Result:
    """Run a step that may touch a source, silencing whatever the engine says.

    Args:
        where: Public name of the source.
        run: The step.
        failure_of: The public error that stands for the engine's; None for one that is not of
            the engine.

    Raises:
        SourceError: What is wrong, in public words.
        InternalError: Something else.
    """
    try:
        return run()
    except StatpressError:
        raise
    except Exception as error:
        PRIVATE.exception("counting")
        caught = error
    try:
        failure = failure_of(caught)
    finally:
        del caught
    raise failure or InternalError("Counting failed.", where=where)
