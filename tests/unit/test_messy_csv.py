"""Files as they come: each gives the right table, or an error that names the kind of fault.

A file that is read is compared with the records it stands for, value by value, and with how many of
them are null, undeclared (or clamped) and unreadable. Nothing in between: no case is read in part.
"""

from __future__ import annotations

import codecs
import datetime
import gzip
import io
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ColumnNotFoundError, SourceUnreadableError, StatpressError
from statpress.tasks.source.aggregates import count
from statpress.tasks.source.csv_files import Fault, cannot_be_read, likely_keys
from statpress.tasks.source.engine import CsvOptions
from statpress.tasks.source.files import FileSource
from statpress.tasks.source.scanning import scan

TOWN = Categorical(name="town", categories=("Köln", "Århus", "Łódź"), other=True, missing=True)
AGE = Integer(name="age", lower=0, upper=99, missing=True)
PAY = Numeric(name="pay", edges=(0.0, 10.0, 1000.0, 2000.0, 5000.0), missing=True)
DAY = Date(
    name="day", first=datetime.date(1990, 1, 1), last=datetime.date(2029, 12, 31), by="day",
    missing=True,
)  # fmt: skip
FLAG = Categorical(name="flag", categories=(True, False), missing=True)
GRADE = Categorical(name="grade", categories=(1, 2.5), other=True, missing=True)
JAN_2, FEB_1 = datetime.date(2000, 1, 2), datetime.date(2000, 2, 1)
UNREADABLE = object()
"""In a record: text that is there and not a value."""


@dataclass
class Readable:
    """A file, the columns to read from it, and the records it stands for."""

    content: str | bytes
    columns: tuple[Column, ...]
    records: list[tuple[Any, ...]]
    options: dict[str, Any] = field(default_factory=dict)
    suffix: str = ".csv"


