"""Copies combined in R and in Python agree: R's figures are kept, with its versions.

``peers/mitools.R`` made ``peers/mitools.json`` from ``peers/mitools_copies.csv``, by R's packages
mitools and survey; running it again needs R, and this test does not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from requirements import needed

from statpress.tasks.release.answers import Estimates
from statpress.tasks.release.opened import Release

if TYPE_CHECKING:
    import pandas as pd

pytestmark = pytest.mark.system
PEERS = Path(__file__).with_name("peers")
RECORD = json.loads((PEERS / "mitools.json").read_text(encoding="utf-8"))
FIELDS = [
    {"name": "y", "type": "integer"},
    {"name": "x", "type": "integer"},
    {"name": "place", "type": "string", "constraints": {"enum": ["a", "b", "c"]}},
]


@pytest.fixture
def release(tmp_path: Path) -> Release:
    """The copies as a bundle has them."""
    whole = (PEERS / "mitools_copies.csv").read_text(encoding="utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "people_copies.csv").write_text(whole, encoding="utf-8")
    first = [line.rpartition(",")[0] for line in whole.splitlines()[:121]]
    (tmp_path / "data" / "people.csv").write_text("\n".join(first) + "\n", encoding="utf-8")
    resources = [
        {"path": f"data/{stem}.csv", "format": "csv", "schema": {"fields": fields}}
        for stem, fields in (
            ("people", FIELDS),
            ("people_copies", [*FIELDS, {"name": "copy", "type": "integer"}]),
        )
    ]
    (tmp_path / "datapackage.json").write_text(json.dumps({"resources": resources}))
    stated = {"products": {"people": {"kind": "microdata", "n_records": 120}}}
    (tmp_path / "privacy.json").write_text(json.dumps(stated))
    return Release("here", tmp_path, {}, "people", None)


@pytest.fixture
def smf() -> Any:
    """The formulas of statsmodels, which the group ``system`` has."""
    return needed("statsmodels.formula.api")


def agree(made: Estimates, kept: str, tolerance: float) -> None:
    """Estimates, standard errors and intervals, by the names that R gives."""
    renamed = {"Intercept": "(Intercept)", "[T.": "", "]": ""}
    rows: dict[str, Any] = {}
    for cell in made.facts["cells"]:
        name = cell["values"]["term"]
        for ours, theirs in renamed.items():
            name = name.replace(ours, theirs)
        rows[":".join(sorted(name.split(":"), reverse=True))] = cell
    assert rows.keys() == RECORD[kept].keys()
    for name, figures in RECORD[kept].items():
        found = {figure: rows[name][figure] for figure in figures}
        assert found == pytest.approx(figures, rel=tolerance), name


def test_least_squares_agree(release: Release, smf: Any) -> None:
    formula = "y ~ x * place"
    agree(release.combine(lambda own: smf.ols(formula, own).fit()), "least squares", 1e-9)
    agree(release.on_copies.regress(formula, of="population"), "least squares", 1e-9)


def test_logistic_regressions_agree(release: Release, smf: Any) -> None:
    def fit(own: pd.DataFrame) -> Any:
        own = own.assign(high=(own["y"] > 8).astype(float))
        return smf.glm(
            "high ~ x + place", own, family=needed("statsmodels.api").families.Binomial()
        ).fit(tol=1e-14)

    agree(release.combine(fit), "logistic", 1e-8)


def test_means_agree_with_those_of_the_package_survey(release: Release) -> None:
    def mean(own: pd.DataFrame) -> tuple[dict[str, float], dict[str, float]]:
        return {"y": own["y"].mean()}, {"y": own["y"].sem() ** 2}

    agree(release.combine(mean), "survey mean", 1e-9)


def test_a_rule_without_the_spread_between_copies_is_seen(release: Release, smf: Any) -> None:
    made = release.combine(lambda own: smf.ols("y ~ x * place", own).fit())
    cells = [
        {**cell, "standard_error": 0.9 * cell["standard_error"]} for cell in made.facts["cells"]
    ]
    with pytest.raises(AssertionError):
        agree(Estimates({**made.facts, "cells": cells}), "least squares", 1e-9)
