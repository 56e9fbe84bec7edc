"""Products drawn by processes of this machine: the same release, and how it ends where they end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from outbursts import Bursting, FullDisk, Instead, Stalling, killing, put_in_place
from victims import InProcess

from statpress.mechanisms.errors import InternalError, OutputNotWritableError, WorkerError
from statpress.tasks.private_zone.workers import Parallel

SUPPORT = str(Path(__file__).parents[1] / "support")
TWO = Parallel(2)


@pytest.fixture
def quick(agency: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The gates in this process; workers find the mechanisms of tests."""
    agency.inspector = InProcess(None)
    monkeypatch.setenv("PYTHONPATH", SUPPORT, prepend=os.pathsep)
    return agency


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def assert_nothing_is_left(agency: Any) -> None:
    assert agency.bundles() == []
    assert list((agency.home.root / "work").iterdir()) == []


def test_a_seed_gives_the_same_release_wherever_it_is_drawn(quick: Any) -> None:
    found = []
    for parallel in (Parallel(), TWO):
        bundle = quick.run(insecure_seed=5, parallel=parallel).bundle
        files = (bundle / "data").iterdir()
        found.append({path.name: path.read_bytes() for path in files})
        bundle.rename(quick.folder / f"run {len(found)}")
        assert_nothing_is_left(quick)
    assert found[0] == found[1]


def test_a_killed_process_ends_the_run_which_stays_charged(
    quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(monkeypatch, Stalling, quick.folder)
    with killing(quick.folder) as killed, pytest.raises(WorkerError) as caught:
        quick.run(parallel=TWO)
    assert killed.is_set()
    assert "A worker process ended by signal 9 before it was done" in caught.value.what
    assert "The run was charged epsilon 0.99" in caught.value.what
    assert "which stays spent; nothing was published" in caught.value.what
    assert kinds(quick) == ["register", "look", "charge", "draw"]
    assert_nothing_is_left(quick)


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (Bursting, InternalError, "which stays spent; nothing was published"),
        pytest.param(
            FullDisk,
            OutputNotWritableError,
            "No space left on device). The run was charged",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_fault_in_a_process_is_the_runs_and_says_nothing_private(
    quick: Any, monkeypatch: pytest.MonkeyPatch, fault: type[Instead], error: Any, said: str
) -> None:
    put_in_place(monkeypatch, fault, quick.folder)
    with pytest.raises(error) as caught:
        quick.run(parallel=TWO)
    assert said in caught.value.what
    assert kinds(quick) == ["register", "look", "charge", "draw"]
    assert_nothing_is_left(quick)


@pytest.mark.nightly
def test_what_a_process_cannot_import_is_refused_before_the_charge(
    quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    put_in_place(monkeypatch, Stalling, quick.folder)
    with pytest.raises(WorkerError, match="cannot import a mechanism"):
        quick.run(parallel=TWO)
    assert kinds(quick) == ["register"]
    assert_nothing_is_left(quick)
