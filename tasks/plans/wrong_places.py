"""Places that a run would not find, which need not wait for its start."""

from __future__ import annotations

from configs.loading import Release
from tasks.counting.declared_source import source_of
from tasks.engines.registry import reader_named
from tasks.execution.home import Home
from tasks.ledger.ledger import Ledger
from tasks.plans.foreseen import taken_name
from tasks.plans.publishing_key import key_faults


def check_places(home: Home, release: Release, *, seeded: bool, signed: bool = False) -> None:
    """Raise if ledger or source are not there, or the bundle's name is taken; reads no data.

    Args:
        home: Where the ledger lies.
        release: The config.
        seeded: Whether the run draws from a known seed, which gives its bundle another name.
        signed: Whether the key that signs the bundle is at hand, whatever the config names.

    Raises:
        LedgerError: The ledger cannot be opened.
        SourceError: No file matches the source's path, or there are no credentials for it.
        SigningKeyError: The config's key is not there, or others can use it.
        BundleExistsError: The name is taken.
    """
    Ledger.open(home.ledger, create=False).close()
    source = source_of(release)
    reader_named(source.engine).check_place(source)
    for fault in () if signed else key_faults(release):
        raise fault
    for error in () if seeded else taken_name(release):
        raise error
