"""Confidence bands through the whole flow: published, shown, verified, derived anew, refused."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from statpress.configs.loading import load
from statpress.configs.order import from_options
from statpress.flows.cli.plan_command import plan_facts
from statpress.mechanisms.errors import BundleVerificationError, ConfigError
from statpress.mechanisms.tables.bands import LIMITS, law_of
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.products.band_files import band_tables
from statpress.tasks.release.refine import Options, open_bundle, refine
from statpress.tasks.release.reprint import check_reprint, reprint
from statpress.tasks.release.succession import difference

PRODUCTS = """\
products:
  ages:
    {kind: table, share: 0.25, mechanism: gaussian, columns: [age], bands: [cumulative, cells],
     accept: mostly_noise}
  places:
    {kind: table, share: 0.25, mechanism: laplace, columns: [region, pay], bands: [cells],
    confidence: 0.9,
     accept: mostly_noise}
  years:
    {kind: table, share: 0.25, mechanism: two_resolutions, columns: [born], bands: [cumulative],
     accept: mostly_noise}
  drawn:
    {kind: table, share: 0.25, mechanism: bootstrap, columns: [age], bands: [cells, cumulative],
     accept: mostly_noise}
"""
BANDS = {
    "ages_cumulative_band": 10, "ages_cells_band": 10, "places_cells_band": 24,
    "years_cumulative_band": 51, "drawn_cells_band": 10, "drawn_cumulative_band": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def released(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An agency with a bundle that has bands of all kinds, as ``bundle``."""
    agency = founded(tmp_path_factory.mktemp("bands"))
    agency.replace_products(PRODUCTS)
    agency.bundle = agency.run(insecure_seed=6).bundle
    return agency


def test_bands_hold_of_the_records_and_are_of_the_bundle(released: Any) -> None:
    verify_bundle(released.bundle)
    package = json.loads((released.bundle / "datapackage.json").read_text())
    described = {each["path"]: each for each in package["resources"]}
    for stem, cells in BANDS.items():
        table = pq.read_table(released.bundle / "data" / f"{stem}.parquet")
        assert table.num_rows == cells and table.column_names[-4:] == list(LIMITS)
        for suffix in ("csv", "parquet"):
            resource = described[f"data/{stem}.{suffix}"]
            assert "all rows at once" in resource["description"]
            assert [f["name"] for f in resource["schema"]["fields"]][-4:] == list(LIMITS)
    ages = np.bincount(
        np.arange(400) % 90 // 10, minlength=10
    )  # the source's; the seed's bands hold
    for name in ("ages", "drawn"):
        for band, truth in (("cells", ages), ("cumulative", ages.cumsum())):
            table = pq.read_table(released.bundle / "data" / f"{name}_{band}_band.parquet")
            low, high = (table[each].to_numpy() for each in LIMITS[:2])
            assert np.all((low <= truth) & (truth <= high))
            assert band == "cells" or low[-1] == high[-1] == 400


def test_readers_are_told_of_them(released: Any) -> None:
    readme = (released.bundle / "README.md").read_text()
    assert "`places_cells_band`: limits for all cells at once, at level 0.9." in readme
    assert readme.count("**Bands**") == 1
    report = (released.bundle / "report.html").read_text()
    assert "Band of the distribution function: each cell with those before it" in report
    assert "20 of 51 rows" in report and "With probability 0.9" in report
    assert "half the width of the band of the distribution function" in report
    stated = json.loads((released.bundle / "privacy.json").read_text())["products"]
    assert stated["ages"]["bands"] == ["cumulative", "cells"]
    assert stated["places"]["confidence"] == 0.9
    release = load(released.config)
    expected = plan_facts(release, release.plan(), None)["products"]["ages"]["expected_error"]
    assert expected == stated["ages"]["expected_error"]
    path = released.bundle / "data" / "ages_cumulative_band.parquet"
    widths = (
        pq.read_table(path)["count_upper"].to_numpy()
        - pq.read_table(path)["count_lower"].to_numpy()
    )
    assert widths.max() <= 2 * expected["cumulative_band_records"] + 2


@pytest.mark.nightly
def test_the_same_config_again_changes_nothing_and_another_level_the_level(released: Any) -> None:
    seal = json.loads((released.bundle / "manifest.json").read_text())["seal"]
    again = load(released.bundle / "config.yaml")
    found = difference(released.bundle, seal, again, again.plan())["products"]
    assert {each["fate"] for each in found.values()} == {"unchanged"}
    other = load(released.bundle / "config.yaml", from_options(["products.places.confidence=.8"]))
    places = difference(released.bundle, seal, other, other.plan())["products"]["places"]
    assert places["parameters"] == {"confidence": {"was": 0.9, "now": 0.8}}


