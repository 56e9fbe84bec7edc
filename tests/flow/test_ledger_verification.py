"""The flow that verifies the ledger on a schedule, without the orchestrator.

It wants the last head that the home has seen, and one that is given, in the chain.
"""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from statpress.flows.deployed import confirm_ledger, verify
from statpress.mechanisms.domain.domain import Adjacency, Privacy, Unit
from statpress.mechanisms.errors import LedgerError, LedgerIntegrityError, StatpressError
from statpress.tasks.ledger.home_ledger import register_dataset
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.release.ledger_check import verify_ledger

PRIVACY = Privacy(adjacency=Adjacency.REPLACE_ONE, unit=Unit.RECORD, n_records=10)
ALWAYS = "The ledger could not be verified."


def test_whole_ledger(agency: Any) -> None:
    log = CuratorLog(agency.home.folder("curator"), "whole")
    confirm_ledger(agency.home, log, None)
    head = agency.entries()[-1].hash
    assert log.path.read_text() == f"The ledger holds: 1 entries, head {head}.\n"


@pytest.mark.parametrize("flaw", ["no ledger", "no key"])
def test_only_the_curator_learns_why_it_failed(agency: Any, tmp_path: Path, flaw: str) -> None:
    log = CuratorLog(agency.home.folder("curator"), "broken")
    if flaw == "no ledger":
        agency.home.ledger.unlink()
    key = str(tmp_path / "nothing.pem") if flaw == "no key" else None
    with pytest.raises(StatpressError) as caught:
        confirm_ledger(agency.home, log, key)
    assert type(caught.value) is LedgerError
    assert caught.value.what == ALWAYS and caught.value.where == ""
    assert caught.value.__context__ is None
    assert log.path.read_text().startswith("SigningKey: " if key else "LedgerUnavailable: ")


def emptied(agency: Any, kept: int = 0) -> None:
    """Put a ledger with the first entries in place of the agency's."""
    entries = agency.entries()[:kept]
    for suffix in ("", "-wal", "-shm"):
        Path(f"{agency.home.ledger}{suffix}").unlink(missing_ok=True)
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.restore(iter(entries))


def confirmed(agency: Any, name: str, **given: Any) -> str:
    """What a verification that ends in an error wrote for the curator."""
    log = CuratorLog(agency.home.folder("curator"), name)
    with pytest.raises(LedgerError, match=ALWAYS):
        confirm_ledger(agency.home, log, **given)
    return str(log.path.read_text())


def test_an_emptied_ledger_fails_where_the_home_has_seen_entries(agency: Any) -> None:
    confirm_ledger(agency.home, CuratorLog(agency.home.folder("curator"), "first"))
    emptied(agency)
    said = confirmed(agency, "emptied")
    assert "The ledger is empty, and this home has seen entry 1 of it" in said
    with pytest.raises(LedgerIntegrityError, match="The ledger is empty"):
        verify_ledger(agency.home)
    with pytest.raises(LedgerIntegrityError, match="The ledger is empty"):
        register_dataset(agency.home, "other", PRIVACY, epsilon="1", delta="0")


def test_a_ledger_rolled_back_or_rewritten_fails(agency: Any) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.amend(dataset="testdata", epsilon="4", reason="first")
    confirm_ledger(agency.home, CuratorLog(agency.home.folder("curator"), "first"))
    emptied(agency, 1)
    assert "ends without the head" in confirmed(agency, "rolled back")
    with pytest.raises(LedgerIntegrityError, match="ends without the head"):
        agency.run()
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.amend(dataset="testdata", epsilon="5", reason="rewritten")
    assert "ends without the head" in confirmed(agency, "rewritten")
    (kept,) = (agency.home.root / "heads").iterdir()
    assert str(kept) in confirmed(agency, "which file")
    kept.write_text("{}")
    assert "cannot be read" in confirmed(agency, "damaged")
    kept.unlink()  # as the error says, once a backup was restored on purpose
    confirm_ledger(agency.home, CuratorLog(agency.home.folder("curator"), "again"))


def test_registering_is_seen_and_a_later_head_is_kept(agency: Any) -> None:
    register_dataset(agency.home, "other", PRIVACY, epsilon="1", delta="0")
    (kept,) = (agency.home.root / "heads").iterdir()
    assert json.loads(kept.read_text())["head"] == agency.entries()[-1].hash
    assert kept.stat().st_mode & 0o777 == 0o600
    with Ledger.open(agency.home.ledger) as ledger:
        entry = ledger.amend(dataset="other", epsilon="2", reason="later")
    verify_ledger(agency.home)
    assert json.loads(kept.read_text()) == {
        "ledger": str(agency.home.ledger), "entries": 3, "head": entry.hash, "reserved": []
    }  # fmt: skip


def test_the_deployed_verification_wants_a_given_head(agency: Any) -> None:
    head = agency.entries()[-1].hash
    confirm_ledger(agency.home, CuratorLog(agency.home.folder("curator"), "held"), head=head)
    assert "without the head" in confirmed(agency, "not held", head="a" * 64)
    assert list(signature(verify.fn).parameters) == ["public_key", "head"]
