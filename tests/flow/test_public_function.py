"""The public bundle follows from what was drawn, the config, the run's id and its time only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import time_machine

import statpress.flows.release
from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.flows.runner import run_release
from statpress.tasks.private_zone.guards import CuratorLog

PRODUCTS = """\
products:
  people: {accept: mostly_noise, kind: microdata, share: 0.25, mechanism: bootstrap,
    columns: [region, age]}
  ages: {accept: mostly_noise, kind: table, share: 0.25, mechanism: laplace, columns: [age],
    bands: [cells]}
  mean_age: {accept: mostly_noise, kind: estimate, share: 0.25, mechanism: joint_moments,
    statistic: mean, columns: [age]}
  density: {accept: mostly_noise, kind: function, share: 0.25, mechanism: bernstein,
    target: kde, columns: [age], degree: 4, order: 1}
"""
RUN = "5e" * 16
TIME = "2026-01-02T03:04:05+00:00"


def files(bundle: Path) -> dict[str, bytes]:
    return {
        path.relative_to(bundle).as_posix(): path.read_bytes()
        for path in bundle.rglob("*")
        if path.is_file()
    }


@time_machine.travel(TIME, tick=False)
def test_two_private_tables_with_one_draw_give_one_bundle(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else of the private tables reached a file, the files would differ."""
    honest, seen, drawn = statpress.flows.release.draw_records, [], {}

    def draw_records(*arguments: Any) -> dict[str, Any]:
        seen.append(arguments[2])
        own = honest(*arguments)
        return drawn.setdefault("first", own)

    monkeypatch.setattr("statpress.flows.release.draw_records", draw_records)
    agency.home.ledger.unlink()
    agency.register()  # at the time that stands still
    agency.replace_products(PRODUCTS)
    planned, found = PlannedOrder.of(Order(agency.config)), []
    for run in ("one", "other"):
        agency.inspector.log = CuratorLog(agency.home.folder("curator"), RUN)
        found.append(files(run_release(agency.context(), planned).bundle))
        agency.releases.rename(agency.folder / run)
        agency.home.root.rename(agency.folder / f"{run} home")
        table = pq.read_table(agency.source)
        ages = pc.subtract(89, table["age"])
        pay = pa.array([float(i % 50) for i in range(len(table))])
        agency.write_source(table.set_column(1, "age", ages).set_column(2, "pay", pay))
        agency.register()
    first, second = found
    assert first.keys() == second.keys()
    assert [path for path in first if first[path] != second[path]] == []
    tables = [{tuple(t.counts.tolist()) for t in counted.joint} for counted in seen]
    assert tables[0] != tables[1]
