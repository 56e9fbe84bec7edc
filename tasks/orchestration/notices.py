"""How a run tells a Prefect server something: artifacts, and clients that never fail a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from tasks.execution.run_context import RunContext
from tasks.orchestration.server import key_of, notice_client, watched_run

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

P = ParamSpec("P")


def notice(
    send: Callable[Concatenate[SyncPrefectClient, P], None],
) -> Callable[Concatenate[RunContext, P], None]:
    """Send something to the server, if one watches the run; that never fails."""

    @functools.wraps(send)
    def sent(context: RunContext, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not context.orchestrated:
            return
        try:
            if watched_run() is not None:
                with notice_client() as client:
                    send(client, *args, **kwargs)
        except Exception as error:
            context.log.write(f"The server was not told: {type(error).__name__}: {error}")

    return sent


def show(
    client: SyncPrefectClient, dataset: str, name: str, kind: str, data: Any, text: str = ""
) -> Any:
    """Put an artifact of the run at work on the server; returns its id."""
    from prefect.client.schemas.actions import ArtifactCreate

    run = watched_run()
    made = client.create_artifact(
        ArtifactCreate(
            key=f"{key_of(dataset)}-{name}",
            type=kind,
            data=data,
            description=text,
            flow_run_id=run.id if run is not None else None,
        )
    )
    return made.id
