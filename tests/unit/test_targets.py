"""Targets: what a config may say of them, tokens, metadata for a portal, forms with files."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from absence import absent
from published import ABOUT

from statpress.configs.upload_targets import TARGETS, CkanTarget, S3Target
from statpress.mechanisms.errors import ConfigError, DependencyError, UploadError
from statpress.tasks.uploads import s3
from statpress.tasks.uploads.s3 import pointer_text
from statpress.tasks.uploads.upload import (
    Bundle,
    check_target,
    load_targets,
    media_type,
    replaces,
    said_of_pointer,
)

SECRET = "canary-secret-2218"
PORTAL = "ckan: 'https://portal.example', organization: agency"


def targets(folder: Path, said: str) -> Any:
    path = folder / "c.yaml"
    path.write_text(f"publish: {{directory: x, other: 1, targets: {said}}}\n")
    return load_targets(path)


def test_targets_as_a_config_says_them(tmp_path: Path) -> None:
    full = (
        "{s3: s3://b.1/a/b/, endpoint: 'http://127.0.0.1:80/', region: eu-1, latest: latest.json}"
    )
    first, second, third = targets(tmp_path, f"[{full}, {{{PORTAL}}}, {{s3: s3://bucket}}]")
    assert first == S3Target(
        s3="s3://b.1/a/b", endpoint="http://127.0.0.1:80", region="eu-1", latest="latest.json"
    )
    assert second == CkanTarget(ckan="https://portal.example", organization="agency")
    assert third.s3 == "s3://bucket" and third.latest is None
    (tmp_path / "none.yaml").write_text("title: Wages\n")
    assert load_targets(tmp_path / "none.yaml") == ()
    modules = {path.stem for path in Path(s3.__file__).parent.glob("*.py")}
    assert TARGETS.keys() <= modules


@pytest.mark.parametrize(
    ("said", "place", "flaw"),
    [
        (f"[{{s3: 's3://key:{SECRET}@bucket'}}]", "0.s3", "credentials come from the environment"),
        (f"[{{s3: s3://bucket, secret_key: {SECRET}}}]", "0.secret_key", "no key 'secret_key'"),
        ("[{s3: s3://bucket, endpont: x}]", "0.endpont", "Is 'endpoint' meant?"),
        (f"[{{s3: s3://bucket, endpoint: 'http://u:{SECRET}@h'}}]", "0.endpoint", "environment"),
        ("[{s3: s3://bucket/../other}]", "0.s3", "s3://bucket/prefix"),
        ("[{s3: s3://bucket, region: EU!}]", "0.region", "pattern"),
        ("[{s3: s3://bucket, latest: a/b}]", "0.latest", "pattern"),
        ("[{ckan: 'http://portal.example', organization: agency}]", "0.ckan", "https://host"),
        (f"[{{ckan: 'https://p.example?key={SECRET}', organization: a1}}]", "0.ckan", "query"),
        ("[{ckan: 'https://p.example'}]", "0.organization", "is missing"),
        (f"[{{s3: s3://bucket, {PORTAL}}}]", "0", "exactly one of the keys s3 and ckan"),
        ("[{ftp: x}]", "0", "exactly one of the keys"),
        ("[s3]", "0", "exactly one of the keys"),
        ("[{s3: s3://bucket/a}, {s3: s3://bucket/a/}]", "", "name each place once"),
        (f"[{{{PORTAL}}}, {{ckan: 'https://q.example', organization: a1}}]", "", "one CKAN portal"),
    ],
)
def test_what_a_target_may_not_say(tmp_path: Path, said: str, place: str, flaw: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        targets(tmp_path, said)
    message = str(wrong.value)
    assert re.search(rf"c\.yaml:1:\d+: publish\.targets{'.' if place else ''}{place}: ", message)
    assert flaw in message and SECRET not in message


def bundle(folder: Path, **changes: Any) -> Bundle:
    (folder / "datapackage.json").write_text(json.dumps(ABOUT | changes))
    stated = {"dataset": "d", "created": "2026-01-02T00:00:00Z", "run_id": "r", "seal": "s"}
    files = {"data/t.parquet": (7, "ab"), "README.md": (1, "cd")}
    return Bundle(folder=folder, name="N", manifest=stated | {"title": "T"}, files=files)


def test_a_pointer_follows_releases_of_its_dataset_only(tmp_path: Path) -> None:
    ours = bundle(tmp_path)
    assert json.loads(pointer_text(ours)) == ours.pointer and ours.pointer["name"] == "N"
    assert replaces(ours, ours.pointer, "p")  # the same again changes nothing
    assert replaces(ours, ours.pointer | {"created": "2026-01-01T00:00:00Z"}, "p")
    newer = ours.pointer | {"created": "2026-01-03T00:00:00Z", "name": "M"}
    assert not replaces(ours, newer, "p")
    assert said_of_pointer(ours, "p", newer) == "p stays with M, which is newer."
    for other in (None, [], {}, {"dataset": "d"}, ours.pointer | {"dataset": "e"}):
        with pytest.raises(UploadError, match="nothing was replaced"):
            replaces(ours, other, "p")


@pytest.mark.system
def test_a_dataset_in_the_words_of_a_portal(tmp_path: Path) -> None:
    from statpress.tasks.uploads.ckan import dataset_fields, dataset_name, extra, resource_fields

    known = [{"id": "cc-by", "url": "http://www.creativecommons.org/licenses/by/4.0"}]
    fields = dataset_fields(bundle(tmp_path), known)
    assert fields["license_id"] == "cc-by"  # the portal's name of the same address
    assert [tag["name"] for tag in fields["tags"]] == ["wages", "pay prices"]
    assert extra(fields, "issued") == "2026-01-02T00:00:00Z" and extra(fields, "none") is None
    only_named = {"licenses": [{"name": "CC-BY-4.0"}]}
    assert dataset_fields(bundle(tmp_path, **only_named), known)["license_id"] == "cc-by"
    assert dataset_fields(bundle(tmp_path, **only_named), [])["license_id"] == "CC-BY-4.0"
    legacy = [{"id": "by", "legacy_ids": ["cc-by-4.0"]}]
    assert dataset_fields(bundle(tmp_path, **only_named), legacy)["license_id"] == "by"

    (tmp_path / "datapackage.json").unlink()  # of a bundle that says nothing of itself
    bare = dataset_fields(
        Bundle(folder=tmp_path, name="N", manifest={"created": "c", "title": "T"}, files={}), []
    )
    assert bare.keys() == {"title", "notes", "version", "extras"} and bare["title"] == "T"
    assert resource_fields(bundle(tmp_path), "data/t.parquet") == {
        "name": "data/t.parquet",
        "format": "Parquet",
        "mimetype": "application/vnd.apache.parquet",
        "hash": "sha256:ab",
        "size": "7",
    }
    assert dataset_name("Löhne 2.0") == "l-hne-2-0" and len(dataset_name("x" * 300)) == 100
    assert media_type("a.unheard") == "application/octet-stream"


def test_failures_of_a_store_are_told_by_their_kind() -> None:
    text = f"When uploading 'x': AWS Error {{}} during PutObject operation: {SECRET}"
    for fault, told in (
        ("ACCESS_DENIED", "refuses the credentials, or they lack a right (ACCESS_DENIED in"),
        ("NETWORK_CONNECTION", "cannot be reached"),
        ("UNKNOWN (HTTP status 400)", "perhaps for want of credentials (UNKNOWN 400 in"),
        ("UNKNOWN (HTTP status 411)", "The store refuses (UNKNOWN 411 in PutObject)"),
    ):
        said = s3._in_words(OSError(text.format(fault)))
        assert told in said and SECRET not in said
    assert s3._in_words(OSError(28, SECRET)) == "No space left on device"
    assert s3._in_words(OSError(SECRET)) == "The store failed (OSError)"


@pytest.mark.system
def test_a_token_is_read_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from statpress.tasks.uploads.ckan import token

    monkeypatch.setenv("CKAN_API_TOKEN", f" {SECRET}\n")
    monkeypatch.delenv("CKAN_API_TOKEN_FILE", raising=False)
    assert token() == SECRET
    path = tmp_path / "token"
    path.write_text(f"{SECRET}-of-file\n")
    monkeypatch.setenv("CKAN_API_TOKEN_FILE", str(path))
    path.chmod(0o640)
    with pytest.raises(UploadError, match="others than its owner"):
        token()
    path.chmod(0o600)
    assert token() == f"{SECRET}-of-file"
    for text in (f"{SECRET}\n{SECRET}", f"{SECRET} x", f"{SECRET}é", ""):
        path.write_text(text)
        with pytest.raises(UploadError) as wrong:
            token()
        assert SECRET not in f"{wrong.value} {vars(wrong.value)}"
    path.unlink()
    with pytest.raises(UploadError, match="No such file"):
        check_target(CkanTarget(ckan="https://portal.example", organization="agency"))


def test_a_missing_extra_is_named() -> None:
    missing = pytest.raises(DependencyError, match=r"statpress\[ckan\]")
    with absent("ckanapi", imported_by="statpress.tasks.uploads.ckan"), missing:
        check_target(CkanTarget(ckan="https://portal.example", organization="agency"))
    check_target(S3Target(s3="s3://bucket"))


@pytest.mark.system
def test_a_form_is_read_in_pieces(tmp_path: Path) -> None:
    from ckan_server import form

    from statpress.tasks.uploads.ckan import _Form

    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 1000)
    with path.open("rb") as file:
        made = _Form({b"name": b"data/\xc3\xa4.csv", "size": 3}, ("f.csv", file, "text/csv"))
        sent = io.BytesIO()
        while piece := made.read(1000):
            assert len(piece) <= 1000
            sent.write(piece)
    assert len(sent.getvalue()) == len(made)
    fields = form(made.content_type, sent.getvalue())
    assert fields == {"name": "data/ä.csv", "size": "3", "upload": ("f.csv", path.read_bytes())}
