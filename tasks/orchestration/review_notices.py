"""What a Prefect server shows of a release under review: that it waits, and how that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.execution.home import Home
from tasks.orchestration.notices import notice, show
from tasks.orchestration.server import key_of
from tasks.products.markdown import escaped
from tasks.release.outcome import Outcome

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

WAITING = "statpress.release.waiting"
"""Event of a bundle that is prepared, and waits for its approval."""


@notice
def show_waiting(client: SyncPrefectClient, title: str, outcome: Outcome, home: Home) -> None:
    """Say that a bundle is prepared and waits: an artifact, and an event for a notice."""
    from prefect.events import emit_event

    emit_event(
        event=WAITING,
        resource={
            "prefect.resource.id": f"statpress.dataset.{key_of(outcome.dataset)}",
            "prefect.resource.name": outcome.dataset,
        },
        payload={
            "dataset": outcome.dataset,
            "title": title,
            "run_id": outcome.run_id,
            "seal": outcome.seal,
            "folder": str(outcome.bundle.absolute()),
            "home": str(home.root),
        },
    )
    text = f"""# Waiting for approval: {escaped(title)}

Run {outcome.run_id} is charged epsilon {outcome.epsilon} at delta {outcome.delta}, and published
nothing yet. Read the bundle in {escaped(str(outcome.bundle.absolute()))}, then decide, as the user
and with the home of this run (`STATPRESS_HOME={escaped(str(home.root))}`):

    statpress approve {outcome.run_id} --key FILE
    statpress reject {outcome.run_id} --key FILE --reason "…"

`statpress approve FOLDER --key FILE` decides about a copy of the bundle; `--by NAME` in place of
`--key FILE` where the ledger allows unsigned decisions. Once it is approved,
`statpress publish {outcome.run_id}` or the deployment *publish* publishes it.
`statpress review` lists all that waits."""
    show(client, outcome.dataset, "review", "markdown", text, f"Seal {outcome.seal}.")


@notice
def show_rejection(client: SyncPrefectClient, dataset: str, run_id: str) -> None:
    """Say that a bundle was rejected by the form on its run's page."""
    text = f"Run {run_id} was rejected. It publishes nothing, and its budget stays spent."
    show(client, dataset, "review", "markdown", text)


@notice
def show_approval(client: SyncPrefectClient, outcome: Outcome) -> None:
    """Say that a bundle was approved, and is published."""
    text = f"Run {outcome.run_id} is approved, and published as {escaped(outcome.bundle.name)}."
    show(client, outcome.dataset, "review", "markdown", text)
