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

from pathlib import Path

import duckdb
import numpy as np
import pytest

from statpress.configs.formats import SourceFormat
from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.engine import MEMORY_LIMIT
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.scanning import scan
from tests.benchmarks.timing import in_a_fresh_process, least

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
COUNT_IN_A_FRESH_PROCESS = """
import resource, sys
from pathlib import Path
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.files import FileSource
from tests.benchmarks.test_counting_speed import DOMAIN
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


@pytest.mark.study
@pytest.mark.parametrize("null_every", [0, 1000])
@pytest.mark.parametrize("n", [20_000_000])
def test_count_speed(tmp_path: Path, n: int, null_every: int) -> None:
    path = tmp_path / "records.parquet"
    write_records(path, n, null_every)
    source = FileSource(str(path), "parquet")
    engine = duckdb.connect(
        config={"memory_limit": f"{MEMORY_LIMIT}B", "preserve_insertion_order": False}
    )
    counted = count(source, DOMAIN, scratch=tmp_path)
    cells = [row[4] for row in engine.sql(BARE_GROUP_BY.format(file=path)).fetchall()]
    assert sorted(cells) == sorted(counted.counts.tolist())
    assert counted.n_records == n
    ours, bare, hand = least(
        lambda: count(source, DOMAIN, scratch=tmp_path),
        lambda: engine.sql(BARE_GROUP_BY.format(file=path)).to_arrow_table(),
        lambda: engine.sql(HAND_WRITTEN.format(file=path)).to_arrow_table(),
        rounds=7,
    )
    print(f"{n:,} records: {ours}, bare GROUP BY {bare}, hand-written SQL {hand}")
    assert ours.work < 2.6 * bare.work
    assert ours.work < 1.3 * hand.work
    assert peak_gigabytes(COUNT_IN_A_FRESH_PROCESS, path, tmp_path, n) < 0.6


MOST_OF_A_SCAN = 1.4
"""Work of one scan, over that of the count."""


@pytest.mark.parametrize(
    ("form", "n"),
    [
        pytest.param("parquet", 1_000_000, marks=pytest.mark.system),
        pytest.param("csv", 1_000_000, marks=pytest.mark.nightly),
        pytest.param("parquet", 10_000_000, marks=pytest.mark.study),
        pytest.param("csv", 10_000_000, marks=pytest.mark.study),
    ],
)
def test_one_scan_costs_little_more_than_the_count(
    tmp_path: Path, form: SourceFormat, n: int
) -> None:
    path = tmp_path / "records.parquet"
    write_records(path, n, 1000)
    if form == "csv":
        parquet, path = path, tmp_path / "records.csv"
        columns = ", ".join(DOMAIN.names)
        with duckdb.connect() as engine:
            engine.execute(f"COPY (SELECT {columns} FROM '{parquet}') TO '{path}' (HEADER)")
    source = FileSource(str(path), form)
    (table,) = scan(source, DOMAIN, [DOMAIN], scratch=tmp_path).tables()
    alone = count(source, DOMAIN, scratch=tmp_path)
    assert table.cells.tolist() == alone.cells.tolist()
    assert table.counts.tolist() == alone.counts.tolist()
    one, counted = least(
        lambda: scan(source, DOMAIN, [DOMAIN], scratch=tmp_path),
        lambda: count(source, DOMAIN, scratch=tmp_path),
        rounds=8,
        most=MOST_OF_A_SCAN,
    )
    print(f"{form}, {n:,} records: scan {one}, count {counted}")
    assert one.work < MOST_OF_A_SCAN * counted.work


def unequal_edges(bins: int) -> tuple[float, ...]:
    """Edges from 0 to 1 whose distances differ by factors of hundreds."""
    widths = np.random.default_rng(1).lognormal(sigma=1.0, size=bins)
    inner = np.cumsum(widths)[:-1] / widths.sum()
    return (0.0, *inner.tolist(), 1.0)


COUNT_FINE_IN_A_FRESH_PROCESS = """
import resource, sys
from pathlib import Path
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.files import FileSource
from tests.benchmarks.test_counting_speed import fine_domain
domain = fine_domain(sys.argv[3], 1_000_000)
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
    tmp_path: Path, edges: str, most: float
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
    million, twenty = least(
        lambda: count(source, fine, scratch=tmp_path),
        lambda: count(source, coarse, scratch=tmp_path),
        rounds=5,
        most=most,
    )
    print(f"{edges}: {million}, 20 bins {twenty}")
    assert million.work < most * twenty.work
    assert peak_gigabytes(COUNT_FINE_IN_A_FRESH_PROCESS, path, tmp_path, edges) < 1.0


def peak_gigabytes(code: str, *arguments: object) -> float:
    """Peak resident memory of a fresh process that runs some code and prints its kilobytes."""
    return int(in_a_fresh_process(code, *arguments)) / 1e6
