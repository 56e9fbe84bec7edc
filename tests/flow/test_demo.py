"""The demo's folder: what is shipped goes into it, and a demo that fails leaves none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import statpress.flows.cli.demo_command
import statpress.flows.runner
from statpress.configs.loading import load
from statpress.flows.cli import app
from statpress.flows.cli.demo_command import CONFIGS, prepare
from statpress.mechanisms.errors import InternalError, OutputNotWritableError, WorkerError
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.source.demo_data import N_RECORDS

COMMAND = ("demo", "--no-orchestrator", "--json", "--directory")


def test_the_tables_that_are_shipped_are_those_of_the_configs(tmp_path: Path) -> None:
    prepare(tmp_path, Home(tmp_path / "home"))
    for name in CONFIGS:
        release = load(tmp_path / name)
        table = pq.read_table(release.located(release.config.source.path))
        assert table.num_rows == N_RECORDS[release.config.dataset] == release.privacy.n_records
        assert set(release.domain.names) <= set(table.column_names)


@pytest.mark.parametrize("place", ["run_release", "prepare", "write_demo_data"])
@pytest.mark.parametrize("error", [WorkerError("no worker"), KeyboardInterrupt()])
def test_one_that_fails_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    room = statpress.flows.runner if place == "run_release" else statpress.flows.cli.demo_command
    monkeypatch.setattr(room, place, fail)
    with pytest.raises(type(error)):
        app([*COMMAND, str(tmp_path / "demo")], exit_on_error=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "demo").mkdir()  # one that was there stays, with what is in it
    (tmp_path / "demo" / "mine.txt").touch()
    with pytest.raises(type(error)):
        app([*COMMAND, str(tmp_path / "demo")], exit_on_error=False)
    assert (tmp_path / "demo" / "mine.txt").exists()


def test_the_log_of_something_unforeseen_is_kept_elsewhere(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("what went wrong")

    monkeypatch.setattr("statpress.flows.release.check_budget", fail)
    with pytest.raises(InternalError) as caught:
        app([*COMMAND, str(tmp_path / "demo")], exit_on_error=False)
    assert [*tmp_path.iterdir()] == [temporary]
    (log,) = temporary.iterdir()
    assert str(log) in caught.value.next_step and "what went wrong" in log.read_text()


def test_a_place_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()
    with pytest.raises(OutputNotWritableError, match="File exists"):
        app([*COMMAND, str(tmp_path / "demo")], exit_on_error=False)
    assert (tmp_path / "demo").is_file()
