"""The final state of a flow run: what came of it, in the orchestrator's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.ledger_rules.accounts import Status
from tasks.release.outcome import Outcome

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

AWAITING = "AwaitingApproval"
"""Name of the state of a run that is done, and whose bundle waits for its approval."""


def final_state(outcome: Outcome) -> str | State[str]:
    """What a flow returns of its outcome: the bundle's path, or a state that says that it waits.

    Args:
        outcome: What the run leaves behind.
    """
    if outcome.status is not Status.PREPARED:
        return str(outcome.bundle)
    from prefect.states import Completed

    return Completed(
        name=AWAITING,
        message=f"Prepared and charged, not published: statpress approve {outcome.run_id}",
        data=str(outcome.bundle),
    )


def rejected() -> State[str]:
    """What a flow returns whose bundle was rejected."""
    from prefect.states import Completed

    message = "The bundle was rejected: nothing is published, and the budget stays spent."
    return Completed(name="Rejected", message=message, data="rejected")
