"""One release of a dataset at a time, on a Prefect server.

A strict global concurrency limit of the server makes runs of one dataset wait for each
other, whichever deployment they belong to. It is a courtesy: slots can be lost with the
server's memory, so it is the ledger that sees to it that no budget is spent twice. Nothing
here can fail a run that was charged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from mechanisms.errors import OrchestratorError
from tasks.execution.run_context import RunContext
from tasks.orchestration.server import key_of, watched_run

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
