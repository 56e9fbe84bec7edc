"""Command line of the ledger: parses, calls, prints."""

from __future__ import annotations

import sys
from decimal import Decimal
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tasks.execution.home import Home

ledger_app = App(name="ledger", help="The account of every unit of privacy loss.")

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object.")]
HomeFolder = Annotated[
    Path | None,
    Parameter(
        name="--home",
        help="Folder of ledger and logs; by default STATPRESS_HOME or per user.",
    ),
]
Policy = Literal["basic", "zcdp"]


def home_of(folder: Path | None) -> Home:
    """The home that an option or the environment names."""
    from tasks.execution.home import Home

    return Home.of(folder) if folder else Home.default()


def private_key(path: Path) -> Ed25519PrivateKey:
    """The private key of a file; on a terminal its passphrase is asked for."""
    from tasks.ledger_rules.signing import read_private_key

    ask = (lambda: getpass(f"Passphrase of {path}: ")) if sys.stdin.isatty() else None
    return read_private_key(path, ask)


@ledger_app.command
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
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Open a dataset's account with the budget of its whole life.

    Args:
        dataset: Name of the account, as configs give it.
        n_records: Public number of records, where the unit is the record.
        policy: 'basic' limits the sums of epsilon and delta; 'zcdp' those of rho, and of
            the delta of mechanisms that have no rho.
        epsilon: Limit of the sum of all charges, under 'basic'.
        delta: Limit of the sum of all charges.
        rho: Limit of the sum of all charges, under 'zcdp'.
        adjacency: Neighbouring relation.
        unit: Privacy unit, unless a column names it.
        unit_column: Column that names the unit of every record; instead of n_records give
            max_records and n_units.
        max_records: Records of a unit that are used, as in the configs.
        n_units: Public number of units.
    """
    from flows.report import outcomes as reports
    from flows.report.terminal import show, show_json
    from mechanisms.domain.privacy_unit import Adjacency, Privacy, Unit
    from mechanisms.errors import ConfigError
    from tasks.release.steps import register_dataset

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
    account = register_dataset(home_of(home), dataset, frame, policy=policy, **limits)
    if json:
        show_json({"entry": account.registration.hash, **reports.account_facts(account)})
    else:
        show(f"Registered {dataset} under {policy}: {account.limit}.")


@ledger_app.command
def amend(
    dataset: str,
    *,
    policy: Policy | None = None,
    epsilon: str | None = None,
    delta: str | None = None,
    rho: str | None = None,
    reason: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Put another limit or policy in force; both old and new stay in the chain.

    Args:
        dataset: Name of the account.
        policy: The new policy; by default the one in force.
        epsilon: The new limit; what is not given stays as it is.
        delta: The new limit.
        rho: The new limit, under 'zcdp'.
        reason: Needed to raise a limit or to change the policy.
    """
    from flows.report import outcomes as reports
    from flows.report.terminal import show, show_json
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        was = ledger.account(dataset)
        given = _limits(policy or was.policy, epsilon, delta, rho)
        entry = ledger.amend(dataset=dataset, policy=policy, reason=reason, **given)
        account = ledger.account(dataset)
    if json:
        show_json({"entry": entry.hash, **reports.account_facts(account)})
    else:
        show(f"{dataset}: {was.policy} with {was.limit}")
        show(f"  now {account.policy} with {account.limit}")


