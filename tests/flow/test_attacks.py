"""What an attacker, or bad luck, tried: each stays closed."""

import asyncio
import json
import os
import signal
import stat
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, N
from signed_bundles import make_bundle

from statpress.configs.checks import RESERVED_COLUMNS
from statpress.flows.terminal import plain
from statpress.mechanisms.errors import (
    BundleVerificationError,
    ConfigError,
    InsufficientBudgetError,
    InternalError,
    LedgerError,
    LedgerIntegrityError,
    OutOfMemoryError,
    OutputNotWritableError,
    StatpressError,
)
from statpress.tasks.bundle.manifest import MANIFEST_NAME, seal, verify_bundle
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog, guarded
from statpress.tasks.release.quality_gates import Between, Inspector


class Unlimited(Between):
    """An expectation that is left out of what the process judges."""

    def as_row(self, observed: int) -> dict[str, object]:
        return {"figure": self.figure}


def raised(function, log: CuratorLog) -> tuple[BaseException, str]:
    """What leaves the wall, and all a traceback of it would tell."""
    error: BaseException | None = None
    try:
        guarded(function, log)()
    except BaseException as caught:
        error = caught
    assert error is not None
    told = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
    return error, told


def raiser(error: BaseException):
    def run() -> None:
        try:
            raise ValueError(CANARY)
        except ValueError:
            raise error from None  # its context is private too

    return run


def test_wall_holds_when_the_curator_log_cannot_be_written(tmp_path: Path) -> None:
    full = CuratorLog(tmp_path, "x")
    full.path = Path("/dev/full")
    for message in (CANARY, CANARY + "\udcff"):
        for log in (full, CuratorLog(tmp_path / "nowhere", "x"), CuratorLog(tmp_path, "y")):
            error, told = raised(raiser(RuntimeError(message)), log)
            assert type(error) is InternalError
            assert CANARY not in told


@pytest.mark.parametrize(
    ("given", "leaves"),
    [
        (SystemExit(CANARY), InternalError),
        (MemoryError(CANARY), OutOfMemoryError),
        (GeneratorExit(CANARY), InternalError),
        (KeyboardInterrupt(CANARY), KeyboardInterrupt),
        (asyncio.CancelledError(CANARY), asyncio.CancelledError),
        (ExceptionGroup(CANARY, [ValueError(CANARY)]), InternalError),
    ],
)
def test_no_kind_of_exception_passes_the_wall(tmp_path: Path, given, leaves: type) -> None:
    error, told = raised(raiser(given), CuratorLog(tmp_path, "run"))
    assert type(error) is leaves
    assert CANARY not in told
    assert error.__context__ is None
    assert CANARY in (tmp_path / "run.log").read_text()


def test_the_orchestrators_termination_keeps_its_kind(tmp_path: Path) -> None:
    from prefect.exceptions import TerminationSignal

    given = TerminationSignal(signal=15)
    given.add_note(CANARY)
    error, told = raised(raiser(given), CuratorLog(tmp_path, "run"))
    assert type(error) is TerminationSignal
    assert error.signal == 15
    assert CANARY not in told


def test_a_flow_that_the_orchestrator_cancels_timed_out_wherever_it_was(tmp_path: Path) -> None:
    """Its alarm may strike anywhere; what passes the wall is still its own cancellation."""
    from prefect.utilities.timeout import timeout

    def struck() -> None:
        signal.raise_signal(signal.SIGALRM)

    log = CuratorLog(tmp_path, "run")
    with pytest.raises(TimeoutError), timeout(seconds=3600):
        guarded(struck, log)()


def test_our_own_errors_pass_with_their_public_fields_alone(tmp_path: Path) -> None:
    given = InsufficientBudgetError("too much", where="here", remaining="1", requested="2")
    given.add_note(CANARY)
    given.detail = CANARY
    error, told = raised(raiser(given), CuratorLog(tmp_path, "run"))
    assert (error.what, error.where, error.remaining, error.requested) == (
        "too much",
        "here",
        "1",
        "2",
    )
    assert CANARY not in told


def test_the_quality_process_is_ours_and_restarted_once_it_died(
    tmp_path: Path, monkeypatch
) -> None:
    planted = tmp_path / "tasks" / "quality" / "process.py"
    planted.parent.mkdir(parents=True)
    for package in (tmp_path / "tasks", planted.parent):
        (package / "__init__.py").write_text("")
    planted.write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    with Inspector(CuratorLog(tmp_path, "log")) as inspector:
        first = inspector._process
        assert first.args[2:4] == ["-m", "statpress.tasks.release.quality_process"]
        first.kill()
        first.wait()
        assert inspector.meets("gate", {"x": 1}, [Between("x", 1, 1)])
        assert inspector._process.args == first.args and inspector._process is not first
        assert not inspector.meets("gate", {"x": 1}, [Between("x", 2)])
        assert inspector.meets("gate", {"x": 1}, [])  # nothing is limited
        with pytest.raises(RuntimeError, match="left an expectation out"):
            inspector.meets("gate", {"x": 1}, [Unlimited("x", 1, 1)])
    assert not (tmp_path / "ran").exists()


