"""Bands of every mechanism of the registry that has them hold what they are about.

Records are drawn from a law, counted and released, many times. By what ``band_law`` says of a
release, the limits of all cells have to hold together at the level, and those of all cumulated
cells: for the counts, and for the law. The twin makes three times the errors that its law knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contract_cases import NAMES, case, case_of, serves_counts
from estimating import least, seeded
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables.bands import (
    BandLaw,
    count_distance,
    law_of,
    share_distance,
    share_limits,
)
from statpress.mechanisms.tables.count_tables import TABLE

RECORDS, RELEASES, LEVEL = 60, 250, 0.9
SHARES = np.array([0.55, 0.25, 0.15, 0.05])
COUNTS = np.rint(RECORDS * SHARES).astype(np.int64)
TABLES = [name for name in NAMES if TABLE in REGISTRY[name].kinds and serves_counts(name)]
WITH_BANDS = [name for name in TABLES if hasattr(REGISTRY[name], "band_law")]
Floats = NDArray[np.float64]


def released(name: str, mechanism: Any, tables: Codes) -> tuple[Codes, Floats]:
    """Raw counts int64[r, 4] of releases of these tables, and the estimates that bands are of."""
    rng, law = seeded(9), law_of(mechanism, n_records=RECORDS, n_cells=len(SHARES))
    raws, estimates = [], []
    for counts in tables:
        release = mechanism.release(case_of(name, counts).table, rng)
        raw = np.zeros(len(SHARES), np.int64)
        raw[release.cells] = release.counts
        raws.append(raw)
        estimates.append(law.estimates(release, raw))
    return np.array(raws), np.array(estimates)


def share_of_cells(
    limits: Callable[[Codes], tuple[Floats, Floats]], raws: Codes, truth: Any
) -> float:
    """How often the limits of all cells hold."""
    values, places = np.unique(raws, return_inverse=True)
    low, high = (each[places.reshape(raws.shape)] for each in limits(values))
    return float(np.mean(np.all((low <= truth) & (truth <= high), axis=1)))


def share_of_sums(
    law: BandLaw, distance: Callable[[Any], float], raws: Codes, estimates: Floats, truth: Any
) -> float:
    """How often the limits of all cumulated cells but the last hold."""
    ends = np.array([law.end_of(raw) for raw in raws])
    held = 0
    for end in np.unique(ends):
        strays = law.strays(int(end))
        assert strays is not None
        away = np.abs(np.cumsum(estimates, axis=1) - strays.centre - np.cumsum(truth, axis=-1))
        off = away[ends == end][:, :-1].max(axis=1)
        held += int(np.sum(off <= distance(strays)))
    return held / len(raws)


@pytest.mark.parametrize("name", WITH_BANDS)
def test_all_limits_of_a_band_hold_together(name: str) -> None:
    made = case_of(name, COUNTS).calibrated(epsilon=2.0, delta=1e-5)
    law = law_of(made, n_records=RECORDS, n_cells=len(SHARES))
    tables = np.random.default_rng(8).multinomial(RECORDS, SHARES, RELEASES)
    raws, estimates = released(name, made, tables)

    def counts(values: Codes) -> tuple[Floats, Floats]:
        return law.cells.counts(values, LEVEL)

    def shares(values: Codes) -> tuple[Floats, Floats]:
        return share_limits(law.cells, values, LEVEL)

    def to_counts(strays: Any) -> float:
        return count_distance(strays, LEVEL)

    def to_shares(strays: Any) -> float:
        return share_distance(strays, RECORDS, LEVEL)

    enough = least(RELEASES, LEVEL)
    assert share_of_cells(counts, raws, tables) >= enough
    assert share_of_cells(shares, raws, SHARES) >= enough
    assert share_of_sums(law, to_counts, raws, estimates, tables) >= enough
    assert share_of_sums(law, to_shares, raws, estimates, RECORDS * SHARES) >= enough

    raws, estimates = released(name, made, np.tile(COUNTS, (RELEASES, 1)))
    raws = np.rint(3 * raws - 2 * raws.mean(axis=0)).astype(np.int64)
    estimates = 3 * estimates - 2 * estimates.mean(axis=0)
    assert share_of_cells(counts, raws, COUNTS) < enough
    assert share_of_sums(law, to_counts, raws, estimates, COUNTS) < enough


def test_mechanisms_of_other_laws_have_no_bands() -> None:
    assert len(WITH_BANDS) >= 4
    for name in set(TABLES) - set(WITH_BANDS):
        with pytest.raises(ConfigError, match="no confidence bands"):
            law_of(case(name).calibrated(), n_records=200, n_cells=4)
