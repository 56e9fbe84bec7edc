"""The files of a table's confidence bands, and what a reader is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.domain import Domain
from mechanisms.tables.band_laws import LIMITS
from mechanisms.tables.bands import BandKnobs
from tasks.formats.profile import profile_file
from tasks.formats.registry import read_batches
from tasks.formats.writing import write_cells
from tasks.products.counts.fields import column_field
from tasks.products.kind import Excerpt, TableForm

_ROWS = 20
_OF = {"cells": "", "cumulative": ", this one and those before it together"}
_WORDS = {
    "count_lower": ("integer", "Least number of the records that were counted{}."),
    "count_upper": ("integer", "Largest number of them{}."),
    "share_lower": ("number", "Least share in the law that the records are draws of{}."),
    "share_upper": ("number", "Largest share{}."),
}
_TITLES = {
    "cells": "Band of all cells, those of the largest lower limits first",
    "cumulative": "Band of the distribution function: this cell and those before it",
}


def stem_of(name: str, band: str) -> str:
    """Stem of the files of a product's band."""
    return f"{name}_{band}_band"


def band_forms(name: str, domain: Domain, knobs: BandKnobs | None) -> list[TableForm]:
    """The files of the bands of a product, of each a row for every possible cell, in order."""
    if knobs is None:
        return []
    columns = [column_field(column) for column in domain.columns]
    return [
        TableForm(
            stem_of(name, band),
            [
                *columns,
                *(
                    {"name": each, "type": kind, "description": words.format(_OF[band])}
                    for each, (kind, words) in _WORDS.items()
                ),
            ],
            f"Confidence band: the limits of counts hold for all rows at once with probability "
            f"{knobs.confidence:g} or more, and so do those of shares, whatever the records are.",
        )
        for band in knobs.bands
    ]


def write_band(domain: Domain, band: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write a band; the suffix gives the format."""
    write_cells(domain, domain.possible_cells(), band, path)


def profile_band(path: Path, domain: Domain, n_records: int) -> dict[str, int]:
    """Rows, values outside the domain, and limits that cannot be, as written."""
    profile = profile_file(path, domain, LIMITS) | {"limits out of order": 0}
    if profile["schema"]:
        return profile
    for batch in read_batches(path, None):
        found = [batch.column(name).to_numpy(zero_copy_only=False) for name in LIMITS]
        counts, shares = found[:2], found[2:]
        for (low, high), most in ((counts, n_records), (shares, 1)):
            wrong = ~((low >= 0) & (low <= high) & (high <= most))
            profile["limits out of order"] += int(np.count_nonzero(wrong))
    return profile


def band_advice(name: str, knobs: BandKnobs | None) -> str:
    """What a reader of the bundle has to know of a product's bands; may be empty."""
    if knobs is None or not knobs.bands:
        return ""
    files = " and ".join(f"`{stem_of(name, band)}`" for band in knobs.bands)
    return f" {files}: limits for all cells at once, at level {knobs.confidence:g}."


def band_note(wanted: bool) -> list[str]:
    """What bands mean, as paragraphs."""
    if not wanted:
        return []
    return [
        "**Bands** are limits that hold for all rows of a file at once, noise included, whatever "
        "the records are. `count_lower` and `count_upper` are about the records that were counted; "
        "`share_lower` and `share_upper` about the law of which those are independent draws. "
        "Either pair has the stated level by itself. In a cumulative band each row is about its "
        "cell and all before it."
    ]


def band_excerpts(folder: Path, name: str, suffixes: Sequence[str]) -> list[Excerpt]:
    """Some rows of each band for the page of its bundle."""
    import pyarrow as pa

    found = []
    for band, title in _TITLES.items():
        stem = stem_of(name, band)
        paths = (folder / "data" / f"{stem}.{suffix}" for suffix in suffixes)
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            continue
        table = pa.Table.from_batches(list(read_batches(path, None)))
        lower = table["share_lower"].to_numpy()
        places = np.linspace(0, len(lower) - 1, min(_ROWS, len(lower))).round().astype(np.int64)
        if band == "cells":
            places = np.argsort(-lower, kind="stable")[:_ROWS]
        headings = [each for each in table.column_names if each not in LIMITS]
        part = f" ({len(places)} of {len(lower):,} rows)" if len(places) < len(lower) else ""
        found.append(
            Excerpt(
                (*headings, "records, from", "to", "share, from", "to"),
                [_cells(row, headings) for row in table.take(places).to_pylist()],
                f"{title}{part}.",
            )
        )
    return found


def _cells(row: Mapping[str, Any], headings: Sequence[str]) -> list[str]:
    values = ["missing" if row[key] is None else str(row[key]) for key in headings]
    counts = [f"{row[key]:,}" for key in LIMITS[:2]]
    return [*values, *counts, *(f"{row[key]:.4f}" for key in LIMITS[2:])]
