"""Counting: what is read, what is refused, and that no private text gets out."""

import datetime
import gzip
import itertools
import math
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from privileges import held_to_modes

from statpress.mechanisms.domain.columns import Categorical, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import (
    ColumnNotFoundError,
    ColumnTypeError,
    EmptySourceError,
    InternalError,
    OutOfMemoryError,
    SourceNotFoundError,
    SourceUnreadableError,
    StatpressError,
)
from statpress.tasks.source import files
from statpress.tasks.source.aggregates import SourceProfile, Units, count, profile, size_of
from statpress.tasks.source.engine import Limits
from statpress.tasks.source.files import FileSource, open_source
from statpress.tasks.source.scanning import scan_wide

CANARY = "Zyx-canary-7719"
STATE = Categorical(name="state", categories=("CA", "NY"), other=True, missing=True)
AGE = Integer(name="age", lower=0, upper=9, width=5)
DOMAIN = Domain((STATE, AGE))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    path = tmp_path / "scratch"
    path.mkdir(mode=0o700)
    return path


def parquet(path: Path, **columns: list[object]) -> FileSource:
    pq.write_table(pa.table(columns), path)
    return FileSource(str(path), "parquet")


def text(path: Path, content: str | bytes) -> FileSource:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return FileSource(str(path), "csv")


def test_the_size_is_that_of_all_records_whatever_they_hold(tmp_path: Path, scratch: Path) -> None:
    lines = ["state,age,who", "CA,1,a", ",,b", "XX,old,a", '"N\nY",99,', "NY,3,c"]
    source = text(tmp_path / "a.csv", "\n".join(lines) + "\n")
    assert size_of(source, DOMAIN, scratch=scratch) == 5
    named = replace(source, csv=replace(source.csv, unit="who"), unit="who")
    assert size_of(named, DOMAIN, scratch=scratch, units=Units("who", 2)) == 3
    with pytest.raises(EmptySourceError):
        size_of(text(tmp_path / "b.csv", lines[0] + "\n"), DOMAIN, scratch=scratch)


def counts(source: FileSource, domain: Domain, scratch: Path) -> dict[int, int]:
    table = count(source, domain, scratch=scratch)
    return dict(zip(table.cells.tolist(), table.counts.tolist(), strict=True))


def expected(domain: Domain, *records: tuple[object, ...]) -> dict[int, int]:
    cells = [domain.cell_of(dict(zip(domain.names, record, strict=True))) for record in records]
    return {cell: cells.count(cell) for cell in sorted(set(cells))}


def refusal(
    kind: type[StatpressError],
    source: FileSource,
    domain: Domain,
    scratch: Path,
    runs: Sequence[Callable[..., Any]] = (profile, count),
) -> StatpressError:
    """The error of a count and of a profile, checked to be of one kind and silent."""
    for run in runs:
        with pytest.raises(StatpressError) as caught:
            run(source, domain, scratch=scratch)
        error = caught.value
        assert type(error) is kind
        assert error.__context__ is None
        assert error.__cause__ is None
        said = "".join(traceback.format_exception(error)) + repr(vars(error)) + repr(error.args)
        assert CANARY not in said
    return error


# --- what is counted -----------------------------------------------------------


def test_count_of_a_parquet_file(tmp_path: Path, scratch: Path) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA", "NY", None, "TX", "CA"],
                     age=[1, 99, -3, None, 4], extra=[CANARY] * 5)  # fmt: skip
    records = [("CA", 1), ("NY", 99), (None, -3), ("TX", None), ("CA", 4)]
    assert counts(source, DOMAIN, scratch) == expected(DOMAIN, *records)


def test_count_of_a_csv_reads_text_and_takes_what_it_cannot_read_for_null(
    tmp_path: Path, scratch: Path
) -> None:
    source = text(tmp_path / "a.csv", 'age,state\n1,CA\n,"TX"\n"x, y",\n 7 ,"CA"\n4.9,\n""," CA"\n')
    records = [("CA", 1), ("TX", None), (None, None), ("CA", 7), (None, 4.9), (" CA", None)]
    assert counts(source, DOMAIN, scratch) == expected(DOMAIN, *records)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_line_ends_byte_order_mark_and_quotes(
    tmp_path: Path, scratch: Path, end: str, mark: str
) -> None:
    name = Categorical(name="n", categories=('a"b', "c,d", "e\nf"), other=True)
    lines = ["n", '"a""b"', '"c,d"', '"e\nf"'.replace("\n", end), "#g"]
    source = text(tmp_path / "a.csv", mark + end.join(lines) + end)
    found = counts(source, Domain((name,)), scratch)
    assert found == ({0: 1, 1: 1, 2: 1, 3: 1} if end == "\n" else {0: 1, 1: 1, 3: 2})


