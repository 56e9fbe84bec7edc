"""Export and import: every line is checked, nothing is half written, no rollback passes."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from census_ledger import TERMS, new_ledger
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from statpress.mechanisms.errors import (
    AmountError,
    LedgerError,
    LedgerIntegrityError,
    LedgerUnavailableError,
    StatpressError,
)
from statpress.tasks.ledger.export import read_head, restore, write_export
from statpress.tasks.ledger.ledger import Ledger


def charge(ledger: Ledger, run_id: str) -> Any:
    amounts = {"epsilon": "0.01", "delta": "1e-9", "rho": "1e-5", "rho_delta": 0}
    return ledger.charge(
        dataset="census",
        run_id=run_id,
        mechanisms=[{"mechanism": "laplace", "note": "é"}],
        config_sha256="a" * 64,
        insecure_seed=False,
        version="1",
        **amounts,
        **TERMS,
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    """A ledger with an entry of every kind."""
    with new_ledger(tmp_path / "ledger.db") as made:
        made.register(dataset="census", epsilon=1, delta="1e-6", **TERMS)
        made.amend(dataset="census", policy="basic", epsilon="0.5", delta="1e-6")
        charge(made, "one")
        charge(made, "two")
        made.draw(run_id="one", dataset="census")
        made.void(run_id="two", dataset="census", reason="not needed")
        made.publish(run_id="one", dataset="census", bundle="b", manifest_sha256="b" * 64)
        made.checkpoint(Ed25519PrivateKey.generate())
        yield made


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_an_import_is_the_same_ledger(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    found = write_export(ledger, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_head(file) == found.head
    assert [part["sequence"] for part in lines(file)[:-1]] == list(range(1, 9))
    with new_ledger(tmp_path / "other.db") as other:
        number, state = restore(other, file)
        assert number == found.entries
        assert state == ledger.state() == other.state()
        assert other.verify() == found
        again = tmp_path / "again.jsonl"
        write_export(other, again)
        assert again.read_bytes() == file.read_bytes()
        charge(other, "three")  # and life goes on
        assert other.verify(head=found.head).entries == 9


def test_an_empty_ledger_goes_out_and_in(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "a.db") as empty, Ledger.open(tmp_path / "b.db") as other:
        write_export(empty, tmp_path / "export")
        assert restore(other, tmp_path / "export")[1].next_sequence == 1


def test_import_wants_an_empty_ledger(ledger: Ledger, tmp_path: Path) -> None:
    write_export(ledger, tmp_path / "export")
    before = ledger.verify()
    with pytest.raises(LedgerError, match="holds entries already"):
        restore(ledger, tmp_path / "export")
    assert ledger.verify() == before


def test_an_export_replaces_only_what_the_ledger_continues(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "export"
    first = write_export(ledger, file)
    charge(ledger, "three")
    assert write_export(ledger, file).entries == first.entries + 1
    kept = file.read_bytes()
    with Ledger.open(tmp_path / "rolled-back.db") as rolled_back:
        rolled_back.register(dataset="census", epsilon=1, delta="1e-6", **TERMS)
        with pytest.raises(LedgerIntegrityError, match="rolled back") as caught:
            write_export(rolled_back, file)
        assert caught.value.sequence == 2
    assert file.read_bytes() == kept
    notes = tmp_path / "notes.txt"
    notes.write_text("something else\n")
    with pytest.raises(LedgerError):
        write_export(ledger, notes)
    assert notes.read_text() == "something else\n"
    assert sorted(p.name for p in tmp_path.iterdir() if ".new" in p.name) == []


def test_an_export_that_cannot_be_written_leaves_nothing(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="cannot be written"):
        write_export(ledger, tmp_path / "no" / "such" / "folder")
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerUnavailableError, match="cannot be read"):
        write_export(ledger, tmp_path / "folder")


def change(parts: list[Any], index: int, name: str, value: Any) -> None:
    parts[index][name] = value


CHANGES = {
    "field": lambda parts: change(parts, 2, "kind", "draw"),
    "body": lambda parts: change(parts[2:3], 0, "body", {**parts[2]["body"], "rho": "1e-6"}),
    "sequence": lambda parts: change(parts, 2, "sequence", "3"),
    "no hash": lambda parts: parts[2].pop("hash"),
    "left out": lambda parts: parts.pop(2),
    "twice": lambda parts: parts.insert(3, parts[2]),
    "swapped": lambda parts: parts.insert(3, parts.pop(2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_line_is_named_and_nothing_is_written(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "export"
    write_export(ledger, file)
    parts = lines(file)
    CHANGES[name](parts)
    if name in {"left out", "twice"}:
        parts[-1]["entries"] = len(parts) - 1
    file.write_text("".join(f"{json.dumps(part)}\n" for part in parts))
    with new_ledger(tmp_path / "other.db") as other:
        with pytest.raises(LedgerIntegrityError) as caught:
            restore(other, file)
        expected = {"twice": 4, "sequence": None}.get(name, 3)
        assert caught.value.sequence == expected
        assert other.verify().entries == 0


@pytest.mark.parametrize("kept", range(9))
def test_a_cut_export_is_no_export(ledger: Ledger, tmp_path: Path, kept: int) -> None:
    file = tmp_path / "export"
    write_export(ledger, file)
    text = file.read_text().splitlines()
    file.write_text("\n".join(text[:kept]))
    with new_ledger(tmp_path / "other.db") as other:
        with pytest.raises(LedgerError, match="does not end"):
            restore(other, file)
        file.write_text("\n".join([*text[:kept], text[-1]]))
        if kept < 8:
            with pytest.raises(LedgerIntegrityError) as caught:
                restore(other, file)
            assert caught.value.sequence == kept + 1
        assert other.verify().entries == 0


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', "é", "9" * 5000, "[" * 99_999])
def test_what_is_no_export_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "export"
    file.write_text(text)
    with Ledger.open(tmp_path / "ledger.db") as ledger, pytest.raises(StatpressError) as caught:
        restore(ledger, file)
    assert isinstance(caught.value, LedgerError)
    assert not isinstance(caught.value, AmountError)
    assert caught.value.where
