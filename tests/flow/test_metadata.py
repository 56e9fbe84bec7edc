"""Metadata of a bundle with every kind of product, as the public tools read them."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from requirements import needed
from ruamel.yaml import YAML
from scipy.stats import t
from victims import InProcess

from statpress.configs.descriptions.description_files import read_description
from statpress.configs.loading import load
from statpress.configs.order import Order, Override
from statpress.flows.runner import run_release
from statpress.mechanisms.errors import BundleVerificationError
from statpress.tasks.bundle.file_formats import format_named, read_batches
from statpress.tasks.bundle.manifest import files_of, seal, verify_bundle
from statpress.tasks.catalogues import linked_data
from statpress.tasks.catalogues.linked_data import Publication
from statpress.tasks.catalogues.metadata_files import (
    citation_file,
    metadata_files,
    structure_files,
)
from statpress.tasks.catalogues.usage import usage_section, with_publication
from statpress.tasks.ledger.ledger import Ledger
from statpress.tasks.private_zone.folders import Home
from statpress.tasks.private_zone.guards import CuratorLog, new_run_id
from statpress.tasks.private_zone.run_context import RunContext
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.opened import Release, open_release
from statpress.tasks.release.refine import Options, refine
from statpress.tasks.release.reprint import check_reprint, reprint

pytestmark = pytest.mark.system

SHAPES = Path(__file__).with_name("data") / "dcat_ap_shapes.ttl"
N = 300
ODD = ["a, b", 'say "no"', "007", "é 😀", "=1+1", " padded", "true", "NA"]
CONFIG = """\
title: Every kind of product
about:
  description: Answers of a panel.
  publisher: {name: Office of Examples, url: "https://office.example"}
  contact: {name: Data desk, email: data@office.example}
  licence: CC-BY-4.0
  keywords: [panel, privacy]
  temporal: {start: 1990, end: 1993-12}
  spatial: {name: Exampleland, url: "https://geo.example/exampleland"}
  landing_page: https://office.example/every-kind
  identifier: 10.1234/every.kind
dataset: everything
source: {path: source.parquet}
privacy: {adjacency: replace_one, unit: record, n_records: 300}
budget: {epsilon: 8.0, delta: 1.0e-6}
domain:
  odd:
    type: categorical
    categories: ["a, b", 'say "no"', "007", "é 😀", "=1+1", " padded", "true", "NA"]
    other: true
    missing: true
    label: What was answered
    value_labels: [both, no, agent, face, formula, padded, "yes", "not, asked"]
  rank:
    type: ordinal
    categories: [1, 2, 3]
    missing: true
    label: Rank
    value_labels: [low, middle, high]
  trained: {type: categorical, categories: [false, true], missing: true}
  pay: {type: numeric, lower: 0, upper: 100, bins: 5, unit: EUR per hour}
  age: {type: integer, lower: 0, upper: 9}
  born: {type: date, first: 1970-01-01, last: 1970-03-31, by: day, missing: true}
  since: {type: date, first: 1990-01-01, last: 1993-12-31, by: year}
products:
  people: {kind: microdata, mechanism: bootstrap, columns: [odd, rank, trained], share: 0.1}
  wide: {kind: microdata, mechanism: marginals, columns: [odd, rank, pay, born], share: 0.2}
  counts: {kind: table, mechanism: gaussian, columns: [odd, rank], share: 0.2}
  years: {kind: table, mechanism: laplace, columns: [since, pay], share: 0.2, bands: [cells]}
  mean_pay: {kind: estimate, statistic: mean, mechanism: joint_moments, columns: [pay], share: 0.2}
  curve: {kind: function, target: kde, columns: [pay], degree: 4, order: 1, share: 0.1}
publish:
  {directory: releases, formats: [parquet, csv, dta, sav], plots: false, sdmx: true, name: first}
