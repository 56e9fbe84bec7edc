"""Confidence bands of tables: coverage over all tables and all noise, and twins that lack some."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from neighbouring import tables
from numpy.typing import NDArray
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Ordinal
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.tables import band_limits, bands
from statpress.mechanisms.tables.band_limits import (
    DiscreteNoise,
    DrawnCells,
    NoisyCells,
    Strays,
    of_noise,
)
from statpress.mechanisms.tables.bands import BandKnobs, BandLaw
from statpress.mechanisms.tables.two_resolutions import strays_of_blocks

LEVEL = 0.9
LAWS = [
    (1 / 3, 1 / 3, 1 / 3),
    (0.8, 0.15, 0.05),
    (1.0, 0.0, 0.0),
    (0.5, 0.5, 0.0),
    (0.02, 0.96, 0.02),
]
Floats = NDArray[np.float64]


@functools.cache
def paths(noise: DiscreteNoise, cells: int, reach: int) -> tuple[NDArray[np.int64], Floats]:
    """All noise of so many cells, with its probabilities."""
    steps = np.indices((2 * reach + 1,) * cells).reshape(cells, -1).T - reach
    masses: Floats = noise.masses(reach)[steps + reach].prod(axis=1)
    return steps, masses


# --- noise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 6000.0])
@pytest.mark.parametrize("laplace", [False, True])
def test_tails_of_the_noise_are_those_of_its_law(scale: float, laplace: bool) -> None:
    noise = DiscreteNoise(scale, laplace)
    reach = math.ceil(45 * scale) + 2
    masses, k = noise.masses(reach), np.arange(-reach, reach + 1)
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert noise.sd == pytest.approx(math.sqrt(masses @ k**2), rel=1e-9, abs=1e-9) or not laplace
    asked = np.unique(np.round(np.array([-3, -1, 0, 0.2, 1, 2.5, 4, 6]) * scale)).astype(int)
    exact = np.array([masses[k >= each].sum() for each in asked])
    found = noise.at_least(asked)
    assert np.all(found >= exact - 1e-14)
    assert np.all(found <= exact * (1 + 1e-9 + (0.01 if scale > 4096 else 0)) + 1e-12)
    assert noise.at_least(np.array([noise.quantile(0.01)]))[0] <= 0.01
    assert noise.at_least(np.array([noise.quantile(0.01) - 1]))[0] > 0.01


# --- cumulated noise -------------------------------------------------------------------------

NOISE = [DiscreteNoise(1.2), DiscreteNoise(2.5), DiscreteNoise(0.4), DiscreteNoise(1.0, True)]
PLACES = np.array([0.5, 0.75, 1, 1.4, 2, 2.5, 3.3, 4.1, 6, 9])


def exact_tails(noise: DiscreteNoise, end: int) -> Iterator[tuple[Floats, Floats]]:
    """Largest distances of all paths of four cells with this end, and their probabilities."""
    steps, masses = paths(noise, 4, 11 if noise.scale > 2 or noise.laplace else 7)
    kept = steps.sum(axis=1) == end
    yield np.cumsum(steps[kept], axis=1).astype(float), masses[kept] / masses[kept].sum()


def beyond(strays: Strays, sums: Floats, masses: Floats) -> Floats:
    largest = np.abs(sums - strays.centre).max(axis=1)
    return np.array([masses[largest >= x - 1e-12].sum() for x in PLACES])


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("end", [0, 1, -2])
def test_the_walk_of_few_cells_is_exact(noise: DiscreteNoise, end: int) -> None:
    strays = of_noise(noise, 4, end)
    assert strays is not None
    for sums, masses in exact_tails(noise, end):
        exact = beyond(strays, sums, masses)
        assert strays.tail(PLACES) == pytest.approx(exact, abs=2e-3 if noise.laplace else 2e-5)
        one_place = (masses @ (np.abs(sums - strays.centre) >= 2)).max()
        assert one_place < exact[4]  # the twin that forgets that all sums count


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("end", [0, 1, -2])
def test_reflection_bounds_it(noise: DiscreteNoise, end: int) -> None:
    strays = of_noise(noise, 4, end, most_walk=0)
    assert strays is not None
    for sums, masses in exact_tails(noise, end):
        exact = beyond(strays, sums, masses)
        assert np.all(strays.tail(PLACES) >= exact - 1e-4)
        one_side = strays.tail(PLACES) / 2  # the twin that forgets the other side
        assert np.any(one_side < exact)


def test_many_cells_stray_as_a_bridge_does() -> None:
    strays = of_noise(DiscreteNoise(20), 400)
    assert strays is not None
    rng = np.random.default_rng(1)
    sums = np.cumsum(np.rint(rng.normal(0, 20, (2000, 400))), axis=1)
    off = np.abs(sums - sums[:, -1:] * np.arange(1, 401) / 400).max(axis=1)
    least = np.quantile(off, 0.95)
    assert 0.97 * least < strays.quantile(0.05) < 1.08 * least
    laplace = of_noise(DiscreteNoise(20 / math.sqrt(2), True), 400)
    assert laplace is not None
    assert laplace.quantile(0.05) == pytest.approx(strays.quantile(0.05), rel=0.03)
    assert of_noise(DiscreteNoise(1e6, True), 10**4) is None  # too many values to sum
    assert of_noise(DiscreteNoise(1e9), 10**7) is not None


def test_two_resolutions_stray_by_less_than_is_said() -> None:
    """The least squares of the module's text, by simulation."""
    rng, widths = np.random.default_rng(2), np.array([13] * 10 + [14] * 5)
    cells, blocks = rng.normal(0, 5, (4000, 200)), rng.normal(0, 5, (4000, 15))
    cells, blocks = np.rint(cells), np.rint(blocks)
    starts = np.append(0, np.cumsum(widths)[:-1])
    sums = np.add.reduceat(cells, starts, axis=1)
    totals = (widths * blocks + sums) / (widths + 1)
    part = widths / (widths + 1)
    totals -= part * totals.sum(axis=1, keepdims=True) / part.sum()
    each = cells + np.repeat((totals - sums) / widths, widths, axis=1)
    off = np.abs(np.cumsum(each, axis=1)).max(axis=1)
    strays, plain = strays_of_blocks(5.0, widths), of_noise(DiscreteNoise(5.0), 200)
    assert strays is not None and plain is not None
    for alpha in (0.3, 0.05, 0.01):
        assert np.mean(off >= strays.quantile(alpha)) <= alpha
    assert np.mean(off >= strays.quantile(0.05) / 2) > 0.05
    assert strays.quantile(0.05) < 0.75 * plain.quantile(0.05)
    assert strays_of_blocks(2.9, widths) is None


