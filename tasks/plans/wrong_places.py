"""Places that a run would not find, which need not wait for its start."""

from __future__ import annotations

from configs.loading import Release
from tasks.counting.declared_source import source_of
from tasks.execution.home import Home
from tasks.ledger.ledger import Ledger
from tasks.plans.foreseen import taken_name
from tasks.source.files import files_of


def check_places(home: Home, release: Release, *, seeded: bool) -> None:
    """Raise if ledger or source are not there, or the bundle's name is taken; reads no data.

    Args:
        home: Where the ledger lies.
        release: The config.
        seeded: Whether the run draws from a known seed, which gives its bundle another name.

    Raises:
        LedgerError: The ledger cannot be opened.
        SourceError: No file matches the source's path, or it is not a file.
        BundleExistsError: The name is taken.
    """
    Ledger.open(home.ledger, create=False).close()
    files_of(source_of(release))
    for error in () if seeded else taken_name(release):
        raise error
