"""The budget of a dataset: an account opened for it, and what is left there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.domain.privacy_unit import Privacy
from mechanisms.errors import UnregisteredDatasetError
from tasks.execution.home import Home

if TYPE_CHECKING:
    from tasks.ledger.ledger import Ledger
    from tasks.ledger_rules.accounts import Account
    from tasks.ledger_rules.amounts import Loss


def register_dataset(
    home: Home, dataset: str, privacy: Privacy, *, policy: str = "basic", **terms: Any
) -> Account:
    """Open a dataset's account in the home's ledger, which is made if need be.

    Args:
        home: Where the ledger lies.
        dataset: Name of the account.
        privacy: What is protected.
        policy: ``basic``, or ``zcdp``.
        terms: The limits, and perhaps ``max_refusals``, as ``Ledger.register`` takes them.
    """
    from tasks.ledger.last_head import check_head, keep_head
    from tasks.ledger.ledger import Ledger

    home.folder("")
    with Ledger.open(home.ledger) as ledger:
        check_head(home, ledger)
        ledger.register(
            dataset=dataset,
            policy=policy,
            adjacency=str(privacy.adjacency),
            unit=str(privacy.unit),
            unit_records=privacy.unit_records,
            n_records=privacy.n_records,
            **terms,
        )
        keep_head(home, ledger)
        return ledger.account(dataset)


def remaining_budget(home: Home, dataset: str) -> Loss | None:
    """What the ledger still grants a dataset; None without a ledger or an account."""
    account = _found(home, lambda ledger: ledger.accounts().get(dataset))
    return account.remaining if account else None


def account_terms(home: Home, dataset: str) -> Account | None:
    """A dataset's account without its charges, so that the chain is not replayed.

    None without a ledger or an account.
    """
    try:
        return _found(home, lambda ledger: ledger.account_terms(dataset))
    except UnregisteredDatasetError:
        return None


def _found(home: Home, ask: Callable[[Ledger], Account | None]) -> Account | None:
    """What the home's ledger answers; None if there is none."""
    if isinstance(home.ledger, Path) and not home.ledger.exists():
        return None  # before the database's library is imported
    from tasks.ledger.ledger import Ledger

    if not Ledger.exists(home.ledger):
        return None
    with Ledger.open(home.ledger, create=False) as ledger:
        return ask(ledger)
