"""Uploads to a real S3 server: whole, cut off at every request, resumed, and their secrets."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cut_proxy import CutProxy
from published import Publisher
from s3_server import KEY, SECRET, s3_server

from statpress.configs.upload_targets import S3Target
from statpress.flows.cli import app
from statpress.mechanisms.errors import (
    LedgerIntegrityError,
    LedgerUnavailableError,
    UploadError,
)
from statpress.tasks.bundle.manifest import MANIFEST_NAME as MANIFEST
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.ledger.export import head_line, read_head
from statpress.tasks.release.runs import Uploaded
from statpress.tasks.uploads import s3
from statpress.tasks.uploads.heads import destination, send_head
from statpress.tasks.uploads.upload import Bundle, read_bundle, store_of, upload
from statpress.tasks.uploads.upload import send as send_all

pytestmark = pytest.mark.system


@dataclass
class Bucket:
    """The server's bucket, seen through the network and from inside."""

    root: Path
    port: int
    proxy: CutProxy

    def target(
        self, prefix: str, *, direct: bool = True, latest: str | None = "latest.json"
    ) -> Any:
        port = self.port if direct else self.proxy.port
        return S3Target(
            s3=f"s3://bucket/{prefix}",
            endpoint=f"http://127.0.0.1:{port}",
            region="us-east-1",
            latest=latest,
        )

    def whole(self, prefix: str, *names: str) -> dict[str, Any]:
        """Which of some releases a reader takes for whole, verified; and which is the newest."""
        folder = self.root / "bucket" / prefix
        found = {n: verify_bundle(folder / n) for n in names if (folder / n / MANIFEST).exists()}
        named = None
        with suppress(FileNotFoundError):
            named = json.loads((folder / "latest.json").read_text())
        return {"releases": found, "newest": named}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    root = tmp_path_factory.mktemp("s3")
    with s3_server(root) as port:
        proxy = CutProxy(port)
        yield Bucket(root, port, proxy)
        proxy.close()


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Publisher:
    made = Publisher(tmp_path_factory.mktemp("publisher"))
    made.publish("old")
    made.publish("new")
    return made


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def send(publisher: Publisher, number: int, target: Any) -> Uploaded:
    (done,) = upload(publisher.home, publisher.bundles[number], [target])
    return done


def put(bundle: Bundle, target: Any) -> Uploaded:
    return send_all(bundle, store_of(target, bundle))


def write(bundle: Bundle, target: Any, key: str, text: bytes) -> None:
    """Put an object there as a stranger would."""
    store_of(target, bundle)._put_whole(f"bucket/{key}", text)


def test_a_second_upload_sends_nothing(bucket: Bucket, publisher: Publisher) -> None:
    target = bucket.target("twice")
    first = send(publisher, 0, target)
    assert (first.sent, first.kept) == (5, 0) and first.place == "s3://bucket/twice/old"
    before = {path: path.stat() for path in bucket.root.rglob("*") if path.is_file()}
    again = send(publisher, 0, target)
    assert (again.sent, again.kept) == (0, 5)
    assert before == {path: path.stat() for path in bucket.root.rglob("*") if path.is_file()}
    found = bucket.whole("twice", "old")
    assert found["newest"]["seal"] == found["releases"]["old"]["seal"]
    assert found["newest"] | {"name": "old", "dataset": "census"} == found["newest"]