@ledger_app.command(name="show")
def show_ledger(
    dataset: str | None = None,
    *,
    delta: str | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Print what each dataset has spent, reserved and left, and what that amounts to.

    Args:
        dataset: One account; by default all.
        delta: Of the (epsilon, delta) reading; by default the registered one, or 1e-8.
    """
    from flows.report import outcomes as reports
    from flows.report.terminal import show, show_json
    from tasks.ledger.ledger import Ledger
    from tasks.release.account_reading import read_account

    at = _delta(delta)
    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        accounts = [ledger.account(dataset)] if dataset else list(ledger.accounts().values())
    readings = [read_account(account, at) for account in accounts]
    if json:
        pairs = zip(accounts, readings, strict=True)
        show_json({"accounts": [reports.account_facts(*pair) for pair in pairs]})
        return
    if not accounts:
        show("No accounts.")
    for account, reading in zip(accounts, readings, strict=True):
        for part in reports.account_report(account, reading):
            show(part)


@ledger_app.command
def charge_history(
    dataset: str | None = None, *, home: HomeFolder = None, json: Json = False
) -> None:
    """Print every charge: when, for which run, how much, and what became of it.

    Args:
        dataset: One account; by default all.
    """
    from flows.report import outcomes as reports
    from flows.report.terminal import show, show_json
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        accounts = [ledger.account(dataset)] if dataset else list(ledger.accounts().values())
    charges = [reports.charge_facts(c) for a in accounts for c in a.charges.values()]
    charges.sort(key=lambda charge: charge["sequence"])
    show_json({"charges": charges}) if json else show(reports.history_report(charges))


@ledger_app.command
def verify(
    *,
    head: str | None = None,
    public_key: list[Path] | None = None,
    home: HomeFolder = None,
    json: Json = False,
) -> None:
    """Recompute the chain, every sum and every charge from its mechanisms' descriptions.

    Args:
        head: A hash kept elsewhere; that the chain still holds it shows that nothing
            was cut off, rolled back or rewritten up to there.
        public_key: PEM file of a trusted key; every checkpoint must be signed by one.
    """
    from flows.report.terminal import show, show_json
    from tasks.ledger_rules.signing import read_public_key
    from tasks.release.ledger_check import verify_ledger

    trusted = [read_public_key(path) for path in public_key or []]
    found = verify_ledger(home_of(home), head=head, trusted=trusted)
    if json:
        facts = {"entries": found.entries, "head": found.head, "held_head": head}
        signed = {"checkpoints": list(found.checkpoints), "signers": sorted(found.signers)}
        show_json({"verified": True, **facts, **signed})
        return
    show(f"{found.entries} entries, chain and sums hold. Head {found.head}")
    if found.checkpoints:
        by = "trusted keys" if trusted else "keys not compared: give --public-key"
        show(f"{len(found.checkpoints)} checkpoints, last entry {found.checkpoints[-1]} ({by}).")


@ledger_app.command
def export(file: Path, *, home: HomeFolder = None, json: Json = False) -> None:
    """Write all entries as JSON Lines, ending with the head to keep elsewhere.

    Args:
        file: The file; an export that this ledger continues is replaced, no other.
    """
    from flows.report.terminal import show, show_json
    from tasks.ledger.export import write_export
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        found = write_export(ledger, file)
    if json:
        show_json({"file": str(file), "entries": found.entries, "head": found.head})
    else:
        show(f"{file}: {found.entries} entries. Head {found.head}")


@ledger_app.command(name="import")
def import_ledger(file: Path, *, home: HomeFolder = None, json: Json = False) -> None:
    """Write an export into an empty ledger, if every entry holds.

    Args:
        file: As 'ledger export' wrote it.
    """
    from flows.report.terminal import show, show_json
    from tasks.ledger.export import restore
    from tasks.ledger.ledger import Ledger

    place = home_of(home)
    place.folder("")
    with Ledger.open(place.ledger) as ledger:
        state = restore(ledger, file)
    entries = state.next_sequence - 1
    if json:
        show_json({"file": str(file), "entries": entries, "head": state.head})
    else:
        show(f"{entries} entries from {file}. Head {state.head}")


@ledger_app.command
def checkpoint(*, key: Path, home: HomeFolder = None, json: Json = False) -> None:
    """Sign the head of the chain; the signature becomes an entry.

    Args:
        key: PEM file of a private Ed25519 key, for its owner alone.
    """
    from flows.report.terminal import show, show_json
    from tasks.ledger.ledger import Ledger

    private = private_key(key)
    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        entry = ledger.checkpoint(private)
    if json:
        signed = {"sequence": entry.sequence, "signed_head": entry.previous, "head": entry.hash}
        show_json(signed | {k: entry.body[k] for k in ("public_key", "signature")})
    else:
        show(f"Entry {entry.sequence} signs the head {entry.previous}.")
        show(f"Keep elsewhere: head {entry.hash}")


@ledger_app.command
def void(run_id: str, *, reason: str, home: HomeFolder = None, json: Json = False) -> None:
    """Give back the charge of a run that never began to draw.

    Args:
        run_id: The run, as 'ledger charge-history' lists it.
        reason: Stays in the ledger.
    """
    from flows.report import outcomes as reports
    from flows.report.terminal import show, show_json
    from mechanisms.errors import LedgerError
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        charge = ledger.state().charges.get(run_id)
        if charge is None:
            raise LedgerError(
                "The ledger has no charge of this run.",
                where=f"run {run_id!r}",
                next_step="'statpress ledger charge-history' lists the runs.",
            )
        dataset = charge.entry.body["dataset"]
        entry = ledger.void(run_id=run_id, dataset=dataset, reason=reason)
        account = ledger.account(dataset)
    if json:
        show_json({"entry": entry.hash, **reports.account_facts(account)})
    else:
        show(f"Run {run_id} is void; {dataset} has left: {account.remaining}.")


@ledger_app.command
def note(
    bundle: Path, *, place: Path | None = None, home: HomeFolder = None, json: Json = False
) -> None:
    """Note a whole bundle as published, where its run ended before it could.

    Args:
        bundle: The bundle's folder.
        place: For a bundle that waits for its approval: where it is to be published.
    """
    from flows.report.terminal import show, show_json
    from tasks.release.noting import note_bundle

    entry = note_bundle(home_of(home), bundle, place)
    facts = {"entry": entry.hash, "sequence": entry.sequence, "bundle": entry.body["bundle"]}
    show_json(facts) if json else show(f"Entry {entry.sequence} notes {entry.body['bundle']}.")


@ledger_app.command
def upgrade(*, home: HomeFolder = None, json: Json = False) -> None:
    """Bring the ledger of an older version to the present form; its entries stay as they are."""
    from flows.report.terminal import show, show_json
    from tasks.ledger.ledger import Ledger
    from tasks.ledger_store.schema import FORMS

    form, present = Ledger.upgrade(home_of(home).ledger), FORMS[-1]
    text = f"The ledger is of the present form, {present!r}; there is nothing to upgrade."
    if form != present:
        text = f"The ledger was of the form {form!r} and is now of the form {present!r}."
    show_json({"from": form, "to": present}) if json else show(text)


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
