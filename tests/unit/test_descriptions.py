"""Public descriptions of columns, and the configs that are drafted from them."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.configs.descriptions.described import DescribedColumn, Description, about_of
from statpress.configs.descriptions.description_files import (
    DATA_SUFFIXES,
    column_of,
    read_description,
)
from statpress.configs.descriptions.drafting import MARK, Frame, draft, interview, publication
from statpress.configs.loading import load
from statpress.configs.yaml_text import parse
from statpress.mechanisms.errors import ConfigError, ConfigNotFoundError, DescriptionError

FIELDS = [
    {"name": "pid", "type": "integer"},
    {"name": "sex", "type": "integer", "title": "Sex", "constraints": {"required": True},
     "categories": [{"value": 1, "label": "male"}, {"value": 2, "label": "female"}]},
    {"name": "health", "type": "string", "categories": ["bad", "no", "a, b"],
     "categoriesOrdered": True},
    {"name": "age", "type": "integer", "unit": "years",
     "constraints": {"minimum": 0, "exclusiveMaximum": "121"}},
    {"name": "pay", "type": "number", "description": "Gross,\n with bonuses",
     "constraints": {"minimum": 0.5, "maximum": 1e4}},
    {"name": "born", "type": "date", "constraints": {"minimum": "1900-01-01",
                                                     "maximum": "2010-12-31"}},
    {"name": "works", "type": "boolean", "constraints": {"required": True}},
    {"name": "home", "type": "geopoint"},
]  # fmt: skip
SCHEMA: dict[str, Any] = {"fields": FIELDS, "primaryKey": "pid", "missingValues": ["", "-9"]}
CSVW = {
    "@context": "http://www.w3.org/ns/csvw",
    "url": "people.csv",
    "dc:title": {"@value": "Panel"},
    "tableSchema": {
        "primaryKey": "pid",
        "columns": [
            {"name": "pid", "datatype": "integer"},
            {"name": "sex", "titles": {"en": "Sex"}, "required": True,
             "datatype": {"base": "string", "format": "male|female"}},
            {"name": "age", "datatype": {"base": "nonNegativeInteger", "maxExclusive": "121"},
             "schema:unitText": "years"},
            {"name": "pay", "datatype": {"base": "decimal", "minimum": "0.5", "maximum": 10000}},
            {"name": "born", "datatype": {"base": "date", "minimum": "1900-01-01",
                                          "maximum": "2010-12-31"}},
            {"name": "works", "datatype": {"base": "boolean", "format": "Y|N"}, "required": True},
            {"name": "when", "datatype": "time"},
            {"name": "row", "virtual": True},
        ],
    },
}  # fmt: skip
DDI = """<?xml version="1.0" encoding="{encoding}"?>
<codeBook xmlns="ddi:codebook:2_5">
 <stdyDscr><citation><titlStmt><titl>Häuser panel</titl></titlStmt></citation></stdyDscr>
 <fileDscr ID="F1"><fileTxt><fileName>people.sav</fileName>
  <dimensns><caseQnty>1,200</caseQnty></dimensns></fileTxt></fileDscr>
 <dataDscr>
  <var ID="V1" name="sex" files="F1" intrvl="discrete"><labl>Sex</labl><txt>As  registered</txt>
   <catgry><catValu>1</catValu><labl>male</labl><catStat type="freq">600</catStat></catgry>
   <catgry><catValu>2</catValu><labl>female</labl></catgry>
   <catgry missing="Y"><catValu>-9</catValu><labl>no answer</labl></catgry>
   <varFormat type="numeric"/></var>
  <var ID="V2" name="plz" files="F1"><catgry><catValu>01</catValu></catgry>
   <catgry><catValu>02</catValu></catgry><varFormat type="character"/></var>
  <var ID="V3" name="age" files="F1" intrvl="contin" dcml="0"><labl>Age</labl>
   <valrng><range UNITS="INT" min="0" maxExclusive="121"/></valrng>
   <sumStat type="min">17</sumStat><sumStat type="max">97</sumStat>
   <varFormat type="numeric"/></var>
  <var ID="V4" name="pay" files="F1" intrvl="contin"><sumStat type="max">9731.5</sumStat>
   <invalrng><item VALUE="-9"/><range min="-5" max="-1"/></invalrng>
   <varFormat type="numeric"/></var>
 </dataDscr>
