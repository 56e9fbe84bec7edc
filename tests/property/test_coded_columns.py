"""Tables from coded columns are the marginals of the joint table, bit for bit."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from generated_sources import read, tables, text_tables, write_lines
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import (
    MOST_TABLE_CELLS,
    ContingencyTable,
    PackedCodes,
)
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain, ZeroPattern
from statpress.tasks.source.aggregates import Units, count
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.scanning import SpilledColumns, spill

CHECK = settings(
    max_examples=settings().max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
UNIT = "the unit"


def marginals(table: ContingencyTable, groups: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Of the present records, as arrays."""
    present, domain, found = table.without_absent(), table.domain, []
    for group in groups:
        columns = [domain.columns[column] for column in group]
        shown = np.zeros([column.size for column in columns], dtype=np.int64)
        codes = tuple(domain.codes(present.cells, column.name) for column in columns)
        np.add.at(shown, codes, present.counts)
        found.append(shown)
    return found


def small_groups(domain: Domain) -> list[tuple[int, ...]]:
    """All groups of columns whose tables are small."""
    sizes = [column.size for column in domain.columns]
    orders = range(1, len(sizes) + 1)
    groups = itertools.chain.from_iterable(
        itertools.permutations(range(len(sizes)), k) for k in orders
    )
    return [g for g in groups if np.prod([float(sizes[c]) for c in g]) <= MOST_TABLE_CELLS / 1000]


def split(domain: Domain) -> PackedCodes:
    """Codes packed as those of a wide domain, a word for each column or two."""
    columns = range(len(domain.columns))
    words = tuple(columns[i : i + 2] for i in columns[::2])
    sizes = tuple(column.size for column in domain.columns)
    packed = PackedCodes(words, sizes)
    if all(packed.cells(word) < 2**63 for word in range(len(words))):
        return packed
    return PackedCodes(tuple(columns[i : i + 1] for i in columns), sizes)


def codes_of(spilled: SpilledColumns) -> list[tuple[int, ...]]:
    """The codes of all present records, in order."""
    every = range(len(spilled.domain.columns))
    chunks = list(spilled._chunks(every))
    return sorted(
        tuple(int(chunk[column][i]) for column in every)
        for chunk in chunks
        for i in range(len(chunk[0]))
    )


def agree(
    domain: Domain, records: list[dict[str, object]], source: FileSource, folder: Path
) -> None:
    """Codes are the definition's; tables are the joint table's, where there is one."""
    (folder / "work").mkdir()
    n = len(records)
    spilled = spill(source, domain, n_records=n, folder=folder / "work")
    assert (spilled.n_present, spilled.n_absent) == (n, 0)
    defined = [[c.code_of(record[c.name]) for c in domain.columns] for record in records]
    assert codes_of(spilled) == sorted(map(tuple, defined))
    if domain.n_cells <= MAX_CELLS:
        joint = count(source, domain, scratch=folder)
        groups = small_groups(domain)
        for one, two in zip(spilled.tables(groups), marginals(joint, groups), strict=True):
            assert np.array_equal(one, two)
        with pytest.MonkeyPatch.context() as wide:  # the same in several words
            (folder / "wide").mkdir()
            wide.setattr(PackedCodes, "of", split)
            again = spill(source, domain, n_records=n, folder=folder / "wide")
            assert codes_of(again) == codes_of(spilled)


@CHECK
@given(tables())
def test_parquet(case: tuple[Domain, pa.Table]) -> None:
    domain, table = case
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        pq.write_table(table, path)
        records = [{k: read(v) for k, v in row.items()} for row in table.to_pylist()]
        agree(domain, records, FileSource(str(path), "parquet"), Path(directory))


@CHECK
@given(text_tables())
def test_csv(case: tuple[Domain, list[dict[str, str]], list[dict[str, object]]]) -> None:
    domain, lines, values = case
    with tempfile.TemporaryDirectory() as directory:
        path = write_lines(Path(directory), domain, lines)
        agree(domain, values, FileSource(str(path), "csv"), Path(directory))


@CHECK
@given(
    case=tables(),
    units=st.lists(st.integers(0, 9), min_size=40, max_size=40),
    c=st.integers(1, 5),
    key=st.text("0123456789abcdef", max_size=5),
    data=st.data(),
)
def test_units_and_zeros(
    case: tuple[Domain, pa.Table], units: list[int], c: int, key: str, data: st.DataObject
) -> None:
    """The records that are kept are those of the joint table, and so is the padding."""
    domain, table = case
    assume(domain.n_cells < MAX_CELLS)
    assume(UNIT not in table.column_names)
    records = [{k: read(v) for k, v in row.items()} for row in table.to_pylist()]
    free = [
        code
        for code in range(min(domain.columns[0].size, 50))
        if all(domain.columns[0].code_of(record[domain.names[0]]) != code for record in records)
    ]
    zeros = ()
    if free:  # a zero in which no record lies
        code = data.draw(st.sampled_from(free))
        zeros = (ZeroPattern(((domain.names[0], ((code, code),)),)),)
    padded = replace(domain, zeros=zeros, absent=True)
    groups = small_groups(domain)
    owned = table.append_column(UNIT, [units[: len(table)]])
    n = c * len(set(units[: len(table)]))
    with tempfile.TemporaryDirectory() as directory:
        folder, path = Path(directory), Path(directory, "records.parquet")
        pq.write_table(owned, path)
        source, unit = FileSource(str(path), "parquet"), Units(UNIT, c)
        joint = count(source, padded, scratch=folder, units=unit, key=key)
        spilled = spill(source, padded, n_records=n, folder=folder, units=unit, key=key)
        assert spilled.n_records == joint.n_records == n
        assert spilled.n_absent == n - joint.without_absent().n_records
        for one, two in zip(spilled.tables(groups), marginals(joint, groups), strict=True):
            assert np.array_equal(one, two)


def test_the_choice_in_several_words_is_uniform_and_by_the_records_alone(tmp_path: Path) -> None:
    """Units whose records differ in codes that lie in different words."""
    n_units = 3000
    columns = {f"c{i}": np.zeros(4 * n_units, dtype=np.int64) for i in range(40)}
    for i in range(4):  # of each unit, two records are alike
        columns["c0"][i::4], columns["c39"][i::4] = (0, 0, 1, 0)[i], (0, 0, 0, 1)[i]
    columns["who"] = np.repeat(np.arange(n_units), 4)
    domain = Domain(tuple(Integer(name=f"c{i}", lower=0, upper=6) for i in range(40)), absent=True)
    assert len(PackedCodes.of(domain).words) > 1
    order = np.random.default_rng(5).permutation(4 * n_units)
    found = []
    for turn, rows in enumerate((np.arange(4 * n_units), order)):
        path, folder = tmp_path / f"{turn}.parquet", tmp_path / f"{turn}"
        folder.mkdir()
        pq.write_table(pa.table({name: each[rows] for name, each in columns.items()}), path)
        source, units = FileSource(str(path), "parquet"), Units("who", 1)
        spilled = spill(source, domain, n_records=n_units, folder=folder, units=units, key="k")
        found.append(spilled.tables([(0, 39)])[0])
    assert np.array_equal(found[0], found[1])
    kept = found[0][0, 0], found[0][1, 0], found[0][0, 1]
    assert sum(kept) == n_units
    assert stats.chisquare(kept, [n_units / 2, n_units / 4, n_units / 4]).pvalue > 1e-6
