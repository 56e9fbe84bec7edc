"""Processes that race for one period of a series, and processes that are killed at one.

However many release a period at once, on one machine or on several that share a ledger, it is
charged, drawn and published once; what is killed harms no other period.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from monthly import monthly
from victims import all_ended, press, warm

from statpress.mechanisms.errors import LedgerError, OutputNotWritableError, PeriodError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system


@pytest.fixture
def office(founded: Callable[..., Any], tmp_path: Path) -> Any:
    """An agency with a series and three of its files."""
    agency = founded(tmp_path)
    monthly(agency, "2020-01")
    for month in ("2020-01", "2020-02", "2020-03"):
        shutil.copy(agency.source, agency.source.parent / f"{month}.parquet")
    warm()
    return agency


@pytest.mark.parametrize(
    ("runs", "at_once"),
    [(8, 6), pytest.param(100, 10, marks=pytest.mark.nightly)],
    ids=["quick", "full"],
)
@pytest.mark.parametrize("homes", [1, 3])
def test_racing_runs_publish_a_period_once(
    office: Any, runs: int, at_once: int, homes: int
) -> None:
    """Those of one home see each other; those of several share a ledger and nothing else.

    So many are at work at a time; the next begin as these end, so that some come late.
    """
    places = [office.folder / f"home-{number}" for number in range(homes)]
    for place in places:
        place.mkdir(mode=0o700)
    ledger = str(office.home.root / "ledger.sqlite")
    address = {} if homes == 1 else {"address": ledger}
    roots = [office.home.root] if homes == 1 else places
    codes = []
    for begin in range(0, runs, at_once):
        victims = [
            press(
                office, f"racing-{n}", home=str(roots[n % len(roots)]), period="2020-01", **address
            )
            for n in range(begin, min(begin + at_once, runs))
        ]
        with all_ended(*victims):
            codes += [victim.end() for victim in victims]
    refused = {kind.exit_code for kind in (LedgerError, OutputNotWritableError, PeriodError)}
    assert set(codes) <= refused | {0} and codes.count(0)
    (bundle,) = (office.releases / "lfs" / "2020-01").iterdir()
    verify_bundle(bundle)
    kinds = [entry.kind for entry in office.entries()]
    assert [kinds.count(kind) for kind in ("charge", "draw", "publish")] == [1, 1, 1]
    verify_ledger(office.home)


@pytest.mark.parametrize(
    "step",
    ["draw_records", "write_products", pytest.param("publish_bundle", marks=pytest.mark.nightly)],
)
def test_a_kill_leaves_the_other_periods_unharmed(office: Any, step: str) -> None:
    victim = press(office, "killed", period="2020-02", hold=step)
    with all_ended(victim):
        victim.held().end(signal.SIGKILL)
    for month in ("2020-01", "2020-03"):
        following = press(office, month, period=month)
        with all_ended(following):
            assert following.end() == 0, following.said
    again = press(office, "again", period="2020-02")
    with all_ended(again):
        code = again.end()
    resumed = step == "draw_records"  # it had drawn nothing
    assert code == (0 if resumed else PeriodError.exit_code), again.said
    with Ledger.open(office.home.ledger, create=False) as ledger:
        statuses = [charge.status for charge in ledger.state().charges.values()]
    assert statuses == [Status.PUBLISHED if resumed else Status.DRAWN, *[Status.PUBLISHED] * 2]
    assert (office.releases / "lfs" / "latest").resolve().parent.name == "2020-03"
