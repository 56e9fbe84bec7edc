"""Tables in SDMX, as statistical offices exchange them: SDMX-CSV 2.0 with its structure.

An observation is a listed cell. Its value is the unbiased estimate of the count, since sums of
estimates stay right (with those of cells that were not drawn, which the structure states), with its
standard error as an attribute; the projected count, which is never negative,
is another. Source: SDMX 3.0, sections 3A (structures) and SDMX-CSV 2.0 (data); codes of status
from the SDMX Cross-Domain Code Lists (CL_OBS_STATUS 2.3, CL_CONF_STATUS 1.3).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mechanisms.domain.columns import Column, Date, Integer, Numeric
from mechanisms.domain.domain import Domain
from tasks.formats.arrow_types import schema_of
from tasks.formats.registry import read_batches, written_file
from tasks.metadata import sdmx_identifiers
from tasks.metadata.publication import Publication
from tasks.products.counts.fields import LISTED_CELLS, column_from

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = "1.0.0"
TIME = "TIME_PERIOD"
VALUE, ERROR, PROJECTED, STATUS, FREEDOM = (
    "OBS_VALUE", "STANDARD_ERROR", "PROJECTED", "OBS_STATUS", "CONF_STATUS",
)  # fmt: skip
_RESERVED = (TIME, VALUE, ERROR, PROJECTED, STATUS, FREEDOM, "STRUCTURE", "STRUCTURE_ID", "ACTION")
_OTHER, _UNKNOWN = "_O", "_U"
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
        listed = sdmx_identifiers.codes(
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
        if isinstance(column, Numeric):
            return f"{column.edges[code]:g} to {column.edges[code + 1]:g}"
        if isinstance(column, Integer) and column.width > 1:
            first = column.lower + code * column.width
            return f"{first} to {first + column.width - 1}"
        return plain


@dataclass(frozen=True)
class Table:
    """A product of kind ``table`` as a dataflow.

    Attributes:
        publication: The folder.
        product: Its name.
        id: Of the dataflow.
    """

    publication: Publication
    product: str
    id: str

    @property
    def agency(self) -> str:
        """The identifier of its publisher."""
        said = self.publication.contributor("publisher")
        return sdmx_identifiers.agency(said["title"] if said else "")

    @cached_property
    def resource(self) -> Mapping[str, Any]:
        """Its file as the data package describes it."""
        stems = (r for r in self.publication.package["resources"] if "schema" in r)
        return next(r for r in stems if r["path"].rpartition(".")[0] == f"data/{self.product}")

    @property
    def title(self) -> str:
        """For people."""
        return str(self.resource.get("title", self.product))

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Its declared columns; the first of dates without nulls, next to others, is the time."""
        fields = [each for each in self.resource["schema"]["fields"] if "declared" in each]
        columns = [column_from(each["declared"]) for each in fields]
        times = [i for i, c in enumerate(columns) if isinstance(c, Date) and not c.missing]
        ids = sdmx_identifiers.components([each["name"] for each in fields], _RESERVED)
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


def tables(publication: Publication) -> tuple[Table, ...]:
    """The products of kind ``table``."""
    stated = publication.privacy["products"]
    names = [name for name, each in stated.items() if each.get("kind") == "table"]
    ids = sdmx_identifiers.components(names)
    return tuple(Table(publication, name, id) for name, id in zip(names, ids, strict=True))


def observations(table: Table) -> bytes:
    """The table as SDMX-CSV 2.0, a row for each row of its file."""
    import pyarrow as pa
    import pyarrow.csv

    dimensions = table.dimensions
    ids = [each.id for each in dimensions]
    names = ["STRUCTURE", "STRUCTURE_ID", "ACTION", *ids, *_FIGURES, STATUS, FREEDOM]
    schema = pa.schema([pa.field(n, pa.float64() if n in _FIGURES else pa.string()) for n in names])
    constant = {
        "STRUCTURE": "dataflow",
        "STRUCTURE_ID": f"{table.agency}:{table.id}({VERSION})",
        "ACTION": "I",
        STATUS: table.status,
        FREEDOM: table.freedom,
    }
    sink = io.BytesIO()
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    with pyarrow.csv.CSVWriter(sink, schema, write_options=options) as writer:
        for batch in _batches(table):
            columns = {each.id: _coded(each, batch) for each in dimensions}
            columns |= {id: batch.column(name) for id, name in _FIGURES.items()}
            columns |= {
                name: pa.repeat(pa.scalar(text), batch.num_rows) for name, text in constant.items()
            }
            writer.write(pa.record_batch([columns[name] for name in names], schema=schema))
    return sink.getvalue()


def _batches(table: Table) -> Iterator[pa.RecordBatch]:
    """The rows of the table's file, whichever format it has."""
    import pyarrow as pa

    path = written_file(table.publication.folder, table.product)
    assert path is not None
    schema = schema_of(Domain(tuple(each.column for each in table.dimensions)))
    for name in _FIGURES.values():
        schema = schema.append(pa.field(name, pa.float64(), nullable=False))
    return read_batches(path, schema)


def _coded(dimension: Dimension, batch: pa.RecordBatch) -> pa.Array:
    """A column's codes, looked up once for each distinct value."""
    import pyarrow as pa

    coded = batch.column(dimension.column.name).dictionary_encode()
    codes = pa.array([dimension.code_of(v) for v in coded.dictionary.to_pylist()], pa.string())
    found = codes.take(coded.indices)
    return found.fill_null(dimension.code_of(None)) if found.null_count else found
