"""Uploads to a CKAN portal (a stand-in, see tests/support/ckan_server.py), whole and cut off."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ckan_server
import pytest
from cut_proxy import CutProxy
from published import Publisher
from requirements import needed

from statpress.configs.upload_targets import CkanTarget
from statpress.mechanisms.errors import UploadError
from statpress.tasks.release.runs import Uploaded
from statpress.tasks.uploads.ckan import NEWEST, extra
from statpress.tasks.uploads.upload import Bundle, read_bundle, send, store_of

needed("ckanapi")
pytestmark = pytest.mark.system
TOKEN = "canary-token-5512"


@dataclass
class Portal:
    """The portal as its users see it."""

    port: int
    proxy: CutProxy

    def target(self, *, direct: bool = True, latest: str | None = "wages") -> Any:
        port = self.port if direct else self.proxy.port
        return CkanTarget(
            ckan=f"http://127.0.0.1:{port}", organization=ckan_server.ORGANIZATION, latest=latest
        )

    def ask(self, path: str, said: Any = None, token: str | None = None) -> Any:
        body = None if said is None else json.dumps(said).encode()
        headers = {"Authorization": token} if token else {}
        url = path if path.startswith("http") else f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, body, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            return error.code
        return json.loads(text)["result"] if path.startswith("/api") else text

    def show(self, name: str, token: str | None = None) -> Any:
        return self.ask("/api/action/package_show", {"id": name}, token)

    def whole(self, dataset: Any) -> dict[str, str]:
        """The files of a dataset that anybody may download, each against the manifest."""
        files = {each["name"]: self.ask(each["url"]) for each in dataset["resources"]}
        manifest = json.loads(files.pop("manifest.json"))
        stated = {each["path"]: each["sha256"] for each in manifest["files"]}
        assert stated == {path: hashlib.sha256(text).hexdigest() for path, text in files.items()}
        return manifest


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    command = [sys.executable, "-S", ckan_server.__file__, TOKEN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        proxy = CutProxy(port)
        yield Portal(port, proxy)
        proxy.close()
        process.kill()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    publisher = Publisher(tmp_path_factory.mktemp("publisher"))
    return read_bundle(publisher.home, publisher.publish("Old.1"))


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKAN_API_TOKEN", TOKEN)


def put(bundle: Bundle, target: Any) -> Uploaded:
    return send(bundle, store_of(target, bundle))


def test_a_release_becomes_a_dataset(portal: Portal, bundle: Bundle) -> None:
    done = put(bundle, portal.target(latest=None))
    assert (done.sent, done.kept, done.latest) == (5, 0, "")
    assert done.place == f"http://127.0.0.1:{portal.port}/dataset/old-1"
    dataset = portal.show("old-1")
    portal.whole(dataset)
    assert [each["name"] for each in dataset["resources"]][-1] == "manifest.json"
    csv = next(each for each in dataset["resources"] if each["name"] == "data/t.csv")
    assert (csv["format"], csv["mimetype"]) == ("CSV", "text/csv")
    assert csv["hash"] == f"sha256:{bundle.files['data/t.csv'][1]}"
    extras = {each["key"]: each["value"] for each in dataset["extras"]}
    assert extras["statpress_seal"] == bundle.manifest["seal"]
    assert extras["publisher_name"] == "Agency" and extras["temporal_start"] == "2000"
    assert dataset["title"] == "Wages" and dataset["notes"].startswith("Wages by region.")
    assert dataset["license_id"] == "CC-BY-4.0" and dataset["maintainer"] == "Desk"
    assert dataset["maintainer_email"] == "desk@example.org"
    assert [each["name"] for each in dataset["tags"]] == ["wages", "pay prices"]
    again = put(bundle, portal.target(latest=None))
    assert (again.sent, again.kept) == (0, 5) and portal.show("old-1") == dataset


def test_cut_at_every_request(portal: Portal, bundle: Bundle, full: bool) -> None:
    """Each release follows the one before it; readers see the one or the other.

    By day every other request is cut.
    """
    through, direct = portal.target(direct=False), portal.target()
    seen, k, done = {"old": 0, "new": 0, "between": 0, "private": 0}, 0, False
    old = replace(bundle, name="r0", manifest={**bundle.manifest, "created": "0000"})
    put(old, direct)
    while not done:
        k += 1 if full else 2
        for applied in (False, True):
            manifest = {**bundle.manifest, "created": f"{k:04}-{applied}"}
            new = replace(bundle, name=f"r{k}-{applied}", manifest=manifest)
            portal.proxy.arm(k, applied=applied)
            failed = None
            try:
                put(new, through)
            except UploadError as error:
                failed = str(error)
            assert failed is None or ("reached" in failed and TOKEN not in failed)
            done = failed is None
            shown, name = portal.show("wages"), new.name.lower()
            latest = json.loads(extra(shown, NEWEST))
            assert latest in (old.pointer, new.pointer)
            named = latest["name"].lower()
            links = {each["name"]: each["url"] for each in shown["resources"]}
            own = portal.show(named)
            assert links == {each["name"]: each["url"] for each in own["resources"]}
            visible = portal.show(name)
            if isinstance(visible, dict):
                portal.whole(visible)
            seen["private"] += visible == 403
            seen["new" if latest == new.pointer else "old"] += 1
            seen["between"] += latest == old.pointer and isinstance(visible, dict)
            resumed = put(new, direct)
            assert resumed.sent + resumed.kept == 5 and (resumed.kept or k < 6)
            assert json.loads(extra(portal.show("wages"), NEWEST)) == new.pointer
            portal.whole(portal.show("wages"))
            old = new
    assert k > 15 and min(seen.values()) > 1


def test_what_a_portal_may_hold_or_refuse(
    portal: Portal, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = portal.target(latest=None)
    held = replace(bundle, name="held")
    put(held, target)
    dataset = portal.show("held")
    csv = next(each for each in dataset["resources"] if each["name"] == "data/t.csv")
    portal.ask(f"/lost/{csv['id']}")  # as where a portal notes a file and fails to keep it
    repaired = put(held, target)
    assert (repaired.sent, repaired.kept) == (1, 4)
    portal.whole(portal.show("held"))

    other = replace(held, manifest={**bundle.manifest, "seal": "another"})
    with pytest.raises(UploadError, match="Another dataset is there"):
        put(other, target)
    strange = {"package_id": dataset["id"], "name": "notes.txt", "url": "https://example.org"}
    portal.ask("/api/action/resource_create", strange, TOKEN)
    with pytest.raises(UploadError, match=r"does not have: 'notes\.txt'"):
        put(held, target)
    portal.ask("/api/action/resource_create", strange | {"name": "config.yaml"}, TOKEN)
    with pytest.raises(UploadError, match=r"two resources of the name 'config\.yaml'"):
        put(held, target)

    nobody = target.model_copy(update={"organization": "nobody"})
    with pytest.raises(UploadError, match="refuses the owner_org"):
        put(replace(bundle, name="orphan"), nobody)
    taken = portal.target(latest="held")
    with pytest.raises(UploadError, match="is not a pointer"):
        put(replace(bundle, name="fresh"), taken)

    wrong = "canary-wrong-token-3301"
    monkeypatch.setenv("CKAN_API_TOKEN", wrong)
    with pytest.raises(UploadError, match="does not let this token") as refused:
        put(replace(bundle, name="wrong"), target)
    error = refused.value
    told = f"{error} {error!r} {vars(error)} {error.__context__!r} {error.__cause__!r}"
    assert wrong not in told and portal.show("wrong") == 404
    lost = portal.target(latest=None).model_copy(update={"ckan": f"{target.ckan}/elsewhere"})
    with pytest.raises(UploadError, match="does not answer as CKAN does"):
        put(replace(bundle, name="lost"), lost)


def test_the_token_goes_to_the_portal_and_not_where_that_redirects(
    portal: Portal, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a netrc file have a say in who asks."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login eve password wrong\n")
    monkeypatch.setenv("NETRC", str(netrc))
    put(replace(bundle, name="moved"), portal.target(latest=None))
    portal.ask("/redirect/on")
    again = put(replace(bundle, name="moved"), portal.target(latest=None))
    seen = portal.ask("/redirect/off").decode()
    assert again.kept == 5 and seen == "5 downloads elsewhere, 0 with a token"
