"""Confidence bands of a table: what a config may ask for, what a plan expects, what is published.

A band is limits for all cells that hold together at the declared level, whatever the records are:
of the ``cells`` one by one, or, over one ordered column, of the ``cumulative`` distribution. Each
is about two things, with limits for either:

* the *counts* of the records that were counted, where only the noise is uncertain;
* the *shares* of the law that these records are independent draws of, where sampling is too.

A band is computed from what was released and from public figures (the proofs are here and in
statpress.mechanisms.tables.band_limits), so it costs no budget. A mechanism whose law is known has
a method ``band_law``; the others cannot serve a table with bands. Sampling bounds are for records
that are drawn one by one: units have one record.

**Cells.** Limits of the counts and of the shares are those of
statpress.mechanisms.tables.band_limits, of the shares at a = (1 - level)/2K for each end: counts of
cells are negatively associated (Joag-Dev and Proschan 1983, doi 10.1214/aos/1176346079), so that
the product of the cells' levels is not a bound, and Bonferroni's differs from it by a fortieth of
1 - level.
Counts add up to n and shares to 1, so where all limits hold a cell's upper limit is
also at most the total less the other cells' lower limits, and the other way round.

**The distribution function of one ordered column.** Released are estimates of the cumulative counts
H_1 .. H_K of n records. Two bands at one level, each for all cells at once: of H itself, and of the
distribution function F of the law that the records are independent draws of.

*Counts.* |H_i - estimate_i| < x for all i, x being the distance that noise reaches with
probability at most 1 - level (mechanisms.tables.band_limits). Integers, which do not
decrease, so that the upper limit of a cell holds for all before it and the lower for all after.

*Distribution function.* max |H_i - n F_i| >= d has a probability of at most 2 exp(-2 d^2/n)
whatever F is (Dvoretzky, Kiefer and Wolfowitz 1956; the constant is that of Massart 1990, doi
10.1214/aop/1176990746; for cells as for points, of which they are some). The bound of the noise
holds given the records, so that for the sum of both distances, A of the noise and B of sampling,

    P(A + B >= x) <= E min(1, bound of B at x - A'),  A' as large as the bound of A allows,

which is the level at a smaller x than any division of 1 - level between A and B gives: for two
equal bounds .93 of what the even division gives at .95. The least x is found from public figures.

*Place by place*, for few cells: at each of the K - 1 places before the last what is released is a
Binomial(n, F_i) with noise of a known law, or a Binomial of draws, so that F_i has Clopper and
Pearson's limits with the noise inside (mechanisms.tables.band_limits), at
(1 - level)/2(K - 1) for each end. These are narrow near 0 and 1. Which of the two bands is computed
is decided by their average width for records spread evenly, from public figures only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.column import Ranges, in_words
from statpress.mechanisms.domain.columns import Categorical, Codes, Column, Ordinal
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.postprocessing.consistency import Floats
from statpress.mechanisms.tables.band_limits import (
    MARGIN,
    CellLaw,
    DiscreteNoise,
    DrawnCells,
    Exceeding,
    Limits,
    NoisyCells,
    NoisySums,
    Strays,
    added,
    is_walk,
    of_draws,
    of_noise,
    place_limits,
)
from statpress.mechanisms.tables.expected import ExpectedCounts

if TYPE_CHECKING:
    from statpress.mechanisms.tables.count_tables import RawTable


LIMITS = ("count_lower", "count_upper", "share_lower", "share_upper")
"""Columns of a band, in order."""

_MOST_PLACES, _TRIED = 1000, 15
_DIGITS = 9  # of shares, which are rounded outwards
_MOST_VALUES = 1024  # of a table, whose limits are computed; others have those of a neighbour


@dataclass(frozen=True, eq=False)
class Places:
    """What is released of the cumulative counts at some of the places before the last.

    Attributes:
        law: Of it.
        y: float64[k], released.
        near: float64[k], estimates of the distribution function.
        whole: What is released, on average, of all records together.
        number: How many places there are, K - 1.
    """

    law: Exceeding
    y: Floats
    near: Floats
    whole: float
    number: int

    def limits(self, level: float) -> Limits:
        """Limits of the distribution function, float64[k] each."""
        alpha = (1 - level) / (2 * self.number) * (1 - MARGIN)
        return place_limits(self.law, self.y, self.whole, np.clip(self.near, 0, 1), alpha)


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

    @classmethod
    def of_noise(cls, noise: DiscreteNoise, *, n_records: int, n_cells: int) -> BandLaw:
        """The law of independent noise on every cell."""

        def places(summed: Floats, joined: Codes, end: int) -> Places:
            sds = noise.scale * np.sqrt(joined * (n_cells - joined) / n_cells)
            y: Floats = summed - joined * (end / n_cells)
            return Places(NoisySums(n_records, sds), y, y / n_records, n_records, n_cells - 1)

        return cls(
            cells=NoisyCells(noise, n_records, n_cells),
            end_of=lambda raw: int(raw.sum()) - n_records,
            strays=lambda end: of_noise(noise, n_cells, end),
            estimates=lambda release, raw: raw.astype(np.float64),
            places=places if is_walk(noise) else None,
        )

    @classmethod
    def of_draws(cls, draws: int, pseudocount: float, *, n_records: int, n_cells: int) -> BandLaw:
        """The law of records drawn from smoothed shares."""
        cells = DrawnCells(draws, pseudocount, n_records, n_cells)
        step = cells.total / draws

        def places(summed: Floats, joined: Codes, end: int) -> Places:
            law = replace(cells, joined=joined)
            return Places(law, summed, law.centre(summed), draws, n_cells - 1)

        return cls(
            cells=cells,
            end_of=lambda raw: 0,
            strays=lambda end: of_draws(draws, cells.total, n_cells),
            estimates=lambda release, raw: raw.astype(np.float64) * step - pseudocount,
            places=places,
        )

    def bands(
        self, release: RawTable, bands: Sequence[str], level: float
    ) -> dict[str, dict[str, NDArray[Any]]]:
        """By band the columns of ``LIMITS`` for every possible cell in order, from raw counts."""
        cells = release.domain.possible_cells()
        raw = np.zeros(len(cells), np.int64)
        raw[np.searchsorted(cells, release.cells)] = release.counts
        columns: dict[str, dict[str, NDArray[Any]]] = {}
        for band in bands:
            if band == "cells":
                counts = _count_band(self.cells, raw, level)
                shares = _share_band(self.cells, raw, level)
            else:
                counts, shares = _cumulative(self, release, raw, level)
            columns[band] = dict(zip(LIMITS, _written(counts, shares), strict=True))
        return columns


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


def _count_band(law: CellLaw, released: Codes, level: float) -> Limits:
    """The band of the counts of the records that were counted, float64[K] each: integers."""
    return with_total(*law.counts(released, level), law.n_records)


def _share_band(law: CellLaw, released: Codes, level: float) -> Limits:
    """The band of the shares of the law that the records are drawn from, float64[K] each."""
    return with_total(*share_limits(law, released, level), 1.0)


def share_limits(
    law: CellLaw, released: Codes, level: float, *, most_values: int = _MOST_VALUES
) -> Limits:
    """Limits of the shares of any of the cells, before the total is used."""
    values, places = np.unique(released, return_inverse=True)
    alpha = (1 - level) / (2 * law.n_cells) * (1 - MARGIN)
    chosen = np.unique(np.rint(np.linspace(0, len(values) - 1, min(most_values, len(values)))))
    listed = values[chosen.astype(np.int64)].astype(np.float64)
    below = np.searchsorted(listed, values, side="right") - 1
    above = np.searchsorted(listed, values, side="left")
    lower, upper = place_limits(law, listed, law.whole(), law.centre(listed), alpha)
    return lower[below][places], upper[above][places]


def with_total(lower: Floats, upper: Floats, total: float) -> Limits:
    """Limits narrowed by what they add up to; as they are where they cannot add up to it."""
    least, most = float(lower.sum()), float(upper.sum())
    if not least <= total <= most:
        return lower, upper
    slack = 1e-9 * total  # of adding up, kept from narrowing
    most_left, least_left = total - (least - lower) + slack, total - (most - upper) - slack
    if total > 1:  # counts
        most_left, least_left = np.floor(most_left), np.ceil(least_left)
    narrow, wide = np.minimum(upper, most_left), np.maximum(lower, least_left)
    return np.minimum(wide, narrow), np.maximum(wide, narrow)


def count_distance(strays: Strays, level: float) -> float:
    """How wide the band of counts is either way: the critical value ``Strays.quantile``.

    In records; infinite where there is none.
    """
    return strays.quantile((1 - level) * (1 - MARGIN))


def share_distance(strays: Strays, n_records: int, level: float) -> float:
    """The x of the band of the distribution function, in records; infinite where there is none."""
    alpha = (1 - level) * (1 - MARGIN)
    most = strays.reach(1e-4 * alpha)
    if not math.isfinite(most):
        return most
    spread = math.sqrt(n_records) + strays.spread
    sampling = of_draws(n_records, n_records, 1)  # about n times the distribution function
    both = added(strays.tail, sampling.tail, most)
    return Strays(strays.centre, both, spread).quantile(alpha)


def _share_band_by_place(places: Places, level: float) -> Limits:
    """The band of the distribution function from limits of every place, float64[K] each."""
    lower, upper = places.limits(level)
    return _monotone(np.append(lower, 1.0), np.append(upper, 1.0), 1.0)


def cumulated_count_band(estimates: Floats, distance: float, n_records: int) -> Limits:
    """The band of the cumulative counts, float64[K] each: integers."""
    lower, upper = np.ceil(estimates - distance), np.floor(estimates + distance)
    return _monotone(lower, upper, float(n_records))


def _cumulated_share_band(estimates: Floats, distance: float, n_records: int) -> Limits:
    """The band of the distribution function, float64[K] each."""
    return _monotone((estimates - distance) / n_records, (estimates + distance) / n_records, 1.0)


def _monotone(lower: Floats, upper: Floats, last: float) -> Limits:
    """Limits between 0 and the last value, which do not decrease; the last cell has that value.

    Where noise makes the estimates fall by more than twice the distance, no law is within both
    limits, which would cross; they are given the other way round, which only widens the band.
    """
    lower, upper = np.clip(lower, 0, last), np.clip(upper, 0, last)
    lower[-1] = upper[-1] = last
    rising, falling = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
    return np.minimum(rising, falling), np.maximum(rising, falling)


def _cumulative(law: BandLaw, release: RawTable, raw: Codes, level: float) -> tuple[Limits, Limits]:
    n, end = law.cells.n_records, law.end_of(raw)
    strays, typical = law.strays(end), law.strays(0)
    assert strays is not None and typical is not None  # of the same noise as planned
    estimates = np.cumsum(law.estimates(release, raw)) - strays.centre
    count = count_distance(strays, level)
    counts = cumulated_count_band(estimates, min(count, n + _far(estimates)), n)
    _, by_place = cumulative_share(law, typical, level)
    if by_place and law.places is not None:
        places = law.places(np.cumsum(raw, dtype=np.float64)[:-1], np.arange(1, len(raw)), end)
        return counts, _share_band_by_place(places, level)
    share = share_distance(strays, n, level)
    return counts, _cumulated_share_band(estimates, min(share, n + _far(estimates)), n)


def cumulative_share(law: BandLaw, strays: Strays, level: float) -> tuple[float, bool]:
    """Average half width of the distribution function's band, and whether it is place by place.

    For records spread evenly, in records; from public figures only.
    """
    n, k = law.cells.n_records, law.cells.n_cells
    share = share_distance(strays, n, level)
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
    whole = tuple(np.rint(limits).astype(np.int64) for limits in counts)
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

    def check_columns(self, columns: tuple[Column, ...], nulls: bool) -> None:
        """Refuse a band that the columns do not have; with ``nulls`` a value may be missing.

        Raises:
            ConfigError: The table is not over one ordered column with a value in every record.
        """
        if "cumulative" not in self.bands:
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
        elif isinstance(column, Ranges) and column.inlying:
            value = in_words(column.inlying[0])
            problem = f"its special value {value} lies inside a cell, which has no place beside it"
            step = "Ask for 'bands: [cells]', or declare cells that begin with the special value."
        elif nulls:
            problem = (
                "'checks' allows values that are null, unreadable or not declared, which would "
                "count as the lowest"
            )
            step = (
                "Ask for 'bands: [cells]', or take the allowance out of 'checks' and correct or "
                "leave out those records in the source."
            )
        if problem:
            raise ConfigError(
                f"There is no cumulative band of the column '{column.name}': {problem}.",
                where="bands",
                next_step=step,
            )

    def facts(self) -> Mapping[str, Any]:
        """What a privacy statement says of the bands, empty if there are none."""
        if not self.bands:
            return {}
        return {"bands": list(self.bands), "confidence": self.confidence}

    @classmethod
    def from_facts(cls, stated: Mapping[str, Any]) -> Self:
        """The bands that a privacy statement says.

        Raises:
            ValueError: It says something else.
        """
        bands, level = stated.get("bands", ()), stated.get("confidence", 0.95)
        unknown = not set(bands) <= {"cells", "cumulative"}
        if unknown or type(level) is not float or math.isnan(level):
            raise ValueError("it states bands that this version does not know")
        return cls(bands=tuple(bands), confidence=level)


@dataclass(frozen=True, kw_only=True)
class ExpectedBands(ExpectedCounts):
    """What an analyst can expect of a table with bands, from public quantities only.

    Half widths are of a cell that has as many records as the others, and of cumulative shares on
    average for records spread evenly; those of a band that was not asked for are None.

    Attributes:
        confidence: Level of the bands.
        cell_band_records: Half width of the counts' limits, in records.
        cell_band_share: Of the shares' limits.
        cumulative_band_records: Half width of the cumulative counts' limits, in records.
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
        for name, records, share in (
            ("all cells", self.cell_band_records, self.cell_band_share),
            ("distribution function", self.cumulative_band_records, self.cumulative_band_share),
        ):
            if records is not None and share is not None:
                yield f"band of {name}, level {level}", f"+- {share:.4f} of the law"
                yield "", f"+- {records:,.1f} records of those counted"