@dataclass
class Faulty:
    """A file and what is wrong with it; ``said`` is the gap in the fault's words."""

    content: str | bytes
    fault: Fault
    options: dict[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    suffix: str = ".csv"


GERMAN = {"delimiter": ";", "decimal": ",", "thousands": "."}
CP1252 = {"delimiter": ";", "encoding": "windows-1252", "decimal": ","}
XLSX = io.BytesIO()
with zipfile.ZipFile(XLSX, "w") as book:
    book.writestr("xl/workbook.xml", "<workbook/>")
COMPRESSED = gzip.compress(
    "".join(["town,age\n", *(f"x{hash((i, i))},{i % 90}\n" for i in range(20_000))]).encode()
)


def wide(columns: int) -> Readable:
    names = ["age", *(f"x{i}" for i in range(columns - 1))]
    return Readable(f"{','.join(names)}\n{','.join(['7'] * columns)}\n", (AGE,), [(7,)])


READABLE = {
    # Encodings
    "utf-8": Readable("town,age\nKöln,1\nŁódź,2\n", (TOWN, AGE), [("Köln", 1), ("Łódź", 2)]),
    "utf-8 with mark": Readable("\ufefftown,age\nKöln,1\n", (TOWN, AGE), [("Köln", 1)]),
    "latin-1": Readable(
        "town,age\nKöln,1\nÅrhus,2\n".encode("latin-1"),
        (TOWN, AGE),
        [("Köln", 1), ("Århus", 2)],
        {"encoding": "latin-1"},
    ),
    "windows-1252": Readable(
        "town;note;pay\nKöln;“5 €”…;1,5\n".encode("cp1252"), (TOWN, PAY), [("Köln", 1.5)], CP1252
    ),
    "windows-1250": Readable(
        "town\nŁódź\n".encode("cp1250"), (TOWN,), [("Łódź",)], {"encoding": "windows-1250"}
    ),
    "utf-16 little end": Readable(
        codecs.BOM_UTF16_LE + "town\tage\r\nKöln\t1\r\n".encode("utf-16-le"),
        (TOWN, AGE),
        [("Köln", 1)],
        {"encoding": "utf-16", "delimiter": "\t"},
    ),
    "utf-16 big end": Readable(
        codecs.BOM_UTF16_BE + "town,age\nŁódź,1\n".encode("utf-16-be"),
        (TOWN, AGE),
        [("Łódź", 1)],
        {"encoding": "utf-16"},
    ),
    "compressed latin-1": Readable(
        gzip.compress("town,age\nKöln,1\n".encode("latin-1")),
        (TOWN, AGE),
        [("Köln", 1)],
        {"encoding": "latin-1"},
        ".csv.gz",
    ),
    "letters of two bytes over the end of a chunk": Readable(
        "age,note\n1," + "é" * 700_000 + "\n2,x\n", (AGE,), [(1,), (2,)]
    ),
    "decomposed letters are other letters": Readable(
        "town\nKo\u0308ln\n", (TOWN,), [("Ko\u0308ln",)]
    ),
    "a NUL in a text": Readable(
        "town,age\nK\0ln,1\nKöln\0,2\n", (TOWN, AGE), [("K\0ln", 1), ("Köln\0", 2)]
    ),
    "a NUL in a number": Readable("age\n1\0\n2\n", (AGE,), [(UNREADABLE,), (2,)]),
    # Separators and line ends
    "semicolon and decimal comma": Readable(
        "town;pay\nKöln;1,5\nŁódź;2000\n", (TOWN, PAY), [("Köln", 1.5), ("Łódź", 2000.0)], GERMAN
    ),
    "tab": Readable("town\tage\nKöln\t1\n", (TOWN, AGE), [("Köln", 1)], {"delimiter": "\t"}),
    "bar": Readable("town|age\nKöln|1\n", (TOWN, AGE), [("Köln", 1)], {"delimiter": "|"}),
    "comma between fields and in numbers": Readable(
        'town,pay\nKöln,"1,5"\n', (TOWN, PAY), [("Köln", 1.5)], {"decimal": ","}
    ),
    "carriage returns and line feeds": Readable(
        "age,pay\r\n1,2\r\n3,4\r\n", (AGE, PAY), [(1, 2.0), (3, 4.0)]
    ),
    "carriage returns": Readable("age,pay\r1,2\r3,4\r", (AGE, PAY), [(1, 2.0), (3, 4.0)]),
    "no end of the last line": Readable("age,pay\n1,2\n3,4", (AGE, PAY), [(1, 2.0), (3, 4.0)]),
    "blank lines between records": Readable(
        "age,pay\n\n1,2\n\n\n3,4\n\n", (AGE, PAY), [(1, 2.0), (3, 4.0)]
    ),
    "a blank line in a single column": Readable("age\n1\n\n3\n", (AGE,), [(1,), (None,), (3,)]),
    "a header with a trailing delimiter": Readable("age,pay,\n1,2,\n", (AGE, PAY), [(1, 2.0)]),
    # Quotes
    "delimiters, quotes and line ends in quotes": Readable(
        'note,age\r\n"a, ""b""\nc",1\r\n"d",2\r\n', (AGE,), [(1,), (2,)]
    ),
    "everything quoted": Readable(
        '"town","age"\n"Köln","1"\n"",""\n', (TOWN, AGE), [("Köln", 1), (None, None)]
    ),
    "quotes inside an unquoted field": Readable('note,age\n5" pipe,1\n', (AGE,), [(1,)]),
    "Excel's formula for text": Readable('town,age\n="001",1\n', (TOWN, AGE), [('="001"', 1)]),
    # Numbers
    "thousands": Readable(
        'pay\n"1,234.5"\n"2,089"\n999\n"1,23"\n"12,34"\n"1,2345"\n',
        (PAY,),
        [(1234.5,), (2089.0,), (999.0,), (UNREADABLE,), (UNREADABLE,), (UNREADABLE,)],
        {"thousands": ","},
    ),
    "thousands that are not declared": Readable(
        'pay\n"2,089"\n2 089\n2\'089\n2_089\n3\n', (PAY,), [(UNREADABLE,)] * 4 + [(3.0,)]
    ),
    "points and a decimal comma": Readable(
        "pay\n1.234,5\n1.5\n1.234\n3,25\n",
        (PAY,),
        [(1234.5,), (UNREADABLE,), (1234.0,), (3.25,)],
        GERMAN,
    ),
    "points under a decimal comma, no thousands": Readable(
        "pay;age\n1.234;1\n1,5;2\n",
        (PAY, AGE),
        [(UNREADABLE, 1), (1.5, 2)],
        {"delimiter": ";", "decimal": ","},
    ),
    "spaces as thousands": Readable(
        "pay\n1\u00a0234,5\n 7 \n1 234\n",
        (PAY,),
        [(1234.5,), (7.0,), (UNREADABLE,)],
        {"decimal": ",", "delimiter": ";", "thousands": "\u00a0"},
    ),
    "apostrophes as thousands": Readable(
        "pay\n1'234.50\n", (PAY,), [(1234.5,)], {"thousands": "'"}
    ),
    "Indian groups": Readable('pay\n"12,34,567"\n', (PAY,), [(1234567.0,)], {"thousands": ","}),
    "exponents and huge numbers": Readable(
        "pay\n1e3\n1E+03\n1e400\n-1e400\n.5\n5.\n+5\n",
        (PAY,),
        [(1000.0,), (1000.0,), (float("inf"),), (float("-inf"),), (0.5,), (5.0,), (5.0,)],
    ),
    "units and Excel's errors": Readable(
        "pay\n$5\n5%\n(5)\n5-\n#DIV/0!\n#N/A\n'5\n\u22125\n5\n",
        (PAY,),
        [(UNREADABLE,)] * 8 + [(5.0,)],
    ),
    "mixed types": Readable(
        "age,grade,flag\n1,1,true\nn/a,2.5,FALSE\n3.7,x,vrai\n,,\n2000-01-02,3,0\n",
        (AGE, GRADE, FLAG),
        [
            (1, 1, True),
            (UNREADABLE, 2.5, False),
            (3.7, UNREADABLE, UNREADABLE),
            (None, None, None),
            (UNREADABLE, 3, False),
        ],
    ),
    "declared nulls": Readable(
        'town,age,pay\nNA,-99,.\nKöln,NA,"."\n,99,-99.0\n',
        (TOWN, AGE, PAY),
        [(None, None, None), ("Köln", None, None), (None, 99, -99.0)],
        {"null_values": ("NA", "-99", ".")},
    ),
    # Dates
    "ISO dates": Readable(
        "day\n2000-01-02\n2000-01-02T23:30:00-05:00\n2000/1/2\n 2000-01-02 \n",
        (DAY,),
        [(JAN_2,)] * 4,
    ),
    "other dates without a format": Readable(
        "day\n02.01.2000\n1/2/2000\n20000102\n36527\n99-01-02\n2000-02-30\nepoch\ninfinity\n2000-01-02\n",
        (DAY,),
        [(UNREADABLE,)] * 8 + [(JAN_2,)],
    ),
    "day first": Readable(
        "day\n1/2/2000\n01/02/2000\n31/02/2000\n2000-02-01\n1/2/00\ninfinity\n\n",
        (DAY,),
        [(FEB_1,), (FEB_1,), (UNREADABLE,), (UNREADABLE,), (UNREADABLE,), (UNREADABLE,), (None,)],
        {"date_format": "%d/%m/%Y"},
    ),
    "month first": Readable(
        "day\n2/1/2000\n13/1/2000\n", (DAY,), [(FEB_1,), (UNREADABLE,)], {"date_format": "%m/%d/%Y"}
    ),
    "names of months, and two digits of a year": Readable(
        "day\n1-Feb-00\n2-JAN-00\n", (DAY,), [(FEB_1,), (JAN_2,)], {"date_format": "%d-%b-%y"}
    ),
    "dates with times": Readable(
        "day\n01.02.2000 13:45\n01.02.2000\n",
        (DAY,),
        [(FEB_1,), (UNREADABLE,)],
        {"date_format": "%d.%m.%Y %H:%M"},
    ),
    # Size
    "a huge field": Readable('age,note\n1,"' + "x,\n" * 500_000 + '"\n2,y\n', (AGE,), [(1,), (2,)]),
    "three hundred columns": wide(300),
    "two thousand columns": wide(2000),
    "no records": Readable("age,pay\n", (AGE, PAY), []),
}

FAULTY = {
    "latin-1 as utf-8": Faulty("town,age\nKöln,1\n".encode("latin-1"), Fault.ENCODING),
    "latin-1 header as utf-8": Faulty("größe,town\n1,x\n".encode("latin-1"), Fault.ENCODING),
    "latin-1 far into a file": Faulty(
        b"town,age\n" + b"x,1\n" * 50_000 + b"\xe9,1\n", Fault.ENCODING
    ),
    "windows-1252 as latin-1": Faulty(
        "town\n5 €\n".encode("cp1252"), Fault.ENCODING, {"encoding": "latin-1"}
    ),
    "bytes that windows-1252 lacks": Faulty(
        b"town\n\x81\n", Fault.ENCODING, {"encoding": "windows-1252"}
    ),
    "utf-16 as utf-8": Faulty("town\nKöln\n".encode("utf-16"), Fault.ENCODING),
    "utf-16 without a mark, as utf-8": Faulty("town\nabc\n".encode("utf-16-le"), Fault.ENCODING),
    "utf-16 without a mark": Faulty(
        "town\nKöln\n".encode("utf-16-be"), Fault.ENCODING, {"encoding": "utf-16"}
    ),
    "utf-8 with mark as latin-1": Faulty(
        "\ufefftown\nKöln\n", Fault.ENCODING, {"encoding": "latin-1"}
    ),
    "utf-16 cut off": Faulty(
        "town\nKöln\n".encode("utf-16")[:-1], Fault.ENCODING, {"encoding": "utf-16"}
    ),
    "semicolons, not declared": Faulty("town;age\nKöln;1\n", Fault.DELIMITER, said=("';'",)),
    "tabs, not declared": Faulty("town\tage\nKöln\t1\n", Fault.DELIMITER, said=("a tab",)),
    "commas where semicolons are declared": Faulty(
        "town,age\nKöln,1\n", Fault.DELIMITER, {"delimiter": ";"}, ("','",)
    ),
    "a short row": Faulty("town,age\nKöln,1\nÅrhus\n", Fault.RAGGED),
    "a long row": Faulty("town,age\nKöln,1\nÅrhus,2,3\n", Fault.RAGGED),
    "decimal commas between commas": Faulty("age,town\n1,5,Köln\n", Fault.RAGGED),
    "a footer": Faulty("town,age\nKöln,1\n\n2 records\n", Fault.RAGGED),
    "a line of spaces": Faulty("town,age\n  \nKöln,1\n", Fault.RAGGED),
    "a file cut off": Faulty("town,age\nKöln,1\nÅrh", Fault.RAGGED),
    "names of rows without a header": Faulty("town,age\n1,Köln,1\n", Fault.RAGGED),
    "an open quote": Faulty('town,age\nKöln,1\n"Århus,2\n', Fault.QUOTES),
    "text after a closing quote": Faulty('town,age\n"Kö"ln,1\n', Fault.QUOTES),
    "backslashes before quotes": Faulty('town,age\n"a \\"b\\" c",1\n', Fault.QUOTES),
    "an open quote in the header": Faulty('town,"age\nKöln,1\n', Fault.HEADER),
    "line ends of two kinds": Faulty("town,age\nKöln,1\r\nÅrhus,2\n", Fault.LINE_ENDS),
    "a line of three megabytes": Faulty(
        "town,age\nKöln,1\n" + "x" * 3_000_000 + ",2\n", Fault.LONG_LINE
    ),
    "an empty file": Faulty("", Fault.HEADER),
    "blank lines": Faulty("\n\n\n", Fault.HEADER),
    "a blank first line": Faulty("\ntown,age\nKöln,1\n", Fault.HEADER),
    "Excel's line of the separator": Faulty(
        "sep=;\r\ntown;age\r\nKöln;1\r\n", Fault.HEADER, {"delimiter": ";"}
    ),
    "a workbook": Faulty(XLSX.getvalue(), Fault.NOT_TEXT),
    "an old workbook": Faulty(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), Fault.NOT_TEXT),
    "compressed under another name": Faulty(gzip.compress(b"town\nx\n"), Fault.NOT_TEXT),
    "compressed and cut off": Faulty(COMPRESSED[:-9000], Fault.COMPRESSION, suffix=".csv.gz"),
    "compressed and cut off at its end": Faulty(
        COMPRESSED[:-9], Fault.COMPRESSION, suffix=".csv.gz"
    ),
    "compressed and cut off, in latin-1": Faulty(
        COMPRESSED[:-9], Fault.COMPRESSION, {"encoding": "latin-1"}, suffix=".csv.gz"
    ),
    "compressed and damaged": Faulty(
        COMPRESSED[:9000] + b"xyz" + COMPRESSED[9003:], Fault.COMPRESSION, suffix=".csv.gz"
    ),
}

