"""Flows of a deployment: Prefect keeps nothing of them but names, states and public parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, get_type_hints

from prefect import Flow
from pydantic import TypeAdapter, ValidationError

from mechanisms.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


class SealedFlow(Flow[P, T]):
    """A flow whose parameters are checked before Prefect stores them.

    Prefect itself first stores what a flow is called with, a whole table if need be, then
    checks it and logs it in full. (Of a deployed flow the server checks parameters first.)
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        called = {k: v for k, v in kwargs.items() if k not in ("return_state", "wait_for")}
        wrong, kinds = False, get_type_hints(self.fn)
        try:
            given = inspect.signature(self.fn).bind(*args, **called).arguments
            for name, value in given.items():
                TypeAdapter(kinds[name]).validate_python(value)
        except (TypeError, ValidationError):
            wrong = True
        if wrong:  # outside the except block: a message would quote what was given
            raise ConfigError(
                "The flow was called with other parameters than it declares.",
                where=self.name,
                next_step="Give it paths and names, never data.",
            )
        return super().__call__(*args, **kwargs)


def sealed_flow(name: str) -> Callable[[Callable[P, T]], SealedFlow[P, T]]:
    """Make a function a flow that is not retried, and of which no result or print is kept."""

    def decorate(function: Callable[P, T]) -> SealedFlow[P, T]:
        return SealedFlow(function, name=name, retries=0, persist_result=False, log_prints=False)

    return decorate
