"""Commands that verify, copy, sign and repair a ledger: parse, call, return the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.cli.options import HomeFolder, Json, home_of, private_key
from flows.cli.result import Result


def verify(
    *,
    head: str | None = None,
    public_key: Annotated[list[Path] | None, Parameter(negative="")] = None,
    home: HomeFolder = None,
    json: Json = False,
) -> Result:
    """Recompute the chain, every sum and every charge from its mechanisms' descriptions.

    The database checks itself as well, and the chain must hold the last head that this home saw.

    Args:
        head: A hash kept elsewhere; a chain that holds it was not cut or rewritten up to there.
        public_key: PEM file of a trusted key; every checkpoint must be signed by one.
    """
    from tasks.audit.ledger_check import DATABASE_NOT_CHECKED, verify_ledger
    from tasks.ledger_rules.signing import read_public_key

    trusted = [read_public_key(path) for path in public_key or []]
    found = verify_ledger(home_of(home), head=head, trusted=trusted)
    facts = {
        "verified": True,
        "entries": found.entries,
        "head": found.head,
        "held_head": head,
        "checkpoints": list(found.checkpoints),
        "signers": sorted(found.signers),
        "database_checked": found.database_checked,
    }

    def report() -> Iterator[str]:
        yield f"{found.entries} entries, chain and sums hold. Head {found.head}"
        if found.checkpoints:
            by = "trusted keys" if trusted else "keys not compared: give --public-key"
            last = found.checkpoints[-1]
            yield f"{len(found.checkpoints)} checkpoints, last entry {last} ({by})."
        if not found.database_checked:
            yield DATABASE_NOT_CHECKED

    return Result(json=json, facts=lambda: facts, report=report)


def export(file: Path, *, home: HomeFolder = None, json: Json = False) -> Result:
    """Write all entries as JSON Lines, ending with the head to keep elsewhere.

    Args:
        file: The file; an export that this ledger continues is replaced, no other.
    """
    from tasks.ledger.export import write_export
    from tasks.ledger.ledger import Ledger

    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        found = write_export(ledger, file)
    facts = {"file": str(file), "entries": found.entries, "head": found.head}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: f"{file}: {found.entries} entries. Head {found.head}",
    )


def import_ledger(file: Path, *, home: HomeFolder = None, json: Json = False) -> Result:
    """Write an export into an empty ledger, if every entry holds.

    Args:
        file: As 'ledger export' wrote it.
    """
    from tasks.ledger.export import restore
    from tasks.ledger.ledger import Ledger

    place = home_of(home)
    place.folder("")
    with Ledger.open(place.ledger) as ledger:
        state = restore(ledger, file)
    entries = state.next_sequence - 1
    facts = {"file": str(file), "entries": entries, "head": state.head}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: f"{entries} entries from {file}. Head {state.head}",
    )


def checkpoint(*, key: Path, home: HomeFolder = None, json: Json = False) -> Result:
    """Sign the head of the chain; the signature becomes an entry.

    Args:
        key: PEM file of a private Ed25519 key, for its owner only.
    """
    from tasks.ledger.ledger import Ledger

    private = private_key(key)
    with Ledger.open(home_of(home).ledger, create=False) as ledger:
        entry = ledger.checkpoint(private)
    facts = {
        "sequence": entry.sequence,
        "signed_head": entry.previous,
        "head": entry.hash,
        "public_key": entry.body["public_key"],
        "signature": entry.body["signature"],
    }
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: (
            f"Entry {entry.sequence} signs the head {entry.previous}.",
            f"Keep elsewhere: head {entry.hash}",
        ),
    )


def void(run_id: str, *, reason: str, home: HomeFolder = None, json: Json = False) -> Result:
    """Give back the charge of a run that never began to draw.

    Args:
        run_id: The run, as 'ledger charge-history' lists it.
        reason: Stays in the ledger.
    """
    from flows.report import outcomes as reports
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
    return Result(
        json=json,
        facts=lambda: {"entry": entry.hash, **reports.account_facts(account)},
        report=lambda: f"Run {run_id} is void; {dataset} has left: {account.remaining}.",
    )


def note(
    bundle: Path, *, place: Path | None = None, home: HomeFolder = None, json: Json = False
) -> Result:
    """Note a whole bundle as published, where its run ended before it could.

    Args:
        bundle: The bundle's folder.
        place: For a bundle that waits for its approval: where it is to be published.
    """
    from tasks.release.noting import note_bundle

    entry = note_bundle(home_of(home), bundle, place)
    facts = {"entry": entry.hash, "sequence": entry.sequence, "bundle": entry.body["bundle"]}
    return Result(
        json=json,
        facts=lambda: facts,
        report=lambda: f"Entry {entry.sequence} notes {entry.body['bundle']}.",
    )


def upgrade(*, home: HomeFolder = None, json: Json = False) -> Result:
    """Bring the ledger of an older version to the present form; its entries stay as they are."""
    from tasks.ledger.ledger import Ledger
    from tasks.ledger_store.schema import FORMS

    form, present = Ledger.upgrade(home_of(home).ledger), FORMS[-1]
    text = f"The ledger is of the present form, {present!r}; there is nothing to upgrade."
    if form != present:
        text = f"The ledger was of the form {form!r} and is now of the form {present!r}."
    return Result(json=json, facts=lambda: {"from": form, "to": present}, report=lambda: text)