@pytest.mark.nightly
def test_cut_at_every_request(bucket: Bucket, publisher: Publisher) -> None:
    """Each release follows the one before it; readers see the one or the other."""
    made = read_bundle(publisher.home, publisher.bundles[0])
    through, direct = bucket.target("cut", direct=False), bucket.target("cut")
    seen, k, done = {"old": 0, "new": 0, "between": 0}, 0, False
    old = replace(made, name="r0", manifest={**made.manifest, "created": "0000"})
    put(old, direct)
    while not done:
        k += 1
        for applied in (False, True):
            new = replace(made, name=f"r{k}-{applied}", manifest={**made.manifest})
            new.manifest["created"] = f"{k:04}-{applied}"
            bucket.proxy.arm(k, applied=applied)
            failed = None
            try:
                put(new, through)
            except UploadError as error:
                failed = str(error)
            assert failed is None or ("reached" in failed and SECRET not in failed)
            done = failed is None
            found = bucket.whole("cut", old.name, new.name)
            newest = found["newest"]["name"]
            assert newest in (old.name, new.name) and newest in found["releases"]
            assert old.name in found["releases"] and (newest == new.name or not done)
            seen["new" if newest == new.name else "old"] += 1
            seen["between"] += newest == old.name and new.name in found["releases"]
            resumed = put(new, direct)
            assert resumed.sent + resumed.kept == 5 and (resumed.kept or k < 5)
            found = bucket.whole("cut", new.name)
            assert found["newest"] == new.pointer and new.name in found["releases"]
            old = new
    assert k > 15 and seen["old"] > 15 and seen["new"] > 1 and seen["between"] > 1


@pytest.mark.parametrize("name", [MANIFEST, "latest.json"])
def test_an_interruption_does_not_cut_what_readers_go_by(
    bucket: Bucket, publisher: Publisher, name: str
) -> None:
    """Closing a stream makes an object of what was written, were it nothing."""
    prefix = f"interrupted-{name}"
    old, new = (read_bundle(publisher.home, bundle) for bundle in publisher.bundles)
    put(old, bucket.target(prefix))

    class Interrupted(s3.S3Store):
        def _sink(self, key: str) -> Any:
            sink = super()._sink(key)
            if key.endswith(name):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)  # the main thread hears of it before anything is written
            return sink

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            send_all(new, Interrupted(bucket.target(prefix), new))
    finally:
        signal.signal(signal.SIGINT, handler)
    expected = ({"old", "new"}, "old" if name == MANIFEST else "new")
    for _ in range(6000):  # what was begun goes on, and no release is seen in part
        found = bucket.whole(prefix, "old", "new")
        newest = found["newest"] or {
            "name": "being replaced"
        }  # rclone takes the old one away first
        if (seen := (found["releases"].keys(), newest["name"])) == expected:
            break
        time.sleep(0.01)
    assert seen == expected
    assert put(new, bucket.target(prefix)).sent == 0


def test_what_is_there_and_is_not_the_bundle(
    bucket: Bucket, publisher: Publisher, tmp_path: Path
) -> None:
    """Damage is repaired; strangers' files and releases are refused and never touched."""
    target, home = bucket.target("there", latest=None), publisher.home
    made = read_bundle(home, publisher.bundles[0])
    assert put(made, target).latest == ""
    place = bucket.root / "bucket" / "there"
    assert [path.name for path in place.iterdir()] == ["old"]  # no pointer
    damaged = place / "old" / "data" / "t.csv"
    write(made, target, "there/old/data/t.csv", damaged.read_bytes()[::-1])
    repaired = put(made, target)
    assert (repaired.sent, repaired.kept) == (1, 4)
    verify_bundle(place / "old")

    other = replace(read_bundle(home, publisher.bundles[1]), name="old")
    with pytest.raises(UploadError, match="Another release is there"):
        put(other, target)
    verify_bundle(place / "old")

    big = Publisher(tmp_path)
    text = b"0123456789abcdef" * 2**20 + b"end"  # sent in two parts
    grown = big.publish("big", files={"data/big.bin": text})
    assert put(read_bundle(big.home, grown), target).sent == 6
    assert (place / "big" / "data" / "big.bin").read_bytes() == text
    write(made, target, "there/big/notes.txt", b"a stranger's")
    with pytest.raises(UploadError, match=r"does not have: 'notes\.txt'"):
        put(read_bundle(big.home, grown), bucket.target("there", latest=None))
    assert (place / "big" / "notes.txt").exists()


