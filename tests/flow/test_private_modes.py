"""Every private file is its owner's only from the moment it is made, whatever the user's umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from prepared import OFFICER
from victims import InProcess

from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.tasks.ledger.entries import public_text
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import RunContext, Silent
from statpress.tasks.source import spark

PRODUCTS = """\
products:
  wide: {kind: microdata, share: 0.5, mechanism: marginals, columns: [age, born, pay],
    copies: 2, accept: mostly_noise}
  noisy: {kind: table, share: 0.5, mechanism: gaussian, columns: [age], accept: mostly_noise}
curator: {report: true}
"""


class Looking(Silent):
    """Looks at everything in the home when a step begins."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.seen: dict[str, int] = {}

    def announce(self, title: str) -> None:
        for path in self.home.rglob("*"):
            mode = path.stat().st_mode & 0o777
            name = path.relative_to(self.home).as_posix()
            self.seen[name] = self.seen.get(name, 0) | mode


@pytest.fixture
def generous() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("generous")
def test_nothing_in_the_home_is_open_to_others_while_a_run_is_at_work(agency: Any) -> None:
    """Of a bundle under construction, whose files become public, the folder keeps others out."""
    pyarrow.csv.write_csv(pq.read_table(agency.source), agency.source.with_suffix(".csv"))
    agency.replace("source.parquet", "source.csv")
    agency.replace_products(PRODUCTS)
    with Ledger.open(agency.home.ledger, create=False) as ledger:
        ledger.set_approvers(dataset="testdata", approvers=[public_text(OFFICER)], unsigned=False)
    log = CuratorLog(agency.home.folder("curator"), new_run_id())
    looking = Looking(agency.home.root)
    context = RunContext(home=agency.home, log=log, inspector=InProcess(log), listener=looking)
    run_release(context, Order(agency.config))
    looking.announce("end")
    run = context.run_id
    assert {f"curator/{run}.html", f"curator/{run}.log", "ledger.sqlite"} <= looking.seen.keys()
    assert any(name.startswith(f"work/{run}/") for name in looking.seen)
    assert f"prepared/.building-{run}/data/noisy.csv" in looking.seen
    within = (f"prepared/.building-{run}/",)
    opened = {
        name: oct(mode)
        for name, mode in looking.seen.items()
        if mode & 0o077 and not name.startswith(within)
    }
    assert opened == {}


@pytest.mark.usefixtures("generous")
def test_a_new_file_has_its_mode_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written; and it never takes the place of another."""
    modes: list[int] = []

    def looking(file: FileIO, data: memoryview) -> None:
        modes.append(os.fstat(file.fileno()).st_mode & 0o777)

    monkeypatch.setattr(spark, "write_all", looking)
    spark.write_new(tmp_path / "a", "x")
    spark.write_new(tmp_path / "b", "x", mode=0o700)
    assert modes == [0o600, 0o700]
    with pytest.raises(FileExistsError):
        spark.write_new(tmp_path / "a", "x")