</codeBook>
"""
LIST = """\
name;type;categories;value_labels;lower;upper;bins;missing;label;unit
sex;categorical;1|2;male|female;;;;no;Sex;
region;ordinal;north|mid west|south;;;;;yes;;
pay;numeric;;;0;10000;50;;Pay;EUR

born;date;;;1900-01-01;2010-12-31;;;;
"""


def described(folder: Path, text: str | bytes | dict[str, Any], name: str, **more: Any) -> Any:
    path = folder / name
    if isinstance(text, dict):
        text = json.dumps(text)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_description(path, **more)
    return found, {column.name: column for column in found.columns}


def refused(folder: Path, text: str | bytes | dict[str, Any], name: str, **more: Any) -> str:
    with pytest.raises(DescriptionError) as caught:
        described(folder, text, name, **more)
    assert caught.value.next_step
    return str(caught.value)


def test_a_data_package(tmp_path: Path) -> None:
    package = {"title": "Panel", "resources": [{"path": "data/people.csv", "schema": SCHEMA}]}
    found, columns = described(tmp_path, package, "datapackage.json")
    assert (found.title, found.path, found.missing_codes) == ("Panel", "data/people.csv", ("-9",))
    assert [each.name for each in found.left_out] == ["pid", "home"]
    sex, age, pay = columns["sex"], columns["age"], columns["pay"]
    assert (sex.type, sex.categories, sex.value_labels) == (
        "categorical",
        (1, 2),
        ("male", "female"),
    )
    assert (sex.label, sex.missing) == ("Sex", False)
    assert (columns["health"].type, columns["health"].categories) == (
        "ordinal",
        ("bad", "no", "a, b"),
    )
    assert (age.type, age.lower, age.upper, age.unit, age.missing) == (
        "integer",
        0,
        120,
        "years",
        True,
    )
    assert (pay.type, pay.lower, pay.upper) == ("numeric", Decimal("0.5"), Decimal(10000))
    assert pay.description == "Gross, with bonuses"
    assert columns["born"].upper == datetime.date(2010, 12, 31)
    assert columns["works"].categories == (False, True)


def test_a_schema_by_itself_or_in_a_file_of_its_own(tmp_path: Path) -> None:
    _, columns = described(tmp_path, SCHEMA, "schema.json")
    package = {
        "resources": [{"name": "a", "schema": "schema.json"}, {"name": "b", "path": "b.csv"}]
    }
    assert described(tmp_path, package, "datapackage.json")[1] == columns
    package["resources"][0]["schema"] = "https://example.org/schema.json"
    assert "network" in refused(tmp_path, package, "datapackage.json")
    package["resources"][0]["schema"] = "../../secret.json"
    assert "below the folder" in refused(tmp_path, package, "datapackage.json")


def test_one_of_several_tables_is_chosen(tmp_path: Path) -> None:
    package = {"resources": [{"name": n, "schema": SCHEMA, "path": f"{n}.csv"} for n in "ab"]}
    assert "a, b; one has to be chosen" in refused(tmp_path, package, "p.json")
    assert "none of this name" in refused(tmp_path, package, "p.json", table="c")
    assert described(tmp_path, package, "p.json", table="b")[0].path == "b.csv"


def test_csvw(tmp_path: Path) -> None:
    found, columns = described(tmp_path, CSVW, "people-metadata.json")
    assert (found.title, found.path) == ("Panel", "people.csv")
    assert [each.name for each in found.left_out] == ["pid", "when"]
    assert columns["sex"].categories == ("male", "female")
    assert (columns["sex"].label, columns["sex"].missing) == ("Sex", False)
    age = columns["age"]
    assert (age.lower, age.upper, age.unit, age.missing) == (0, 120, "years", True)
    assert (columns["pay"].lower, columns["pay"].upper) == (Decimal("0.5"), Decimal(10000))
    assert columns["born"].lower == datetime.date(1900, 1, 1)
    assert columns["works"].categories == ("N", "Y")
    group = {"tables": [CSVW, CSVW | {"url": "b.csv"}]}
    assert "people.csv, b.csv" in refused(tmp_path, group, "m.json")
    assert described(tmp_path, group, "m.json", table="b.csv")[0].path == "b.csv"


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1", "utf-16"])
def test_ddi_in_its_own_encoding_and_without_its_statistics(tmp_path: Path, encoding: str) -> None:
    text = DDI.format(encoding=encoding).encode(encoding)
    found, columns = described(tmp_path, text, "codebook.xml")
    assert (found.title, found.path, found.n_records) == ("Häuser panel", "people.sav", 1200)
    sex, age, pay = columns["sex"], columns["age"], columns["pay"]
    assert sex.categories == (1, 2, -9)
    assert sex.value_labels == ("male", "female", "no answer")
    assert (sex.label, sex.description, sex.missing) == ("Sex", "As registered", True)
    assert (columns["plz"].categories, columns["plz"].value_labels) == (("01", "02"), None)
    assert (age.type, age.lower, age.upper) == ("integer", 0, 120)
    assert (pay.type, pay.lower, pay.upper) == ("numeric", None, None)
    assert pay.missing_codes == ("-9", "-5 to -1")
    written = draft(found, Frame())[0]
    for figure in ("17", "97", "9731", "600"):
        assert figure not in written
    assert "not looked at" in written
    assert "pay: {outside_at_most: 0}" in written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;">]><codeBook>&c;</codeBook>', "entities"),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><codeBook>&b;</codeBook>', "entit"),
        ("<codeBook><var></codeBook>", "well-formed"),
        ("<html/>", "not a DDI Codebook"),
        ('<DDIInstance xmlns="ddi:instance:3_2"/>', "Lifecycle"),
        ("<codeBook><dataDscr/></codeBook>", "not a DDI Codebook"),
        ('<?xml version="1.0" encoding="nope"?><codeBook/>', "XML"),
    ],
)
def test_xml_that_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text, "codebook.xml")


def test_an_outside_document_type_is_not_fetched(tmp_path: Path) -> None:
    text = DDI.format(encoding="utf-8").replace(
        "<codeBook", '<!DOCTYPE codeBook SYSTEM "http://127.0.0.1:9/v.dtd">\n<codeBook', 1
    )
    assert len(described(tmp_path, text, "codebook.xml")[1]) == 4


def test_several_data_files_of_a_codebook(tmp_path: Path) -> None:
    text = DDI.format(encoding="utf-8")
    text = text.replace('<fileDscr ID="F1">', '<fileDscr ID="F2"/><fileDscr ID="F1">')
    text = text.replace('name="pay" files="F1"', 'name="pay" files="F2"')
    told = refused(tmp_path, text, "c.xml")
    assert "F2, F1" in told and "two drafts, whose sources and domains stand under 'tables'" in told
    assert [*described(tmp_path, text, "c.xml", table="F2")[1]] == ["pay"]
    assert [*described(tmp_path, text, "c.xml", table="people.sav")[1]] == ["sex", "plz", "age"]


@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
def test_a_list_of_columns(tmp_path: Path, delimiter: str) -> None:
    text = "\ufeff" + LIST.replace(";", delimiter)
    _, columns = described(tmp_path, text, "columns.csv")
    assert [*columns] == ["sex", "region", "pay", "born"]
    assert columns["sex"].categories == (1, 2)
    assert columns["sex"].value_labels == ("male", "female")
    region = columns["region"]
    assert (region.type, region.categories, region.missing) == (
        "ordinal", ("north", "mid west", "south"), True,
    )  # fmt: skip
    assert (columns["pay"].upper, columns["pay"].further) == (Decimal(10000), {"bins": 50})
    assert columns["born"].lower == datetime.date(1900, 1, 1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("Rex,dog,,", "type is not one of"),
        ("a,integer,x,", "not a number"),
        ("a,integer,9,1", "least value is above"),
        ("a,date,31.12.2000,", "not a date"),
        ("a,integer,1,2,3,4", "do not fit"),
        ('a,integer,"1,2', "not CSV"),
        ("a,integer,,\na,integer,,", "described twice"),
        ("estimate,integer,,", "no column"),
        ("a,integer,5,5", "no column"),
        ("", "no column"),
    ],
)
def test_rows_that_are_refused_by_line_without_their_text(
    tmp_path: Path, row: str, said: str
) -> None:
    told = refused(tmp_path, f"name,type,lower,upper\n{row}\n", "columns.csv")
    assert said in told
    assert "Rex" not in told and "31.12" not in told


def faults(folder: Path, text: str | dict[str, Any], name: str) -> list[tuple[str, str]]:
    """Places and faults that one error names."""
    with pytest.raises(DescriptionError) as caught:
        described(folder, text, name)
    return [(each.where, each.what) for each in (caught.value, *caught.value.also)]


def test_all_faults_of_a_list_are_named_at_once(tmp_path: Path) -> None:
    text = """\
