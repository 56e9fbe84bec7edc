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
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from mechanisms.errors import OrchestratorError, StatpressError
from tasks.execution.private_zone import CuratorLog, guarded
from tasks.execution.side_channels import IN_A_STEP

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Conduct:
    """How the steps of one run are carried out.

    Attributes:
        log: Curator log that takes what must not leave a step.
        orchestrated: Whether steps are Prefect tasks.
        announce: Called with a step's title when it starts.
        timings: Seconds per step title, in order.
        tell: Called with what a person should know, public facts alone.
    """

    log: CuratorLog
    orchestrated: bool = False
    announce: Callable[[str], None] = lambda title: None
    timings: dict[str, float] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda text: None
    previous: Any = None
    untold: list[str] = field(default_factory=list)


_CONDUCT: ContextVar[Conduct | None] = ContextVar("statpress_conduct", default=None)


@contextmanager
def conducted(conduct: Conduct) -> Iterator[Conduct]:
    """Carry out the steps called inside in this way."""
    token = _CONDUCT.set(conduct)
    try:
        yield conduct
    finally:
        _CONDUCT.reset(token)


def conduct_in_force() -> Conduct | None:
    """How the steps called here are carried out; None outside of a run."""
    return _CONDUCT.get()


def notify(text: str) -> None:
    """Have a person told of a public fact, once the step that says so has ended."""
    conduct = _CONDUCT.get()
    if conduct is not None:
        conduct.untold.append(text)


def _tell(conduct: Conduct) -> None:
    """Pass on what is untold: to the person, the curator and the orchestrator's log."""
    while conduct.untold:
        text = conduct.untold.pop(0)
        conduct.log.write(text)
        conduct.tell(text)
        if conduct.orchestrated:
            from prefect.exceptions import MissingContextError
            from prefect.logging import get_run_logger

            with suppress(MissingContextError):  # the flow's function may be called by itself
                get_run_logger().warning("%s", text)


def step(title: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function a step with a public title."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            conduct = _CONDUCT.get()
            if conduct is None:
                return function(*args, **kwargs)  # by itself, in a test
            _tell(conduct)
            conduct.announce(title)
            bound = guarded(functools.partial(function, *args, **kwargs), conduct.log, IN_A_STEP)
            started = time.perf_counter()
            try:
                return _as_task(title, bound, conduct) if conduct.orchestrated else bound()
            finally:
                spent = time.perf_counter() - started
                conduct.timings[title] = conduct.timings.get(title, 0.0) + spent
                _tell(conduct)

        return call

    return decorate


def _as_task(title: str, bound: Callable[[], T], conduct: Conduct) -> T:
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
    after = [conduct.previous] if conduct.previous is not None else None
    state = task(body, **options)(return_state=True, wait_for=after)
    conduct.previous = state
    if state.is_completed():
        result: T = state.result()
        return result
    failure = state.result(raise_on_failure=False)
    if not isinstance(failure, StatpressError):  # cancelled, crashed or timed out outside
        failure = OrchestratorError(f"The orchestrator stopped the step '{title}'.")
    raise failure
