"""Counts at two resolutions through the whole flow, and derived anew from the bundle."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rederiving import rederived

from statpress.configs.loading import load
from statpress.mechanisms.errors import ConfigError, RefinementError
from statpress.mechanisms.tables.two_resolutions import TwoResolutions
from statpress.tasks.bundle.manifest import FACTS, MANIFEST_NAME, seal, verify_bundle
from statpress.tasks.bundle.rows import cell_rows, write_rows
from statpress.tasks.release.ledger_check import verify_ledger
from statpress.tasks.release.refine import Options, open_bundle, refine

PRODUCTS = """\
products:
  births: {accept: mostly_noise,
    kind: table, mechanism: auto, minimise: kolmogorov_smirnov, columns: [born], share: 0.5}
  people: {accept: mostly_noise,
    kind: table, mechanism: two_resolutions, blocks: 7, columns: [region, age], share: 0.4}
  ages: {kind: table, mechanism: gaussian, columns: [age], share: 0.1}
"""
FIGURES = ["raw", "raw_block", "estimate", "standard_error", "projected"]
BOTH = ("births", "people")


def opened(agency: Any) -> Any:
    """The agency with a config of these products."""
    agency.replace_products(PRODUCTS)
    return agency


@pytest.fixture
def blocked(agency: Any) -> Any:
    return opened(agency)


@pytest.fixture(scope="module")
def pressed(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with a release of a known seed, as ``bundle``, which tests only read."""
    agency = opened(founded(tmp_path_factory.mktemp("pressed")))
    agency.bundle = agency.run(insecure_seed=11).bundle
    return agency


def test_from_the_config_to_the_bundle_and_back(pressed: Any, tmp_path: Path) -> None:
    plan = load(pressed.config).plan()
    bundle = pressed.bundle
    verify_bundle(bundle)
    assert verify_ledger(pressed.home).entries == 5
    published = open_bundle(bundle)
    for product in plan.products[:2]:
        name, mechanism = product.request.name, product.mechanism
        assert isinstance(mechanism, TwoResolutions)
        found = published.products[name]
        assert found.mechanism == mechanism
        table = pq.read_table(bundle / "data" / f"{name}.parquet")
        assert table.column_names == [*product.domain.names, *FIGURES]
        assert table.num_rows == product.domain.n_cells
        assert sum(table["projected"].to_pylist()) == pytest.approx(400)
        assert sum(table["estimate"].to_pylist()) == pytest.approx(400)
        figures = rederived(found, published.n_records)
        for suffix in ("parquet", "csv"):
            anew = tmp_path / f"{name}.{suffix}"
            write_rows(cell_rows(found.domain, found.counts().cells, figures), anew)
            assert anew.read_bytes() == (bundle / "data" / anew.name).read_bytes()
    people = pq.read_table(bundle / "data" / "people.parquet").to_pylist()
    shown = [row["raw_block"] for row in people]
    assert sum(a != b for a, b in itertools.pairwise(shown)) == 6  # 40 cells, 7 blocks
    described = json.loads((bundle / "privacy.json").read_text())["products"]["people"]
    assert described["blocks"] == 7
    package = json.loads((bundle / "datapackage.json").read_text())
    fields = {f["name"]: f for f in package["resources"][0]["schema"]["fields"]}
    assert fields["raw_block"]["type"] == "integer"
    assert "block" in fields["raw_block"]["description"]


def test_refining_keeps_the_table_and_pools_no_correlated_cells(
    pressed: Any, tmp_path: Path
) -> None:
    bundle = pressed.bundle
    refine(bundle, tmp_path / "refined", Options(integers=True))
    for name in BOTH:
        refined, was = (
            pq.read_table(folder / "data" / f"{name}.parquet")
            for folder in (tmp_path / "refined", bundle)
        )
        assert refined.drop_columns("rounded") == was
        assert sum(refined["rounded"].to_pylist()) == 400
    with pytest.raises(
        RefinementError, match=r"'births' cannot be pooled .* correlated within its blocks"
    ):
        refine(bundle, tmp_path / "pooled", Options(consistent=True))
    refine(bundle, tmp_path / "pooled", Options(consistent=True, products=("ages",)))


def test_a_resealed_bundle_whose_blocks_disagree_is_refused(pressed: Any, tmp_path: Path) -> None:
    bundle = shutil.copytree(pressed.bundle, tmp_path / "resealed")
    for path in (bundle / "data").glob("births.*"):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            shown = table["raw_block"].to_pylist()
            shown[0] += 1
            place = table.column_names.index("raw_block")
            pq.write_table(table.set_column(place, table.schema.field(place), [shown]), path)
    manifest = json.loads((bundle / MANIFEST_NAME).read_text())
    seal(bundle, {name: manifest[name] for name in FACTS})
    with pytest.raises(RefinementError, match="several counts of their block"):
        refine(bundle, tmp_path / "refined", Options())


def test_more_blocks_than_cells_are_refused_where_they_stand(blocked: Any) -> None:
    blocked.replace("blocks: 7", "blocks: 41")
    with pytest.raises(ConfigError, match="40 cells cannot be put into 41 blocks") as refused:
        blocked.run()
    assert "release.yaml" in refused.value.where
    assert [entry.kind for entry in blocked.entries()] == ["register"]
