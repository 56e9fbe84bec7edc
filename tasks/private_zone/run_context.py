"""What one run knows of itself, and steps: plain functions that Prefect may run as tasks.

A ``RunContext`` is made once, then passed down to whatever needs it.

Inside an orchestrated flow a step is a Prefect task without parameters: what passes from step to
step is bound beforehand, so the orchestrator sees the step's name, its state and its duration, and
nothing else. Steps that charge or draw must not run twice, so no step is retried, cached or
persisted.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, Protocol, TypeVar

from statpress.mechanisms.errors import OrchestratorError, StatpressError
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import IN_A_STEP, CuratorLog, guarded
from statpress.tasks.private_zone.workers import Parallel


class Listener(Protocol):
    """Whoever follows a run; it learns public facts only."""

    def announce(self, title: str) -> None:
        """A step begins."""

    def advance(self, records: int) -> None:
        """So many more records or cells are drawn."""

    def notify(self, text: str) -> None:
        """Something a person should know, such as what a killed run left."""


class Silent:
    """A listener that does nothing."""

    def announce(self, title: str) -> None:
        """Ignore it."""

    def advance(self, records: int) -> None:
        """Ignore it."""

    def notify(self, text: str) -> None:
        """Ignore it."""


class Gatekeeper(Protocol):
    """Decides whether a profile passes a quality gate; ``tasks.private_zone.gates`` has the one."""

    log: CuratorLog

    def meets(self, gate: str, profile: Mapping[str, int], expectations: list[Any]) -> bool:
        """Whether a profile meets all expectations."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long a run that a server watches waits.

    Attributes:
        progress: Seconds between moves of the progress bar; drawing that takes longer gets one.
        turn: Seconds to wait for another release of the dataset.
    """

    progress: float = 5.0
    turn: float = 3600.0


@dataclass(kw_only=True, eq=False)
class RunContext:
    """One run: where it works, who follows it, how its steps are executed.

    Attributes:
        home: Where ledger, logs and work lie.
        log: Curator log, which takes what must not leave a step; it names the run.
        inspector: The quality process; None for a run that reads no source.
        orchestrated: Whether steps are Prefect tasks.
        parallel: In which processes products are drawn.
        listener: Who is told of the progress.
        pace: How long it waits.
        timings: Seconds per step title, in order; filled as the run goes.
        previous: Prefect's state of the step before.
        ledger_positions: Where every entry of the ledger stands, once a step has read them all;
            later steps read on from there.
        draw: The ledger's entry that the run draws, once it is written.
        looked: Whether the ledger has the run's look.
    """

    home: Home
    log: CuratorLog
    inspector: Gatekeeper | None = None
    orchestrated: bool = False
    parallel: Parallel = field(default_factory=Parallel)
    listener: Listener = field(default_factory=Silent)
    pace: Pace = field(default_factory=Pace)
    timings: dict[str, float] = field(default_factory=dict, init=False)
    previous: Any = field(default=None, init=False, repr=False)
    ledger_positions: Any = field(default=None, init=False, repr=False)
    draw: Any = field(default=None, init=False, repr=False)
    looked: bool = field(default=False, init=False, repr=False)
    _notices: list[str] = field(default_factory=list, init=False, repr=False)

    @property
    def run_id(self) -> str:
        """The run's public identifier, the idempotency key of its charge."""
        return self.log.run_id

    def notify(self, text: str) -> None:
        """Keep a public fact for the person, until the step that found it has ended."""
        self._notices.append(text)

    def deliver_notices(self) -> None:
        """Pass kept notices on: to the person, the curator and the orchestrator's log."""
        while self._notices:
            text = self._notices.pop(0)
            self.log.write(text)
            self.listener.notify(text)
            if self.orchestrated:
                _log_to_orchestrator(text)

    @contextmanager
    def steps(self) -> Iterator[None]:
        """Execute the steps called inside as steps of a run."""
        token = _CONTEXT.set(self)
        try:
            yield
        finally:
            _CONTEXT.reset(token)


def _log_to_orchestrator(text: str) -> None:
    """Write to the log of the flow run, if one is under way."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    with suppress(MissingContextError):  # the flow's function may be called directly
        get_run_logger().warning("%s", text)


P = ParamSpec("P")
T = TypeVar("T")

_CONTEXT: ContextVar[RunContext | None] = ContextVar("statpress_run", default=None)
"""The run whose steps are called; a step's own parameters are those of its function."""


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
