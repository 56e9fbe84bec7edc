"""The ledger's commands as a person and a script use them, on both databases."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from prepared import write_keys
from sqlalchemy import make_url

from statpress.flows.cli import app, status_of
from statpress.mechanisms.errors import StatpressError
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home

if TYPE_CHECKING:
    from postgres import Server

BOTH = pytest.mark.parametrize(
    "location", ["sqlite", pytest.param("postgres", marks=pytest.mark.system)], indirect=True
)


@pytest.fixture
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a ledger may be made; in PostgreSQL if a test asks for it."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return str(tmp_path / "ledger.db")
    return str(request.getfixturevalue("postgres_server").database())


Press = Callable[..., subprocess.CompletedProcess[str]]
BIN = Path(sys.executable).parent
TERMS: dict[str, Any] = {
    "adjacency": "replace_one",
    "unit": "record",
    "unit_records": 1,
    "n_records": 400,
}


@pytest.fixture
def ledger(
    tmp_path: Path,
    location: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Press:
    """The command ``statpress ledger`` with its ledger in one of the databases."""
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STATPRESS_LEDGER", location)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def press(*arguments: str) -> subprocess.CompletedProcess[str]:
        command, _ = ["ledger", *arguments], capsys.readouterr()
        code = status_of(lambda: app(command, exit_on_error=False), as_json="--json" in arguments)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(command, code, out, err)

    return press


def facts(press: Press, *arguments: str) -> dict[str, Any]:
    """What a command says in JSON, having succeeded."""
    done = press(*arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(press: Press, kind: str, *arguments: str) -> str:
    """The message of a command that is refused with this kind's own exit code."""
    done = press(*arguments, "--json")
    assert done.returncode == StatpressError.exit_codes()[f"{kind}Error"], done.stdout + done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["where"]
    assert error["next_step"]
    assert "Traceback" not in done.stderr
    return str(error["what"])


DESCRIBED = {
    "mechanism": "bootstrap",
    "pseudocount": "1000",
    "records": 1,
    "n_records": 400,
    "n_cells": "10",
    "unit_records": 1,
    "epsilon": "0.25",
    "delta": "1e-9",
}


def charge(location: str, run_id: str, **changes: Any) -> None:
    amounts = {"epsilon": "0.25", "delta": "1e-9", "rho": "0.01", "rho_delta": 0}
    with Ledger.open(location) as opened:
        opened.charge(
            dataset="d",
            run_id=run_id,
            mechanisms=[DESCRIBED],
            config_sha256="a" * 64,
            **{"insecure_seed": False, "version": "1", **TERMS, **amounts, **changes},
        )


@BOTH
def test_a_life_of_an_account(ledger: Press, location: str, tmp_path: Path) -> None:
    assert refused(ledger, "LedgerUnavailable", "show") == "There is no ledger here."
    opened = facts(
        ledger, "register", "d", "--epsilon", "1", "--delta", "1e-8", "--n-records", "400"
    )
    assert opened["limit"] == {"epsilon": "1", "delta": "1e-8"}
    refused(ledger, "AlreadyRegistered", "register", "d", "--epsilon", "1", "--delta", "0",
            "--n-records", "400")  # fmt: skip
    for run_id in ("one", "two", "three"):
        charge(location, run_id)
    with Ledger.open(location) as opened_here:
        opened_here.draw(run_id="one", dataset="d")
        opened_here.draw(run_id="two", dataset="d")
        opened_here.publish(run_id="two", dataset="d", bundle="b", manifest_sha256="b" * 64)

    (account,) = facts(ledger, "show")["accounts"]
    assert account["spent"]["epsilon"] == "0.5"
    assert account["reserved"]["epsilon"] == "0.25"
    assert account["remaining"] == {"epsilon": "0.25", "delta": "7e-9"}
    assert account["reading"]["delta"] == "1e-8"
    assert account["reading"]["epsilon_adaptive"] == 0.75  # by the policy basic, the sum
    assert 0 < account["reading"]["epsilon_fixed"] < 0.01  # by the mechanisms described
    shown = ledger("show", "--delta", "1e-9").stdout
    assert "█" in shown
    assert "25 % left" in shown
    assert "1 drawn, 1 published, 1 reserved" in shown
    listed = facts(ledger, "charge-history", "d")["charges"]
    assert [(c["run_id"], c["status"]) for c in listed] == [
        ("one", "drawn"),
        ("two", "published"),
        ("three", "reserved"),
    ]
    assert "three" in ledger("charge-history").stdout

    assert "reason" in refused(ledger, "Ledger", "amend", "d", "--epsilon", "2")
    more = facts(ledger, "amend", "d", "--epsilon", "2", "--reason", "the board agreed")
    assert more["limit"] == {"epsilon": "2", "delta": "1e-8"}
    less = facts(ledger, "amend", "d", "--epsilon", "0.75")
    assert less["remaining"]["epsilon"] == "0"
    assert "Spent is epsilon 0.75" in refused(ledger, "Ledger", "amend", "d", "--epsilon", "0.7")
    other = ("amend", "d", "--policy", "zcdp", "--rho", "0.5", "--delta", "0")
    assert "reason" in refused(ledger, "Ledger", *other)
    moved = facts(ledger, *other, "--reason", "many small releases")
    assert moved["remaining"] == {"rho": "0.47", "rho_delta": "0"}

    assert "stays spent" in refused(ledger, "Ledger", "void", "one", "--reason", "no")
    assert ledger("void", "three").returncode == 2  # a reason is needed
    lost = ("void", "three", "--reason", "its worker burnt")
    assert "This home did not charge" in refused(ledger, "Ledger", *lost)
    given_back = facts(ledger, *lost, "--elsewhere")
    assert given_back["remaining"]["rho"] == "0.48"
    assert "no charge" in refused(ledger, "Ledger", "void", "nobody", "--reason", "no")


