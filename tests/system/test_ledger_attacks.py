"""Attacks on looks, accounts and their terms, with the ledger in the home and in PostgreSQL.

Each is refused or leaves its entry, and the ledger verifies after it. The rules themselves are
tested in ``tests/unit`` and ``tests/flow``, draws and cut ledgers in ``test_ledger_memory``.
"""

from __future__ import annotations

import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import N
from census_ledger import KEY

from statpress.mechanisms.errors import (
    ApprovalError,
    LedgerError,
    NoisyGateError,
    PolicyMismatchError,
    QualityGateError,
    RefusalLimitError,
)
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.release.ledger_check import verify_ledger

pytestmark = pytest.mark.system

TERMS: dict[str, Any] = {"epsilon": "3", "delta": "1e-5"}


@pytest.fixture
def agency(agency_of_either: Any) -> Any:
    """Its checks are noisy."""
    made = agency_of_either
    made.replace("publish: {", "gate: {noise: true, share: 0.1}\npublish: {")
    made.replace(", name: first", "")
    return made


def last_kinds(agency: Any, number: int) -> list[str]:
    verify_ledger(agency.home)
    return [entry.kind for entry in agency.entries()[-number:]]


def looks(agency: Any) -> int:
    with open_ledger(agency.home) as ledger:
        return ledger.account_terms(agency.dataset).open_looks


def with_nulls(agency: Any, number: int) -> None:
    table = pq.read_table(agency.source)
    ages = [None if i < number else 5 for i in range(len(table))]
    agency.write_source(table.set_column(1, "age", pa.array(ages, pa.int64())))


def test_a_membership_question_of_noisy_checks_costs_budget_and_of_exact_ones_looks(
    agency: Any,
) -> None:
    with_nulls(agency, 1)
    agency.run()  # one record does not show
    assert last_kinds(agency, 5) == ["charge", "look", "draw", "settle", "publish"]
    with_nulls(agency, N)
    agency.replace("epsilon: 1.0", "epsilon: 0.9")
    with pytest.raises(NoisyGateError):
        agency.run()
    assert last_kinds(agency, 4) == ["charge", "look", "draw", "settle"] and looks(agency) == 1
    agency.replace("gate: {noise: true, share: 0.1}\n", "")
    with_nulls(agency, 1)
    with pytest.raises(QualityGateError):
        agency.run()  # an exact answer, which counts
    assert last_kinds(agency, 2) == ["look", "refuse"] and looks(agency) == 2
    with open_ledger(agency.home) as ledger:
        for run in range(58):
            ledger.look(run=f"run-{run}", dataset=agency.dataset, config_sha256="a" * 64)
    with pytest.raises(RefusalLimitError):
        agency.run()


def test_people_are_not_charged_in_another_account(agency: Any) -> None:
    source = str(agency.source.resolve())
    with open_ledger(agency.home) as ledger:
        ledger.bind(dataset=agency.dataset, sources=[source])
        frame = ledger.account(agency.dataset).registration.body
    terms = {name: frame[name] for name in ("adjacency", "unit", "unit_records", "n_records")}
    with open_ledger(agency.home) as ledger:
        ledger.register(dataset="free", **TERMS, **terms)
        with pytest.raises(LedgerError, match="are those of 'testdata' too"):
            ledger.bind(dataset="free", sources=[f"{agency.source.parent.resolve()}/*"])
    before = len(agency.entries())
    agency.replace("dataset: testdata", "dataset: free")
    with pytest.raises(PolicyMismatchError, match="that of another account"):
        agency.run()
    agency.replace("dataset: free", "dataset: testdata")
    shutil.copy(agency.source, agency.source.with_name("other.parquet"))
    agency.replace("data/source.parquet", "data/other.parquet")
    with pytest.raises(PolicyMismatchError, match="not one of those"):
        agency.run()
    assert len(agency.entries()) == before
    verify_ledger(agency.home)


def test_the_terms_of_an_account_are_its_approvers(agency: Any) -> None:
    with open_ledger(agency.home) as ledger:
        ledger.set_approvers(dataset=agency.dataset, approvers=[public_text(KEY)])
        ledger.look(run="one", dataset=agency.dataset, config_sha256="a" * 64)
        for act in (
            lambda: ledger.amend(dataset=agency.dataset, epsilon="100", reason="more"),
            lambda: ledger.bind(dataset=agency.dataset, sources=["/elsewhere/*"]),
            lambda: ledger.reopen(dataset=agency.dataset, reason="again"),
            lambda: ledger.set_approvers(dataset=agency.dataset, approvers=[], reason="none"),
        ):
            with pytest.raises(ApprovalError):
                act()
        ledger.amend(dataset=agency.dataset, epsilon="100", reason="more", key=KEY)
    assert last_kinds(agency, 3) == ["set-approvers", "look", "amend-policy"]
