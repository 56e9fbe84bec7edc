"""Weights in a series: totals of each period, figures that count by them, and bundles anew."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bad_input import N
from people import put

import statpress
from statpress.configs.order import Order, from_options
from statpress.flows.cli.bundle_commands import compare
from statpress.mechanisms import errors
from statpress.tasks.release.reprint import reprint
from statpress.tasks.release.succession import propose

CONFIG = """\
weight:
  column: wgt
  edges: [0, 5, 10, 20, 50]
  calibrate: {region: "totals/{period}.csv"}
products:
  wide:
    {kind: microdata, accept: [mostly_independent, mostly_noise], copies: 2, columns: [region, wgt]}
publish: {directory: releases, plots: false, formats: [csv]}
"""
TOTALS = {"2026-01": (2000, 1500, 100, 400), "2026-02": (2500, 1300, 100, 300)}


@pytest.fixture(scope="module")
def series(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with a series of two months, in which small regions have large weights.

    Both are released, as ``months``; tests only read it.
    """
    agency = founded(tmp_path_factory.mktemp("series"))
    head, _, _ = agency.text.partition("products:")
    agency.replace(agency.text[len(head) :], CONFIG)
    agency.replace("epsilon: 1.0, delta: 1.0e-6", "epsilon: 45, delta: 1.0e-6")
    agency.amend(epsilon="100", delta="1e-4")
    put(agency, "wgt", [float(3 + 12 * (i % 5 == 0)) for i in range(N)])
    put(agency, "region", [("south", "north", "north", None, "east")[i % 5] for i in range(N)])
    (agency.folder / "totals").mkdir()
    period = "series: {name: lfs, period: {by: month, first: 2026-01}, carry: prior}\n"
    agency.replace(
        "source: {path: data/source.parquet}", period + 'source: {path: "data/{period}.parquet"}'
    )
    for month, (north, south, other, missing) in TOTALS.items():
        rows = f"region,count\nnorth,{north}\nsouth,{south}\nother,{other}\n,{missing}\n"
        (agency.folder / "totals" / f"{month}.csv").write_text(rows)
        shutil.copy(agency.source, agency.folder / "data" / f"{month}.parquet")
    orders = {month: Order(agency.config).at_period(month) for month in TOTALS}
    agency.months = {month: agency.run(order).bundle for month, order in orders.items()}
    return agency


def sums(bundle: Path) -> dict[str, float]:
    """The weights of the synthetic records by region."""
    frame = statpress.open(bundle).microdata()
    regions = frame.assign(region=frame["region"].astype(object).fillna(""))
    found: dict[str, float] = regions.groupby("region")["weight"].sum().to_dict()
    return found


def test_every_period_has_its_totals_and_its_weighted_figures(series: Any) -> None:
    bundles = series.months
    for month, bundle in bundles.items():
        wanted = dict(zip(("north", "south", "other", ""), TOTALS[month], strict=True))
        assert sums(bundle) == pytest.approx(wanted)

    table = pq.read_table(series.source).to_pandas()
    classes = np.where(table["wgt"] < 5, 2.5, 15.0)
    known = table["region"].notna()
    south = known & (table["region"] == "south")
    true = classes[south].sum() / classes[known].sum()
    assert abs(true - south.sum() / known.sum()) > 0.2  # as unweighted figures would have it
    with (series.releases / "lfs" / "series.csv").open(newline="") as file:
        rows = [
            r for r in csv.DictReader(file) if (r["column"], r["category"]) == ("region", "south")
        ]
    assert [(row["period"], row["figure"]) for row in rows] == [
        (month, "weighted share") for month in TOTALS
    ]
    assert all(abs(float(row["value"]) - true) < 0.05 for row in rows)
    page = (series.releases / "lfs" / "series.html").read_text()
    assert "Records count by their survey weight." in page

    earlier, later = bundles.values()
    answer = compare(str(earlier), str(later), weight=True).facts()
    assert answer["weighted_by"] == "wgt"
    (cell,) = [each for each in answer["cells"] if each["values"]["value"] == "south"]
    assert abs(cell["earlier"] - true) < 0.05 > abs(cell["estimate"])
    plain = compare(str(earlier), str(later)).facts()
    assert "weighted_by" not in plain


def test_a_bundle_anew_has_the_weights_of_its_own_totals(series: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(series.folder, tmp_path / "series")
    bundle = folder / series.months["2026-01"].relative_to(series.folder)
    series = replace(series, folder=folder)
    shutil.rmtree(folder / "totals")
    assert sums(reprint(bundle).bundle) == sums(bundle)
    renewed = propose(bundle, None, (), series.folder, series.home)
    weight = renewed.plan.products[0].mechanism.weight
    assert weight.totals == {"region": TOTALS["2026-01"]}
    later = from_options(["weight.calibrate.region=[1, 2, 3, 4]"])
    newer = propose(bundle, None, later, series.folder, series.home)
    assert newer.plan.products[0].mechanism.weight.totals == {"region": (1, 2, 3, 4)}
    with pytest.raises(errors.RereleaseError, match=r"weight\.edges"):
        propose(
            bundle, None, from_options(["weight.edges=[0, 5, 20, 50]"]), series.folder, series.home
        )
