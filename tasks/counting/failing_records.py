"""Where the first record is that stopped a run, for the curator log and for nobody else."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mechanisms.domain.domain import Domain
from tasks.counting import discretise
from tasks.source.files import OpenSource, Source, files_of, open_source

Fate = Literal["missing", "outside", "unreadable"]
"""What a value can be besides one of a declared cell of its own."""
_RECORD = "number of the record"


def first_of(
    source: Source, domain: Domain, refused: Sequence[tuple[str, Fate]], *, scratch: Path
) -> Iterator[tuple[str, Fate, str]]:
    """The first record with a value of some fate, in the order of the files.

    Args:
        source: The private source.
        domain: The declared domain.
        refused: Columns, each with a fate that some record has.
        scratch: Private directory.

    Yields:
        Column, fate and place of each that is found: the record, and of a CSV the line of the file
        and the field.

    Raises:
        SourceError: The source can no longer be read.
    """
    left = list(refused)
    for path in files_of(source):
        names = list(dict.fromkeys(column for column, _ in left))
        one = replace(source, pattern=path)
        with open_source(one, scratch=scratch, preserve_insertion_order=True) as opened:
            records = opened.read(
                functools.partial(_records, opened, domain.project(names), tuple(left))
            )
            for (column, fate), record in zip(list(left), records, strict=True):
                if record is not None:
                    left.remove((column, fate))
                    yield column, fate, _place(opened, path, record, column)
        if not left:
            return


def _records(
    opened: OpenSource, domain: Domain, wanted: Sequence[tuple[str, Fate]]
) -> list[int | None]:
    """The number, from 1, of the first record of each fate in a file."""
    import ibis

    number = _RECORD
    while number in opened.table.columns:
        number += "_"
    numbered = opened.table.mutate(**{number: ibis.row_number() + 1})
    derived, coded = discretise.coded_columns(domain, numbered, unit=number, text=opened.text)
    firsts = {}
    for index, (column, fate) in enumerate(wanted):
        value = coded[domain.names.index(column)]
        met = {
            "missing": value.is_null, "outside": value.is_outside,
            "unreadable": value.is_unreadable,
        }[fate]  # fmt: skip
        firsts[f"first_{index}"] = derived.unit.min(where=met)
    row = derived.aggregate(**firsts).to_pyarrow().to_pylist()[0]
    return [row[f"first_{index}"] for index in range(len(wanted))]


def _place(opened: OpenSource, path: str, record: int, column: str) -> str:
    """A record's place in words."""
    found = opened.csv.place_of(record, column) if opened.csv is not None else None
    if found is None:
        return f"record {record} of {path}"
    line, field = found
    return f"record {record}, line {line} of {path}: {field[:100]!a}"
