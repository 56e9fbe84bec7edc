"""The flow that verifies the ledger on a schedule: ``flows.ledger_verification.verify``."""

from __future__ import annotations

from uuid import UUID

from prefect.runtime import flow_run

from flows.runner import plain_context, run_inside
from flows.sealed_flow import sealed_flow
from tasks.audit.ledger_check import confirm_ledger
from tasks.execution.home import Home


@sealed_flow("statpress-verify-ledger")
def verify(public_key: str | None = None, head: str | None = None) -> None:
    """Verify the ledger that the worker's environment names, as 'statpress ledger verify' does.

    The orchestrator learns whether it holds; what was found goes to the curator log. The worker's
    home keeps the head that was found, and the next verification wants it in the chain.

    Args:
        public_key: Path on the worker of a trusted key in PEM form; with one, every
            checkpoint must be signed by it.
        head: A hash kept elsewhere, as 'statpress ledger verify' prints it, that the chain
            must hold.
    """
    context = plain_context(Home.default(), run_id=UUID(flow_run.id).hex)
    run_inside(context, lambda: confirm_ledger(context.home, context.log, public_key, head))
