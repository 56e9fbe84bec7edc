"""A bundle released anew, in three ways: reprinted, renewed, revised.

A reprint is free post-processing. The other two are runs of the release flow, which charge;
what they would change and cost is proposed first, without data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statpress.configs.loading import PlannedOrder, Release, load_order
from statpress.configs.order import Override
from statpress.flows.facts import remaining_text
from statpress.flows.plan_facts import plan_facts
from statpress.flows.terminal import table
from statpress.mechanisms.domain.domain import Size
from statpress.mechanisms.errors import PolicyMismatchError
from statpress.mechanisms.mechanism import figure, label
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.registry import KINDS
from statpress.tasks.ledger.entries import Loss, canonical
from statpress.tasks.ledger.home_ledger import account_terms, charges_so_far, remaining_budget
from statpress.tasks.ledger.rules import check_terms
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.run_context import Listener
from statpress.tasks.release import reprint as reprinting
from statpress.tasks.release.foreseen import check_verdicts, plan_for_account, warnings
from statpress.tasks.release.ledger_check import terms_of
from statpress.tasks.release.succession import (
    check_followed,
    check_source,
    difference,
    predecessor,
    renewal,
    revision,
    stated_units,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


_SHOWN = 60
_COSTS = {
    "epsilon": "epsilon",
    "delta": "delta",
    "rho": "rho under zCDP",
    "rho_delta": "delta under zCDP",
}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A release that may follow a bundle; nothing was charged for it.

    Attributes:
        bundle: The bundle's folder.
        manifest: Of it.
        planned: The config with what differs from it, read and planned.
        remaining: What the ledger grants; None without an account.
        difference: What changes against the bundle.
        renewed: Whether it has the bundle's own config.
        stopping: What the ledger would refuse it for, besides its budget.
    """

    bundle: Path
    manifest: Mapping[str, Any]
    planned: PlannedOrder
    remaining: Loss | None
    difference: Mapping[str, Any]
    renewed: bool = False
    stopping: PolicyMismatchError | None = None

    @property
    def release(self) -> Release:
        """Its config."""
        return self.planned.release

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self.planned.plan

    def facts(self) -> dict[str, Any]:
        """The plan, and what it changes."""
        planned = plan_facts(self.release, self.plan, self.remaining)
        return planned | {"difference": self.difference}

    @property
    def words(self) -> str:
        """What it costs, and of what."""
        plan = self.plan
        return (
            f"This charges epsilon {canonical(plan.epsilon)}, delta {canonical(plan.delta)} of "
            f"the remaining {remaining_text(self.remaining)}."
        )

    def check(self, home: Home) -> None:
        """Raise unless the ledger published the bundle and has the dataset's account.

        And unless the config accepts what stops a run otherwise, and a renewal finds its data.
        """
        charges = charges_so_far(home, self.release.config.dataset)
        check_verdicts(self.release, self.plan, charges)
        if self.renewed:
            check_source(self.release, self.bundle)
        check_followed(home, self.bundle, self.manifest, self.release.config.dataset)


def propose(
    bundle: Path,
    revised: Path | None,
    overrides: Sequence[Override],
    folder: Path | None,
    home: Home,
) -> Proposal:
    """What a renewal, or a revision by a changed config, would be.

    Args:
        bundle: The bundle's folder.
        revised: The changed config; None for a renewal.
        overrides: What differs from the config, the later over the earlier.
        folder: Where the paths of a renewed config are taken from; by default where its own
            config lay, if the data is there, else the current folder.
        home: Where the ledger lies.

    Raises:
        StatpressError: The bundle may not be followed, or the config is not in order.
    """
    manifest = predecessor(bundle)
    if revised is None:
        order = renewal(bundle, manifest, overrides, folder)
    else:
        order = revision(bundle, manifest, revised, overrides)
    release = load_order(order)
    if release.config.privacy.is_from_source:  # about what it was; the run counts it
        release = release.sized(stated_units(bundle), Size.ROUGH)
    plan = plan_for_account(home, release, release.plan())
    planned = PlannedOrder(order, release, plan)
    account, stopping = account_terms(home, planned.release.config.dataset), None
    if account is not None:
        try:
            check_terms(account, terms_of(plan.privacy))
        except PolicyMismatchError as error:
            stopping = error
    return Proposal(
        bundle=bundle,
        manifest=manifest,
        planned=planned,
        remaining=remaining_budget(
            home, planned.release.config.dataset, planned.release.period_text
        ),
        difference=difference(bundle, manifest["seal"], planned.release, planned.plan),
        renewed=revised is None,
        stopping=stopping,
    )