# --- cells -----------------------------------------------------------------------------------


def held(
    n: int, law: tuple[float, ...], noise: DiscreteNoise, counts: Any, shares: Any
) -> tuple[float, float]:
    """Probabilities that all limits hold, over all tables; those of a cell go by its count."""
    reach = 9 * math.ceil(noise.sd) + 3
    z, masses = np.arange(-reach, reach + 1), noise.masses(reach)
    low, high = (dict(zip(range(-reach, n + reach + 1), each, strict=True)) for each in shares)
    least, most = (dict(zip(range(-reach, n + reach + 1), each, strict=True)) for each in counts)
    noise_law = list(zip(z.tolist(), masses.tolist(), strict=True))
    found = [0.0, 0.0]
    for table in tables(n, len(law)):
        weight = stats.multinomial.pmf(table, n, law)
        both = [
            [
                sum(m for e, m in noise_law if least[h + e] <= h <= most[h + e]),
                sum(m for e, m in noise_law if low[h + e] <= p <= high[h + e]),
            ]
            for h, p in zip(table, law, strict=True)
        ]  # fmt: skip
        for i in range(2):
            found[i] += weight * math.prod(one[i] for one in both)
    return found[0], found[1]


def limits_of(law: NoisyCells, level: float) -> tuple[Any, Any]:
    reach = 9 * math.ceil(law.noise.sd) + 3
    y = np.arange(-reach, law.n_records + reach + 1)
    return law.counts(y, level), bands.share_limits(law, y, level)


