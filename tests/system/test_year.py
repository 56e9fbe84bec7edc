"""A year of an agency: daily releases of three datasets, some of which are killed.

Every release is a process of its own. Those that are killed die before a chosen step, while
the others are at work, or at a random moment after they went to charge the ledger. In the end
the ledger holds, what was spent is what was published and what was abandoned, every bundle has
its own charge, and nothing private is left.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from victims import all_ended, press, warm

from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import Loss
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system
DATASETS = ("persons", "households", "firms")
UNCHARGED, ABANDONED = "count_once", ("draw_records", "write_products", "publish_bundle")
"""Steps before which a release is killed: before its charge, and before its publication."""


@pytest.mark.parametrize(
    "days", [4, pytest.param(365, marks=pytest.mark.nightly)], ids=["quick", "full"]
)
def test_a_year_of_daily_releases(founded: Callable[..., Any], tmp_path: Path, days: int) -> None:
    warm()
    random_ = random.Random(days)
    agencies = {name: _dataset(founded, tmp_path, name, days) for name in DATASETS}
    home = next(iter(agencies.values())).home
    ends: Counter[int] = Counter()
    dooms = cycle((*ABANDONED, UNCHARGED))
    abandoned = 0
    for day in range(days):
        doomed = {name: next(dooms) for name in DATASETS if day > 1 and random_.random() < 0.25}
        fuses = {
            name: random_.expovariate(20)
            for name in DATASETS
            if day > 1 and name not in doomed and random_.random() < 0.25
        }
        abandoned += sum(step in ABANDONED for step in doomed.values())
        victims = {
            name: press(
                agency,
                f"{name}-{day}",
                home=str(home.root),
                hold=doomed.get(name),
                fuse=fuses.get(name),
            )
            for name, agency in agencies.items()
        }
        with all_ended(*victims.values()):
            codes = {name: victims[name].held().end(signal.SIGKILL) for name in doomed}
            codes |= {name: victims[name].end() for name in DATASETS if name not in doomed}
        for name, code in codes.items():
            said = victims[name].said
            expected = {-signal.SIGKILL} if name in doomed else {0}
            assert code in expected | ({-signal.SIGALRM} if name in fuses else set()), said
        ends.update(codes.values())

    assert abandoned
    _check(agencies, home, ends, abandoned)


def _dataset(found: Callable[..., Any], folder: Path, name: str, days: int) -> Any:
    """An agency with one dataset, planned in no time, and the budget of all its days."""
    folder = folder / name
    folder.mkdir()
    agency = found(folder)
    head, _, _ = agency.text.partition("products:")
    agency.text = (
        head.replace("dataset: testdata", f"dataset: {name}")
        .replace("delta: 1.0e-6", "delta: 0")
        .replace("epsilon: 1.0", "epsilon: 0.01")
        + "products:\n  regions: {accept: mostly_noise, kind: table, mechanism: laplace, "
        + "columns: [region]}\n"
        + "publish: {directory: releases, plots: false, formats: [csv]}\n"
    )
    agency.config.write_text(agency.text)
    shared = type(agency)(folder.parent / DATASETS[0], agency.inspector)
    shared.register(dataset=name, epsilon=str(days), delta="0", max_looks=10 * days)
    return agency


def _check(agencies: dict[str, Any], home: Any, ends: Counter[int], least: int) -> None:
    """What must hold after all that."""
    killed, whole = ends[-signal.SIGKILL] + ends[-signal.SIGALRM], ends[0]
    assert killed and whole
    verify_ledger(home)
    with Ledger.open(home.ledger, create=False) as ledger:
        accounts = ledger.state().accounts
    hashes: list[str] = []
    published = 0
    for name, agency in agencies.items():
        account = accounts[name]
        spent = Loss.nothing()
        for charge in account.charges.values():
            assert charge.status is not Status.VOID
            spent += charge.loss
        assert spent == account.spent
        for path in agency.bundles():
            if path.name.startswith("."):
                continue  # of a killed run, under construction
            manifest = verify_bundle(path)
            charge = account.charges[manifest["run_id"]]
            assert "draw" in charge.later
            assert manifest["ledger_entry"]["hash"] == charge.entry.hash
            hashes.append(charge.entry.hash)
        published += sum(charge.published for charge in account.charges.values())
    assert len(hashes) == len(set(hashes)) >= published >= whole
    abandoned = [
        charge
        for account in accounts.values()
        for charge in account.charges.values()
        if charge.status in (Status.RESERVED, Status.DRAWN)
    ]
    assert len(abandoned) >= least  # died between their charge and their publication
    assert {charge.status for charge in abandoned} == {Status.RESERVED, Status.DRAWN}
    charges = sum(len(account.charges) for account in accounts.values())
    assert whole <= charges <= whole + killed

    # One more release each: it clears away what killed ones left, and says so.
    for name, agency in agencies.items():
        victim = press(agency, f"{name}-last", home=str(home.root))
        assert victim.end() == 0, victim.said
        assert not [path for path in agency.bundles() if path.name.startswith(".")]
    assert list((home.root / "work").iterdir()) == []
