"""Prepare, approve or reject, publish: cut off anywhere, repeated, forged, tampered with."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from followed_runs import Follower, deploy, refusing, run_followed
from prepared import OFFICER, RUN, SECOND, STRANGER, Office
from requirements import lacking

from statpress.flows import release as flow
from statpress.flows.deployed import check_unsigned, form_text, is_prepared, record_unsigned
from statpress.flows.runner import plain_context, run_publication
from statpress.mechanisms.errors import (
    ApprovalError,
    BundleVerificationError,
    LedgerError,
    LedgerIntegrityError,
    OutputNotWritableError,
)
from statpress.tasks.bundle.manifest import (
    APPROVAL_NAME,
    FACTS,
    REVIEWED,
    approved_by,
    seal,
    verify_bundle,
)
from statpress.tasks.ledger import ledger_table as ledger_guards
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import canonical_json, entry_hash, public_text
from statpress.tasks.ledger.export import restore, write_export
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.orchestration.server import AWAITING
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.release import review
from statpress.tasks.release.ledger_check import check_bundle, verify_ledger
from statpress.tasks.release.review import decide, note_bundle, waiting, write_statement
from statpress.tasks.release.runs import Outcome


def publish(run_id: str, *, home: Home) -> Outcome:
    """The publishing flow, outside of Prefect and of a run that seals its errors."""
    return flow.publish(plain_context(home, orchestrated=False), run_id)


class CutError(BaseException):
    """Stands for whatever may end a process."""


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def approve(office: Office, key: Any = OFFICER, **changes: Any) -> Any:
    return decide(office.home, RUN, "approve", reason=None, key=key, **changes)


def reject(office: Office, key: Any = OFFICER) -> Any:
    return decide(office.home, RUN, "reject", reason="too fine", key=key)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- a real run -------------------------------------------------------------------


def test_a_release_under_review_from_its_run_to_its_publication(agency: Any) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])
    agency.replace("name: first", "name: first, review: required")
    outcome = agency.run()
    assert outcome.status is Status.PREPARED
    assert agency.bundles() == []
    assert outcome.bundle == agency.home.root / "prepared" / outcome.run_id
    for path in (outcome.bundle, *outcome.bundle.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted
    assert [entry.kind for entry in agency.entries()][2:] == ["look", "charge", "draw", "prepare"]
    with Ledger.open(agency.home.ledger) as ledger:
        spent = ledger.account("testdata").spent
        assert spent["epsilon"] > 0
    with pytest.raises(BundleVerificationError, match=f"{outcome.seal}. .* needs an approval"):
        verify_bundle(outcome.bundle)
    (one,) = waiting(agency.home)
    assert (one.title, one.target) == ("Test release", agency.releases / "first")

    agency.replace("name: first", "name: second")
    second = agency.run()  # its sweep leaves the prepared bundle alone
    decide(agency.home, second.run_id, "reject", reason="one is enough", key=OFFICER)
    assert agency.bundles() == []
    decide(agency.home, outcome.run_id, "approve", reason=None, key=OFFICER)
    published = run_publication(plain_context(agency.home, orchestrated=False), outcome.run_id)
    assert published.bundle == agency.releases / "first"
    assert (published.seal, published.epsilon) == (outcome.seal, outcome.epsilon)
    assert agency.bundles() == [published.bundle]
    manifest = verify_bundle(published.bundle)
    assert approved_by(published.bundle, manifest, [public_text(OFFICER)]) is not None
    check_bundle(agency.home, published.bundle, manifest)
    verify_ledger(agency.home)
    assert second.bundle.is_dir() and not outcome.bundle.exists()
    with Ledger.open(agency.home.ledger) as ledger:
        account = ledger.account("testdata")
    assert account.spent["epsilon"] == 2 * spent["epsilon"]
    assert [charge.status for charge in account.charges.values()] == ["published", "rejected"]


def test_a_deployed_release_is_not_charged_while_another_is_undecided(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed = deploy(agency, monkeypatch)
    agency.amend(epsilon="9")
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])
    agency.replace(", name: first", "")
    first = deployed()
    assert (first.name, first.is_completed()) == (AWAITING, True)
    run_id = deployed.run_id  # type: ignore[attr-defined]
    assert first.message.endswith(f"statpress approve {run_id}")

    # Neither charged nor brought near the data; the command line goes on, and says so.
    hidden = agency.source.rename(agency.folder / "hidden")
    before = agency.entries()
    with pytest.raises(ApprovalError, match=f"Run {run_id} .* waits for a decision") as refused:
        deployed()
    assert "while_undecided: charge" in refused.value.next_step
    assert "neither approved nor rejected" in refused.value.what
    assert agency.entries() == before
    hidden.rename(agency.source)
    follower = Follower()
    beside = run_followed(agency, follower)
    assert beside.status is Status.PREPARED
    assert f"Run {run_id} of this dataset waits for a decision" in "".join(follower.told)

    # One decision is not enough; a parameter is.
    decide(agency.home, run_id, "reject", reason="too fine", key=OFFICER)
    with pytest.raises(ApprovalError, match=f"Run {beside.run_id} of this"):
        deployed()
    assert deployed(while_undecided="charge").name == AWAITING
    for waits in waiting(agency.home):
        run = waits.charge.entry.body["run_id"]
        decide(agency.home, run, "approve", reason=None, key=OFFICER)
    assert deployed().name == AWAITING  # approved ones are decided, published or not


def test_who_approves_is_settled_before_the_charge(agency: Any) -> None:
    agency.replace("name: first", "name: first, review: required")
    with pytest.raises(ApprovalError, match="nobody to approve"):
        agency.run()
    assert [entry.kind for entry in agency.entries()] == ["register"]
    agency.replace(", review: required", "")

    def late() -> None:
        with Ledger.open(agency.home.ledger) as ledger:
            ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])

    with pytest.raises(ApprovalError, match="while the run was at work"):
        run_followed(agency, Follower("charge ledger", late))
    assert [entry.kind for entry in agency.entries()][1:] == ["look", "set-approvers", "charge"]
    assert agency.bundles() == []
    # The same run started again knows better, and goes on with its charge.
    outcome = agency.run_again()
    assert outcome.status is Status.PREPARED
    assert agency.bundles() == []


def test_a_run_cut_before_it_noted_what_it_prepared(agency: Any) -> None:
    with Ledger.open(agency.home.ledger) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)])
    with refusing("prepare"), pytest.raises(LedgerError, match="--place") as caught:
        agency.run()
    run_id = agency.inspector.log.run_id
    folder = agency.home.root / "prepared" / run_id
    assert str(folder) in caught.value.next_step
    with pytest.raises(ApprovalError, match="no prepared bundle"):
        decide(agency.home, run_id, "approve", reason=None, key=OFFICER)
    copied = agency.folder / "elsewhere"
    shutil.copytree(folder, copied)
    place = agency.releases / "first"
    with pytest.raises(BundleVerificationError, match="not where"):
        note_bundle(agency.home, copied, place)
    with pytest.raises(BundleVerificationError, match="needs an approval"):
        note_bundle(agency.home, folder)
    entry = note_bundle(agency.home, folder, place)
    assert note_bundle(agency.home, folder, place) == entry
    decide(agency.home, str(copied), "approve", reason=None, key=OFFICER)  # the same bundle
    assert publish(run_id, home=agency.home).bundle == place


def test_an_abandoned_building_is_swept_and_a_prepared_bundle_never(
    agency: Any, tmp_path: Path
) -> None:
    prepared = agency.home.folder("prepared")
    abandoned, kept = prepared / f".building-{32 * 'c'}", prepared / (32 * "d")
    for folder in (abandoned, kept):
        folder.mkdir()
        (folder / "x").write_text("x")
    agency.run()
    assert not abandoned.exists()
    assert (kept / "x").exists()


# --- deciding ---------------------------------------------------------------------


def test_the_same_decision_again_is_the_first_one(office: Office) -> None:
    first = approve(office)
    assert approve(office) == first
    assert approve(office, SECOND) == first
    with pytest.raises(ApprovalError, match="approved already"):
        reject(office)
    with pytest.raises(ApprovalError, match="not one of the dataset's approvers"):
        approve(office, STRANGER)
    outcome = publish(RUN, home=office.home)
    assert approve(office) == first  # the prepared bundle is gone by now
    assert decide(office.home, str(outcome.bundle), "approve", reason=None, key=SECOND) == first
    with pytest.raises(ApprovalError, match="published already"):
        reject(office)


def test_a_rejection_is_final(office: Office) -> None:
    first = reject(office)
    assert reject(office, SECOND) == first
    with pytest.raises(ApprovalError, match="final"):
        approve(office)
    with pytest.raises(ApprovalError, match="rejected"):
        publish(RUN, home=office.home)
    assert office.published() == []
    assert office.prepared.is_dir()
    with Ledger.open(office.home.ledger) as ledger:
        assert ledger.account("census").spent["epsilon"] > 0


def test_only_who_may_decides(office: Office) -> None:
    for refused in (
        lambda: approve(office, STRANGER),
        lambda: reject(office, STRANGER),
        lambda: approve(office, None, by="the director"),
    ):
        with pytest.raises(ApprovalError):
            refused()
    with pytest.raises(LedgerError, match="reason"):
        decide(office.home, RUN, "reject", reason=None, key=OFFICER)
    with pytest.raises(ApprovalError, match="no prepared bundle"):
        decide(office.home, "f" * 32, "approve", reason=None, key=OFFICER)
    assert office.status is Status.PREPARED


def test_unsigned_decisions_count_where_the_ledger_says_so(tmp_path: Path) -> None:
    office = Office(tmp_path, approvers=(), unsigned=True)
    with pytest.raises(ApprovalError):
        approve(office)
    with pytest.raises(LedgerError, match="not usable"):
        approve(office, None, by="two\nlines")
    approve(office, None, by="A. Officer")
    bundle = publish(RUN, home=office.home).bundle
    approval = json.loads((bundle / APPROVAL_NAME).read_text())["body"]
    assert approval["by"] == "A. Officer" and "signature" not in approval
    with pytest.raises(ApprovalError, match="None of the given keys"):
        approved_by(bundle, verify_bundle(bundle), [public_text(OFFICER)])


# --- a key that stays elsewhere -----------------------------------------------------


def sign(key: Any, statement: Path) -> Path:
    """The signature that an officer makes on a machine without statpress."""
    signature = statement.with_suffix(".signature")
    signature.write_bytes(key.sign(statement.read_bytes()))
    return signature


@pytest.mark.system
def test_openssl_signs_as_the_errors_say(tmp_path: Path) -> None:
    statement = tmp_path / "statement.json"
    statement.write_text('["a statement"]')
    assert sign_with_openssl(OFFICER, statement).read_bytes() == OFFICER.sign(
        statement.read_bytes()
    )


def sign_with_openssl(key: Any, statement: Path) -> Path:
    """The same by the command that the errors recommend."""
    pem, signature = statement.with_suffix(".pem"), statement.with_suffix(".signature")
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem.write_bytes(key.private_bytes(*form))
    if shutil.which("openssl") is None:
        lacking("openssl is not installed.")
    command = f"openssl pkeyutl -sign -rawin -inkey {pem} -in {statement} -out {signature}"
    subprocess.run(command.split(), check=True, capture_output=True)
    return signature


@pytest.mark.parametrize(("decision", "reason"), [("approve", None), ("reject", "zu fein – é")])
def test_an_officer_signs_where_the_key_is(
    office: Office, tmp_path: Path, decision: str, reason: str | None
) -> None:
    statement = tmp_path / "statement.json"
    write_statement(office.home, RUN, decision, reason=reason, file=statement)
    assert office.status is Status.PREPARED
    files = {"statement": statement, "signature": sign(OFFICER, statement)}
    entry = decide(office.home, RUN, decision, reason=reason, **files)
    signed = json.loads(statement.read_text())
    assert [entry.body["reason"], entry.body["created"]] == signed[-2:]
    assert entry.body["public_key"] == public_text(OFFICER)
    assert decide(office.home, RUN, decision, reason=None, **files) == entry
    assert office.status in {Status.APPROVED, Status.REJECTED}  # a replay checks every signature
    with pytest.raises(ApprovalError, match="already; a decision is final"):
        write_statement(office.home, RUN, decision, reason=reason, file=tmp_path / "again")
    if decision == "approve":
        assert publish(RUN, home=office.home).bundle == office.target


def test_what_an_officer_did_not_sign_is_not_handed_in(office: Office, tmp_path: Path) -> None:
    statement = tmp_path / "statement.json"
    write_statement(office.home, RUN, "approve", reason="as agreed", file=statement)
    files = {"statement": statement, "signature": sign(OFFICER, statement)}
    with pytest.raises(OutputNotWritableError, match="exists"):
        write_statement(office.home, RUN, "approve", reason="other", file=statement)
    for decision, reason in (("reject", "as agreed"), ("approve", "other")):
        with pytest.raises(ApprovalError, match="not the one about this decision"):
            decide(office.home, RUN, decision, reason=reason, **files)
    with pytest.raises(ApprovalError, match="cannot be read"):
        decide(office.home, RUN, "approve", reason=None, **files | {"signature": tmp_path / "no"})
    text = statement.read_text()
    for changed in (text.replace("agreed", "forged"), text.replace('",', '" ,'), text + "\n", "[]"):
        statement.write_text(changed)
        with pytest.raises(ApprovalError):
            decide(office.home, RUN, "approve", reason=None, **files)
    statement.write_text(text)
    stranger = files | {"signature": sign(STRANGER, statement)}
    with pytest.raises(ApprovalError, match="not the signature of an approver in force"):
        decide(office.home, RUN, "approve", reason=None, **stranger)
    assert office.status is Status.PREPARED


def test_a_bundle_that_does_not_say_it_is_reviewed_is_not_approved(tmp_path: Path) -> None:
    """It would verify anywhere without its approval, whatever the ledger says."""

    class Careless(Office):
        facts: ClassVar[dict[str, str]] = {}

    office = Careless(tmp_path)
    assert "review" not in verify_bundle(office.prepared)
    with pytest.raises(ApprovalError, match="without its approval"):
        approve(office)
    with pytest.raises(BundleVerificationError, match="without its approval"):
        note_bundle(office.home, office.prepared, office.target)


# --- publishing, cut off at every step ----------------------------------------------


def killed(act: Callable[[], Any]) -> None:
    """Let a process of its own do what ends with its death."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