def test_verify_against_what_is_kept_elsewhere(
    ledger: Press, location: str, tmp_path: Path
) -> None:
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    write_key(key, public)
    facts(ledger, "register", "d", "--epsilon", "9", "--delta", "1e-6", "--n-records", "400")
    charge(location, "one")
    signed = facts(ledger, "checkpoint", "--key", str(key))
    kept = facts(ledger, "export", "kept.jsonl")
    assert kept["head"] == signed["head"] == facts(ledger, "verify")["head"]
    charge(location, "two")
    found = facts(ledger, "verify", "--head", kept["head"], "--public-key", str(public))
    assert (found["entries"], found["checkpoints"]) == (4, [3])
    assert found["signers"] == [signed["public_key"]]
    assert "rewritten" in refused(ledger, "LedgerIntegrity", "verify", "--head", "f" * 64)
    assert "not a hash" in refused(ledger, "Ledger", "verify", "--head", "F")
    write_key(tmp_path / "other.pem", other := tmp_path / "other-public.pem")
    assert "not trusted" in refused(ledger, "LedgerIntegrity", "verify", "--public-key", str(other))
    assert facts(ledger, "export", "kept.jsonl")["entries"] == 4

    # A ledger set back to an earlier day does not pass for this one, nor replace its export.
    home = str(tmp_path / "elsewhere")
    whole = ("import", "kept.jsonl", "--head", facts(ledger, "verify")["head"])
    refused(ledger, "LedgerIntegrity", *whole[:3], kept["head"], "--home", home)
    facts(ledger, *whole, "--home", home)
    assert facts(ledger, "verify", "--home", home)["entries"] == 4
    refused(ledger, "Ledger", *whole, "--home", home)
    unsure = str(tmp_path / "unsure")  # what the export may lack: both runs may have drawn
    facts(ledger, "import", "kept.jsonl", "--home", unsure)
    assert facts(ledger, "verify", "--home", unsure)["entries"] == 6
    assert "stays spent" in refused(
        ledger, "Ledger", "void", "two", "--reason", "lost", "--elsewhere", "--home", unsure
    )
    early = tmp_path / "early"
    cut = (tmp_path / "kept.jsonl").read_text().splitlines()[:2]
    hash_ = json.loads(cut[1])["hash"]
    end = {"format": "statpress-ledger/1", "entries": 2, "head": hash_}
    (tmp_path / "early.jsonl").write_text("\n".join([*cut, json.dumps(end)]))
    facts(ledger, "import", "early.jsonl", "--home", str(early))
    current = facts(ledger, "verify")["head"]
    set_back = ("--home", str(early))
    for check in (("verify", "--head", current), ("verify", "--public-key", str(public))):
        refused(ledger, "LedgerIntegrity", *check, *set_back)
    before = (tmp_path / "kept.jsonl").read_bytes()
    refused(ledger, "LedgerIntegrity", "export", "kept.jsonl", *set_back)
    assert (tmp_path / "kept.jsonl").read_bytes() == before


def write_key(key: Path, public: Path) -> None:
    """A new pair of keys, as the commands write it that the errors recommend."""
    for made in write_keys(key.parent, Ed25519PrivateKey.generate(), f"new-{key.stem}"):
        made.rename(public if "public" in made.name else key)