def test_a_pointer_never_goes_back(bucket: Bucket, publisher: Publisher) -> None:
    target, made = bucket.target("pointer"), read_bundle(publisher.home, publisher.bundles[0])
    newer = replace(made, name="newer", manifest={**made.manifest, "created": "2027"})
    assert "names this release" in put(newer, target).latest
    assert "stays with newer, which is newer" in put(made, target).latest
    pointer = bucket.root / "bucket" / "pointer" / "latest.json"
    assert json.loads(pointer.read_text()) == newer.pointer
    other = replace(made, manifest={**made.manifest, "dataset": "wages"})
    with pytest.raises(UploadError, match="belongs to another dataset"):
        put(other, target)
    write(made, target, "pointer/latest.json", b"[1]")
    with pytest.raises(UploadError, match="is not a pointer"):
        put(made, target)
    assert pointer.read_text() == "[1]"


def test_no_secret_is_shown_or_kept(
    bucket: Bucket,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command, with a right key and a wrong one, a dead server and no bucket."""
    monkeypatch.setenv("COLUMNS", "300")
    publisher, said = Publisher(tmp_path), []
    endpoint = f", endpoint: 'http://127.0.0.1:{bucket.port}', region: us-east-1"
    named = f", targets: [{{s3: s3://bucket/secret{endpoint}, latest: now.json}}]"
    bundle = publisher.publish("first", named)
    line = ["upload", str(bundle), "--home", str(publisher.home.root)]

    def told(*words: str) -> str:
        try:
            app([*line, *words], exit_on_error=False)
            text = ""
        except UploadError as error:
            text = f"exit {error.exit_code} {error} {error!r} {error.args} {vars(error)}"
        out, err = capfd.readouterr()
        said.append(text + out + err)
        return said[-1]

    (done,) = json.loads(told("--json"))["uploads"]
    assert (done["sent"], done["place"]) == (5, "s3://bucket/secret/first")
    assert "5 already there, all read back" in told()
    wrong = "canary-wrong-secret-9093"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    assert "refuses the credentials" in told()
    assert "exit 67" in said[-1] and f"statpress upload {bundle}" in said[-1]
    bucket.proxy.arm(1)
    config = tmp_path / "other.yaml"
    config.write_text(publisher.bundles[0].joinpath("config.yaml").read_text())
    dead = config.read_text().replace(str(bucket.port), str(bucket.proxy.port))
    config.write_text(dead)
    assert "cannot be reached" in told("--config", str(config))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    config.write_text(
        dead.replace(str(bucket.proxy.port), str(bucket.port)).replace("/bucket/", "/no-bucket/")
    )
    assert "NO_SUCH_BUCKET" in told("--config", str(config))
    config.write_text("publish: {directory: x}\n")
    assert "names no targets" in told("--config", str(config))

    kept = [
        path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    ]
    assert [text for text in kept if "s3://bucket/secret" in text]  # it does search
    for secret in (SECRET, wrong, KEY):
        assert not [text for text in (*said, *kept) if secret in text]


def test_the_head_of_a_ledger_is_an_object_that_is_replaced(
    bucket: Bucket, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bucket.port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    place = bucket.root / "bucket" / "heads" / "ledger.json"
    for _ in range(2):
        sent = send_head(publisher.home, destination("s3://bucket/heads/ledger.json"))
        assert read_head(place) == sent.head
    forged = head_line(sent.entries, "a" * 64).encode()
    s3.S3Object(bucket.target("heads/ledger.json")).replace(forged)
    with pytest.raises(LedgerIntegrityError, match="which is kept there"):
        send_head(publisher.home, destination("s3://bucket/heads/ledger.json"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-key")
    with pytest.raises(LedgerUnavailableError, match="was not sent") as refused:
        send_head(publisher.home, destination("s3://bucket/heads/ledger.json"))
    assert "another-secret-key" not in str(refused.value)
