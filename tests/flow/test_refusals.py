"""A run that a gate stops leaves an entry; after the limit no run looks at the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import N
from followed_runs import Follower, fail, refusing, run_followed

from statpress.configs.release_config import LIMITS
from statpress.flows.cli import app
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    LedgerError,
    LedgerReadOnlyError,
    NoisyGateError,
    QualityGateError,
    RefusalLimitError,
    SourceNotFoundError,
    StatpressError,
)
from statpress.tasks.ledger.home_ledger import open_ledger
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

FIGURE = "401"  # records of the source, where 400 are declared


@pytest.fixture
def surplus(agency: Any) -> Any:
    """An agency whose source has one record too many."""
    table = pq.read_table(agency.source)
    agency.write_source(pa.concat_tables([table, table.slice(0, 1)]))
    return agency


@pytest.fixture
def say(surplus: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command on the agency's home prints."""
    monkeypatch.setenv("COLUMNS", "200")

    def say(*words: object) -> str:
        app([*map(str, words), "--home", str(surplus.home.root)], exit_on_error=False)
        return str(capsys.readouterr().out)

    return say


def close(agency: Any, number: int) -> None:
    """Write so many refusals of other runs."""
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        for each in range(number):
            names = {"run_id": f"other-{each}", "dataset": agency.dataset}
            ledger.refuse(**names, config_sha256="c" * 64)


def test_a_stop_is_an_entry_without_figures_and_is_told(
    surplus: Any, say: Callable[..., str]
) -> None:
    with pytest.raises(QualityGateError):
        surplus.run()
    _, look, entry = surplus.entries()
    assert (look.kind, look.body["run"]) == ("look", surplus.inspector.log.run_id)
    assert set(look.body) == {"dataset", "run", "config_sha256", "gates", "open_looks", "created"}
    assert (entry.kind, entry.body["run_id"]) == ("refuse", surplus.inspector.log.run_id)
    assert set(entry.body) == {"dataset", "run_id", "config_sha256", "created"}
    assert FIGURE not in json.dumps(entry.body | {"created": "", "run_id": ""})
    told = (
        "Runs looked at testdata 1 time since it was registered, and gates stopped 1;"
        " the limits are 60 and 20."
    )
    assert f"entry 3 of the ledger. {told}" in surplus.inspector.log.path.read_text()
    assert told in say("ledger", "show")
    (account,) = json.loads(say("ledger", "show", "--json"))["accounts"]
    assert (account["max_refusals"], account["refusals_since_reopening"]) == (20, 1)
    assert (account["max_looks"], account["looks_since_reopening"]) == (60, 1)
    assert account["last_look"]["sequence"] == 2
    assert account["refusals"][0]["config_sha256"] == entry.body["config_sha256"]
    assert account["charges"] == []
    assert verify_ledger(surplus.home).entries == 3
    with pytest.raises(LedgerError, match="A gate refused this run"):
        surplus.run_again()  # the same run does not ask again
    assert len(surplus.entries()) == 3


def test_a_closed_dataset_is_not_looked_at_until_it_is_reopened(
    surplus: Any, say: Callable[..., str]
) -> None:
    close(surplus, 19)
    with pytest.raises(QualityGateError):
        surplus.run()
    log = surplus.inspector.log.path.read_text()
    assert "gates stopped 19;" in log and "gates stopped 20;" in log
    assert "No further run looks at the data" in say("ledger", "show", "testdata")
    hidden = surplus.source.rename(surplus.folder / "hidden")  # whoever looked would miss it
    with pytest.raises(RefusalLimitError, match="no run looks at the data") as caught:
        surplus.run()
    assert caught.value.exit_code == 26 and "--reopen" in caught.value.next_step
    assert len(surplus.entries()) == 22
    hidden.rename(surplus.source)
    said = say("ledger", "amend", "testdata", "--reopen", "--reason", "a file of last year")
    assert said == (
        "testdata is reopened after 1 looks and 20 refusals; from here 60 and 20 are left.\n"
    )
    with pytest.raises(QualityGateError):
        surplus.run()
    assert "since it was reopened" in say("ledger", "show")


def test_runs_at_the_same_time_do_not_pass_the_limit(surplus: Any) -> None:
    """Others are stopped after this run has checked its budget, and before it looks."""
    follower = Follower("rehearse", lambda: close(surplus, 20))
    with pytest.raises(RefusalLimitError):
        run_followed(surplus, follower)
    assert follower.steps.index("check budget") < follower.steps.index("rehearse")
    assert len(surplus.entries()) == 21


def test_another_limit_is_registered(surplus: Any, say: Callable[..., str]) -> None:
    terms = ("--n-records", "9", "--epsilon", "1", "--delta", "0")
    say("ledger", "register", "few", *terms, "--max-refusals", "3", "--max-looks", "2")
    facts = json.loads(say("ledger", "show", "few", "--json"))
    assert facts["accounts"][0]["max_refusals"] == 3
    assert facts["accounts"][0]["registered"]["max_refusals"] == 3
    assert facts["accounts"][0]["max_looks"] == 2


def test_what_names_are_wrong_is_a_look_and_no_refusal(surplus: Any) -> None:
    """Else whoever guesses a column's name, or a file's by a pattern, would be answered freely."""
    surplus.replace("data/source.parquet", "data/cases-2*.parquet")
    with pytest.raises(SourceNotFoundError):
        surplus.run()
    surplus.replace("data/cases-2*.parquet", "data/source.parquet")
    surplus.replace("region: {", "rejion: {")
    surplus.replace("[region,", "[rejion,")
    with pytest.raises(ColumnNotFoundError):
        surplus.run()
    assert [entry.kind for entry in surplus.entries()] == ["register", "look", "look"]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_a_look_is_there_whatever_ends_the_run(surplus: Any, ending: type[BaseException]) -> None:
    follower = Follower("check input", fail(ending))
    with pytest.raises((StatpressError, KeyboardInterrupt)):
        run_followed(surplus, follower)
    assert [entry.kind for entry in surplus.entries()] == ["register", "look"]


def test_nothing_is_opened_that_cannot_be_recorded(surplus: Any) -> None:
    surplus.source.write_text("whoever opens it says something else")
    with refusing("look"), pytest.raises(LedgerReadOnlyError):
        surplus.run()


def test_exact_gates_answer_as_often_as_the_limit_says(agency: Any) -> None:
    """The scan for a count by exact answers: checks loosened step by step until a run passes."""
    agency.home.ledger.unlink()
    agency.register(max_looks=2)
    answers = []
    for number, share in enumerate(LIMITS[:4]):
        if number == 2:
            agency.source.unlink()  # whoever looked would miss it
        checks = f"checks: {{age: {{outside_at_most: {share}}}}}\nproducts:"
        text = agency.text.replace("products:", checks).replace("epsilon: 1.0", "epsilon: 1.0e-3")
        agency.config.write_text(text.replace("name: first", f"name: scan-{number}"))
        try:
            answers.append(agency.run().status)
        except (QualityGateError, RefusalLimitError) as error:
            answers.append(type(error))
    assert RefusalLimitError not in answers[:2] and answers[2:] == [RefusalLimitError] * 2
    account = Ledger.open(agency.home.ledger).account("testdata")
    assert account.closed and account.open_looks == 2


def test_a_stop_that_cannot_be_noted_says_so(surplus: Any) -> None:
    with refusing("refuse"), pytest.raises(LedgerReadOnlyError):
        surplus.run()
    assert "records" in surplus.inspector.log.path.read_text()


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
    agency.replace("publish: {", "gate: {noise: true, share: 0.1}\npublish: {")
    agency.replace(", name: first", "")
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
