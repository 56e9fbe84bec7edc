"""The flows that Prefect deployments name: ``flows.deployed.release`` and ``rerelease``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from prefect import flow
from prefect.runtime import flow_run

from configs.order import Order, from_environment, from_scalars
from flows.conduct import session
from flows.release import press
from flows.rerelease import propose
from tasks.home import Home
from tasks.private_zone import guarded
from tasks.steps import Conduct, conducted

Scalars = dict[str, str | int | float | bool]


@flow(name="statpress-release", retries=0, persist_result=False, log_prints=False)
def release(config: str) -> str:
    """Press one release on a worker, with the home that its environment names.

    The orchestrator's id of the flow run is the run's id in the ledger. So a flow run
    that is started again is never charged twice: it goes on if it had not begun to
    draw, and is refused if it had.

    Args:
        config: Path of the release config on the worker.

    Returns:
        The path of the bundle.
    """
    return _pressed(lambda home: Order(Path(config), from_environment(os.environ)))


@flow(name="statpress-rerelease", retries=0, persist_result=False, log_prints=False)
def rerelease(
    bundle: str,
    config: str | None = None,
    folder: str = ".",
    overrides: Scalars | None = None,
) -> str:
    """Press the release that follows a bundle; whoever starts it confirms the charge.

    Args:
        bundle: Path of the bundle on the worker.
        config: Path of a changed config; by default the bundle's own is used, on new data.
        folder: Where the paths of the bundle's own config are taken from.
        overrides: Values of the config by key, such as ``source.path``; scalars alone.

    Returns:
        The path of the new bundle.
    """

    def order(home: Home) -> Order:
        changed = (*from_environment(os.environ), *from_scalars(overrides or {}))
        revised = None if config is None else Path(config)
        proposal = propose(Path(bundle), revised, changed, Path(folder), home)
        proposal.check(home)
        return proposal.order

    return _pressed(order)


def _pressed(order: Callable[[Home], Order]) -> str:
    """Press what is ordered, as the run that the orchestrator started."""
    place = Home.default()
    with (
        session(place, UUID(flow_run.id).hex) as opened,
        conducted(Conduct(opened.inspector.log, orchestrated=True)),
    ):

        def run() -> str:
            return str(press(order(place), home=place, inspector=opened.inspector).bundle)

        return guarded(run, opened.inspector.log)()