def check_served(knobs: BandKnobs, mechanism: Any, target: Target) -> None:
    """Refuse bands that a mechanism at fixed parameters does not have.

    Raises:
        ConfigError: It has none, has too many cells, or its noise is too wide.
    """
    law = law_of(mechanism, n_records=target.n_records, n_cells=target.n_cells)
    _check_size(target.n_cells)
    if "cumulative" in knobs.bands and law.strays(0) is None:
        raise ConfigError(
            "The noise of this many cells is too wide for its sums to be bounded.",
            where="bands",
            next_step="Name the mechanism 'gaussian', or ask for 'bands: [cells]'.",
        )


def expected(error: ExpectedCounts, knobs: BandKnobs, mechanism: Any, target: Target) -> Any:
    """An expected error with the half widths of the bands, which the mechanism has."""
    n, k = target.n_records, target.n_cells
    law = law_of(mechanism, n_records=n, n_cells=k)
    widths: dict[str, float] = {}
    if "cells" in knobs.bands:
        typical = np.array([round(law.cells.whole() / k)])
        records, shares = (
            law.cells.counts(typical, knobs.confidence),
            share_limits(law.cells, typical, knobs.confidence),
        )
        widths["cell_band_records"] = float(records[1][0] - records[0][0]) / 2
        widths["cell_band_share"] = float(shares[1][0] - shares[0][0]) / 2
    if "cumulative" in knobs.bands:
        strays = law.strays(0)
        assert strays is not None  # or it was refused
        count = count_distance(strays, knobs.confidence)
        share, _ = cumulative_share(law, strays, knobs.confidence)
        widths["cumulative_band_records"] = min(count, float(n))
        widths["cumulative_band_share"] = min(share / n, 1.0)
    return ExpectedBands(**vars(error), confidence=knobs.confidence, **widths)


def _check_size(n_cells: int) -> None:
    if n_cells > _MOST_CELLS:
        raise ConfigError(
            f"A band has a row for each cell; {n_cells:,} are too many.",
            where="bands",
            next_step=f"Declare at most {_MOST_CELLS:,} cells, or leave out 'bands'.",
        )