def test_they_follow_from_the_bundle(released: Any, tmp_path: Path) -> None:
    published = open_bundle(released.bundle)
    assert published.products["drawn"].further.bands == ("cells", "cumulative")
    again = reprint(released.bundle)
    assert check_reprint(again.bundle)
    for stem in BANDS:
        name = f"data/{stem}.csv"
        assert (again.bundle / name).read_bytes() == (released.bundle / name).read_bytes()
    shutil.rmtree(again.bundle)
    refine(released.bundle, tmp_path / "refined", Options(products=("ages",)))
    assert [path.name for path in (tmp_path / "refined" / "data").iterdir()] == ["ages.parquet"]


def test_a_changed_limit_is_seen(released: Any, tmp_path: Path) -> None:
    product = open_bundle(released.bundle).products["drawn"]
    table = band_tables(product, product.further, {})[0]  # of the cells
    path = tmp_path / "drawn_cells_band.csv"
    rows = list(csv.reader((released.bundle / "data" / path.name).open()))
    for place, value in ((1, "401"), (2, "-1"), (3, "1"), (4, "1.5"), (0, "3.5")):
        changed = [list(row) for row in rows]
        changed[4][place] = value
        with path.open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(changed)
        profile = table.profile(path)
        assert profile.pop("rows") == 10 and any(profile.values()), place
    copied = tmp_path / "bundle"
    shutil.copytree(released.bundle, copied)
    with (copied / "data" / path.name).open("a") as file:
        file.write("\n")
    with pytest.raises(BundleVerificationError, match=r"_cells_band\.csv was changed"):
        verify_bundle(copied)


@pytest.mark.parametrize(
    ("product", "words"),
    [
        ("{kind: table, columns: [region], bands: [cumulative]}", "no order"),
        ("{kind: table, columns: [pay], bands: [cumulative]}", "missing values"),
        ("{kind: table, columns: [age, born], bands: [cumulative]}", "one column"),
        ("{kind: table, columns: [age], confidence: 0.9}", "only with bands"),
        ("{kind: table, columns: [age], bands: [cells], confidence: 2}", "level of bands"),
        ("{kind: microdata, mechanism: gaussian, columns: [age], bands: [cells]}", "kind table"),
        ("{kind: microdata, columns: [age], bands: [cells]}", "no key 'bands'"),
        ("{kind: table, mechanism: exponential_ks, columns: [age], bands: [cells]}", "depends on"),
        ("{kind: table, mechanism: density, columns: [age], bands: [cells]}", "no confidence"),
        ("{kind: table, columns: [age], bands: [ranks]}", "cells"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_refused_where_it_stands(
    released: Any, tmp_path: Path, product: str, words: str
) -> None:
    start, end = released.text.index("products:"), released.text.index("publish:")
    text = released.text[:start] + f"products:\n  p: {product}\n" + released.text[end:]
    config = tmp_path / "release.yaml"
    config.write_text(text)
    with pytest.raises(ConfigError, match=words) as refused:
        load(config).plan()
    assert "products.p" in refused.value.where


@pytest.mark.parametrize(
    ("allowed", "refused"), [("outside_at_most", True), ("missing_at_most", True), ("", False)]
)
def test_what_would_count_as_the_lowest_has_no_cumulative_band(
    released: Any, tmp_path: Path, allowed: str, refused: bool
) -> None:
    start, end = released.text.index("products:"), released.text.index("publish:")
    product = "products:\n  p: {kind: table, mechanism: gaussian, columns: [size],"
    text = released.text[:start] + f"{product} bands: [cumulative]}}\n" + released.text[end:]
    text = text.replace("domain:\n", "domain:\n  size: {type: ordinal, categories: [s, m, l]}\n", 1)
    if allowed:
        text += f"checks: {{size: {{{allowed}: 0.1}}}}\n"
    config = tmp_path / "release.yaml"
    config.write_text(text)
    if not refused:
        load(config).plan()
        return
    with pytest.raises(ConfigError, match="count as the lowest"):
        load(config).plan()


def test_units_of_several_records_and_names_of_limits_are_refused(
    released: Any, tmp_path: Path
) -> None:
    config = tmp_path / "release.yaml"
    text = released.text.replace(
        "unit: record, n_records: 400", "unit: {column: id, max_records: 2}, n_units: 200"
    )
    config.write_text(text)
    with pytest.raises(ConfigError, match="units of one record"):
        load(config)
    config.write_text(released.text.replace("born", "share_upper"))
    with pytest.raises(ConfigError, match="a column of every band"):
        load(config)
    config.write_text(
        released.text.replace("publish:", "checks: {born: {missing_at_most: 0.1}}\npublish:")
    )
    with pytest.raises(ConfigError, match="allows values"):
        load(config)


def test_a_mechanism_without_a_known_law_says_so() -> None:
    class Other:
        name = "other"

    with pytest.raises(ConfigError, match="has no confidence bands"):
        law_of(Other(), n_records=10, n_cells=3)
