"""What earlier runs left behind, in words. Public facts alone: the ledger's and run ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tasks.ledger_rules.accounts import Account, Charge, Status

_TOLD = 3


def unpublished(account: Account) -> list[Charge]:
    """Charges after the account's last publication that published nothing, in order.

    The chain's order decides, not the clock: a run that is killed is told of until a
    later one publishes, and then stands in the history alone.
    """
    charges = account.charges.values()
    last = max((c.publication.sequence for c in charges if c.publication), default=0)
    open_ones = (Status.RESERVED, Status.DRAWN)
    return [c for c in charges if c.status in open_ones and c.entry.sequence > last]


def undecided(account: Account) -> list[str]:
    """The runs whose prepared bundles wait for a decision, in order."""
    return [run for run, c in account.charges.items() if c.status is Status.PREPARED]


def in_words(
    account: Account, at_work: Callable[[str], bool] = lambda run_id: False
) -> Iterator[str]:
    """A sentence or two on each run that was charged and has published nothing.

    Args:
        account: As the ledger replays it.
        at_work: Whether a run is known to be at work just now.
    """
    left = [c for c in unpublished(account) if not at_work(c.entry.body["run_id"])]
    if len(left) > _TOLD:
        yield (
            f"{len(left) - _TOLD} more runs of {account.dataset} were charged and published "
            "nothing: see 'statpress ledger charge-history'."
        )
    for charge in left[-_TOLD:]:
        run_id, created = charge.entry.body["run_id"], charge.entry.body["created"]
        loss = charge.loss.within(account.limit.amounts)
        if charge.status is Status.RESERVED:
            then = (
                "never began to draw. If it is not at work, its budget can be given back: "
                f"statpress ledger void {run_id} --reason …"
            )
        else:
            then = (
                "published nothing. Its budget stays spent. Only a run that was stopped while it "
                "published can have left its bundle: then note it with statpress ledger note BUNDLE"
            )
        yield f"Run {run_id} was charged {loss} at {created} and {then}"


def refusals_in_words(account: Account) -> str:
    """How many runs of a dataset were stopped, and what follows from that."""
    number = account.open_refusals
    runs = f"{number} run{'s' * (number != 1)}"
    said = (
        f"Gates stopped {runs} of {account.dataset} since it was"
        f" {'reopened' if account.reopenings else 'registered'}; the limit is"
        f" {account.max_refusals}."
    )
    if account.closed:
        said += (
            " No further run looks at the data. Look into them, then: statpress ledger amend"
            f" {account.dataset} --reopen --reason …"
        )
    return said


def beginning(
    account: Account | None, charge: Charge | None, at_work: Callable[[str], bool]
) -> Iterator[str]:
    """What a run says of itself and of those before it when it begins.

    Args:
        account: The dataset's, if it has one.
        charge: Of this very run, if it was charged before.
        at_work: As above.
    """
    if charge is not None and charge.status is Status.RESERVED:
        yield (
            f"This run was charged before, as entry {charge.entry.sequence} of the ledger, and "
            "never began to draw: it goes on with that charge."
        )
    many = account is not None and 2 * account.open_refusals >= account.max_refusals
    if account is not None and many and not account.closed:  # of a closed one the error tells
        yield refusals_in_words(account)
    waiting = [] if account is None else undecided(account)
    if waiting:
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        yield (f"Run {waiting[0]}{more} of this dataset waits for a decision: 'statpress review'.")
    own = None if charge is None else charge.entry.body["run_id"]
    if account is not None:
        yield from in_words(account, lambda run_id: run_id == own or at_work(run_id))
