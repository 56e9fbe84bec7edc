"""Bundles of units of several records and with structural zeros, read back and refined."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from people import ZEROS, count_persons, put_people
from rederiving import rederived

from statpress.configs.loading import load
from statpress.flows.cli.bundle_commands import refinement_report
from statpress.mechanisms.errors import BundleVerificationError, RefinementError
from statpress.mechanisms.planning.plan import Plan
from statpress.tasks.bundle.manifest import FACTS, MANIFEST_NAME, seal
from statpress.tasks.bundle.rows import cell_rows, write_rows
from statpress.tasks.products.product_kind import KINDS
from statpress.tasks.release.refine import Options, open_bundle, refine

PRODUCTS = """\
products:
  people: {accept: mostly_noise,
    kind: microdata, mechanism: bootstrap, columns: [region, age, pay], share: 0.3}
  drawn: {accept: mostly_noise,
    kind: table, mechanism: smoothed_histogram, columns: [pay, age], share: 0.1}
  one: {accept: mostly_noise,
    kind: microdata, mechanism: bootstrap, columns: [pay], records: 1, share: 0.1}
  ages: {accept: mostly_noise, kind: table, mechanism: laplace, columns: [age, pay], share: 0.2}
  homes: {accept: mostly_noise,
    kind: table, mechanism: gaussian, columns: [region, age, pay], share: 0.1}
  regions: {kind: table, mechanism: gaussian, columns: [region], share: 0.1}
  levels: {accept: mostly_noise,
    kind: table, mechanism: two_resolutions, columns: [age, pay], share: 0.1}
