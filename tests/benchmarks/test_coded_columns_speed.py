"""Coded columns: writing them once, and all pairs of 40 columns from there.

Two baselines of the same run: (i) the engine reads the source's columns and adds up their
codes without keeping anything, which is the least that any reading must do; (ii) one
``numpy.bincount`` for each pair on codes in memory. Times are of the wall clock; the full size
(10^7 records) runs with ``-m study``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Numeric, Ordinal
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.source import discretise
from statpress.tasks.source.files import FileSource, open_source
from statpress.tasks.source.scanning import SpilledColumns, spill
from tests.benchmarks.timing import in_a_fresh_process, least

SIZES = [4 + 5 * j % 9 for j in range(40)]
PAIRS = list(itertools.combinations(range(40), 2))
SEED, CLASSES = 20_000, 8
MILLION = 1_000_000
COUNTED = [
    pytest.param(MILLION // 8, id="125k", marks=pytest.mark.nightly),
    pytest.param(10 * MILLION, id="10M", marks=pytest.mark.study),
]
IN_A_FRESH_PROCESS = """
import resource, sys
from pathlib import Path
from tests.benchmarks.test_coded_columns_speed import DOMAIN, PAIRS, FileSource, spill
n = int(sys.argv[3])
codes = spill(FileSource(sys.argv[1], "parquet"), DOMAIN, n_records=n, folder=Path(sys.argv[2]))
assert all(table.sum() == n for table in codes.tables(PAIRS))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def column(j: int) -> Column:
    """Four kinds of columns in turn."""
    name, size = f"c{j}", SIZES[j]
    kinds: tuple[Callable[[], Column], ...] = (
        lambda: Ordinal(name=name, categories=tuple(range(size))),
        lambda: Categorical(name=name, categories=tuple(f"v{i}" for i in range(size)), other=True),
        lambda: Numeric(name=name, edges=tuple(float(i) for i in range(size + 1))),
        lambda: Integer(name=name, lower=0, upper=size - 1, missing=True),
    )
    return kinds[j % 4]()


DOMAIN = Domain(tuple(map(column, range(40))))


def values(j: int, codes: np.ndarray, rng: np.random.Generator) -> Any:
    """Values of a column that have these codes, some of them null where that has a code."""
    if j % 4 == 0:
        return codes.astype(np.int16)
    if j % 4 == 1:
        return pa.array([f"v{i}" for i in range(max(SIZES))]).take(pa.array(codes))
    if j % 4 == 2:
        return codes + rng.random(len(codes))
    return pa.array(codes.astype(np.int32), mask=rng.random(len(codes)) < 0.01)


def write_records(path: Path, n: int) -> None:
    """A mixture of latent classes with a chain of strong neighbours, a million at a time."""
    rng, writer = np.random.default_rng(SEED), None
    for start in range(0, n, MILLION):
        size = min(MILLION, n - start)
        latent, before = rng.integers(0, CLASSES, size), np.zeros(size, dtype=np.int64)
        columns: dict[str, Any] = {}
        for j, cells in enumerate(SIZES):
            own = (rng.geometric(0.2 + 0.05 * ((latent * 7 + j) % CLASSES)) + latent) % cells
            before = np.where(rng.random(size) < 0.5, before % cells, own)
            columns[f"c{j}"] = values(j, before, rng)
        batch = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, batch.schema)
        writer.write_table(batch)
    assert writer is not None
    writer.close()


def read_only(source: FileSource, scratch: Path) -> None:
    """The engine's work without the keeping: every code is read and added up."""
    with open_source(source, scratch=scratch) as opened:
        packed = discretise.packed_table(DOMAIN, opened.table)
        packed.aggregate(**{name: packed[name].max() for name in packed.columns}).to_pyarrow()


def pair_by_pair(codes: list[np.ndarray]) -> list[np.ndarray]:
    """The baseline: each pair by itself."""
    sizes = [column.size for column in DOMAIN.columns]
    return [
        np.bincount(
            codes[a].astype(np.int64) * sizes[b] + codes[b], minlength=sizes[a] * sizes[b]
        ).reshape(sizes[a], sizes[b])
        for a, b in PAIRS
    ]


@pytest.mark.parametrize("n", COUNTED)
def test_coded_columns_speed(tmp_path: Path, n: int) -> None:
    path, works = tmp_path / "records.parquet", [tmp_path / f"{i}" for i in range(3)]
    for work in works:
        work.mkdir()
    write_records(path, n)
    source, free = FileSource(str(path), "parquet"), iter(works)
    read_only(source, tmp_path)  # whatever is slow once
    written: list[SpilledColumns] = []
    writing, reading = least(
        lambda: written.append(spill(source, DOMAIN, n_records=n, folder=next(free))),
        lambda: read_only(source, tmp_path),
        rounds=2,
    )
    spilled, work, some = written[0], works[0], min(n, MILLION)
    codes = [np.fromfile(work / "codes" / f"{j}.codes", np.uint8, some) for j in range(40)]
    all_pairs, one_by_one = least(lambda: spilled.tables(PAIRS), lambda: pair_by_pair(codes))
    if n == some:
        both = zip(spilled.tables(PAIRS), pair_by_pair(codes), strict=True)
        assert all(np.array_equal(*two) for two in both)
    print(n, writing, reading, all_pairs, one_by_one)
    assert writing.wall < 4 * reading.wall
    assert all_pairs.wall < 0.6 * one_by_one.wall * n / some
    if n > MILLION:
        assert int(in_a_fresh_process(IN_A_FRESH_PROCESS, path, works[2], n)) < 1e6  # kilobytes
