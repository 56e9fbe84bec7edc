"""Published bundles read back and refined, with neither source nor ledger at hand."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from acting import full_disk
from rederiving import rederived

from statpress.configs.loading import load
from statpress.mechanisms.errors import (
    BundleExistsError,
    BundleVerificationError,
    OutputNotWritableError,
    RefinementError,
)
from statpress.mechanisms.postprocessing.consistency import disagreement
from statpress.tasks.bundle.manifest import FACTS, MANIFEST_NAME, seal, verify_bundle
from statpress.tasks.bundle.rows import cell_rows, write_rows
from statpress.tasks.products.product_kind import KINDS, kind_of
from statpress.tasks.release.refine import Options, _chosen, open_bundle, refine

PRODUCTS = """\
products:
  people: {accept: mostly_noise,
    kind: microdata, mechanism: bootstrap, columns: [region, age], share: 0.4}
  pays: {kind: table, mechanism: laplace, columns: [pay, region], share: 0.2}
  ages: {accept: mostly_noise, kind: table, mechanism: gaussian, columns: [age, pay], share: 0.2}
  regions: {accept: mostly_noise, kind: table, mechanism: bootstrap, columns: [region], share: 0.1}
  births: {accept: mostly_noise, kind: microdata, mechanism: bootstrap, columns: [born], share: 0.1}
"""
NAMES = ["people", "pays", "ages", "regions", "births"]
FIGURES = ["estimate", "standard_error", "projected"]


@pytest.fixture(scope="module")
def pressed() -> dict[str, Any]:
    """The plan of a release of all kinds, and its bundle: made when first asked for."""
    return {}


@pytest.fixture
def bundle(
    agency: Any, pressed: dict[str, Any], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of the bundle, alone in the world: without config, source and home."""
    if not pressed:
        agency.replace_products(PRODUCTS)
        agency.replace("categories: [north, south]", "categories: {file: regions.txt}")
        (agency.folder / "regions.txt").write_text("north\nsouth\n")
        pressed["plan"] = load(agency.config).plan()
        pressed["bundle"] = tmp_path_factory.mktemp("pressed") / "bundle"
        agency.run(insecure_seed=11).bundle.rename(pressed["bundle"])
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    copy: Path = shutil.copytree(pressed["bundle"], tmp_path / "releases" / "bundle")
    return copy


def reseal(bundle: Path) -> None:
    manifest = json.loads((bundle / MANIFEST_NAME).read_text())
    seal(bundle, {name: manifest[name] for name in FACTS})


def edit(bundle: Path, name: str, old: str, new: str) -> None:
    text = (bundle / name).read_text()
    assert old in text
    (bundle / name).write_text(text.replace(old, new, 1))
    reseal(bundle)


def read(folder: Path, name: str) -> Any:
    return pq.read_table(folder / "data" / f"{name}.parquet")


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_domain_and_mechanisms_come_back(bundle: Path, pressed: dict[str, Any]) -> None:
    published = open_bundle(bundle)
    assert published.n_records == 400
    assert published.without_counts == ()
    for product in pressed["plan"].products:
        found = published.products[product.request.name]
        assert found.domain == product.domain
        assert found.mechanism == product.mechanism
        assert found.kind is kind_of(product)


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_what_the_bundle_holds_is_rederived_bit_for_bit(
    bundle: Path, tmp_path: Path, suffix: str
) -> None:
    if suffix == "csv":  # no Parquet to read from
        for path in (bundle / "data").glob("*.parquet"):
            path.unlink()
        package = json.loads((bundle / "datapackage.json").read_text())
        package["resources"] = [r for r in package["resources"] if r["format"] == "csv"]
        (bundle / "datapackage.json").write_text(json.dumps(package))
        reseal(bundle)
    published = open_bundle(bundle)
    assert list(published.products) == NAMES
    for name, product in published.products.items():
        figures = rederived(product, published.n_records)
        stem = name
        if product.kind is KINDS["microdata"]:
            figures, stem = {each: figures[each] for each in FIGURES}, f"{name}_debiased"
        anew = tmp_path / f"{stem}.{suffix}"
        write_rows(cell_rows(product.domain, product.counts().cells, figures), anew)
        assert anew.read_bytes() == (bundle / "data" / f"{stem}.{suffix}").read_bytes()


