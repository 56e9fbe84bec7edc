"""Tables of coded columns, in memory and on disk, and what is refused before anything is read."""

from __future__ import annotations

import itertools
import logging
import math
import os
import pickle
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input import CANARY
from coded import CodesInMemory
from small_files import small_files

from statpress.mechanisms.domain import contingency_table
from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.contingency_table import (
    ContingencyTable,
    Counted,
    PackedCodes,
    SelectedColumns,
    check_groups,
    smallest_unsigned,
)
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain, ZeroPattern
from statpress.mechanisms.errors import (
    DomainTooLargeError,
    EmptySourceError,
    InternalError,
    OutputNotWritableError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.source import scanning
from statpress.tasks.source.aggregates import Units
from statpress.tasks.source.files import FileSource, open_source
from statpress.tasks.source.scanning import SpilledColumns, spill

SIZES = (3, 300, 2, 5, 70_000, 4)
N = 5_000


def domain_of(*sizes: int, **declared: Any) -> Domain:
    columns = (Integer(name=f"c{i}", lower=0, upper=size - 1) for i, size in enumerate(sizes))
    return Domain(tuple(columns), **declared)


@pytest.fixture(scope="module")
def codes() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, size, N) // (1 + i % 2) for i, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def source(codes: list[np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> FileSource:
    path = tmp_path_factory.mktemp("source") / "a.parquet"
    columns = {f"c{i}": each for i, each in enumerate(codes)} | {"who": np.arange(N) // 5}
    pq.write_table(pa.table(columns), path)
    return FileSource(str(path), "parquet")


def in_memory(codes: list[np.ndarray]) -> CodesInMemory:
    columns = (c.astype(smallest_unsigned(size)) for c, size in zip(codes, SIZES, strict=True))
    return CodesInMemory(domain_of(*SIZES), N, tuple(columns))


def brute_force(codes: list[np.ndarray], group: tuple[int, ...]) -> np.ndarray:
    table = np.zeros([SIZES[column] for column in group], dtype=np.int64)
    np.add.at(table, tuple(codes[column] for column in group), 1)
    return table


GROUPS = [
    *itertools.combinations((0, 1, 2, 3, 5), 2), (4,), (4, 2), (5, 0), (0,), (3, 5, 2), (2, 3, 5),
    (0, 5),
]  # fmt: skip


@pytest.mark.parametrize("chunks", [1, 7])
def test_tables_are_those_of_the_records(
    codes: list[np.ndarray], source: FileSource, tmp_path: Path, monkeypatch: Any, chunks: int
) -> None:
    monkeypatch.setattr(scanning, "CHUNK", N // chunks + 1)
    on_disk = spill(source, domain_of(*SIZES), n_records=N, folder=tmp_path)
    assert on_disk.n_records == N
    for columns in (on_disk, in_memory(codes)):
        tables = columns.tables(GROUPS)
        for group, table in zip(GROUPS, tables, strict=True):
            assert table.dtype == np.int64 and table.flags.writeable
            assert np.array_equal(table, brute_force(codes, group)), group
        tables[-1][:] = -1  # the caller's own, and no other's
        assert min(tables[GROUPS.index(group)].min() for group in ((0, 5), (5, 0))) == 0
    some = SelectedColumns(on_disk, ("c5", "c0"))
    assert (some.n_records, some.domain.names) == (N, ("c5", "c0"))
    assert np.array_equal(some.tables([(1, 0)])[0], brute_force(codes, (0, 5)))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "codes").iterdir()}
    assert sizes == {f"{i}.codes": N * (1, 2, 1, 1, 4, 1)[i] for i in range(6)}


@pytest.mark.parametrize(
    ("most", "tables"), [(1, 780), (512, 300), (contingency_table._SHARED, 155)]
)
def test_pairs_are_counted_many_at_a_time(most: int, tables: int) -> None:
    pairs = list(itertools.combinations(range(40), 2))
    shared = dict(contingency_table._shared([8] * 40, pairs, most))
    assert sum(map(len, shared.values())) == len(pairs)
    assert all(group <= set(columns) for columns, groups in shared.items() for group in groups)
    assert len(shared) <= tables
    assert max(math.prod(8 for _ in columns) for columns in shared) <= max(most, 64)