name,type,categories,value_labels,lower,upper,bins,missing,by
age,integer,,,old,older,,perhaps,week
sex,categorical,f|m,female,,,few,,
town,string,,,,,,,
pay,numeric,,,9,1,,,
age2,integer,,,0,9,,,
age2,integer,,,0,9,,,
twice,ordinal,a|a,,,,,,
born,date,,,1900-01-01,2000-02-31,,,
a,b,c,d,e,f,g,h,i,j
"""
    place, number = "columns.csv", "This is not a number."
    assert sorted(faults(tmp_path, text, place)) == sorted(
        [
            (f"{place}:2: lower", number),
            (f"{place}:2: upper", number),
            (f"{place}:2", "'missing' is yes or no."),
            (f"{place}:2", "'by' is not year, month or day."),
            (f"{place}:3", "There are 1 value_labels for 2 categories."),
            (f"{place}:3: bins", number),
            (f"{place}:4", "The type of the column 'town', 'string', is not one of categorical, "
             "ordinal, integer, numeric, date, id, text."),
            (f"{place}: pay", "The least value is above the largest."),
            (place, "The column 'age2' is described twice."),
            (f"{place}: twice", "A category is listed twice."),
            (f"{place}:9: upper", "This is not a date such as 2000-12-31."),
            (f"{place}:10", "The row and the header do not fit."),
        ]
    )  # fmt: skip


def test_of_what_may_be_data_only_the_first_fault_is_named(tmp_path: Path) -> None:
    rows = ["a,integer,1", "b,baker,2", "c,baker,3", "d,baker,4"]
    for text in ("\n".join(rows), "\n".join(f"{row},9" for row in rows)):
        ((where, what),) = faults(tmp_path, f"name,type,lower\n{text}\n", "people.csv")
        assert where in ("people.csv:2", "people.csv:3") and "baker" not in what


def test_more_faults_than_anybody_reads_are_not_named(tmp_path: Path) -> None:
    rows = "".join(f"c{i},integer,x\n" for i in range(400))
    named = faults(tmp_path, f"name,type,lower\n{rows}", "columns.csv")
    assert len(named) == 51 and named[-1] == ("columns.csv", "There are more faults.")
    assert named[49] == ("columns.csv:51: lower", "This is not a number.")


def test_all_faults_of_other_forms_are_named_at_once(tmp_path: Path) -> None:
    bounds = {"minimum": "few", "maximum": "many"}
    schema = {
        "fields": [
            {"name": "a", "type": "integer", "constraints": bounds},
            {"name": "b", "type": "number", "constraints": {"minimum": "x"}},
            {"name": "c", "type": "date", "constraints": {"maximum": "31.12.2000"}},
            {"name": "d", "type": "integer", "constraints": {"enum": [1, "x"]}},
            {"name": "", "type": "integer"},
            {"name": "e", "type": "integer"},
        ]
    }
    number, day = "This is not a number.", "This is not a date such as 2000-12-31."
    assert faults(tmp_path, schema, "schema.json") == [
        ("schema.json: fields.0", number),
        ("schema.json: fields.1", number),
        ("schema.json: fields.2", day),
        ("schema.json: fields.3", number),
        ("schema.json", "A column has no printable name."),
    ]
    columns = [
        {"name": "a", "datatype": {"base": "integer", "minimum": "x"}},
        {"name": "b", "datatype": {"base": "date", "minimum": "x", "maximum": "y"}},
        {"name": "c", "datatype": "integer"},
        {"name": "c", "datatype": "integer"},
    ]
    metadata = {"@context": "x", "url": "a.csv", "tableSchema": {"columns": columns}}
    assert faults(tmp_path, metadata, "a-metadata.json") == [
        ("a-metadata.json: columns.0", number),
        ("a-metadata.json: columns.1", day),
        ("a-metadata.json", "The column 'c' is described twice."),
    ]
    ranges = "".join(
        f'<var name="{name}" dcml="{whole}"><valrng><range min="x" max="y"/></valrng></var>'
        for name, whole in (("a", "0"), ("b", "2"))
    )
    assert faults(tmp_path, f"<codeBook><dataDscr>{ranges}</dataDscr></codeBook>", "b.xml") == [
        ("b.xml: a", number),
        ("b.xml: b", number),
    ]


SECRET = b"PAR1 Secretville"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((f"people{suffix}", SECRET) for suffix in sorted(DATA_SUFFIXES)),
        ("people.PARQUET", SECRET),
        ("people.data", b"PAR1\0\0 Secretville"),
        ("people.csv", b"id,age,town\n1,44,Secretville\n"),
        ("people.csv", b"name,type,town\nRex,dog,Secretville\n"),
        ("people.txt", b"Secretville 44\n"),
        ("people.json", b'[{"town": "Secretville"}]'),
        ("people.json", b'{"town": "Secretville"}'),
        ("people.csv", b"name,type\nSecretville,44\n"),
        ("people.csv", "name,type\nOrt,Secretville\xfc\n".encode("latin-1")),
        ("empty.csv", b""),
    ],
)
def test_data_are_refused_and_nothing_of_them_is_told(
    tmp_path: Path, name: str, text: bytes
) -> None:
    told = refused(tmp_path, text, name)
    assert "Secretville" not in told and "44" not in told and "Rex" not in told


def test_a_data_file_is_not_even_opened(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="never reads data"):
        read_description(tmp_path / "not-there.parquet")
    with pytest.raises(ConfigNotFoundError, match="no such file"):
        read_description(tmp_path / "not-there.json")
    with pytest.raises(ConfigNotFoundError, match="folder"):
        read_description(tmp_path)


@pytest.mark.parametrize(
    "text", ['{"fields": [NaN]}', "{", '{"a":' * 100_000, '{"a": 1' + "0" * 5000 + "}"]
)
def test_json_that_is_refused(tmp_path: Path, text: str) -> None:
    assert "JSON" in refused(tmp_path, text, "schema.json")


FRAME = Frame(
    title="Panel: third wave",
    dataset="panel",
    source="data/people.csv",
    n_records=1000,
    epsilon=Decimal(1),
    delta=Decimal("0.000001"),
    described_by="datapackage.json",
)


def test_a_draft_with_all_that_is_needed_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    for text, name in ((SCHEMA, "schema.json"), (CSVW, "m.json"), (LIST, "list.csv")):
        text, blanks = draft(described(tmp_path, text, name)[0], FRAME)
        assert not blanks and MARK + ":" not in text
        assert max(map(len, text.splitlines())) <= 100
        path.write_text(text)
        release = load(path)
    assert release.plan().epsilon <= 1
    assert release.config.source.null_values == []
    assert release.config.domain["sex"].value_labels == ["male", "female"]
    assert release.config.domain["pay"].unit == "EUR"


@pytest.mark.parametrize(
    ("said", "written"),
    [
        (("a.csv", None, None, ()), "source: {path: a.csv}"),
        (("a.csv", ";", "ISO-8859-1", ("NA", "-9")),
         'source: {path: a.csv, encoding: latin-1, delimiter: ";", null_values: [NA, "-9"]}'),
        (("a.csv", "\t", "utf8", ()), 'source: {path: a.csv, delimiter: "\\t"}'),
        (("a.csv", "#", "klingon", ()), "source: {path: a.csv}"),
        (("a.parquet", ";", "latin-1", ("-9",)), "source: {path: a.parquet}"),
    ],
)  # fmt: skip
def test_the_form_of_a_csv_is_taken_over(
    tmp_path: Path, said: tuple[str, str, str, tuple[str, ...]], written: str
) -> None:
    path, delimiter, encoding, codes = said
    column = DescribedColumn(name="age", type="integer", lower=0, upper=99)
    found = Description(
        form="answers", columns=(column,), delimiter=delimiter, encoding=encoding,
        missing_codes=codes,
    )  # fmt: skip
    text, _ = draft(found, replace(FRAME, source=path))
    assert written in text.splitlines()
    assert ("outside_at_most" in text) == (bool(codes) and path != "a.csv")
    (tmp_path / "release.yaml").write_text(text)
    assert load(tmp_path / "release.yaml").config.source.null_values == (
        list(codes) if path == "a.csv" else []
    )


def test_what_is_not_given_is_blank_marked_and_refused(tmp_path: Path) -> None:
    columns = (
        DescribedColumn(name="town", type="categorical"),
        DescribedColumn(name="age", type="integer", lower=0),
        DescribedColumn(name="pay", type="numeric"),
        DescribedColumn(name="born", type="date", upper=datetime.date(2000, 1, 1)),
        DescribedColumn(name="wealth", type="integer", lower=0, upper=999_999),
    )
    text, blanks = draft(Description(form="answers", columns=columns), Frame())
    wanted = {
        "title": "Test", "dataset": "panel", "path": "a.csv", "n_records": "500", "epsilon": "1.0",
        "delta": "1.0e-6", "categories": "[north, south]", "lower": "0", "upper": "99",
        "first": "1990-01-01", "width": "10000",
    }  # fmt: skip
    lines, path = text.splitlines(), tmp_path / "release.yaml"
    assert [blank.key for blank in blanks] == [
        "title", "dataset", "source.path", "privacy.n_records", "budget.epsilon", "budget.delta",
        "domain.town.categories", "domain.age.upper", "domain.pay.lower", "domain.pay.upper",
        "domain.born.first", "domain.wealth.width",
    ]  # fmt: skip
    for i, blank in enumerate(blanks):
        key = blank.key.rpartition(".")[2]
        assert f"{key}:  # {MARK}: {blank.hint}" in lines[blank.line - 1]
        filled = list(lines)
        for j, other in enumerate(blanks):
            name = other.key.rpartition(".")[2]
            if j != i:
                filled[other.line - 1] = filled[other.line - 1].split("#")[0] + wanted[name]
        path.write_text("\n".join(filled))
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert caught.value.where.startswith(f"release.yaml:{blank.line}") or any(
            part in caught.value.what for part in ("n_records", "epsilon", "lower, upper and bins")
        )
        assert not isinstance(caught.value.__context__, AssertionError)
    filled[blanks[-1].line - 1] = filled[blanks[-1].line - 1].split("#")[0] + "10000"
    path.write_text("\n".join(filled))
    assert load(path).plan().products


def test_more_columns_than_microdata_can_have_are_marked() -> None:
    columns = tuple(
        DescribedColumn(name=f"c{i}", type="categorical", categories=(0, 1)) for i in range(101)
    )
    text, (blank,) = draft(Description(form="answers", columns=columns), FRAME)
    assert blank.key == "products.microdata.columns"
    assert "at most 100" in text.splitlines()[blank.line - 1]
    assert len(parse(text, "r").value["products"]["microdata"]["columns"]) == 101


WORDS = st.text(
    st.characters(exclude_categories=("C", "Z")) | st.just(" "), min_size=1, max_size=30
)


@given(name=WORDS, values=st.lists(WORDS, min_size=2, max_size=12, unique=True), label=WORDS)
def test_any_text_comes_back_from_the_draft(name: str, values: list[str], label: str) -> None:
    column = DescribedColumn(
        name=name, type="categorical", categories=tuple(values), label=label, missing=True
    )
    text, _ = draft(Description(form="answers", columns=(column,), title=label), FRAME)
    found = parse(text, "release.yaml").value
    assert found["domain"][name]["categories"] == values
    assert found["domain"][name]["label"] == label
    assert found["products"]["microdata"]["columns"] == [name]


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=8, min_value=-(10**12), max_value=10**12
    )
)
def test_any_bound_comes_back_from_the_draft(bound: Decimal) -> None:
    column = DescribedColumn(name="a", type="numeric", lower=bound, upper=bound + 1)
    found = parse(draft(Description(form="answers", columns=(column,)), FRAME)[0], "r").value
    assert (found["domain"]["a"]["lower"], found["domain"]["a"]["upper"]) == (bound, bound + 1)


def test_an_interview_asks_again_for_what_cannot_be_read() -> None:
    answers = iter(
        [
            "sex", "kind", "categorical", "f|m", "female", "female|male", "perhaps", "no", "Sex",
            "", "sex", "age", "Integer", "old", "0", "", "", "yes", "", "years", "",
        ]
    )  # fmt: skip
    told: list[str] = []
    found = interview(lambda question: next(answers), told.append)
    assert next(answers, None) is None
    assert len(told) == 5
    sex, age = found.columns
    assert sex == DescribedColumn(
        name="sex", type="categorical", categories=("f", "m"), value_labels=("female", "male"),
        label="Sex",
    )  # fmt: skip
    assert (age.type, age.lower, age.upper, age.missing, age.unit) == (
        "integer", 0, None, True, "years",
    )  # fmt: skip
    with pytest.raises(DescriptionError, match="no column"):
        interview(lambda question: "", told.append)


def test_a_width_that_does_not_tile_is_to_fill_in() -> None:
    age = DescribedColumn(name="a", type="integer", lower=0, upper=500, further={"width": 10})
    whole = replace(age, name="b", upper=499)
    text, blanks = draft(Description(form="answers", columns=(age, whole)), Frame())
    (blank,) = (each for each in blanks if each.key.startswith("domain"))
    assert blank.key == "domain.a.width" and "give upper 499 or 509" in blank.hint
    assert "b: {type: integer, lower: 0, upper: 499, width: 10}" in text


def test_a_list_leaves_out_identifiers_and_text_and_names_other_types(tmp_path: Path) -> None:
    listed = "name,type,lower,upper\npid,id,,\nage,integer,0,99\nnote,Text,,\n"
    found, columns = described(tmp_path, listed, "list.csv")
    assert list(columns) == ["age"]
    text, _ = draft(found, Frame())
    assert (
        "# Left out: pid: it names each record" in text
        and "max_records" in text
        and "# Left out: note:" in text
    )
    said = refused(tmp_path, listed + "town,string,,\n", "list.csv")
    assert said.startswith("list.csv:5: The type of the column 'town', 'string', is not one of")
    records = refused(tmp_path, "name,type\nMüller,baker\nMaier,id\n", "people.csv")
    assert records.startswith("people.csv:2: The type is not") and "baker" not in records


def test_a_list_in_latin_1_is_to_be_saved_as_utf_8(tmp_path: Path) -> None:
    said = refused(tmp_path, "name;type;label\nage;date;Größe\n".encode("latin-1"), "list.csv")
    assert said == "list.csv: The file is not UTF-8 text. Save it as UTF-8."


def test_listed_numbers_are_numbers_unless_written_as_text() -> None:
    def values(text: str) -> Any:
        cells = dict.fromkeys(
            (
                "value_labels",
                "missing",
                "other",
                "label",
                "description",
                "unit",
                "width",
                "bins",
                "by",
            ),
            "",
        )
        return column_of(
            {"name": "a", "type": "ordinal", "categories": text} | cells, ""
        ).categories

    assert values("1|2|-3") == (1, 2, -3)
    assert values("0.5|1") == (Decimal("0.5"), Decimal(1))
    assert values("01|02") == ("01", "02")
    assert values("1|two") == ("1", "two")
    assert values(".|1") == (".", "1")


ABOUT = {
    "description": "A panel of households",
    "publisher": {"name": "Office of Numbers", "url": "https://numbers.example"},
    "contact": {"name": "Data desk", "email": "desk@numbers.example"},
    "licence": "CC-BY-4.0",
    "keywords": ["income", "health"],
    "temporal": {"start": "2000", "end": "2004-06"},
    "spatial": {"name": "Northland"},
}
FRICTIONLESS_ABOUT = {
    "description": "A panel of\nhouseholds",
    "contributors": [
        {"title": "Somebody", "role": "author"},
        {"title": "Office of Numbers", "path": "https://numbers.example", "role": "publisher"},
        {"title": "Data desk", "email": "desk@numbers.example", "roles": ["contact"]},
    ],
    "licenses": [{"name": "CC-BY-4.0", "path": "https://creativecommons.org/licenses/by/4.0/"}],
    "keywords": ["income", "health", "income"],
    "temporal": {"start": "2000", "end": "2004-06"},
    "spatial": {"title": "Northland"},
    "homepage": "https://numbers.example/panel",
    "id": "https://doi.org/10.1234/source",
}
CSVW_ABOUT = {
    "dc:description": {"en": "A panel of households"},
    "dc:publisher": [
        {"schema:name": "Office of Numbers", "schema:url": {"@id": "https://numbers.example"}}
    ],
    "dcat:contactPoint": {"vcard:fn": "Data desk", "vcard:hasEmail": "mailto:desk@numbers.example"},
    "dc:license": {"@id": "https://spdx.org/licenses/CC-BY-4.0.html"},
    "dcat:keyword": ["income", "health"],
    "dc:temporal": "2000/2004-06",
    "dc:spatial": "Northland",
}
DDI_ABOUT = """<stdyDscr><citation><titlStmt><titl>Panel</titl></titlStmt>
 <distStmt><distrbtr URI="https://numbers.example">Office of Numbers</distrbtr>
  <contact email="desk@numbers.example">Data desk</contact></distStmt></citation>
 <stdyInfo><subject><keyword>income</keyword><keyword>health</keyword></subject>
  <abstract>A panel of households</abstract>
  <sumDscr><timePrd event="start" date="2000"/><timePrd event="end" date="2004-06"/>
   <nation>Northland</nation></sumDscr></stdyInfo></stdyDscr>"""


def test_who_publishes_comes_along(tmp_path: Path) -> None:
    """Of each form what it can say; the address and identifier of the source are not taken."""
    package = {**FRICTIONLESS_ABOUT, "resources": [{"path": "people.csv", "schema": SCHEMA}]}
    assert described(tmp_path, package, "datapackage.json")[0].about == ABOUT
    assert described(tmp_path, CSVW | CSVW_ABOUT, "csvw.json")[0].about == ABOUT
    text = re.sub("<stdyDscr>.*</stdyDscr>", DDI_ABOUT, DDI.format(encoding="utf-8"))
    found = described(tmp_path, text, "codebook.xml")[0]
    assert found.about == {k: v for k, v in ABOUT.items() if k != "licence"}


def test_a_drafted_config_says_who_publishes(tmp_path: Path) -> None:
    package = {**FRICTIONLESS_ABOUT, "resources": [{"path": "people.csv", "schema": SCHEMA}]}
    found, _ = described(tmp_path, package, "datapackage.json")
    text, _ = draft(found, Frame(title="Panel", described_by="datapackage.json"))
    assert parse(text, "release.yaml").value["about"] == ABOUT
    assert "see that it is true of the release too" in text
    assert "about:" not in draft(replace(found, about={}), Frame())[0]


def test_what_a_config_would_refuse_is_left_out() -> None:
    assert about_of(
        publisher={"name": "A", "url": "a.example"},
        contact={"name": "B", "email": "nobody"},
        licence={"id": "other-open", "name": "Own terms"},
        keywords=["x" * 200, 5, "a\nb"],
        temporal={"start": "1999", "end": "never"},
        spatial={"url": "https://a.example"},
    ) == {
        "publisher": {"name": "A"},
        "keywords": ["x" * 99 + "…", "a b"],
        "temporal": {"start": "1999"},
    }
    own = {"name": "Own terms", "url": "https://a.example/terms"}
    assert about_of(licence=own)["licence"] == own


def test_an_interview_asks_who_publishes() -> None:
    answers, told = iter(["Office", "not one", "desk@a.example", ""]), []
    found = publication(lambda question: next(answers), told.append)
    assert found == {"publisher": {"name": "Office"}, "contact": {"email": "desk@a.example"}}
    assert told == ["  That is not one."]
