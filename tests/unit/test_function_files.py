"""The files of a function: the release gate sees a table and an evaluator that disagree."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.functions.bernstein import FUNCTION, FunctionRelease
from statpress.mechanisms.functions.function_targets import FunctionKnobs
from statpress.mechanisms.mechanism import Target
from statpress.tasks.products.function_product import FunctionProduct
from statpress.tasks.products.publication import Publication
from statpress.tasks.release.entropy import SeededRandomness

DOMAIN = Domain(tuple(Numeric(name=c, edges=(0.0, 0.1, 0.7)) for c in "xy"))
PUBLISH: Any = SimpleNamespace(formats=["parquet", "csv"], plots=False)


def written(folder: Path) -> Publication:
    (folder / "data").mkdir()
    asked = Target(epsilon=1.0, delta=0.0, n_records=90, n_cells=4, domain=DOMAIN)
    knobs = FunctionKnobs(target="kde", degree=3, order=2)
    mechanism = FunctionRelease.calibrate(knobs, asked)
    request = SimpleNamespace(knobs=knobs)
    product = SimpleNamespace(
        name="f", kind=FUNCTION, mechanism=mechanism, domain=DOMAIN, request=request
    )
    table = ContingencyTable(DOMAIN, np.array([0, 2]), np.array([50, 40]))
    drawn = mechanism.release(table, SeededRandomness(np.random.PCG64(1)))
    kind = FunctionProduct()
    mechanism.rehearse(DOMAIN)
    derived = kind.postprocess(product, drawn, 90)
    publication = kind.publication(product, derived)
    publication.write(folder, PUBLISH, lambda rows: None)
    return publication


def test_what_was_written_is_whole(tmp_path: Path) -> None:
    publication = written(tmp_path)
    profiles, rows = publication.profile(tmp_path, PUBLISH)
    assert rows == {"f.parquet": 16, "f.csv": 16}
    clean = {"rows": 16, "schema": 0, "values off": 0}
    assert profiles == {"f.parquet": clean, "f.csv": clean}
    paths = [each["path"] for each in publication.resources(PUBLISH)]
    assert sorted(paths) == sorted(
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")
    )


@pytest.mark.parametrize("change", [{"factor": 2.0}, {"floor": 1e6}, {"degree": 3}])
def test_an_evaluator_that_gives_something_else_is_seen(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    publication = written(tmp_path)
    path = tmp_path / "data" / "f.json"
    facts = json.loads(path.read_text()) | change
    if "degree" in change:
        facts["coefficients"][0] += 0.5
    path.write_text(json.dumps(facts))
    for found in publication.profile(tmp_path, PUBLISH)[0].values():
        assert found["values off"] > 0
