"""SIGKILL anywhere in a run: a whole bundle or none, and a ledger that knows every draw.

Each point is a fork of this process that runs the real flow and kills itself there, or a copy
of the files that such a process would leave.
Points are the borders of every step, and every call to the operating system that
touches the run's folders, as Python's audit events report them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from followed_runs import Follower, run_followed
from victims import InProcess

from statpress.configs.loading import PlannedOrder, load_order
from statpress.configs.order import Order
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system

STEPS = (
    "rehearse", "record look", "check input", "count once", "check counts", "charge ledger",
    "draw records", "post-process", "write bundle", "check release", "publish", "end",
)  # fmt: skip
"""Titles of the steps before which there is something that a death could leave."""
QUICK = ("charge ledger", "draw records", "publish", "end")
EVENTS = ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "sqlite3.connect")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(
    agency: Any, arm: Callable[[], None], order: PlannedOrder | None = None, die_before: str = ""
) -> int:
    """Run the flow in a fork in which ``arm``, or a step, has set the point of death."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            follower = Follower(die_before, die)

            def drawn() -> None:
                (agency.folder / "drawn").write_text("a random bit may have been used")

            follower.acts.setdefault("draw records", drawn)
            arm()
            run_followed(agency, follower, order)
            if die_before == "end":
                die()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def assert_sound(agency: Any) -> None:
    """No half bundle is visible, and the ledger holds at least what was drawn."""
    verify_ledger(agency.home)
    charged = [entry for entry in agency.entries() if entry.kind == "charge"]
    visible = [path for path in agency.bundles() if not path.name.startswith(".")]
    for bundle in visible:
        assert verify_bundle(bundle)["ledger_entry"]["hash"] == charged[0].hash
    if visible or (agency.folder / "drawn").exists():
        assert len(charged) == 1


def assert_next_run_is_clean(agency: Any) -> None:
    """The next run succeeds beside what the killed one left, and removes its folders."""
    agency.replace("name: first", "name: next")
    agency.run()
    assert list((agency.home.root / "work").iterdir()) == []
    names = {path.name for path in agency.bundles()}
    assert names <= {"first", "next"}
    verify_bundle(agency.releases / "next")
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        account = ledger.account("testdata")
    assert sum(charge.published for charge in account.charges.values()) >= 1


@pytest.fixture
def quick(agency: Any) -> Any:
    """One product, planned in no time, and the gates in this process."""
    births = (
        "  births: {accept: mostly_noise, kind: microdata, mechanism: bootstrap, "
        "columns: [born], share: 0.5}\n"
    )
    agency.replace(births, "")
    agency.replace("pay], share: 0.5}", "pay]}")
    agency.inspector = InProcess(None)
    return agency


@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=[] if s in QUICK else pytest.mark.nightly) for s in STEPS]
)
def test_killed_before_a_step(quick: Any, step: str) -> None:
    status = in_child(quick, lambda: None, die_before=step)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert_sound(quick)
    assert_next_run_is_clean(quick)


def watch(folder: Path, seen: Callable[[], None]) -> None:
    """Call ``seen`` at every audited call that touches the folder."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and any(str(folder) in str(a) for a in arguments[:2]):
            seen()

    sys.addaudithook(hook)


def snapshots(agency: Any, order: PlannedOrder, kept: Path) -> list[Path]:
    """Run once in a fork, and copy the folder at every audited call that touches it.

    A process that is killed leaves its files as they are at that moment and nothing else, so
    that each copy is what SIGKILL would leave there.
    """
    kept.mkdir()
    number, copying = count(), threading.local()
    one_at_a_time = threading.Lock()

    def copy() -> None:
        if getattr(copying, "now", False):
            return
        with one_at_a_time:
            copying.now = True
            shutil.copytree(agency.folder, kept / f"{next(number):04}")
            copying.now = False

    assert in_child(agency, lambda: watch(agency.folder, copy), order) == 0
    return sorted(kept.iterdir())


def all_that_is_seen(folder: Path) -> dict[str, bytes]:
    """The files of a copy that decide whether it is sound: none of a run's private folder."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {
        str(path): (folder / path).read_bytes()
        for path in paths
        if path.parts[:2] != ("home", "work") and not str(path).startswith("releases/.")
    }


def n_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def test_killed_at_every_call_that_touches_its_folders(
    quick: Any, tmp_path_factory: pytest.TempPathFactory, full: bool
) -> None:
    """One process in so many is killed; of the calls between them a copy shows what is left."""
    apart = 20 if full else 80
    planned = PlannedOrder.of(Order(quick.config))  # the same for all, but for its places
    left = snapshots(quick, planned, tmp_path_factory.mktemp("kept") / "copies")
    files = [n_files(copy) for copy in left]
    assert len(left) > 40 and len(set(files)) > 10
    before = None
    for copy in left:
        seen = all_that_is_seen(copy)
        if seen != before:
            shutil.rmtree(quick.folder)
            copy.rename(quick.folder)
            assert_sound(quick)
        before = seen
    for point in range(apart, len(left) + 1, apart):
        folder = tmp_path_factory.mktemp("killed")
        agency = type(quick)(folder, quick.inspector, quick.text)
        agency.config.write_text(agency.text)
        agency.source.parent.mkdir()
        agency.source.write_bytes(quick.source.read_bytes())
        agency.register()
        order = replace(
            planned, order=Order(agency.config), release=load_order(Order(agency.config))
        )
        calls = iter(range(1, len(left) + 2))

        def strike(point: int = point, calls: Iterator[int] = calls) -> None:
            if next(calls) == point:
                die()

        status = in_child(agency, lambda f=folder, s=strike: watch(f, s), order)
        assert os.WIFSIGNALED(status), f"point {point} of {len(left)} was not reached"
        assert n_files(folder) == files[point - 1]
        assert_sound(agency)
        assert_next_run_is_clean(agency)
