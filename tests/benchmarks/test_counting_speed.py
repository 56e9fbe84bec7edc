"""Counting against the bare GROUP BY of the engine, and the memory it takes.

Two baselines, both on the same file: (i) a GROUP BY of the four codes, stored as
small integers, which is the least that any count must do; (ii) hand-written SQL
that discretises with floor and CASE and groups by the state as it stands. Times
are of the wall clock and of all cores' work; the latter hardly depends on what
else the machine does. The full size runs with ``-m study``.

Columns of a million bins, equal and unequal, are counted against the same column in 20 bins.

The whole scan of a run, which makes the profile of every column too, is held to the count alone,
of CSV and Parquet.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from statpress.configs.formats import SourceFormat
from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.source.aggregates import count, profile
from statpress.tasks.source.engine import MEMORY_LIMIT
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.scanning import scan

ROOT = Path(__file__).parents[2]
RECORDS = "SELECT i, hash(i) h, hash(i * 3 + 1) k FROM range({n}) r(i)"
COLUMNS = """
    's' || lpad((h % 51)::VARCHAR, 2, '0') AS state,
    (hash(i + 1000000007) % 16)::SMALLINT AS educ,
    2 + 7.5 * ((k % 1000003) / 1000003.0)::DOUBLE AS income,
    (hash(i * 7 + 5) % 60)::INTEGER AS exper