@pytest.mark.parametrize("noise", [DiscreteNoise(1.3), DiscreteNoise(0.9, True)])
def test_bands_of_noisy_cells_hold_for_every_table(noise: DiscreteNoise) -> None:
    law = NoisyCells(noise, 6, 3)
    found = limits_of(law, LEVEL)
    one_cell = limits_of(NoisyCells(noise, 6, 1), LEVEL)
    no_noise = limits_of(NoisyCells(DiscreteNoise(1e-3), 6, 3), LEVEL)
    reach = 9 * math.ceil(noise.sd) + 3
    padded = [np.pad(each, reach - 12, mode="edge") for pair in no_noise for each in pair]
    twins = [one_cell, (padded[:2], padded[2:])]
    caught = [0, 0]
    for shares in LAWS:
        counted, lawful = held(6, shares, noise, *found)
        assert counted >= LEVEL and lawful >= LEVEL
        for i, twin in enumerate(twins):
            caught[i] += min(held(6, shares, noise, *twin)) < LEVEL - 0.02
    assert all(caught)


def test_bands_of_drawn_cells_hold_for_every_table() -> None:
    law = DrawnCells(draws=7, pseudocount=0.7, n_records=5, n_cells=3)
    z, draws = np.arange(8), np.array(tables(7, 3))
    least, most = law.counts(z, LEVEL)
    low, high = bands.share_limits(law, z, LEVEL)
    wrong = np.array(law.counts(z, 0.3))  # a twin at another level
    for shares in LAWS:
        counted = lawful = twin = 0.0
        for table in tables(5, 3):
            drawn_from = (np.array(table) + 0.7) / law.total
            weight = stats.multinomial.pmf(table, 5, shares)
            masses = weight * stats.multinomial.pmf(draws, 7, drawn_from)

            def holding(ends: Any, truth: Any, masses: Any = masses) -> float:
                inside = (ends[0][draws] <= truth) & (truth <= ends[1][draws])
                return float(masses @ inside.all(axis=1))

            counted += holding((least, most), table)
            lawful += holding((low, high), shares)
            twin += holding(wrong, table)
        assert counted >= LEVEL and lawful >= LEVEL and twin < counted


def test_without_noise_limits_are_those_of_clopper_and_pearson() -> None:
    y, n, cells = np.array([0, 1, 5, 12, 39, 40]), 40, 4
    alpha = (1 - LEVEL) / (2 * cells)
    low, high = bands.share_limits(NoisyCells(DiscreteNoise(0.02), n, cells), y, LEVEL)
    exact_low = np.where(y > 0, stats.beta.ppf(alpha, np.maximum(y, 1), n - y + 1), 0)
    exact_high = np.where(y < n, stats.beta.ppf(1 - alpha, y + 1, np.maximum(n - y, 1)), 1)
    assert np.all(low <= exact_low + 1e-9) and np.all(high >= exact_high - 1e-9)
    assert low == pytest.approx(exact_low, rel=2e-3, abs=1e-5)
    assert high == pytest.approx(exact_high, rel=2e-3)


def test_the_total_narrows_limits_and_contradicts_none() -> None:
    low, high = bands.with_total(np.array([6.0, 0, 0]), np.array([9.0, 7, 2]), 10.0)
    assert low.tolist() == [6, 0, 0] and high.tolist() == [9, 4, 2]
    low, high = bands.with_total(np.array([0.0, 0]), np.array([9.0, 3]), 10.0)
    assert low.tolist() == [7, 1]
    missed = np.array([6.0, 6.0]), np.array([9.0, 9.0])
    assert bands.with_total(*missed, 10.0) == missed


