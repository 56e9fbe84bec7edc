"""The flow that a Prefect deployment names: ``flows.deployed.release``."""

from __future__ import annotations

from uuid import UUID

from prefect.runtime import flow_run

from flows.conduct import session
from flows.release import press
from flows.sealed_flow import sealed_flow
from tasks.home import Home
from tasks.private_zone import guarded
from tasks.steps import Conduct, conducted


@sealed_flow("statpress-release")
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
    place = Home.default()
    with (
        session(place, UUID(flow_run.id).hex) as opened,
        conducted(Conduct(opened.inspector.log, orchestrated=True)),
    ):
        run = guarded(press, opened.inspector.log)
        return str(run(config, home=place, inspector=opened.inspector).bundle)
