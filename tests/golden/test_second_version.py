"""Bundles and a ledger of version 0.1.0, with every kind and mechanism that it has at its end.

Every later version must read and verify them. Everything goes through the command line, so that no
module may break it by moving.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frozen
import pytest
from old_versions import bundles_of, home_of

SECOND = Path(__file__).parent / "second_version"
BUNDLES = {
    "people": 15, "people-reprint": 15, "figures": 22, "functions": 10, "ages": 1,
    "ages-renewed": 1, "visits": 4,
}  # fmt: skip
"""With their numbers of products."""
HEAD = json.loads((SECOND / "ledger.jsonl").read_text().splitlines()[-1])["head"]
Press = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger lies in the home that each command is given; own functions are on the path."""
    monkeypatch.delenv("STATPRESS_LEDGER", raising=False)
    monkeypatch.syspath_prepend(frozen.INPUTS)


@pytest.fixture
def press() -> Press:
    """The command with ``--json``: what it prints, if it ends as expected."""

    def press(*arguments: object, code: int = 0) -> Any:
        ended, out, err = frozen.command(*arguments, "--json")
        assert ended == code, out + err
        return json.loads(out)

    return press


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles, for tests that only read them."""
    return bundles_of(SECOND, tmp_path_factory.mktemp("published"))


@pytest.fixture
def releases(published: Path, tmp_path: Path) -> Path:
    """Bundles of the test's own."""
    return shutil.copytree(published, tmp_path / "releases")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return home_of(SECOND, tmp_path)


def test_every_bundle_verifies_and_is_in_the_ledger(
    published: Path, home: Path, press: Press
) -> None:
    assert {each.name for each in published.iterdir()} == set(BUNDLES)
    for name, products in BUNDLES.items():
        found = press("verify", published / name, "--home", home)
        assert (found["verified"], found["against_ledger"]) == (True, True)
        stated = json.loads((published / name / "privacy.json").read_text())
        assert len(stated["products"]) == products
    reprinted = press("verify", published / "people-reprint")
    assert reprinted["reprint_of"]["seal"] == press("verify", published / "people")["seal"]


def test_signature_and_approval_are_by_whom_they_were(published: Path, press: Press) -> None:
    trusted, other = SECOND / "press-public.pem", SECOND / "checkpoint-public.pem"
    assert press("verify", published / "people", "--key", trusted)["signature"]
    refused = press("verify", published / "people", "--key", other, code=65)
    assert refused["error"]["kind"] == "Signature"
    officer = SECOND / "officer-public.pem"
    found = press("verify", published / "visits", "--public-key", officer)
    assert found["approval"]["decision"] == "approve"
    refused = press("verify", published / "visits", "--public-key", other, code=56)
    assert refused["error"]["kind"] == "Approval"


def test_every_changed_byte_is_found(releases: Path, press: Press) -> None:
    for path in sorted((releases / "ages" / "data").iterdir()):
        honest = path.read_bytes()
        middle = len(honest) // 2
        path.write_bytes(honest[:middle] + bytes([honest[middle] ^ 1]) + honest[middle + 1 :])
        refused = press("verify", releases / "ages", code=53)
        assert refused["error"]["kind"] == "BundleVerification"
        path.write_bytes(honest)
    assert press("verify", releases / "ages")["verified"] is True


def test_the_ledger_holds_and_every_charge_is_recomputed(home: Path, press: Press) -> None:
    key = SECOND / "checkpoint-public.pem"
    found = press("ledger", "verify", "--home", home, "--head", HEAD, "--public-key", key)
    assert (found["verified"], found["entries"], found["head"]) == (True, 29, HEAD)
    assert found["checkpoints"] == [29]
    charges = press("ledger", "charge-history", "--home", home)["charges"]
    assert Counter(each["status"] for each in charges) == {"published": 6, "rejected": 1}
    accounts = press("ledger", "show", "--home", home)["accounts"]
    assert {each["dataset"]: each["policy"] for each in accounts} == {
        "people": "basic",
        "visits": "zcdp",
    }


def test_the_export_is_the_ledger(tmp_path: Path, home: Path, press: Press) -> None:
    empty = tmp_path / "empty"
    found = press("ledger", "import", SECOND / "ledger.jsonl", "--home", empty)
    assert (found["entries"], found["head"]) == (29, HEAD)
    for place in (home, empty):
        press("ledger", "export", tmp_path / f"{place.name}.jsonl", "--home", place)
        written = (tmp_path / f"{place.name}.jsonl").read_bytes()
        assert written == (SECOND / "ledger.jsonl").read_bytes()


def test_wide_microdata_are_asked(published: Path, press: Press) -> None:
    for name in ("people", "people-reprint"):
        asked = ("--columns=age", "--columns=pay", "--where=age=14.5,24.5")
        cells = press("query", published / name, *asked)["cells"]
        assert cells and all(cell["lower"] <= cell["upper"] for cell in cells)
    assert press("query", published / "visits", "--columns=place")["cells"]
    refused = press("query", published / "people", "--columns=region", "--columns=age", code=59)
    assert refused["error"]["kind"] == "NotMeasured"


@pytest.mark.parametrize("name", ["people", "visits", "ages"])
def test_bundles_are_refined(name: str, published: Path, tmp_path: Path, press: Press) -> None:
    output = tmp_path / "refined"
    press("refine", published / name, "--output", output, "--integers")
    stated = json.loads((output / "refinement.json").read_text())
    assert press("verify", published / name)["seal"] in json.dumps(stated)
    assert list((output / "data").glob("*.parquet"))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("people", marks=pytest.mark.system),  # in formats of extras
        "figures",
        "functions",
        pytest.param("ages", marks=pytest.mark.nightly),
    ],
)
def test_bundles_are_reprinted(name: str, releases: Path, press: Press) -> None:
    """What is derived again is what was derived then, to the last byte."""
    press("rerelease", releases / name, "--reprint", "--name", "again")
    found = press("verify", releases / "again")
    assert found["verified"] is True
    assert found["reprint_of"]["seal"] == press("verify", releases / name)["seal"]
    was, now = ({p.name: p for p in (releases / n / "data").iterdir()} for n in (name, "again"))
    assert was.keys() == now.keys()
    for each in was:
        assert frozen.stable(was[each]) == frozen.stable(now[each]), each


def test_a_reviewed_bundle_is_not_reprinted(releases: Path, press: Press) -> None:
    refused = press("rerelease", releases / "visits", "--reprint", "--name", "again", code=57)
    assert refused["error"]["kind"] == "Rerelease"


def test_a_revision_is_planned(releases: Path, home: Path, press: Press) -> None:
    how = ("--plan-only", "--home", home, "--name", "later")
    press("rerelease", releases / "ages", "--revise", frozen.INPUTS / "ages.yaml", *how)


@pytest.mark.system
def test_a_renewal_in_formats_of_extras_is_planned(
    releases: Path, home: Path, press: Press
) -> None:
    how = ("--plan-only", "--home", home, "--name", "later")
    press("rerelease", releases / "people", "--renew", "--folder", frozen.INPUTS, *how)