"""


def source() -> pa.Table:
    born = [datetime.date(1970, 1, 1) + datetime.timedelta(days=i % 90) for i in range(N)]
    return pa.table(
        {
            "odd": [(ODD + [None, "undeclared"])[i % 10] for i in range(N)],
            "rank": [(1, 2, 3, None)[i % 4] for i in range(N)],
            "trained": [(True, False, None)[i % 3] for i in range(N)],
            "pay": [float(i % 100) for i in range(N)],
            "age": [i % 10 for i in range(N)],
            "born": [None if i % 7 == 0 else born[i] for i in range(N)],
            "since": [datetime.date(1990 + i % 4, 5, 1) for i in range(N)],
        }
    )


ACCEPTED = "[mostly_noise, mostly_independent]"


def pressed(folder: Path, config: str = CONFIG) -> Path:
    """A bundle of the config, in one process."""
    for product in ("people", "wide", "counts", "years", "mean_pay", "curve"):
        config = config.replace(f"{product}: {{", f"{product}: {{accept: {ACCEPTED}, ")
    (folder / "release.yaml").write_text(config)
    pq.write_table(source(), folder / "source.parquet")
    home = Home(folder / "home")
    home.folder("")
    with Ledger.open(home.ledger) as ledger:
        ledger.register(
            dataset="everything", epsilon="20", delta="1e-4", adjacency="replace_one",
            unit="record", unit_records=1, n_records=N,
        )  # fmt: skip
    log = CuratorLog(home.folder("curator"), new_run_id())
    context = RunContext(home=home, log=log, inspector=InProcess(log), orchestrated=False)
    return run_release(context, Order(folder / "release.yaml")).bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pressed(tmp_path_factory.mktemp("agency"))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def distributions(folder: Path) -> dict[str, dict[str, Any]]:
    return {
        each["dcat:downloadURL"]["@id"]: each
        for each in read_json(folder / "dcat.jsonld")["dcat:distribution"]
    }


def test_every_file_of_the_data_package_is_there_with_its_size_and_hash(bundle: Path) -> None:
    known = files_of(verify_bundle(bundle))
    assert {"dcat.jsonld", "croissant.json"} <= known.keys()
    listed = [each["path"] for each in read_json(bundle / "datapackage.json")["resources"]]
    assert not {"dcat.jsonld", "croissant.json"} & set(listed)
    croissant = read_json(bundle / "croissant.json")["distribution"]
    assert [each["contentUrl"] for each in croissant] == listed == list(distributions(bundle))
    for each, (path, distribution) in zip(croissant, distributions(bundle).items(), strict=True):
        size, digest = known[path]
        assert (each["contentSize"], each["sha256"]) == (f"{size} B", digest)
        assert distribution["dcat:byteSize"]["@value"] == str(size)
        assert distribution["spdx:checksum"]["spdx:checksumValue"]["@value"] == digest


def test_the_same_public_files_give_the_same_metadata(bundle: Path) -> None:
    made = [*metadata_files(bundle, with_sdmx=True), *structure_files(bundle)]
    assert {name for name, _ in made} == {
        "dcat.jsonld", "croissant.json", "CITATION.cff", "csvw.json", "sdmx/counts.csv",
        "sdmx/counts_structure.xml", "sdmx/years.csv", "sdmx/years_structure.xml",
    }  # fmt: skip
    for name, content in made:
        assert (bundle / name).read_bytes() == content


def test_the_report_lists_the_files_of_every_table(bundle: Path) -> None:
    """In its contents; those of a product stand in its row."""
    page = (bundle / "report.html").read_text()
    rows = {
        name: re.search(rf'<tr>(?:(?!</tr>).)*href="#product-{name}".*?</tr>', page, re.DOTALL)
        for name in ("counts", "years", "people")
    }
    listed = {
        name: {href.removeprefix("./") for href in re.findall('href="([^#"]+)"', row[0])}
        for name, row in rows.items()
        if row
    }
    assert listed.keys() == rows.keys()
    for name in ("counts", "years"):
        in_sdmx = {f"sdmx/{name}.csv", f"sdmx/{name}_structure.xml"}
        assert in_sdmx < listed[name]
        assert all((bundle / path).is_file() for path in listed[name])
    whole = {path.relative_to(bundle).as_posix() for path in bundle.glob("sdmx/*")}
    assert whole == {path for each in listed.values() for path in each if "sdmx" in path}


def conforms(document: dict[str, Any]) -> bool:
    """Whether a DCAT document meets the shapes."""
    import pyshacl
    import rdflib

    graph = rdflib.Graph()
    graph.parse(data=json.dumps(document), format="json-ld", publicID="https://a.example/first/")
    met, _, said = pyshacl.validate(graph, shacl_graph=str(SHAPES), inference="none")
    if not met:
        print(said)
    return bool(met)


def without_words(bundle: Path) -> Publication:
    """The same of a config that says nothing of what it need not."""
    bare = Publication(bundle)
    told = ("description", "homepage", "keywords", "licenses", "contributors", "temporal",
            "spatial")  # fmt: skip
    vars(bare)["package"] = {k: v for k, v in bare.package.items() if k not in told}
    return bare


def test_dcat_meets_the_profile(bundle: Path) -> None:
    needed("pyshacl")
    document = read_json(bundle / "dcat.jsonld")
    assert conforms(document)
    assert conforms(linked_data.dcat_dataset(without_words(bundle)))
    first = document["dcat:distribution"][0]
    for broken in (  # each is seen
        document | {"dct:title": None},
        document | {"dct:issued": {"@value": "yesterday", "@type": "xsd:string"}},
        document | {"dct:publisher": {"@type": "foaf:Agent"}},
        document | {"dcat:distribution": [{**first, "dcat:accessURL": None}]},
        document | {"dcat:distribution": [{**first, "spdx:checksum": {"@type": "spdx:Checksum"}}]},
    ):
        assert not conforms(broken)


def test_dcat_says_who_publishes_what_under_which_licence(bundle: Path) -> None:
    document = read_json(bundle / "dcat.jsonld")
    assert document["@id"] == "https://doi.org/10.1234/every.kind"
    assert document["dct:publisher"]["foaf:name"] == "Office of Examples"
    assert document["dcat:contactPoint"]["vcard:hasEmail"] == {"@id": "mailto:data@office.example"}
    assert document["dct:temporal"]["dcat:startDate"] == {"@value": "1990", "@type": "xsd:gYear"}
    assert document["dct:temporal"]["dcat:endDate"] == {
        "@value": "1993-12",
        "@type": "xsd:gYearMonth",
    }
    assert document["dct:spatial"]["skos:prefLabel"] == "Exampleland"
    assert "differential privacy" in document["dct:description"]
    for each in document["dcat:distribution"]:
        assert each["dct:license"]["@id"] == "https://spdx.org/licenses/CC-BY-4.0.html"
        assert each["dcat:accessURL"]["@id"] == "https://office.example/every-kind"
        assert (bundle / each["dcat:downloadURL"]["@id"]).is_file()


def test_croissant_is_valid_and_reads_the_tables(bundle: Path) -> None:
    needed("mlcroissant")
    import mlcroissant

    found = mlcroissant.Dataset(bundle / "croissant.json")
    assert not found.metadata.ctx.issues.errors
    assert not found.metadata.ctx.issues.warnings
    tables = {each.id for each in found.metadata.record_sets}
    package = read_json(bundle / "datapackage.json")["resources"]
    assert tables == {Path(each["path"]).stem for each in package if "schema" in each}
    for name in ("people", "counts"):
        table = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        for row, record in zip(table[:20], found.records(name), strict=False):
            read = {key.partition("/")[2]: value for key, value in record.items()}
            assert read.keys() == row.keys()
            assert read["odd"] == (row["odd"] and row["odd"].encode())
            assert read.get("raw") == row.get("raw")
            assert read["rank"] == row["rank"] or row["rank"] is None
    assert found.metadata.cite_as.startswith("Office of Examples. (20")
    assert found.metadata.personal_sensitive_information


def test_croissant_lists_files_that_its_reader_does_not_know(bundle: Path) -> None:
    package = read_json(bundle / "datapackage.json")
    only = [each for each in package["resources"] if each["path"].endswith((".csv", ".json"))]
    changed = Publication(bundle)
    vars(changed)["package"] = package | {"resources": only}
    sets = linked_data.croissant_dataset(changed)["recordSet"]
    assert {each["field"][0]["source"]["fileObject"]["@id"][-4:] for each in sets} == {".csv"}


def test_csv_on_the_web_gives_the_values_that_parquet_has(bundle: Path) -> None:
    needed("csvw")
    from csvw import CSVW, TableGroup

    found = CSVW(str(bundle / "csvw.json"), validate=True)
    assert found.is_valid and not found.warnings
    group = TableGroup.from_file(bundle / "csvw.json")
    assert group.check_referential_integrity()
    assert {str(table.url) for table in group.tables} == {
        f"data/{each.name}" for each in (bundle / "data").glob("*.csv")
    }
    text = format_named("csv").as_written
    for table in group.tables:
        assert table.check_primary_key()
        own = pq.read_table((bundle / str(table.url)).with_suffix(".parquet"))
        assert [dict(row) for row in table] == [
            {k: text(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in own.to_pylist()
        ]
    people = next(each for each in group.tables if each.url.string == "data/people.csv")
    rank = people.tableSchema.columndict["rank"]
    assert [each["skos:prefLabel"] for each in rank.common_props["skos:member"]] == [
        "low", "middle", "high",
    ]  # fmt: skip
    described = read_description(bundle / "csvw.json", "data/people.csv")
    assert [each.name for each in described.columns] == ["odd", "rank", "trained"]


def test_the_citation_is_what_its_format_asks_for(bundle: Path) -> None:
    """Keys and patterns are those of the schema of version 1.2.0."""
    text = (bundle / "CITATION.cff").read_text(encoding="utf-8")
    said = YAML(typ="safe", pure=True).load(text)
    assert said.keys() >= {"cff-version", "message", "title", "authors"}
    assert said["cff-version"] == "1.2.0" and said["type"] == "dataset"
    assert said["authors"] == [
        {"name": "Office of Examples", "website": "https://office.example"}
    ]  # fmt: skip
    assert said["doi"] == "10.1234/every.kind" and "identifiers" not in said
    assert said["license"] == "CC-BY-4.0" and "license-url" not in said
    assert str(said["date-released"]) == read_json(bundle / "datapackage.json")["created"][:10]
    bare = without_words(bundle).package | {"id": "urn:uuid:0"}
    said = YAML(typ="safe", pure=True).load(citation_file(bare))
    assert said["authors"] == [{"name": "Publisher not named"}]
    assert said["identifiers"] == [{"type": "other", "value": "urn:uuid:0"}]
    assert "doi" not in said and all(said.values())


def test_the_readme_loads_the_files_of_a_reprint_in_their_formats(bundle: Path) -> None:
    """Of every language that reads one, in the format that it likes best."""
    package = read_json(bundle / "datapackage.json")
    whole = usage_section(package)
    assert re.findall("^```([a-z]+)$", whole, re.MULTILINE) == ["python", "r", "stata", "spss"]
    assert whole.rstrip() in (bundle / "README.md").read_text(encoding="utf-8")
    assert whole.count("\n\n\n") == 0
    blocks = re.findall(r"^```[a-z]+\n(.*?)^```$", whole, re.MULTILINE | re.DOTALL)
    assert ["\n\n" in block for block in blocks] == [True, False, False, False]  # after imports
    listed = {each["path"] for each in package["resources"]}
    assert set(re.findall(r"data/[\w.]+", whole)) <= listed
    for form, languages in (("parquet", 2), ("csv", 3), ("dta", 3), ("sav", 3)):
        only = [each for each in package["resources"] if each.get("format") == form]
        section = usage_section(package | {"resources": only})
        assert section.count("```") == 2 * languages
        assert {path.rpartition(".")[2] for path in re.findall(r"data/[\w.]+", section)} == {form}
    assert usage_section(package | {"resources": []}) == ""
    readme = with_publication("# A\n\n## Publication\n\n- Licence: B\n", package)
    assert with_publication(readme, package) == readme
    assert readme.count("## Publication") == readme.count("## How to use") == 1


def test_sdmx_is_read_back_with_its_structure(bundle: Path) -> None:
    needed("pysdmx")
    from pysdmx.io import get_datasets, read_sdmx

    for name in ("counts", "years"):
        structure = bundle / "sdmx" / f"{name}_structure.xml"
        read_sdmx(structure, validate=True)  # against the XML schemas of SDMX 3.0
        (found,) = get_datasets(bundle / "sdmx" / f"{name}.csv", structure)
        assert found.structure.agency == "OFFICE_OF_EXAMPLES"
        table = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        rows = found.data.to_dict("records")
        assert len(rows) == len(table)
        names = {each.id: each for each in found.structure.components}
        for row, expected in zip(rows, table, strict=True):
            for id, figure in (("OBS_VALUE", "estimate"), ("STANDARD_ERROR", "standard_error"),
                               ("PROJECTED", "projected")):  # fmt: skip
                assert row[id] == expected[figure]
            assert (row["OBS_STATUS"], row["CONF_STATUS"]) == ("E", "F")
        if name == "years":
            assert [row["TIME_PERIOD"] for row in rows] == [row["since"] for row in table]
            assert [each.name for each in names["PAY"].enumeration][:2] == ["0 to 20", "20 to 40"]
            continue
        codes = {each.id: each.name for each in names["ODD"].enumeration}
        assert list(codes.values()) == [
            "both", "no", "agent", "face", "formula", "padded", "yes", "not, asked", "other",
            "missing",
        ]  # fmt: skip
        of_value = {row["odd"]: code["ODD"] for row, code in zip(table, rows, strict=True)}
        assert of_value["007"] == "007" and of_value["other"] == "_O" and of_value[None] == "_U"
        assert set(of_value.values()) == set(codes)


def opened(path: Path) -> dict[str, Any]:
    """A table as each program reads it, by the program's name; pandas' is a data frame."""
    import duckdb
    import pandas
    import polars

    if path.suffix == ".dta":
        return {"pandas": pandas.read_stata(path)}
    if path.suffix == ".sav":
        return {"pandas": pandas.read_spss(path)}
    if path.suffix == ".csv":
        return {
            "pandas": pandas.read_csv(path, keep_default_na=False, na_values=[""]),
            "polars": polars.read_csv(path, infer_schema_length=None),
            "duckdb": duckdb.read_csv(str(path)).fetchall(),
        }
    return {
        "pandas": pandas.read_parquet(path),
        "polars": polars.read_parquet(path),
        "duckdb": duckdb.read_parquet(str(path)).fetchall(),
    }


def test_every_file_opens_in_pandas_polars_and_duckdb_without_a_warning(bundle: Path) -> None:
    for each in ("polars", "pyreadstat"):
        needed(each)
    resources = [r for r in read_json(bundle / "datapackage.json")["resources"] if "schema" in r]
    assert {each["format"] for each in resources} == {"parquet", "csv", "dta", "sav"}
    rows: dict[str, set[int]] = {}
    for resource in resources:
        path = bundle / resource["path"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = opened(path)
        blank = N * (path.name == "wide_copies.dta")
        rows.setdefault(path.stem, set()).update(len(each) - blank for each in found.values())
        names = [field["name"] for field in resource["schema"]["fields"]]
        assert list(found["pandas"].columns) == names
        assert "polars" not in found or found["polars"].columns == names
    assert all(len(counts) == 1 for counts in rows.values())


@pytest.mark.parametrize("suffix", ["dta", "sav"])
def test_files_of_stata_and_spss_have_labels_and_the_same_values(bundle: Path, suffix: str) -> None:
    pyreadstat = needed("pyreadstat")
    read = {"dta": pyreadstat.read_dta, "sav": pyreadstat.read_sav}[suffix]
    path = bundle / "data" / f"wide.{suffix}"
    frame, said = read(str(path), apply_value_formats=True)
    typed = pq.read_table(bundle / "data" / "wide.parquet").to_pydict()
    assert said.column_names_to_labels == {
        "odd": "What was answered", "rank": "Rank", "pay": "pay (EUR per hour)", "born": "born",
    }  # fmt: skip
    assert said.variable_value_labels["odd"] == {
        1: "a, b = both", 2: 'say "no" = no', 3: "007 = agent", 4: "é 😀 = face",
        5: "=1+1 = formula", 6: " padded = padded", 7: "true = yes", 8: "NA = not, asked",
        9: "other = other",
    }  # fmt: skip
    assert said.variable_value_labels["rank"] == {1: "low", 2: "middle", 3: "high"}
    for row, odd in zip(frame["odd"].astype(object), typed["odd"], strict=True):
        assert row != row if odd is None else row.startswith(f"{odd} = ")
    assert [day and str(day)[:10] for day in frame["born"].astype(object).where(
        frame["born"].notna(), None)] == typed["born"]  # fmt: skip
    for name in ("wide", "people", "counts", "years_cells_band"):
        written = pq.read_table(bundle / "data" / f"{name}.parquet")
        back = pa.Table.from_batches(
            read_batches(bundle / "data" / f"{name}.{suffix}", written.schema)
        )
        assert back.to_pydict() == written.to_pydict()
        assert [field.type for field in back.schema] == [field.type for field in written.schema]
    if suffix == "sav":
        assert said.variable_measure == {
            "odd": "nominal", "rank": "ordinal", "pay": "scale", "born": "scale",
        }  # fmt: skip


def test_copies_are_what_stata_and_spss_take_for_imputed_data(bundle: Path) -> None:
    """``mi import flong`` expects a block 0 of incomplete data and a key within each set."""
    needed("pyreadstat")
    typed = pq.read_table(bundle / "data" / "wide_copies.parquet").to_pandas()
    stata = pd.read_stata(bundle / "data" / "wide_copies.dta", convert_categoricals=False)
    assert stata["copy"].tolist() == [number for number in range(11) for _ in range(N)]
    assert stata["record"].tolist() == 11 * list(range(1, N + 1))
    empty, filled = stata[stata["copy"] == 0], stata[stata["copy"] > 0].reset_index()
    assert empty[["odd", "rank", "pay", "born"]].isna().all(axis=None)
    assert filled["pay"].tolist() == typed["pay"].tolist()
    assert filled["rank"].isna().tolist() == typed["rank"].isna().tolist()
    spss = pd.read_spss(str(bundle / "data" / "wide_copies.sav"))
    assert spss["Imputation_"].tolist() == typed["copy"].tolist()
    assert "record" not in spss and "copy" not in spss
    assert spss["pay"].tolist() == typed["pay"].tolist()


def test_mi_estimate_gives_what_combine_does(bundle: Path) -> None:
    """Stata's documented formulas, recomputed from its file: [MI] mi estimate, large samples."""
    needed("pyreadstat")
    stata = pd.read_stata(bundle / "data" / "wide_copies.dta", convert_categoricals=False)

    def mean(records: pd.DataFrame) -> tuple[float, float]:
        return records["pay"].mean(), records["pay"].sem() ** 2

    fits = [mean(own) for number, own in stata.groupby("copy") if number]
    figures, within = np.array([q for q, _ in fits]), np.mean([u for _, u in fits])
    between = figures.var(ddof=1)
    increase = (1 + 1 / 10) * between / within
    freedom = 9 * (1 + 1 / increase) ** 2
    reach = t.ppf(0.975, freedom) * (within + 1.1 * between) ** 0.5
    (cell,) = open_release(bundle, product="wide").combine(mean).facts["cells"]
    assert cell["upper"] == pytest.approx(figures.mean() + reach, rel=1e-12)


