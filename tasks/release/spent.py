"""What an unforeseen error, or a worker that ended, says of the charge that came before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mechanisms.errors import InternalError, WorkerError
from tasks.ledger_rules.entries import Entry


@contextmanager
def saying_charged(charge: Entry) -> Iterator[None]:
    """Add to such an error what the run was charged; inside nothing is published yet.

    Args:
        charge: The ledger's entry, which is public.

    Raises:
        InternalError: The one that was raised inside.
        WorkerError: The same.
    """
    try:
        yield
    except (InternalError, WorkerError) as error:
        error.what += (
            f" The run was charged epsilon {charge.body['epsilon']}, delta {charge.body['delta']},"
            " which stays spent; nothing was published."
        )
        raise