"""
BARE_CODES = """
    CASE WHEN state IS NULL THEN 0 ELSE substr(state, 2)::INTEGER END::UTINYINT AS c_state,
    coalesce(educ, 0)::UTINYINT AS c_educ,
    CASE WHEN income IS NULL OR income < 4 THEN 0 WHEN income >= 9 THEN 19
         ELSE floor((income - 4) / 0.25) END::UTINYINT AS c_income,
    (least(coalesce(exper, 0), 49) // 5)::UTINYINT AS c_exper
"""
BARE_GROUP_BY = "SELECT c_state, c_educ, c_income, c_exper, count(*) FROM '{file}' GROUP BY ALL"
HAND_WRITTEN = """
    SELECT state, least(greatest(educ, 0), 15) AS e,
        CASE WHEN income IS NULL OR income < 4 THEN 0 WHEN income >= 9 THEN 19
             ELSE floor((income - 4) / 0.25) END::INTEGER AS i,
        least(greatest(exper, 0), 49) // 5 AS x, count(*)
    FROM '{file}' GROUP BY ALL
"""
DOMAIN = Domain(
    (
        Categorical(name="state", categories=tuple(f"s{i:02d}" for i in range(51))),
        Integer(name="educ", lower=0, upper=15),
        Numeric(name="income", edges=Numeric.uniform_edges(4, 9, 20)),
        Integer(name="exper", lower=0, upper=49, width=5),
    )
)
SIZES = [
    pytest.param(200_000, 0, id="200k"),
    pytest.param(20_000_000, 0, id="20M", marks=pytest.mark.study),
    pytest.param(20_000_000, 1000, id="20M-nulls", marks=pytest.mark.study),
]
COUNT_IN_A_FRESH_PROCESS = """
import resource, sys
from pathlib import Path
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.files import FileSource
from {module} import DOMAIN
table = count(FileSource(sys.argv[1], "parquet"), DOMAIN, scratch=Path(sys.argv[2]))
assert table.n_records == int(sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def write_records(path: Path, n: int, null_every: int) -> None:
    """Records in a Parquet file, each column with its code; one in so many is null."""
    names = ("state", "educ", "income", "exper")
    nulled = ", ".join(
        f"CASE WHEN hash(i * 13 + {j}) % {null_every or 1} = {0 if null_every else 1} "
        f"THEN NULL ELSE {name} END AS {name}"
        for j, name in enumerate(names)
    )
    with duckdb.connect(config={"preserve_insertion_order": False}) as engine:
        engine.execute(
            f"COPY (SELECT state, educ, income, exper, {BARE_CODES} FROM (SELECT {nulled} FROM "
            f"(SELECT i, {COLUMNS} FROM ({RECORDS.format(n=n)}))) ) TO '{path}' (FORMAT parquet)"
        )


def least_times(
    runs: dict[str, Callable[[], object]], rounds: int, most: float = 0.0
) -> dict[str, list[float]]:
    """For each run the least wall-clock and least processor seconds, taken in turns.

    No more turns are taken once the second run takes less than ``most`` times the first's work.
    """
    least = {name: [float("inf")] * 2 for name in runs}
    first, second, *_ = runs
    for turn in range(rounds):
        if turn and least[second][1] < most * least[first][1]:
            break
        for name, run in runs.items():
            wall, work = time.perf_counter(), time.process_time()
            run()
            spent = (time.perf_counter() - wall, time.process_time() - work)
            least[name] = [min(pair) for pair in zip(least[name], spent, strict=True)]
    return least


@pytest.mark.parametrize(("n", "null_every"), SIZES)
def test_count_speed(benchmark: BenchmarkFixture, tmp_path: Path, n: int, null_every: int) -> None:
    path = tmp_path / "records.parquet"
    write_records(path, n, null_every)
    source = FileSource(str(path), "parquet")
    engine = duckdb.connect(
        config={"memory_limit": f"{MEMORY_LIMIT}B", "preserve_insertion_order": False}
    )
    runs: dict[str, Callable[[], object]] = {
        "count": lambda: count(source, DOMAIN, scratch=tmp_path),
        "bare": lambda: engine.sql(BARE_GROUP_BY.format(file=path)).to_arrow_table(),
        "hand": lambda: engine.sql(HAND_WRITTEN.format(file=path)).to_arrow_table(),
    }
    counted = count(source, DOMAIN, scratch=tmp_path)
    cells = [row[4] for row in engine.sql(BARE_GROUP_BY.format(file=path)).fetchall()]
    assert sorted(cells) == sorted(counted.counts.tolist())
    times = least_times(runs, rounds=7 if n >= 20_000_000 else 1)
    for name, baseline in (("bare", "bare GROUP BY"), ("hand", "hand-written SQL")):
        wall, work = (a / b for a, b in zip(times["count"], times[name], strict=True))
        benchmark.extra_info[f"wall, count : {baseline}"] = round(wall, 2)
        benchmark.extra_info[f"work, count : {baseline}"] = round(work, 2)
    benchmark.extra_info["seconds"] = {name: round(t[0], 3) for name, t in times.items()}
    print(n, null_every, dict(benchmark.extra_info))
    benchmark.pedantic(runs["count"], rounds=1)
    if n >= 20_000_000:
        assert times["count"][1] < 2.6 * times["bare"][1]
        assert times["count"][1] < 1.3 * times["hand"][1]
        assert counted.n_records == n
        peak = peak_memory(path, tmp_path, n)
        benchmark.extra_info["peak memory, GB"] = peak
        print("peak memory of a fresh process, GB:", peak)
        assert peak < 0.6


MOST_OF_A_SCAN = 1.4
"""Work of one scan, over that of the count."""


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(1_000_000, id="1M"),
        pytest.param(10_000_000, id="10M", marks=pytest.mark.study),
    ],
)
@pytest.mark.parametrize("form", ["parquet", pytest.param("csv", marks=pytest.mark.nightly)])
def test_one_scan_costs_little_more_than_the_count(
    benchmark: BenchmarkFixture, tmp_path: Path, n: int, form: SourceFormat
) -> None:
    path = tmp_path / "records.parquet"
    write_records(path, n, 1000)
    if form == "csv":
        parquet, path = path, tmp_path / "records.csv"
        columns = ", ".join(DOMAIN.names)
        with duckdb.connect() as engine:
            engine.execute(f"COPY (SELECT {columns} FROM '{parquet}') TO '{path}' (HEADER)")
    source = FileSource(str(path), form)
    runs: dict[str, Callable[[], object]] = {
        "count": lambda: count(source, DOMAIN, scratch=tmp_path),
        "scan": lambda: scan(source, DOMAIN, [DOMAIN], scratch=tmp_path),
        "profile": lambda: profile(source, DOMAIN, scratch=tmp_path),
    }
    (table,) = scan(source, DOMAIN, [DOMAIN], scratch=tmp_path).tables()
    alone = count(source, DOMAIN, scratch=tmp_path)
    assert table.cells.tolist() == alone.cells.tolist()
    assert table.counts.tolist() == alone.counts.tolist()
    times = least_times(runs, rounds=8, most=MOST_OF_A_SCAN)
    wall, work = ({name: spent[i] for name, spent in times.items()} for i in (0, 1))
    one = work["scan"] / work["count"]
    two = (work["profile"] + work["count"]) / work["count"]
    benchmark.extra_info["work, one scan : count"] = round(one, 2)
    benchmark.extra_info["work, profile and count : count"] = round(two, 2)
    benchmark.extra_info["seconds"] = {name: round(spent, 3) for name, spent in wall.items()}
    print(form, n, dict(benchmark.extra_info))
    benchmark.pedantic(runs["scan"], rounds=1)
    assert one < MOST_OF_A_SCAN