STEPS = ["check approval", "find bundle", "copy bundle", "move into place", "note publication"]


@pytest.mark.parametrize("step", [*STEPS, "end"])
def test_publishing_killed_at_any_step_is_begun_again(office: Office, step: str) -> None:
    approve(office)
    before = contents(office.prepared)

    def publish_until() -> None:
        follower = Follower(step, die)
        context = plain_context(office.home, orchestrated=False, listener=follower)
        run_publication(context, RUN)
        if follower.steps == STEPS:
            die()

    killed(publish_until)
    outcome = publish(RUN, home=office.home)
    assert outcome.bundle == office.target
    assert office.published() == ["first"]
    found = contents(office.target)
    assert json.loads(found.pop(APPROVAL_NAME))["kind"] == "decide"
    assert found == before
    assert not office.prepared.exists()
    assert office.kinds()[-3:] == ["prepare", "decide", "publish"]
    assert stat.S_IMODE(office.target.stat().st_mode) == 0o755
    check_bundle(office.home, office.target, verify_bundle(office.target))
    assert publish(RUN, home=office.home) == outcome
    assert office.kinds().count("publish") == 1


def audited(hook: Callable[[str, tuple[Any, ...]], None], act: Callable[[], Any]) -> int:
    """The status of a process of its own, whose calls to the system this hook sees."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sys.addaudithook(hook)
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1]


def test_publishing_killed_halfway_through_its_copy_is_begun_again(office: Office) -> None:
    approve(office)

    def half(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "shutil.copyfile" and os.fspath(arguments[0]).endswith("privacy.json"):
            die()

    assert os.WIFSIGNALED(audited(half, lambda: publish(RUN, home=office.home)))
    assert office.published() == [f".building-{RUN}"]
    assert publish(RUN, home=office.home).bundle == office.target
    assert office.published() == ["first"]


def test_home_and_publishing_directory_may_be_on_different_file_systems(office: Office) -> None:
    """Every rename stays in one folder: all others fail here, as they do between disks."""
    approve(office)

    def within(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and Path(arguments[0]).parent != Path(arguments[1]).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    assert audited(within, lambda: publish(RUN, home=office.home)) == 0
    assert office.published() == ["first"]
    assert audited(within, lambda: os.rename(office.target, office.folder / "first")) != 0
    assert publish(RUN, home=office.home).bundle == office.target


def test_a_name_taken_during_the_review_loses_nothing(office: Office) -> None:
    approve(office)
    office.target.mkdir(parents=True)
    (office.target / "theirs").write_text("x")
    with refusing("publish", CutError()), pytest.raises(CutError):
        publish(RUN, home=office.home)
    outcome = publish(RUN, home=office.home)
    assert outcome.bundle.name == f"first-{RUN[:8]}"
    assert office.published() == ["first", outcome.bundle.name]
    assert (office.target / "theirs").exists()
    verify_bundle(outcome.bundle)


def test_one_publishes_at_a_time(office: Office) -> None:
    approve(office)
    approved = review.Prepared.approved(office.home, RUN)
    claim = approved.open_publication(office.home)
    with claim, pytest.raises(OutputNotWritableError, match="at work"):
        publish(RUN, home=office.home)
    assert publish(RUN, home=office.home).bundle == office.target


def test_a_publication_that_could_not_be_noted_says_so(office: Office) -> None:
    approve(office)
    with refusing("publish"), pytest.raises(LedgerError, match="again"):
        publish(RUN, home=office.home)
    assert office.prepared.is_dir()
    assert note_bundle(office.home, office.target).kind == "publish"
    assert publish(RUN, home=office.home).bundle == office.target
    assert not office.prepared.exists()


# --- what must not be published -----------------------------------------------------


def test_nothing_is_published_without_an_approval(office: Office) -> None:
    for run, said in ((RUN, "waits"), ("f" * 32, "no charge")):
        with pytest.raises(ApprovalError, match=said):
            publish(run, home=office.home)
    # Not past the flow either: the ledger notes nothing, and nobody can use the bundle.
    fields = {"run_id": RUN, "dataset": "census", "bundle": "x", "manifest_sha256": office.seal}
    with Ledger.open(office.home.ledger) as ledger, pytest.raises(ApprovalError, match="waits"):
        ledger.publish(**fields)
    with pytest.raises(BundleVerificationError, match="needs an approval"):
        note_bundle(office.home, office.prepared)
    assert office.published() == []
    assert office.kinds()[-1] == "prepare"


def _byte(folder: Path) -> None:
    (folder / "data" / "t.csv").write_text("a,raw\n1,3\n")


def _extra(folder: Path) -> None:
    (folder / "extra").write_text("x")


def _approval(folder: Path) -> None:
    (folder / APPROVAL_NAME).write_text("{}")


def _link(folder: Path) -> None:
    shutil.move(folder / "privacy.json", folder.parent / "moved")
    (folder / "privacy.json").symlink_to(folder.parent / "moved")


def _resealed(folder: Path) -> None:
    _byte(folder)
    stated = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").unlink()
    seal(folder, {name: stated[name] for name in FACTS} | REVIEWED)


def _unreviewed(folder: Path) -> None:
    stated = json.loads((folder / "manifest.json").read_text())
    seal(folder, {name: stated[name] for name in FACTS})


def _gone(folder: Path) -> None:
    shutil.rmtree(folder)


CHANGES = [_byte, _extra, _link, _resealed, _unreviewed, _gone]


@pytest.mark.parametrize("change", [*CHANGES, _approval])
def test_a_bundle_changed_before_its_approval_is_not_approved(
    office: Office, change: Callable[[Path], None]
) -> None:
    change(office.prepared)
    with pytest.raises(ApprovalError):
        approve(office)
    if change in (_resealed, _unreviewed):
        assert waiting(office.home)[0].title is None
    reject(office)
    assert office.status is Status.REJECTED


@pytest.mark.parametrize("change", CHANGES)
def test_a_bundle_changed_after_its_approval_is_not_published(
    office: Office, change: Callable[[Path], None]
) -> None:
    approve(office)
    change(office.prepared)
    with pytest.raises(ApprovalError):
        publish(RUN, home=office.home)
    assert office.published() == []
    assert office.status is Status.APPROVED


def test_a_flow_that_does_not_verify_its_copy_would_publish_a_changed_byte(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin of the test above."""
    approve(office)
    _byte(office.prepared)
    monkeypatch.setattr(review, "check_sealed", lambda *a, **k: None)
    publish(RUN, home=office.home)
    with pytest.raises(BundleVerificationError):
        verify_bundle(office.target)


