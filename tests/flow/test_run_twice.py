"""The same run started again: charged once, drawn once, whatever had happened before."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from cuts import cut_off_at

from statpress.configs.loading import load
from statpress.mechanisms.errors import BundleVerificationError, LedgerError, StatpressError
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.entries import Loss
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import check_bundle, recomputed, verify_ledger
from statpress.tasks.release.review import note_bundle


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def test_a_run_cut_before_it_drew_goes_on_with_its_charge(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off_at("statpress.flows.release.draw_records"):
        agency.run()
    assert kinds(agency) == ["register", "look", "charge"]
    outcome = agency.run_again()
    assert kinds(agency) == ["register", "look", "charge", "look", "draw", "publish"]
    assert outcome.ledger_entry == agency.entries()[2].hash
    check_bundle(agency.home, outcome.bundle, verify_bundle(outcome.bundle))


def test_a_run_cut_while_it_drew_never_draws_again(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off_at("statpress.tasks.release.steps.generator"):
        agency.run()
    assert kinds(agency) == ["register", "look", "charge", "draw"]
    with pytest.raises(LedgerError, match="may have drawn"):
        agency.run_again()
    run_id = agency.inspector.log.run_id
    with Ledger.open(agency.home.ledger) as ledger:
        with pytest.raises(LedgerError, match="stays spent"):
            ledger.void(run_id=run_id, dataset="testdata", reason="it failed")
        assert ledger.account("testdata").spent["epsilon"] > 0
    assert agency.bundles() == []


def test_a_run_whose_charge_is_void_never_draws(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off_at("statpress.flows.release.draw_records"):
        agency.run()
    run_id = agency.inspector.log.run_id
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.void(run_id=run_id, dataset="testdata", reason="its worker is gone")
        assert ledger.account("testdata").spent["epsilon"] == 0
    with pytest.raises(LedgerError, match="void"):
        agency.run_again()
    assert kinds(agency) == ["register", "look", "charge", "void"]
    assert agency.run().run_id != run_id  # a new run is another matter


def test_void_between_charge_and_draw_stops_the_run(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import statpress.flows.release

    honest, drawn = statpress.flows.release.draw_records, []

    def too_late(run: Any, *rest: Any) -> Any:
        with Ledger.open(run.home.ledger) as ledger:
            ledger.void(run_id=run.run_id, dataset="testdata", reason="the officer was faster")
        return honest(run, *rest)

    monkeypatch.setattr("statpress.tasks.release.steps.generator", lambda *a, **k: drawn.append(a))
    monkeypatch.setattr("statpress.flows.release.draw_records", too_late)
    with pytest.raises(LedgerError, match="void"):
        agency.run()
    assert drawn == []
    assert agency.bundles() == []


def test_a_bundle_the_ledger_missed_can_be_noted_later(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Ledger.publish

    def unavailable(*_: Any, **__: Any) -> None:
        raise LedgerError("The server is gone.", where="here")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", unavailable)
        with pytest.raises(LedgerError, match="ledger note"):
            agency.run()
    (bundle,) = agency.bundles()
    assert Ledger.publish is honest
    with pytest.raises(BundleVerificationError, match="never noted"):
        check_bundle(agency.home, bundle, verify_bundle(bundle))
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
    agency: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    from statpress.mechanisms.planning.plan import PlannedProduct

    honest = PlannedProduct.describe

    def understated(self: Any, privacy: Any) -> Any:
        return {**honest(self, privacy), **changes}

    monkeypatch.setattr(PlannedProduct, "describe", understated)
    with pytest.raises(LedgerError, match=said):
        agency.run()
    assert kinds(agency) == ["register"]
