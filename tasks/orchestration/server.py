"""The Prefect server that watches a run: client, exclusion, notices, final states.

A strict global concurrency limit of the server makes runs of one dataset wait for each
other, whichever deployment they belong to. It is a courtesy: slots can be lost with the
server's memory, so it is the ledger that sees to it that no budget is spent twice. Nothing
here can fail a run that was charged.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.errors import OrchestratorError
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.run_places import Outcome
from statpress.tasks.release.series_periods import Due

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State


QUIET_DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the server keeps the rest
}
"""Settings of Prefect and Great Expectations where the environment says nothing."""

_LONGEST_KEY = 60


def watched_run() -> FlowRun | None:
    """The flow run at work, if a server that ``PREFECT_API_URL`` names watches it.

    None for plain functions, and on a server that Prefect starts for one run alone:
    nobody looks at that one.
    """
    from prefect.context import FlowRunContext
    from prefect.settings import get_current_settings

    context = FlowRunContext.get()
    if context is None or context.flow_run is None or not get_current_settings().api.url:
        return None
    return context.flow_run


@contextmanager
def notice_client() -> Iterator[SyncPrefectClient]:
    """A client for what may as well stay unsaid: it asks once, as patiently as Prefect itself.

    The server is asked about the run's states too, so a busy one is waited for in any case.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(sync_client=True) as client,
    ):
        yield client


def key_of(dataset: str) -> str:
    """A dataset's name in the letters that Prefect allows in keys; no two have the same."""
    key = re.sub(r"[^a-z0-9]+", "-", dataset.lower())[:_LONGEST_KEY].strip("-")
    if key == dataset:
        return key
    mark = hashlib.sha256(dataset.encode()).hexdigest()[:12]
    return f"{key}-{mark}" if key else mark


PATIENCE_SECONDS = 3600.0
"""How long a run waits for another release of its dataset."""

_LEASE_SECONDS = 60.0
"""A run that was killed keeps its slot for at most this long."""


def limit_name(dataset: str) -> str:
    """The name of the dataset's limit on the server."""
    return f"statpress-{key_of(dataset)}"


@contextmanager
def one_at_a_time(context: RunContext, dataset: str) -> Iterator[None]:
    """Wait until no other run on this server releases the dataset, then keep others out.

    The limit is made where it is missing; one that is there stays as it is. Without a
    server nothing happens: the ledger's lock is enough.

    Raises:
        OrchestratorError: The wait timed out, or the server does not answer. Nothing
            was charged.
    """
    if not context.orchestrated or watched_run() is None:
        yield
        return
    context.listener.announce("wait for the dataset")
    slot = _taken(dataset)
    try:
        yield
    finally:
        try:
            slot.__exit__(None, None, None)
        except Exception as error:  # the lease ends by itself
            context.log.write(f"The slot was not given back: {type(error).__name__}: {error}")


def _taken(dataset: str) -> contextlib.AbstractContextManager[None]:
    """Take the dataset's slot; leaving the context manager gives it back."""
    from prefect.concurrency.sync import concurrency

    name = limit_name(dataset)
    failure = "The server gave no slot"
    try:
        _make_limit(name)
        slot = concurrency(
            name,
            strict=True,
            timeout_seconds=PATIENCE_SECONDS,
            lease_duration=_LEASE_SECONDS,
            raise_on_lease_renewal_failure=False,  # a server gone for a minute costs no bundle
        )
        slot.__enter__()
        return slot
    except TimeoutError:
        failure = f"Another release of the dataset was at work for {PATIENCE_SECONDS:.0f} seconds"
    except Exception as error:
        failure = f"{failure} ({type(error).__name__})"
    raise OrchestratorError(
        f"{failure}; nothing was charged.",
        where=f"concurrency limit {name!r}",
        next_step="See the server's page of concurrency limits. If no release is at work, "
        f"'prefect gcl update {name} --active-slots 0' frees the slot.",
    )


def _make_limit(name: str) -> None:
    """Make the limit unless the server has it."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_global_concurrency_limit(
                    GlobalConcurrencyLimitCreate(name=name, limit=1)
                )


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


def schedule_state(released: Sequence[str], due: Due) -> State[str]:
    """What a flow returns that released the periods of a series that are due.

    Args:
        released: The periods.
        due: Why there is no further one.
    """
    from prefect.states import Completed

    done = f"Released {', '.join(released)}" if released else "Released nothing"
    name = "WaitingForSource" if due.waits else "UpToDate"
    return Completed(name=name, message=f"{done}; {due.words}.", data=", ".join(released))


def rejected() -> State[str]:
    """What a flow returns whose bundle was rejected."""
    from prefect.states import Completed

    message = "The bundle was rejected: nothing is published, and the budget stays spent."
    return Completed(name="Rejected", message=message, data="rejected")


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
