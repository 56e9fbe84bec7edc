"""Flipped bits in a ledger's file: found or harmless, and never a charge beyond the limit.

Three of the places that a bit is flipped in: anywhere; in the pages of the indexes, which
hold none of what is hashed; in the first page, which holds the schema.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from ledger_damage import failure, flipped, overspends, put, spent_ledger, verdict

from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

PAGE = 4096
INDEXES = ("sqlite_autoindex_entries_1", "entries_by_dataset", "entries_by_run")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose ledger has nothing left of two datasets."""
    made = Home(tmp_path_factory.mktemp("home"))
    with Ledger.open(made.ledger) as ledger:
        ledger.restore(iter(spent_ledger(60)))
    return made


@pytest.fixture(scope="module")
def whole(home: Home) -> bytes:
    """The file as it should be."""
    return path_of(home).read_bytes()


def path_of(home: Home) -> Path:
    assert isinstance(home.ledger, Path)
    return home.ledger


def damaged(home: Home, data: bytes) -> None:
    put(path_of(home), data)


def places_in_indexes(home: Home, whole: bytes) -> list[int]:
    """Every byte that is not 0 of the pages that hold the indexes' entries."""
    damaged(home, whole)
    raw = sqlite3.connect(path_of(home))
    query = f"SELECT rootpage FROM sqlite_master WHERE name IN {INDEXES}"
    roots = [page for (page,) in raw.execute(query)]
    raw.close()
    leaves = [page for page in range(0, len(whole), PAGE) if whole[page] == 0x0A]
    pages = {(page - 1) * PAGE for page in roots} | set(leaves)
    return [place for page in pages for place in range(page, page + PAGE) if whole[place]]


def hidden_balance(home: Home, whole: bytes) -> bytes:
    """The file in whose index by dataset the last charge of alpha has another name.

    The table and the other indexes are whole.
    """
    damaged(home, whole)
    with Ledger.open(home.ledger, create=False) as ledger:
        charges = ledger.account("alpha").charges.values()
    last = max(charge.entry.sequence for charge in charges)
    key = b"alphacharge" + last.to_bytes(1 if last < 128 else 2, "big")
    (place,) = [at for at in range(len(whole)) if whole.startswith(key, at)]
    return flipped(whole, place, 2)


def test_a_flipped_bit_in_an_index_is_found_and_buys_nothing(home: Home, whole: bytes) -> None:
    damaged(home, hidden_balance(home, whole))
    raw, last = sqlite3.connect(path_of(home)), "SELECT max(sequence) FROM entries {}"
    of_alpha = "WHERE dataset = 'alpha' AND kind = 'charge'"
    hidden, real = (
        raw.execute(f"{last.format(index)} {of_alpha}").fetchone() for index in ("", "NOT INDEXED")
    )
    raw.close()
    assert hidden < real
    assert "own check found damage: row" in failure(home, Ledger.verify)
    assert overspends(home) == []
    said = failure(home, lambda ledger: ledger.charged(run_id="run-0", dataset="alpha"))
    assert "index of the database does not agree" in said


@pytest.mark.parametrize("flips", [12, pytest.param(300, marks=pytest.mark.nightly)], ids=str)
def test_flipped_bits_are_found_or_harmless(home: Home, whole: bytes, flips: int) -> None:
    rng, found = random.Random(14), Counter[str]()
    in_indexes = places_in_indexes(home, whole)
    damaged(home, whole)
    true = verdict(home)
    assert not isinstance(true, str) and overspends(home) == []
    used = [place for place in range(len(whole)) if whole[place]]
    first_page = [place for place in used if place < PAGE]
    for number in range(flips):
        place = rng.choice((used, in_indexes, first_page)[number % 3])
        data = flipped(whole, place, rng.randrange(8))
        damaged(home, data)
        said = verdict(home)
        assert isinstance(said, str) or said == true, place
        found[said if isinstance(said, str) else "harmless"] += 1
        damaged(home, data)
        assert overspends(home) == [], place
    assert found["LedgerIntegrity"] > flips / 2 and set(found) <= {
        "LedgerIntegrity", "LedgerSchema", "LedgerUnavailable", "LedgerReadOnly", "harmless",
    }, found  # fmt: skip
    print(dict(found))


def test_damaged_text_of_the_schema_is_an_error_of_integrity(home: Home, whole: bytes) -> None:
    """SQLite quotes the damaged name in its message, which is then not UTF-8."""
    start = whole.index(b"CREATE TABLE entries")
    for place in range(start, start + len("CREATE TABLE entries (\n\tsequence INTEGER"), 3):
        damaged(home, flipped(whole, place, 7))
        assert verdict(home) == "LedgerIntegrity", place
        assert overspends(home) == []


def test_a_table_that_lost_its_last_entry_is_found(home: Home, whole: bytes) -> None:
    """One bit in the number of entries that a page says it has; the indexes know better."""
    lost = 0
    for page in range(0, len(whole), PAGE):
        if whole[page] != 0x0D or not whole[page + 4]:  # a leaf of a table, with entries
            continue
        damaged(home, whole[: page + 4] + bytes([whole[page + 4] - 1]) + whole[page + 5 :])
        assert verdict(home) in ("LedgerIntegrity", "LedgerSchema")
        assert overspends(home) == []
        lost += 1
    assert lost > 5


def test_a_ledger_that_lost_entries_is_known_by_the_last_head(tmp_path: Path) -> None:
    home, entries = Home(tmp_path), spent_ledger(20)
    with open_ledger(home, create=True) as ledger:
        ledger.restore(iter(entries))
    for kept in (0, 1, len(entries) - 1):
        for suffix in ("", "-wal", "-shm"):
            path_of(home).with_name(path_of(home).name + suffix).unlink(missing_ok=True)
        with Ledger.open(home.ledger) as ledger:
            ledger.restore(iter(entries[:kept]))
        assert verdict(home) == "LedgerIntegrity"
        assert overspends(home) == []