@pytest.mark.parametrize("suffix", ["csv", "dta", "sav"])
def test_copies_are_read_alike_from_every_format(bundle: Path, tmp_path: Path, suffix: str) -> None:
    needed("pyreadstat")
    only = shutil.copytree(bundle, tmp_path / suffix)
    for path in only.glob("data/wide*"):
        if path.suffix != f".{suffix}":
            path.unlink()
    found = Release("", only, {}, "wide", None)
    expected = open_release(bundle, product="wide")
    for own, whole in ((found.microdata(), expected.microdata()),
                       (found.copies(), expected.copies())):  # fmt: skip
        assert len(own) == len(whole)
        assert own["odd"].astype(object).fillna("").tolist() == (
            whole["odd"].astype(object).fillna("").tolist()
        )  # fmt: skip
        assert own["pay"].tolist() == whole["pay"].tolist()
        assert own["odd"].cat.categories.tolist()[0] == "a, b"
    numbers = found.copies().iloc[:, -1].tolist()
    assert numbers == [number for number in range(1, 11) for _ in range(N)]


def test_copies_with_fewer_records_are_not_for_stata_and_spss(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    pq.write_table(source(), tmp_path / "source.parquet")
    for change in ("", "records: 100, "):
        path.write_text(CONFIG.replace("marginals, ", f"marginals, {change}"))
        plan = load(path).plan()
        (wide,) = (each for each in plan.products if each.name == "wide")
        kind = kind_of(wide)
        files = {form: [table.stem for table in kind.publication(wide).in_format(form)]
                 for form in ("csv", "dta", "sav")}  # fmt: skip
        assert "wide_copies" in files["csv"]
        assert all(("wide_copies" in files[form]) == (not change) for form in ("dta", "sav"))
        assert ("Stata and SPSS" in kind.words(wide, plan).item) == bool(change)


def test_a_column_may_have_the_name_of_a_key(tmp_path: Path) -> None:
    """In whatever case, since Stata and SPSS do not tell cases apart."""
    path = tmp_path / "release.yaml"
    pq.write_table(source(), tmp_path / "source.parquet")
    path.write_text(CONFIG.replace("born", "Record").replace("pay", "COPY"))
    (wide,) = (each for each in load(path).plan().products if each.name == "wide")
    for form, keys in (("csv", ["copy_"]), ("dta", ["record_", "copy_"]), ("sav", ["Imputation_"])):
        (table,) = (
            each for each in kind_of(wide).publication(wide).in_format(form)
            if each.stem == "wide_copies"
        )  # fmt: skip
        assert [field["name"] for field in table.fields][4:] == keys


def test_a_reprint_has_its_own_metadata_and_is_checked_against_them(bundle: Path) -> None:
    needed("pyreadstat")
    order = Override("publish.formats", ["sav"], "--set")
    made = reprint(bundle, [order]).bundle
    assert check_reprint(made)
    formats = {Path(path).suffix for path in distributions(made) if "people" in path}
    assert formats == {".sav"}
    assert (made / "sdmx" / "counts.csv").read_bytes() == (
        bundle / "sdmx" / "counts.csv"
    ).read_bytes()
    changed = made / "sdmx" / "counts.csv"
    changed.write_text(changed.read_text().replace(",0,", ",1,", 1))
    facts = read_json(made / "manifest.json")
    (made / "manifest.json").unlink()
    seal(made, {key: facts[key] for key in facts if key not in ("format", "files", "seal")})
    with pytest.raises(BundleVerificationError, match=r"sdmx/counts\.csv: not what follows"):
        check_reprint(made)


def test_refined_tables_can_be_files_of_stata(bundle: Path, tmp_path: Path) -> None:
    needed("pyreadstat")
    refine(bundle, tmp_path / "refined", Options(integers=True, products=("counts",), format="dta"))
    path = tmp_path / "refined" / "data" / "counts.dta"
    rows = [row for batch in read_batches(path, None) for row in batch.to_pylist()]
    assert sum(row["rounded"] for row in rows) == N
    assert {row["odd"] for row in rows} == {*ODD, "other", None}
