"""Carrying out the flows: as Prefect flows, or as plain functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from configs.order import Order
from mechanisms.errors import ConfigError, InternalError, OrchestratorError, StatpressError
from tasks.execution.home import Home
from tasks.execution.private_zone import CuratorLog, guarded, new_run_id, silence_core_dumps
from tasks.execution.side_channels import AROUND_A_FLOW
from tasks.execution.steps import Conduct, conducted
from tasks.orchestration.server import QUIET_DEFAULTS
from tasks.quality.inspector import Inspector

if TYPE_CHECKING:
    from tasks.release.steps import Outcome

T = TypeVar("T")


@dataclass
class Session:
    """One run about to be carried out; its quality process is already starting.

    Attributes:
        home: Where the ledger lies.
        inspector: The quality process, with the run's curator log.
        announce: Called with the title of each step.
        advance: Called with the number of records done.
        tell: Called with what a person should know, such as what a killed run left.
        timings: Seconds per step, filled as the run goes.
    """

    home: Home
    inspector: Inspector
    announce: Callable[[str], None] = lambda title: None
    advance: Callable[[int], None] = lambda records: None
    tell: Callable[[str], None] = lambda text: None
    timings: dict[str, float] = field(default_factory=dict)

    def run(
        self,
        config: str | Path | Order,
        *,
        orchestrated: bool = True,
        insecure_seed: int | None = None,
    ) -> Outcome:
        """Run the release flow once.

        Args:
            config: The release config, or an order for it with what differs.
            orchestrated: Whether as a Prefect flow.
            insecure_seed: For tests alone.

        Raises:
            StatpressError: With a message fit for the public zone, whatever happened.
        """
        from flows.release import press

        if insecure_seed is not None and insecure_seed < 0:
            raise ConfigError("The seed must not be negative.", where="--insecure-seed")
        order = config if isinstance(config, Order) else Order(Path(config))
        way = Conduct(
            log=self.inspector.log,
            orchestrated=orchestrated,
            announce=self.announce,
            timings=self.timings,
            tell=self.tell,
        )

        def body() -> Outcome:
            return press(
                order,
                home=self.home,
                inspector=self.inspector,
                insecure_seed=insecure_seed,
                advance=self.advance,
            )

        return carry_out(body, way, "release")


def publish(
    home: Home,
    run_id: str,
    *,
    orchestrated: bool = True,
    announce: Callable[[str], None] = lambda title: None,
) -> Outcome:
    """Run the publishing flow once; it is a run of its own, with its own curator log.

    Args:
        home: Where ledger and prepared bundles lie.
        run_id: The run that prepared the bundle.
        orchestrated: Whether it is a Prefect flow.
        announce: Called with the title of each step.

    Raises:
        StatpressError: With a message fit for the public zone, whatever happened.
    """
    from flows import publication

    _prepare_process()
    log = CuratorLog(home.folder("curator"), new_run_id())
    way = Conduct(log=log, orchestrated=orchestrated, announce=announce)
    return carry_out(lambda: publication.publish(run_id, home=home), way, "publish")


def carry_out(body: Callable[[], T], way: Conduct, name: str) -> T:
    """Run the body of a flow in the way that is asked for.

    Args:
        body: The flow.
        way: Its curator log, and whether Prefect runs it.
        name: Of the flow, after ``statpress-``.
    """
    with conducted(way):
        safe = guarded(body, way.log)
        return _as_flow(safe, way, name) if way.orchestrated else safe()


@contextmanager
def session(home: Home, run_id: str | None = None) -> Iterator[Session]:
    """Open a session: quiet defaults, no core dumps, quality process started.

    Args:
        home: Where ledger and logs lie.
        run_id: The run's identifier, which the ledger charges once; by default a new one.
    """
    _prepare_process()
    log = CuratorLog(home.folder("curator"), run_id or new_run_id())
    with Inspector(log) as inspector:
        yield Session(home, inspector)


def _prepare_process() -> None:
    """Quiet defaults, and no core dumps."""
    for name, value in QUIET_DEFAULTS.items():
        os.environ.setdefault(name, value)
    silence_core_dumps()


def _as_flow(body: Callable[[], T], way: Conduct, name: str) -> T:
    """Run the body as a Prefect flow without parameters."""
    way.announce("start orchestrator")
    failure: StatpressError
    ended: list[T] = []

    def noted() -> T:
        ended.append(body())
        return ended[0]

    def start() -> T:
        from prefect import flow

        run_flow = flow(
            name=f"statpress-{name}",
            flow_run_name=f"{name}-{way.log.run_id[:8]}",
            retries=0,
            persist_result=False,
            log_prints=False,
        )(noted)
        result: T = run_flow()
        return result

    try:
        return guarded(start, way.log, AROUND_A_FLOW)()
    except InternalError as error:
        failure = error
        if ended:  # all was done, and noted in the ledger
            way.tell(
                "All is done; the orchestrator could not be told, and may show the run as "
                f"running or crashed. Incident {way.log.run_id}."
            )
            return ended[0]
        if not way.timings:  # no step began: the orchestrator is at fault
            failure = OrchestratorError(
                f"The orchestrator could not run the flow; incident {way.log.run_id}."
            )
    raise failure