def test_more_values_than_are_searched_are_rounded_outwards() -> None:
    law, y = NoisyCells(DiscreteNoise(3.0), 500, 40), np.arange(-10, 120, 3)
    each = bands.share_limits(law, y, LEVEL)
    some = bands.share_limits(law, y, LEVEL, most_values=12)
    assert np.all(some[0] <= each[0]) and np.all(some[1] >= each[1])
    assert np.any(some[0] < each[0]) and some[0][0] == each[0][0]


# --- distribution functions ---------------------------------------------------------------------


@pytest.mark.parametrize("noise", [DiscreteNoise(1.2), DiscreteNoise(0.8, True)])
def test_cumulative_bands_hold_for_every_table(noise: DiscreteNoise) -> None:
    n, cells, reach = 4, 3, 7
    steps, masses = paths(noise, cells, reach)
    law = BandLaw.of_noise(noise, n_records=n, n_cells=cells)
    assert law.places is None
    distances = {}
    for end in range(-cells * reach, cells * reach + 1):
        strays = law.strays(end)
        assert strays is not None
        count = bands.count_distance(strays, LEVEL)
        distances[end] = (count, bands.share_distance(strays, n, LEVEL), strays.centre)
    ends = steps.sum(axis=1)
    counts, sums = (np.array([distances[end][i] for end in ends]) for i in range(2))
    centres = np.array([distances[end][2] for end in ends])
    off = np.cumsum(steps, axis=1) - centres
    largest = np.abs(off[:, :-1]).max(axis=1)
    assert masses[largest < counts].sum() >= LEVEL - 1e-6
    assert masses[largest < counts / 2].sum() < LEVEL
    for shares in LAWS:
        held = forgotten = 0.0
        for table in tables(n, cells):
            weight = stats.multinomial.pmf(table, n, shares)
            gap = np.cumsum(table) - n * np.cumsum(shares)
            away = np.abs(gap + off)[:, :-1].max(axis=1)
            held += weight * masses[away < sums].sum()
            forgotten += weight * masses[away < 1.0].sum()
        assert held >= LEVEL - 1e-6
        assert forgotten < LEVEL


def test_cumulative_bands_by_place_hold_for_every_table() -> None:
    n, cells, noise, reach = 3, 3, DiscreteNoise(2.1), 7
    steps, masses = paths(noise, cells, reach)
    law = BandLaw.of_noise(noise, n_records=n, n_cells=cells)
    assert law.places is not None
    for shares in LAWS[1::3]:
        held = twin = 0.0
        for table in tables(n, cells):
            weight = stats.multinomial.pmf(table, n, shares)
            if weight == 0:
                continue
            inside, narrow = np.ones(len(steps), bool), np.ones(len(steps), bool)
            summed = np.cumsum(steps + table, axis=1)
            for i, truth in enumerate(np.cumsum(shares)[:-1]):
                y = np.round(summed[:, i] - (i + 1) * steps.sum(axis=1) / cells, 9)
                values, places = np.unique(y, return_inverse=True)
                found = law.places(values, np.full(len(values), i + 1), 0)
                for right, kept in ((found, inside), (replace(found, number=1), narrow)):
                    kept &= holds(right, truth)[places]
            held += weight * masses[inside].sum()
            twin += weight * masses[narrow].sum()
        assert held >= LEVEL - 1e-6
        assert twin <= held
    assert twin < held


def holds(found: bands.Places, truth: float) -> NDArray[np.bool_]:
    """bool[k]: where neither end excludes the truth, which is what the limits are the ends of."""
    alpha = (1 - LEVEL) / (2 * found.number)
    p = np.full(len(found.y), truth)
    below = found.law.exceeding(found.y, p, alpha, other=False)
    above = found.law.exceeding(found.whole - found.y, 1 - p, alpha, other=True)
    return (below > alpha) & (above > alpha)