def unequal_edges(bins: int) -> tuple[float, ...]:
    """Edges from 0 to 1 whose distances differ by factors of hundreds."""
    widths = np.random.default_rng(1).lognormal(sigma=1.0, size=bins)
    inner = np.cumsum(widths)[:-1] / widths.sum()
    return (0.0, *inner.tolist(), 1.0)


COUNT_FINE_IN_A_FRESH_PROCESS = """
import resource, sys
from pathlib import Path
import {module} as benchmark
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.files import FileSource
domain = benchmark.fine_domain(sys.argv[3], 1_000_000)
count(FileSource(sys.argv[1], "parquet"), domain, scratch=Path(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def fine_domain(edges: str, bins: int) -> Domain:
    """A column from 0 to 1 in so many ``equal`` or ``unequal`` bins."""
    uniform = edges == "equal"
    found = Numeric.uniform_edges(0, 1, bins) if uniform else unequal_edges(bins)
    return Domain((Numeric(name="x", edges=found),))


@pytest.mark.nightly
@pytest.mark.parametrize(("edges", "most"), [("equal", 3.5), ("unequal", 4.5)])
def test_a_million_bins_cost_little_more_than_twenty(
    benchmark: BenchmarkFixture, tmp_path: Path, edges: str, most: float
) -> None:
    """Of 10^6 records, whose count has 632,000 cells and not 20."""
    path = tmp_path / "records.parquet"
    with duckdb.connect() as engine:
        engine.execute(
            "COPY (SELECT (hash(i) % 9007199254740881) / 9007199254740881.0 AS x "
            f"FROM range(1000000) r(i)) TO '{path}' (FORMAT parquet)"
        )
        values = engine.sql(f"SELECT x FROM '{path}'").fetchnumpy()["x"]
    source = FileSource(str(path), "parquet")
    coarse, fine = fine_domain("equal", 20), fine_domain(edges, 1_000_000)
    table = count(source, fine, scratch=tmp_path)
    inner = np.asarray(fine.columns[0].edge_array)[1:-1]
    cells, counts = np.unique(np.searchsorted(inner, values, side="right"), return_counts=True)
    assert np.array_equal(table.cells, cells)
    assert np.array_equal(table.counts, counts)
    runs: dict[str, Callable[[], object]] = {
        "20": lambda: count(source, coarse, scratch=tmp_path),
        "million": lambda: count(source, fine, scratch=tmp_path),
    }
    times = least_times(runs, rounds=5, most=most)
    ratio = times["million"][1] / times["20"][1]
    peak = memory_of(COUNT_FINE_IN_A_FRESH_PROCESS, path, tmp_path, edges)
    benchmark.extra_info["work, a million bins : 20"] = round(ratio, 2)
    benchmark.extra_info["seconds"] = {name: round(spent[0], 3) for name, spent in times.items()}
    benchmark.extra_info["peak memory, GB"] = peak
    print(edges, dict(benchmark.extra_info))
    benchmark.pedantic(runs["million"], rounds=1)
    assert ratio < most
    assert peak < 1.0


def peak_memory(path: Path, scratch: Path, n: int) -> float:
    """Peak resident memory, in GB, of a fresh process that counts."""
    return memory_of(COUNT_IN_A_FRESH_PROCESS, path, scratch, str(n))


def memory_of(code: str, path: Path, scratch: Path, argument: str) -> float:
    """Peak resident memory, in GB, of a fresh process that runs some code."""
    run = subprocess.run(
        [sys.executable, "-c", code.format(module=Path(__file__).stem), path, scratch, argument],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(Path(__file__).parent)])},
        capture_output=True,
        text=True,
        check=True,
    )
    return round(int(run.stdout) / 1e6, 3)
