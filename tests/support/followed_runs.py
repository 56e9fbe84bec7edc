"""Runs in the test's process, into which the test comes at a step or at an entry of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, event

import statpress.flows.deployed
from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.flows.runner import plain_context, run_release
from statpress.mechanisms.errors import LedgerReadOnlyError
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import RunContext, Silent
from statpress.tasks.release.runs import Outcome


class Follower(Silent):
    """A listener that acts before a step, and keeps what people are told.

    Attributes:
        acts: What it does, by the title of the step.
        steps: Titles of those that began.
        told: Notices.
        records: How many were drawn.
    """

    def __init__(self, step: str = "", act: Callable[[], object] = lambda: None) -> None:
        self.acts = {step: act}
        self.steps: list[str] = []
        self.told: list[str] = []
        self.records = 0

    def announce(self, title: str) -> None:
        self.steps.append(title)
        self.acts.get(title, lambda: None)()

    def advance(self, records: int) -> None:
        self.records += records

    def notify(self, text: str) -> None:
        self.told.append(text)


def run_followed(agency: Any, follower: Follower, order: PlannedOrder | None = None) -> Outcome:
    """Run an agency's release with somebody who follows it."""
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
    context = agency.context()
    context.listener = follower
    return run_release(context, order or Order(agency.config))


def fail(error: type[BaseException]) -> Callable[[], None]:
    """An act that raises."""

    def act() -> None:
        raise error

    return act


@contextmanager
def refusing(kind: str, error: BaseException | None = None) -> Iterator[None]:
    """Let databases fail at the insertion of an entry of this kind."""
    raised = error or LedgerReadOnlyError("The ledger cannot be written.", where="ledger")

    def refuse(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        values = parameters.values() if isinstance(parameters, dict) else parameters
        if statement.startswith("INSERT INTO entries") and kind in values:
            raise raised

    event.listen(Engine, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", refuse)


def deploy(agency: Any, patch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The deployed release of an agency as a plain function; each call is a run of its own.

    ``follower`` follows it; the function's ``run_id`` is the run of the last call.
    """

    @contextmanager
    def opened(home: Home, *, run_id: str) -> Iterator[RunContext]:
        context = plain_context(home, run_id=run_id, orchestrated=False, listener=now[0])
        context.inspector = agency.inspector
        yield context

    now = [Follower()]
    patch.setenv("STATPRESS_HOME", str(agency.home.root))
    patch.setattr(statpress.flows.deployed, "open_context", opened)

    def run(follower: Follower | None = None, **parameters: str) -> Any:
        now[0] = follower or Follower()
        run_id = uuid4()
        patch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", str(run_id))
        run.run_id = run_id.hex  # type: ignore[attr-defined]
        return statpress.flows.deployed.release.fn(config=str(agency.config), **parameters)

    return run