def test_compressed_csv(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"state,age\nCA,1\n"))
    assert counts(FileSource(str(path), "csv"), DOMAIN, scratch) == expected(DOMAIN, ("CA", 1))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_glob_adds_the_files_and_ignores_the_order_of_parquet_columns(
    tmp_path: Path, scratch: Path, form: str
) -> None:
    folder = tmp_path / "it's [1] *"
    folder.mkdir()
    if form == "parquet":
        parquet(folder / "1.parquet", state=["CA"], age=[1])
        parquet(folder / "2.parquet", age=[1, 7], state=["CA", "NY"])
    else:
        text(folder / "1.csv", "state,age\nCA,1\n")
        text(folder / "2.csv", "state,age\nCA,1\nNY,7\n")
    source = FileSource(str(tmp_path / "it's*" / f"?.{form}"), form)
    assert counts(source, DOMAIN, scratch) == expected(DOMAIN, ("CA", 1), ("CA", 1), ("NY", 7))
    literal = FileSource(str(folder / f"1.{form}"), form)
    assert counts(literal, DOMAIN, scratch) == expected(DOMAIN, ("CA", 1))


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_any_name_of_a_column(tmp_path: Path, scratch: Path, form: str) -> None:
    names = ["q\"u'o", "s p.a;c--e", "größe", "SELECT", "value_0", "a\\b"]
    domain = Domain(tuple(Integer(name=name, lower=0, upper=9) for name in names))
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        source = parquet(path, **{name: [i] for i, name in enumerate(names)}, z=[1])
    else:
        header = ",".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names)
        source = text(path, f"{header},z\n0,1,2,3,4,5,1\n")
    assert counts(source, domain, scratch) == {12345: 1}


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_names_that_differ_in_case_are_different_columns(
    tmp_path: Path, scratch: Path, form: str
) -> None:
    lower, upper = (Integer(name=name, lower=0, upper=9) for name in "aA")
    path = tmp_path / f"a.{form}"
    source = parquet(path, A=[2], a=[1]) if form == "parquet" else text(path, "A,a\n2,1\n")
    assert counts(source, Domain((lower,)), scratch) == {1: 1}
    assert counts(source, Domain((upper,)), scratch) == {2: 1}
    assert counts(source, Domain((lower, upper)), scratch) == {12: 1}


