"""Who waits for an SQLite ledger gets it, however soon the last writer comes again."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from pathlib import Path

import pytest
from census_ledger import charge, register

from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.ledger.store import SQLiteStore

ROUNDS = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "ledger.db"
    with Ledger.open(place) as made:
        register(made)
    return place


def _somebody_waits() -> bool:
    """Whether a thread of this process waits for a lock of a file, as Linux lists it."""
    return any(
        "->" in line and f" {os.getpid()} " in line
        for line in Path("/proc/locks").read_text().splitlines()
    )


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs the list of locks of Linux")
def test_a_writer_that_comes_again_at_once_lets_others_go_first(path: Path) -> None:
    """Its rival, which began to wait before, was let in once in 278 times."""
    order: list[str] = []
    greedy, patient = SQLiteStore(path, 60.0), SQLiteStore(path, 60.0)
    over = threading.Event()

    def wait_again_and_again() -> None:
        while not over.is_set():
            patient.write(lambda _: order.append("patient"))

    def held(_: object) -> None:
        until = time.monotonic() + 2  # only as long if nobody ever waits
        while not _somebody_waits() and time.monotonic() < until:
            time.sleep(0.001)
        order.append("greedy")

    rival = threading.Thread(target=wait_again_and_again)
    rival.start()
    try:
        for _ in range(ROUNDS):
            greedy.write(held)
    finally:
        over.set()
        rival.join()
        greedy.close()
        patient.close()
    turns = sum(pair == ("greedy", "patient") for pair in itertools.pairwise(order))
    assert turns >= ROUNDS - 2


def test_a_turn_that_never_comes_is_not_waited_for(path: Path) -> None:
    """Whoever keeps the folder locked keeps nobody from the ledger, which has its own lock."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with Ledger.open(path, patience=0.1) as ledger:
            charge(ledger)
            assert ledger.verify().entries == 2
    finally:
        os.close(descriptor)


def test_a_turn_is_given_back(path: Path) -> None:
    with Ledger.open(path) as ledger:
        charge(ledger)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
