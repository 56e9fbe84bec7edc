"""The same run started again: charged once, drawn once, whatever had happened before."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from acting import DRAWING, Acting, raising, refuse_publications, run_acting

from statpress.configs.loading import PlannedOrder, load
from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import (
    BundleVerificationError,
    InternalError,
    LedgerError,
    StatpressError,
)
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.bundle.manifest import seal, verify_bundle
from statpress.tasks.ledger.entries import Loss
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.release.ledger_check import check_bundle, recomputed, verify_ledger
from statpress.tasks.release.review import note_bundle


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def cut_off(agency: Any, moment: str) -> None:
    """Run until this moment, at which the run breaks."""
    with pytest.raises(InternalError):
        run_acting(agency, {moment: raising(ArithmeticError())})


def test_a_run_cut_before_it_drew_goes_on_with_its_charge(agency: Any) -> None:
    cut_off(agency, "draw records")
    assert kinds(agency) == ["register", "look", "charge"]
    outcome = agency.run_again()
    assert kinds(agency) == ["register", "look", "charge", "look", "draw", "publish"]
    assert outcome.ledger_entry == agency.entries()[2].hash
    check_bundle(agency.home, outcome.bundle, verify_bundle(outcome.bundle))


def test_a_run_cut_while_it_drew_never_draws_again(agency: Any) -> None:
    cut_off(agency, DRAWING)
    assert kinds(agency) == ["register", "look", "charge", "draw"]
    with pytest.raises(LedgerError, match="may have drawn"):
        agency.run_again()
    run_id = agency.inspector.log.run_id
    with Ledger.open(agency.home.ledger) as ledger:
        with pytest.raises(LedgerError, match="stays spent"):
            ledger.void(run_id=run_id, dataset="testdata", reason="it failed")
        assert ledger.account("testdata").spent["epsilon"] > 0
    assert agency.bundles() == []


def test_a_run_whose_charge_is_void_never_draws(agency: Any) -> None:
    cut_off(agency, "draw records")
    run_id = agency.inspector.log.run_id
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.void(run_id=run_id, dataset="testdata", reason="its worker is gone")
        assert ledger.account("testdata").spent["epsilon"] == 0
    with pytest.raises(LedgerError, match="void"):
        agency.run_again()
    assert kinds(agency) == ["register", "look", "charge", "void"]
    assert agency.run().run_id != run_id  # a new run is another matter


def test_void_between_charge_and_draw_stops_the_run(agency: Any) -> None:
    def void() -> None:
        with Ledger.open(agency.home.ledger) as ledger:
            run_id = agency.inspector.log.run_id
            ledger.void(run_id=run_id, dataset="testdata", reason="the officer was faster")

    drawn: list[bool] = []
    agency.inspector.log = CuratorLog(agency.home.folder("curator"), new_run_id())
    context = agency.context()
    context.listener = Acting({"draw records": void, DRAWING: lambda: drawn.append(True)})
    with pytest.raises(LedgerError, match="void"):
        run_release(context, Order(agency.config))
    assert kinds(agency) == ["register", "look", "charge", "void"]
    assert drawn == [] and agency.bundles() == []


def test_a_bundle_the_ledger_missed_can_be_noted_later(agency: Any, tmp_path: Path) -> None:
    """The ledger cannot take the entry of the publication; nor is a forged bundle noted."""
    with pytest.raises(StatpressError, match=r"whole at.*ledger note"):
        run_acting(agency, {"publish": lambda: refuse_publications(agency.home)})
    refuse_publications(agency.home, refuse=False)
    (bundle,) = agency.bundles()
    with pytest.raises(BundleVerificationError, match="never noted"):
        check_bundle(agency.home, bundle, verify_bundle(bundle))
    forged = shutil.copytree(bundle, tmp_path / "forged" / "first")
    manifest = verify_bundle(forged)
    (forged / "data" / "people.csv").write_text("forged")
    seal(forged, {k: v for k, v in manifest.items() if k not in ("format", "files", "seal")})
    with pytest.raises(BundleVerificationError, match="never noted"):
        check_bundle(agency.home, forged, verify_bundle(forged))
    entry = note_bundle(agency.home, bundle)
    assert note_bundle(agency.home, bundle) == entry
    check_bundle(agency.home, bundle, verify_bundle(bundle))
    verify_ledger(agency.home)
    (bundle / "README.md").write_text("changed")
    with pytest.raises(BundleVerificationError):
        note_bundle(agency.home, bundle)


def test_a_release_under_zcdp_is_charged_its_rho(agency: Any) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.amend(
            dataset="testdata", policy="zcdp", rho="100", rho_delta="0", reason="new policy"
        )
    agency.run()
    with Ledger.open(agency.home.ledger) as ledger:
        account = ledger.account("testdata")
        charged = agency.entries()[3].body
        assert account.spent["rho"] == account.charges[charged["run_id"]].loss["rho"] > 0
        assert charged["rho_delta"] == "0"  # the account has none to give
        assert not any("rho_delta" in described for described in charged["mechanisms"])
        parts = [described["rho"] for described in charged["mechanisms"]]
        assert sum(map(float, parts)) == pytest.approx(float(charged["rho"]), rel=1e-12)
        assert account.remaining.texts().keys() == {"rho", "rho_delta"}
        ledger.amend(
            dataset="testdata",
            policy="zcdp",
            rho=account.spent["rho"] * 2 - account.spent["rho"] / 10**6,
            rho_delta="0",
        )
    agency.replace("name: first", "name: second")
    with pytest.raises(StatpressError, match="asks for rho"):
        agency.run()
    assert verify_ledger(agency.home).entries == 7


def test_an_account_with_a_delta_is_charged_less_rho(agency: Any) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.amend(dataset="testdata", policy="zcdp", rho="100", rho_delta="1e-5", reason="new")
    bundle = agency.run().bundle
    charged = agency.entries()[3].body
    least = [described.get("rho_delta", "0") for described in charged["mechanisms"]]
    assert sum(map(float, least)) == pytest.approx(float(charged["rho_delta"]), rel=1e-12)
    assert 0 < float(charged["rho_delta"]) <= 1e-6
    plain = load(agency.config).plan(rho_delta=Decimal(0))
    assert Decimal(charged["rho"]) < plain.amounts["rho"] / 5
    assert verify_ledger(agency.home).entries == 6
    stated = json.loads((bundle / "privacy.json").read_text())
    assert stated["rho"] == charged["rho"]
    assert Decimal(stated["rho_delta"]) == Decimal(charged["rho_delta"])
    forged = dict(charged, mechanisms=[dict(d, rho_delta="1e-12") for d in charged["mechanisms"]])
    assert not Loss.of(charged).covers(recomputed(forged))


def test_a_place_that_the_ledger_could_not_note_is_refused_before_the_charge(agency: Any) -> None:
    agency.replace("directory: releases", 'directory: "rele\\tases"')
    with pytest.raises(StatpressError):
        agency.run()
    agency.replace('directory: "rele\\tases"', "directory: releases")
    moved = type(agency)(agency.folder / "ta\tb", agency.inspector, agency.text)
    moved.folder.mkdir()
    moved.config.write_text(moved.text)
    moved.source.parent.mkdir()
    moved.source.write_bytes(agency.source.read_bytes())
    moved.register()
    with pytest.raises(LedgerError, match="not usable"):
        moved.run()
    assert kinds(moved) == ["register"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pseudocount": "1/2", "epsilon": "1000"}, "more than the charge"),
        ({"pseudocount": "1/2"}, "cannot be recomputed"),
        ({"pseudocount": "1/2", "n_records": 10**9}, "cannot be recomputed"),
        ({"unit_records": 2}, "cannot be recomputed"),
    ],
)
def test_a_charge_that_verify_would_refuse_is_refused_before_it_is_made(
    agency: Any, changes: dict[str, Any], said: str
) -> None:
    class Understated(Plan):
        def describe(self) -> list[dict[str, str | int]]:
            return [described | changes for described in super().describe()]

    planned = PlannedOrder.of(Order(agency.config))
    with pytest.raises(LedgerError, match=said):
        agency.run(replace(planned, plan=Understated(**vars(planned.plan))))
    assert kinds(agency) == ["register"]
