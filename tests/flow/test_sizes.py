"""The size of a dataset taken from its source, where the config declares it to be public."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import raising, run_acting
from bad_input import N
from people import RECORD, UNIT, put_people

from statpress.configs.loading import load
from statpress.configs.order import Override
from statpress.flows.cli.ledger_commands import register
from statpress.flows.terminal import registration
from statpress.mechanisms.domain.domain import Size
from statpress.mechanisms.errors import (
    ConfigError,
    EmptySourceError,
    PolicyMismatchError,
    QualityGateError,
    SourceNotFoundError,
    UnregisteredDatasetError,
)
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.release.foreseen import warnings
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.release.succession import propose

FROM_SOURCE = "unit: record, n_records: from_source"


@pytest.fixture
def unsized(agency: Any) -> Any:
    """An agency whose config takes the size from the source, with an account bound to none."""
    agency.replace(RECORD, FROM_SOURCE)
    agency.replace("dataset: testdata", "dataset: survey")
    agency.dataset = "survey"
    agency.register(n_records=None)
    return agency


def stated(bundle: Any) -> Any:
    return json.loads((bundle / "privacy.json").read_text())


def test_files_of_different_sizes_need_no_edit_and_one_account(unsized: Any) -> None:
    unsized.replace(", name: first}", "}")
    whole = pq.read_table(unsized.source)
    for n in (N - 37, 3 * N):
        unsized.write_source(pa.concat_tables([whole] * 3).slice(0, n))
        bundle = unsized.run().bundle
        verify_bundle(bundle)
        statement = stated(bundle)
        assert (statement["n_records"], statement["n_units"]) == (n, n)
        assert statement["size"] == Size.FROM_SOURCE
        assert all(each["n_records"] == n for each in statement["products"].values())
        assert "n_records: from_source" in (bundle / "config.yaml").read_text()
        for page in ("README.md", "PRIVACY.md"):
            text = " ".join((bundle / page).read_text().split())
            assert f"{n:,} records, counted in the source" in text
        assert pq.read_table(bundle / "data" / "births.parquet").num_rows == n
    kinds = [each.kind for each in unsized.entries() if each.body.get("dataset") == "survey"]
    assert kinds == ["register", *["look", "charge", "draw", "publish"] * 2]  # one look a run
    verify_ledger(unsized.home)


def test_it_is_the_number_of_records_whatever_they_hold(unsized: Any) -> None:
    table = pq.read_table(unsized.source)
    nulls = pa.array([None] * N, pa.float64())
    unsized.write_source(table.set_column(2, "pay", nulls))
    unsized.replace("publish:", "checks: {pay: {missing_at_most: 1}}\npublish:")
    assert stated(unsized.run().bundle)["n_records"] == N


def test_units_are_counted_and_not_their_records(unsized: Any) -> None:
    unsized.replace(FROM_SOURCE, UNIT.replace("n_units: 160", "n_units: from_source"))
    unsized.replace("dataset: survey", "dataset: people")
    unsized.register(dataset="people", unit="column person", unit_records=3, n_records=None)
    put_people(unsized)
    statement = stated(unsized.run().bundle)
    assert (statement["n_units"], statement["n_records"]) == (160, 480)


def test_a_plan_needs_about_what_the_size_is(unsized: Any) -> None:
    release = load(unsized.config)
    with pytest.raises(ConfigError, match="nothing can be planned before the run") as refused:
        release.plan()
    assert (
        "yaml:4:" in refused.value.where and "from_source: true, about" in refused.value.next_step
    )
    given = load(unsized.config, [Override("privacy.n_records", 500, "--set")])
    assert given.plan().privacy.n_records == 500
    unsized.replace("n_records: from_source", "n_records: {from_source: true, about: 500}")
    rough = load(unsized.config)
    plan = rough.plan()
    assert (plan.privacy.n_records, plan.privacy.size) == (500, Size.ROUGH)
    assert any("about 500 records. A run counts them" in text for text in warnings(rough, plan))
    statement = stated(unsized.run().bundle)
    assert statement["n_records"] == N and statement["size"] == Size.FROM_SOURCE


def test_a_rough_size_that_nobody_declares_public_is_refused(unsized: Any) -> None:
    unsized.replace("n_records: from_source", "n_records: {about: 500}")
    with pytest.raises(ConfigError, match="Under replace_one the number of records is public"):
        load(unsized.config)


def test_an_account_of_another_unit_is_not_asked_for_its_number(unsized: Any) -> None:
    """The number of values of any column would be an answer that nobody paid for."""
    unsized.replace(FROM_SOURCE, "unit: {column: age, max_records: 1}, n_units: from_source")
    unsized.source.unlink()  # it would be an error of its own to look
    with pytest.raises(PolicyMismatchError, match="unit column age is not record"):
        unsized.run()
    assert [each.kind for each in unsized.entries()][2:] == []


def test_without_an_account_nothing_is_counted(unsized: Any) -> None:
    unsized.replace("dataset: survey", "dataset: other")
    unsized.source.unlink()
    with pytest.raises(UnregisteredDatasetError):
        unsized.run()


def test_a_missing_file_is_no_look_and_an_empty_one_is(unsized: Any) -> None:
    table = pq.read_table(unsized.source)
    unsized.source.unlink()
    with pytest.raises(SourceNotFoundError):
        unsized.run()
    assert len(unsized.entries()) == 2
    unsized.write_source(table.slice(0, 0))
    with pytest.raises(EmptySourceError):
        unsized.run()
    assert [each.kind for each in unsized.entries()][2:] == ["look", "refuse"]


def test_noisy_gates_are_charged_for_the_counted_size(unsized: Any) -> None:
    unsized.replace("publish:", "gate: {noise: true}\npublish:")
    unsized.run()
    own = [each for each in unsized.entries() if each.body.get("dataset") == "survey"]
    assert [e.kind for e in own] == [
        "register", "look", "charge", "look", "draw", "settle", "publish",
    ]  # fmt: skip
    assert own[1].body["gates"] == "exact"  # the count, which goes on to count
    assert own[2].body["n_records"] == N


def test_a_charged_run_keeps_its_size(unsized: Any) -> None:
    """What was charged is for that size, so another source stops the run that is repeated."""
    unsized.replace("publish:", "gate: {noise: true}\npublish:")
    with pytest.raises(KeyboardInterrupt):
        run_acting(unsized, {"record look": raising(KeyboardInterrupt())})
    unsized.write_source(pq.read_table(unsized.source).slice(1))
    with pytest.raises(QualityGateError):
        unsized.run_again()


def test_an_account_bound_to_a_size_stays_so(unsized: Any) -> None:
    unsized.replace("dataset: survey", "dataset: testdata")
    before = len(unsized.entries())
    with pytest.raises(PolicyMismatchError, match="takes the size from the source"):
        unsized.run()
    assert len(unsized.entries()) == before  # nothing was counted


@pytest.mark.parametrize(
    "size",
    ["from_source", pytest.param("{from_source: true, about: 500}", marks=pytest.mark.nightly)],
)
def test_a_renewal_is_proposed_for_about_the_size_before(unsized: Any, size: str) -> None:
    unsized.replace("n_records: from_source", f"n_records: {size}")
    bundle = unsized.run().bundle
    proposal = propose(bundle, None, (), None, unsized.home)
    assert (proposal.plan.privacy.n_records, proposal.plan.privacy.size) == (N, Size.ROUGH)
    unsized.write_source(pq.read_table(unsized.source).slice(9))
    named = propose(bundle, None, [Override("publish.name", "second", "--set")], None, unsized.home)
    assert stated(unsized.run(named.planned).bundle)["n_records"] == N - 9


def test_the_command_registers_an_account_of_any_size(unsized: Any) -> None:
    assert "--n-records from_source" in registration(load(unsized.config).config)
    result = register(
        "any", n_records="from_source", epsilon="1", delta="1e-6", home=unsized.home.root
    )
    assert result.exit_code == 0
    (entry,) = [each for each in unsized.entries() if each.body.get("dataset") == "any"]
    assert "n_records" not in entry.body


def test_a_broken_twin_that_ignores_the_unit_is_caught(
    unsized: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statpress.tasks.release.steps.check_terms", lambda *_: None)
    with pytest.raises(SourceNotFoundError):
        test_an_account_of_another_unit_is_not_asked_for_its_number(unsized)
