"""Microdata of noisy tables through the whole flow: records, table, and what follows from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from people import ZEROS, count_persons, put_people
from requirements import needed

import statpress
from statpress.configs.loading import load
from statpress.configs.order import from_options
from statpress.mechanisms.errors import BundleVerificationError, ConfigError
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.tasks.bundle.manifest import FACTS, MANIFEST_NAME, seal, verify_bundle
from statpress.tasks.bundle.rows import read_records
from statpress.tasks.release.ledger_check import check_bundle
from statpress.tasks.release.refine import Options, open_bundle, refine
from statpress.tasks.release.reprint import check_reprint, reprint

PRODUCTS = """\
products:
  even: {accept: mostly_noise,
    kind: microdata, mechanism: gaussian, columns: [region, age, pay], share: 0.25}
  sharp: {accept: mostly_noise,
    kind: microdata, mechanism: laplace, columns: [region, age, pay], share: 0.25}
  blocks: {accept: mostly_noise,
    kind: microdata, mechanism: two_resolutions, columns: [age, pay], share: 0.25}
  open: {kind: microdata, minimise: total_variation, columns: [pay], share: 0.25}
"""
NAMES = ("even", "sharp", "blocks", "open")
FIGURES = ["estimate", "standard_error", "projected"]
N_RECORDS = {"zeros": 400, "both": 480}
MADE: dict[str, tuple[Plan, Path]] = {}


@pytest.fixture(params=N_RECORDS)
def case(request: Any) -> str:
    """What is declared: structural zeros, with or without units of several records."""
    found: str = request.param
    return found


@pytest.fixture
def press(
    agency: Any, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Callable[[str], Path]:
    """A copy of a bundle of each case; it is made when first asked for."""

    def pressed(case: str) -> Path:
        if case not in MADE:
            agency.replace_products(ZEROS + PRODUCTS)
            if case != "zeros":
                count_persons(agency)
            put_people(agency)
            bundle = agency.run(insecure_seed=5).bundle
            check_bundle(agency.home, bundle, verify_bundle(bundle))
            MADE[case] = (load(agency.config).plan(), tmp_path_factory.mktemp("pressed") / case)
            bundle.rename(MADE[case][1])
        copy: Path = shutil.copytree(MADE[case][1], tmp_path / "copies" / case)
        return copy

    return pressed


def table_of(bundle: Path, stem: str) -> Any:
    return pq.read_table(bundle / "data" / f"{stem}.parquet")


def reseal(bundle: Path) -> None:
    manifest = json.loads((bundle / MANIFEST_NAME).read_text())
    seal(bundle, {fact: manifest[fact] for fact in FACTS if fact in manifest})


def test_the_records_are_the_projected_counts_in_whole_numbers(press: Any, case: str) -> None:
    bundle, plan = press(case), MADE[case][0]
    published = open_bundle(bundle)
    for name, planned in zip(NAMES, plan.products, strict=True):
        product = published.products[name]
        assert product.mechanism == planned.mechanism
        table = table_of(bundle, f"{name}_table")
        assert table.column_names == [*product.domain.names, *product.mechanism.raw, *FIGURES]
        assert table.num_rows == product.domain.n_listed
        cells, counts = read_records(bundle / "data" / f"{name}.parquet", product.domain)
        assert product.domain.is_possible(cells).all()
        projected = np.array(table["projected"])
        records = np.zeros(len(projected), np.int64)
        listed = product.domain.possible_cells()[: len(projected)]
        records[np.searchsorted(listed, cells)] = counts
        assert np.abs(records - projected).max() < 1
        rows = table_of(bundle, name).num_rows
        assert rows == records.sum()
        if case == "zeros":
            assert rows == 400
        else:  # the absent ones are not listed
            assert 200 < rows < 480
            assert abs(rows - projected.sum()) < 1
        runs = np.cumsum(records) - np.cumsum(projected)
        assert runs.max() - runs.min() <= 1 + 1e-9  # of every run of cells
        assert ((bundle / "data" / f"{name}.csv").read_text().count("\n")) == rows + 1


def test_what_was_left_open_is_said(press: Any) -> None:
    bundle, plan = press("zeros"), MADE["zeros"][0]
    (product,) = (each for each in plan.products if each.name == "open")
    assert product.choice is not None
    assert product.choice.minimise == "total_variation"
    assert 0 < product.expected_error.pair_total_variation < 1
    assert product.mechanism.name in ("laplace", "gaussian", "two_resolutions")
    readme = (bundle / "README.md").read_text()
    assert "cells, rounded from counts with noise by the mechanism `gaussian`" in readme
    assert "`even_table`" in readme
    assert "uniform over the cells" not in readme


@pytest.mark.parametrize("suffix", ["parquet", pytest.param("csv", marks=pytest.mark.nightly)])
def test_everything_follows_from_the_table(press: Any, case: str, suffix: str) -> None:
    bundle = press(case)
    done = reprint(bundle, from_options([f"publish.formats=[{suffix}]", "title=Anew"])).bundle
    assert check_reprint(done)
    for name in NAMES:
        for stem in (name, f"{name}_table"):
            was, now = (each / "data" / f"{stem}.{suffix}" for each in (bundle, done))
            assert was.read_bytes() == now.read_bytes()
    assert check_reprint(reprint(done, from_options(["publish.formats=[csv]"])).bundle)


def test_a_forged_record_or_count_is_found(press: Any) -> None:
    bundle = press("both")
    done = reprint(bundle, from_options(["publish.formats=[csv]"])).bundle
    path = done / "data" / "blocks.csv"
    kept = path.read_text()
    rows = kept.splitlines()
    other = next(row for row in rows[2:] if row != rows[1])
    path.write_text("\n".join([rows[0], other, *rows[2:]]) + "\n")
    reseal(done)
    with pytest.raises(BundleVerificationError, match=r"data/blocks\.csv: not what follows"):
        check_reprint(done)
    path.write_text(kept)
    table = done / "data" / "sharp_table.csv"
    head, first, *rest = table.read_text().splitlines()
    values = first.split(",")
    values[3] = str(int(values[3]) + 1)
    table.write_text("\n".join([head, ",".join(values), *rest]) + "\n")
    reseal(done)
    with pytest.raises(BundleVerificationError, match="'sharp' are not those that were drawn"):
        check_reprint(done)


def test_the_tables_are_refined(press: Any, case: str, tmp_path: Path) -> None:
    bundle = press(case)
    facts = refine(bundle, tmp_path / "refined", Options(integers=True))
    assert list(facts["products"]) == list(NAMES)
    for name in NAMES:
        refined, was = table_of(tmp_path / "refined", name), table_of(bundle, f"{name}_table")
        assert refined.drop_columns("rounded") == was
        assert facts["products"][name]["kind"] == "microdata"


def test_a_table_that_lacks_a_cell_is_refused(press: Any, tmp_path: Path) -> None:
    bundle = press("zeros")
    for path in (bundle / "data").glob("even_table.*"):
        if path.suffix == ".parquet":
            pq.write_table(table_of(bundle, "even_table").slice(1), path)
    reseal(bundle)
    with pytest.raises(BundleVerificationError, match="does not list every cell"):
        refine(bundle, tmp_path / "refined", Options())


def test_the_absent_cell_takes_part_in_the_projection(press: Any) -> None:
    bundle = press("both")
    product = open_bundle(bundle).products["even"]
    counts = product.counts()
    assert len(counts.cells) == product.domain.n_possible
    projected = project_to_simplex(counts.counts.astype(float), 480.0).values
    assert projected[:-1] == pytest.approx(np.array(table_of(bundle, "even_table")["projected"]))
    alone = project_to_simplex(counts.counts[:-1].astype(float), 480.0).values
    assert alone != pytest.approx(projected[:-1])  # twin: without it


COPIED = """\
products:
  copied: {accept: mostly_noise,
    kind: microdata, mechanism: gaussian, columns: [region, age], copies: 3}
