"""Tables in SDMX-CSV 2.0, with their structure in SDMX-ML 3.0, as statistical offices use them.

An observation is a listed cell. Its value is the unbiased estimate of the count, since sums of
estimates stay right (with those of cells that were not drawn, which the structure states), with its
standard error as an attribute; the projected count, which is never negative, is another. Source:
SDMX 3.0, sections 3A (structures) and SDMX-CSV 2.0 (data); codes of status from the SDMX
Cross-Domain Code Lists (CL_OBS_STATUS 2.3, CL_CONF_STATUS 1.3).

Names and values that were not made for SDMX get identifiers (section 3A, the schema
``SDMXCommonReferences.xsd``): components and agencies begin with an ASCII letter and go on with
letters, digits, ``_`` and ``-``; codes may begin with any of these, ``@`` or ``$``. Accents are
taken off, anything else becomes ``_``, and of two identifiers that would be the same the later one
is numbered.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Column, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.bundle.file_formats import read_batches, schema_of, written_file
from statpress.tasks.catalogues.linked_data import Publication
from statpress.tasks.products.publication import LISTED_CELLS, column_from

if TYPE_CHECKING:
    import pyarrow as pa
    from pysdmx.model import Codelist, DataType, ItemReference
    from pysdmx.model.dataflow import Component


def agency(name: str) -> str:
    """An identifier of an agency.

    >>> agency("Institut für Statistik, Österreich")
    'INSTITUT_FUR_STATISTIK_OSTERREICH'
    >>> agency("統計局")
    'AGENCY'
    """
    return _component_name(name) or "AGENCY"


def components(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """Identifiers of components, concepts or code lists, in the order of their names.

    >>> components(["age", "Age", "2nd job", "α"], taken=["AGE"])
    ['AGE_2', 'AGE_3', 'C_2ND_JOB', 'C_4']
    """
    return _distinct(
        (_component_name(name) or f"C_{place}" for place, name in enumerate(names, 1)), taken
    )


def codes(values: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """Identifiers of codes, in the order of their values.

    >>> codes(["007", "a, b", "a. b", "-0.5", "é", ""])
    ['007', 'a_b', 'a_b_2', '-0_5', 'e', 'CODE_6']
    """
    found = (_ascii(value, r"[^A-Za-z0-9_@$-]+") for value in values)
    return _distinct((each or f"CODE_{place}" for place, each in enumerate(found, 1)), taken)


def _component_name(name: str) -> str:
    found = _ascii(name, r"[^A-Za-z0-9_-]+").upper()
    return found if not found or found[0].isalpha() else f"C_{found}"


def _ascii(text: str, others: str) -> str:
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return re.sub(others, "_", plain).strip("_")


def _distinct(found: Iterable[str], taken: Collection[str]) -> list[str]:
    used, distinct = set(taken), []
    for each in found:
        name, number = each, 2
        while name in used:
            name, number = f"{each}_{number}", number + 1
        used.add(name)
        distinct.append(name)
    return distinct


VERSION = "1.0.0"
TIME = "TIME_PERIOD"
VALUE, ERROR, PROJECTED, STATUS, FREEDOM = (
    "OBS_VALUE", "STANDARD_ERROR", "PROJECTED", "OBS_STATUS", "CONF_STATUS",
)  # fmt: skip
FREQUENCY, LOWER, UPPER, LEVEL = "FREQ", "LOWER", "UPPER", "CONFIDENCE"
"""Further ones of a series."""
AREA = "REF_AREA"
"""Of a table of places, that of its level."""
_MOST_ROWS = 10**7
"""Of a table of places: as many as another table has cells at most."""
_RESERVED = (TIME, VALUE, ERROR, PROJECTED, STATUS, FREEDOM, "STRUCTURE", "STRUCTURE_ID", "ACTION")
_OTHER, _UNKNOWN, _NOT_APPLICABLE = "_O", "_U", "_Z"
_FIGURES = {VALUE: "estimate", ERROR: "standard_error", PROJECTED: "projected"}
STATUSES = {"E": "Estimated value", "U": "Low reliability"}
FREEDOMS = {
    "F": "Free (free for publication)",
    "N": "Not for publication, restricted for internal use only",
}


@dataclass(frozen=True)
class Dimension:
    """A column of a table as a dimension.

    Attributes:
        id: Of the component and of its concept.
        column: As it is declared.
        name: For people.
        labels: By code, of the categories that the config labels.
    """

    id: str
    column: Column
    name: str
    labels: Sequence[str]

    @property
    def coded(self) -> bool:
        """Whether its values are listed in a code list."""
        return self.id != TIME and self.column.size <= LISTED_CELLS

    @cached_property
    def codes(self) -> dict[Any, tuple[str, str]]:
        """By value the code and its name; None stands for missing."""
        column = self.column
        values = column.decode(np.arange(column.size - column.missing)).tolist()
        special = {} if column.other_code is None else {column.other_code: _OTHER}
        plain = [str(value).removesuffix(".0") for i, value in enumerate(values)]
        listed = codes(
            [text for i, text in enumerate(plain) if i not in special], (_OTHER, _UNKNOWN)
        )
        rest = iter(listed)
        found = {
            value: (special.get(i) or next(rest), self._name(i, plain[i]))
            for i, value in enumerate(values)
        }
        return found | ({None: (_UNKNOWN, "missing")} if column.missing else {})

    def code_of(self, value: Any) -> str:
        """The code of a published value."""
        if self.coded:
            return self.codes[value][0]
        return _UNKNOWN if value is None else str(value)

    def _name(self, code: int, plain: str) -> str:
        """What a code means: its label, the range of its cell, or the value itself."""
        column = self.column
        if code < len(self.labels):
            return self.labels[code]
        if isinstance(column, Ranges):
            own = np.array([code])
            if column.is_special(own)[0]:
                return plain
            code = int(column.bins_of(own)[0])
        if isinstance(column, Numeric):
            (first,), (last,) = column.limits_of(column.codes_of_bins(np.array([code])))
            return plain if first == last else f"{first:g} to {last:g}"
        if isinstance(column, Integer) and column.width > 1:
            first = column.begin_of(code)
            return f"{first} to {first + column.width - 1}"
        return plain


@dataclass(frozen=True)
class Table:
    """A product of kind ``table`` as a dataflow, or the table of places that a file of it has.

    Attributes:
        publication: The bundle's public files.
        product: Its name.
        stem: Of its file.
        id: Of the dataflow.
    """

    publication: Publication
    product: str
    stem: str
    id: str

    @property
    def agency(self) -> str:
        """The identifier of its publisher."""
        return _publisher(self.publication)

    @cached_property
    def resource(self) -> Mapping[str, Any]:
        """Its file as the data package describes it."""
        stems = (r for r in self.publication.package["resources"] if "schema" in r)
        return next(r for r in stems if r["path"].rpartition(".")[0] == f"data/{self.stem}")

    @property
    def title(self) -> str:
        """For people."""
        return str(self.resource.get("title", self.stem))

    @property
    def figures(self) -> Mapping[str, str]:
        """By component the column of the file; some tables of places have no projected counts."""
        names = {each["name"] for each in self.resource["schema"]["fields"]}
        return {id: name for id, name in _FIGURES.items() if name in names}

    @property
    def created(self) -> str | None:
        """When its release was made."""
        return self.publication.created

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Its declared columns; the first of dates without nulls, next to others, is the time.

        That of places comes first in its file.
        """
        fields = [each for each in self.resource["schema"]["fields"] if "declared" in each]
        columns = [column_from(each["declared"]) for each in fields]
        times = [i for i, c in enumerate(columns) if isinstance(c, Date) and not c.missing]
        areas = _has_places(self.publication.privacy["products"][self.product])
        ids = components([each["name"] for each in fields], (*_RESERVED, *[AREA] * areas))
        ids[:areas] = [AREA] * areas
        if times and len(columns) > 1:
            ids[times[0]] = TIME
        found = (
            Dimension(
                id,
                column,
                str(field.get("title", field["name"])),
                [each["label"] for each in field.get("categories", ())],
            )
            for id, column, field in zip(ids, columns, fields, strict=True)
        )
        return tuple(sorted(found, key=lambda each: each.id == TIME))  # which a structure has last

    @property
    def unbiased(self) -> bool:
        """Whether its estimates are right on average."""
        return bool(self.publication.privacy["products"][self.product].get("unbiased", True))

    @property
    def undrawn(self) -> float:
        """The estimate of a cell without an observation, which sums need; 0 if all have one."""
        stated = self.publication.privacy["products"][self.product]
        uniform = stated.get("expected_error", {}).get("uniform_share") or 0.0
        if not uniform:
            return 0.0
        return -float(stated["n_records"] * uniform / (1 - uniform) / int(stated["n_cells"]))

    @property
    def status(self) -> str:
        """Of all its observations: estimated, or of low reliability where most is noise."""
        verdict = self.publication.privacy["products"][self.product].get("verdict", {})
        return "U" if verdict.get("name") == "mostly_noise" else "E"

    @property
    def freedom(self) -> str:
        """Whether it may be published."""
        return "F" if self.publication.privacy.get("publishable", True) else "N"