def test_keys_that_will_not_do(ledger: Press, tmp_path: Path) -> None:
    facts(ledger, "register", "d", "--epsilon", "9", "--delta", "0", "--n-records", "400")
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    assert "cannot be read" in refused(ledger, "SigningKey", "checkpoint", "--key", str(key))
    write_key(key, public)
    key.chmod(0o644)
    assert "Others" in refused(ledger, "SigningKey", "checkpoint", "--key", str(key))
    public.chmod(0o600)
    assert "no private" in refused(ledger, "SigningKey", "checkpoint", "--key", str(public))
    assert "no public" in refused(ledger, "SigningKey", "verify", "--public-key", str(key))
    key.unlink()
    how = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    key.touch(0o600)
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(*how))
    assert "passphrase" in refused(ledger, "SigningKey", "checkpoint", "--key", str(key))
    assert facts(ledger, "verify")["entries"] == 1


def test_amounts_and_limits_that_will_not_do(ledger: Press) -> None:
    size = ("--n-records", "400")
    for epsilon in ("nan", "inf", "1e400", "-1", "0", "x", "1_0", "9" * 401):
        refused(ledger, "Amount", "register", "d", "--epsilon", epsilon, "--delta", "0", *size)
    assert "limits epsilon and delta" in refused(ledger, "Ledger", "register", "d", *size)
    both = ("--rho", "1", "--epsilon", "1", "--delta", "0")
    refused(ledger, "Ledger", "register", "d", "--policy", "zcdp", *both, *size)
    assert ledger("register", "d", "--policy", "free", *size).returncode == 2
    for delta in ("0", "1", "nan"):
        refused(ledger, "Amount", "show", "--delta", delta)
    tiny = ("--policy", "zcdp", "--rho", "1e-300", "--delta", "0")
    assert facts(ledger, "register", "d", *tiny, *size)["limit"]["rho"] == "1e-300"
    assert facts(ledger, "show", "d")["accounts"][0]["reading"]["epsilon_adaptive"] == 0


def test_upgrade_has_nothing_to_do(ledger: Press) -> None:
    refused(ledger, "LedgerUnavailable", "upgrade")
    facts(ledger, "register", "d", "--epsilon", "9", "--delta", "0", "--n-records", "400")
    assert facts(ledger, "upgrade") == {"from": "second", "to": "second"}
    assert "present form, 'second'; there is nothing to upgrade" in ledger("upgrade").stdout
    assert facts(ledger, "verify")["entries"] == 1


@pytest.mark.system
def test_a_release_is_charged_to_postgresql(agency: Any, postgres_server: Server) -> None:
    postgres_url = postgres_server.database()
    agency.home.ledger.unlink()

    class Elsewhere(type(agency)):
        @property
        def home(self) -> Home:
            return Home(self.folder / "home", postgres_url)

    elsewhere = Elsewhere(agency.folder, agency.inspector)
    elsewhere.register()
    outcome = elsewhere.run()
    with Ledger.open(postgres_url, create=False) as opened:
        kinds = [entry.kind for entry in opened.entries()]
        assert kinds == ["register", "look", "charge", "draw", "publish"]
        assert opened.state().charges[outcome.run_id].entry.hash == outcome.ledger_entry
    assert not (agency.folder / "home" / "ledger.sqlite").exists()


@pytest.mark.system
def test_a_password_is_never_shown(
    postgres_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(postgres_server.database()).set(username="keeper", password="hush-7719")
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STATPRESS_LEDGER", url.render_as_string(hide_password=False))
    done = subprocess.run(
        [str(BIN / "statpress"), "ledger", "show"], capture_output=True, text=True, check=False
    )
    assert done.returncode == StatpressError.exit_codes()["LedgerUnavailableError"]
    assert "does not accept" in done.stderr
    assert "hush-7719" not in done.stdout + done.stderr


UNITS = ("--unit-column", "person", "--max-records", "3", "--n-units", "100")


def test_a_dataset_of_units_is_registered_with_their_number(ledger: Press) -> None:
    limits = ("--epsilon", "1", "--delta", "1e-8")
    registered = facts(ledger, "register", "d", *limits, *UNITS)["registered"]
    terms = {"unit": "column person", "unit_records": 3, "n_records": 300}
    assert {name: registered[name] for name in terms} == terms
    words = "100 units (up to 300 records), replace_one, unit column person of 3 records each"
    assert words in " ".join(ledger("show", "d").stdout.split())
    for given in ((), UNITS[:4], (*UNITS, "--n-records", "300")):
        assert "in full" in refused(ledger, "Config", "register", "e", *limits, *given)
    for wrong in ("0", "-1", "100000000000000000000"):
        refused(ledger, "Records", "register", "e", *limits, *UNITS[:5], wrong)
