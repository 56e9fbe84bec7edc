"""A source that changes while it is read stops the run before the charge; none is a mixture."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import SourceChangedError
from statpress.tasks.release import steps
from statpress.tasks.source.aggregates import count, profile
from statpress.tasks.source.engine import Snapshot, open_source
from statpress.tasks.source.files import FileSource

DOMAIN = Domain((Integer(name="age", lower=0, upper=9),))


def write(path: Path, ages: list[int]) -> None:
    pq.write_table(pa.table({"age": ages}), path)


def replaced(path: Path) -> None:
    new = path.with_name("new")
    write(new, [7, 8, 9])
    new.rename(path)


def overwritten(path: Path) -> None:
    write(path, [7, 8, 9])


def touched_up(path: Path) -> None:
    """Other bytes of the same size, with the old time."""
    before = path.stat()
    write(path, [3, 2, 1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [replaced, overwritten, touched_up, Path.unlink]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("between", [False, True], ids=["within a reading", "between two"])
def test_a_file_that_changes_is_refused(
    tmp_path: Path, change: Callable[[Path], None], between: bool
) -> None:
    path = tmp_path / "a.parquet"
    write(path, [1, 2, 3])
    snapshot = Snapshot(tmp_path)
    source = snapshot.of(FileSource(str(path), "parquet"))
    if between:
        profile(source, DOMAIN, scratch=tmp_path)
        change(path)
        with pytest.raises(SourceChangedError) as caught:
            count(source, DOMAIN, scratch=tmp_path)
    else:
        with pytest.raises(SourceChangedError) as caught, open_source(source, scratch=tmp_path):
            change(path)
    assert caught.value.__context__ is None
    with pytest.raises(SourceChangedError):
        snapshot.settle()
    snapshot.close()


def test_a_file_that_stays_and_one_that_comes_later(tmp_path: Path) -> None:
    """What matches a glob when it is first read is the source; later files are not."""
    write(tmp_path / "a.parquet", [1])
    snapshot = Snapshot(tmp_path)
    source = snapshot.of(FileSource(str(tmp_path / "*.parquet"), "parquet"))
    assert profile(source, DOMAIN, scratch=tmp_path).n_records == 1
    write(tmp_path / "b.parquet", [2, 3])
    assert snapshot.of(source) is source
    assert count(source, DOMAIN, scratch=tmp_path).n_records == 1
    snapshot.settle()


def test_a_run_whose_source_changes_is_not_charged_and_not_refused(
    agency: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the scan and the last look at the source."""
    honest = steps.quality.check_source

    def changing(*arguments: Any) -> None:
        honest(*arguments)
        touched_up(agency.source)

    monkeypatch.setattr(steps.quality, "check_source", changing)
    before = agency.entries()
    with pytest.raises(SourceChangedError):
        agency.run()
    *same, look = agency.entries()
    assert same == before and look.kind == "look"
    assert not agency.bundles()