def _publisher(publication: Publication) -> str:
    said = publication.contributor("publisher")
    return agency(said["title"] if said else "")


def tables(publication: Publication) -> tuple[Table, ...]:
    """The products of kind ``table``, and all tables of products of places but the largest."""
    stated = publication.privacy["products"]
    found = []
    for name, each in stated.items():
        if each.get("kind") == "table":
            places = _has_places(each)
            found += [(name, stem) for stem in (_stems(publication, name) if places else [name])]
    ids = components([stem for _, stem in found])
    return tuple(Table(publication, *names, id) for names, id in zip(found, ids, strict=True))


def _has_places(stated: Mapping[str, Any]) -> bool:
    return bool(stated["mechanism"] == "place_tables")


def _stems(publication: Publication, product: str) -> list[str]:
    """The files of a product of places that are tables, each once whatever its formats."""
    found = []
    for resource in publication.package["resources"]:
        fields = resource.get("schema", {}).get("fields", ())
        declared = [column_from(each["declared"]) for each in fields if "declared" in each]
        own = declared and resource.get("product") == product
        if own and math.prod(column.size for column in declared) <= _MOST_ROWS:
            found.append(resource["path"].rpartition(".")[0].removeprefix("data/"))
    return list(dict.fromkeys(found))


def observations(table: Table) -> bytes:
    """The table as SDMX-CSV 2.0, a row for each row of its file."""
    sink = io.BytesIO()
    write_observations(table, sink)
    return sink.getvalue()


