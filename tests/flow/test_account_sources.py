"""Accounts are about something: other sources are refused, and overlaps are said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_input import N
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.flows.cli import app
from statpress.mechanisms.errors import (
    ApprovalError,
    LedgerError,
    PolicyMismatchError,
    StatpressError,
)
from statpress.tasks.ledger.account_rules import is_about, named, of_path, of_table, overlap
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.release.ledger_check import verify_ledger

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
TERMS: dict[str, Any] = {
    "adjacency": "replace_one", "unit": "record", "unit_records": 1, "n_records": N,
    "epsilon": "3", "delta": "1e-5",
}  # fmt: skip


@pytest.fixture
def say(agency: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", "300")

    def say(*words: object) -> str:
        app([*map(str, words), "--home", str(agency.home.root)], exit_on_error=False)
        return str(capsys.readouterr().out)

    return say


def bound(agency: Any, *sources: str, **named: Any) -> None:
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        ledger.bind(dataset=agency.dataset, sources=sources, **named)


@pytest.mark.parametrize(
    ("source", "patterns", "is_one"),
    [
        ("/d/a.csv", ["/d/a.csv"], True),
        ("/d/a.csv", ["/d/*.csv"], True),
        ("/d/sub/a.csv", ["/d/*.csv"], True),
        ("/e/a.csv", ["/d/*.csv"], False),
        ("/d/a.csv.bak", ["/d/*.csv"], False),
        ("/d/lfs-*.csv", ["/d/lfs-*.csv"], True),
        ("/d/lfs-2026-*.csv", ["/d/lfs-*"], True),
        ("/d/*.csv", ["/d/lfs-*"], False),
        ("/d/a*-01.csv", ["/d/a?-01.csv"], False),
        ("/d/[ab].csv", ["/d/?????csv"], False),
        ("postgres:s.t", ["postgres:s.*"], True),
        ("postgres:other.t", ["postgres:s.*"], False),
        ("s3://b/k.parquet", ["s3://b/*"], True),
        ("/D/A.csv", ["/d/a.csv"], False),
        ("/d/*/../../e/a.csv", ["/d/*"], False),
        ("/d/{a,b}.csv", ["/d/*"], True),
        ("/d/{a,b}.csv", ["/d/a.csv", "/d/b.csv"], False),
    ],
)
def test_a_source_is_one_of_an_account_or_not(
    source: str, patterns: list[str], is_one: bool
) -> None:
    assert is_about(source, patterns) is is_one


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("/d/a.csv", "/d/a.csv", True),
        ("/d/a.csv", "/d/*.csv", True),
        ("/d/a.csv", "/d/*.parquet", False),
        ("/d/a*.csv", "/d/b*.csv", False),
        ("/d/a*.csv", "/d/*b.csv", True),
        ("/d/a*.csv", "/d/a*.parquet", False),
        ("/d/[a]", "/d/*b", True),
        ("postgres:s.t", "/d/*", False),
        ("/d/tab", "/d/tab/*.parquet", True),
        ("/d/tab", "/d/tab/part-0.parquet", True),
        ("/d/tab", "/d/table.parquet", False),
        ("/d/{a,b}.parquet", "/d/a.parquet", True),
    ],
)
def test_patterns_overlap_where_a_source_may_lie_in_both(one: str, other: str, may: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is may


def test_paths_are_absolute_with_their_links_of_path(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").symlink_to(real / "a.csv")
    assert of_path("link/a.csv", str(tmp_path)) == str(real / "a.csv")
    assert of_path("link/a-*.csv", str(tmp_path)) == str(real / "a-*.csv")
    assert of_path("file", str(tmp_path)) == str(real / "a.csv")
    assert of_path("link/../real/*.csv", str(tmp_path)) == str(real / "*.csv")
    assert of_path("s3a://b/k") == "s3://b/k" and named("postgres:s.t") == "postgres:s.t"


def test_a_wildcard_does_not_hide_where_a_path_leads(tmp_path: Path) -> None:
    """Files, links and folders whose names have brackets, and names like those of tables."""
    secret, data = tmp_path / "secret.parquet", tmp_path / "data"
    (data / "[x]").mkdir(parents=True)
    secret.write_text("x")
    (data / "x[1].parquet").symlink_to(secret)
    (tmp_path / "postgres:public.a").mkdir()
    for path in (
        "data/x[1].parquet", "data/[x]/../../secret.parquet", "data/*/../../secret.parquet",
        "postgres:public.a/../secret.parquet", f"file://{secret}", "data/[no]/../../secret.parquet",
    ):  # fmt: skip
        for patterns in ([f"{data}/*"], ["postgres:public.*"], [f"{data}*"]):
            assert not is_about(of_path(path, str(tmp_path)), patterns), path
    assert of_table("spark", "Default.T") == of_table("spark", "t") == "spark:t"


def test_an_account_that_is_bound_to_nothing_does_not_read_anothers_source(agency: Any) -> None:
    bound(agency, str(agency.source.resolve()))
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        ledger.register(dataset="free", **TERMS)
    agency.replace("dataset: testdata", "dataset: free")
    before = len(agency.entries())
    with pytest.raises(PolicyMismatchError, match="that of another account"):
        agency.run()
    agency.replace("data/source.parquet", "data/sour*.parquet")
    with pytest.raises(PolicyMismatchError, match="that of another account"):
        agency.run()
    assert len(agency.entries()) == before
    (agency.folder / "mine").mkdir()
    (agency.folder / "mine" / "a.parquet").symlink_to(agency.source)
    agency.replace("data/sour*.parquet", "mine/*.parquet")
    with pytest.raises(PolicyMismatchError, match="that of another account"):
        agency.run()
    assert [entry.kind for entry in agency.entries()[before:]] == ["look"]


def test_another_source_is_refused_before_it_is_opened(
    agency: Any, say: Callable[..., str]
) -> None:
    assert "bound to no source" in say("ledger", "show") + say("plan", agency.config)
    said = say("ledger", "amend", "testdata", "--source", agency.source)
    assert said == f"testdata is about {agency.source.resolve()}.\n"
    assert "bound to no source" not in say("ledger", "show") + say("plan", agency.config)
    agency.run()
    look = next(entry for entry in agency.entries() if entry.kind == "look")
    assert look.body["source"] == str(agency.source.resolve())
    agency.source.with_name("other.parquet").write_text("whoever opens it says something else")
    agency.replace("data/source.parquet", "data/other.parquet")
    agency.replace("name: first", "name: second")
    before = len(agency.entries())
    with pytest.raises(PolicyMismatchError, match="not one of those that its account is about"):
        agency.run()
    assert len(agency.entries()) == before
    link = agency.source.with_name("link.parquet")
    link.symlink_to(agency.source.with_name("other.parquet"))
    agency.replace("data/other.parquet", "data/link.parquet")
    with pytest.raises(PolicyMismatchError):
        agency.run()
    assert len(agency.entries()) == before
    verify_ledger(agency.home)


def test_a_file_of_a_pattern_that_is_a_link_elsewhere_is_not_opened(agency: Any) -> None:
    bound(agency, f"{agency.source.parent.resolve()}/s*")
    agency.replace("data/source.parquet", "data/s*.parquet")
    agency.run()
    elsewhere = agency.folder / "elsewhere.parquet"
    elsewhere.write_text("whoever opens it says something else")
    os.symlink(elsewhere, agency.source.with_name("s2.parquet"))
    agency.replace("name: first", "name: second")
    with pytest.raises(PolicyMismatchError):
        agency.run()
    assert agency.entries()[-1].kind == "look"  # which names match is one


def test_people_in_two_accounts_are_said(agency: Any, say: Callable[..., str]) -> None:
    bound(agency, str(agency.source.resolve()))
    words = ["ledger", "register", "again", "--n-records", N, "--epsilon", 3, "--delta", "1e-5"]
    words += ["--source", f"{agency.source.parent}/*"]
    before = len(agency.entries())
    for unsaid in ([], ["--also-in", "testdata"], ["--reason", "another law"]):
        with pytest.raises(LedgerError, match="those of 'testdata' too"):
            say(*words, *unsaid)
    assert len(agency.entries()) == before
    say(*words, "--also-in", "testdata", "--reason", "another law")
    assert [entry.kind for entry in agency.entries()[before:]] == ["register", "bind"]
    agency.replace("dataset: testdata", "dataset: again")
    bundle = agency.run().bundle
    stated = json.loads((bundle / "privacy.json").read_text())["lifetime"]
    assert (stated["also_in"], stated["reason"]) == (["testdata"], "another law")
    page = (bundle / "PRIVACY.md").read_text()
    assert "also those of `testdata` (another law)" in page
    assert str(agency.source) not in page + (bundle / "privacy.json").read_text()


def test_approvers_sign_what_changes_the_terms(agency: Any) -> None:
    dataset = agency.dataset
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        ledger.set_approvers(dataset=dataset, approvers=[public_text(KEY)])
        ledger.look(run="one", dataset=dataset, config_sha256="a" * 64)
        changes: list[Callable[..., Any]] = [
            lambda **key: ledger.amend(dataset=dataset, epsilon="2", reason="less", **key),
            lambda **key: ledger.bind(dataset=dataset, sources=["/d/*"], **key),
            lambda **key: ledger.reopen(dataset=dataset, reason="done", **key),
            lambda **key: ledger.set_approvers(
                dataset=dataset, approvers=[public_text(OTHER)], reason="other", **key
            ),
        ]
        for change in changes:
            with pytest.raises(ApprovalError, match="approver"):
                change()
            with pytest.raises(ApprovalError, match=r"not one of|Only an approver"):
                change(key=OTHER)
            change(key=KEY)
        honest = list(ledger.entries())[-1].body
        with pytest.raises(StatpressError):  # neither without the mark, nor with another
            ledger.append("set-approvers", {k: v for k, v in honest.items() if k != "sign_terms"})
        with pytest.raises(StatpressError):
            ledger.append("set-approvers", honest | {"sign_terms": False})
        ledger.verify()
    kinds = [entry.kind for entry in agency.entries()[3:]]
    assert kinds == ["amend-policy", "bind", "reopen", "set-approvers"]