def test_memory_is_declared_ahead(tmp_path: Path) -> None:
    wide = domain_of(40_000, 30_000, 10)
    check_groups(wide, [(0,), (1, 2), (0, 2)])
    with pytest.raises(DomainTooLargeError, match="c0 40,000, c1 30,000") as caught:
        check_groups(wide, [(2,), (0, 1)])
    assert "1,200,000,000 cells" in str(caught.value) and caught.value.where == "c0"
    long, most = domain_of(10_000, *[1_000] * 5), [(0, column) for column in range(1, 6)]
    check_groups(long, most)  # 50,000,000 cells
    with pytest.raises(DomainTooLargeError, match="The 6 tables to measure have 50,001,000 cells"):
        check_groups(long, [*most, (1,)])
    for group in ((), (0, 0), (3,), (-1,)):
        with pytest.raises(ValueError, match="distinct positions"):
            check_groups(wide, [group])
    # Nothing was read: there is not even a file.
    nowhere = SpilledColumns(wide, tmp_path / "nowhere", N, 0)
    with pytest.raises(DomainTooLargeError):
        nowhere.tables([(0, 1)])
    with pytest.raises(DomainTooLargeError):
        CodesInMemory(wide, N, ()).tables([(0, 1)])


@pytest.mark.parametrize(
    "sizes", [(4,), (3, 7, 2), (2**31, 2**31), (10,) * 40, (2**54, 2, 3), (5, 2**54, 2**53, 2, 9)]
)
def test_packed_codes(sizes: tuple[int, ...]) -> None:
    domain = domain_of(*(min(size, 2**53) for size in sizes))
    sizes = tuple(column.size for column in domain.columns)
    packed = PackedCodes.of(domain)
    assert [column for word in packed.words for column in word] == list(range(len(sizes)))
    for index, word in enumerate(packed.words):
        assert packed.cells(index) == math.prod(sizes[column] for column in word) <= MAX_CELLS
    if domain.n_cells <= MAX_CELLS:
        assert len(packed.words) == 1 and packed.strides == domain.strides
    last = [np.array([0, packed.cells(word) - 1]) for word in range(len(packed.words))]
    for codes, size in zip(packed.unpack(last), sizes, strict=True):
        assert codes.tolist() == [0, size - 1]
        assert codes.dtype == smallest_unsigned(size)


def test_nothing_private_is_shown_or_carried_off(codes: list[np.ndarray], tmp_path: Path) -> None:
    memory = in_memory(codes)
    disk = SpilledColumns(memory.domain, tmp_path, N, 17)
    assert repr(memory) == "CodesInMemory(c0, c1, c2, c3, c4, c5)"
    assert repr(disk) == "SpilledColumns(c0, c1, c2, c3, c4, c5)"
    assert repr(SelectedColumns(disk, ("c1",))) == "SelectedColumns(c1)"
    assert repr(Counted((), disk)) == "Counted()"
    for each in (memory, disk, SelectedColumns(disk, ("c1",)), Counted((), memory)):
        with pytest.raises(TypeError, match="never pickled"):
            pickle.dumps(each)