def forge(office: Office, change: Callable[[dict[str, Any]], None]) -> None:
    """Put another body in the place of the decision, with hashes that fit."""
    raw = sqlite3.connect(office.home.ledger, isolation_level=None)
    for name in ledger_guards._SQLITE:
        raw.execute(f"DROP TRIGGER {name}")
    query = "SELECT sequence, body, previous FROM entries WHERE kind = 'decide'"
    sequence, text, previous = raw.execute(query).fetchone()
    body = json.loads(text)
    change(body)
    hash_ = entry_hash(sequence, "decide", body, previous)
    update = "UPDATE entries SET body = ?, hash = ? WHERE sequence = ?"
    raw.execute(update, (canonical_json(body), hash_, sequence))
    for trigger in ledger_guards._SQLITE.values():
        raw.execute(trigger)
    raw.close()


def _approved(body: dict[str, Any]) -> None:
    body["decision"] = "approve"


def _by_a_stranger(body: dict[str, Any]) -> None:
    from statpress.tasks.ledger.entries import sign_statement
    from statpress.tasks.ledger.rules import decision_statement

    body |= {"decision": "approve", "public_key": public_text(STRANGER)}
    body["signature"] = sign_statement(STRANGER, decision_statement(body))


def _unsigned(body: dict[str, Any]) -> None:
    del body["public_key"], body["signature"]
    body |= {"decision": "approve", "by": "me"}


