"""What the ledger amounts to at one point: accounts, charges, head of the chain.

These hold what ``tasks.ledger_rules.chain`` computes from the entries; they are read, never
written, by anyone else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from tasks.ledger_rules.amounts import Loss
from tasks.ledger_rules.entries import ZERO_HASH, Entry
from tasks.ledger_rules.policies import loss_of


class Status(StrEnum):
    """How far a charged run has come."""

    RESERVED = "reserved"
    """Charged, and provably nothing drawn: it may still be voided."""

    DRAWN = "drawn"
    """Drawing began: spent for good."""

    PREPARED = "prepared"
    """A sealed bundle of the run waits for its approval."""

    APPROVED = "approved"
    """The bundle may be published."""

    REJECTED = "rejected"
    """The bundle will never be published."""

    PUBLISHED = "published"
    """A bundle of the run was published."""

    VOID = "void"
    """Given back before anything was drawn."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge, with the entries that followed for its run.

    Attributes:
        entry: The charge itself.
        reviewed: Whether its dataset had approvers when it was charged.
        draw: Drawing begins.
        void: It is given back.
        preparation: A sealed bundle waits.
        decision: The bundle is approved or rejected.
        publication: The bundle is published.
    """

    entry: Entry
    reviewed: bool = False
    draw: Entry | None = None
    void: Entry | None = None
    preparation: Entry | None = None
    decision: Entry | None = None
    publication: Entry | None = None

    @property
    def loss(self) -> Loss:
        """What it spends, in every measure."""
        return loss_of(self.entry.body)

    @property
    def status(self) -> Status:
        """How far the run has come."""
        if self.publication is not None:
            return Status.PUBLISHED
        if self.void is not None:
            return Status.VOID
        if self.decision is not None:
            approved = self.decision.body["decision"] == "approve"
            return Status.APPROVED if approved else Status.REJECTED
        if self.preparation is not None:
            return Status.PREPARED
        # The ledger's first form kept no entry of the draw: it may have happened.
        drawn = self.draw is not None or "rho" not in self.entry.body
        return Status.DRAWN if drawn else Status.RESERVED

    @property
    def published(self) -> bool:
        """Whether a bundle of this run was published."""
        return self.publication is not None


@dataclass(frozen=True, slots=True)
class Account:
    """The budget of one dataset and its charges by run, in order.

    Attributes:
        registration: The entry that opened it.
        policy: The policy in force.
        limit: The limit in force, in the policy's measures.
        spent: Sum of all charges that are not void, in every measure.
        charges: By run, in order.
        amendments: Entries that changed policy or limit, in order.
        review: The last entry that set who approves its releases.
    """

    registration: Entry
    policy: str
    limit: Loss
    spent: Loss = field(default_factory=Loss.nothing)
    charges: dict[str, Charge] = field(default_factory=dict)
    amendments: tuple[Entry, ...] = ()
    review: Entry | None = None

    @property
    def approvers(self) -> tuple[str, ...]:
        """Public keys in force that approve its releases."""
        return tuple(self.review.body["approvers"]) if self.review else ()

    @property
    def unsigned(self) -> bool:
        """Whether decisions without a signature count."""
        return bool(self.review and self.review.body["unsigned"])

    @property
    def reviewed(self) -> bool:
        """Whether its releases need an approval, because there is someone to give it."""
        return bool(self.approvers) or self.unsigned

    @property
    def dataset(self) -> str:
        """The name it is registered under."""
        return str(self.registration.body["dataset"])

    @property
    def remaining(self) -> Loss:
        """What later charges may still spend, in the policy's measures."""
        return self.limit - self.spent

    @property
    def remaining_share(self) -> Decimal:
        """What is left of the limit, between 0 and 1, in the measure that has the least left."""
        return min(
            (
                min(Decimal(1), max(Decimal(0), self.remaining[measure] / limit))
                for measure, limit in self.limit.amounts.items()
                if limit
            ),
            default=Decimal(0),
        )

    @property
    def reserved(self) -> Loss:
        """The part of ``spent`` whose runs have not begun to draw."""
        total = Loss.nothing()
        for charge in self.charges.values():
            if charge.status is Status.RESERVED:
                total += charge.loss
        return total


@dataclass(frozen=True, slots=True)
class State:
    """What the entries so far amount to; only ``tasks.ledger_rules.chain`` makes new ones."""

    accounts: dict[str, Account] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)
    head: str = ZERO_HASH
    next_sequence: int = 1
