"""Files of Stata, SPSS and SAS: counted as the same records in Parquet are."""

from __future__ import annotations

import datetime
import lzma
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from absence import absent
from small_files import small_files

from statpress.configs.formats import STAT_SUFFIXES, format_of
from statpress.configs.loading import load
from statpress.mechanisms.domain.columns import Categorical, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    DependencyError,
    OutputNotWritableError,
    SourceUnreadableError,
)
from statpress.tasks.source import stat_files
from statpress.tasks.source.aggregates import Units, count, profile
from statpress.tasks.source.files import FileSource

DATA = Path(__file__).parent / "data"
N = 250
DAY = datetime.date(1955, 3, 1)
DOMAIN = Domain(
    (
        Categorical(name="SEX", categories=(1, 2), missing=True),
        Numeric(name="PAY", edges=(0.0, 100.0, 200.0, 400.0), missing=True),
        Categorical(name="TOWN", categories=("Aarhus", "Ribe"), missing=True),
        Date(name="BORN", first=DAY, last=datetime.date(1965, 12, 31), by="year", missing=True),
        Date(name="SEEN", first=DAY, last=datetime.date(1965, 12, 31), by="month"),
        Integer(name="KIDS", lower=0, upper=5),
    )
)
SEX = [(1.0, 2.0, None)[i % 3] for i in range(N)]
RECORDS = {
    "SEX": SEX,
    "PAY": [None if i % 50 == 7 else i * 1.5 for i in range(N)],
    "TOWN": [("Aarhus", "Ribe", None)[i % 3] for i in range(N)],
    "BORN": [None if i % 40 == 9 else DAY + datetime.timedelta(days=11 * i) for i in range(N)],
    "SEEN": [
        datetime.datetime(1955, 3, 1, 23, 59) + datetime.timedelta(days=13 * i) for i in range(N)
    ],
    "KIDS": [i % 6 for i in range(N)],
    "HOME": [i // 3 for i in range(N)],
}
UNWANTED = {"SECRET": ["x" * 40] * N}


def frame(**changes: Any) -> Any:
    """The records as a data frame, as the packages' files are written from."""
    import pandas as pd

    made = pd.DataFrame(RECORDS | UNWANTED | changes)
    made["TOWN"] = made["TOWN"].fillna("")
    return made.astype({"KIDS": "int32"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each package, and the records in Parquet."""
    import pyreadstat

    place = tmp_path_factory.mktemp("stat")
    pyreadstat.write_dta(frame(), place / "a.dta")
    answers = frame(SEX=[value or 9.0 for value in SEX])  # 9 is declared missing
    labels = {"SEX": {1.0: "male", 2.0: "female", 9.0: "none"}}
    sav = {"missing_ranges": {"SEX": [9.0]}, "variable_value_labels": labels}
    pyreadstat.write_sav(answers, place / "a.sav", **sav)
    pyreadstat.write_sav(answers, place / "a.zsav", compress=True, **sav)
    pyreadstat.write_por(frame(), place / "a.por")
    pyreadstat.write_xport(frame(), place / "a.xpt")
    pq.write_table(pa.table(RECORDS), place / "a.parquet")
    return place


@pytest.fixture
def chunks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read so many rows of six values at once."""
    monkeypatch.setattr(stat_files, "VALUES", 6 * rows)


def source(path: Path, unit: str | None = None) -> FileSource:
    form = format_of(path.name)
    return FileSource(str(path), form, columns=DOMAIN.names, unit=unit)


@pytest.mark.system
@pytest.mark.parametrize("rows", [60, 125])  # the last of five chunks short, and of two full
@pytest.mark.parametrize("name", ["a.dta", "a.sav", "a.zsav", "a.por", "a.xpt"])
@pytest.mark.usefixtures("chunks")
def test_a_file_is_counted_as_the_same_records_in_parquet(
    folder: Path, tmp_path: Path, name: str
) -> None:
    expected = count(source(folder / "a.parquet"), DOMAIN, scratch=tmp_path)
    found = count(source(folder / name), DOMAIN, scratch=tmp_path)
    assert np.array_equal(found.cells, expected.cells)
    assert np.array_equal(found.counts, expected.counts)
    assert len(found.cells) > 100
    nulls = profile(source(folder / name), DOMAIN, scratch=tmp_path)
    assert {each.name: each.n_null for each in nulls.columns} == {
        "SEX": 83, "PAY": 5, "TOWN": 83, "BORN": 7, "SEEN": 0, "KIDS": 0,
    }  # fmt: skip


@pytest.mark.system
def test_a_file_that_sas_wrote(tmp_path: Path) -> None:
    """Fisher's irises, from the R package haven (MIT), which nothing here could have written."""
    place = tmp_path / "iris.sas7bdat"
    place.write_bytes(lzma.decompress((DATA / "iris.sas7bdat.xz").read_bytes()))
    domain = Domain(
        (
            Categorical(name="Species", categories=("setosa", "versic", "virgin")),
            Numeric(name="Sepal_Length", edges=(4.0, 5.0, 6.0, 7.0, 8.0)),
        )
    )
    irises = FileSource(str(place), format_of(place.name), columns=domain.names)
    found = count(irises, domain, scratch=tmp_path)
    table = np.zeros(12, np.int64)
    table[found.cells] = found.counts
    assert table.reshape(3, 4).sum(axis=1).tolist() == [50, 50, 50]
    assert table.reshape(3, 4).sum(axis=0).tolist() == [22, 61, 54, 13]


@pytest.mark.system
@pytest.mark.parametrize("suffix", [".dta", ".sav", ".xpt"])
def test_text_is_read_in_the_files_encoding(tmp_path: Path, suffix: str) -> None:
    import pyreadstat

    write = {".dta": pyreadstat.write_dta, ".sav": pyreadstat.write_sav}
    path = tmp_path / f"a{suffix}"
    write.get(suffix, pyreadstat.write_xport)(frame(TOWN=["Århus"] * N), path)
    domain = Domain((Categorical(name="TOWN", categories=("Århus", "Ribe")),))
    assert count(source(path), domain, scratch=tmp_path).counts.tolist() == [N]


@pytest.mark.system
def test_the_copy_is_private_made_once_and_has_only_what_is_declared(
    folder: Path, tmp_path: Path
) -> None:
    wanted = source(folder / "a.sav")
    count(wanted, DOMAIN, scratch=tmp_path)
    (copies,) = tmp_path.iterdir()
    (copy,) = copies.iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (copies, copy)] == [0o700, 0o600]
    assert set(pq.read_schema(copy).names) == set(DOMAIN.names)
    made = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (copies, copy)]
    profile(wanted, DOMAIN, scratch=tmp_path)
    assert made == [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (copies, copy)]


@pytest.mark.system
@pytest.mark.parametrize("name", ["a.dta", "a.sav"])
def test_whole_numbers_name_units(folder: Path, tmp_path: Path, name: str) -> None:
    domain = Domain(DOMAIN.columns, absent=True)
    units = Units("HOME", 2)
    wanted = source(folder / name, unit="HOME")
    assert profile(wanted, domain, scratch=tmp_path, units=units).n_units == 84
    assert count(wanted, domain, scratch=tmp_path, units=units, key="k").n_records == 168


@pytest.mark.system
def test_units_that_are_not_whole_numbers_are_refused(folder: Path, tmp_path: Path) -> None:
    wanted = source(folder / "a.sav", unit="PAY")
    with pytest.raises(SourceUnreadableError) as caught:
        profile(wanted, DOMAIN, scratch=tmp_path, units=Units("PAY", 1))
    assert "1.5" not in str(caught.value)


@pytest.mark.system
def test_several_files_are_one_source(folder: Path, tmp_path: Path) -> None:
    for part in "xy":
        (tmp_path / f"{part}.dta").write_bytes((folder / "a.dta").read_bytes())
    (tmp_path / "scratch").mkdir()
    found = count(source(tmp_path / "*.dta"), DOMAIN, scratch=tmp_path / "scratch")
    assert found.n_records == 2 * N


@pytest.mark.system
@pytest.mark.parametrize("suffix", sorted(STAT_SUFFIXES))
def test_what_is_not_such_a_file_is_refused_without_its_text(
    tmp_path: Path, suffix: str, capfd: Any
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"Secretville,44\n" * 100)
    with pytest.raises(SourceUnreadableError, match="cannot be read as") as caught:
        count(source(path), DOMAIN, scratch=tmp_path)
    assert "Secretville" not in str(caught.value) and caught.value.__context__ is None
    assert caught.value.where == str(path)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.system
@pytest.mark.parametrize("rows", [60])
@pytest.mark.usefixtures("chunks")
def test_a_truncated_file_is_refused_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "a.dta").read_bytes()
    (tmp_path / "a.dta").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceUnreadableError):
        count(source(tmp_path / "a.dta"), DOMAIN, scratch=tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["a.dta"]


@pytest.mark.system
def test_a_column_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    domain = Domain((Integer(name="AGE", lower=0, upper=99),))
    for name in ("a.dta", "a.sav"):
        wanted = FileSource(str(folder / name), format_of(name), columns=domain.names)
        with pytest.raises(ColumnNotFoundError) as caught:
            count(wanted, domain, scratch=tmp_path)
        assert caught.value.where == "AGE"


@pytest.mark.system
def test_a_full_disk_is_said_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    full = pytest.raises(OutputNotWritableError, match=r"File too large.*Nothing was charged")
    with small_files(8), full:
        count(source(folder / "a.sav"), DOMAIN, scratch=tmp_path)
    assert list(tmp_path.iterdir()) == []


CONFIG = """\
title: Test
dataset: test
source: {path: people.sav}
privacy: {adjacency: replace_one, unit: record, n_records: 250}
budget: {epsilon: 1.0, delta: 1.0e-6}
domain:
  SEX: {type: categorical, categories: [1, 2], value_labels: [male, female]}
products:
  people: {kind: table, mechanism: laplace, columns: [SEX]}
publish: {directory: releases, formats: [csv]}
"""


def test_a_missing_extra_is_found_without_the_data(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text(CONFIG)
    missing = pytest.raises(DependencyError, match=r"extra 'stat'.*statpress\[stat\]")
    with absent("pyreadstat"), missing as caught:
        load(path)
    assert caught.value.where == "release.yaml:3:10: source.path"
    path.write_text(CONFIG.replace("people.sav", "people.csv"))
    assert load(path).config.source.form == "csv"


@pytest.mark.system
def test_the_form_follows_from_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text(CONFIG)
    assert load(path).config.source.form == "spss"


@pytest.mark.parametrize(
    ("form", "shown", "number", "day"),
    [
        ("stata", "%td", 366, "1961-01-01"),
        ("stata", "%tdDD/NN/CCYY", -3653, "1949-12-31"),
        ("stata", "%tc", 86_400_000 * 366 + 5, "1961-01-01"),
        ("stata", "%tm", 12, None),
        ("stata", "%9.0g", 12, None),
        ("spss", "SDATE10", 12219379200 + 5, "1970-01-01"),
        ("spss", "F8.2", 12219379200, None),
        ("spss", "TIME8", 5, None),
        ("sas", "DATE9", 0, "1960-01-01"),
        ("sas", "E8601DA10", -1, "1959-12-31"),
        ("sas", "DATETIME20.2", 86_399, "1960-01-01"),
        ("sas", "BEST12", 5, None),
        ("sas", "TIME8", 5, None),
    ],
)
def test_numbers_are_dates_by_their_format(
    form: Any, shown: str, number: float, day: str | None
) -> None:
    per_day, origin = stat_files._dates(form, shown)
    assert (per_day is None) == (day is None)
    if day is not None:
        column = stat_files._Column(pa.date32(), per_day, origin)
        assert column.array([number, None]).to_pylist() == [datetime.date.fromisoformat(day), None]