def test_times_are_taken_as_utc(tmp_path: Path, scratch: Path) -> None:
    column = Date(
        name="t", first=datetime.date(2000, 1, 1), last=datetime.date(2000, 1, 9), by="day"
    )
    late = datetime.datetime(2000, 1, 2, 23, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    table = pa.table({"t": pa.array([late], type=pa.timestamp("us", "America/New_York"))})
    pq.write_table(table, tmp_path / "a.parquet")
    source = FileSource(str(tmp_path / "a.parquet"), "parquet")
    assert counts(source, Domain((column,)), scratch) == {2: 1}


def test_huge_numbers_in_a_dictionary_are_clamped_before_any_cast(
    tmp_path: Path, scratch: Path
) -> None:
    column = Integer(name="x", lower=-5, upper=5, missing=True)
    values = [1e300, -1e300, float("inf"), float("nan"), None, 2.5, -2.5] * 1000
    source = parquet(tmp_path / "a.parquet", x=values)
    assert counts(source, Domain((column,)), scratch) == {
        0: 1000,
        2: 1000,
        7: 1000,
        10: 2000,
        11: 2000,
    }


def test_integers_that_no_double_equals(tmp_path: Path, scratch: Path) -> None:
    number = Categorical(name="x", categories=(2**53 + 1, 2**62 + 1), other=True)
    values = [2**53, 2**53 + 1, 2**62, 2**62 + 1]
    whole = parquet(tmp_path / "a.parquet", x=values)
    assert counts(whole, Domain((number,)), scratch) == {0: 1, 1: 1, 2: 2}
    doubles = parquet(tmp_path / "b.parquet", x=[float(value) for value in values])
    assert counts(doubles, Domain((number,)), scratch) == {2: 4}


@pytest.mark.parametrize("convert", [int, float])
def test_a_range_wider_than_the_whole_doubles(
    tmp_path: Path, scratch: Path, convert: type[float]
) -> None:
    column = Integer(name="x", lower=-(2**53), upper=2**53 - 2, width=3)
    values = [convert(sign * (2**53 - i)) for i in range(40) for sign in (-1, 1)]
    source = parquet(tmp_path / "a.parquet", x=values)
    expected_counts = expected(Domain((column,)), *((value,) for value in values))
    assert counts(source, Domain((column,)), scratch) == expected_counts


def test_edges_of_seventeen_digits(tmp_path: Path, scratch: Path) -> None:
    generator = random.Random(3)
    edges = sorted(generator.uniform(0, 10 ** generator.randint(-3, 6)) for _ in range(60))
    column = Numeric(name="x", edges=tuple(edges))
    values = [near for edge in edges for near in (edge, math.nextafter(edge, 0))]
    source = parquet(tmp_path / "a.parquet", x=values)
    expected_counts = expected(Domain((column,)), *((value,) for value in values))
    assert counts(source, Domain((column,)), scratch) == expected_counts


def test_profile_counts_nulls_and_values_outside(tmp_path: Path, scratch: Path) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA", "TX", None, "TX", "CA"],
                     age=[1, 99, -3, None, 9])  # fmt: skip
    found = profile(source, DOMAIN, scratch=scratch)
    assert found.n_records == 5
    assert [(c.name, c.n_null, c.n_outside) for c in found.columns] == [
        ("state", 1, 2), ("age", 1, 2)]  # fmt: skip
    assert repr(found) == "SourceProfile(state, age)"
    assert not any(character.isdigit() for character in repr(found.columns))


def test_profile_of_an_empty_source(tmp_path: Path, scratch: Path) -> None:
    found: SourceProfile = profile(text(tmp_path / "a.csv", "state,age\n"), DOMAIN, scratch=scratch)
    assert found.n_records == 0
    assert [(c.n_null, c.n_outside) for c in found.columns] == [(0, 0), (0, 0)]


def test_engine_spills_to_scratch_installs_nothing_and_uses_utc(
    tmp_path: Path, scratch: Path
) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA"], age=[1])
    with open_source(source, scratch=scratch) as opened:
        connection = opened.table.get_backend().con
        settings = dict(connection.execute("SELECT name, value FROM duckdb_settings()").fetchall())
    assert settings["temp_directory"] == str(scratch)
    assert settings["autoinstall_known_extensions"] == "false"
    assert settings["autoload_known_extensions"] == "false"
    assert settings["TimeZone"] == "UTC"
    assert list(scratch.iterdir()) == []