def reprint(
    bundle: Path,
    overrides: Sequence[Override],
    listener: Listener,
    signer: Ed25519PrivateKey | None = None,
) -> dict[str, Any]:
    """Derive a bundle anew; returns what was done.

    Args:
        bundle: The bundle's folder.
        overrides: What differs from its config.
        listener: Who is told of the progress.
        signer: Signs the new bundle; the signature of the old one is not of this.

    Raises:
        StatpressError: It cannot be done as asked.
    """
    done = reprinting.reprint(bundle, overrides, listener.announce, signer)
    return {
        "bundle": str(done.bundle),
        "seal": done.seal,
        "reprint_of": done.original["seal"],
        "run_id": done.original["run_id"],
        "ledger_entry": done.original["ledger_entry"],
        "publishable": done.original["publishable"],
        "copied": list(done.copied),
    }


def reprint_report(facts: Mapping[str, Any]) -> str:
    """What a reprint is, in a few lines."""
    lines = [
        f"Reprinted {facts['bundle']}",
        f"  from the release with the seal {facts['reprint_of'][:16]}; no budget is spent",
    ]
    if facts["copied"]:
        lines.append(f"  as they were: {', '.join(facts['copied'])}")
    if not facts["publishable"]:
        lines.append("  NOT PUBLISHABLE: drawn from a known seed")
    return "\n".join(lines)


def proposal_report(proposal: Proposal) -> Iterator[Any]:
    """A proposal for a person: what changes, product by product."""
    found = proposal.difference
    compared = {k: v for kind in KINDS.values() for k, v in kind.compared.items()}
    title = f"{proposal.release.config.title}, against the bundle {found['supersedes'][:16]}"
    config = [
        [key, _text(each["was"]), _text(each["now"])] for key, each in found["config"].items()
    ]
    if config:
        yield table("Changes of the config", ["", "was", "now"], config)
    rows = [
        [key, _text(each["was"]), _text(each["now"])] for key, each in found["protected"].items()
    ]
    for name, product in found["products"].items():
        rows.append([name, "", product["fate"]])
        if product["fate"] == "unchanged":
            continue
        for key, each in product["parameters"].items():
            words = label(key)
            if words is not None:
                rows.append([f"  {words}", *(_parameter(each[side]) for side in ("was", "now"))])
        said = product["verdict"]
        rows.append(["  verdict", *(_text(said[side]) for side in ("was", "now"))])
        rows += [_row(f"  alone: {words}", product["cost"][k]) for k, words in _COSTS.items()]
        errors = product["expected_error"]
        rows += [
            _row(f"  {words}", errors[k])
            for k, words in compared.items()
            if k in errors and {errors[k]["was"] is None, errors[k]["now"] is None} != {True}
        ]
    rows += [_row(f"release: {words}", found["cost"][k]) for k, words in _COSTS.items()]
    rows.append(["remaining budget", "", remaining_text(proposal.remaining)])
    if proposal.remaining is not None:
        covers = proposal.remaining.covers(Loss(proposal.plan.amounts))
        rows.append(["it covers this release", "", "yes" if covers else "NO"])
    yield table(title, ["", "was", "now"], rows)
    yield from warnings(proposal.release, proposal.plan)
    if proposal.stopping is not None:
        yield f"A run would stop: {proposal.stopping}"


def _row(words: str, change: Mapping[str, Any]) -> list[str]:
    now = _text(change["now"])
    if change["was"] is not None and change["was"] != change["now"]:
        ratio = change.get("ratio")
        if ratio is not None:
            now += f" ({_text(ratio)} times)"
        elif change.get("change") is not None:
            now += f" ({'+' if change['change'][0] != '-' else ''}{change['change']})"
    return [words, _text(change["was"]), now]


def _parameter(value: Any) -> str:
    return _text(value if value is None or isinstance(value, list) else figure(value))


def _text(value: Any) -> str:
    """A value as a person reads it, long ones cut short."""
    if value is None:
        return "-"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    if isinstance(value, list):
        shown = ", ".join(map(_text, value))
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