def test_refined_without_options_is_what_was_published(bundle: Path, tmp_path: Path) -> None:
    before = files(bundle)
    facts = refine(bundle, tmp_path / "refined", Options())
    assert files(bundle) == before
    assert list(facts["products"]) == NAMES
    table = read(tmp_path / "refined", "pays")
    assert table == read(bundle, "pays")
    assert read(tmp_path / "refined", "births").drop_columns("raw") == read(
        bundle, "births_debiased"
    )


def marginals(folder: Path, bundle: Path, figure: str) -> list[Any]:
    """Domains and dense figures of the refined tables."""
    found = []
    for name, product in open_bundle(bundle).products.items():
        table = read(folder, name)
        shape = [column.size for column in product.domain.columns]
        assert table.num_rows == product.domain.n_cells
        found.append((product.domain, np.array(table[figure], dtype=float).reshape(shape)))
    return found


def test_consistent_integers(bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "refined"
    facts = refine(bundle, output, Options(consistent=True, integers=True))
    assert disagreement(marginals(output, bundle, "estimate"), total=400.0) < 1e-6
    gaps = facts["largest_disagreement_in_records"]
    assert gaps["released"] > 5 > 1e-6 > max(gaps["estimate"], gaps["projected"])
    assert gaps["rounded"] < 20
    for name in ("projected", "rounded"):
        held = disagreement(marginals(output, bundle, name))
        assert gaps[name] == pytest.approx(held)
    for name in NAMES:
        table = read(output, name)
        projected, rounded = np.array(table["projected"]), np.array(table["rounded"])
        assert projected.min() >= 0 and rounded.min() >= 0
        assert rounded.dtype == np.int64 and rounded.sum() == 400
        assert np.abs(rounded - projected).max() < 1
        assert table.column_names[-4:] == [*FIGURES, "rounded"]
    pays = NAMES.index("pays")
    projected, rounded = (
        marginals(output, bundle, name)[pays][1] for name in ("projected", "rounded")
    )
    for axis in (0, 1):
        assert np.abs(rounded.sum(axis=axis) - projected.sum(axis=axis)).max() < 1
    published = np.array(read(bundle, "ages")["standard_error"])
    assert np.array(read(output, "ages")["standard_error"]).max() < published.max()
    kept = {name: product["rounding_keeps"] for name, product in facts["products"].items()}
    both = "rows, columns and total"
    assert kept == {
        "people": both, "pays": both, "ages": both, "regions": "total", "births": "total",
    }  # fmt: skip


def test_the_truth_is_within_the_stated_errors(bundle: Path, tmp_path: Path) -> None:
    refine(bundle, tmp_path / "refined", Options(consistent=True))
    ages = np.array([i % 90 for i in range(400)]) // 10
    rows = read(tmp_path / "refined", "people").to_pylist()
    regions = [("north", "south", None)[i % 3] for i in range(399)] + ["other"]
    for row in rows:
        code = int(row["age"] // 10)
        truth = sum(r == row["region"] and a == code for r, a in zip(regions, ages, strict=True))
        assert abs(row["estimate"] - truth) < 6 * row["standard_error"]


def test_the_statement_and_the_data_package(bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "deeper" / "refined"
    facts = refine(bundle, output, Options(consistent=True, products=("regions", "people")))
    assert json.loads((output / "refinement.json").read_text()) == facts
    assert facts["source"]["seal"] == verify_bundle(bundle)["seal"]
    assert facts["source"]["publishable"] is False
    assert facts["options"]["products"] == ["people", "regions"]  # the bundle's order
    assert facts["versions"]["statpress"]
    package = json.loads((output / "datapackage.json").read_text())
    assert [r["path"] for r in package["resources"]] == [
        "data/people.parquet",
        "data/regions.parquet",
    ]
    for resource in package["resources"]:
        names = [field["name"] for field in resource["schema"]["fields"]]
        assert names == pq.read_schema(output / resource["path"]).names
        assert resource["bytes"] == (output / resource["path"]).stat().st_size
    assert "pooled" in package["resources"][0]["schema"]["fields"][2]["description"]
    assert sorted(path.name for path in output.parent.iterdir()) == ["refined"]
    again = tmp_path / "again"
    refine(bundle, again, Options(consistent=True, products=("people", "regions")))
    assert files(again) == files(output)  # no clock, no randomness


def test_one_product_alone(bundle: Path, tmp_path: Path) -> None:
    options = Options(consistent=True, products=("regions",))
    refine(bundle, tmp_path / "refined", options)
    was, found = read(bundle, "regions"), read(tmp_path / "refined", "regions")
    assert found.num_rows == was.num_rows == 4
    for name in FIGURES:
        # Where a frequency is held to what is possible, the probabilities do not add up to 1.
        close = 0.02 if name == "standard_error" else 1e-9
        assert found[name].to_pylist() == pytest.approx(was[name].to_pylist(), rel=close)


@pytest.mark.parametrize("consistent", [True, False])
def test_csv_and_parquet_give_the_same(bundle: Path, tmp_path: Path, consistent: bool) -> None:
    for form in ("parquet", "csv"):
        options = Options(consistent=consistent, integers=True, format=form)
        refine(bundle, tmp_path / form, options)
    for name in NAMES:
        table = pyarrow.csv.read_csv(tmp_path / "csv" / "data" / f"{name}.csv")
        for figure in (*FIGURES, "rounded"):
            parquet = read(tmp_path / "parquet", name)
            assert table[figure].to_pylist() == parquet[figure].to_pylist()


def test_a_bundle_that_does_not_verify_is_refused(bundle: Path, tmp_path: Path) -> None:
    path = bundle / "data" / "pays.parquet"
    kept = path.read_bytes()
    path.write_bytes(kept[:-1] + b"x")
    with pytest.raises(BundleVerificationError, match=r"pays\.parquet was changed"):
        refine(bundle, tmp_path / "refined", Options())
    path.unlink()
    with pytest.raises(BundleVerificationError, match=r"pays\.parquet is missing"):
        refine(bundle, tmp_path / "refined", Options())
    assert not (tmp_path / "refined").exists()


RESEALED = {
    "the domain is not whole": ("datapackage.json", '"upper": 99', '"upper": 109', "not wholly"),
    "a column of a later version": (
        "datapackage.json", '"kind": "integer"', '"kind": "tensor"', "no kind of column 'tensor'",
    ),
    "a field of a later version": (
        "datapackage.json", '"width": 10', '"width": 10, "holes": []', "cannot read it",
    ),
    "other records": ("privacy.json", '"records": 400', '"records": 401', "400 records, not 401"),
    "no such mechanism": ("privacy.json", '"mechanism": "laplace"', '"mechanism": "x"', "'x'"),
    "a format that leads elsewhere": (
        "datapackage.json", '"format": "parquet"', '"format": "x/../../../secret.csv"', "format",
    ),
    "no text": ("privacy.json", "{", "", "cannot read it"),
    "another column": ("privacy.json", '"columns": [', '"columns": ["x", ', "cannot read it"),
    "records of no number": ("privacy.json", '"n_records": 400', '"n_records": 0', "positive"),
}  # fmt: skip


@pytest.mark.parametrize("case", RESEALED)
def test_a_resealed_bundle_that_does_not_fit_is_refused(
    bundle: Path, tmp_path: Path, case: str
) -> None:
    name, old, new, message = RESEALED[case]
    edit(bundle, name, old, new)
    verify_bundle(bundle)
    with pytest.raises(BundleVerificationError, match=message):
        refine(bundle, tmp_path / "refined", Options())
    assert not (tmp_path / "refined").exists()


def test_a_bundle_of_microdata_by_marginals_is_to_be_asked(bundle: Path) -> None:
    only = replace(open_bundle(bundle), products={}, by_marginals=("wide",))
    with pytest.raises(RefinementError) as caught:
        _chosen(only, Options(consistent=True))
    assert caught.value.what == "Microdata by marginals (wide) are not refined."
    assert caught.value.next_step == "Ask them with 'statpress query'."


def test_a_product_without_counts_is_left_out(bundle: Path, tmp_path: Path) -> None:
    package = json.loads((bundle / "datapackage.json").read_text())
    for resource in package["resources"]:
        if resource["path"].startswith("data/pays."):
            fields = resource["schema"]["fields"]
            resource["schema"]["fields"] = [f for f in fields if f["name"] != "raw"]
    (bundle / "datapackage.json").write_text(json.dumps(package))
    reseal(bundle)
    facts = refine(bundle, tmp_path / "refined", Options())
    assert facts["without_counts"] == ["pays"]
    assert "pays" not in facts["products"]
    with pytest.raises(RefinementError, match="'pays' has no published counts"):
        refine(bundle, tmp_path / "other", Options(products=("pays",)))
    with pytest.raises(RefinementError, match="'nobody' is not there"):
        refine(bundle, tmp_path / "other", Options(products=("nobody",)))


def test_nothing_is_overwritten_and_no_bundle_is_touched(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for taken in ("file", "dangling", "releases"):
        with pytest.raises(BundleExistsError):
            refine(bundle, tmp_path / taken, Options())
    for inside in (bundle / "refined", bundle / "data" / "more" / "refined"):
        with pytest.raises(OutputNotWritableError, match="inside a bundle"):
            refine(bundle, inside, Options())
    with pytest.raises(OutputNotWritableError, match="cannot be written"):
        refine(bundle, tmp_path / "file" / "refined", Options())
    verify_bundle(bundle)


def test_a_failure_leaves_nothing_behind(bundle: Path, tmp_path: Path) -> None:
    full = pytest.raises(OutputNotWritableError, match="File too large")
    with full_disk("write tables") as hear, full:
        refine(bundle, tmp_path / "new" / "refined", Options(), hear)
    assert list((tmp_path / "new").iterdir()) == []


def test_a_place_taken_in_the_meantime_is_left_alone(bundle: Path, tmp_path: Path) -> None:
    def take(title: str) -> None:
        if title == "write tables":
            (tmp_path / "new" / "refined").mkdir(parents=True)

    with pytest.raises(BundleExistsError):
        refine(bundle, tmp_path / "new" / "refined", Options(), take)
    assert [path.name for path in (tmp_path / "new").rglob("*")] == ["refined"]


def test_no_product_is_an_error(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(RefinementError, match="No product with counts"):
        refine(bundle, tmp_path / "refined", Options(products=()))


def test_what_cannot_be_done_is_refused(agency: Any, tmp_path: Path) -> None:
    agency.replace("upper: 99, width: 10", "upper: 417999, width: 1")
    agency.replace("born: {", "rounded: {")
    agency.replace("columns: [born]", "columns: [rounded]")
    agency.write_source(
        pq.read_table(agency.source).rename_columns(["region", "age", "pay", "rounded"])
    )
    bundle = agency.run().bundle
    options = Options(integers=True, products=("people",))
    refine(bundle, tmp_path / "refined", options)  # costs what is listed
    assert np.array(read(tmp_path / "refined", "people")["rounded"]).sum() == 400
    with pytest.raises(RefinementError, match="the 10,032,000 cells"):
        refine(bundle, tmp_path / "other", Options(consistent=True))
    with pytest.raises(RefinementError, match="'rounded' already"):
        refine(bundle, tmp_path / "other", Options(integers=True))
    refine(bundle, tmp_path / "other", Options())