def test_import_is_light() -> None:
    code = (
        "import sys, statpress.tasks.source.aggregates, statpress.tasks.source.discretise; "
        "print(sorted({'ibis', 'duckdb', 'pyarrow', 'pandas'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("wide", [False, True])
def test_records_in_structural_zeros_are_counted(tmp_path: Path, scratch: Path, wide: bool) -> None:
    """Also where codes times strides pass what doubles hold, and in sets of many runs."""
    states = Categorical(name="state", categories=tuple(f"s{i}" for i in range(1000)), other=True)
    zeros = (
        ZeroPattern((("state", tuple((i, i) for i in range(0, 1001, 2))), ("age", ((1, 1),)))),
        ZeroPattern((("age", ((0, 0),)), ("id", ((0, 4), (7, 7))))),
    )
    number = Integer(name="id", lower=0, upper=2**50 - 1 if wide else 9)
    domain = Domain((states, AGE, number), zeros)
    rows = [(f"s{i % 1003}", 7 * i % 12, i % 10) for i in range(1200)]
    columns = dict(zip(domain.names, map(list, zip(*rows, strict=True)), strict=True))
    source = parquet(tmp_path / "a.parquet", **columns)
    cells = [domain.cell_of(dict(zip(domain.names, row, strict=True))) for row in rows]
    impossible = int((~domain.is_possible(np.array(cells))).sum())
    assert 0 < impossible < 1200
    assert profile(source, domain, scratch=scratch).n_impossible == impossible
    table = count(source, domain, scratch=scratch)  # they are counted in one possible cell
    assert table.n_records == 1200 and domain.is_possible(table.cells).all()
    true = np.unique(np.array(cells)[domain.is_possible(np.array(cells))], return_counts=True)
    assert np.abs(table.at(true[0]) - true[1]).sum() <= impossible


def test_thousands_of_rules_are_counted_in_wide_records(tmp_path: Path) -> None:
    """In one expression of a query they nest deeper than Python follows."""
    domain = Domain(
        (Integer(name="a", lower=0, upper=99), Integer(name="b", lower=0, upper=99)),
        rules=tuple(
            ZeroPattern((("a", ((a, a),)), ("b", ((b, b),))))
            for a, b in itertools.product(range(25), range(100))
            if a or b
        ),
    )
    every = np.arange(10_000)
    source = parquet(tmp_path / "a.parquet", a=every // 100, b=every % 100)
    found = scan_wide(source, domain, domain, n_records=10_000, folder=tmp_path)
    assert found.profile.n_impossible == 2499
    assert (~domain.is_possible(every)).nonzero()[0].tolist() == list(range(1, 2500))


def test_without_a_place_for_padding_each_unit_counts_one(tmp_path: Path, scratch: Path) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA"] * 3, age=[1] * 3, who=["x", "x", "y"])
    for most in (1, 2):
        kept = count(source, DOMAIN, scratch=scratch, units=Units("who", most), key="k")
        assert kept.n_records == int(kept.counts.sum()) == 2


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize("pattern", [f"none-{CANARY[:3]}.parquet", "*.parquet"])
def test_no_file(tmp_path: Path, scratch: Path, pattern: str) -> None:
    source = FileSource(str(tmp_path / pattern), "parquet")
    error = refusal(SourceNotFoundError, source, DOMAIN, scratch)
    assert error.where == source.pattern


def test_missing_column_is_named_and_no_other(tmp_path: Path, scratch: Path) -> None:
    source = parquet(tmp_path / "a.parquet", State=["CA"], **{CANARY: [1]})
    error = refusal(ColumnNotFoundError, source, DOMAIN, scratch)
    assert error.what == "The source has no column 'state' (names are compared exactly)."


def test_columns_of_different_types_in_two_files_are_not_mixed(
    tmp_path: Path, scratch: Path
) -> None:
    parquet(tmp_path / "1.parquet", state=["CA"], age=[1])
    parquet(tmp_path / "2.parquet", state=["CA"], age=[1.7])
    source = FileSource(str(tmp_path / "*.parquet"), "parquet")
    error = refusal(ColumnNotFoundError, source, DOMAIN, scratch)
    assert error.what == "The column 'age' is not of one type in all files of the source."
    parquet(tmp_path / "2.parquet", state=["CA"], Age=[1])
    error = refusal(ColumnNotFoundError, source, DOMAIN, scratch)
    assert error.what.startswith("Not all files of the source have a column 'age' (")


@pytest.mark.parametrize(
    ("column", "values", "found"),
    [
        (AGE, [CANARY], "string"),
        (AGE, [True], "boolean"),
        (Numeric(name="age", edges=(0.0, 1.0)), [datetime.date(2000, 1, 1)], "date"),
        (Date(name="age", first=datetime.date(2000, 1, 1), last=datetime.date(2000, 1, 1)), [1],
         "int64"),
        (Categorical(name="age", categories=("1",)), [1], "int64"),
        (Categorical(name="age", categories=(1,)), ["1"], "string"),
        (Categorical(name="age", categories=(1,)), [True], "boolean"),
        (Categorical(name="age", categories=(True,)), [1], "int64"),
        (Categorical(name="age", categories=("1",)), [b"1"], "binary"),
    ],
)  # fmt: skip
def test_wrong_type(
    tmp_path: Path, scratch: Path, column: Integer, values: list[object], found: str
) -> None:
    source = parquet(tmp_path / "a.parquet", age=values)
    error = refusal(ColumnTypeError, source, Domain((column,)), scratch, runs=[count])
    assert error.where == "age"
    assert column.kind in str(error)
    assert found in str(error)


def test_csv_refuses_integer_categories_that_no_double_equals(
    tmp_path: Path, scratch: Path
) -> None:
    column = Categorical(name="id", categories=(2**53 + 1,))
    source = text(tmp_path / "a.csv", "id\n1\n")
    refusal(ColumnTypeError, source, Domain((column,)), scratch)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_empty_source(tmp_path: Path, scratch: Path, form: str) -> None:
    path = tmp_path / f"a.{form}"
    if form == "csv":
        source = text(path, "state,age\n")
    else:
        schema = pa.schema([("state", pa.string()), ("age", pa.int64())])
        pq.write_table(schema.empty_table(), path)
        source = FileSource(str(path), "parquet")
    with pytest.raises(EmptySourceError):
        count(source, DOMAIN, scratch=scratch)


def unreadable(tmp_path: Path, name: str) -> FileSource:
    path = tmp_path / name
    if name == "folder.parquet":
        path.mkdir()
    elif name == "text.parquet":
        path.write_text(f"state,age\n{CANARY},1\n" * 50)
    elif name == "cut.parquet":
        whole = parquet(path, state=[CANARY] * 9000, age=list(range(9000)))
        path.write_bytes(Path(whole.pattern).read_bytes()[:-40])
    elif name == "corrupt.parquet":
        parquet(path, state=[f"{CANARY}{i}" for i in range(9000)], age=list(range(9000)))
        content = bytearray(path.read_bytes())
        content[100:40000] = b"\xff" * 39900
        path.write_bytes(content)
    elif name == "pipe.csv":
        os.mkfifo(path)
    return FileSource(str(path), "csv" if name.endswith("csv") else "parquet")


@pytest.mark.parametrize(
    "name", ["folder.parquet", "text.parquet", "cut.parquet", "corrupt.parquet", "pipe.csv"]
)
def test_unreadable_files(tmp_path: Path, scratch: Path, name: str) -> None:
    refusal(SourceUnreadableError, unreadable(tmp_path, name), DOMAIN, scratch)


@pytest.mark.parametrize(
    "content",
    [
        f"state,age\nCA,1\n{CANARY}\n",
        f"state,age\nCA,1\nCA,1,{CANARY}\n",
        f'state,age\nCA,"{CANARY}\n',
        f'state,age\n"CA"{CANARY},1\n',
        f"state,age\n{CANARY},".encode() + b"\xff\xfe\n",
        f"state,ag\xe9 {CANARY}\n".encode("latin-1"),
        "",
        "\nstate,age\nCA,1\n",
        f"state,age\nCA,1\r\n{CANARY},2\r\n",
        "state,age\n" + "CA,1\n" * 60_000 + f"CA,1,{CANARY}\n",
    ],
    ids=["short", "long", "open quote", "stray quote", "not utf-8", "header not utf-8", "no bytes",
         "no header", "mixed line ends", "late"],
)  # fmt: skip
def test_malformed_csv_is_refused_whole(
    tmp_path: Path, scratch: Path, content: str | bytes
) -> None:
    source = text(tmp_path / "a.csv", content)
    refusal(SourceUnreadableError, source, DOMAIN, scratch, runs=[count])


def test_csv_files_with_different_headers_are_refused(tmp_path: Path, scratch: Path) -> None:
    text(tmp_path / "1.csv", "state,age\nCA,1\n")
    text(tmp_path / "2.csv", "age,state\n1,CA\n")
    refusal(SourceUnreadableError, FileSource(str(tmp_path / "*.csv"), "csv"), DOMAIN, scratch)


@pytest.mark.parametrize("where", ["parquet_schema", "connect"])
@pytest.mark.parametrize(
    ("raised", "kind"),
    [(PermissionError, SourceUnreadableError), (ValueError, InternalError)],
)
def test_what_others_raise_is_not_repeated(
    tmp_path: Path,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    raised: type[Exception],
    kind: type[StatpressError],
) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA"], age=[1])

    def fail(*_: object) -> None:
        raise raised(CANARY)

    monkeypatch.setattr(files, where, fail)
    refusal(kind, source, DOMAIN, scratch)


def test_permission_denied(tmp_path: Path, scratch: Path) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA"], age=[1])
    Path(source.pattern).chmod(0)
    with held_to_modes():
        refusal(SourceUnreadableError, source, DOMAIN, scratch)


def test_no_memory(tmp_path: Path, scratch: Path) -> None:
    source = parquet(tmp_path / "a.parquet", state=["CA"] * 200_000, age=list(range(200_000)))
    source = replace(source, limits=Limits(memory=1000))
    with pytest.raises(OutOfMemoryError, match="says nothing of its files") as caught:
        count(source, DOMAIN, scratch=scratch)
    assert caught.value.__context__ is None
