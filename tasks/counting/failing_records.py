"""Where the first record is that stopped a run, for the curator log and for nobody else."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from mechanisms.domain.domain import Domain
from tasks.counting import discretise
from tasks.engines.engine import OpenSource, Source
from tasks.engines.registry import engine_of, open_source, reader_named

Fate = Literal["missing", "outside", "unreadable"]
"""What a value can be besides one of a declared cell of its own."""
_RECORD = "number of the record"


def first_of(
    source: Source, domain: Domain, refused: Sequence[tuple[str, Fate]], *, scratch: Path
) -> Iterator[tuple[str, Fate, str]]:
    """The first record with a value of some fate, in the order of the files; none without an order.

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
    for part in reader_named(source.engine).parts_of(source):
        names = list(dict.fromkeys(column for column, _ in left))
        with open_source(part, scratch=scratch, preserve_insertion_order=True) as opened:
            records = opened.read(
                functools.partial(_records, opened, domain.project(names), tuple(left))
            )
            for (column, fate), record in zip(list(left), records, strict=True):
                if record is not None:
                    left.remove((column, fate))
                    yield column, fate, opened.place_of(record, column)
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
    row = engine_of(derived).fetched(derived.aggregate(**firsts)).to_pylist()[0]
    return [row[f"first_{index}"] for index in range(len(wanted))]
