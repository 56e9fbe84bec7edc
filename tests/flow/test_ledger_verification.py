"""The flow that verifies the ledger on a schedule, without the orchestrator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mechanisms.errors import LedgerError, StatpressError
from tasks.execution.private_zone import CuratorLog
from tasks.release.ledger_check import confirm_ledger

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
