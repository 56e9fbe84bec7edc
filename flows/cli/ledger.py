"""Commands on the accounts of a ledger: parse, call, return the result."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from flows.cli import ledger_maintenance as maintenance
from flows.cli.options import HomeFolder, Json, home_of, private_key
from flows.cli.result import Result
from flows.cli.review import approvers

Policy = Literal["basic", "zcdp"]


def register(
    dataset: str,
    *,
    n_records: int | None = None,
    policy: Policy = "basic",
    epsilon: str | None = None,
    delta: str | None = None,
    rho: str | None = None,
    adjacency: Literal["replace_one"] = "replace_one",
    unit: Literal["record"] = "record",
    unit_column: str | None = None,
    max_records: int | None = None,
    n_units: int | None = None,
    max_refusals: int | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Open a dataset's account with the budget of its whole life.

    Args:
        dataset: Name of the account, as configs give it.
        n_records: Public number of records, where the unit is the record.
        policy: 'basic' limits epsilon and delta; 'zcdp' rho, and the delta with which it may fail.
        epsilon: Limit of the sum of all charges, under 'basic'.
        delta: Limit of the sum of all charges.
        rho: Limit of the sum of all charges, under 'zcdp'.
        adjacency: Neighbouring relation.
        unit: Privacy unit, unless a column names it.
        unit_column: Column that names every record's unit; needs max_records and n_units.
        max_records: Records of a unit that are used, as in the configs.
        n_units: Public number of units.
        max_refusals: Runs that gates may stop before 'ledger amend --reopen'; by default 20.
    """
    from flows.report import outcomes as reports
    from mechanisms.domain.privacy_unit import Adjacency, Privacy, Unit
    from mechanisms.errors import ConfigError
    from tasks.ledger.budgets import register_dataset

    neighbours, by_column = Adjacency(adjacency), (unit_column, max_records, n_units)
    if n_records is not None and by_column == (None, None, None):
        frame = Privacy(adjacency=neighbours, unit=Unit(unit), n_records=n_records)
    elif n_records is None and unit_column and max_records is not None and n_units is not None:
        frame = Privacy.of_units(
            adjacency=neighbours, column=unit_column, max_records=max_records, n_units=n_units
        )
    else:
        raise ConfigError(
            "The privacy unit is not stated in full.",
            where="ledger register",
            next_step="Give either --n-records, or --unit-column, --max-records and --n-units.",
        )
    limits = _limits(policy, epsilon, delta, rho)
    account = register_dataset(
        home_of(home), dataset, frame, policy=policy, max_refusals=max_refusals, **limits
    )
    return Result(
        json=json,
        facts=lambda: {
            "entry": account.registration.hash,
            **reports.account_facts(account),
        },
        report=lambda: f"Registered {dataset} under {policy}: {account.limit}.",
    )


