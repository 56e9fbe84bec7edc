"""Runs whose world breaks while they are at work: one charge, a whole bundle or none, and words.

Each run is a process of its own, held at a step while its process, its ledger's database or the
disk goes; ``test_server.py`` has the orchestrator's server go.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres import Server
from seeded_streams import CLOCK
from victims import InProcess, Victim, all_ended, press, short_of_disk, warm

from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import StatpressError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import Silent
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.review import note_bundle

pytestmark = pytest.mark.system
CODES = StatpressError.exit_codes()


@pytest.fixture
def quick(agency: Any) -> Any:
    return quickly_planned(agency)


def quickly_planned(agency: Any) -> Any:
    """An agency with a release that is planned in no time and named anew each time."""
    warm()
    head, _, _ = agency.text.partition("products:")
    agency.text = (
        head.replace("delta: 1.0e-6", "delta: 0")
        + "products:\n  regions: {kind: table, mechanism: laplace, columns: [region]}\n"
        + "publish: {directory: releases, plots: false, formats: [csv]}\n"
    )
    agency.config.write_text(agency.text)
    return agency


def kinds(agency: Any, address: str | None = None) -> list[str]:
    with Ledger.open(address or agency.home.ledger, create=False) as ledger:
        return [entry.kind for entry in ledger.entries()][1:]


def assert_clean(agency: Any, bundles: int) -> None:
    """Whole bundles alone, no private folder, a ledger that holds."""
    assert list((agency.home.root / "work").iterdir()) == []
    assert len([verify_bundle(path) for path in agency.bundles()]) == bundles
    verify_ledger(agency.home)


@pytest.mark.parametrize(
    ("step", "number", "ledger", "said"),
    [
        pytest.param("charge_ledger", signal.SIGKILL, ["look"], "", marks=pytest.mark.nightly),
        ("draw_records", signal.SIGKILL, ["look", "charge"], "never began to draw"),
        pytest.param("write_products", signal.SIGKILL, ["look", "charge", "draw"],
                     "Its budget stays spent", marks=pytest.mark.nightly),
        pytest.param("write_products", signal.SIGTERM, ["look", "charge", "draw"],
                     "Its budget stays spent", marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_a_run_that_is_ended_and_the_next(
    quick: Any, step: str, number: int, ledger: list[str], said: str
) -> None:
    ended = press(quick, "ended", hold=step).held().end(number)
    assert ended == (130 if number == signal.SIGTERM else -number)
    assert kinds(quick) == ledger
    assert [path for path in quick.bundles() if not path.name.startswith(".")] == []
    following = press(quick, "next")
    assert following.end() == 0, following.said
    assert ("Removed the private folder of run" in following.said) is (number == signal.SIGKILL)
    assert said in following.said and (bool(said) or "was charged" not in following.said)
    assert kinds(quick) == [*ledger, "look", "charge", "draw", "publish"]
    assert_clean(quick, 1)
    last = press(quick, "last")  # it was said; the history has it
    assert last.end() == 0
    told = [line for line in last.said.splitlines() if "TOLD" in line]
    assert all("is bound to no source" in line for line in told)


def test_a_run_started_again_goes_on_and_says_so(quick: Any) -> None:
    run_id = new_run_id()
    press(quick, "ended", hold="draw_records", run_id=run_id).held().end(signal.SIGKILL)
    again = press(quick, "again", run_id=run_id)
    assert again.end() == 0, again.said
    assert "goes on with that charge" in again.said
    assert kinds(quick) == ["look", "charge", "look", "draw", "publish"]
    assert_clean(quick, 1)
    quick.replace("title: Test release", "title: Another release")
    third = press(quick, "third", run_id=run_id)
    assert third.end() == 0 and "This run is done already: published" in third.said
    assert kinds(quick) == ["look", "charge", "look", "draw", "publish"]


def test_one_schedule_that_fires_twice_is_one_run(quick: Any) -> None:
    run_id = new_run_id()
    first = press(quick, "first", hold="count_once", run_id=run_id)
    with all_ended(first):
        first.held()
        second = press(quick, "second", run_id=run_id)
        assert second.end() == CODES["OutputNotWritableError"]
        assert "at work in another process" in second.said
        assert first.go().end() == 0, first.said
    assert kinds(quick) == ["look", "charge", "draw", "publish"]
    assert_clean(quick, 1)


def together(*victims: Victim) -> list[int]:
    """Let them go on at the same moment."""
    with all_ended(*victims):
        for victim in victims:
            victim.held()
        for victim in victims:
            victim.go()
        return sorted(victim.end() for victim in victims)


@pytest.mark.nightly
def test_one_run_on_two_machines_draws_once(
    quick: Any, founded: Callable[..., Any], postgres_url: str, tmp_path: Path
) -> None:
    """Two homes share a ledger; no lock of a folder keeps them apart."""
    fields = quick.entries()[0].body
    with Ledger.open(postgres_url) as ledger:
        ledger.register(**{k: v for k, v in fields.items() if k != "created"})
    (tmp_path / "other").mkdir()
    other = founded(tmp_path / "other")
    other.config.write_text(quick.text)
    run_id = new_run_id()
    order = {"hold": "charge_ledger", "run_id": run_id, "address": postgres_url}
    codes = together(press(quick, "a", **order), press(other, "b", **order))
    assert codes == [0, CODES["LedgerError"]]
    assert kinds(quick, postgres_url) == ["look", "look", "charge", "draw", "publish"]
    assert len(quick.bundles() + other.bundles()) == 1


@pytest.mark.nightly
def test_two_runs_of_one_dataset_with_budget_for_one(quick: Any) -> None:
    with Ledger.open(quick.home.ledger) as ledger:
        ledger.amend(dataset="testdata", epsilon="1.5")
    victims = [press(quick, name, hold="charge_ledger") for name in "ab"]
    assert together(*victims) == [0, CODES["InsufficientBudgetError"]]
    assert kinds(quick) == ["amend-policy", "look", "look", "charge", "draw", "publish"]
    assert_clean(quick, 1)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """A database server that these tests stop and start."""
    with Server() as server:
        yield server


def test_the_ledgers_database_is_gone_and_back(quick: Any, mortal: Server) -> None:
    address = mortal.database()
    with Ledger.open(address) as ledger:
        ledger.register(**{k: v for k, v in quick.entries()[0].body.items() if k != "created"})
    held = {
        step: press(quick, step, hold=step, address=address)
        for step in ("rehearse", "charge_ledger", "draw_records", "publish_bundle")
    }
    with all_ended(*held.values()):
        for victim in held.values():
            victim.held()
        mortal.stop(immediate=True)
        assert held["charge_ledger"].go().end() == CODES["LedgerUnavailableError"]
        assert held["draw_records"].go().end() == CODES["LedgerUnavailableError"]
        assert held["publish_bundle"].go().end() == CODES["LedgerUnavailableError"]
        mortal.start()
        assert held["rehearse"].go().end() == 0, held["rehearse"].said
    assert "cannot be reached" in held["draw_records"].said
    assert "ledger note" in held["publish_bundle"].said
    home = type(quick.home)(quick.home.root, address)
    found = kinds(quick, address)
    assert sorted(found) == ["charge"] * 3 + ["draw"] * 2 + ["look"] * 4 + ["publish"]
    unnoted = [path for path in quick.bundles() if path.name in held["publish_bundle"].said]
    note_bundle(home, unnoted[0])
    assert len(quick.bundles()) == 2
    for path in quick.bundles():
        check_bundle(home, path, verify_bundle(path))
    verify_ledger(home)


@pytest.mark.parametrize(
    ("step", "kind", "ledger", "said"),
    [
        pytest.param("rehearse", "OutputNotWritableError", [], "Nothing was charged",
                     marks=pytest.mark.nightly),
        pytest.param("charge_ledger", "LedgerUnavailableError", ["look"], "ledger",
                     marks=pytest.mark.nightly),
        (
            "write_products",
            "OutputNotWritableError",
            ["look", "charge", "draw"],
            "charged, and stays so",
        ),
        pytest.param("publish_bundle", "OutputNotWritableError", ["look", "charge", "draw"],
                     "charged, and stays so", marks=pytest.mark.nightly),
    ],
)  # fmt: skip
def test_a_full_disk(quick: Any, step: str, kind: str, ledger: list[str], said: str) -> None:
    victim = press(quick, "full", hold=step, before=short_of_disk).held().go()
    assert victim.end() == CODES[kind], victim.said
    assert said in victim.said
    assert kinds(quick) == ledger
    assert_clean(quick, 0)


class Backwards(Silent):
    """Sets the clock back by years whenever a step begins."""

    def __init__(self) -> None:
        self._years = 20

    def announce(self, title: str) -> None:
        self._years -= 1
        CLOCK.shift(self._years * 365 * 24 * 60 * 60)


def test_a_clock_that_jumps_back(quick: Any) -> None:
    """The chain's order is the truth: no date is compared with another."""
    runs, clock = [], Backwards()
    for _ in range(2):
        quick.inspector = InProcess(CuratorLog(quick.home.folder("curator"), new_run_id()))
        context = quick.context()
        context.listener = clock
        runs.append(run_release(context, Order(quick.config)))
    CLOCK.shift(0)
    assert kinds(quick) == ["look", "charge", "draw", "publish"] * 2
    dates = [entry.body["created"] for entry in quick.entries()[1:]]
    assert dates == sorted(dates, reverse=True) and len(set(dates)) == 8
    assert_clean(quick, 2)
    for run in runs:
        check_bundle(quick.home, run.bundle, verify_bundle(run.bundle))
    assert os.listdir(quick.home.root / "work") == []