def test_limits_by_place_are_where_the_truth_is_excluded() -> None:
    found = BandLaw.of_noise(DiscreteNoise(3.0), n_records=200, n_cells=5).places
    assert found is not None
    places = found(np.array([30.0, 80, 150, 190]), np.arange(1, 5), 4)
    alpha = (1 - LEVEL) / 8
    for end, place in zip(places.limits(LEVEL), (-1e-3, 1e-3), strict=True):
        other = place > 0
        y = places.whole - places.y if other else places.y
        for shift, excluded in ((place, True), (-place, False)):
            p = 1 - (end + shift) if other else end + shift
            assert np.all((places.law.exceeding(y, p, alpha, other=other) < alpha) == excluded)


def test_both_errors_together_take_less_than_a_divided_level() -> None:
    n = 1000
    strays = band_limits.of_draws(n, n, 10)
    joint = bands.share_distance(strays, n, 0.95)
    assert joint < 0.94 * 2 * strays.quantile(0.025)
    rng = np.random.default_rng(4)
    counts = rng.multinomial(n, np.full(10, 0.1), 2000)
    drawn = np.array([rng.multinomial(n, one / n) for one in counts])
    off = np.abs(np.cumsum(drawn, axis=1) - n * np.arange(1, 11) / 10).max(axis=1)
    assert np.mean(off >= joint) <= 0.05
    assert np.mean(off >= strays.quantile(0.05)) > 0.05  # the twin without the second error


def test_a_sum_that_hardly_occurs_leaves_everything_open() -> None:
    strays = of_noise(DiscreteNoise(0.5, True), 3, 200)
    assert strays is not None
    assert math.isinf(bands.count_distance(strays, 0.95))
    assert math.isinf(bands.share_distance(strays, 50, 0.95))


def test_bands_do_not_decrease_and_end_at_the_whole() -> None:
    low, high = bands.cumulated_count_band(np.array([3.0, 0.5, 8.2, 9.9]), 2.0, 10)
    assert low.tolist() == [1, 1, 7, 10] and high.tolist() == [2, 2, 10, 10]


def test_limits_that_noise_would_make_cross_are_turned_round() -> None:
    """The gate for releases stops limits out of order, after the charge."""
    low, high = bands.cumulated_count_band(np.array([3.0, -2.5, 8.2, 9.9]), 2.0, 10)
    assert low.tolist() == [0, 0, 7, 10] and high.tolist() == [1, 1, 10, 10]


# --- what may be asked for ------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "nulls", "words"),
    [
        ((Categorical(name="x", categories=("a", "b")),), False, "no order"),
        ((Integer(name="x", lower=0, upper=3, missing=True),), False, "missing values"),
        ((Ordinal(name="x", categories=(1, 2), other=True),), False, "'other'"),
        ((Integer(name="x", lower=0, upper=3),), True, "allows values"),
        (tuple(Integer(name=each, lower=0, upper=3) for each in "xy"), False, "one column"),
    ],
)  # fmt: skip
def test_a_cumulative_band_needs_an_order(
    columns: tuple[Column, ...], nulls: bool, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        BandKnobs(bands=("cumulative",)).check_columns(columns, nulls)
    BandKnobs(bands=("cells",)).check_columns(columns, nulls)


def test_levels_and_names_are_checked() -> None:
    BandKnobs(bands=("cumulative",)).check_columns((Ordinal(name="x", categories=(1, 2)),), False)
    for wrong in ({"confidence": 0.9}, {"bands": ("cells", "cells")}):
        with pytest.raises(ConfigError):
            BandKnobs(**wrong)
    for level in (0.2, 1.0, math.nan):
        with pytest.raises(ConfigError, match="level of bands"):
            BandKnobs(bands=("cells",), confidence=level)
    assert BandKnobs.from_facts({}) == BandKnobs()
    with pytest.raises(ValueError, match="does not know"):
        BandKnobs.from_facts({"bands": ["ranks"], "confidence": 0.9})