@pytest.mark.parametrize("change", [_approved, _by_a_stranger, _unsigned])
def test_a_forged_approval_publishes_nothing(
    office: Office, change: Callable[[dict[str, Any]], None]
) -> None:
    reject(office)
    forge(office, change)
    with pytest.raises(LedgerIntegrityError) as caught:
        publish(RUN, home=office.home)
    assert caught.value.sequence == 6
    assert office.published() == []


# --- the approval in the bundle -------------------------------------------------------


def test_the_approval_is_in_the_bundle_and_cannot_be_taken_out(office: Office) -> None:
    approve(office)
    bundle = publish(RUN, home=office.home).bundle
    manifest = verify_bundle(bundle)
    approval = approved_by(bundle, manifest, [public_text(OFFICER), public_text(STRANGER)])
    assert approval is not None and approval.body["public_key"] == public_text(OFFICER)
    with pytest.raises(ApprovalError, match="None of the given keys"):
        approved_by(bundle, manifest, [public_text(STRANGER)])
    true = (bundle / APPROVAL_NAME).read_text()
    parts = json.loads(true)
    others = {
        "another reason": parts | {"body": parts["body"] | {"reason": "fine"}},
        "a rejection": parts | {"body": parts["body"] | {"decision": "reject"}},
        "another place": parts | {"sequence": 5},
        "another kind": parts | {"kind": "prepare"},
        "more": parts | {"more": 1},
        "no entry": [1],
    }
    texts = [json.dumps(other, indent=2) + "\n" for other in others.values()]
    for text in (*texts, true + " ", "", "{", "[" * 5000):
        (bundle / APPROVAL_NAME).write_text(text)
        with pytest.raises(BundleVerificationError, match="no approval of this bundle"):
            verify_bundle(bundle)
    (bundle / APPROVAL_NAME).unlink()
    with pytest.raises(BundleVerificationError, match="needs an approval"):
        verify_bundle(bundle)