ALIKE = {
    "windows-1250", "utf-16 little end", "decomposed letters are other letters",
    "a NUL in a number", "bar", "comma between fields and in numbers", "no end of the last line",
    "blank lines between records", "everything quoted", "Excel's formula for text",
    "points under a decimal comma, no thousands", "spaces as thousands", "apostrophes as thousands",
    "Indian groups", "thousands that are not declared", "month first", "two thousand columns",
    "utf-8 with mark as latin-1", "latin-1 header as utf-8", "utf-16 without a mark, as utf-8",
    "utf-16 cut off", "tabs, not declared", "a long row", "decimal commas between commas",
    "a line of spaces", "names of rows without a header", "an old workbook", "blank lines",
    "text after a closing quote", "compressed and cut off at its end",
    "compressed and cut off, in latin-1",
}  # fmt: skip
"""Files that are like another one, which CI leaves to the night."""


def files(cases: Mapping[str, object]) -> list[Any]:
    night = pytest.mark.nightly
    return [pytest.param(name, marks=night) if name in ALIKE else name for name in cases]


LINES = {
    "latin-1 as utf-8": 2,
    "latin-1 far into a file": 50_002,
    "windows-1252 as latin-1": 2,
    "bytes that windows-1252 lacks": 2,
    "utf-16 cut off": 2,
    "a short row": 3,
    "a long row": 3,
    "decimal commas between commas": 2,
    "a footer": 4,
    "a line of spaces": 2,
    "a file cut off": 3,
    "names of rows without a header": 2,
    "an open quote": 3,
    "text after a closing quote": 2,
    "backslashes before quotes": 2,
    "a line of three megabytes": 3,
    "line ends of two kinds": None,
    **{name: None for name, case in FAULTY.items() if case.fault is Fault.COMPRESSION},
}
"""Where the curator is told that a fault is, if not on the first line."""