def test_each_product_finds_what_was_counted_for_it() -> None:
    domain = domain_of(3, 2, 4, absent=True)
    table = ContingencyTable(domain, np.array([1, 7, 24]), np.array([5, 2, 3]))
    other = table.marginal(["c2"])
    coded = CodesInMemory.of(table)
    assert coded.n_records == 10 and [len(column) for column in coded.columns] == [7] * 3
    counted = Counted((other, table), coded)
    assert counted.marginal(["c2"]) is other
    pair = counted.marginal(["c2", "c0"])
    shown = np.zeros((4, 3), dtype=np.int64)
    np.add.at(shown, (pair.without_absent().cells // 3, pair.without_absent().cells % 3),
              pair.without_absent().counts)  # fmt: skip
    assert np.array_equal(counted.columns(["c2", "c0"]).tables([(0, 1)])[0], shown)
    for lookup in (counted.marginal, Counted((other,)).columns, counted.columns):
        with pytest.raises(LookupError):
            lookup(["c2", "elsewhere"])


def test_files_are_for_their_owner_only(source: FileSource, tmp_path: Path) -> None:
    spill(source, domain_of(*SIZES), n_records=N, folder=tmp_path)
    folder = tmp_path / "codes"
    assert oct(folder.stat().st_mode) == "0o40700"
    assert {oct(path.stat().st_mode) for path in folder.iterdir()} == {"0o100600"}


def refused(kind: type[StatpressError], source: FileSource, folder: Path, **declared: Any) -> str:
    """What is said; the error is of that kind, carries nothing along, and no file is left."""
    arguments = {"n_records": N, "domain": domain_of(*SIZES)} | declared
    with pytest.raises(kind) as caught:
        spill(source, folder=folder, **arguments)
    error = caught.value
    assert type(error) is kind and error.__context__ is None and error.__cause__ is None
    assert list(folder.iterdir()) == []
    said = "".join(traceback.format_exception(error)) + repr(vars(error))
    assert CANARY not in said
    return said


def test_a_full_disk(source: FileSource, tmp_path: Path) -> None:
    with small_files(8):
        said = refused(OutputNotWritableError, source, tmp_path)
    assert "File too large" in said and "Nothing was charged" in said
    # Known beforehand, from public sizes alone: there is no such source.
    nowhere = FileSource(str(tmp_path / "nowhere.parquet"), "parquet")
    said = refused(OutputNotWritableError, nowhere, tmp_path, n_records=2**60)
    assert "No space left on device" in said


def test_a_source_that_breaks_off(tmp_path: Path) -> None:
    columns = {f"c{i}": np.zeros(N, dtype=np.int64) for i in range(6)}
    rows = pa.table(columns | {"noise": [CANARY] * N})
    path, folder = tmp_path / "a.parquet", tmp_path / "work"
    folder.mkdir()
    pq.write_table(rows, path, compression="none", use_dictionary=False, row_group_size=500)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 20_000] = b"\xff" * 20_000
    path.write_bytes(content)
    refused(SourceUnreadableError, FileSource(str(path), "parquet"), folder)
    pq.write_table(rows.slice(0, 0), path)
    refused(EmptySourceError, FileSource(str(path), "parquet"), folder)


def test_a_record_in_a_structural_zero_is_counted_elsewhere(
    source: FileSource, tmp_path: Path
) -> None:
    zero = ZeroPattern((("c0", ((2, 2),)), ("c2", ((0, 0),))))
    domain = domain_of(*SIZES, zeros=(zero,))
    (table,) = spill(source, domain, n_records=N, folder=tmp_path).tables([(0, 2)])
    (tmp_path / "b").mkdir()
    (as_it_is,) = spill(source, domain_of(*SIZES), n_records=N, folder=tmp_path / "b").tables(
        [(0, 2)]
    )
    place = (2, 0)
    moved = as_it_is[place]
    assert table[place] == 0 < moved and table.sum() == as_it_is.sum() == N
    assert np.abs(table - as_it_is).sum() == 2 * moved


def test_units_are_padded_by_number(source: FileSource, tmp_path: Path) -> None:
    domain, units = domain_of(*SIZES, absent=True), Units("who", 7)
    on_disk = spill(source, domain, n_records=7_000, folder=tmp_path, units=units, key="k")
    assert (on_disk.n_present, on_disk.n_absent, on_disk.n_records) == (N, 2_000, 7_000)
    assert on_disk.tables([(0, 3)])[0].sum() == N
    with pytest.raises(ValueError, match="absent cell"):
        spill(source, domain_of(*SIZES), n_records=N, folder=tmp_path / "b", units=units)


def test_a_file_that_was_cut_off_is_noticed(source: FileSource, tmp_path: Path) -> None:
    on_disk = spill(source, domain_of(*SIZES), n_records=N, folder=tmp_path)
    os.truncate(tmp_path / "codes" / "1.codes", 2 * N - 2)
    assert on_disk.tables([(0,)])[0].sum() == N
    with pytest.raises(OSError, match="shorter"):
        on_disk.tables([(0, 1)])


def test_the_engine_shows_no_progress(source: FileSource, tmp_path: Path) -> None:
    with open_source(source, scratch=tmp_path) as opened:
        shown = opened.table.get_backend().raw_sql("SELECT current_setting('enable_progress_bar')")
        assert shown.fetchall() == [(False,)]


def test_what_the_engine_says_is_heard_by_the_curator_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, folder = tmp_path / "a.parquet", tmp_path / "work"
    folder.mkdir()
    pq.write_table(pa.table({"x": [CANARY]}), path)

    class Broken(Domain):
        def made_possible(self, codes: Any) -> Any:
            raise IndexError

    domain = Broken((Categorical(name="x", categories=("a",), other=True),))
    with caplog.at_level(logging.DEBUG):
        refused(InternalError, FileSource(str(path), "parquet"), folder, domain=domain)
    assert CANARY not in caplog.text
