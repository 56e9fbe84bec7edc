"""A ledger cut back, restored or seen from elsewhere: never two draws for one charge.

Each attack is made on a real run, with the ledger in the home and in PostgreSQL.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from census_ledger import KEY
from followed_runs import Follower, fail, run_followed
from ledger_damage import cut_back

from statpress.mechanisms.errors import (
    ApprovalError,
    LedgerError,
    LedgerIntegrityError,
    OutputNotWritableError,
    StatpressError,
)
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.private_zone.folders import Home

pytestmark = pytest.mark.system


@pytest.fixture
def agency(agency_of_either: Any) -> Any:
    return agency_of_either


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def void(home: Home, run_id: str, **words: Any) -> None:
    with open_ledger(home) as ledger:
        ledger.void(run_id=run_id, dataset="testdata", reason="it never drew", **words)


def test_a_published_run_that_the_ledger_forgot_neither_draws_nor_is_given_back(
    agency: Any,
) -> None:
    outcome = agency.run()
    outcome.bundle.rename(agency.folder / "aside")  # its name is free again
    cut_back(agency.home, 3)
    assert kinds(agency) == ["register", "look", "charge"]
    with pytest.raises(LedgerError, match="never undone and never repeated"):
        void(agency.home, outcome.run_id)
    with pytest.raises(LedgerIntegrityError, match="entry 5: it was truncated"):
        agency.run_again()
    first = agency.inspector.log
    with pytest.raises(LedgerIntegrityError, match="entry 5: it was truncated"):
        agency.run()
    agency.inspector.log = first
    shutil.rmtree(agency.home.root / "heads")  # what the error tells an operator to remove
    with pytest.raises(LedgerError, match="never undone and never repeated"):
        void(agency.home, outcome.run_id, elsewhere=True)
    with pytest.raises(LedgerError, match="never undone and never repeated"):
        agency.run_again()
    assert kinds(agency) == ["register", "look", "charge"]
    assert agency.bundles() == []


def test_a_charge_is_given_back_where_it_was_made(agency: Any, tmp_path: Path) -> None:
    with pytest.raises(StatpressError):
        run_followed(agency, Follower("draw records", fail(RuntimeError)))
    run_id = agency.inspector.log.run_id
    elsewhere = Home(tmp_path / "elsewhere", str(agency.home.ledger))
    with pytest.raises(LedgerError, match="did not charge the run"):
        void(elsewhere, run_id)
    with open_ledger(elsewhere) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(KEY)])
    with pytest.raises(ApprovalError, match="did not charge the run"):
        void(elsewhere, run_id, elsewhere=True)
    if agency.address:  # a colleague's home has other paths to the same ledger
        void(replace(elsewhere, address=agency.address), run_id, key=KEY)
    else:
        void(agency.home, run_id)
    assert kinds(agency) == ["register", "look", "charge", "set-approvers", "void"]
    with pytest.raises(LedgerError, match="void"):
        agency.run_again()


def test_a_run_that_is_done_is_not_done_again(agency: Any) -> None:
    outcome = agency.run()
    seen = kinds(agency)
    agency.source.unlink()
    again = agency.run_again()
    assert (again.bundle, again.ledger_entry) == (outcome.bundle, outcome.ledger_entry)
    assert kinds(agency) == seen
    assert agency.bundles() == [outcome.bundle]


def test_nothing_is_drawn_that_the_home_cannot_remember(agency: Any) -> None:
    (agency.home.root / "drawn").write_text("in the way")
    follower = Follower()
    with pytest.raises(OutputNotWritableError, match="home folder cannot be made"):
        run_followed(agency, follower)
    assert follower.steps[-1] == "draw records" and follower.records == 0  # no bit is drawn
    assert kinds(agency) == ["register", "look", "charge", "draw"]
    assert agency.bundles() == []
