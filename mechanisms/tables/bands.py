"""Confidence bands of a table: what a config may ask for, and what is published.

What the bands of a table are computed from: how what a mechanism releases depends on it.

A mechanism has bands if it has a method ``band_law``; statpress.mechanisms.tables.bands says what
they are.

Confidence bands of a table: what a config may ask for, what a plan expects, what is published.

A band is limits for all cells that hold together at the declared level, whatever the records are:
of the ``cells`` one by one, or, over one ordered column, of the ``cumulative`` distribution. Each
is about two things, with limits for either:

* the *counts* of the records that were counted, where only the noise is uncertain;
* the *shares* of the law that these records are independent draws of, where sampling is too.

It is computed from what was released and from public figures
(statpress.mechanisms.tables.band_limits and distribution_bands have the proofs), so it costs no
budget. A mechanism whose law is known has a method ``band_law``; the others cannot serve a table
with bands.

Sampling bounds are for records that are drawn one by one: units have one record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Codes, Column, Ordinal
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables import band_limits
from statpress.mechanisms.tables.band_limits import (
    CellLaw,
    DiscreteNoise,
    DrawnCells,
    Limits,
    NoisyCells,
    NoisySums,
    Places,
    Strays,
    is_walk,
    of_draws,
    of_noise,
)
from statpress.mechanisms.tables.expected import ExpectedCounts

if TYPE_CHECKING:
    from statpress.mechanisms.tables.count_tables import RawTable


Floats = NDArray[np.float64]

LIMITS = ("count_lower", "count_upper", "share_lower", "share_upper")
"""Columns of a band, in order."""

_MOST_PLACES, _TRIED = 1000, 15
_DIGITS = 9  # of shares, which are rounded outwards


@dataclass(frozen=True)
class BandLaw:
    """How what a mechanism releases depends on a table.

    Attributes:
        cells: Of every cell by itself.
        end_of: The known sum of all noise, of the raw counts int64[n_cells].
        strays: By that sum, how far the cumulative counts stray; None if no bound is known.
        estimates: Of a release and its raw counts int64[n_cells] the estimates float64[n_cells] of
            the counts, whose sums stray.
        places: Of cumulated raw counts float64[k], the numbers of cells int64[k] that they are of,
            and the sum of all noise: what is known place by place; None if that is nothing.
    """

    cells: CellLaw
    end_of: Callable[[Codes], int]
    strays: Callable[[int], Strays | None]
    estimates: Callable[[Any, Codes], Floats]
    places: Callable[[Floats, Codes, int], Places] | None = None


def noisy_law(noise: DiscreteNoise, *, n_records: int, n_cells: int) -> BandLaw:
    """That of independent noise on every cell."""

    def places(summed: Floats, joined: Codes, end: int) -> Places:
        sds = noise.scale * np.sqrt(joined * (n_cells - joined) / n_cells)
        y: Floats = summed - joined * (end / n_cells)
        return Places(NoisySums(n_records, sds), y, y / n_records, n_records, n_cells - 1)

    return BandLaw(
        cells=NoisyCells(noise, n_records, n_cells),
        end_of=lambda raw: int(raw.sum()) - n_records,
        strays=lambda end: of_noise(noise, n_cells, end),
        estimates=lambda release, raw: raw.astype(np.float64),
        places=places if is_walk(noise) else None,
    )


def drawn_law(draws: int, pseudocount: float, *, n_records: int, n_cells: int) -> BandLaw:
    """That of records drawn from smoothed shares."""
    cells = DrawnCells(draws, pseudocount, n_records, n_cells)

    def places(summed: Floats, joined: Codes, end: int) -> Places:
        law = replace(cells, joined=joined)
        return Places(law, summed, law.centre(summed), draws, n_cells - 1)

    return BandLaw(
        cells=cells,
        end_of=lambda raw: 0,
        strays=lambda end: of_draws(draws, cells.total, n_cells),
        estimates=lambda release, raw: raw.astype(np.float64) * (cells.total / draws) - pseudocount,
        places=places,
    )


def law_of(mechanism: Any, *, n_records: int, n_cells: int) -> BandLaw:
    """The law of what a mechanism at fixed parameters releases."""
    if not hasattr(mechanism, "band_law"):
        raise ConfigError(
            f"The mechanism '{mechanism.name}' has no confidence bands: how far its counts are off "
            "depends on the data.",
            next_step="Name one that adds noise to every cell or draws from all of them, such as "
            "'gaussian' or 'bootstrap', or leave out 'bands'.",
        )
    law: BandLaw = mechanism.band_law(n_records=n_records, n_cells=n_cells)
    return law


def bands_of(
    mechanism: Any, release: RawTable, bands: Sequence[str], level: float, *, n_records: int
) -> dict[str, dict[str, NDArray[Any]]]:
    """The bands that follow from a release."""
    if not bands:
        return {}
    cells = release.domain.possible_cells()
    raw = np.zeros(len(cells), np.int64)
    raw[np.searchsorted(cells, release.cells)] = release.counts
    law = law_of(mechanism, n_records=n_records, n_cells=len(cells))
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for band in bands:
        if band == "cells":
            counts = band_limits.count_band(law.cells, raw, level)
            shares = band_limits.share_band(law.cells, raw, level)
        else:
            counts, shares = _cumulative(law, release, raw, level)
        found[band] = dict(zip(LIMITS, _written(counts, shares), strict=True))
    return found


def _cumulative(law: BandLaw, release: RawTable, raw: Codes, level: float) -> tuple[Limits, Limits]:
    n, end = law.cells.n_records, law.end_of(raw)
    strays, typical = law.strays(end), law.strays(0)
    assert strays is not None and typical is not None  # of the same noise as planned
    estimates = np.cumsum(law.estimates(release, raw)) - strays.centre
    count = band_limits.count_distance(strays, level)
    counts = band_limits.cumulated_count_band(estimates, min(count, n + _far(estimates)), n)
    _, by_place = cumulative_share(law, typical, level)
    if by_place and law.places is not None:
        places = law.places(np.cumsum(raw, dtype=np.float64)[:-1], np.arange(1, len(raw)), end)
        return counts, band_limits.share_band_by_place(places, level)
    share = band_limits.share_distance(strays, n, level)
    return counts, band_limits.cumulated_share_band(estimates, min(share, n + _far(estimates)), n)


def cumulative_share(law: BandLaw, strays: Strays, level: float) -> tuple[float, bool]:
    """Average half width of the distribution function's band, and whether it is place by place.

    For records spread evenly, in records; from public figures only.
    """
    n, k = law.cells.n_records, law.cells.n_cells
    share = band_limits.share_distance(strays, n, level)
    if law.places is None or not 2 <= k <= _MOST_PLACES:
        return share, False
    joined = np.unique(np.rint(np.linspace(1, k - 1, _TRIED)).astype(np.int64))
    lower, upper = law.places(
        np.asarray(law.cells.whole() * joined / k, np.float64), joined, 0
    ).limits(level)
    mean = n * float(np.mean(upper - lower)) / 2
    return (mean, True) if mean < share else (share, False)


def _far(estimates: Floats) -> float:
    """More than any estimate, in place of a distance without end."""
    return float(np.abs(estimates).max()) + 1


def _written(counts: Limits, shares: Limits) -> tuple[NDArray[Any], ...]:
    """Counts as integers; shares rounded outwards, as their last digits mean nothing."""
    unit = 10.0**_DIGITS
    low, high = np.floor(shares[0] * unit) / unit, np.ceil(shares[1] * unit) / unit
    whole = tuple(np.rint(each).astype(np.int64) for each in counts)
    return (*whole, np.clip(low, 0, 1), np.clip(high, 0, 1))


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
    """Refuse a band that the columns do not have."""
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
    """An expected error with the half widths of the bands."""
    n, k = target.n_records, target.n_cells
    law = law_of(mechanism, n_records=n, n_cells=k)
    _check_size(k)
    found: dict[str, float] = {}
    if "cells" in knobs.bands:
        typical = np.array([round(law.cells.whole() / k)])
        records, shares = (
            law.cells.counts(typical, knobs.confidence),
            band_limits.share_limits(law.cells, typical, knobs.confidence),
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
        count = band_limits.count_distance(strays, knobs.confidence)
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
    """The bands that a privacy statement says."""
    bands, level = stated.get("bands", ()), stated.get("confidence", 0.95)
    if not set(bands) <= {"cells", "cumulative"} or type(level) is not float or math.isnan(level):
        raise ValueError("it states bands that this version does not know")
    return BandKnobs(bands=tuple(bands), confidence=level)
