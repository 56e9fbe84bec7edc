"""Metrics of a ledger in Prometheus' text format, for the textfile collector of node_exporter.

Only what the ledger and the home's upkeep say. Amounts are exact decimals in the ledger; a metric
is a float, at most as large as what is left.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from statpress.mechanisms.errors import OutputNotWritableError
from statpress.tasks.ledger.accounts import Account, State, Status
from statpress.tasks.ledger.home_ledger import Kept, open_ledger
from statpress.tasks.private_zone.folders import Home, replacing
from statpress.tasks.upkeep.checkup import read_books

_DATASET, _MEASURE = ("dataset",), ("dataset", "policy", "measure")
_READERS = 0o644
_WAITING = {Status.PREPARED: "decision", Status.APPROVED: "publication"}


def metrics(home: Home) -> str:
    """The metrics of a home's ledger.

    Raises:
        LedgerError: The ledger cannot be read, or is not the one that the home has seen.
    """
    with open_ledger(home) as ledger:
        books = read_books(ledger)
    registry = CollectorRegistry(auto_describe=False)
    _budgets(registry, books.state)
    _waiting(registry, books.state)
    _upkeep(registry, books.upkeep)
    _gauge(registry, "ledger_entries", "Entries of the ledger.").set(len(books.times))
    return generate_latest(registry).decode("utf-8")


def write_metrics(place: Path, text: str) -> None:
    """Put metrics where a collector reads them, which sees the old ones or the new ones.

    Raises:
        OutputNotWritableError: The file cannot be written; the old one stays.
    """
    failure = ""
    try:
        with replacing(place, mode=_READERS) as file:
            file.write(text)
    except OSError as error:
        failure = error.strerror or type(error).__name__
    if failure:
        raise OutputNotWritableError(
            f"The metrics cannot be written ({failure}).",
            where=str(place),
            next_step="Give a file in a folder that this user may write to.",
        )


def _gauge(
    registry: CollectorRegistry, name: str, words: str, labels: tuple[str, ...] = ()
) -> Gauge:
    return Gauge(f"statpress_{name}", words, labels, registry=registry)


def _budgets(registry: CollectorRegistry, state: State) -> None:
    """What each account has left."""
    limit = _gauge(registry, "budget_limit", "Limit in force of a dataset's budget.", _MEASURE)
    left = _gauge(registry, "budget_left", "What later charges may still spend.", _MEASURE)
    looks = _gauge(registry, "looks_left", "Looks at the data until it is closed.", _DATASET)
    refusals = _gauge(
        registry, "refusals_left", "Runs that gates may stop until it is closed.", _DATASET
    )
    for account in state.accounts.values():
        for measure, amount in account.limit.amounts.items():
            labels = (account.dataset, account.policy, measure)
            limit.labels(*labels).set(_at_most(amount))
            left.labels(*labels).set(_at_most(account.remaining[measure]))
        looks.labels(account.dataset).set(account.looks_left)
        refusals.labels(account.dataset).set(_refusals_left(account))


def _refusals_left(account: Account) -> int:
    return 0 if account.closed else account.max_refusals - account.open_refusals


def _waiting(registry: CollectorRegistry, state: State) -> None:
    """How many releases wait, and for what."""
    gauge = _gauge(
        registry,
        "releases_waiting",
        "Prepared releases that wait for this.",
        ("dataset", "waits_for"),
    )
    found = Counter(
        (charge.entry.body["dataset"], charge.status) for charge in state.charges.values()
    )
    for dataset in state.accounts:
        for status, what in _WAITING.items():
            gauge.labels(dataset, what).set(found[dataset, status])


def _upkeep(registry: CollectorRegistry, upkeep: dict[str, Kept]) -> None:
    """When this home last did what keeps a ledger safe; an act that was never done is left out."""
    gauge = _gauge(
        registry, "last_upkeep_timestamp_seconds", "When this home last did this.", ("act",)
    )
    for act, kept in upkeep.items():
        gauge.labels(act.replace(" ", "_")).set(kept.time.timestamp())


def _at_most(amount: Decimal) -> float:
    """The largest float that is not above an amount."""
    nearest = float(amount)
    return nearest if Decimal(nearest) <= amount else math.nextafter(nearest, -math.inf)
