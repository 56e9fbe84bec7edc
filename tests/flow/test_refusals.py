"""A run that a gate stops leaves an entry; after the limit no run looks at the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from followed_runs import Follower, fail, refusing, run_followed

from statpress.configs.release_config import LIMITS
from statpress.flows.cli import app
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    LedgerError,
    LedgerReadOnlyError,
    QualityGateError,
    RefusalLimitError,
    SourceNotFoundError,
    StatpressError,
)
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
