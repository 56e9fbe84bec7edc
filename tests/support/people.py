"""Records of persons, of whom some have several, without a record in a structural zero."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from bad_input import CANARY, N

UNITS = 160
RECORD = "unit: record, n_records: 400"
UNIT = "unit: {column: person, max_records: 3}, n_units: 160"
ZEROS = """\
structural_zeros:
  - {age: {upper: 19}, pay: {lower: 60}}
  - {region: [other], age: {lower: 20}}
"""


def persons() -> list[str]:
    """Units of the 400 records: the last 80 have four or more, one has the canary for a name."""
    names = [f"p{i}" for i in range(UNITS - 1)] + [CANARY]
    return [*names, *(names[i % 60] for i in range(N - UNITS))]


def count_persons(agency: Any) -> None:
    """Make persons the units, in an account of their own."""
    agency.replace(RECORD, UNIT)
    agency.replace("dataset: testdata", "dataset: people")
    agency.register(dataset="people", unit="column person", unit_records=3, n_records=480)


def put(agency: Any, name: str, values: list[Any], kind: pa.DataType | None = None) -> None:
    """Set or append a column of the source."""
    table = pq.read_table(agency.source)
    index = table.schema.get_field_index(name)
    column = pa.array(values, kind)
    table = (
        table.append_column(name, column) if index < 0 else table.set_column(index, name, column)
    )
    agency.write_source(table)


def put_people(agency: Any) -> None:
    """Name whose each record is, and leave the structural zeros empty."""
    put(agency, "person", persons())
    ages = [i % 90 for i in range(N)]
    put(agency, "pay", [float(i % 59) if age < 20 else float(i % 97) for i, age in enumerate(ages)])
    regions = [("north", "south", None)[i % 3] for i in range(N)]
    put(agency, "region", regions)
