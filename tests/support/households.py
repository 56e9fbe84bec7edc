"""Small tables of households and persons, their config, and their records one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from statpress.configs.loading import load

Row = Mapping[str, Any]

TABLES = """\
tables:
  households:
    source: {path: households.parquet}
    key: hid
    domain:
      tenure: {type: categorical, categories: [own, rent], other: true}
  persons:
    source: {path: persons.parquet}
    key: pid
    of: households
    by: hid
    at_most: 3
    order: [relation, -age]
    domain:
      relation: {type: categorical, categories: [reference, spouse, child], other: true}
      age: {type: integer, lower: 0, upper: 90, missing: true}
"""
CONFIG = f"""\
title: Households
dataset: testdata
{TABLES}\
privacy: {{adjacency: replace_one, unit: household, n_records: 400}}
budget: {{epsilon: 3, delta: 1e-6}}
rules:
  - {{first: {{relation: reference}}}}
  - {{at_most: 1, where: {{relation: spouse}}}}
  - {{gap: 12, of: age, younger: {{relation: child}}, older: {{relation: reference}}}}
products:
  survey:
    {{kind: linked, columns: [tenure, relation, age], accept: [mostly_noise, mostly_independent]}}
publish: {{directory: releases}}
"""
RELATIONS = ("reference", "spouse", "child")


def write(folder: Path, households: Sequence[Row], persons: Sequence[Row]) -> None:
    """The two files of the config."""
    own = pa.schema([("hid", pa.int64()), ("tenure", pa.string())])
    theirs = pa.schema(
        [("pid", pa.int64()), ("hid", pa.int64()), ("relation", pa.string()), ("age", pa.int64())]
    )
    pq.write_table(pa.Table.from_pylist(list(households), own), folder / "households.parquet")
    pq.write_table(pa.Table.from_pylist(list(persons), theirs), folder / "persons.parquet")


def made_up(n: int) -> tuple[list[Row], list[Row]]:
    """So many households of 0 to 5 persons, which keep the rules of the config."""
    households, persons = [], []
    for hid in range(n):
        size = (hid * 7 + hid // 5) % 6
        households.append({"hid": hid, "tenure": ("own", "rent")[(hid // 2 + size) % 2]})
        for place in range(size):
            age = 30 + hid * 13 % 50 if place < 2 else (hid * 5 + place * 3) % 18
            relation = RELATIONS[min(place, 2)]
            persons.append({"pid": place, "hid": hid, "relation": relation, "age": age})
    return households, persons


def config_in(folder: Path, text: str = CONFIG) -> Path:
    """The config as a file."""
    path = folder / "linked.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def record_of(household: Row, persons: Sequence[Row], places: int = 3) -> tuple[Any, ...]:
    """The household's record by its definition: tenure, size, and relation and age of each place.

    Values are those that have a cell of their own: undeclared text counts as ``other``.
    """

    def relation(row: Row) -> int:
        return RELATIONS.index(row["relation"]) if row["relation"] in RELATIONS else 3

    def age(row: Row) -> int:
        return 91 if row["age"] is None else min(max(row["age"], 0), 90)

    ordered = sorted(persons, key=lambda row: (relation(row), -age(row)))[:places]
    slots = [(relation(row), age(row)) for row in ordered]
    slots += [(4, 92)] * (places - len(slots))
    tenure = {"own": 0, "rent": 1}.get(household["tenure"], 2)
    return (tenure, len(ordered), *(code for slot in slots for code in slot))


def loaded(folder: Path, text: str = CONFIG) -> Any:
    """The release of the config in a folder."""
    return load(config_in(folder, text))
