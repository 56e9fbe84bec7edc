"""Products drawn by the workers of a real Dask cluster, and what becomes of a run that loses them.

That nothing private is in what they leave is part of the canary's search (test_canary.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_cluster import DaskCluster
from outbursts import Stalling, killing, put_in_place
from prefect_server import closed_port
from victims import InProcess

from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import WorkerError
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.workers import Parallel

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """Two workers; a test that kills one starts another."""
    with DaskCluster(tmp_path_factory.mktemp("dask") / "cluster") as made:
        yield made.add(2)


@pytest.fixture
def quick(agency: Any) -> Any:
    """The gates in this process."""
    agency.inspector = InProcess(None)
    return agency


def data_of(bundle: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (bundle / "data").iterdir()}


def kinds(agency: Any) -> list[str]:
    return [entry.kind for entry in agency.entries()]


def test_the_release_is_the_same_and_only_words_are_sent(
    cluster: DaskCluster, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    sent: list[Any] = []
    honest = Client.submit

    def noting(self: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        sent.append((function.__qualname__, *arguments))
        return honest(self, function, *arguments, **options)

    monkeypatch.setattr(Client, "submit", noting)
    serial = quick.run(insecure_seed=5).bundle
    expected = data_of(serial)
    serial.rename(quick.folder / "serial")
    found = quick.run(insecure_seed=5, parallel=Parallel(dask=cluster.address)).bundle
    assert data_of(found) == expected
    run_id = quick.inspector.log.run_id
    home = str(quick.home.root)
    assert sent == [("perform", home, run_id, ("draw", str(number))) for number in (0, 1)]
    assert list((quick.home.root / "work").iterdir()) == []


def test_a_worker_that_does_not_see_the_folder_is_refused_before_the_charge(
    cluster: DaskCluster, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home's path leads elsewhere in a worker, as on another machine."""
    monkeypatch.chdir(quick.folder)
    quick.inspector.log = CuratorLog(quick.home.folder("curator"), new_run_id())
    context = quick.context(parallel=Parallel(dask=cluster.address))
    context.home = Home(Path("/proc/self/cwd/home"))
    with pytest.raises(WorkerError, match="does not see the run's private folder") as caught:
        run_release(context, Order(quick.config))
    assert "Nothing was charged" in caught.value.what
    assert kinds(quick) == ["register"]
    assert list((quick.home.root / "work").iterdir()) == []


def test_a_cluster_that_is_not_there_is_an_error_before_the_charge(quick: Any) -> None:
    import dask

    with (
        closed_port() as port,
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(WorkerError, match="does not answer"),
    ):
        quick.run(parallel=Parallel(dask=f"tcp://127.0.0.1:{port}"))
    assert kinds(quick) == ["register"]


@pytest.mark.parametrize("left", [1, 0], ids=["another worker is left", "no worker is left"])
def test_a_killed_worker_ends_the_run_which_stays_charged(
    cluster: DaskCluster, quick: Any, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    cluster.add(left + 1 - cluster.workers)
    put_in_place(monkeypatch, Stalling, quick.folder)
    with killing(quick.folder) as killed, pytest.raises(WorkerError) as caught:
        quick.run(parallel=Parallel(dask=cluster.address))
    assert killed.is_set()
    assert cluster.workers == left
    assert "ended before" in caught.value.what
    assert "The run was charged epsilon 0.99" in caught.value.what
    assert "which stays spent; nothing was published" in caught.value.what
    assert kinds(quick) == ["register", "look", "charge", "draw"]
    assert quick.bundles() == []
    assert list((quick.home.root / "work").iterdir()) == []
