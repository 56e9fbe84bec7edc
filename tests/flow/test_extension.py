"""A mechanism and a kind of product that are registered from outside are pressed like our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

DRIVER = Path(__file__).parent / "toys" / "run.py"
PRODUCTS = """\
products:
  ages: {kind: table, mechanism: coarse_laplace, columns: [age], share: 0.3}
  best: {kind: table, mechanism: auto, columns: [region], share: 0.3}
  upper: {kind: half, columns: [age], share: 0.4}
publish:"""


@pytest.fixture
def toyed(agency: Any) -> Any:
    before, rest = agency.text.split("products:")
    agency.text = before + PRODUCTS + rest.split("publish:")[1]
    agency.config.write_text(agency.text)

    def call(*arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(DRIVER), *arguments, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(DRIVER.parent)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    agency.call = call
    return agency


def test_a_release_with_a_mechanism_and_a_kind_from_outside(toyed: Any) -> None:
    home = ("--home", str(toyed.home.root))
    planned = toyed.call("plan", str(toyed.config), *home)["products"]
    assert planned["upper"]["kind"] == "half" and planned["upper"]["mechanism"] == "noisy_half"
    assert "coarse_laplace" in json.dumps(planned["ages"])
    outcome = toyed.call("run", str(toyed.config), "--no-orchestrator", *home)
    bundle = Path(outcome["bundle"])
    (row,) = pq.read_table(bundle / "data" / "upper.parquet").to_pylist()
    assert 0 <= row["share"] <= 1
    assert "share of records in the upper cells" in (bundle / "README.md").read_text()
    assert "see the file" in (bundle / "report.html").read_text()
    assert "raw" in pq.read_table(bundle / "data" / "ages.parquet").column_names
    toyed.call("verify", str(bundle), *home)
    toyed.call("ledger", "verify", *home)
    toyed.call("refine", str(bundle), "--output", str(toyed.folder / "refined"), "--consistent")
    refined = json.loads((toyed.folder / "refined" / "refinement.json").read_text())
    assert set(refined["products"]) == {"ages", "best"}
    assert refined["without_counts"] == ["upper"]


def test_a_name_is_taken_once() -> None:
    from mechanisms.planning.registry import REGISTRY, register
    from tasks.products.registry import KINDS
    from tasks.products.registry import register as register_kind

    with pytest.raises(ValueError, match="already"):
        register(REGISTRY["laplace"])
    with pytest.raises(ValueError, match="already"):
        register_kind(KINDS["table"])