def write_observations(table: Table, sink: BinaryIO) -> None:
    """Write the same into a file, a part of the rows at a time."""
    import pyarrow as pa
    import pyarrow.csv

    dimensions = table.dimensions
    ids = [each.id for each in dimensions]
    figures = table.figures
    names = ["STRUCTURE", "STRUCTURE_ID", "ACTION", *ids, *figures, STATUS, FREEDOM]
    schema = pa.schema([pa.field(n, pa.float64() if n in figures else pa.string()) for n in names])
    constant = {
        "STRUCTURE": "dataflow",
        "STRUCTURE_ID": f"{table.agency}:{table.id}({VERSION})",
        "ACTION": "I",
        STATUS: table.status,
        FREEDOM: table.freedom,
    }
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    with pyarrow.csv.CSVWriter(sink, schema, write_options=options) as writer:
        for batch in _batches(table):
            columns = {each.id: _coded(each, batch) for each in dimensions}
            columns |= {id: batch.column(name) for id, name in figures.items()}
            columns |= {
                name: pa.repeat(pa.scalar(text), batch.num_rows) for name, text in constant.items()
            }
            writer.write(pa.record_batch([columns[name] for name in names], schema=schema))


def _batches(table: Table) -> Iterator[pa.RecordBatch]:
    """The rows of the table's file, whichever format it has."""
    import pyarrow as pa

    path = written_file(table.publication.folder, table.stem)
    assert path is not None
    schema = schema_of(Domain(tuple(each.column for each in table.dimensions)))
    for name in table.figures.values():
        schema = schema.append(pa.field(name, pa.float64(), nullable=False))
    return read_batches(path, schema)


def _coded(dimension: Dimension, batch: pa.RecordBatch) -> pa.Array:
    """A column's codes, looked up once for each distinct value."""
    import pyarrow as pa

    coded = batch.column(dimension.column.name).dictionary_encode()
    codes = pa.array([dimension.code_of(v) for v in coded.dictionary.to_pylist()], pa.string())
    found = codes.take(coded.indices)
    return found.fill_null(dimension.code_of(None)) if found.null_count else found


_MEASURE = "Unbiased estimate of the number of records; may be negative"
_BIASED = "Estimate of the number of records; biased, by an amount that depends on the data"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTES = {
    ERROR: ("Standard error of the estimate", "DOUBLE"),
    PROJECTED: ("The nearest counts to the estimates that are not negative and add up", "DOUBLE"),
    LOWER: ("Lower end of the interval", "DOUBLE"),
    UPPER: ("Upper end of the interval", "DOUBLE"),
    LEVEL: ("Level of the interval", "DOUBLE"),
    STATUS: ("Observation status", "STRING"),
    FREEDOM: ("Confidentiality status", "STRING"),
}
_OF_TABLES = (ERROR, PROJECTED, STATUS, FREEDOM)
_OF_SERIES = (ERROR, LOWER, UPPER, LEVEL, STATUS, FREEDOM)