def test_an_approval_does_not_serve_another_seal(office: Office) -> None:
    """The same run and officer, and a bundle that was changed and sealed again."""
    approve(office)
    bundle = publish(RUN, home=office.home).bundle
    approval = (bundle / APPROVAL_NAME).read_text()
    (bundle / APPROVAL_NAME).unlink()
    _resealed(bundle)
    (bundle / APPROVAL_NAME).write_text(approval)
    with pytest.raises(BundleVerificationError, match="no approval of this bundle"):
        verify_bundle(bundle)


def test_a_bundle_that_needs_no_approval_has_none(agency: Any) -> None:
    bundle = agency.run().bundle
    manifest = verify_bundle(bundle)
    assert approved_by(bundle, manifest, []) is None
    with pytest.raises(ApprovalError):
        approved_by(bundle, manifest, [public_text(OFFICER)])
    (bundle / APPROVAL_NAME).write_text("{}")
    with pytest.raises(BundleVerificationError, match="was added"):
        verify_bundle(bundle)
    with pytest.raises(ApprovalError, match="without a review"):
        publish(manifest["run_id"], home=agency.home)


def test_a_reviewed_ledger_goes_out_and_in(office: Office) -> None:
    approve(office)
    publish(RUN, home=office.home)
    file = office.folder / "ledger.jsonl"
    with (
        Ledger.open(office.home.ledger) as ledger,
        Ledger.open(office.folder / "other.db") as other,
    ):
        write_export(ledger, file)
        assert restore(other, file)[1] == ledger.state()
        assert other.verify() == ledger.verify()


# --- what the flow with a form stands on ------------------------------------------------


def test_a_form_is_for_accounts_without_signatures_and_shows_public_facts(
    office: Office, tmp_path: Path
) -> None:
    with pytest.raises(ApprovalError, match="not by a form"):
        check_unsigned(office.home, "census")
    assert is_prepared(office.home, RUN) and not is_prepared(office.home, "f" * 32)
    text = form_text(review.Prepared.described(office.home, RUN))
    for part in ("Wages", "census", "0.5", "`" + str(office.target) + "`"):
        assert part in text
    with pytest.raises(ApprovalError):
        review.Prepared.described(office.home, "f" * 32)

    small = Office(tmp_path / "small", approvers=(), unsigned=True)
    check_unsigned(small.home, "census")
    for status in (Status.REJECTED, Status.REJECTED):  # a flow run may be started again
        words = {"decision": "reject", "reason": "too fine", "by": "A. Officer"}
        assert record_unsigned(small.home, RUN, **words) is status
    assert is_prepared(small.home, RUN)
    assert "Wages" in form_text(review.Prepared.described(small.home, RUN))
