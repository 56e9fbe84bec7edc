"""What one run knows of itself: made once, then passed down to whatever needs it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tasks.execution.home import Home
from tasks.execution.private_zone import CuratorLog
from tasks.execution.workers import Parallel


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
    """Decides whether a profile passes a quality gate; ``tasks.quality.inspector`` has the one."""

    log: CuratorLog

    def meets(self, gate: str, profile: Mapping[str, int], expectations: list[Any]) -> bool:
        """Whether a profile meets all expectations."""


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
        timings: Seconds per step title, in order; filled as the run goes.
        previous: Prefect's state of the step before.
        ledger_positions: Where every entry of the ledger stands, once a step has read them all;
            later steps read on from there.
    """

    home: Home
    log: CuratorLog
    inspector: Gatekeeper | None = None
    orchestrated: bool = False
    parallel: Parallel = field(default_factory=Parallel)
    listener: Listener = field(default_factory=Silent)
    timings: dict[str, float] = field(default_factory=dict, init=False)
    previous: Any = field(default=None, init=False, repr=False)
    ledger_positions: Any = field(default=None, init=False, repr=False)
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


def _log_to_orchestrator(text: str) -> None:
    """Write to the log of the flow run, if one is under way."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    with suppress(MissingContextError):  # the flow's function may be called directly
        get_run_logger().warning("%s", text)
