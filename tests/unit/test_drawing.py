"""What a process that draws says, what it leaves, and that it draws a product once."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absence import absent
from coded import CodesInMemory
from contract_cases import SERVED, case, planned
from estimating import seeded

from statpress.configs.release_config import PublishConfig
from statpress.mechanisms.domain.contingency_table import ContingencyTable, Counted
from statpress.mechanisms.errors import ConfigError, DependencyError
from statpress.tasks.ledger.entries import Entry
from statpress.tasks.orchestration.drawing_workers import LONG, DaskWorkers, processes_for
from statpress.tasks.private_zone.guards import CuratorLog
from statpress.tasks.private_zone.workers import Parallel
from statpress.tasks.products.product_kind import kind_of, private_input
from statpress.tasks.release import drawing
from statpress.tasks.release.drawing import light
from statpress.tasks.release.entropy import SystemRandomness, generator
from statpress.tasks.source.scanning import SpilledColumns

RUN = "0" * 32
PUBLISH = PublishConfig(directory="releases", formats=["csv"], plots=False)
DRAW = Entry(2, "draw", {}, "0" * 64, "1" * 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with a plan of one table and its counts, before the charge."""
    made = tmp_path / "work" / RUN / drawing.FOLDER
    made.mkdir(parents=True)
    (tmp_path / "curator").mkdir()
    drawing.save(made / "plan", light(planned("laplace", "table")))
    drawing.save_counted(made, Counted((case("laplace").table,)))
    token = {"token": "t", "versions": drawing.versions()}
    (made / "token").write_text(json.dumps(token))
    return made


def said(folder: Path, verb: str, about: str) -> str:
    return drawing.perform(str(folder.parents[2]), RUN, (verb, about))


def log_of(folder: Path) -> str:
    return (folder.parents[2] / "curator" / f"{RUN}.log").read_text()


def test_a_product_is_drawn_once(folder: Path) -> None:
    drawing.save(folder / "entry", (DRAW, 5))
    assert said(folder, "draw", "0") == drawing.DONE
    (product,) = planned("laplace", "table").products
    expected = product.mechanism.release(
        case("laplace").table, generator(DRAW, product.name, insecure_seed=5)
    )
    drawn = folder / "0.drawn"
    assert np.array_equal(drawing.load(drawn).counts, expected.counts)
    before = drawn.stat()
    assert said(folder, "draw", "0") == drawing.DONE  # whoever said so first was not heard
    assert drawn.stat() == before
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir() if path.name != "token"}
    assert modes == {0o600}
    drawn.unlink()
    assert said(folder, "draw", "0") == drawing.CLAIMED
    assert not drawn.exists()


def test_nothing_is_drawn_before_the_entry_of_the_ledger(folder: Path) -> None:
    assert said(folder, "draw", "0") == f"{drawing.DISK} 2"
    drawing.save(folder / "entry", (Entry(1, "charge", {}, "", ""), None))
    assert said(folder, "draw", "0") == drawing.FAILED
    assert "a charged run that the ledger lets draw" in log_of(folder)
    assert not (folder / "0.drawn").exists()


def test_it_says_whether_it_can_do_its_part(folder: Path) -> None:
    assert said(folder, "look", "t") == drawing.READY
    assert said(folder, "look", "another") == drawing.UNSEEN
    token = folder / "token"
    token.write_text(token.read_text().replace('"python": "3', '"python": "2'))
    assert said(folder, "look", "t") == drawing.FOREIGN
    token.unlink()
    assert said(folder, "look", "t") == drawing.UNSEEN
    assert {path.name for path in folder.iterdir()} == {
        "plan", "counted", "0.cells.npy", "0.counts.npy"
    }  # fmt: skip


def test_a_plan_that_it_cannot_read_is_one_it_does_not_know(folder: Path) -> None:
    plan = folder / "plan"
    plan.write_bytes(
        plan.read_bytes().replace(
            b"statpress.mechanisms.tables.perturbed", b"statpress.mechanisms.tables.laplacf"
        )
    )
    assert said(folder, "look", "t") == drawing.UNKNOWN


