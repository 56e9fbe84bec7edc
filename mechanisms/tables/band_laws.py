"""What the bands of a table are computed from: how what a mechanism releases depends on it.

A mechanism has bands if it has a method ``band_law``; mechanisms.tables.bands says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain.columns import Codes
from mechanisms.errors import ConfigError
from mechanisms.inference.bands import cell_bands, distribution_bands
from mechanisms.inference.bands.cell_bands import CellLaw, DrawnCells, NoisyCells, NoisySums
from mechanisms.inference.bands.cumulated_noise import Strays, is_walk, of_draws, of_noise
from mechanisms.inference.bands.distribution_bands import Places
from mechanisms.inference.bands.noise_tails import DiscreteNoise
from mechanisms.inference.bands.place_limits import Limits

if TYPE_CHECKING:
    from mechanisms.tables.mechanism import RawTable

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
    """The law of what a mechanism at fixed parameters releases.

    Raises:
        ConfigError: It has none that is known here.
    """
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
    """The bands that follow from a release.

    Args:
        mechanism: That released it.
        release: Raw counts, before any post-processing.
        bands: Which: ``cells``, ``cumulative``.
        level: Of each.
        n_records: Number of records n.

    Returns:
        By band, of every possible cell in order: the columns of ``LIMITS``, int64[n_possible] and
        float64[n_possible].
    """
    if not bands:
        return {}
    cells = release.domain.possible_cells()
    raw = np.zeros(len(cells), np.int64)
    raw[np.searchsorted(cells, release.cells)] = release.counts
    law = law_of(mechanism, n_records=n_records, n_cells=len(cells))
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for band in bands:
        if band == "cells":
            counts = cell_bands.count_band(law.cells, raw, level)
            shares = cell_bands.share_band(law.cells, raw, level)
        else:
            counts, shares = _cumulative(law, release, raw, level)
        found[band] = dict(zip(LIMITS, _written(counts, shares), strict=True))
    return found


def _cumulative(law: BandLaw, release: RawTable, raw: Codes, level: float) -> tuple[Limits, Limits]:
    n, end = law.cells.n_records, law.end_of(raw)
    strays, typical = law.strays(end), law.strays(0)
    assert strays is not None and typical is not None  # of the same noise as planned
    estimates = np.cumsum(law.estimates(release, raw)) - strays.centre
    count = distribution_bands.count_distance(strays, level)
    counts = distribution_bands.count_band(estimates, min(count, n + _far(estimates)), n)
    _, by_place = cumulative_share(law, typical, level)
    if by_place and law.places is not None:
        places = law.places(np.cumsum(raw, dtype=np.float64)[:-1], np.arange(1, len(raw)), end)
        return counts, distribution_bands.share_band_by_place(places, level)
    share = distribution_bands.share_distance(strays, n, level)
    return counts, distribution_bands.share_band(estimates, min(share, n + _far(estimates)), n)


def cumulative_share(law: BandLaw, strays: Strays, level: float) -> tuple[float, bool]:
    """Average half width of the distribution function's band, and whether it is place by place.

    For records spread evenly, in records; from public figures only.
    """
    n, k = law.cells.n_records, law.cells.n_cells
    share = distribution_bands.share_distance(strays, n, level)
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