def test_one_charge_is_one_draw(agency) -> None:
    first = agency.run()
    agency.replace("name: first", "name: second")
    entries = agency.entries()
    again = agency.run_again()
    assert (again.bundle, again.seal) == (first.bundle, first.seal)
    assert agency.entries() == entries
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        charge = dict(ledger.state().charges[first.run_id].entry.body)
        del charge["created"], charge["spent"]
        assert ledger.charge(**charge).hash == first.ledger_entry
        with pytest.raises(LedgerError, match="charged before"):
            ledger.draw(run_id=first.run_id, dataset="testdata")
    assert [path.name for path in agency.bundles()] == ["first"]


def test_an_added_trigger_is_found_and_a_swallowed_entry_too(agency, monkeypatch) -> None:
    import sqlite3

    with sqlite3.connect(agency.home.ledger) as raw:
        raw.execute(
            "CREATE TRIGGER zz BEFORE INSERT ON entries WHEN NEW.kind = 'charge' "
            "BEGIN SELECT RAISE(IGNORE); END"
        )
    with pytest.raises(LedgerIntegrityError, match="zz"):
        agency.run()
    monkeypatch.setattr("statpress.tasks.ledger.ledger.check_schema", lambda connection: True)
    with pytest.raises(LedgerIntegrityError):
        agency.run()
    assert agency.bundles() == []


@pytest.mark.parametrize("names", [("people", "people_debiased"), ("People", "people")])
def test_two_products_never_share_a_file(agency, names: tuple[str, str]) -> None:
    agency.replace("  people:", f"  {names[0]}:")
    agency.replace("  births:", f"  {names[1]}:")
    with pytest.raises(ConfigError, match="same file"):
        agency.run()


@pytest.mark.parametrize("name", RESERVED_COLUMNS)
def test_names_of_the_debiased_columns_are_reserved(agency, name: str) -> None:
    agency.replace("  born:", f"  {name}:")
    agency.replace("[born]", f"[{name}]")
    with pytest.raises(ConfigError, match=name):
        agency.run()


AWKWARD = ("NA", "null", "nan", "", " a ", 'q"uo,te', "li\\ne", "#")


def test_awkward_categories_come_back_from_csv(agency) -> None:
    quoted = ", ".join(f'"{each}"' for each in (c.replace('"', '\\"') for c in AWKWARD))
    agency.replace("categories: [north, south]", f"categories: [north, south, {quoted}]")
    bundle = agency.run().bundle
    read = pyarrow.csv.read_csv(
        bundle / "data" / "people.csv",
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"region": pa.string()}, strings_can_be_null=True, null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )["region"].to_pylist()  # fmt: skip
    assert {category.replace("\\n", "\n") for category in AWKWARD} <= set(read)
    assert sorted(map(str, read)) == sorted(
        map(str, pq.read_table(bundle / "data" / "people.parquet")["region"].to_pylist())
    )


def test_a_column_of_nulls_alone_is_written_and_read(agency) -> None:
    """All records are null, so that each of the 400 draws is null with a chance above 0.4."""
    private = pq.read_table(agency.source).drop_columns(["born"])
    agency.write_source(private.append_column("born", pa.nulls(N, pa.date32())))
    agency.replace("by: year}", "by: year, missing: true}")
    data = agency.run().bundle / "data"
    drawn = pq.read_table(data / "births.parquet")
    assert drawn.column_names == ["born"]
    assert len(drawn) == N
    assert None in drawn["born"].to_pylist()
    read = pyarrow.csv.read_csv(
        data / "births.csv",
        parse_options=pyarrow.csv.ParseOptions(ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"born": pa.string()}, strings_can_be_null=True, null_values=[""]
        ),
    )
    assert read["born"].to_pylist() == drawn["born"].to_pylist()


def test_a_negative_seed_is_refused_before_the_charge(agency) -> None:
    with pytest.raises(ConfigError, match="seed"):
        agency.run(insecure_seed=-1)
    assert [entry.kind for entry in agency.entries()] == ["register"]


