"""The commands of the review, in this process: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError
from prepared import OFFICER, RUN, SECOND, STRANGER, Office, write_keys

from statpress.flows.cli import app
from statpress.flows.cli.options import home_of
from statpress.flows.facts import outcome_report
from statpress.flows.terminal import Progress, show, show_error
from statpress.mechanisms.errors import (
    ApprovalError,
    LedgerUnavailableError,
    StatpressError,
)
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.release.runs import Outcome

REFUSED = StatpressError.exit_codes()["ApprovalError"]


class Officer:
    """A person at a terminal, with the home of an office and three keys."""

    def __init__(self, office: Office, capsys: Any) -> None:
        self.office, self.capsys = office, capsys
        made = {"officer": OFFICER, "second": SECOND, "stranger": STRANGER}
        self.keys = {name: write_keys(office.folder, key, name) for name, key in made.items()}

    def say(self, *words: object, expected: int = 0) -> str:
        """What a command prints."""
        line = [*map(str, words), "--home", str(self.office.home.root)]
        code, told = 0, ""
        try:
            app(line, exit_on_error=False)
        except CycloptsError:
            code = 2
        except StatpressError as error:
            code, told = error.exit_code, str(error)
        said = self.capsys.readouterr()
        assert code == expected, (told, said)
        return told + said.out + said.err

    def facts(self, *words: object) -> Any:
        return json.loads(self.say(*words, "--json"))


@pytest.fixture
def officer(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Officer:
    monkeypatch.setenv("COLUMNS", "200")
    return Officer(Office(tmp_path), capsys)


def test_review_approve_publish_and_verify(officer: Officer) -> None:
    office, (private, public) = officer.office, officer.keys["officer"]
    (one,) = officer.facts("review")["waiting"]
    assert one["title"] == "Wages" and one["status"] == "prepared" and one["decision"] is None
    assert (one["epsilon"], one["delta"], one["products"]) == ("0.5", "0", ["t"])
    assert (one["folder"], one["place"]) == (str(office.prepared), str(office.target))
    shown = officer.say("review")
    for part in (RUN, "census", "Wages", "0.5", str(office.prepared), "to be decided"):
        assert part in shown
    assert "waits" in officer.say("publish", RUN, "--no-orchestrator", expected=REFUSED)

    approved = officer.say("approve", RUN, "--key", private, "--reason", "as agreed")
    assert "Approved" in approved and public_text(OFFICER) in approved and "as agreed" in approved
    again = officer.facts("approve", office.prepared, "--key", private)
    assert again["reason"] == "as agreed" and again["signed_by"] == public_text(OFFICER)
    assert "approved, to be published" in officer.say("review")
    published = officer.facts("publish", RUN, "--no-orchestrator")
    assert published["status"] == "published" and published["remaining"]["epsilon"] == "0.5"
    assert str(office.target) in officer.say("publish", RUN, "--no-orchestrator")
    assert "Nothing waits." in officer.say("review")

    verified = officer.facts("verify", office.target, "--public-key", public)
    assert verified["approval"]["signed_by"] == public_text(OFFICER)
    assert "as agreed" in officer.say("verify", office.target)
    stranger = officer.keys["stranger"][1]
    officer.say("verify", office.target, "--public-key", stranger, expected=REFUSED)
    (charge,) = officer.facts("ledger", "charge-history")["charges"]
    assert charge["status"] == "published" and charge["decision"]["reason"] == "as agreed"


def test_printed_commands_carry_the_home_that_was_given(
    officer: Officer, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = officer.office.home.root
    outcome = Outcome(
        run_id=RUN, dataset="census", status=Status.PREPARED, bundle=officer.office.prepared,
        seal="0" * 64, epsilon="0.5", delta="0", ledger_entry="1" * 64, publishable=True,
    )  # fmt: skip

    def printed() -> str:
        show(outcome_report(outcome, (None, None)))
        show_error(ApprovalError("It waits."), as_json=False)
        Progress(shown=False).notify(f"statpress ledger void {RUN} --reason …")
        said = officer.capsys.readouterr()
        return str(said.out + said.err)

    officer.say("review")
    said = printed()
    assert f"statpress approve --home {root} {RUN} --key FILE" in said
    assert f"'statpress review --home {root}'" in said
    elsewhere = ["review", "--home", str(officer.office.folder / "no such home")]
    with pytest.raises(LedgerUnavailableError) as none:
        app(elsewhere, exit_on_error=False)
    show_error(none.value, as_json=False)
    told = officer.capsys.readouterr().err
    assert "a second ledger would be a second budget" in told and "name it with --home;" in told
    assert f"'statpress ledger register --home '{elsewhere[-1]}''" in told
    home_of(None)
    assert "--home" not in printed()


def test_reject_and_what_is_refused(officer: Officer) -> None:
    private, stranger = officer.keys["officer"][0], officer.keys["stranger"][0]
    officer.say("approve", RUN, "--key", stranger, expected=REFUSED)
    officer.say("approve", RUN, "--by", "me", expected=REFUSED)
    keyless = StatpressError.exit_codes()["SigningKeyError"]
    officer.say("approve", RUN, expected=keyless)
    officer.say("approve", RUN, "--key", private, "--by", "me", expected=keyless)
    officer.say("reject", RUN, "--key", private, expected=2)
    rejected = officer.say("reject", RUN, "--key", private, "--reason", "too fine")
    assert "Rejected" in rejected and "too fine" in rejected
    again = officer.say("approve", RUN, "--key", private, expected=REFUSED)
    assert "A decision is final." in again and "statpress review" not in again
    late = officer.say("publish", RUN, "--no-orchestrator", expected=REFUSED)
    assert f"budget stays spent; delete the folder {officer.office.prepared}." in late
    assert "statpress review" not in late
    facts = officer.facts("ledger", "show", "census")["accounts"][0]
    assert (facts["spent"]["epsilon"], facts["remaining"]["epsilon"]) == ("0.5", "0.5")
    assert "1 rejected" in officer.say("ledger", "show")


def test_what_is_not_a_bundle_is_told_from_one_that_was_changed(officer: Officer) -> None:
    wrong = StatpressError.exit_codes()["BundleVerificationError"]
    folder, file = officer.office.folder, officer.office.folder / "a file"
    file.touch()
    for place, told in (
        (folder / "nowhere", "There is no such folder or file."),
        (file, "This is neither a folder nor a zip file."),
        (folder, "This folder is not a bundle: it has no manifest.json."),
    ):
        said = officer.say("verify", place, expected=wrong)
        assert f"{place}: {told} Check the path" in said and "publisher" not in said
    (officer.office.prepared / "manifest.json").unlink()
    said = officer.say("verify", officer.office.prepared, expected=wrong)
    assert "manifest.json is missing. Do not use" in said


def test_approvers_are_set_by_approvers(officer: Officer) -> None:
    keys = officer.keys
    shown = officer.say("ledger", "show", "census")
    assert "wait for an approval" in shown and public_text(OFFICER) in shown
    change = ("ledger", "approvers", "census", "--public-key", keys["second"][1])
    officer.say(*change, "--reason", "one left", expected=REFUSED)
    stranger = ("--key", keys["stranger"][0])
    officer.say(*change, "--reason", "one left", *stranger, expected=REFUSED)
    signed = (*change, "--key", keys["officer"][0])
    officer.say(*signed, expected=StatpressError.exit_codes()["LedgerError"])
    facts = officer.facts(*signed, "--reason", "one left")
    assert facts["approvers"] == [public_text(SECOND)] and not facts["unsigned_approvals"]
    officer.say("approve", RUN, "--key", keys["officer"][0], expected=REFUSED)
    end = ("ledger", "approvers", "census", "--reason", "no more", "--key", keys["second"][0])
    assert "need no approval" in officer.say(*end)
    assert officer.office.status is Status.PREPARED
