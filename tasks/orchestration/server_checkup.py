"""The checkup of what hangs on the Prefect server: late runs, and whether it sends notices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from statpress.mechanisms.errors import CheckupError
from statpress.tasks.orchestration.server import QUIET_DEFAULTS, notice_client
from statpress.tasks.private_zone.run_context import RunContext, step
from statpress.tasks.upkeep.checkup import Finding, Verdict, examine, needing_attention

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient


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


@step("check installation")
def confirm_installation(context: RunContext) -> None:
    """Check home, ledger and server; what is wrong goes to the curator log, its checks further.

    Raises:
        CheckupError: Something is wrong.
    """
    findings = [*examine(context.home), *examine_server()]
    for each in needing_attention(findings):
        context.log.write(f"{each.check}: {each.what} {each.next_step}")
    check_nothing_wrong(findings)


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
