"""A bundle in text, and its refined tables computed by hand."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

from statpress.tasks.bundle.manifest import seal
from statpress.tasks.release.refine import Options, refine

SEX = {"kind": "categorical", "name": "sex", "missing": False, "categories": ["f", "m"],
       "other": False}  # fmt: skip
AREA = {"kind": "integer", "name": "area", "missing": False, "lower": 1, "upper": 2, "width": 1}
FIGURES = ("raw", "estimate", "standard_error", "projected")
TABLES = {
    "sexes": ([SEX], "sex,raw\nf,8\nm,4\n"),
    "cells": ([SEX, AREA], "sex,area,raw\nf,1,3\nf,2,2\nm,1,1\nm,2,2\n"),
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Two tables of ten records with Gaussian noise of variance 1, as CSV."""
    folder = tmp_path / "bundle"
    (folder / "data").mkdir(parents=True)
    products, resources = {}, []
    for name, (columns, text) in TABLES.items():
        (folder / "data" / f"{name}.csv").write_text(text)
        fields: list[dict[str, Any]] = [{"name": c["name"], "declared": c} for c in columns]
        fields += [{"name": figure} for figure in FIGURES]
        path = f"data/{name}.csv"
        resources.append({"path": path, "format": "csv", "schema": {"fields": fields}})
        products[name] = {
            "mechanism": "gaussian",
            "scale": "1",
            "n_cells": str(2 ** len(columns)),
            "n_records": 10,
            "unit_records": 1,
            "columns": [c["name"] for c in columns],
        }
    frame = {"adjacency": "replace_one", "n_records": 10, "unit_records": 1}
    statement = frame | {"products": products}
    (folder / "privacy.json").write_text(json.dumps(statement))
    (folder / "datapackage.json").write_text(json.dumps({"resources": resources}))
    (folder / "config.yaml").write_text("")
    facts = {"dataset": "d", "title": "t", "run_id": "r", "created": "c", "publishable": True,
             "config_sha256": hashlib.sha256(b"").hexdigest(), "versions": {},
             "ledger_entry": {"sequence": 1, "hash": "h"},
             "overrides": [], "supersedes": None, "reprint_of": None}  # fmt: skip
    seal(folder, facts)
    return folder


def test_two_tables_by_hand(bundle: Path, tmp_path: Path) -> None:
    # The sexes say (8, 4), the cells (5, 3). Centred: (2, -2) with variance 1/2 and (1, -1)
    # with variance 1, so 5/3 with variance 1/3; and the total is 10. Each cell takes half
    # of what its sex gains, 5/6, and half its error; what areas and the interaction
    # add to its variance, 1/4 each, stays.
    refine(bundle, tmp_path / "new", Options(consistent=True, integers=True, format="csv"))
    sexes = pyarrow.csv.read_csv(tmp_path / "new" / "data" / "sexes.csv").to_pydict()
    assert sexes["estimate"] == pytest.approx([20 / 3, 10 / 3])
    assert sexes["standard_error"] == pytest.approx([(1 / 3) ** 0.5] * 2)
    assert sexes["rounded"] == [7, 3]
    cells = pyarrow.csv.read_csv(tmp_path / "new" / "data" / "cells.csv").to_pydict()
    assert cells["sex"] == ["f", "f", "m", "m"]
    assert cells["area"] == [1, 2, 1, 2]
    assert cells["estimate"] == pytest.approx([23 / 6, 17 / 6, 7 / 6, 13 / 6])
    assert cells["standard_error"] == pytest.approx([(7 / 12) ** 0.5] * 4)
    assert cells["projected"] == pytest.approx(cells["estimate"])
    assert cells["rounded"] == [4, 3, 1, 2]


def test_without_options_only_the_total_is_met(bundle: Path, tmp_path: Path) -> None:
    refine(bundle, tmp_path / "new", Options(format="csv", products=("sexes",)))
    text = (tmp_path / "new" / "data" / "sexes.csv").read_text()
    assert text == (
        '"sex","raw","estimate","standard_error","projected"\n"f",8,8,1,7\n"m",4,4,1,3\n'
    )
