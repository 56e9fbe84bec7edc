"""The flow that verifies the ledger on a schedule: ``flows.ledger_verification.verify``."""

from __future__ import annotations

from uuid import UUID

from prefect.runtime import flow_run

from flows.runner import plain_context, run_inside
from flows.sealed_flow import sealed_flow
from tasks.execution.home import Home
from tasks.release.ledger_check import confirm_ledger


@sealed_flow("statpress-verify-ledger")
def verify(public_key: str | None = None) -> None:
    """Verify the ledger that the worker's environment names, as 'statpress ledger verify' does.

    The orchestrator learns whether it holds; what was found goes to the curator log.

    Args:
        public_key: Path on the worker of a trusted key in PEM form; with one, every
            checkpoint must be signed by it.
    """
    context = plain_context(Home.default(), run_id=UUID(flow_run.id).hex)
    run_inside(context, lambda: confirm_ledger(context.home, context.log, public_key))