def source_of(case: Readable | Faulty, folder: Path) -> FileSource:
    path = folder / f"a{case.suffix}"
    content = case.content
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return FileSource(str(path), "csv", CsvOptions(**case.options))


def is_outside(column: Column, value: Any) -> bool:
    if isinstance(column, Categorical):
        return value not in column.categories
    if isinstance(column, Numeric):
        return not column.edges[0] <= value <= column.edges[-1]
    if isinstance(column, Integer):
        return not column.lower <= value < column.upper + 1
    return not column.first <= value <= column.last


@pytest.mark.parametrize("name", files(READABLE))
def test_what_is_read_is_right(name: str, tmp_path: Path) -> None:
    case = READABLE[name]
    domain, source = Domain(case.columns), source_of(case, tmp_path)
    found = scan(source, domain, [domain], scratch=tmp_path)
    profiled = found.profile
    assert profiled.n_records == len(case.records)
    for column, seen, values in zip(
        case.columns, profiled.columns, zip(*case.records, strict=True), strict=False
    ):
        there = [value for value in values if value is not None and value is not UNREADABLE]
        assert (seen.n_null, seen.n_unreadable) == (values.count(None), values.count(UNREADABLE))
        assert seen.n_outside == sum(is_outside(column, value) for value in there), column.name
    read = [
        {
            column.name: None if value is UNREADABLE else value
            for column, value in zip(case.columns, record, strict=True)
        }
        for record in case.records
    ]
    (table,) = found.tables()
    cells = dict(zip(table.cells.tolist(), table.counts.tolist(), strict=True))
    assert cells == Counter(map(domain.cell_of, read))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a{case.suffix}"]


