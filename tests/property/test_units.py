"""Units of several records: the engine's table is the one that the definition gives."""

from __future__ import annotations

import collections
import csv
import hashlib
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.source.aggregates import Units, count, profile
from statpress.tasks.source.files import FileSource

CHECK = settings(
    max_examples=settings().max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
COLUMNS = (
    Categorical(name="unit", categories=("x", "y"), other=True, missing=True),
    Integer(name="age", lower=0, upper=3),
)
DOMAIN = Domain(COLUMNS, absent=True)
Record = tuple[str, str | None, int]
names = st.sampled_from(["a", "A", "b c", "ä|0", "007", "7", "|", "'"])
records = st.tuples(names, st.sampled_from(["x", "y", "z", None]), st.integers(0, 3))
sources = st.lists(records, min_size=1, max_size=40)


def definition(source: list[Record], c: int, key: str) -> dict[int, int]:
    """The table, record by record: the first c of a unit by hash, then padding."""
    hashed = collections.defaultdict(list)
    copies: collections.Counter[tuple[str, int]] = collections.Counter()
    for name, kind, age in source:
        cell = DOMAIN.cell_of({"unit": kind, "age": age})
        text = f"{key}|{cell}|{copies[name, cell]}|{name}"
        copies[name, cell] += 1
        hashed[name].append((hashlib.sha256(text.encode()).hexdigest(), cell))
    table: collections.Counter[int] = collections.Counter()
    for owned in hashed.values():
        kept = [cell for _, cell in sorted(owned)[:c]]
        table.update(kept)
        table[DOMAIN.n_cells - 1] += c - len(kept)
    return {cell: times for cell, times in sorted(table.items()) if times}


def counted(source: list[Record], c: int, key: str, form: str = "parquet") -> dict[int, int]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"records.{form}")
        # The domain has a column of its own that is named "unit"; the unit's is "who".
        columns = dict(zip(("who", "unit", "age"), zip(*source, strict=True), strict=True))
        if form == "parquet":
            kinds = (pa.string(), pa.string(), pa.int8())
            arrays = [pa.array(v, k) for v, k in zip(columns.values(), kinds, strict=True)]
            pq.write_table(pa.table(arrays, names=list(columns)), path)
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_MINIMAL)
                writer.writerow(columns)
                writer.writerows([["" if v is None else v for v in row] for row in source])
        where = FileSource(str(path), form)  # type: ignore[arg-type]
        units = Units("who", c)
        found = profile(where, DOMAIN, scratch=Path(directory), units=units)
        assert found.n_records == len(source)
        assert (found.n_units, found.n_unnamed) == (len(set(columns["who"])), 0)
        table = count(where, DOMAIN, scratch=Path(directory), units=units, key=key)
        assert table.n_records == c * found.n_units
        return dict(zip(table.cells.tolist(), table.counts.tolist(), strict=True))


@pytest.mark.parametrize("form", ["parquet", "csv"])
@CHECK
@given(source=sources, c=st.integers(1, 5), key=st.text("0123456789abcdef", max_size=9))
def test_the_query_is_the_definition(form: str, source: list[Record], c: int, key: str) -> None:
    assert counted(source, c, key, form) == definition(source, c, key)


@CHECK
@given(
    source=sources,
    new_name=st.none() | st.just("someone new"),
    others=st.lists(st.tuples(st.sampled_from(["x", None]), st.integers(0, 3)), min_size=1),
    c=st.integers(1, 4),
    order=st.randoms(use_true_random=False),
)
def test_a_replaced_unit_moves_its_records_and_no_others(
    source: list[Record],
    new_name: str | None,
    others: list[tuple[str | None, int]],
    c: int,
    order: random.Random,
) -> None:
    """For one key: counts fall by at most c in all and rise by as much, whoever comes instead."""
    gone = source[0][0]
    neighbour = [r for r in source if r[0] != gone] + [(new_name or gone, *o) for o in others]
    order.shuffle(neighbour)
    one, two = counted(source, c, "key"), counted(neighbour, c, "key")
    assert sum(one.values()) == sum(two.values())
    assert sum(max(one[cell] - two.get(cell, 0), 0) for cell in one) <= c


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint64(), pa.decimal128(19, 0)])
def test_units_may_be_whole_numbers_and_their_column_may_be_in_the_domain(
    tmp_path: Path, kind: pa.DataType
) -> None:
    path = tmp_path / "a.parquet"
    names = pa.array([1, 1, 1, 2]).cast(kind)
    pq.write_table(pa.table({"who": names, "age": [0, 0, 0, 9]}), path)
    who = Integer(name="who", lower=1, upper=2)
    domain = Domain((who, COLUMNS[1]), absent=True)
    source, units = FileSource(str(path), "parquet"), Units("who", 2)
    table = count(source, domain, scratch=tmp_path, units=units, key="k")
    assert table.cells.tolist() == [0, 7, 8]  # clamped to 3
    assert table.counts.tolist() == [2, 1, 1]
    text = tmp_path / "a.csv"
    text.write_text("who,age\n1,0\n1,0\n01,0\n2,9\n")  # names of a CSV are text
    table = count(FileSource(str(text), "csv"), domain, scratch=tmp_path, units=units, key="k")
    assert table.counts.tolist() == [3, 1, 2]


def choices(key: str, *, numbered: bool = True) -> int:
    """Of 4000 units with records in cells 0, 0, 0, 1 how many keep the last one, for c = 1."""
    if numbered:
        source = [(f"unit {i}", "x", int(j == 3)) for i in range(4000) for j in range(4)]
        return counted(source, 1, key)[1]
    # The broken twin leaves the number of the copy out of the hash: alike records are one.
    kept = 0
    for i in range(4000):
        texts = [f"{key}|{cell}|unit {i}" for cell in (0, 0, 0, 1)]
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        kept += digests[3] < digests[0]
    return kept


def test_the_choice_is_uniform() -> None:
    assert stats.binomtest(choices("one"), 4000, 0.25).pvalue > 1e-6
    assert stats.binomtest(choices("one", numbered=False), 4000, 0.25).pvalue < 1e-6


def test_another_key_is_another_independent_choice() -> None:
    source = [(f"unit {i}", "x", j) for i in range(1500) for j in range(2)]
    first, second = counted(source, 1, "one"), counted(source, 1, "two")
    assert first != second
    # Over keys: one unit with two records, each kept half of the time.
    both = [definition([("u", "x", 0), ("u", "x", 1)], 1, f"{i}").get(0, 0) for i in range(2000)]
    assert stats.binomtest(sum(both), 2000, 0.5).pvalue > 1e-6
