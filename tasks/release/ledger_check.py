"""Verification of the ledger, and of bundles against it, with the accountant's help.

Nothing here writes to the ledger. ``read_account`` gives odometer readings of an account: the
tightest (epsilon, delta) of its whole history.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from statpress.mechanisms.accounting.composition import Reading
from statpress.mechanisms.domain.domain import Privacy, Size
from statpress.mechanisms.errors import BundleVerificationError, LedgerError, StatpressError
from statpress.mechanisms.planning.charges import described_loss, recompute_charge
from statpress.tasks.bundle.locations import Folder
from statpress.tasks.bundle.manifest import approval_at
from statpress.tasks.ledger.accounts import NOISY_CHECKS, Account, Charge, Status
from statpress.tasks.ledger.chain import Verification
from statpress.tasks.ledger.entries import (
    MEASURES,
    ZERO_HASH,
    Body,
    Loss,
    canonical_json,
    exact,
    read_public_key,
)
from statpress.tasks.ledger.home_ledger import open_ledger, remember
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.run_context import step

DATABASE_NOT_CHECKED = (
    "The database did not check itself: in PostgreSQL run 'CREATE EXTENSION amcheck', and let the"
    " ledger's role execute its functions."
)


def verify_ledger(
    home: Home, *, head: str | None = None, trusted: Collection[str] = ()
) -> Verification:
    """Recompute chain, sums, and every charge from its mechanisms' descriptions.

    The database checks itself too, and the last head that the home has seen must be in the chain;
    the present one is kept for the next time.

    Args:
        home: Where the ledger lies.
        head: A hash kept elsewhere that the chain must hold.
        trusted: Public keys, one of which must have signed every checkpoint.

    Raises:
        LedgerIntegrityError: The first entry that does not hold, or the database is damaged.
    """
    if head == ZERO_HASH:
        raise LedgerError(
            "This is the head of an empty ledger, which every ledger continues.",
            where="head",
            next_step="Give the head of a ledger with entries.",
        )
    with open_ledger(home) as ledger:
        verified = ledger.verify(recomputed, head=head, trusted=trusted)
        remember(ledger, verified.state)
        if ledger.memory:
            ledger.memory.note("verified", verified.entries, verified.head)
    return verified


def recomputed(body: Body) -> Loss:
    """The least that the mechanisms of a charge spend, from their descriptions."""
    for described in body["mechanisms"]:
        for name in ("n_records", "unit_records"):
            if described[name] != body[name]:  # a larger one makes a mechanism look cheaper
                raise LedgerError(
                    f"A mechanism is described with {name} {described[name]}, and charged"
                    f" with {body[name]}.",
                    where=f"run {body['run_id']!r}",
                )
        # Of add-remove a mechanism looks cheaper; what checks spend is of the config.
        own = described.get("adjacency", "replace_one")
        if own != body["adjacency"] and described["mechanism"] != "noisy_checks":
            raise LedgerError(
                f"A mechanism is described for {own}, and charged for {body['adjacency']}.",
                where=f"run {body['run_id']!r}",
            )
    described = "\n".join(map(parameters, body["mechanisms"]))
    return _least(described, body["epsilon"], body["delta"])


def check_bundle(home: Home, bundle: Path, manifest: dict[str, Any]) -> None:
    """Check that the ledger charged for a bundle, noted its seal, and holds its approval.

    Of a reprint, that it did so for the original.
    """
    with open_ledger(home) as ledger:
        charge = charge_of_bundle(ledger, bundle, manifest)
    body, noted = charge.entry.body, charge.publication
    if noted is None:
        raise BundleVerificationError(
            "The ledger charged this bundle and never noted it as published.",
            where=str(bundle),
            next_step="If it is the publisher's, note it with 'statpress ledger note'.",
        )
    original = manifest.get("reprint_of") or manifest
    if noted.body["manifest_sha256"] != original["seal"]:
        raise BundleVerificationError("The ledger noted another seal.", where=str(bundle))
    stated = (original["dataset"], original["config_sha256"], original["publishable"])
    if stated != (body["dataset"], body["config_sha256"], not body["insecure_seed"]):
        raise BundleVerificationError("The ledger's charge says otherwise.", where=str(bundle))
    decided = charge.decision.hash if charge.decision else None
    approval = approval_at(Folder(bundle), manifest) if "review" in manifest else None
    if decided != (approval.hash if approval else None):
        raise BundleVerificationError("The ledger holds another approval.", where=str(bundle))
    check_described(charge, bundle)


def charge_of_bundle(ledger: Ledger, bundle: Path, manifest: Mapping[str, Any]) -> Charge:
    """The charge that a bundle's manifest names."""
    charge = ledger.state().charges.get(manifest["run_id"])
    if charge is None or charge.entry.hash != manifest["ledger_entry"]["hash"]:
        raise BundleVerificationError("The ledger has no such charge.", where=str(bundle))
    return charge