"""
TABLES = ("drawn", "ages", "homes", "regions", "levels")
WITH_ZEROS = ("people", "drawn", "ages", "homes", "levels")
N_RECORDS = {"zeros": 400, "units": 480, "both": 480}
SEED = 6  # the one record drawn is absent
FIGURES = ["estimate", "standard_error", "projected"]
MADE: dict[str, tuple[Plan, Path]] = {}


@pytest.fixture(params=["zeros", pytest.param("units", marks=pytest.mark.nightly), "both"])
def case(request: Any) -> str:
    """What is declared: structural zeros, units of several records, or both."""
    found: str = request.param
    return found


@pytest.fixture
def press(
    agency: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Callable[[str], Path]:
    """A copy of a bundle of each case; it is made when first asked for."""

    def pressed(case: str) -> Path:
        if case not in MADE:
            zeros = "" if case == "units" else ZEROS
            agency.replace_products(zeros + PRODUCTS)
            if case != "zeros":
                count_persons(agency)
            put_people(agency)
            place = tmp_path_factory.mktemp("pressed") / case
            agency.run(insecure_seed=SEED).bundle.rename(place)
            MADE[case] = (load(agency.config).plan(), place)
        copy: Path = shutil.copytree(MADE[case][1], tmp_path / "copies" / case)
        return copy

    return pressed


def edit(bundle: Path, change: Callable[[Any], None], name: str = "privacy.json") -> None:
    """Change a JSON file of a bundle and seal it anew."""
    stated = json.loads((bundle / name).read_text())
    change(stated)
    (bundle / name).write_text(json.dumps(stated))
    manifest = json.loads((bundle / MANIFEST_NAME).read_text())
    seal(bundle, {fact: manifest[fact] for fact in FACTS})


def stated_of(bundle: Path) -> Any:
    return json.loads((bundle / "privacy.json").read_text())["products"]


def read(folder: Path, stem: str) -> Any:
    return pq.read_table(folder / "data" / f"{stem}.parquet")


@pytest.mark.parametrize("suffix", ["parquet", pytest.param("csv", marks=pytest.mark.nightly)])
def test_what_the_bundle_holds_is_rederived_bit_for_bit(
    press: Any, case: str, tmp_path: Path, suffix: str
) -> None:
    bundle = press(case)
    if suffix == "csv":  # no Parquet to read from
        for path in (bundle / "data").glob("*.parquet"):
            path.unlink()

        def csv_alone(package: Any) -> None:
            package["resources"] = [r for r in package["resources"] if r["format"] == "csv"]

        edit(bundle, csv_alone, "datapackage.json")
    published = open_bundle(bundle)
    assert published.n_records == N_RECORDS[case]
    planned = {product.request.name: product for product in MADE[case][0].products}
    assert list(published.products) == list(planned)
    for name, product in published.products.items():
        assert product.domain == planned[name].domain
        assert product.mechanism == planned[name].mechanism
        assert product.domain.absent == (case != "zeros")
        assert bool(product.domain.zeros) == (case != "units" and name in WITH_ZEROS)
        figures, stem = rederived(product, published.n_records), name
        if product.kind is KINDS["microdata"]:
            figures, stem = {each: figures[each] for each in FIGURES}, f"{name}_debiased"
        anew = tmp_path / f"{stem}.{suffix}"
        cells = product.counts().cells
        write_rows(
            cell_rows(product.domain, cells[~product.domain.is_absent(cells)], figures), anew
        )
        assert anew.read_bytes() == (bundle / "data" / f"{stem}.{suffix}").read_bytes()


def test_the_bundle_says_what_no_file_holds(press: Any, case: str) -> None:
    bundle = press(case)
    stated = stated_of(bundle)
    readme = (bundle / "README.md").read_text()
    assert ("(structural zeros)" in readme) == (case != "units")
    assert ("Absent records, which units do not have" in readme) == (case != "zeros")
    pattern = [{"age": [[0, 1]], "pay": [[3, 4]]}]  # ages by ten, pay by twenty
    two = [*pattern, {"region": [[2, 2]], "age": [[2, 9]]}]
    for name, product in stated.items():
        one = dict.fromkeys(("ages", "drawn", "levels"), pattern)
        zeros = (one | {"people": two, "homes": two}).get(name, [])
        assert product["structural_zeros"] == ([] if case == "units" else zeros)
        if case == "zeros":
            assert product["absent"] is None
        elif "records" in product:  # it follows from what is listed
            if name in TABLES:
                listed = sum(read(bundle, name)["raw"].to_pylist())
            else:
                listed = read(bundle, name).num_rows
            assert product["absent"]["raw"] == product["records"] - listed
    resources = json.loads((bundle / "datapackage.json").read_text())["resources"]
    for resource in resources:
        told = resource.get("description", "")
        zeros_in = case != "units" and Path(resource["path"]).stem.split("_")[0] in WITH_ZEROS
        assert ("(structural zeros)" in told) == zeros_in
        assert ("Absent records" in told) == (case != "zeros")


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_refined_integers(press: Any, case: str, tmp_path: Path, form: str) -> None:
    bundle, output = press(case), tmp_path / "refined"
    facts = refine(bundle, output, Options(integers=True, format=form))
    assert json.loads((output / "refinement.json").read_text()) == facts
    total = N_RECORDS[case]
    assert any("absent" in note for note in facts["notes"]) == (case != "zeros")
    resources = json.loads((output / "datapackage.json").read_text())["resources"]
    for (name, said), resource in zip(facts["products"].items(), resources, strict=True):
        path = output / "data" / f"{name}.{form}"
        table = pq.read_table(path) if form == "parquet" else pyarrow.csv.read_csv(path)
        was = read(bundle, name if name in TABLES else f"{name}_debiased")
        for figure in FIGURES:
            assert table[figure].to_pylist() == was[figure].to_pylist()
        assert table.num_rows == said["rows"]
        projected, rounded = (np.array(table[each]) for each in ("projected", "rounded"))
        assert np.abs(rounded - projected).max(initial=0) < 1
        assert rounded.min(initial=0) >= 0
        assert ("nearest to their sum" in json.dumps(resource)) == (case != "zeros")
        if case == "zeros":
            assert rounded.sum() == total
            assert "listed_records" not in said
        else:
            listed = said["listed_records"]
            assert listed == {"projected": projected.sum(), "rounded": rounded.sum()}
            assert abs(listed["projected"] - listed["rounded"]) <= 0.5
            assert listed["rounded"] < total or name in ("drawn", "one")  # few records
        product = open_bundle(bundle).products[name]
        if len(product.domain.columns) == 2:
            assert said["rounding_keeps"].startswith("rows, columns and total")
            listed_cells = product.counts().cells[: table.num_rows]
            for column in product.domain.columns:
                codes = product.domain.codes(listed_cells, column.name)
                sums = [np.bincount(codes, weights=each) for each in (projected, rounded)]
                assert np.abs(sums[0] - sums[1]).max() < 1
        assert said["root_mean_square_standard_error"] or not table.num_rows


def test_a_release_of_absent_records_alone_is_read_back(press: Any, tmp_path: Path) -> None:
    bundle = press("both")
    assert stated_of(bundle)["one"]["absent"] == {"raw": 1}
    output = tmp_path / "refined"
    facts = refine(bundle, output, Options(integers=True, products=("one",)))
    assert len(list(refinement_report(output, facts))) == 2
    assert facts["products"]["one"]["listed_records"] == {"projected": 0.0, "rounded": 0}
    assert facts["products"]["one"]["root_mean_square_standard_error"] is None


def test_the_noisy_count_of_the_absent_cell_decides_the_projection(press: Any) -> None:
    bundle = press("both")
    before = open_bundle(bundle)
    edit(bundle, lambda stated: stated["products"]["ages"]["absent"].update(raw=100))
    after = open_bundle(bundle)
    one, two = (rederived(each.products["ages"], 480) for each in (before, after))
    assert np.array_equal(one["estimate"], two["estimate"])
    assert not np.array_equal(one["projected"], two["projected"])


def test_tables_that_do_not_hold_all_combinations_are_not_made_consistent(
    press: Any, case: str, tmp_path: Path
) -> None:
    bundle, output = press(case), tmp_path / "refined"
    with pytest.raises(RefinementError, match="product 'people'") as caught:
        refine(bundle, output, Options(consistent=True))
    assert ("structural zeros" in caught.value.what) == (case != "units")
    assert ("Absent records" in caught.value.what) == (case != "zeros")
    assert "leave out --consistent" in caught.value.next_step
    plain = Options(consistent=True, integers=True, products=("one", "regions"))
    if case == "zeros":
        refine(bundle, output, plain)
        assert sum(read(output, "regions")["rounded"].to_pylist()) == 400
    else:
        with pytest.raises(RefinementError, match="product 'one'"):
            refine(bundle, output, plain)
    assert output.exists() == (case == "zeros")


def _without(name: str, key: str) -> Callable[[Any], Any]:
    return lambda stated: stated["products"][name].pop(key)


def _said(name: str, **changes: Any) -> Callable[[Any], Any]:
    return lambda stated: stated["products"][name].update(changes)


def _zero(name: str, column: str, runs: Any) -> Callable[[Any], Any]:
    return lambda stated: stated["products"][name]["structural_zeros"][0].update({column: runs})


RESEALED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no zeros": (_without("ages", "structural_zeros"), "not wholly described"),
    "one zero less": (_said("people", structural_zeros=[]), "not wholly described"),
    "absent is not said": (_without("ages", "absent"), "unclear whether the product 'ages'"),
    "no absent cell": (_said("regions", absent=None), "unclear whether the product 'regions'"),
    "no number": (_said("ages", absent={"raw": 1.5}), "no integer"),
    "nothing raw": (_said("ages", absent={}), "cannot read it"),
    "no block": (_said("levels", absent={"raw": 3}), "cannot read it: 'raw_block'"),
    "too large": (_said("ages", absent={"raw": 2**62}), "too large"),
    "more drawn": (_said("people", absent={"raw": 1000}), "records, not 480"),
    "other unit": (_said("ages", unit_records=1), "unit_records is stated in two ways"),
    "other size": (_said("ages", n_records=400), "n_records is stated in two ways"),
    "other place": (_zero("ages", "pay", [[2, 3]]), "row in a structural zero"),
    "other place, drawn": (_zero("people", "pay", [[0, 1]]), "row in a structural zero"),
    "no such code": (_zero("ages", "pay", [[5, 6]]), "a code that does not exist"),
    "no such column": (_zero("ages", "x", [[0, 0]]), "no column 'x'"),
    "no runs": (_zero("ages", "pay", []), "at least one value"),
    "backwards": (_zero("ages", "pay", [[4, 3]]), "ends before it begins"),
    "no code": (_zero("ages", "pay", [["3", 4]]), "no integer"),
}


@pytest.mark.parametrize("change", RESEALED)
def test_a_resealed_bundle_that_does_not_fit_is_refused(
    press: Any, tmp_path: Path, change: str
) -> None:
    bundle = press("both")
    edit(bundle, RESEALED[change][0])
    with pytest.raises(BundleVerificationError, match=RESEALED[change][1]):
        refine(bundle, tmp_path / "refined", Options())
    assert not (tmp_path / "refined").exists()


def test_units_that_are_not_said_at_all_are_missed_in_the_number_of_cells(press: Any) -> None:

    def of_one_record(stated: Any) -> None:
        stated["unit_records"] = 1
        for product in stated["products"].values():
            product.update(unit_records=1, absent=None)

    bundle = press("both")
    edit(bundle, of_one_record)
    with pytest.raises(BundleVerificationError, match="not wholly described"):
        open_bundle(bundle)
