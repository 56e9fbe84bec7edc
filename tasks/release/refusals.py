"""What the ledger says of runs that a gate stopped because of what the data hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from configs.loading import Release
from mechanisms.errors import (
    ColumnNotFoundError,
    SourceAccessError,
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from tasks.ledger.last_head import keep_head
from tasks.ledger.ledger import Ledger
from tasks.ledger_rules.refusal_rules import check_open
from tasks.release.places import Run
from tasks.release.unfinished_runs import refusals_in_words

_OF_NO_RECORD = (
    SourceNotFoundError,
    ColumnNotFoundError,
    SourceUnavailableError,
    SourceAccessError,
    SourceChangedError,
)
"""Faults of a path, a column's name, a server, a right, or of who writes meanwhile: they say
nothing of records."""


@contextmanager
def noting_refusals(run: Run, release: Release) -> Iterator[None]:
    """Write an entry if what the source holds stops the run inside.

    Every fault of a source counts but those of names, servers and too little memory: also that
    it is empty, that a column is of another type or that something in it cannot be read depends on
    the records.

    Raises:
        RefusalLimitError: Other runs reached the limit since this one began; nothing was looked at.
        LedgerError: The entry cannot be written.
    """
    dataset, stop = release.config.dataset, None
    with _ledger(run) as ledger:
        check_open(ledger.account_terms(dataset))
    try:
        yield
    except SourceError as error:
        if isinstance(error, _OF_NO_RECORD) or type(error) is SourceError:  # the last: no memory
            raise
        stop = error
    if stop is None:
        return
    with _ledger(run) as ledger:
        entry = ledger.refuse(run_id=run.run_id, dataset=dataset, config_sha256=release.sha256)
        keep_head(run.home, ledger)
        account = ledger.account_terms(dataset)
    run.context.notify(
        f"That the run was stopped is entry {entry.sequence} of the ledger."
        f" {refusals_in_words(account)}"
    )
    run.context.deliver_notices()
    raise stop


def _ledger(run: Run) -> Ledger:
    return Ledger.open(run.home.ledger, create=False, known=run.context.ledger_positions)
