"""Where the entries that an act depends on stand, from a reading of all entries in order.

A database finds them through its indexes. One flipped bit there hides an entry, and an act
would build on an older balance; so what an index finds is compared with this.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from mechanisms.errors import LedgerIntegrityError
from tasks.ledger_rules.entries import ZERO_HASH, Entry, text_hash
from tasks.ledger_rules.rules import RULES


class StoredRow(Protocol):
    """A row of the table of entries, as a database gives it; ``body`` is the text."""

    sequence: Any
    kind: Any
    body: Any
    previous: Any
    hash: Any
    dataset: Any
    run_id: Any


@dataclass
class Positions:
    """The sequences of entries by what they are needed for, as far as entries were read.

    Attributes:
        length: Number of entries that were read.
        head: Hash of the last of them.
    """

    length: int = 0
    head: str = ZERO_HASH
    _lasting: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _balances: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _runs: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def extend(self, rows: Iterable[StoredRow]) -> None:
        """Read on; rows that were read before, perhaps by another thread, are passed over.

        Raises:
            LedgerIntegrityError: The first row that does not continue the chain, disagrees
                with its own hash, or whose search columns disagree with its body.
        """
        for row in rows:
            with self._lock:
                if type(row.sequence) is int and row.sequence <= self.length:
                    continue
                flaw = self._flaw(row)
                if flaw:
                    place = self.length + 1
                    raise LedgerIntegrityError(flaw, sequence=place, where=f"entry {place}")
                self._keep(row.sequence, row.kind, row.hash, row.dataset, row.run_id)

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass entries on to whoever checks them; those that were passed count as read."""
        for entry in entries:
            yield entry
            self.note(entry)

    def note(self, entry: Entry) -> None:
        """Count an entry as read that was checked, if it is the next one."""
        with self._lock:
            if entry.sequence == self.length + 1:
                names = (entry.body.get("dataset"), entry.body.get("run_id"))
                self._keep(entry.sequence, entry.kind, entry.hash, *names)

    def relevant(self, dataset: str | None, run_id: str | None) -> set[int]:
        """The sequences of the entries that ``chain.resume`` needs for an act.

        Args:
            dataset: The dataset of the act; None for an act on the whole ledger.
            run_id: The run of the act, if it has one.
        """
        found = {self.length} if self.length else set()
        if dataset is not None:
            found.update(self._lasting.get(dataset, ()), self._balances.get(dataset, {}).values())
        if run_id is not None:
            found.update(self._runs.get(run_id, ()))
        return found

    def _flaw(self, row: StoredRow) -> str:
        """What is wrong with the row as the next one, or nothing."""
        if type(row.sequence) is not int or row.sequence != self.length + 1:
            return f"An entry numbered {row.sequence!r} stands where {self.length + 1} belongs."
        if not all(isinstance(text, str) for text in (row.kind, row.body, row.previous, row.hash)):
            return "The entry is not in the form it was written in."
        if row.previous != self.head:
            return "The entry does not continue the hash of the one before."
        if row.hash != text_hash(row.sequence, row.kind, row.body, row.previous):
            return "The entry does not agree with its own hash."
        if row.kind not in RULES:
            return f"The entry is of the unknown kind {row.kind!r}."
        body = json.loads(row.body)
        for name, value in (("dataset", row.dataset), ("run_id", row.run_id)):
            if body.get(name) != value:
                return f"The column {name} does not agree with the entry."
        return ""

    def _keep(
        self, sequence: int, kind: str, hash_: str, dataset: str | None, run_id: str | None
    ) -> None:
        rule = RULES[kind]
        if dataset is not None and rule.lasting:
            self._lasting[dataset].append(sequence)
        if dataset is not None and rule.balance:
            self._balances[dataset][kind] = sequence
        if run_id is not None:
            self._runs[run_id].append(sequence)
        self.length, self.head = sequence, hash_
