"""Whole functions, from the config to evaluating them out of the bundle with NumPy alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mechanisms.errors import StatpressError
from mechanisms.registry import REGISTRY
from tasks import evaluate
from tasks.entropy import SeededRandomness
from tasks.function_files import columns_of
from tasks.manifest import verify_bundle

PRODUCTS = """\
  age_density: {kind: function, target: kde, columns: [age], bandwidth: 0.1, normalise: true,
                degree: 16, order: 4, share: 0.4}
  age_pay: {kind: function, target: kde, columns: [age, pay], bandwidth: [0.2, 0.3],
            kernel: epanechnikov, degree: 6, order: 2, share: 0.2}
  pay_by_age: {kind: function, mechanism: bernstein, target: regression, columns: [age],
               response: pay, degree: 8, order: 2, monotone: increasing, share: 0.2}
  where: {kind: function, target: svm, columns: [age, pay], label: region, degree: 4, order: 2,
          share: 0.2}
"""
QUERY = """\
import json, sys
import numpy
from evaluate import load
f, g = load("data/age_density.json"), load("data/age_pay.json")
found = {"line": f([0, 33.3, 99]).tolist(), "plane": g([[50, 20], [99, 0.5]]).tolist()}
found["others"] = sorted({name.split(".")[0] for name in sys.modules} & %r)
print(json.dumps(found))
"""


@pytest.fixture
def publishing(agency: Any) -> Any:
    first, _, rest = agency.text.partition("  people:")
    agency.replace(agency.text, f"{first}{PRODUCTS}publish:{rest.partition('publish:')[2]}")
    return agency


def test_functions_are_released_and_evaluated_anywhere(publishing: Any) -> None:
    outcome = publishing.run()
    bundle = outcome.bundle
    verify_bundle(bundle)
    ours = {"mechanisms", "tasks", "configs", "flows", "scipy", "pyarrow"}
    alone = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.')\n{QUERY % ours}"],
        cwd=bundle, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(alone.stdout)
    assert found["others"] == []

    stated = json.loads((bundle / "privacy.json").read_text())["products"]
    for name in ("age_density", "age_pay", "pay_by_age", "where"):
        mechanism = REGISTRY["bernstein"].from_description(stated[name])
        assert mechanism.describe().items() <= stated[name].items()
        rows = pq.read_table(bundle / "data" / f"{name}.parquet").to_pylist()
        assert list(rows[0]) == list(columns_of(mechanism))
        assert len(rows) == (mechanism.degree + 1) ** len(mechanism.variables)
        facts = json.loads((bundle / "data" / f"{name}.json").read_text())
        assert facts["steps"] == [row["steps"] for row in rows]
        assert stated[name]["expected_error"]["sup_error"] > 0
        assert (bundle / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")

    line = evaluate.load(bundle / "data" / "age_density.json")
    assert found["line"] == line([0, 33.3, 99]).tolist()
    ages = np.linspace(0, 99, 1001)
    assert np.trapezoid(line(ages), ages) == pytest.approx(1)
    assert line(ages).min() >= 0
    curve = evaluate.load(bundle / "data" / "pay_by_age.json")
    assert np.diff(curve(ages)).min() >= 0
    assert "load(" in (bundle / "README.md").read_text()
