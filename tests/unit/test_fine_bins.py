"""What finds one of very many bins: formulas of edges, runs of buckets; and a falling root."""

from __future__ import annotations

import math
import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statpress.mechanisms.domain.columns import Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.tables.expected import falling_root
from statpress.tasks.source import duckdb
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.bins import BinFinder, EdgeFormula, bucket_runs
from statpress.tasks.source.discretise import guessing_scale
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.scanning import scan, scan_wide


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(0, 1), (0.1, 0.9), (-1, 1), (-0.1, 0.3), (4, 9), (1e6, 1e6 + 1), (-3, 1e9)],
)
@pytest.mark.parametrize("bins", [65, 1000, 99_999])
def test_a_formula_gives_every_equal_edge(lower: float, upper: float, bins: int) -> None:
    edges = np.array(Numeric.uniform_edges(lower, upper, bins))
    formula = EdgeFormula.of(edges)
    assert formula is not None
    found = formula.at(np.arange(bins + 1.0))
    for at, edge in formula.patches:
        found[at] = edge
    assert np.array_equal(found, edges)
    assert guessing_scale(edges) is not None


def test_edges_that_are_not_equal_have_no_formula() -> None:
    edges = np.sort(np.random.default_rng(1).uniform(size=1000))
    assert EdgeFormula.of(edges) is None
    nudged = np.array(Numeric.uniform_edges(0, 1, 1000))
    nudged[500] = np.nextafter(nudged[500], 1)
    formula = EdgeFormula.of(nudged)  # one edge is patched
    assert formula is not None
    assert (500, float(nudged[500])) in formula.patches


EDGES = (0.0, *np.sort(np.random.default_rng(4).uniform(size=999)).tolist(), 1.0)


def spread(sigma: float) -> np.ndarray:
    widths = np.random.default_rng(2).lognormal(sigma=sigma, size=5000)
    return np.unique(np.concatenate([[0.0], np.cumsum(widths)]))


UNIFORM = np.array(Numeric.uniform_edges(0.1, 700, 70_000))


@pytest.mark.parametrize("sigma", [0.1, 2.0, 8.0])
def test_every_bin_lies_in_all_buckets_that_it_reaches(sigma: float) -> None:
    edges = spread(sigma)
    runs = bucket_runs(edges)
    rows = {
        (bucket, bin_) for run in runs for bucket, bin_ in zip(run.buckets, run.bins, strict=True)
    }
    assert sorted({bin_ for _, bin_ in rows}) == list(range(len(edges) - 1))
    buckets = np.concatenate([run.buckets for run in runs])
    assert np.unique(buckets, return_counts=True)[1].max() <= 32
    starts = np.array([run.start for run in runs])
    for bin_ in range(len(edges) - 1):
        for x in (
            edges[bin_],
            (edges[bin_] + edges[bin_ + 1]) / 2,
            np.nextafter(edges[bin_ + 1], 0),
        ):
            run = runs[int(np.searchsorted(starts, x, side="right")) - 1]
            bucket = run.first + math.floor((x - run.start) * run.scale)
            assert (bucket, bin_) in rows


@pytest.mark.parametrize(
    "edges",
    [
        spread(0.1),
        spread(2.0),
        spread(8.0),  # a search by bisection
        np.array([-1.7e308, -1.0, -0.0, 5e-324, 1.0, 1.7e308]),  # too far apart to be told
        np.arange(600) * 5e-324,  # too near
        np.array([0.0, 1.0]),
    ],
)
def test_a_finder_gives_the_bin_of_every_double(edges: np.ndarray) -> None:
    finder = BinFinder(edges)
    inside = np.concatenate([edges, (edges[1:] / 2 + edges[:-1] / 2)])
    around = [inside, np.nextafter(inside, -np.inf), np.nextafter(inside, np.inf), [-0.0, 0.0]]
    values = np.concatenate([*around, [-np.inf, np.inf]])
    expected = np.searchsorted(edges[1:-1], values, side="right")
    assert np.array_equal(finder(values), expected)
    assert finder(values).dtype == np.float64
    assert finder(np.array([math.nan]))[0] in (0.0, len(edges) - 2)
    assert len(finder(np.array([]))) == 0


def test_a_finder_that_is_off_by_a_bucket_is_found_out() -> None:
    edges = spread(2.0)
    finder = BinFinder(edges)
    assert finder._guesses is not None
    finder._guesses = np.minimum(finder._guesses + 1, len(edges) - 2)
    assert not np.array_equal(finder(edges), np.searchsorted(edges[1:-1], edges, side="right"))


@pytest.mark.parametrize(
    ("edges", "joined"),
    [
        (spread(2.0), False),
        (spread(2.0), True),
        (UNIFORM, False),
        pytest.param(UNIFORM, True, marks=pytest.mark.nightly),
    ],
)
def test_all_types_of_numbers_find_their_bin(
    monkeypatch: pytest.MonkeyPatch, edges: np.ndarray, joined: bool
) -> None:
    """As DuckDB finds it, and by the join of other engines."""
    if joined:
        monkeypatch.setattr(duckdb, "mapped", lambda value, function: None)
    domain = Domain((Numeric(name="x", edges=tuple(edges.tolist()), missing=True),))
    random = np.random.default_rng(3)
    inside = random.choice(edges, 400)
    around = [inside, np.nextafter(inside, -1), np.nextafter(inside, 1e9), [-5.0, 1e9, np.inf]]
    doubles = [*np.concatenate(around).tolist(), math.nan, None]
    cents = [Decimal(round(x * 100)).scaleb(-2) for x in inside.tolist()]
    whole = list(range(-3, 900))
    cases = {
        pa.float64(): doubles,
        pa.float32(): np.array(doubles, np.float32).tolist(),
        pa.decimal128(18, 2): cents,
        pa.int64(): [*whole, 2**62],
        pa.int16(): whole,
    }
    with tempfile.TemporaryDirectory() as folder:
        for kind, values in cases.items():
            path = Path(folder, "x.parquet")
            pq.write_table(pa.table({"x": pa.array(values, type=kind, from_pandas=False)}), path)
            table = count(FileSource(str(path), "parquet"), domain, scratch=Path(folder))
            read = [float(x) if isinstance(x, Decimal) else x for x in values]
            cells, counts = np.unique([domain.cell_of({"x": x}) for x in read], return_counts=True)
            assert table.cells.tolist() == cells.tolist(), kind
            assert table.counts.tolist() == counts.tolist(), kind


@pytest.mark.parametrize("way", ["count", "scan", "scan_wide"])
def test_an_interrupt_while_bins_are_found_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """And no error of the source."""

    def interrupted(finder: BinFinder, values: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(1).uniform(size=5000)}), path)
    source, domain = FileSource(str(path), "parquet"), Domain((Numeric(name="x", edges=EDGES),))
    runs = {
        "count": lambda: count(source, domain, scratch=tmp_path).n_records,
        "scan": lambda: scan(source, domain, [domain], scratch=tmp_path).profile.n_records,
        "scan_wide": lambda: (
            scan_wide(source, domain, domain, n_records=5000, folder=tmp_path).profile.n_records
        ),
    }
    with monkeypatch.context() as patch:
        patch.setattr(BinFinder, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runs[way]()
    assert runs[way]() == 5000


@pytest.mark.parametrize("level", [1e-9, 0.3, 5.0, 1e6])
def test_the_root_of_a_falling_function(level: float) -> None:
    found = falling_root(lambda x: math.exp(-x), level, -20.0, 40.0)
    assert found == pytest.approx(-math.log(level), abs=1e-9)
