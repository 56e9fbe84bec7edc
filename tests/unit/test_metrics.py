"""Metrics in Prometheus' format: what the ledger says, never more than is left, whole or not."""

from __future__ import annotations

import time
from decimal import Decimal
from pathlib import Path

import pytest
from census_ledger import charge, register
from prepared import Office
from prometheus_client.parser import text_string_to_metric_families

from statpress.flows.cli.upkeep_commands import write_metrics
from statpress.mechanisms.errors import LedgerIntegrityError, OutputNotWritableError
from statpress.tasks.ledger.export import write_export
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.upkeep.checkup import metrics

Samples = dict[tuple[str, ...], float]


def read(text: str) -> Samples:
    """Every sample, as Prometheus' own parser reads it: its name, its labels' values by label."""
    families = text_string_to_metric_families(text)
    return {(s.name, *s.labels.values()): s.value for each in families for s in each.samples}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose account was charged, looked at once and refused once."""
    made = Home(tmp_path / "home")
    made.folder("")
    with open_ledger(made, create=True) as ledger:
        register(ledger, max_looks=9)
        charge(ledger)
        ledger.look(run="r" * 32, dataset="census", config_sha256="a" * 64, gates="exact")
        ledger.refuse(run_id="s" * 32, dataset="census", config_sha256="a" * 64)
    return made


def test_they_say_what_the_ledger_says(home: Home, tmp_path: Path) -> None:
    found = read(metrics(home))
    assert found["statpress_budget_limit", "census", "epsilon", "basic"] == 1
    assert found["statpress_budget_left", "census", "epsilon", "basic"] == pytest.approx(0.9)
    assert found["statpress_budget_left", "census", "delta", "basic"] == pytest.approx(1e-8)
    assert found["statpress_looks_left", "census"] == 8
    assert found["statpress_refusals_left", "census"] == 19
    assert found["statpress_ledger_entries",] == 4
    assert not any(name[0] == "statpress_last_upkeep_timestamp_seconds" for name in found)
    with open_ledger(home) as ledger:
        assert ledger.memory is not None
        ledger.memory.note("verified", 4, "a" * 64)
        write_export(ledger, tmp_path / "export.jsonl")
    found = read(metrics(home))
    times = [found["statpress_last_upkeep_timestamp_seconds", a] for a in ("verified", "exported")]
    now = time.time()
    assert all(now - 600 < time < now + 600 for time in times)


def test_an_account_by_rho_and_a_name_with_other_letters(home: Home) -> None:
    with open_ledger(home) as ledger:
        terms = {"adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": 9}
        ledger.register(dataset="Löhne 2000", policy="zcdp", rho="0.1", rho_delta=0, **terms)
    found = read(metrics(home))
    left = found["statpress_budget_left", "Löhne 2000", "rho", "zcdp"]
    assert Decimal(left) <= Decimal("0.1") < Decimal(left) + Decimal("1e-15")


def test_what_waits_is_counted(tmp_path: Path) -> None:
    office = Office(tmp_path)
    found = read(metrics(office.home))
    assert found["statpress_releases_waiting", "census", "decision"] == 1
    assert found["statpress_releases_waiting", "census", "publication"] == 0


def test_a_file_is_replaced_in_one_step_for_all_to_read(home: Home, tmp_path: Path) -> None:
    place = tmp_path / "collector" / "statpress.prom"
    with pytest.raises(OutputNotWritableError, match="No such file"):
        write_metrics(place, metrics(home))
    place.parent.mkdir()
    place.write_text("old")
    before = place.stat().st_ino
    write_metrics(place, metrics(home))
    assert place.stat().st_ino != before and place.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in place.parent.iterdir()] == [place.name]
    assert read(place.read_text())


def test_a_ledger_cut_back_has_no_metrics(home: Home) -> None:
    for name in ("", "-wal", "-shm"):
        (home.root / f"ledger.sqlite{name}").unlink(missing_ok=True)
    with open_ledger(home, create=True):
        pass
    with pytest.raises(LedgerIntegrityError, match="The ledger is empty"):
        metrics(home)