def check_described(charge: Charge, bundle: Path) -> None:
    """Raise unless the bundle states the mechanisms, and the sizes, that were charged."""
    stated = json.loads((bundle / "privacy.json").read_text(encoding="utf-8"))
    for described in charge.entry.body["mechanisms"]:
        own = described["mechanism"] == NOISY_CHECKS
        product = stated.get("checks") if own else stated["products"].get(described["product"])
        if any((product or {}).get(name) != value for name, value in described.items()):
            raise BundleVerificationError(
                f"The ledger charged '{described['product']}' by another mechanism, or for a table "
                "of another size, than the bundle states.",
                where=str(bundle),
            )


def parameters(described: Mapping[str, Any]) -> str:
    """A mechanism's description without the product's name, as one text."""
    return canonical_json({name: v for name, v in described.items() if name != "product"})


@functools.lru_cache(maxsize=4096)
def _least(descriptions: str, epsilon: str, delta: str) -> Loss:
    """What a charge's mechanisms spend at least; scheduled releases repeat themselves."""
    mechanisms = [json.loads(line) for line in descriptions.split("\n") if line]
    return Loss(recompute_charge(mechanisms, epsilon=exact(epsilon), delta=exact(delta)))


def terms_of(privacy: Privacy) -> dict[str, Any]:
    """What a charge has to have in common with the registration, as far as a config states it."""
    return {
        "adjacency": str(privacy.adjacency),
        "unit": str(privacy.unit),
        "unit_records": privacy.unit_records,
        **({"n_records": privacy.n_records} if privacy.size is Size.DECLARED else {}),
    }


READING_DELTA = Decimal("1e-8")
_DELTAS, _MOST_DELTA = 10, Decimal("0.1")
_ORDERS = tuple(1 + 2.0 ** (k / 4) for k in range(-32, 65))  # 1.004 to 65 537


def read_account(account: Account, delta: Decimal | None = None) -> Reading:
    """The tightest (epsilon, delta) readings of an account's whole history.

    Of an account with a design, of the largest loss of one person.

    Args:
        account: As the ledger replays it.
        delta: Of the reading; by default the registered limit of ``basic``, else 1e-8 or, where
            that is more, ten times the registered limit of the delta of rho.
    """
    registered, spent = account.registration.body, account.spent_by_one(measures=MEASURES)
    if registered["policy"] == "basic":
        default, anchor = exact(registered["delta"]) or READING_DELTA, None
    else:
        default = max(READING_DELTA, min(_DELTAS * exact(registered["rho_delta"]), _MOST_DELTA))
        anchor = exact(registered["rho"])
    return Reading.of_history(
        epsilon=spent["epsilon"],
        epsilon_delta=spent["delta"],
        rho=spent["rho"],
        rho_delta=spent["rho_delta"],
        anchor=anchor,
        delta=delta or default,
        divergences=[] if account.has_design else _divergences(account),
    )


@functools.lru_cache(maxsize=4096)
def _curve(description: str) -> tuple[float, ...] | None:
    """Upper bounds on one mechanism's Rényi divergences; None if it is not known."""
    try:
        loss = described_loss(json.loads(description))
        return tuple(loss.renyi(order).upper for order in _ORDERS)
    except (StatpressError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _divergences(account: Account) -> list[tuple[float, float]]:
    """The sums of all mechanisms' Rényi divergences by order; empty if one is not known."""
    curves = []
    for charge in account.charges.values():
        if charge.status is Status.VOID:
            continue
        if not charge.entry.body["mechanisms"]:
            return []
        for described in charge.entry.body["mechanisms"]:
            curve = _curve(parameters(described))
            if curve is None:
                return []
            curves.append(curve)
    sums = [math.fsum(column) for column in zip(*curves, strict=True)]
    return [
        (order, math.nextafter(total, math.inf))
        for order, total in zip(_ORDERS, sums, strict=False)
        if math.isfinite(total)
    ]


@step("verify ledger")
def confirm_ledger(
    home: Home,
    log: CuratorLog,
    public_key: str | None = None,
    head: str | None = None,
    *,
    after: str = "",
) -> None:
    """Verify the ledger and write the result only to the curator log; the error is always one.

    Args:
        home: Where the ledger lies.
        log: Takes the result.
        public_key: Path of a trusted key.
        head: A hash kept elsewhere that the chain must hold.
        after: What was done before and stands, for the error.
    """
    try:
        trusted = [read_public_key(Path(public_key))] if public_key else []
        verified = verify_ledger(home, head=head, trusted=trusted)
        log.write(f"The ledger holds: {verified.entries} entries, head {verified.head}.")
        if not verified.database_checked:
            log.write(DATABASE_NOT_CHECKED)
        return
    except StatpressError as error:
        log.write(f"{error.kind}: {error}")
    raise LedgerError(
        f"The ledger could not be verified.{after}",
        next_step=f"The curator finds why in the curator log {log.run_id}.log.",
    )
