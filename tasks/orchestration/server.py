"""The Prefect server that watches a run: whether there is one, and a client for notices."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

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
