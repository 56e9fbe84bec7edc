"""Copies of the records of a product: their files in every format, and what readers are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from statpress.configs.formats import STAT, stored_name
from statpress.mechanisms.domain.columns import Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.tasks.bundle.rows import Rows
from statpress.tasks.products.publication import DataTable, described

COPY = ("integer", "The number of the set that the record belongs to, from 1.")
_BLANK_COPY = (
    "integer",
    "The number of the set that the record belongs to, from 1; 0 for the block without values that "
    "Stata's 'mi import flong' expects.",
)
_RECORD = ("integer", "The number of the record in its set, from 1; no two sets share a record.")

OF_UNITS = "no copy says which of its records are of one unit"
"""Where units may have several records a README says so, and has no code that takes them apart."""


def note(unit_records: int) -> str:
    """What the README of a bundle says of copies.

    Args:
        unit_records: How many records of a unit may be in them.
    """
    first = (
        "**Copies of records.** Intervals that are computed from one set of synthetic records as "
        "if they were the confidential ones are too short, often by far: they leave out the noise. "
    )
    last = (
        " Copies draw relations towards none, those of two numbers most, and guess what was not "
        "measured: a strong relation may lie far outside such an interval. Where the noisy tables "
        "answer, take theirs."
    )
    if unit_records > 1:
        return (
            f"{first}Compute a figure on each of the M copies. The estimate is the mean of the M "
            "figures, and an interval for the figure of the confidential records is the estimate "
            "± t √((1 + 1/M) B), with B the variance of the M figures and Student's t of M − 1 "
            f"degrees of freedom. A unit may have several records, and {OF_UNITS}: so there is no "
            "interval for a population, and the variance that a program states of one copy, as "
            f"`MIcombine` and `mi estimate` add it (Rubin 1987), is not that of units.{last}"
        )
    return (
        f"{first}Compute a figure and its variance on each of the M copies. The estimate is the "
        "mean of the M figures; its variance is T = W + (1 + 1/M) B, with W the mean of the M "
        "variances and B the variance of the M figures (Rubin 1987). An interval is the estimate "
        "± t √T, with Student's t of (M − 1)(T / ((1 + 1/M) B))² degrees of freedom. For a figure "
        "of the confidential records themselves, not of a population, leave W out, with M − 1 "
        f"degrees of freedom.{last}"
    )


Batches = Callable[[int], Iterator[list[Any]]]
"""The columns of the records of a copy, by its number, from 1."""


def advice(name: str, number: int) -> str:
    """What readers of a product's records are told to do with its copies, after a sentence."""
    return (
        f" For intervals of anything else compute it on each of the {number} sets of records in "
        f"`{name}_copies`, and combine the results as below."
    )


def from_copies(name: str, resources: Sequence[Mapping[str, Any]]) -> str:
    """What a report says of the copies, after where to take a product's counts; or nothing."""
    copied = any(Path(each["path"]).stem == f"{name}_copies" for each in resources)
    return f", and those of anything else from data/{name}_copies" if copied else ""


def copies_table(
    records: DataTable,
    domain: Domain,
    number: int,
    of_copy: Batches | None = None,
    *,
    fewer: bool = False,
) -> DataTable:
    """Copies of records, for Stata and SPSS as their commands for imputed data take them.

    Stata's begin with a block of as many records without any value: its commands expect the
    incomplete data there, and nothing of the confidential records was observed.

    Args:
        records: The file of records, with its rows once these are drawn.
        domain: The declared columns.
        number: How many copies.
        of_copy: What each has; None before anything is drawn.
        fewer: Whether a copy has fewer records than the source: it is then in no file for Stata
            and SPSS, since no command of theirs scales its variances.
    """

    def rows(*keys: str) -> Rows | None:
        return None if of_copy is None else _rows(records, domain, number, of_copy, keys)

    expected = records.expected
    copies = replace(
        records,
        stem=f"{records.stem}_copies",
        fields=[*records.fields, *described({free_name("copy", domain): COPY})],
        title=f"{number} more sets of synthetic records",
        most_rows=number * records.most_rows,
        expected=None if expected is None else number * expected,
        rows=rows("copy"),
    )
    if fewer:
        return replace(copies, instead={"dta": None, "sav": None})
    keys = {free_name("record", domain): _RECORD, free_name("copy", domain): _BLANK_COPY}
    stata = replace(
        copies,
        fields=[*records.fields, *described(keys)],
        most_rows=copies.most_rows + records.most_rows,
        blank=expected or 0,
        expected=None if expected is None else (number + 1) * expected,
        rows=rows("record", "copy"),
    )
    spss = replace(
        copies,
        fields=[*records.fields, *described({free_name("Imputation_", domain): COPY})],
        rows=rows("Imputation_"),
    )
    return replace(copies, instead={"dta": stata, "sav": spss})


def _rows(
    records: DataTable, domain: Domain, number: int, of_copy: Batches, keys: Sequence[str]
) -> Rows:
    """The rows of one copy after the other, with keys; with records numbered, after a blank one.

    Args:
        records: The file of records.
        domain: The declared columns.
        number: How many copies.
        of_copy: What each has.
        keys: ``record``, the number of a record in its copy; any other is that of the copy.
    """
    import pyarrow as pa

    assert records.rows is not None
    schema, blank, size = records.rows.schema, "record" in keys, records.expected or 0
    if blank:
        schema = pa.schema([each.with_nullable(True) for each in schema])

    def batches() -> Iterator[list[Any]]:
        for copy in range(0 if blank else 1, number + 1):
            start = 1
            empty = [[pa.nulls(size, each.type) for each in schema]]
            for arrays in of_copy(copy) if copy else empty:
                places = np.arange(start, start + len(arrays[0]))
                start += len(places)
                numbers = np.full(len(places), copy)
                yield [*arrays, *(pa.array(places if k == "record" else numbers) for k in keys)]

    whole = [pa.field(free_name(key, domain), pa.int64(), nullable=False) for key in keys]
    return Rows(pa.schema([*schema, *whole]), batches)


def free_name(name: str, domain: Domain) -> str:
    """The name, or with underscores where a column has it in any format, whatever its case."""
    names = {(c.of if isinstance(c, Slot) else c).name for c in domain.columns}
    taken = {stored_name(each, form).casefold() for each in names for form in STAT}
    taken |= {each.casefold() for each in names}
    while name.casefold() in taken:
        name += "_"
    return name
