"""Confidence bands of a table: what a config may ask for, what a plan expects, what is published.

A band is limits for all cells that hold together at the declared level, whatever the records are:
of the ``cells`` one by one, or, over one ordered column, of the ``cumulative`` distribution. Each
is about two things, with limits for either:

* the *counts* of the records that were counted, where only the noise is uncertain;
* the *shares* of the law that these records are independent draws of, where sampling is too.

It is computed from what was released and from public figures (mechanisms.inference.bands.cell_bands
and distribution_bands have the proofs), so it costs no budget. A mechanism whose law is known has a
method ``band_law``; the others cannot serve a table with bands.

Sampling bounds are for records that are drawn one by one: units have one record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mechanisms.base.mechanism import Target
from mechanisms.domain.columns import Categorical, Column, Ordinal
from mechanisms.errors import ConfigError
from mechanisms.inference.bands import cell_bands, distribution_bands
from mechanisms.tables.band_laws import cumulative_share, law_of
from mechanisms.tables.expected_error import ExpectedCounts

Band = Literal["cells", "cumulative"]

_LEAST_LEVEL, _LARGEST_LEVEL = 0.5, 0.9999
_MOST_CELLS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class BandKnobs:
    """What a config may say of the bands of a table.

    Attributes:
        bands: Which are published: ``cells``, ``cumulative`` or both; by default none.
        confidence: Probability with which all limits of one band hold, each of counts and shares.
    """

    bands: tuple[Band, ...] = ()
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if len(set(self.bands)) < len(self.bands):
            raise ConfigError("A band is named twice.", where="bands")
        if not self.bands and self.confidence != BandKnobs.confidence:
            raise ConfigError(
                "A table has a level only with bands.",
                where="confidence",
                next_step="Add 'bands: [cells]' or 'bands: [cumulative]', or leave it out.",
            )
        if not _LEAST_LEVEL <= self.confidence <= _LARGEST_LEVEL:
            raise ConfigError(
                f"The level of bands must be between {_LEAST_LEVEL} and {_LARGEST_LEVEL}.",
                where="confidence",
            )


def check_columns(knobs: BandKnobs, columns: tuple[Column, ...], nulls: bool) -> None:
    """Refuse a band that the columns do not have.

    Args:
        knobs: What is asked for.
        columns: Of the table.
        nulls: Whether a column without a cell for them may have nulls.

    Raises:
        ConfigError: The table is not over one ordered column with a value in every record.
    """
    if "cumulative" not in knobs.bands:
        return
    step = "Ask for 'bands: [cells]', or make a table of one ordered column."
    if len(columns) != 1:
        raise ConfigError(
            "A cumulative band needs a table of one column, which has an order.",
            where="bands",
            next_step=step,
        )
    (column,) = columns
    problem = ""
    if isinstance(column, Categorical) and not isinstance(column, Ordinal):
        problem = "its categories have no order"
    elif column.other_code is not None:
        problem = "its cell 'other' has no place in the order"
    elif column.missing:
        problem = "its cell for missing values has no place in the order"
    elif nulls:
        problem = (
            "'checks' allows values that are null, unreadable or not declared, which would count "
            "as the lowest"
        )
        step = (
            "Ask for 'bands: [cells]', or take the allowance out of 'checks' and correct or leave "
            "out those records in the source."
        )
    if problem:
        raise ConfigError(
            f"There is no cumulative band of the column '{column.name}': {problem}.",
            where="bands",
            next_step=step,
        )


@dataclass(frozen=True, kw_only=True)
class ExpectedBands(ExpectedCounts):
    """What an analyst can expect of a table with bands, from public quantities only.

    Half widths are of a cell that has as many records as the others, and of cumulative shares on
    average for records spread evenly; those of a band that was not asked for are None.

    Attributes:
        confidence: Level of the bands.
        cell_band_records: Half width of the counts' limits, in records.
        cell_band_share: Of the shares' limits.
        cumulative_band_records: The same of cumulative counts.
        cumulative_band_share: Of the distribution function.
    """

    confidence: float
    cell_band_records: float | None = None
    cell_band_share: float | None = None
    cumulative_band_records: float | None = None
    cumulative_band_share: float | None = None

    def rows(self) -> Iterator[tuple[str, str]]:
        yield from super().rows()
        level = f"{self.confidence:g}"
        for words, records, share in (
            ("all cells", self.cell_band_records, self.cell_band_share),
            ("distribution function", self.cumulative_band_records, self.cumulative_band_share),
        ):
            if records is not None and share is not None:
                yield f"band of {words}, level {level}", f"+- {share:.4f} of the law"
                yield "", f"+- {records:,.1f} records of those counted"


def expected(error: ExpectedCounts, knobs: BandKnobs, mechanism: Any, target: Target) -> Any:
    """An expected error with the half widths of the bands.

    Raises:
        ConfigError: The bands cannot be computed.
    """
    n, k = target.n_records, target.n_cells
    law = law_of(mechanism, n_records=n, n_cells=k)
    _check_size(k)
    found: dict[str, float] = {}
    if "cells" in knobs.bands:
        typical = np.array([round(law.cells.whole() / k)])
        records, shares = (
            law.cells.counts(typical, knobs.confidence),
            cell_bands.share_limits(law.cells, typical, knobs.confidence),
        )
        found["cell_band_records"] = float(records[1][0] - records[0][0]) / 2
        found["cell_band_share"] = float(shares[1][0] - shares[0][0]) / 2
    if "cumulative" in knobs.bands:
        strays = law.strays(0)
        if strays is None:
            raise ConfigError(
                "The noise of this many cells is too wide for its sums to be bounded.",
                where="bands",
                next_step="Name the mechanism 'gaussian', or ask for 'bands: [cells]'.",
            )
        count = distribution_bands.count_distance(strays, knobs.confidence)
        share, _ = cumulative_share(law, strays, knobs.confidence)
        found["cumulative_band_records"] = min(count, float(n))
        found["cumulative_band_share"] = min(share / n, 1.0)
    return ExpectedBands(**vars(error), confidence=knobs.confidence, **found)


def _check_size(n_cells: int) -> None:
    if n_cells > _MOST_CELLS:
        raise ConfigError(
            f"A band has a row for each cell; {n_cells:,} are too many.",
            where="bands",
            next_step=f"Declare at most {_MOST_CELLS:,} cells, or leave out 'bands'.",
        )


def facts(knobs: BandKnobs) -> Mapping[str, Any]:
    """What a privacy statement says of the bands, empty if there are none."""
    if not knobs.bands:
        return {}
    return {"bands": list(knobs.bands), "confidence": knobs.confidence}


def knobs_from(stated: Mapping[str, Any]) -> BandKnobs:
    """The bands that a privacy statement says.

    Raises:
        ValueError: It says something else.
    """
    bands, level = stated.get("bands", ()), stated.get("confidence", 0.95)
    if not set(bands) <= {"cells", "cumulative"} or type(level) is not float or math.isnan(level):
        raise ValueError("it states bands that this version does not know")
    return BandKnobs(bands=tuple(bands), confidence=level)