@pytest.mark.parametrize("path", ["data/source.csv", "../levels.txt", "/etc/passwd", "levels.yaml"])
def test_categories_are_read_from_text_files_of_the_config_alone(agency, path: str) -> None:
    for place in (agency.source.with_suffix(".csv"), agency.folder / "levels.yaml"):
        place.write_text(CANARY)
    agency.replace("categories: [north, south]", f"categories: {{file: {path}}}")
    with pytest.raises(ConfigError, match="txt") as caught:
        agency.run()
    assert CANARY not in str(caught.value)


def test_publishing_inside_the_home_or_a_bundle_is_refused(agency) -> None:
    bundle = agency.run().bundle
    for place in ("home/work", "releases/first", "releases/first/data"):
        agency.text = agency.text.replace("directory: releases", f"directory: {place}")
        agency.replace("name: first", "name: evil")
        with pytest.raises(OutputNotWritableError, match="inside"):
            agency.run()
        agency.text = agency.text.replace(f"directory: {place}", "directory: releases")
        agency.replace("name: evil", "name: first")
    verify_bundle(bundle)


def test_a_directory_that_everyone_can_write_is_refused(agency) -> None:
    agency.releases.mkdir()
    agency.releases.chmod(0o777)
    with pytest.raises(OutputNotWritableError, match="everyone"):
        agency.run()
    agency.releases.chmod(0o1777)
    agency.run()


@pytest.mark.parametrize("mask", [pytest.param(0o000, marks=pytest.mark.nightly), 0o077])
def test_modes_do_not_depend_on_the_umask(agency, mask: int) -> None:
    before = os.umask(mask)
    try:
        bundle = agency.run().bundle
    finally:
        os.umask(before)
    for path in (bundle, *bundle.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)


def _duplicate_key(bundle: Path, manifest: dict) -> None:
    path = bundle / MANIFEST_NAME
    path.write_text(path.read_text().replace("{", '{\n  "publishable": true,', 1))


def _trailing(bundle: Path, manifest: dict) -> None:
    with (bundle / MANIFEST_NAME).open("a") as file:
        file.write(" ")


def _deep(bundle: Path, manifest: dict) -> None:
    (bundle / MANIFEST_NAME).write_text("[" * 100_000)


def _missing_fact(bundle: Path, manifest: dict) -> None:
    facts = {k: v for k, v in manifest.items() if k not in ("format", "files", "seal", "run_id")}
    seal(bundle, facts)


def _declared_link(bundle: Path, manifest: dict) -> None:
    (bundle / "data" / "link.csv").symlink_to("/etc/passwd")
    seal(bundle, {k: v for k, v in manifest.items() if k not in ("format", "files", "seal")})


def _odd_files(bundle: Path, manifest: dict) -> None:
    text = json.dumps(manifest | {"files": [{"path": ["x"], "bytes": 1, "sha256": "a" * 64}]})
    (bundle / MANIFEST_NAME).write_text(text)


@pytest.mark.parametrize(
    "attack", [_duplicate_key, _trailing, _deep, _missing_fact, _declared_link, _odd_files]
)
def test_hostile_manifests_are_refused(tmp_path: Path, attack) -> None:
    bundle = make_bundle(tmp_path / "first", None)
    attack(bundle, verify_bundle(bundle))
    with pytest.raises(BundleVerificationError):
        verify_bundle(bundle)


def test_text_cannot_repaint_a_terminal(agency, tmp_path: Path) -> None:
    assert plain("a\x1b[2Kb\r\u202ec\nd") == "a\\x1b[2Kb\\r\\u202ec\nd"
    agency.replace("title: Test release", 'title: "x\\e]0;pwn\\a"')
    with pytest.raises(ConfigError, match="printable"):
        agency.run()


@pytest.mark.parametrize("value", ["1e99999999", "'1e99999999'", "1e-99999999"])
def test_numbers_of_absurd_length_are_refused_at_once(agency, value: str) -> None:
    agency.replace("columns: [born], share", f"columns: [born], pseudocount: {value}, share")
    with pytest.raises(ConfigError):
        agency.run()


def test_shares_are_summed_exactly(agency) -> None:
    agency.replace("share: 0.5}\npublish", f"share: 0.5{'0' * 38}1}}\npublish")
    with pytest.raises(ConfigError, match="add up"):
        agency.run()


def test_the_curator_learns_what_the_engine_said(agency) -> None:
    agency.source.write_bytes(b"PAR1" + CANARY.encode() * 20 + b"PAR1")
    with pytest.raises(StatpressError) as caught:
        agency.run()
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert "Traceback" in agency.inspector.log.path.read_text()
