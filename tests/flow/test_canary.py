"""The canary: a value that occurs in the private source alone is found nowhere else.

It goes through a successful run and through every failing one, under Prefect's own
server and database.
"""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import bad_input
import pytest
from prefect.testing.utilities import prefect_test_harness

from mechanisms.errors import InternalError, StatpressError

PRIVATE = (bad_input.CANARY, "48151623", "48_151_623")


@pytest.fixture(scope="module")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A real server with a database and storage of its own, for this module."""
    home = tmp_path_factory.mktemp("prefect")
    patch = pytest.MonkeyPatch()
    patch.setenv("PREFECT_HOME", str(home))
    patch.setenv("PREFECT_LOCAL_STORAGE_PATH", str(home / "storage"))
    patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    patch.setattr(logging, "raiseExceptions", False)  # its console handler outlives a capture
    patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
    import tempfile

    patch.setattr(tempfile, "tempdir", None)
    with prefect_test_harness(server_startup_timeout=180):
        yield Path(tempfile.gettempdir())
    patch.undo()


def found_in(*folders: Path, but: tuple[Path, ...] = ()) -> list[str]:
    """Files below the folders in which a private value stands."""
    hits = []
    for path in {p for folder in folders for p in folder.rglob("*") if p.is_file()}:
        if any(path == b or b in path.parents for b in but):
            continue
        content = path.read_bytes()
        hits += [f"{path}: {v}" for v in PRIVATE if v.encode() in content]
    return hits


def prefect_states() -> list[str]:
    """Everything the server tells of all runs, as its API gives it."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        told = [flow_run.model_dump_json() for flow_run in client.read_flow_runs()]
        told += [task_run.model_dump_json() for task_run in client.read_task_runs()]
        told += [log.model_dump_json() for log in client.read_logs()]
    return told


def run_watched(agency, capfd) -> tuple[BaseException | None, str]:
    """Run under Prefect; the error, and all that was printed or logged."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    error = None
    try:
        agency.run(orchestrated=True)
    except StatpressError as caught:
        error = caught
    finally:
        logging.getLogger().removeHandler(handler)
    out, err = capfd.readouterr()
    return error, out + err + stream.getvalue()


def assert_silent(agency, told: str, prefect_home: Path) -> None:
    curator = agency.home.root / "curator"
    assert not [value for value in PRIVATE if value in told]
    hits = found_in(agency.folder, prefect_home, but=(curator, agency.source))
    assert hits == []
    assert not [text for text in prefect_states() if any(value in text for value in PRIVATE)]


def test_canary_in_a_successful_run(agency, capfd, prefect_home: Path) -> None:
    error, told = run_watched(agency, capfd)
    assert error is None
    assert_silent(agency, told, prefect_home)
    # The server did see the run, and its database lies among what was searched.
    assert any("draw records" in text for text in prefect_states())
    stored = [
        p for p in prefect_home.rglob("*") if p.is_file() and b"SQLite" in p.read_bytes()[:16]
    ]
    assert any(b"draw records" in p.read_bytes() for p in prefect_home.rglob("*") if p.is_file())
    assert stored


@pytest.mark.parametrize("name", bad_input.CASES)
def test_canary_in_every_failing_run(agency, name: str, capfd, prefect_home: Path) -> None:
    breaks, expected = bad_input.CASES[name]
    breaks(agency)
    error, told = run_watched(agency, capfd)
    assert type(error) is expected
    assert_silent(agency, told, prefect_home)


def _division(*_: object, **__: object) -> None:
    raise ZeroDivisionError(f"{bad_input.CANARY} {bad_input.RARE}")


def _exit_with_value(*_: object, **__: object) -> None:
    import warnings

    warnings.warn(f"look: {bad_input.CANARY}", stacklevel=1)
    logging.getLogger("duckdb").error("value %s", bad_input.CANARY)
    raise KeyError(bad_input.CANARY)


@pytest.mark.parametrize("breaks", [_division, _exit_with_value])
@pytest.mark.parametrize(
    "place", ["counting.profile", "counting.count", "quality.check_table", "bundle.write_bundle"]
)
def test_canary_in_an_unforeseen_error(
    agency, capfd, prefect_home: Path, monkeypatch: pytest.MonkeyPatch, place: str, breaks
) -> None:
    monkeypatch.setattr(f"tasks.pipeline.{place}", breaks)
    error, told = run_watched(agency, capfd)
    assert type(error) is InternalError
    assert_silent(agency, told, prefect_home)
    log = agency.inspector.log.path
    assert bad_input.CANARY in log.read_text()  # the curator does learn what happened
    assert error.exit_code == 70


def test_canary_in_the_deployed_flow(
    agency, capfd, prefect_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATPRESS_HOME", str(agency.home.root))
    from flows.deployed import release

    place = release(config=str(agency.config))
    assert Path(place) == agency.releases / "first"
    out, err = capfd.readouterr()
    assert_silent(agency, out + err, prefect_home)
    with pytest.raises(StatpressError, match="already there"):
        release(config=str(agency.config))


def test_the_search_finds_what_is_there(agency, prefect_home: Path) -> None:
    """The canary test can fail: the value is found where it was put. Must run last."""
    (prefect_home / "leak").write_text(f"xx{bad_input.CANARY}")
    assert found_in(prefect_home)
    (prefect_home / "leak").unlink()
    from prefect import flow

    @flow(name="leak", persist_result=False)
    def leak(value: str) -> None:
        return None

    leak(bad_input.CANARY)
    assert [text for text in prefect_states() if bad_input.CANARY in text]
