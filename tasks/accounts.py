"""What the ledger amounts to at one point: accounts, charges, head of the chain.

These hold what ``tasks.journal`` computes from the entries; they are read, never
written, by anyone else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tasks.amounts import NOTHING, Loss
from tasks.entries import ZERO_HASH, Entry


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge, with the entry of its publication once there is one."""

    entry: Entry
    publication: Entry | None = None

    @property
    def loss(self) -> Loss:
        """What it spent."""
        return Loss.of(self.entry.body)

    @property
    def published(self) -> bool:
        """Whether a bundle of this run was published."""
        return self.publication is not None


@dataclass(frozen=True, slots=True)
class Account:
    """The budget of one dataset and its charges by run, in order."""

    registration: Entry
    limit: Loss
    spent: Loss = NOTHING
    charges: dict[str, Charge] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        """The name it is registered under."""
        return str(self.registration.body["dataset"])

    @property
    def remaining(self) -> Loss:
        """What later charges may still spend."""
        return self.limit - self.spent


@dataclass(frozen=True, slots=True)
class State:
    """What the entries so far amount to. To be read; only ``replay`` makes new ones."""

    accounts: dict[str, Account] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)
    head: str = ZERO_HASH
    next_sequence: int = 1