def structure(table: Table) -> bytes:
    """The message with all that is needed to read the table's observations."""
    from pysdmx.model import DataType

    lists = {each.id: _code_list(table, each) for each in table.dimensions if each.coded}
    concepts = {each.id: (each.name, _type_of(each)) for each in table.dimensions}
    concepts |= {VALUE: (measure_in_words(table), DataType.DOUBLE)}
    attributes = [id for id in _OF_TABLES if id in table.figures or id not in _FIGURES]
    return _message(table, concepts, lists, attributes, STATUSES)


def _message(
    flow: Table | Series,
    concepts: Mapping[str, tuple[str, DataType]],
    lists: Mapping[str, Codelist],
    attributes: Sequence[str],
    statuses: Mapping[str, str],
) -> bytes:
    """A dataflow with its structure, concepts and code lists.

    Args:
        flow: What it is of.
        concepts: Name and type of dimensions and measure.
        lists: Those of the dimensions that are coded.
        attributes: Of each observation.
        statuses: That an observation may have.
    """
    from pysdmx.io import write_sdmx
    from pysdmx.io.format import Format
    from pysdmx.model import Concept, ConceptScheme, DataType, Organisation
    from pysdmx.model.dataflow import Components, Dataflow, DataStructureDefinition
    from pysdmx.model.message import Header

    lists = {
        **lists,
        STATUS: _listed(flow, "CL_OBS_STATUS", "Observation status", statuses),
        FREEDOM: _listed(flow, "CL_CONF_STATUS", "Confidentiality status", FREEDOMS),
    }
    described = {id: _ATTRIBUTES[id] for id in attributes}
    concepts = {
        **concepts,
        **{id: (said, DataType[kind]) for id, (said, kind) in described.items()},
    }
    named: dict[str, Any] = {"agency": flow.agency, "version": VERSION}
    scheme = ConceptScheme(
        id=f"CS_{flow.id}",
        name=f"Concepts of: {flow.title}",
        items=[Concept(id=id, name=words, dtype=kind) for id, (words, kind) in concepts.items()],
        **named,
    )
    components = [_component(flow, id, kind, lists.get(id)) for id, (_, kind) in concepts.items()]
    definition = DataStructureDefinition(
        id=f"DSD_{flow.id}", name=flow.title, components=Components(components), **named
    )
    dataflow = Dataflow(id=flow.id, name=flow.title, structure=definition, **named)
    created = flow.created or "1970-01-01T00:00:00Z"
    header = Header(
        id=f"{flow.id}_{created.translate(str.maketrans('', '', ':-'))}",
        prepared=datetime.datetime.fromisoformat(created.replace("Z", "+00:00")),
        sender=Organisation(id=flow.agency),
    )
    text = write_sdmx(
        [*lists.values(), scheme, definition, dataflow],
        Format.STRUCTURE_SDMX_ML_3_0,
        header=header,
        prettyprint=True,
    )
    assert text is not None
    return text.encode("utf-8")


def measure_in_words(table: Table) -> str:
    """What an observation's value is, and that of a cell without one, which sums need."""
    words = _MEASURE if table.unbiased else _BIASED
    if not table.undrawn:
        return words
    return f"{words}; a cell without an observation was not drawn: {table.undrawn:.6g} records"


def _component(flow: Table | Series, id: str, kind: DataType, codes: Codelist | None) -> Component:
    """A dimension, the measure, or an attribute of each observation."""
    from pysdmx.model.dataflow import Component, Role

    urn = "urn:sdmx:org.sdmx.infomodel.codelist.Codelist={}:{}({})"
    role = Role.MEASURE if id == VALUE else Role.ATTRIBUTE if id in _ATTRIBUTES else Role.DIMENSION
    return Component(
        id=id,
        required=id not in (LOWER, UPPER, LEVEL) and not (id == ERROR and isinstance(flow, Series)),
        role=role,
        concept=_reference(flow, id),
        local_dtype=kind,
        local_codes=codes,
        local_enum_ref=None if codes is None else urn.format(flow.agency, codes.id, VERSION),
        attachment_level="O" if role == Role.ATTRIBUTE else None,
    )


def _reference(flow: Table | Series, id: str) -> ItemReference:
    from pysdmx.model import ItemReference

    return ItemReference(
        sdmx_type="Concept",
        agency=flow.agency,
        id=f"CS_{flow.id}",
        version=VERSION,
        item_id=id,
    )


def _type_of(dimension: Dimension) -> DataType:
    from pysdmx.model import DataType

    return DataType.PERIOD if dimension.id == TIME else DataType.STRING


