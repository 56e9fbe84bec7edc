"""What all releases of a dataset have spent, as it stands in the ledger at a release's charge."""

from __future__ import annotations

from typing import Any

from tasks.ledger_rules.accounts import Account
from tasks.ledger_rules.amounts import Loss
from tasks.ledger_rules.entries import Entry
from tasks.ledger_rules.policies import limit_of


def lifetime(account: Account, charge: Entry) -> dict[str, Any]:
    """Policy, limit and sums right after a charge, whatever followed it; public.

    Args:
        account: Of the dataset, with its registration and amendments.
        charge: The ledger's entry, which states the sum of all charges up to it that were not
            given back.

    Returns:
        Amounts as decimal texts by measure: ``limit`` and ``remaining`` in the measures of the
        policy that was in force, ``spent_before`` and ``spent`` in all.
    """
    entries = (account.registration, *account.amendments)
    terms = max(
        (entry for entry in entries if entry.sequence < charge.sequence),
        key=lambda entry: entry.sequence,
    )
    limit, spent = limit_of(terms.body), Loss.sums(charge.body["spent"])
    return {
        "dataset": account.dataset,
        "policy": terms.body["policy"],
        "limit": limit.texts(),
        "spent_before": (spent - Loss.of(charge.body)).texts(),
        "spent": spent.texts(),
        "remaining": (limit - spent).texts(),
    }
