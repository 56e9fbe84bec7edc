"""Steps: plain functions that become Prefect tasks when a flow runs them.

Inside an orchestrated flow a step is a Prefect task without parameters: what
passes from step to step is bound beforehand, so the orchestrator sees the step's
name, its state and its duration, and nothing else. Steps that charge or draw
must not run twice, so no step is retried, cached or persisted.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from mechanisms.errors import OrchestratorError, StatpressError
from tasks.execution.private_zone import guarded
from tasks.execution.run_context import RunContext
from tasks.execution.side_channels import IN_A_STEP

P = ParamSpec("P")
T = TypeVar("T")

_CONTEXT: ContextVar[RunContext | None] = ContextVar("statpress_run", default=None)
"""The run whose steps are called; a step's own parameters are those of its function."""


@contextmanager
def steps_of(context: RunContext) -> Iterator[None]:
    """Execute the steps called inside as steps of a run."""
    token = _CONTEXT.set(context)
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def step(title: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function a step with a public title."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            context = _CONTEXT.get()
            if context is None:
                return function(*args, **kwargs)  # outside of a run, in a test
            context.deliver_notices()
            context.listener.announce(title)
            bound = guarded(functools.partial(function, *args, **kwargs), context.log, IN_A_STEP)
            started = time.perf_counter()
            try:
                return _as_task(title, bound, context) if context.orchestrated else bound()
            finally:
                spent = time.perf_counter() - started
                context.timings[title] = context.timings.get(title, 0.0) + spent
                context.deliver_notices()

        return call

    return decorate


def _as_task(title: str, bound: Callable[[], T], context: RunContext) -> T:
    """Run a bound step as a Prefect task that follows the step before it."""
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    def body() -> T:
        return bound()

    body.__name__ = body.__qualname__ = title.replace(" ", "_")
    options: dict[str, Any] = {
        "name": title,
        "task_run_name": title,
        "retries": 0,
        "persist_result": False,
        "cache_policy": NO_CACHE,
        "log_prints": False,
    }
    after = [context.previous] if context.previous is not None else None
    state = task(body, **options)(return_state=True, wait_for=after)
    context.previous = state
    if state.is_completed():
        result: T = state.result()
        return result
    failure = state.result(raise_on_failure=False)
    if not isinstance(failure, StatpressError):  # cancelled, crashed or timed out outside
        failure = OrchestratorError(f"The orchestrator stopped the step '{title}'.")
    raise failure
