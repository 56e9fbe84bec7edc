"""Counting six columns of Parquet against DuckDB by itself, with the same discretisation.

The file is made in place, one row group after another, and deleted when its rows are counted. Both
sides have the same bound on memory and all cores; each is a process of its own that has counted a
thousand rows before. The ratio is of processor time, which other work on the machine hardly
changes; both clocks are in the table. After the count stands what a noisy table of three of its
columns takes, which must not depend on the rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.record.figure import Figure, taken

HERE = "tests.benchmarks.record.counting"
BASELINE = "bare DuckDB"
MOST = 1.3
COLUMNS = """
    (h % 51)::UTINYINT AS state, ((h >> 8) % 2)::UTINYINT AS sex,
    ((h >> 12) % 8)::UTINYINT AS educ, ((h >> 20) % 100)::UTINYINT AS age,
    ((h >> 30) % 10000)::USMALLINT AS income, ((h >> 46) % 100)::UTINYINT AS hours
"""
BARE = """
    SELECT state, sex, least(greatest(educ, 0), 7) AS e, least(greatest(age, 0), 99) // 10 AS a,
        CASE WHEN income >= 10000 THEN 19 ELSE floor(income / 500.0) END::UTINYINT AS i,
        least(greatest(hours, 0), 99) // 20 AS h, count(*) AS records
    FROM '{path}' GROUP BY ALL
"""


def suite(rows: Sequence[int], folder: Path, *, quick: bool) -> Iterator[Figure]:
    """A figure for counting, for the bare count and for the noisy table at each number of rows."""
    small = folder / "thousand.parquet"
    taken(f"{HERE}:make", here=quick, path=str(small), n=1000)
    for n in rows:
        path = folder / f"{n}.parquet"
        try:
            taken(f"{HERE}:make", here=quick, path=str(path), n=n)
            rounds = 3 if n < 10**9 else 1
            same: dict[str, Any] = {"path": str(path), "warm": str(small), "rounds": rounds}
            bare = taken(f"{HERE}:bare", here=quick, **same)
            ours = taken(f"{HERE}:ours", here=quick, **same)
        finally:
            path.unlink(missing_ok=True)
        if ours["cells"] != bare["cells"] or ours["records"] != n:
            raise RuntimeError("both sides must count the same")
        after = ours.pop("after")
        yield Figure("counting", f"{n:.0e} rows, bare", *_spent(bare), size=n)
        ratio = ours["cpu_seconds"] / bare["cpu_seconds"]
        yield Figure("counting", f"{n:.0e} rows", *_spent(ours), ratio, BASELINE, MOST, size=n)
        memory = after["seconds"], after["cpu_seconds"], ours["megabytes"]
        yield Figure("counting", f"{n:.0e} rows, noisy table after it", *memory, size=n)
    small.unlink()


def make(path: str, n: int) -> dict[str, Any]:
    """Write the rows."""
    import duckdb

    config = {"preserve_insertion_order": False, "memory_limit": "2GB"}
    with duckdb.connect(config=config) as engine:
        engine.execute(
            f"COPY (SELECT {COLUMNS} FROM (SELECT hash(i) AS h FROM range({n}) r(i))) "
            f"TO '{path}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 1000000)"
        )
    return {"bytes": os.path.getsize(path)}


def bare(path: str, warm: str, rounds: int) -> dict[str, Any]:
    """The least time of some counts by hand-written SQL."""
    import duckdb

    from statpress.tasks.source.engine import MEMORY_LIMIT

    config = {"preserve_insertion_order": False, "memory_limit": f"{MEMORY_LIMIT}B"}
    with duckdb.connect(config=config) as engine:

        def count(file: str) -> Any:
            return engine.sql(BARE.format(path=file)).to_arrow_table()

        spent, found = _least(count, path, warm, rounds)
        return {**spent, "cells": len(found)}


def ours(path: str, warm: str, rounds: int) -> dict[str, Any]:
    """The same by this project, and a noisy table of what was counted."""
    from randomgen import AESCounter

    from statpress.mechanisms.domain.columns import Integer, Numeric
    from statpress.mechanisms.domain.contingency_table import ContingencyTable
    from statpress.mechanisms.domain.domain import Domain
    from statpress.mechanisms.mechanism import Target
    from statpress.mechanisms.tables.perturbed import GaussianTable, PerturbedKnobs
    from statpress.tasks.release.entropy import SystemRandomness
    from statpress.tasks.source.aggregates import count
    from statpress.tasks.source.files import FileSource

    domain = Domain(
        (
            Integer(name="state", lower=0, upper=50),
            Integer(name="sex", lower=0, upper=1),
            Integer(name="educ", lower=0, upper=7),
            Integer(name="age", lower=0, upper=99, width=10),
            Numeric(name="income", edges=Numeric.uniform_edges(0, 10000, 20)),
            Integer(name="hours", lower=0, upper=99, width=20),
        )
    )
    scratch = Path(path).parent

    def counted(file: str) -> Any:
        return count(FileSource(file, "parquet"), domain, scratch=scratch)

    spent, table = _least(counted, path, warm, rounds)
    kept = Domain(domain.columns[:3])
    codes = {name: domain.codes(table.cells, name) for name in kept.names}
    cells, place = np.unique(kept.encode(codes), return_inverse=True)
    some = ContingencyTable(kept, cells, np.bincount(place, table.counts).astype(np.int64))
    frame = {"n_records": table.n_records, "n_cells": kept.n_cells}
    wall, work = time.perf_counter(), time.process_time()
    made = GaussianTable.calibrate(PerturbedKnobs(), Target(epsilon=1.0, delta=1e-6, **frame))
    made.postprocess(made.release(some, SystemRandomness(AESCounter())), n_records=table.n_records)
    after = {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - work,
    }
    return {**spent, "cells": len(table.cells), "records": table.n_records, "after": after}


def _least(
    count: Callable[[str], Any], path: str, warm: str, rounds: int
) -> tuple[dict[str, float], Any]:
    """Least seconds, and the last result, once a small file was counted."""
    count(warm)
    best, found = [float("inf")] * 2, None
    for _ in range(rounds):
        found = None
        wall, work = time.perf_counter(), time.process_time()
        found = count(path)
        spent = time.perf_counter() - wall, time.process_time() - work
        best = [min(pair) for pair in zip(best, spent, strict=True)]
    return {"seconds": best[0], "cpu_seconds": best[1]}, found


def fitted(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Seconds at 0, seconds a row, and the largest deviation from that line over what was taken.

    By least squares of relative errors, so that the small sizes count as much as the large.
    """
    x, y = np.asarray(sizes, float), np.asarray(seconds, float)
    design = np.stack([1 / y, x / y], axis=1)
    (start, slope), *_ = np.linalg.lstsq(design, np.ones(len(y)), rcond=None)
    return float(start), float(slope), float(np.abs((start + slope * x) / y - 1).max())


def _spent(found: dict[str, Any]) -> tuple[float, float, float]:
    return found["seconds"], found["cpu_seconds"], found["megabytes"]
