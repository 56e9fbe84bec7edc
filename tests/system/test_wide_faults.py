"""A product with more cells than a joint table can have, through the whole flow and its faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY, RARE, N
from leaks import Search
from people import count_persons, put_people

from statpress.mechanisms import errors
from statpress.tasks.bundle.manifest import verify_bundle

pytestmark = pytest.mark.system

TOYS = Path(__file__).parents[1] / "flow" / "toys"
SUPPORT = Path(__file__).parents[1] / "support"
PATH = (str(TOYS), str(SUPPORT), os.environ.get("PYTHONPATH"))
WIDE = ["age", "region", "pay", "born", *(f"w{i}" for i in range(20))]
PRODUCTS = f"""\
products:
  ages: {{kind: table, mechanism: laplace, columns: [age], share: 0.3}}
  upper: {{kind: wide_half, columns: [{", ".join(WIDE)}], share: 0.7}}
publish: {{directory: releases, plots: false, formats: [parquet]}}
"""
FAULTS = ("full disk", "terminated", "killed", "killed drawing", "none")


def widened(agency: Any) -> Any:
    """An agency with twenty more columns, over a thousand million million million cells."""
    table = pq.read_table(agency.source)
    for i in range(20):
        table = table.append_column(f"w{i}", [np.arange(N) % (5 + i)])
    agency.write_source(table)
    columns = "".join(f"  w{i}: {{type: integer, lower: 0, upper: {4 + i}}}\n" for i in range(20))
    agency.text = agency.text.split("products:")[0] + columns + PRODUCTS
    agency.config.write_text(agency.text)
    return agency


@dataclass
class Runs:
    """Agencies, and how their runs ended."""

    wide: Any
    ended: dict[str, dict[str, Any]]
    persons: dict[str, Any]


@pytest.fixture(scope="module")
def runs(founded: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All runs, forks of one process: of records, with each fault, and of persons without."""
    wide = widened(founded(tmp_path_factory.mktemp("wide")))
    persons = widened(founded(tmp_path_factory.mktemp("persons")))
    count_persons(persons)
    put_people(persons)
    places = [[str(each.config), str(each.home.root)] for each in (wide, persons)]
    done = subprocess.run(
        [sys.executable, str(TOYS / "wide_faults.py"), *places[0], *FAULTS, "--", *places[1],
         "none"],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, PATH))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *ended, last = json.loads(done.stdout)
    return Runs(wide, dict(zip(FAULTS, ended, strict=True)), last)


def test_faults_leave_neither_codes_nor_a_charge(runs: Runs) -> None:
    wide, ended = runs.wide, runs.ended
    assert ended["full disk"]["code"] == errors.OutputNotWritableError.exit_code, ended
    assert "coded columns cannot be written (File too large)" in ended["full disk"]["said"]
    assert "Nothing was charged" in ended["full disk"]["said"]
    assert ended["terminated"]["code"] == 130
    assert ended["full disk"]["left"] == ended["terminated"]["left"] == []
    for fault in ("killed", "killed drawing"):
        assert ended[fault]["code"] == -9
        # Its own only: what the run before left is gone.
        assert sum(path.endswith(".codes") for path in ended[fault]["left"]) == len(WIDE)
        assert ended[fault]["modes"] == ["0o100600", "0o40700"]
    assert "which was killed" in ended["killed drawing"]["said"]
    assert (ended["none"]["code"], ended["none"]["left"]) == (0, []), ended
    kinds = [entry.kind for entry in wide.entries()[1:]]
    looks = ["look"] * 4  # of the first three faults nothing else
    assert kinds == [*looks, "charge", "draw", "look", "charge", "draw", "publish"]
    private = Search((CANARY, "48151623"), (RARE,))
    assert not any(private.in_text(each["said"]) for each in ended.values())
    assert private.in_files(wide.folder, but=(wide.source, wide.home.root / "curator")) == []


def test_units_of_several_records(runs: Runs) -> None:
    ended = runs.persons
    assert ended["code"] == 0, ended
    bundle = Path(ended["said"].split("PUBLISHED ")[1].splitlines()[0])
    verify_bundle(bundle)
    stated = json.loads((bundle / "privacy.json").read_text())["products"]["upper"]
    assert int(stated["n_cells"]) > 2**63
    (row,) = pq.read_table(bundle / "data" / "upper.parquet").to_pylist()
    assert 0 < row["share"] < 1
