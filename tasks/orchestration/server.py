"""The Prefect server that watches a run: client, exclusion, notices, final states.

A strict global concurrency limit of the server makes runs of one dataset wait for each
other, whichever deployment they belong to. It is a courtesy: slots can be lost with the
server's memory, so it is the ledger that sees to it that no budget is spent twice. Nothing
here can fail a run that was charged.

The checkup of what hangs on the Prefect server: late runs, and whether it sends notices.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.errors import CheckupError, OrchestratorError
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.release.runs import Outcome
from statpress.tasks.upkeep.checkup import Finding, Verdict, needing_attention

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
    from prefect.context import SettingsContext, get_settings_context

    context = get_settings_context()
    # Prefect's temporary_settings reads the environment and checks all settings anew, in 30 ms.
    once = context.settings.client.model_copy(update={"max_retries": 0})
    settings = context.settings.model_copy(update={"client": once})
    with (
        SettingsContext(profile=context.profile, settings=settings),
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
    slot = _taken(dataset, context.pace.turn)
    try:
        yield
    finally:
        try:
            slot.__exit__(None, None, None)
        except Exception as error:  # the lease ends by itself
            context.log.write(f"The slot was not given back: {type(error).__name__}: {error}")


def _taken(dataset: str, patience: float) -> contextlib.AbstractContextManager[None]:
    """Take the dataset's slot within so many seconds; leaving the context gives it back."""
    from prefect.concurrency.sync import concurrency

    name = limit_name(dataset)
    failure = "The server gave no slot"
    try:
        _make_limit(name)
        slot = concurrency(
            name,
            strict=True,
            timeout_seconds=patience,
            lease_duration=_LEASE_SECONDS,
            raise_on_lease_renewal_failure=False,  # a server gone for a minute costs no bundle
        )
        slot.__enter__()
        return slot
    except TimeoutError:
        failure = f"Another release of the dataset was at work for {patience:.0f} seconds"
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
    """What a flow returns of its outcome: the bundle's path, or a state that says that it waits."""
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


LATE = timedelta(hours=1)
"""How long after its time a run may begin."""

_SHOWN = 5


def examine_server() -> list[Finding]:
    """Check what the server knows that ``PREFECT_API_URL`` or Prefect's profile names."""
    for name, value in QUIET_DEFAULTS.items():
        os.environ.setdefault(name, value)
    from prefect.settings import get_current_settings

    if not get_current_settings().api.url:
        what = "No Prefect server is named, so that late runs and notices are not known."
        return [Finding(check="server", verdict=Verdict.NOTE, what=what)]
    failure = ""
    try:
        with notice_client() as client:
            return [*_late(client), *_notices(client)]
    except Exception as error:
        failure = type(error).__name__  # its text may hold the address with its password
    return [
        Finding(
            check="server",
            verdict=Verdict.WRONG,
            what=f"The Prefect server does not answer ({failure}).",
            next_step="Check the server, PREFECT_API_URL and PREFECT_API_AUTH_STRING.",
        )
    ]


def check_nothing_wrong(findings: Iterable[Finding]) -> None:
    """Raise if somebody has to do something.

    Raises:
        CheckupError: It names the checks; ``statpress doctor`` says the rest.
    """
    names = list(dict.fromkeys(each.check for each in needing_attention(findings)))
    if names:
        raise CheckupError(
            f"The ledger holds. The installation needs attention: {', '.join(names)}."
        )


def _late(client: SyncPrefectClient) -> Iterator[Finding]:
    """Scheduled runs of ours that should have begun an hour ago."""
    from prefect.client.schemas.filters import (
        FlowFilter,
        FlowFilterName,
        FlowRunFilter,
        FlowRunFilterExpectedStartTime,
        FlowRunFilterState,
        FlowRunFilterStateName,
    )

    due = datetime.now(UTC) - LATE
    runs = client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(like_="statpress-")),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(name=FlowRunFilterStateName(any_=["Late"])),
            expected_start_time=FlowRunFilterExpectedStartTime.model_validate({"before_": due}),
        ),
        limit=_SHOWN,
    )
    for run in runs:
        when = run.expected_start_time
        yield Finding(
            check="schedule",
            verdict=Verdict.WRONG,
            what=f"The flow run {run.name} was due {when:%Y-%m-%dT%H:%M:%SZ} and has not begun.",
            next_step="See that a worker runs and its pool is not paused: 'prefect work-pool ls'.",
        )
    if not runs:
        what = "No run of the calendar is late by an hour."
        yield Finding(check="schedule", verdict=Verdict.FINE, what=what)


def _notices(client: SyncPrefectClient) -> Iterator[Finding]:
    """Whether the server sends notices of what goes wrong."""
    found = [each for each in client.read_automations() if each.name.startswith("statpress ")]
    off = [each.name for each in found if not each.enabled]
    if found and not off:
        what = f"{len(found)} automations of statpress send notices."
        yield Finding(check="notices", verdict=Verdict.FINE, what=what)
        return
    what = "The server has no automations of statpress: nobody is told of a run that fails."
    if off:
        what = f"Switched off: {', '.join(off)}."
    step = (
        "See 'Notices' in the handbook: 'prefect automation create --from-file automations.yaml'."
    )
    verdict = Verdict.WRONG if off else Verdict.NOTE
    yield Finding(check="notices", verdict=verdict, what=what, next_step=step)