"""


@pytest.mark.system
def test_copies_are_in_files_of_stata_and_spss(agency: Any) -> None:
    pyreadstat = needed("pyreadstat")
    agency.replace_products(COPIED)
    agency.replace("formats: [parquet, csv]", "formats: [dta, sav]")
    bundle = agency.run().bundle
    stata, _ = pyreadstat.read_dta(bundle / "data" / "copied_copies.dta")
    assert stata.groupby("copy").size().tolist() == [400] * 4
    assert stata.loc[stata["copy"] == 0, "age"].isna().all()
    spss, _ = pyreadstat.read_sav(bundle / "data" / "copied_copies.sav")
    assert spss.groupby("Imputation_").size().tolist() == [400] * 3


def test_copies_are_combined(agency: Any) -> None:
    agency.replace_products(COPIED)
    bundle = agency.run(insecure_seed=5).bundle
    check_bundle(agency.home, bundle, verify_bundle(bundle))
    assert "those of anything else from data/copied_copies" in (bundle / "report.html").read_text()
    assert "each of the 3 sets of records in `copied_copies`" in (bundle / "README.md").read_text()
    records = table_of(bundle, "copied").to_pandas()
    copies = table_of(bundle, "copied_copies").to_pandas()
    assert copies.groupby("copy").size().tolist() == [400, 400, 400]
    assert copies.columns.tolist() == ["region", "age", "copy"]
    counts = copies.groupby(["copy", "age"]).size().unstack(fill_value=0)
    own = records.groupby("age").size().reindex(counts.columns, fill_value=0)
    assert not any(row.equals(own) for _, row in counts.iterrows())
    assert counts.std().mean() > 0
    found = statpress.open(bundle).combine(lambda own: (own["age"].mean(), own["age"].var() / 400))
    (row,) = found.frame().to_dict("records")
    means = copies.groupby("copy")["age"].mean()
    assert row["estimate"] == pytest.approx(means.mean())
    assert row["standard_error"] > np.sqrt(4 / 3) * means.std()
    again = reprint(bundle, from_options(["publish.formats=[csv]", "title=Anew"])).bundle
    assert check_reprint(again)
    same = (bundle / "data" / "copied_copies.csv").read_bytes()
    assert (again / "data" / "copied_copies.csv").read_bytes() == same


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kind: microdata", "kind: table", "Copies are of records"),
        ("copies: 3", "copies: 101", "1 to 100 copies"),
    ],
)
def test_copies_that_cannot_be_are_refused_at_their_line(
    agency: Any, old: str, new: str, words: str
) -> None:
    agency.replace_products(COPIED.replace(old, new))
    with pytest.raises(ConfigError, match=words) as refused:
        load(agency.config).plan()
    line = next(i for i, text in enumerate(agency.text.splitlines(), 1) if "copies" in text)
    assert f"release.yaml:{line}:" in refused.value.where


def test_copies_of_units_of_several_records_are_refused(agency: Any) -> None:
    agency.replace_products(ZEROS + COPIED)
    count_persons(agency)
    with pytest.raises(ConfigError, match="units of one record"):
        load(agency.config).plan()


def test_copies_without_a_mechanism_are_those_of_marginals(agency: Any) -> None:
    agency.replace_products(COPIED.replace(" mechanism: gaussian,", ""))
    (product,) = load(agency.config).plan().products
    assert (product.mechanism.name, product.mechanism.copies) == ("marginals", 3)


def test_of_a_private_size_there_are_as_many_as_the_noisy_counts_add_up_to(agency: Any) -> None:
    agency.replace(
        "replace_one, unit: record, n_records: 400",
        "add_remove, unit: record, n_records: {about: 300}",
    )
    agency.replace_products(COPIED)
    agency.replace("dataset: testdata", "dataset: panel")
    agency.dataset = "panel"
    agency.register(adjacency="add_remove", n_records=None, epsilon="30", delta="1e-3")
    bundle = agency.run(insecure_seed=5).bundle
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["copied"]
    found = stated["estimated_records"]
    assert abs(found - 300) > 20 and abs(found - 400) < 100
    assert table_of(bundle, "copied").num_rows == found
    assert table_of(bundle, "copied_copies").num_rows == 3 * found
    assert (
        "`copied`: synthetic records, as many as the noisy counts"
        in (bundle / "README.md").read_text()
    )
    assert check_reprint(reprint(bundle, from_options(["publish.formats=[csv]"])).bundle)
