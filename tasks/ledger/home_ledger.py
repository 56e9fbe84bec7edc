"""The ledger of a home: opening it with what the home remembers of it, and asking it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.mechanisms.domain.domain import Privacy
from statpress.mechanisms.errors import UnregisteredDatasetError
from statpress.tasks.ledger.memory import Memory
from statpress.tasks.private_zone.folders import Home

if TYPE_CHECKING:
    from statpress.tasks.ledger.accounts import Account, State
    from statpress.tasks.ledger.chain import Positions
    from statpress.tasks.ledger.entries import Loss
    from statpress.tasks.ledger.ledger import Ledger


def open_ledger(home: Home, *, create: bool = False, known: Positions | None = None) -> Ledger:
    """Open the ledger of a home, whose memory its acts respect and extend; see ``Ledger.open``.

    The home remembers the address of a ledger outside it that was opened once.
    """
    from statpress.tasks.ledger.ledger import Ledger

    ledger = Ledger.open(home.ledger, create=create, known=known)
    home.remember_address()
    ledger.memory = Memory(home, ledger.where)
    return ledger


def register_dataset(
    home: Home,
    dataset: str,
    privacy: Privacy,
    *,
    policy: str = "basic",
    sources: Collection[str] = (),
    also_in: Collection[str] = (),
    reason: str | None = None,
    **terms: Any,
) -> Account:
    """Open an account on the terms of ``Ledger.register``, in a ledger made if need be.

    If sources are given, it is bound to them as by ``Ledger.bind``.
    """
    home.folder("")
    with open_ledger(home, create=True) as ledger:
        ledger.check_apart(dataset, sources, also_in, reason)
        ledger.register(
            dataset=dataset,
            policy=policy,
            adjacency=str(privacy.adjacency),
            unit=str(privacy.unit),
            unit_records=privacy.unit_records,
            n_records=privacy.n_records,
            **terms,
        )
        if sources:
            ledger.bind(dataset=dataset, sources=sources, also_in=also_in, reason=reason)
        return ledger.account(dataset)


def remaining_budget(home: Home, dataset: str) -> Loss | None:
    """What the ledger still grants a dataset; None without a ledger or an account."""
    account = _asked(home, lambda ledger: ledger.state().accounts.get(dataset))
    return account.remaining if account else None


def standing_charges(account: Account | None) -> list[Mapping[str, Any]]:
    """The charges of an account's releases, without those that were voided or rejected."""
    charges = account.charges.values() if account else ()
    return [charge.entry.body for charge in charges if charge.stands]


def charges_so_far(home: Home, dataset: str) -> list[Mapping[str, Any]]:
    """The standing charges of a dataset; none without a ledger or an account."""
    return standing_charges(_asked(home, lambda ledger: ledger.state().accounts.get(dataset)))


def account_terms(home: Home, dataset: str) -> Account | None:
    """A dataset's account without its charges, so that the chain is not replayed.

    None without a ledger or an account.
    """
    try:
        return _asked(home, lambda ledger: ledger.account_terms(dataset))
    except UnregisteredDatasetError:
        return None


def _asked(home: Home, ask: Callable[[Ledger], Account | None]) -> Account | None:
    """What the home's ledger answers; None if there is none."""
    if isinstance(home.ledger, Path) and not home.ledger.exists():
        return None  # before the database's library is imported
    from statpress.tasks.ledger.ledger import Ledger

    if not Ledger.exists(home.ledger):
        return None
    with open_ledger(home) as ledger:
        return ask(ledger)


def remember(ledger: Ledger, state: State) -> None:
    """Check a ledger that was read against its home's memory, and remember how far it was read."""
    if ledger.memory:
        ledger.memory.check(ledger.hash_at)
        ledger.memory.check_draws(state.charges)
        ledger.memory.keep(ledger.positions)
