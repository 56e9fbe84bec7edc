"""Runs flows, as Prefect flows or as plain functions, each in a context of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from statpress.configs.order import Order
from statpress.mechanisms.errors import (
    ConfigError,
    InternalError,
    OrchestratorError,
    StatpressError,
)
from statpress.tasks.orchestration.server import QUIET_DEFAULTS
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import (
    AROUND_A_FLOW,
    CuratorLog,
    guarded,
    new_run_id,
    silence_core_dumps,
)
from statpress.tasks.private_zone.run_context import Listener, RunContext, Silent
from statpress.tasks.private_zone.workers import Parallel
from statpress.tasks.release.quality_gates import Inspector
from statpress.tasks.release.series_periods import Due, find_due

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from statpress.configs.loading import PlannedOrder
    from statpress.tasks.release.runs import Outcome


T = TypeVar("T")


@contextmanager
def open_context(
    home: Home,
    *,
    run_id: str | None = None,
    orchestrated: bool = True,
    listener: Listener | None = None,
    parallel: Parallel | None = None,
) -> Iterator[RunContext]:
    """Make the context of a run that reads a source; its quality process starts at once.

    Args:
        home: Where ledger and logs lie.
        run_id: The run's identifier, which the ledger charges once; by default a new one.
        orchestrated: Whether Prefect executes the steps.
        listener: Who is told of the progress.
        parallel: In which processes products are drawn; by default as the environment says.
    """
    context = plain_context(home, run_id=run_id, orchestrated=orchestrated, listener=listener)
    context.parallel = Parallel.of(os.environ) if parallel is None else parallel
    with Inspector(context.log) as inspector:
        context.inspector = inspector
        yield context


def plain_context(
    home: Home,
    *,
    run_id: str | None = None,
    orchestrated: bool = True,
    listener: Listener | None = None,
) -> RunContext:
    """Make the context of a run that reads no source; for the arguments see ``open_context``.

    The process gets its quiet defaults, and dumps no core.
    """
    for name, value in QUIET_DEFAULTS.items():
        os.environ.setdefault(name, value)
    silence_core_dumps()
    return RunContext(
        home=home,
        log=CuratorLog(home.folder("curator"), run_id or new_run_id()),
        orchestrated=orchestrated,
        listener=listener or Silent(),
    )


def run_release(
    context: RunContext,
    order: Order | PlannedOrder,
    *,
    again: bool = False,
    insecure_seed: int | None = None,
    signer: Ed25519PrivateKey | None = None,
) -> Outcome:
    """Run the release flow once.

    Args:
        context: The run, with its quality process.
        order: The release config with what differs from it; planned, if that is done.
        again: Whether a period of a series is charged once more; see ``press``.
        insecure_seed: For tests only.
        signer: Signs the bundle, in place of the key that the config names.

    Raises:
        StatpressError: With a message fit for the public zone, whatever happened.
    """
    from statpress.flows.release import press

    if insecure_seed is not None and insecure_seed < 0:
        raise ConfigError("The seed must not be negative.", where="--insecure-seed")
    return _run(
        context,
        "release",
        lambda: press(context, order, again=again, insecure_seed=insecure_seed, signer=signer),
    )


def run_due(
    context: RunContext, order: Order, press_one: Callable[[Order, str], T]
) -> tuple[list[T], Due]:
    """Release the periods of a series that are due and not released, one after the other.

    Args:
        context: The run that looks for them; every release is a run of its own.
        order: The config of the series.
        press_one: Releases one period, which it is given with its order.

    Returns:
        What came of each release, and why there is no further one.

    Raises:
        StatpressError: Of the first release that fails; those before it stand.
    """
    outcomes: list[T] = []
    released: list[str] = []
    while True:
        due = run_inside(context, lambda: find_due(context, order, quietly=bool(outcomes)))
        if due.period is None:
            return outcomes, due
        try:
            outcomes.append(press_one(order.at_period(due.period), due.period))
        except StatpressError:
            if released:
                context.notify(
                    f"Before {due.period} stopped, {' and '.join(released)} "
                    f"{'was' if len(released) == 1 else 'were'} released, which stands."
                )
                context.deliver_notices()
            raise
        released.append(due.period)


def run_publication(context: RunContext, run_id: str) -> Outcome:
    """Run the publishing flow once; it is a run of its own, with its own curator log.

    Args:
        context: The run that publishes.
        run_id: The run that prepared the bundle.

    Raises:
        StatpressError: With a message fit for the public zone, whatever happened.
    """
    from statpress.flows.release import publish

    return _run(context, "publish", lambda: publish(context, run_id))


def run_inside(context: RunContext, body: Callable[[], T]) -> T:
    """Run the body of a flow in this process; a Prefect flow, if any, is under way."""
    with context.steps():
        return guarded(body, context.log)()


def _run(context: RunContext, name: str, body: Callable[[], Outcome]) -> Outcome:
    """Run the body of a flow as the context says; ``name`` follows ``statpress-``."""
    if context.orchestrated:
        return _as_flow(context, name, lambda: run_inside(context, body))
    return run_inside(context, body)


def _as_flow(context: RunContext, name: str, body: Callable[[], Outcome]) -> Outcome:
    """Run the body as a Prefect flow without parameters."""
    context.listener.announce("start orchestrator")
    failure: StatpressError
    results: list[Outcome] = []

    def noted() -> Any:
        from statpress.tasks.orchestration.server import final_state

        results.append(body())
        return final_state(results[0])

    def start() -> Outcome:
        from prefect import flow

        run_flow = flow(
            name=f"statpress-{name}",
            flow_run_name=f"{name}-{context.run_id[:8]}",
            retries=0,
            persist_result=False,
            log_prints=False,
        )(noted)
        run_flow()
        return results[0]

    try:
        return guarded(start, context.log, AROUND_A_FLOW)()
    except InternalError as error:
        failure = error
        if results:  # all was done, and noted in the ledger
            context.listener.notify(
                "All is done; the orchestrator could not be told, and may show the run as "
                f"running or crashed. Incident {context.run_id}."
            )
            return results[0]
        if not context.timings:  # no step began: the orchestrator is at fault
            failure = OrchestratorError(
                f"The orchestrator could not run the flow; incident {context.run_id}."
            )
    raise failure
