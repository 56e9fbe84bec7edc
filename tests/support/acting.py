"""Runs in which something happens when a step begins, or while records are drawn.

A run tells its listener of every step, so a test can change the world between two of them, or end
the run there, without putting a function of the product in another's place.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from resource import RLIMIT_FSIZE, getrlimit, setrlimit
from typing import Any

from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.release.runs import Outcome

DRAWING = "records are drawn"
"""The moment inside the step that draws, after the ledger has its entry."""


class Acting(Silent):
    """A listener that acts when a step of this title begins, each act once.

    Attributes:
        acts: By title of a step, or ``DRAWING``, what has not happened yet.
    """

    def __init__(self, acts: Mapping[str, Callable[[], object]]) -> None:
        self.acts = dict(acts)

    def announce(self, title: str) -> None:
        if title in self.acts:
            self.acts.pop(title)()

    def advance(self, records: int) -> None:
        self.announce(DRAWING)


@contextmanager
def full_disk(title: str, most: int = 10) -> Iterator[Callable[[str], None]]:
    """Give a hearer of titles for which no file can grow past some bytes once a step begins."""
    limits = getrlimit(RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def hear(heard: str) -> None:
        if heard == title:
            setrlimit(RLIMIT_FSIZE, (most, limits[1]))

    try:
        yield hear
    finally:
        setrlimit(RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def refuse_publications(home: Home, *, refuse: bool = True) -> None:
    """Have the ledger's database refuse entries of this kind, or take them again."""
    with sqlite3.connect(home.ledger) as raw:
        raw.execute(
            "CREATE TRIGGER refusing BEFORE INSERT ON entries WHEN NEW.kind = 'publish' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
            if refuse
            else "DROP TRIGGER refusing"
        )


def raising(error: BaseException) -> Callable[[], object]:
    """Make an act that raises this."""

    def act() -> None:
        raise error

    return act


def run_acting(agency: Any, acts: Mapping[str, Callable[[], object]], **arguments: Any) -> Outcome:
    """Run as ``agency.run`` does, with acts that must all happen."""
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
    context = agency.context()
    context.listener = listener = Acting(acts)
    try:
        return run_release(context, Order(agency.config), **arguments)
    finally:
        assert not listener.acts, f"never happened: {[*listener.acts]}"