@pytest.mark.parametrize(("name", "kind"), SERVED)
def test_what_any_mechanism_releases_comes_back(name: str, kind: str, tmp_path: Path) -> None:
    """Plan and release go through files as they are; the twin is pickle alone, which refuses."""
    plan = planned(name, kind)
    drawing.save(tmp_path / "plan", light(plan))
    (product,) = drawing.load(tmp_path / "plan")
    table = case(name).table
    private = private_input(product, Counted((table,), CodesInMemory.of(table)))
    raw = product.mechanism.release(private, seeded(4))
    drawing.save(tmp_path / "drawn", raw)
    read = drawing.load(tmp_path / "drawn")
    n_records = case(name).n_records
    written = []
    for place, each in (("here", raw), ("elsewhere", read)):
        (tmp_path / place / "data").mkdir(parents=True)
        derived = kind_of(product).postprocess(product, each, n_records)
        publication = kind_of(product).publication(product, derived)
        publication.write(tmp_path / place, PUBLISH, lambda rows: None)
        files = sorted((tmp_path / place).rglob("*.*"))
        written.append([(path.name, path.read_bytes()) for path in files])
    assert written[0] == written[1] and written[0]
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(table)


def test_large_counts_stay_in_their_files(tmp_path: Path) -> None:
    domain = planned("laplace", "table").domain
    wide: Any = type(domain)((type(domain.columns[0])(name="age", lower=0, upper=10**6),))
    table = ContingencyTable(wide, np.arange(200_000), np.ones(200_000, np.int64))
    codes = SpilledColumns(wide, tmp_path, 3, 0)
    drawing.save_counted(tmp_path, Counted((table,), codes))
    read = drawing.load_counted(tmp_path)
    assert np.array_equal(read.joint[0].cells, table.cells)
    assert isinstance(read.joint[0].cells.base.base, np.memmap)
    assert read.coded == codes or vars(read.coded) == vars(codes)


def test_no_two_products_share_a_stream() -> None:
    def bits(product: str, seed: int | None) -> bytes:
        return generator(DRAW, product, insecure_seed=seed).bytes(32)

    assert bits("a", 5) == bits("a", 5)
    assert len({bits("a", 5), bits("b", 5), bits("a", 6), bits("b", 6)}) == 4
    assert len({bits("a", None) for _ in range(50)}) == 50
    assert isinstance(generator(DRAW, "a"), SystemRandomness)


def test_options_and_environment_say_where(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Parallel.of({}) == Parallel(1, None)
    assert Parallel.of({"STATPRESS_WORKERS": "3"}) == Parallel(3)
    assert Parallel.of({"STATPRESS_DASK": "tcp://h:1"}) == Parallel(1, "tcp://h:1")
    assert Parallel.of({"STATPRESS_WORKERS": "3"}, dask="tcp://h:1") == Parallel(1, "tcp://h:1")
    assert Parallel.of({"STATPRESS_DASK": "tcp://h:1"}, workers="auto") == Parallel("auto")
    for wrong in ("0", "-1", "two", "1025", "²"):
        with pytest.raises(ConfigError, match="neither a number"):
            Parallel.of({}, workers=wrong)
    with pytest.raises(ConfigError, match="or by a Dask cluster"):
        Parallel.of({"STATPRESS_WORKERS": "3", "STATPRESS_DASK": "tcp://h:1"})


def test_dask_is_an_extra(tmp_path: Path) -> None:
    cluster = DaskWorkers("tcp://127.0.0.1:1", str(tmp_path), CuratorLog(tmp_path, RUN))
    missing = pytest.raises(DependencyError, match="Dask is not installed")
    with absent("prefect_dask"), missing, cluster:
        pass


def test_auto_goes_by_the_plan() -> None:
    class Product:
        def __init__(self, draws: int) -> None:
            self.draws = draws

    class Planned:
        def __init__(self, *draws: int) -> None:
            self.products = [Product(each) for each in draws]

    def chosen(parallel: Parallel, *draws: int) -> int:
        return processes_for(parallel, Planned(*draws))  # type: ignore[arg-type]

    assert chosen(Parallel("auto"), 10, 10) == 1
    assert chosen(Parallel("auto"), LONG) == 1
    assert chosen(Parallel("auto"), LONG, 0) in (1, 2)
    assert chosen(Parallel(8), 1, 1, 1) == 3