@pytest.mark.parametrize("name", files(FAULTY))
def test_what_is_not_read_is_named(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = FAULTY[name]
    domain, source = Domain((TOWN, AGE)), source_of(case, tmp_path)
    with pytest.raises(StatpressError) as caught:
        count(source, domain, scratch=tmp_path)
    expected = cannot_be_read(source.pattern, case.fault, *case.said)
    assert type(caught.value) is SourceUnreadableError
    assert str(caught.value) == str(expected)
    assert caught.value.__context__ is None
    line = LINES.get(name, 1)
    place = "" if line is None else f"line {line} of "
    assert f"fault of the source: {case.fault.name}: {place}{source.pattern}" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == [f"a{case.suffix}"]


@pytest.mark.parametrize(
    "content", ["1,Köln\n", "Town,Age\nKöln,1\n", "town,town,age\nx,y,1\n", " town,age\nx,1\n"]
)
def test_a_header_of_other_names_is_not_guessed_at(content: str, tmp_path: Path) -> None:
    source = source_of(Readable(content, (TOWN,), []), tmp_path)
    with pytest.raises(ColumnNotFoundError) as caught:
        count(source, Domain((TOWN,)), scratch=tmp_path)
    double = "The column 'town' is more than once in the source."
    none = "The source has no column 'town' (names are compared exactly)."
    assert caught.value.what == (double if content.startswith("town,town") else none)


def test_there_are_forty_files_and_every_fault_has_one() -> None:
    assert len(READABLE) + len(FAULTY) >= 40
    quick = {case.fault for name, case in FAULTY.items() if name not in ALIKE}
    assert quick | {Fault.HEADERS} == set(Fault)
    assert {*READABLE, *FAULTY} > ALIKE


@pytest.mark.parametrize(
    ("field", "column", "options", "keys"),
    [
        ("1,5", PAY, {}, 'decimal: ","'),
        pytest.param("-,25", PAY, {}, 'decimal: ","', marks=pytest.mark.nightly),
        pytest.param("1.5", PAY, {"decimal": ","}, 'decimal: "."', marks=pytest.mark.nightly),
        ("1.234,5", PAY, {}, 'decimal: ",", thousands: "."'),
        ("1,234,567.5", PAY, {}, 'thousands: ","'),
        pytest.param(
            "2,089", AGE, {}, 'thousands: ",", or decimal: ","', marks=pytest.mark.nightly
        ),
        pytest.param("1'000", AGE, {}, 'thousands: "\'"', marks=pytest.mark.nightly),
        ("3;4", AGE, {}, 'delimiter: ";"'),
        ("3|x", PAY, {"delimiter": ";"}, 'delimiter: "|"'),
        ("n/a", AGE, {}, 'null_values: ["n/a"]'),
        ("24.12.1999", DAY, {}, 'date_format: "%d.%m.%Y"'),
        pytest.param("12/24/1999", DAY, {}, 'date_format: "%m/%d/%Y"', marks=pytest.mark.nightly),
        pytest.param("24/12/99", DAY, {}, 'date_format: "%d/%m/%y"', marks=pytest.mark.nightly),
        ("1/2/1999", DAY, {}, 'date_format: "%d/%m/%Y", or "%m/%d/%Y"'),
        pytest.param("1999.12.24", DAY, {}, 'date_format: "%Y.%m.%d"', marks=pytest.mark.nightly),
        pytest.param("19991224", DAY, {}, 'date_format: "%Y%m%d"', marks=pytest.mark.nightly),
        ("24-Dec-1999", DAY, {}, 'date_format: "%d-%b-%Y"'),
        ("1999-12-24", DAY, {"date_format": "%d.%m.%Y"}, "no date_format"),
        ("soon", DAY, {}, ""),
        ("four", AGE, {}, ""),
        ("1,2,3", PAY, {}, ""),
    ],
)
def test_the_curator_is_told_with_which_key_a_field_would_be_read(
    tmp_path: Path, field: str, column: Column, options: dict[str, str], keys: str
) -> None:
    """What is told is true: so read, the field is unreadable no more."""
    given = CsvOptions(**options)
    assert likely_keys(field, column.kind, given) == keys
    if not keys or "delimiter" in keys:
        return
    first = (
        {} if keys == "no date_format" else YAML(typ="safe").load(f"{{{keys.split(', or')[0]}}}")
    )
    changed = options | first
    if keys == "no date_format":
        changed.pop("date_format")
    domain, path = Domain(columns=(column,)), tmp_path / "a.csv"
    path.write_text(f'{column.name}\n"{field}"\n')
    for said, unreadable in ((options, 1), (changed, 0)):
        read = CsvOptions(**{k: tuple(v) if k == "null_values" else v for k, v in said.items()})
        found = scan(FileSource(str(path), "csv", read), domain, (domain,), scratch=tmp_path)
        assert found.profile.columns[0].n_unreadable == unreadable, said
