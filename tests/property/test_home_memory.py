"""Random histories of one home and its ledger, of which the ledger is cut back now and then.

Whoever owns the database cuts off entries, or puts back an export of an earlier day, and does as
the errors say: removes what the home has seen of the head. What the home remembers of draws stays.
(A history that sets back home and ledger together is beyond any memory but a head kept elsewhere.)
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from census_ledger import TERMS
from ledger_damage import WORK, cut_back

from statpress.mechanisms.errors import LedgerIntegrityError, StatpressError
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.ledger.home_ledger import open_ledger, remember
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

LIMIT, EACH = Decimal(6), Decimal(1)
SHARES = {"act": 30, "cut": 2, "restore": 1, "forget the head": 2, "open again": 2}


class History:
    """A home, what really happened in it, and what its ledger says."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.home, self.rng = Home(folder), rng
        self.drawn: Counter[str] = Counter()  # first random bits, by run
        self.looked: Counter[str] = Counter()  # openings of the source, by run
        self.recorded: list[Entry] = []  # looks that the ledger was asked to record
        self.exports: list[list[Entry]] = []
        with open_ledger(self.home, create=True) as ledger:
            ledger.register(dataset="d", epsilon=LIMIT, delta="1e-5", max_looks=10**6, **TERMS)

    @property
    def cut(self) -> bool:
        """Whether the last entry is missing that the home has seen."""
        for place in (self.home.root / "heads").glob("*.json"):
            seen, entries = json.loads(place.read_text()), self.entries()
            number = seen["entries"]
            return not 0 < number <= len(entries) or entries[number - 1].hash != seen["head"]
        return False

    def run(self) -> str:
        return f"run-{self.rng.randrange(12)}"

    def press(self, run: str, stop: str) -> None:
        """A run as the flow does it, which may end before any of its acts."""
        with open_ledger(self.home) as ledger:
            state = ledger.state()
            remember(ledger, state)
            if ledger.memory is not None and ledger.memory.drew(run):
                return
            for act in ("look", "charge", "draw", "publish"):
                if act == stop:
                    return
                self.act(ledger, run, act)

    def act(self, ledger: Ledger, run: str, act: str) -> None:
        of = {"dataset": "d", "run_id": run}
        if act == "look":
            self.recorded.append(ledger.look(run=run, dataset="d", config_sha256="a" * 64))
            self.looked[run] += 1
        elif act == "charge":
            ledger.charge(**of, epsilon=EACH, **WORK)
        elif act == "draw":
            ledger.draw(**of)
            self.drawn[run] += 1
        elif act == "publish":
            ledger.publish(**of, bundle=run, manifest_sha256="b" * 64)
        else:
            ledger.void(**of, reason="it never drew", elsewhere=self.rng.random() < 0.5)

    def entries(self) -> list[Entry]:
        with Ledger.open(self.home.ledger, create=False) as ledger:
            return list(ledger.entries())

    def step(self) -> None:
        what = self.rng.choices(list(SHARES), list(SHARES.values()))[0]
        if what == "act":
            acts = ["press", "press", "press", "void", "draw", "publish", "export"]
            self.try_(self.rng.choice(acts))
        elif what == "cut":
            length = len(self.entries())
            cut_back(self.home, self.rng.randint(max(1, length - 4), length))
        elif what == "restore" and self.exports:
            kept = self.rng.choice(self.exports)
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.home.ledger}{suffix}").unlink(missing_ok=True)
            with Ledger.open(self.home.ledger) as ledger:
                ledger.restore(iter(kept))
        elif what == "forget the head" and self.cut:
            shutil.rmtree(self.home.root / "heads")

    def try_(self, act: str) -> None:
        run = self.run()
        before, cut = Counter(self.drawn), self.cut
        try:
            if act == "export":
                self.exports.append(self.entries())
            elif act == "press":
                self.press(run, self.rng.choice(["look", "charge", "draw", "publish", "", ""]))
            else:
                with open_ledger(self.home) as ledger:
                    self.act(ledger, run, act)
        except StatpressError:
            pass
        else:
            assert act == "export" or not cut, "an act followed on a ledger cut back"
        assert not cut or self.drawn == before


def test_no_history_draws_twice_for_a_charge(tmp_path: Path, full: bool) -> None:
    for seed in range(310 if full else 2):
        history(tmp_path / str(seed), seed)


def history(tmp_path: Path, seed: int) -> None:
    """Forty steps; whatever became of the ledger, what was drawn was paid for, and drawn once."""
    found = History(tmp_path / "home", random.Random(seed))
    for _ in range(40):
        found.step()
        assert max(found.drawn.values(), default=0) <= 1
        assert sum(found.drawn.values()) * EACH <= LIMIT
        assert set(found.drawn) <= {entry.body["run"] for entry in found.recorded}
        assert found.looked.total() == len(found.recorded)
        if found.cut:
            with open_ledger(found.home) as ledger, pytest.raises(LedgerIntegrityError) as caught:
                remember(ledger, ledger.verify().state)
            assert caught.value.sequence is None or caught.value.sequence > len(found.entries())
        else:
            with open_ledger(found.home) as ledger:
                ledger.verify()


def test_the_test_catches_a_home_without_a_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: heads as before, and no marker of draws."""
    from statpress.tasks.ledger.home_ledger import Memory

    monkeypatch.setattr(Memory, "begin", lambda *_: None)

    def histories() -> None:
        for seed in range(3, 30):  # those before are within their limits all the same
            history(tmp_path / str(seed), seed)

    with pytest.raises(AssertionError):
        histories()


def test_a_run_that_draws_while_the_ledger_is_read_lost_no_charge(tmp_path: Path) -> None:
    """Else runs of two datasets at once would call their ledger rewritten; one that is, is told."""
    found = History(tmp_path / "home", random.Random(0))
    with open_ledger(found.home) as reading:
        state = reading.state()
        found.press("run-1", "publish")
        assert "run-1" not in state.charges
        remember(reading, state)
        cut_back(found.home, 1)
        shutil.rmtree(found.home.root / "heads")
        with pytest.raises(LedgerIntegrityError, match="run-1 drew in this home"):
            remember(reading, state)
