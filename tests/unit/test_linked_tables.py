"""The section ``tables``: what it comes to, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from households import CONFIG, TABLES, config_in, loaded, made_up, write

from statpress.configs.loading import load_order
from statpress.configs.order import Order
from statpress.configs.sources import SparkSourceConfig
from statpress.configs.tables import KEY_TWICE, NO_KEY, ORPHANS, PERSON_TWICE, key_faults
from statpress.mechanisms.domain.columns import Integer, Numeric, Slot
from statpress.mechanisms.errors import ColumnTypeError, ConfigError
from statpress.tasks.source import linked
from statpress.tasks.source.aggregates import source_of


def test_a_household_has_a_column_for_each_place(tmp_path: Path) -> None:
    domain = loaded(tmp_path).domain
    slots = [f"{name}_{place}" for place in (1, 2, 3) for name in ("relation", "age")]
    assert list(domain.names) == ["tenure", "n_persons", *slots]
    assert isinstance(domain["age_2"], Slot) and domain["age_2"].absent_code == 92
    assert [column.name for column in domain.declared] == ["tenure", "n_persons", "relation", "age"]


@pytest.mark.parametrize(
    ("old", "new", "words", "place"),
    [
        ("unit: household", "unit: record", "'unit: household'", ""),
        ("tables:", "source: {path: a.parquet}\ntables:", "leave out 'source'", ""),
        ("    of: households\n", "", "no 'of'", "tables.persons"),
        ("    at_most: 3\n", "", "'at_most'", "tables.persons"),
        ("order: [relation, -age]", "order: [relation, -ages]", "'ages'", "tables.persons"),
        ("      tenure:", "      age:", "a column of both tables", ""),
        ("[own, rent]", "[own, rent, 4]", "mix text", "tables.households.domain.tenure"),
        ("reference, spouse, child]", "reference, absent]", "'absent'", ""),
        ("relation: spouse}", "relation: lodger}", "lodger", "rules.1"),
        ("relation: spouse}", "tenure: own}", "Persons have no column 'tenure'", "rules.1"),
        ("of: age", "of: relation", "not a column of persons with numbers", "rules.2"),
        ("at_most: 1, where", "at_most: 1, first", "must have at_most and where", "rules.1"),
        (
            "- {at_most: 1, where: {relation: spouse}}",
            "- {at_most: 0, where: {relation: reference}}",
            "leave no household with a person",
            "rules",
        ),
        ("[tenure, relation, age]", "[tenure]", "no column of persons", "products.survey"),
        ("kind: linked", "kind: microdata", "which only products of kind 'linked'", "survey"),
        ("persons.parquet", "s3://bucket/persons.parquet", "files on this machine", "tables"),
    ],
)
def test_what_is_refused_is_named(
    tmp_path: Path, old: str, new: str, words: str, place: str
) -> None:
    assert old in CONFIG
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, CONFIG.replace(old, new))
    found = [caught.value, *caught.value.also]
    assert any(words in str(each) and place in each.where for each in found), found


@pytest.mark.parametrize(
    ("households", "persons", "words"),
    [
        ("{engine: spark, table: h}", "{path: persons.parquet}", "both read by Spark"),
        (
            "{engine: spark, table: h, remote: 'sc://one:1'}",
            "{engine: spark, table: p, remote: 'sc://two:1'}",
            "the same master and remote",
        ),
        (
            "{engine: postgres, table: public.h, credentials: {env: ONE}}",
            "{engine: postgres, table: public.p, credentials: {env: TWO}}",
            "the same credentials",
        ),
    ],
)
def test_both_tables_are_read_in_one_place(
    households: str, persons: str, words: str, tmp_path: Path
) -> None:
    text = CONFIG.replace("{path: households.parquet}", households)
    with pytest.raises(ConfigError, match=words):
        loaded(tmp_path, text.replace("{path: persons.parquet}", persons))


def test_a_config_without_tables_has_no_linked_products(tmp_path: Path) -> None:
    text = CONFIG.replace(
        TABLES, "source: {path: a.parquet}\ndomain:\n  age: {type: integer, lower: 0, upper: 9}\n"
    ).replace("unit: household", "unit: record")
    rules = text[text.index("rules:") : text.index("products:")]
    text = text.replace(rules, "").replace("[tenure, relation, age]", "[age]")
    with pytest.raises(ConfigError, match="no 'tables'"):
        loaded(tmp_path, text)


def test_rules_are_patterns_over_places(tmp_path: Path) -> None:
    domain = loaded(tmp_path).domain
    codes = {name: np.zeros(5, np.int64) for name in domain.names}
    # Reference, spouse and child of 40, 38 and 5 years; then what breaks each rule.
    rows = [
        [0, 40, 1, 38, 2, 5],
        [1, 40, 0, 38, 2, 5],  # the reference person is in the second place
        [0, 40, 1, 38, 1, 35],  # two spouses
        [0, 40, 1, 38, 2, 29],  # a child 11 years younger
        [0, 40, 1, 38, 2, 28],  # one of 12
    ]
    slots = [name for name in domain.names if isinstance(domain[name], Slot)]
    for name, values in zip(slots, zip(*rows, strict=True), strict=True):
        codes[name] = np.array(values)
    broken = domain.impossible(codes)
    assert broken.tolist() == [False, True, True, True, False]
    moved = domain.made_possible(codes)
    assert moved["n_persons"].tolist() == [0] * 5
    assert moved["age_1"].tolist() == [40, 92, 92, 92, 40]


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="age", lower=0, upper=29, width=5),
        Numeric(name="age", edges=tuple(map(float, range(0, 35, 5)))),
    ],
)
def test_wide_cells_are_impossible_only_whatever_they_hold(column: Any) -> None:
    from statpress.configs.tables import _nearer

    near = {older[0][0]: younger[0][0] for older, younger in _nearer(column, 12)}
    # Of 15 to 19 years and 5 to 9 at most 14 are between, of 10 to 14 at most 9.
    assert near[3] == 2
    assert column.n_bins - 1 not in near


def faults(folder: Path) -> dict[str, int]:
    return linked.key_faults(source_of(loaded(folder)), folder)


def test_faults_of_keys_are_counted_by_households(tmp_path: Path) -> None:
    households, persons = made_up(40)
    write(tmp_path, households, persons)
    nothing = {KEY_TWICE: 0, NO_KEY: 0, PERSON_TWICE: 0, ORPHANS: 0}
    assert faults(tmp_path) == nothing
    twice = [*households, *[households[3]] * 4, {"hid": None, "tenure": "own"}]
    lost = [{**persons[0], "hid": hid} for hid in (None, None, 90, 90, 91)]
    same = [{**persons[5], "age": 3}, {**persons[5], "age": 3}]
    write(tmp_path, twice, [*persons, *same])
    assert faults(tmp_path) == nothing | {KEY_TWICE: 1, NO_KEY: 1, PERSON_TWICE: 1}
    numbered = [{**each, "pid": 100 + i} for i, each in enumerate(lost)]
    write(tmp_path, households, [*persons, *numbered])
    assert faults(tmp_path) == nothing | {ORPHANS: 3}


def test_dropped_persons_are_not_asked_for(tmp_path: Path) -> None:
    text = CONFIG.replace("    at_most: 3\n", "    at_most: 3\n    orphans: drop\n")
    config = loaded(tmp_path, text).config
    assert ORPHANS in key_faults(loaded(tmp_path).config.linked)
    assert ORPHANS not in key_faults(config.linked)


def test_noisy_checks_count_the_faults_of_keys(tmp_path: Path) -> None:
    text = CONFIG + "gate: {noise: true, share: 0.1}\n"
    knobs = loaded(tmp_path, text).gate.knobs
    # Tenure and relations have a cell for other values, and ages one for nulls: of tenure and the
    # three relations missing and unreadable are limited, of ages unreadable ones, and of the size
    # both; then the rules and four faults.
    assert knobs.counts == 2 * 4 + 3 + 2 + 1 + 4
    assert knobs.moved == knobs.counts


def test_keys_of_two_types_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write(tmp_path, *made_up(5))
    path = tmp_path / "households.parquet"
    table = pq.read_table(path)
    pq.write_table(table.set_column(0, "hid", table["hid"].cast(pa.string())), path)
    with pytest.raises(ColumnTypeError, match="whole numbers in both"):
        faults(tmp_path)


SERIES = "series: {name: hh, period: {by: month, first: 2026-01}}\n"


def test_a_series_names_a_period_in_both_tables(tmp_path: Path) -> None:
    """Else every period would release the same people, charged as if they were others."""
    fixed = CONFIG.replace("tables:", f"{SERIES}tables:")
    for marked in (fixed, fixed.replace("persons.parquet", "'persons-{period}.parquet'")):
        with pytest.raises(ConfigError, match="every period would release the same records"):
            loaded(tmp_path, marked)
    text = marked.replace("households.parquet", "'households-{period}.parquet'")
    for period in ("2026-01", "2026-02"):
        release = load_order(Order(config_in(tmp_path, text)).at_period(period))
        assert release.config.source.files == (
            f"households-{period}.parquet",
            f"persons-{period}.parquet",
        )
        assert release.period_text == period


@pytest.mark.parametrize("private", ["households", "persons"])
def test_no_private_table_is_published_as_a_public_file(tmp_path: Path, private: str) -> None:
    (tmp_path / f"{private}.csv").write_text("region,place\nN,h1\nN,h2\n")
    text = CONFIG.replace(f"{private}.parquet", f"{private}.csv").replace(
        "privacy:",
        "geography:\n  tenure: {levels: [region, place], file: " + private + ".csv}\nprivacy:",
    )
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    found = [caught.value, *caught.value.also]
    assert any("is the private source" in str(each) for each in found), found


def test_files_of_spark_are_files_of_this_machine() -> None:
    source = SparkSourceConfig(engine="spark", path="file:///data/people.csv", master="local[1]")
    assert source.files == ("/data/people.csv",)
    assert SparkSourceConfig(engine="spark", path="s3a://b/people.csv").files == ()
