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
from victims import InProcess

import statpress.flows.release
import statpress.tasks.release.steps
from statpress.configs.loading import PlannedOrder, load_order
from statpress.configs.order import Order
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system

STEPS = (
    "read_config", "fix_plan", "check_budget", "rehearse", "check_input", "count_once",
    "check_counts",
    "charge_ledger", "draw_records", "write_products", "check_products", "publish_bundle",
)  # fmt: skip
LATER = STEPS[3:]
"""Steps before which there is something that a death could leave."""
EVENTS = ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "sqlite3.connect")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(agency: Any, arm: Callable[[], None], order: PlannedOrder | None = None) -> int:
    """Run the flow in a fork in which ``arm`` has set the point of death."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            marker = agency.folder / "drawn"
            honest = statpress.tasks.release.steps.generator

            def noted(*arguments: Any, **named: Any) -> Any:
                marker.write_text("a random bit may have been used")
                return honest(*arguments, **named)

            statpress.tasks.release.steps.generator = noted
            arm()
            agency.run(order)
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


# After a step is before the next, but for the last.
@pytest.mark.parametrize(
    ("step", "after"),
    [
        pytest.param(
            step, after, id=f"{step}-{'after' if after else 'before'}",
            marks=[pytest.mark.nightly] * (step != STEPS[-1] if after else step not in LATER),
        )
        for step in STEPS
        for after in (False, True)
    ],
)  # fmt: skip
def test_killed_at_a_steps_border(quick: Any, step: str, after: bool) -> None:
    honest = getattr(statpress.flows.release, step)

    def lethal(*arguments: Any, **named: Any) -> Any:
        if not after:
            die()
        honest(*arguments, **named)
        die()

    status = in_child(quick, lambda: setattr(statpress.flows.release, step, lethal))
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


@pytest.mark.parametrize(
    "apart", [60, pytest.param(20, marks=pytest.mark.nightly)], ids=["quick", "full"]
)
def test_killed_at_every_call_that_touches_its_folders(
    quick: Any, tmp_path_factory: pytest.TempPathFactory, apart: int
) -> None:
    """One process in so many is killed; of the calls between them a copy shows what is left."""
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