def amend(
    dataset: str,
    *,
    policy: Policy | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    rho: str | None = None,
    reopen: Annotated[bool, Parameter(negative="")] = False,
    key: Path | None = None,
    reason: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Put another limit or policy in force, or let runs look at the data again.

    Old and new limits stay in the chain, and so do the runs that gates stopped.

    Args:
        dataset: Name of the account.
        policy: The new policy; by default the one in force.
        epsilon: The new limit; what is not given stays as it is.
        delta: The new limit.
        rho: The new limit, under 'zcdp'.
        reopen: Count anew the runs that gates stopped; as many as the limit close the dataset.
        key: PEM file of an approver's private key, to reopen without a reason.
        reason: Needed to raise a limit or to change the policy; and to reopen without a key.
    """
    if reopen or key:
        limits = (policy, epsilon, delta, rho)
        return _reopen(dataset, reopen and not any(limits), key, reason, home, json)
    from flows.report import outcomes as reports
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        was = ledger.account(dataset)
        given = _limits(policy or was.policy, epsilon, delta, rho)
        entry = ledger.amend(dataset=dataset, policy=policy, reason=reason, **given)
        account = ledger.account(dataset)
    return Result(
        json=json,
        facts=lambda: {"entry": entry.hash, **reports.account_facts(account)},
        report=lambda: (
            f"{dataset}: {was.policy} with {was.limit}",
            f"  now {account.policy} with {account.limit}",
        ),
    )


def _reopen(
    dataset: str, alone: bool, key: Path | None, reason: str | None, home: Path | None, json: bool
) -> Result:
    """Count the refusals of a dataset anew."""
    from flows.report import outcomes as reports
    from mechanisms.errors import ConfigError
    from tasks.ledger.ledger import Ledger

    if not alone:
        raise ConfigError(
            "A dataset is reopened by itself, and only that is signed.",
            where="ledger amend",
            next_step="Give --reopen with --reason or --key; amend limits by another command.",
        )
    signer = private_key(key) if key else None
    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        number = ledger.account(dataset).open_refusals
        entry = ledger.reopen(dataset=dataset, reason=reason, key=signer)
        account = ledger.account(dataset)
    return Result(
        json=json,
        facts=lambda: {"entry": entry.hash, **reports.account_facts(account)},
        report=lambda: (
            f"{dataset} is reopened after {number} refusals; 0 of "
            f"{account.max_refusals} count from here."
        ),
    )


def show_ledger(
    dataset: str | None = None,
    *,
    delta: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Print what each dataset has spent, reserved and left, and what that amounts to.

    Args:
        dataset: One account; by default all.
        delta: Of the (epsilon, delta) reading; by default the registered one, or 1e-8.
    """
    from flows.report import outcomes as reports
    from tasks.audit.account_reading import read_account
    from tasks.ledger.ledger import Ledger

    at = _delta(delta)
    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        accounts = [ledger.account(dataset)] if dataset else list(ledger.accounts().values())
    readings = [read_account(account, at) for account in accounts]
    pairs = list(zip(accounts, readings, strict=True))

    def report() -> Iterator[Any]:
        if not pairs:
            yield "No accounts."
        for pair in pairs:
            yield from reports.account_report(*pair)

    return Result(
        json=json,
        facts=lambda: {"accounts": [reports.account_facts(*pair) for pair in pairs]},
        report=report,
    )


def charge_history(
    dataset: str | None = None, *, home: HomeFolder = None, json: Json = False
) -> Result:
    """Print every charge: when, for which run, how much, and what became of it.

    Args:
        dataset: One account; by default all.
    """
    from flows.report import outcomes as reports
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        accounts = [ledger.account(dataset)] if dataset else list(ledger.accounts().values())
    charges = [reports.charge_facts(c) for a in accounts for c in a.charges.values()]
    charges.sort(key=lambda charge: charge["sequence"])
    return Result(
        json=json,
        facts=lambda: {"charges": charges},
        report=lambda: reports.history_report(charges),
    )


def _limits(policy: str, epsilon: str | None, delta: str | None, rho: str | None) -> dict[str, Any]:
    """The limits that were given, by the names the ledger has for them."""
    named = {"epsilon": epsilon, "rho": rho, "delta" if policy == "basic" else "rho_delta": delta}
    return {name: value for name, value in named.items() if value is not None}


def _delta(text: str | None) -> Decimal | None:
    """A delta in (0, 1), if one was given."""
    from mechanisms.errors import AmountError
    from tasks.ledger_rules.amounts import exact

    if text is None:
        return None
    delta = exact(text, where="--delta")
    if not 0 < delta < 1:
        raise AmountError("A reading needs a delta between 0 and 1.", where="--delta")
    return delta


ledger_app = App(name="ledger")
for command in (
    *(register, amend, charge_history, approvers),
    *(maintenance.verify, maintenance.export, maintenance.checkpoint),
    *(maintenance.void, maintenance.note, maintenance.upgrade),
):
    ledger_app.command(command)
ledger_app.command(show_ledger, name="show")
ledger_app.command(maintenance.import_ledger, name="import")
