"""A year of an agency: daily releases of three datasets, killed at random moments.

Every release is a process of its own. In the end the ledger holds, what was spent is what
was published and what was abandoned, every bundle has its own charge, and nothing private
is left.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from victims import all_ended, press, warm

from tasks.bundle.manifest import verify_bundle
from tasks.ledger.ledger import Ledger
from tasks.ledger_rules.accounts import Status
from tasks.ledger_rules.amounts import Loss
from tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system
DATASETS = ("persons", "households", "firms")
ABREAST = 3
"""Releases at the same moment, of one dataset each."""


@pytest.mark.parametrize(
    "days", [14, pytest.param(365, marks=pytest.mark.benchmark_full)], ids=["quick", "full"]
)
def test_a_year_of_daily_releases(founded: Callable[..., Any], tmp_path: Path, days: int) -> None:
    warm()
    random_ = random.Random(days)
    agencies = {name: _dataset(founded, tmp_path, name, days) for name in DATASETS}
    home = next(iter(agencies.values())).home
    ends: Counter[int] = Counter()
    usual = 60.0  # seconds that a day's releases take if none is killed
    for day in range(days):
        began = time.monotonic()
        fuses = {name: random_.expovariate(20) for name in DATASETS if random_.random() < 0.25}
        victims = {
            name: press(
                agency,
                f"{name}-{day}",
                home=str(home.root),
                fuse=fuses.get(name) if day > 1 else None,
            )
            for name, agency in agencies.items()
        }
        with all_ended(*victims.values()):
            doomed = {name for name in DATASETS if day > 1 and random_.random() < 0.25}
            for name in sorted(doomed, key=lambda _: random_.random()):
                time.sleep(random_.uniform(0, usual / len(doomed)))
                if victims[name].process.is_alive():
                    os.kill(victims[name].process.pid or 0, signal.SIGKILL)
            codes = {name: victim.end() for name, victim in victims.items()}
        if not doomed and not fuses:
            usual = min(usual, time.monotonic() - began)
        for name, code in codes.items():
            said = victims[name].said
            assert (
                code == 0
                or (code == -signal.SIGKILL and name in doomed)
                or (code == -signal.SIGALRM and name in fuses)
            ), said
        ends.update(codes.values())

    _check(agencies, home, ends)


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
        + "products:\n  regions: {kind: table, mechanism: laplace, columns: [region]}\n"
        + "publish: {directory: releases, formats: [csv]}\n"
    )
    agency.config.write_text(agency.text)
    shared = type(agency)(folder.parent / DATASETS[0], agency.inspector)
    shared.register(dataset=name, epsilon=str(days), delta="0")
    return agency


def _check(agencies: dict[str, Any], home: Any, ends: Counter[int]) -> None:
    """What must hold after all that."""
    killed, whole = ends[-signal.SIGKILL] + ends[-signal.SIGALRM], ends[0]
    assert killed and whole
    verify_ledger(home)
    with Ledger.open(home.ledger, create=False) as ledger:
        accounts = ledger.accounts()
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
    assert abandoned  # some died between their charge and their publication
    charges = sum(len(account.charges) for account in accounts.values())
    assert whole <= charges <= whole + killed

    # One more release each: it clears away what killed ones left, and says so.
    for name, agency in agencies.items():
        victim = press(agency, f"{name}-last", home=str(home.root))
        assert victim.end() == 0, victim.said
        assert not [path for path in agency.bundles() if path.name.startswith(".")]
    assert list((home.root / "work").iterdir()) == []
