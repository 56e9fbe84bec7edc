"""The tables of a workload by names: of columns alike, and of households and persons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from households import CONFIG, loaded

from statpress.flows.cli.plan_command import plan_facts
from statpress.mechanisms.domain.columns import Column, Integer
from statpress.mechanisms.marginals.marginals import all_pairs
from statpress.mechanisms.marginals.workload import workload_parts, workload_words
from statpress.mechanisms.mechanism import shown
from statpress.tasks.products.product_kind import kind_of

HOUSEHOLD = {"of": "the household", "pairs_of": ["tenure", "n_persons"], "weight": 4.0}
BETWEEN = {
    "of": "the household and a person",
    "pairs_of": ["tenure", "n_persons"],
    "with": ["relation", "age"],
    "weight": 1.0,
}
PERSON = {"of": "a person", "pairs_of": ["relation", "age"], "weight": 4.0}
TWO = {"of": "two persons", "pairs_of": ["relation", "age"], "weight": 1.0}


def facts_of(folder: Path, groups: str = "") -> tuple[Any, Any]:
    """What the plan says of the linked product."""
    release = loaded(folder, CONFIG.replace("linked,", f"linked,{groups}"))
    return release, release.plan()


def test_pairs_of_linked_records_are_named_by_whose_columns_they_are(tmp_path: Path) -> None:
    release, plan = facts_of(tmp_path)
    stated = json.loads(json.dumps(plan_facts(release, plan, None)))["products"]["survey"]
    assert stated["workload"] == [HOUSEHOLD, BETWEEN, PERSON, TWO]
    assert stated["groups"].startswith("0+1:4.0 ")  # what is charged is in its own words
    (product,) = plan.products
    words = dict(shown(kind_of(product).parameters(product)))["tables of several columns"]
    assert words.split(";\n") == [
        "of the household: all pairs of tenure, n_persons, weight 4",
        "of the household and a person: all pairs of tenure, n_persons with relation, age",
        "of a person: all pairs of relation, age, weight 4",
        "of two persons: all pairs of relation, age",
    ]


def test_groups_are_named_once_if_every_place_has_them(tmp_path: Path) -> None:
    groups = (
        " groups: [{columns: [relation, tenure, age], weight: 2}, {columns: [age, relation],"
        " weight: 9}, {columns: [age_1, age_2, relation_2]}, {columns: [age_1, tenure],"
        " weight: 3}],"
    )
    release, plan = facts_of(tmp_path, groups)
    stated = plan_facts(release, plan, None)["products"]["survey"]["workload"]
    between = {"of": "the household and a person"}
    assert [part for part in stated if part not in (HOUSEHOLD, BETWEEN, TWO)] == [
        {**between, "columns": ["tenure", "relation", "age"], "weight": 2.0},
        {**between, "columns": ["tenure", "age_1"], "weight": 3.0},
        {**PERSON, "weight": 9.0},
        {"of": "two persons", "columns": ["age_1", "relation_2", "age_2"], "weight": 1.0},
    ]
    assert "of the household and a person: all other pairs of" in workload_words(stated)


@pytest.mark.parametrize(
    ("changed", "left_out", "words"),
    [
        ({}, [], "all pairs"),
        ({(0, 1): 2.0, (0, 1, 2): 3.0}, [],
         "a + b, weight 2;\na + b + c, weight 3;\nall other pairs"),
        ({(0, 2): 0.5}, [(0, 1)], "a + c, weight 0.5;\nb + c"),
    ],
)  # fmt: skip
def test_columns_of_one_table_are_named_too(
    changed: dict[Any, float], left_out: list[Any], words: str
) -> None:
    columns: list[Column] = [Integer(name=name, lower=0, upper=3) for name in "abc"]
    groups = {g: w for g, w in all_pairs(3) if g not in left_out} | changed
    assert workload_words(list(workload_parts(columns, sorted(groups.items())))) == words
