"""One scan finds what a profile and separate counts find, bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from coded import codes_of
from generated_sources import tables, text_tables, write_lines
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.domain import MAX_CELLS, Domain, ZeroPattern
from statpress.tasks.source import scanning
from statpress.tasks.source.aggregates import count, profile
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.scanning import scan, scan_wide, spill

CHECK = settings(
    max_examples=settings().max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def agree(source: FileSource, domain: Domain, joint: list[Domain], folder: Path) -> None:
    """The scan against the two other readers, which have tests of their own."""
    found = scan(source, domain, joint, scratch=folder)
    assert found.profile == profile(source, domain, scratch=folder)
    for table, each in zip(found.tables(), joint, strict=True):
        counted = count(source, each, scratch=folder)
        assert (table.cells.tolist(), table.counts.tolist()) == (
            counted.cells.tolist(), counted.counts.tolist(),
        )  # fmt: skip


def agree_wide(source: FileSource, domain: Domain, coded: Domain, folder: Path) -> None:
    """The scan of wide products against the profile, and the codes as they are written alone."""
    found = scan_wide(source, domain, coded, n_records=1, folder=folder)
    assert found.profile == profile(source, domain, scratch=folder)
    assert found.coded is not None and found.coded.domain == coded
    alone = folder / "alone"
    alone.mkdir()
    written = spill(source, coded, n_records=1, folder=alone)
    assert codes_of(found.coded) == codes_of(written)


def some_tables(domain: Domain, data: st.DataObject) -> list[Domain]:
    """None, one or two tables of some of the columns."""
    names = st.lists(st.sampled_from(domain.names), min_size=1, unique=True)
    joint = [domain.project(each) for each in data.draw(st.lists(names, max_size=2))]
    assume(all(each.n_cells <= MAX_CELLS for each in joint))
    return joint


def some_columns(domain: Domain, data: st.DataObject) -> Domain:
    """One column or more."""
    names = st.lists(st.sampled_from(domain.names), min_size=1, unique=True)
    return domain.project(data.draw(names))


@CHECK
@given(tables(), st.data())
def test_parquet(case: tuple[Domain, pa.Table], data: st.DataObject) -> None:
    domain, table = case
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "records.parquet")
        pq.write_table(table, path)
        source = FileSource(str(path), "parquet")
        agree(source, domain, some_tables(domain, data), Path(directory))
        agree_wide(source, domain, some_columns(domain, data), Path(directory))


@CHECK
@given(text_tables(), st.data())
def test_csv(
    case: tuple[Domain, list[dict[str, str]], list[dict[str, object]]], data: st.DataObject
) -> None:
    domain, lines, _ = case
    with tempfile.TemporaryDirectory() as directory:
        path = write_lines(Path(directory), domain, lines)
        source = FileSource(str(path), "csv")
        agree(source, domain, some_tables(domain, data), Path(directory))
        agree_wide(source, domain, some_columns(domain, data), Path(directory))


def test_many_columns_zeros_and_several_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes and fates that one integer does not hold; patterns over columns of no table."""
    n = 500
    columns = (
        Categorical(name="c", categories=("a", "b"), missing=True),
        *(Integer(name=f"i{k}", lower=0, upper=2**20 - 1, missing=k % 2 == 0) for k in range(3)),
        *(Integer(name=f"x{k}", lower=2, upper=5) for k in range(15)),
    )
    zeros = (ZeroPattern((("x1", ((1, 1),)), ("c", ((0, 0),)))),)
    domain = Domain(columns, zeros)
    rows = {"c": [("a", "b", "z", None)[i % 4] for i in range(n)]}
    rows |= {
        name: [None if (i + k) % 7 == 0 else (i * (k + 3)) % 9 for i in range(n)]
        for k, name in enumerate(domain.names[1:])
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(rows), path)
    source, table = FileSource(str(path), "parquet"), domain.project(("i0", "c", "i1", "i2"))
    agree(source, domain, [table, domain.project(("x0", "i0"))], tmp_path)
    coded = domain.project(domain.names[1:])
    wide = scan_wide(source, domain, coded, n_records=n, folder=tmp_path)
    assert wide.profile == profile(source, domain, scratch=tmp_path)
    reads = []
    monkeypatch.setattr(
        scanning, "_by_sets", lambda *a, of=scanning._by_sets: reads.append(a) or of(*a)
    )
    found = scan(source, domain, [domain.project(("c", "x1"))], scratch=tmp_path)
    assert found.profile.n_impossible > 0 and len(reads) == 1
    assert found.profile == profile(source, domain, scratch=tmp_path)
    assert repr(found) == "Scan()"
    (table,) = found.tables()  # a record in a zero is counted in a possible cell
    assert table.n_records == n and table.domain.is_possible(table.cells).all()


def test_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n")
    domain = Domain((Integer(name="a", lower=0, upper=1), Integer(name="b", lower=0, upper=1)))
    found = scan(FileSource(str(path), "csv"), domain, [domain], scratch=tmp_path)
    assert found.profile == profile(FileSource(str(path), "csv"), domain, scratch=tmp_path)
    assert found.profile.n_records == 0
