"""Uploads as the last part of a release: when they happen, and what their failure leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from acting import raising, run_acting
from prepared import OFFICER
from published import Publisher
from requirements import needed
from victims import InProcess

import statpress.tasks.release.curator_report
import statpress.tasks.uploads.upload
from statpress.configs.upload_targets import S3Target
from statpress.flows.cli.review_commands import run_upload
from statpress.flows.facts import outcome_report
from statpress.flows.release import upload_release
from statpress.flows.runner import plain_context, run_publication
from statpress.mechanisms.errors import ApprovalError, BundleError, UploadError
from statpress.tasks.bundle.manifest import MANIFEST_NAME as MANIFEST
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.accounts import Status
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.review import decide
from statpress.tasks.release.runs import Outcome
from statpress.tasks.uploads.upload import Bundle

TARGETS = "targets: [{s3: s3://bucket/a}, {s3: s3://bucket/b}]"


class Folders:
    """Targets that are folders of this machine; some do not work, or are interrupted."""

    interruption: BaseException | None = None

    def __init__(self, folder: Path) -> None:
        self.folder, self.broken, self.order = folder, set[str](), list[str]()

    def __call__(self, target: Any, bundle: Bundle) -> Folder:
        return Folder(self, target.s3.rpartition("/")[2], bundle)


class Folder:
    """The place of one release in a folder."""

    def __init__(self, folders: Folders, name: str, bundle: Bundle) -> None:
        self.all, self.name, self.bundle = folders, name, bundle
        self.root = folders.folder / name / bundle.name
        self.place = f"s3://bucket/{name}"

    def held(self) -> Mapping[str, int | None]:
        if self.name in self.all.broken:
            raise UploadError("The store cannot be reached.", where=self.place)
        files = [path for path in self.root.rglob("*") if path.is_file()]
        return {path.relative_to(self.root).as_posix(): path.stat().st_size for path in files}

    def read(self, path: str) -> Iterator[bytes]:
        if self.all.interruption is not None:
            raise self.all.interruption
        yield (self.root / path).read_bytes()

    def write(self, path: str) -> None:
        self.all.order.append(path)
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes((self.bundle.folder / path).read_bytes())

    def show(self) -> str:
        return ""


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    made = Folders(tmp_path / "targets")
    monkeypatch.setattr(statpress.tasks.uploads.upload, "store_of", made)
    return made


@pytest.fixture
def releasing(agency: Any) -> Any:
    """An agency whose config has two targets, with its gates in this process."""
    agency.replace("name: first}", f"name: first, {TARGETS}}}")
    agency.inspector = InProcess(None)
    return agency


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def test_a_failed_upload_leaves_the_release_and_is_done_again_by_itself(
    releasing: Any, folders: Folders
) -> None:
    folders.broken = {"a"}
    with pytest.raises(UploadError) as failed:
        releasing.run()
    bundle = releasing.releases / "first"
    assert failed.value.exit_code == 67
    assert f"statpress upload {bundle}" in str(failed.value) and "s3://bucket/a" in str(
        failed.value
    )
    verify_bundle(bundle)
    verify_bundle(folders.folder / "b" / "first")  # the other target has it
    assert not (folders.folder / "a").exists()
    assert kinds(releasing) == ["register", "look", "charge", "draw", "publish"]
    with pytest.raises(UploadError):
        releasing.run_again()
    assert kinds(releasing) == ["register", "look", "charge", "draw", "publish"]

    folders.broken, folders.order = set(), []
    context = plain_context(releasing.home, orchestrated=False)
    first, second = releasing.run_again().uploads
    assert first.sent > 10 and (second.sent, second.kept) == (0, first.sent)
    assert folders.order[-1] == MANIFEST
    assert verify_bundle(folders.folder / "a" / "first") == verify_bundle(bundle)
    assert sum(each.sent for each in run_upload(context, bundle, None)) == 0
    assert kinds(releasing) == ["register", "look", "charge", "draw", "publish"]


def stopped_by_the_orchestrator() -> BaseException:
    from prefect.exceptions import TerminationSignal

    return TerminationSignal(signal=15)


@pytest.mark.parametrize(
    ("moment", "interruption"),
    [
        ("in the curator's report", KeyboardInterrupt),
        ("in an upload", stopped_by_the_orchestrator),
        pytest.param("in an upload", KeyboardInterrupt, marks=pytest.mark.nightly),
        pytest.param(
            "in the curator's report", stopped_by_the_orchestrator, marks=pytest.mark.nightly
        ),
    ],
)
def test_a_published_run_that_is_told_to_end_says_what_is_left_to_upload(
    releasing: Any,
    folders: Folders,
    interruption: Callable[[], BaseException],
    moment: str,
) -> None:
    report, acts = moment == "in the curator's report", {}
    if report:
        acts = {"report to curator": raising(interruption())}
        releasing.replace("publish:", "curator: {report: true}\npublish:")
    else:
        folders.interruption = interruption()
    with pytest.raises(UploadError, match="told to end before all uploads were done") as ended:
        run_acting(releasing, acts)
    folders.interruption = None
    bundle = releasing.releases / "first"
    assert f"statpress upload {bundle}" in str(ended.value)
    assert ended.value.__cause__ is None and ended.value.__context__ is None
    verify_bundle(bundle)
    assert (folders.order == []) is report
    assert kinds(releasing) == ["register", "look", "charge", "draw", "publish"]
    context = plain_context(releasing.home, orchestrated=False)
    assert all(each.sent > 10 for each in run_upload(context, bundle, None))


def test_a_reviewed_release_is_uploaded_after_its_approval(
    releasing: Any, folders: Folders
) -> None:
    with Ledger.open(releasing.home.ledger, create=False) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)], unsigned=False)
    outcome = releasing.run()
    assert outcome.status is Status.PREPARED and outcome.uploads == () and folders.order == []
    context = plain_context(releasing.home, orchestrated=False)
    with pytest.raises(BundleError):  # nor by its folder
        run_upload(context, outcome.bundle, None)
    with pytest.raises(ApprovalError):
        run_publication(context, outcome.run_id)
    assert folders.order == []
    decide(releasing.home, outcome.run_id, "approve", reason=None, key=OFFICER)
    folders.broken = {"b"}
    with pytest.raises(UploadError):
        run_publication(context, outcome.run_id)
    folders.broken = set()
    done = run_publication(context, outcome.run_id)
    assert [each.sent == 0 for each in done.uploads] == [True, False]
    assert folders.order[-2:] == ["approval.json", MANIFEST]
    assert "Uploaded to s3://bucket/b" in outcome_report(done, (None, None))
    verify_bundle(folders.folder / "b" / "first")


@pytest.mark.system
def test_nothing_is_charged_where_an_upload_could_not_begin(
    releasing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed("ckanapi")
    monkeypatch.delenv("CKAN_API_TOKEN", raising=False)
    monkeypatch.delenv("CKAN_API_TOKEN_FILE", raising=False)
    releasing.replace(TARGETS, "targets: [{ckan: 'https://portal.example', organization: agency}]")
    with pytest.raises(UploadError, match="There is no API token"):
        releasing.run()
    assert kinds(releasing) == ["register"] and releasing.bundles() == []


def test_what_is_not_publishable_or_not_published_is_not_uploaded(
    tmp_path: Path, folders: Folders
) -> None:
    publisher = Publisher(tmp_path)
    seeded = publisher.publish("seeded", publishable=False)
    context = plain_context(publisher.home, orchestrated=False)
    target = S3Target(s3="s3://bucket/a")
    outcome = Outcome(
        run_id="0", dataset="census", status=Status.PUBLISHED, bundle=seeded, seal="", epsilon="1",
        delta="0", ledger_entry="", publishable=False,
    )  # fmt: skip
    assert upload_release(context, outcome, [target]) is outcome
    assert statpress.tasks.uploads.upload.targets_in(seeded) == ()
    for bundle, flaw in ((seeded, "NOT PUBLISHABLE"), (tmp_path / "none", "no such folder")):
        with pytest.raises(BundleError, match=flaw):
            statpress.tasks.uploads.upload.upload(publisher.home, bundle, [target])
    bundle = publisher.publish("first")
    (bundle / "data" / "t.csv").write_text("a,raw\n1,7\n")
    with pytest.raises(BundleError, match=r"t\.csv was changed"):
        statpress.tasks.uploads.upload.upload(publisher.home, bundle, [target])
    stranger = Publisher(tmp_path / "stranger").publish("first")
    with pytest.raises(BundleError, match="no such charge"):
        statpress.tasks.uploads.upload.upload(publisher.home, stranger, [target])
    assert folders.order == []