def _code_list(table: Table, dimension: Dimension) -> Codelist:
    codes = dict(dimension.codes.values())
    return _listed(table, f"CL_{table.id}_{dimension.id}", dimension.name, codes)


def _listed(flow: Table | Series, id: str, name: str, codes: Mapping[str, str]) -> Codelist:
    from pysdmx.model import Code, Codelist

    items = [Code(id=code, name=_xml_text(words)) for code, words in codes.items()]
    return Codelist(id=id, name=name, items=items, agency=flow.agency, version=VERSION)


def _xml_text(words: str) -> str:
    """A name that an XML document can hold, which is never empty."""
    return _NOT_XML.sub("\ufffd", words).strip() or "(empty)"


_FREQUENCIES = {"year": ("A", "Annual"), "quarter": ("Q", "Quarterly"), "month": ("M", "Monthly"),
                "week": ("W", "Weekly")}  # fmt: skip
"""By the frequency of a series its code in CL_FREQ 2.1, with its name there."""
_STATUSES_OF_SERIES = {"B": "Time series break", **STATUSES}
_IN_SERIES = {ERROR: "standard_error", LOWER: "lower", UPPER: "upper", LEVEL: "confidence"}


@dataclass(frozen=True)
class Series:
    """The figures of a series as a dataflow: a dimension for each key of its rows, then the time.

    Attributes:
        publication: Of the newest bundle, whose publisher it has.
        id: Of the dataflow.
        title: For people.
        by: A period's length: ``year``, ``quarter``, ``month`` or ``week``.
        keys: What tells its lines apart, by the names in the rows.
        rows: Of all periods in order, each with the keys, ``period``, ``value``, ``lower``,
            ``upper``, ``standard_error``, ``confidence`` and ``definition``, whose change breaks
            a line. A row without a value is no observation.
    """

    publication: Publication
    id: str
    title: str
    by: str
    keys: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    @property
    def agency(self) -> str:
        """The identifier of its publisher."""
        return _publisher(self.publication)

    @property
    def created(self) -> str | None:
        """When the newest release was made."""
        return self.publication.created

    @cached_property
    def codes(self) -> Mapping[str, Mapping[Any, str]]:
        """By dimension the code of every value of its key; None is not applicable."""
        found = {}
        for id, key in zip(components(self.keys, _RESERVED), self.keys, strict=True):
            values = dict.fromkeys(row[key] for row in self.rows)
            listed = [value for value in values if value is not None]
            coded = codes(listed, (_NOT_APPLICABLE,))
            found[id] = dict(zip(listed, coded, strict=True))
            found[id] |= {None: _NOT_APPLICABLE} if None in values else {}
        return found

    def observations(self) -> str:
        """The rows as SDMX-CSV 2.0."""
        written = io.StringIO()
        attributes = [*_IN_SERIES, STATUS, FREEDOM]
        header = ["STRUCTURE", "STRUCTURE_ID", "ACTION", FREQUENCY, *self.codes, TIME, VALUE]
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow([*header, *attributes])
        last: dict[tuple[Any, ...], int] = {}
        for row in self.rows:
            if row["value"] is None:
                continue
            line = tuple(row[key] for key in self.keys)
            broken = last.get(line, row["definition"]) != row["definition"]
            last[line] = row["definition"]
            keyed = zip(self.codes.values(), line, strict=True)
            writer.writerow(
                [
                    "dataflow", f"{self.agency}:{self.id}({VERSION})", "I",
                    _FREQUENCIES[self.by][0], *(coded[value] for coded, value in keyed),
                    row["period"], row["value"], *(row[name] for name in _IN_SERIES.values()),
                    "B" if broken else "E", "F",
                ]
            )  # fmt: skip
        return written.getvalue()

    def structure(self) -> bytes:
        """The message with all that is needed to read the observations."""
        from pysdmx.model import DataType

        known = _FREQUENCIES.values()
        lists = {FREQUENCY: _listed(self, "CL_FREQ", "Frequency", dict(known))}
        concepts = {FREQUENCY: ("Frequency", DataType.STRING)}
        for (id, coded), key in zip(self.codes.items(), self.keys, strict=True):
            name = key.replace("_", " ").capitalize()
            named = {code: str(value or "not applicable") for value, code in coded.items()}
            lists[id] = _listed(self, f"CL_{self.id}_{id}", name, named)
            concepts[id] = (name, DataType.STRING)
        concepts[TIME] = ("Period", DataType.PERIOD)
        concepts[VALUE] = ("Share, or the estimate that the figure names", DataType.DOUBLE)
        return _message(self, concepts, lists, _OF_SERIES, _STATUSES_OF_SERIES)
