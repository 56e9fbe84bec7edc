"""Noisy counts at two resolutions: loss by enumeration, least squares, calibration, refusals."""

from __future__ import annotations

import collections
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.choice import choose
from statpress.mechanisms.postprocessing.consistency import (
    NoisyTable,
    make_consistent,
    project_to_simplex,
)
from statpress.mechanisms.tables import two_resolutions
from statpress.mechanisms.tables import two_resolutions as block_estimates
from statpress.mechanisms.tables.count_tables import TABLE, AutoKnobs
from statpress.mechanisms.tables.expected import ExpectedCounts
from statpress.mechanisms.tables.two_resolutions import (
    BlockCounts,
    TwoResolutions,
    TwoResolutionsKnobs,
    ends_of,
    projected_by_blocks,
    projected_rows,
    simulated_variation,
)
from statpress.tasks.release.entropy import SeededRandomness

EPSILONS = (0.0, 0.3, 0.7, 1.5)
SPLITS = [(2, 2), (5, 5), (6, 2), (7, 3), (10, 4), (23, 5)]


def randomness(seed: int = 3) -> SeededRandomness:
    return SeededRandomness(np.random.PCG64(seed))


def line(cells: int) -> Domain:
    return Domain((Integer(name="x", lower=0, upper=cells - 1),))


def table(counts: tuple[int, ...]) -> ContingencyTable:
    occupied = np.flatnonzero(counts)
    return ContingencyTable(line(len(counts)), occupied, np.array(counts)[occupied])


def noiseless(counts: tuple[int, ...], blocks: int) -> tuple[int, ...]:
    """All counts of a release whose noise is so little that all of it is 0."""
    release = TwoResolutions(Fraction(1, 16), blocks).release(table(counts), randomness())
    return (*release.counts.tolist(), *release.blocks.tolist())


# --- loss ------------------------------------------------------------------------------


def shifts(n: int, cells: int, blocks: int, c: int) -> set[tuple[int, ...]]:
    """What the counts of a release change by, over all tables of n records and all neighbours."""
    tables = [t for t in itertools.product(range(n + 1), repeat=cells) if sum(t) == n]
    counts = {t: noiseless(t, blocks) for t in tables}
    found = set()
    for h, g in itertools.permutations(tables, 2):
        if sum(max(a - b, 0) for a, b in zip(h, g, strict=True)) <= c:
            moves = (b - a for a, b in zip(counts[h], counts[g], strict=True) if a != b)
            found.add(tuple(sorted(moves)))
    return found


def hockey_stick(scale: Fraction, shift: tuple[int, ...]) -> list[float]:
    """Divergences of the moved counts' noise from the shifted noise, for all epsilons.

    The loss at noise z that moves by v is v (v - 2 z)/(2 scale^2), so that outputs are merged by
    an integer, and losses of independent counts add.
    """
    unit, reach = 2 * float(scale) ** 2, 40
    z = np.arange(-reach, reach + 1)
    p = np.exp(-(z**2) / unit)
    p /= p.sum()
    total = {0: 1.0}
    for v in shift:
        both: collections.Counter[int] = collections.Counter()
        for (one, q), (place, r) in itertools.product(total.items(), zip(z, p, strict=True)):
            if q * r > 1e-18:
                both[one + v * (v - 2 * int(place))] += q * float(r)
        total = both
    return [
        sum(q * -math.expm1(e - k / unit) for k, q in total.items() if k / unit > e)
        for e in EPSILONS
    ]


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(5, 2)])
@pytest.mark.parametrize(("cells", "blocks"), [(2, 2), (3, 2), (4, 2), (5, 3)])
@pytest.mark.parametrize("c", [1, 2])
def test_the_loss_is_the_worst_over_all_neighbours(
    scale: Fraction, cells: int, blocks: int, c: int
) -> None:
    moves = shifts(2, cells, blocks, c)
    assert (-1, -1, 1, 1) in moves
    assert ((-1, 1) in moves) == (cells > blocks)  # within a block
    frame = {"n_records": 2, "n_cells": cells, "unit_records": c}
    loss = TwoResolutions(scale, blocks).loss(**frame)
    found = {shift: hockey_stick(scale, shift) for shift in moves}
    for i, epsilon in enumerate(EPSILONS):
        worst = max(curve[i] for curve in found.values())
        bounds = loss.delta(epsilon)
        assert worst <= bounds.upper + 1e-10
        assert found[-c, -c, c, c][i] == pytest.approx(bounds.lower, abs=1e-10)
        if c == 1:
            assert worst == pytest.approx(bounds.upper, abs=1e-10)
        # The broken twins: the blocks' loss forgotten, and a unit charged as one record.
        assert DiscreteGaussianLoss(scale**2, c, 2).delta(epsilon).upper < worst - 1e-6
        if c == 2:
            alone = TwoResolutions(scale, blocks).loss(n_records=2, n_cells=cells)
            assert alone.delta(epsilon).upper < worst - 1e-6


@pytest.mark.parametrize("c", [1, 2, 7])
def test_rho_is_that_of_the_squares_of_all_moves(c: int) -> None:
    loss = TwoResolutions(Fraction(3), 2).loss(n_records=9, n_cells=5, unit_records=c)
    assert loss.rho.upper == pytest.approx(2 * c**2 / 9, rel=1e-15)
    assert loss.rho.lower == pytest.approx(2 * c**2 / 9, rel=1e-15)
    assert loss.renyi(4).upper == pytest.approx(8 * c**2 / 9, rel=1e-15)


# --- estimates ---------------------------------------------------------------------------


def least_squares(cells: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrix that estimates the cells from (counts, blocks, n), and their covariance.

    By the bordered system of the least squares whose cells add up to n, at noise of variance 1.
    """
    design = np.array([noiseless(tuple(row), blocks) for row in np.eye(cells, dtype=int)]).T
    ones = np.ones((cells, 1))
    bordered = np.block([[design.T @ design, ones], [ones.T, np.zeros((1, 1))]])
    right = np.block([[design.T, np.zeros((cells, 1))], [np.zeros((1, cells + blocks)), 1.0]])
    found = np.linalg.solve(bordered, right)[:cells]
    linear = found[:, :-1]
    return found, linear @ linear.T


@pytest.mark.parametrize(("cells", "blocks"), SPLITS)
def test_estimates_and_errors_are_those_of_least_squares(cells: int, blocks: int) -> None:
    mechanism = TwoResolutions(Fraction(7, 2), blocks)
    counts = tuple(int(k) for k in np.random.default_rng(1).integers(0, 30, cells))
    release = mechanism.release(table(counts), randomness())
    made = mechanism.postprocess(release, n_records=sum(counts))
    matrix, covariance = least_squares(cells, blocks)
    drawn = np.concatenate([release.counts, release.blocks, [sum(counts)]])
    assert made.estimates == pytest.approx(matrix @ drawn, abs=1e-9)
    assert made.standard_errors == pytest.approx(3.5 * np.sqrt(np.diag(covariance)), abs=1e-9)
    error = mechanism.expected_error(n_records=sum(counts), n_cells=cells)
    assert error.cell_sd_average == pytest.approx(made.standard_errors.mean(), rel=1e-12)
    assert error.cell_sd_most == made.standard_errors.max()


@pytest.mark.parametrize(("blocks", "width"), [(2, 3), (5, 4), (3, 1)])
def test_blocks_of_one_size_are_a_grid_made_consistent(blocks: int, width: int) -> None:
    mechanism = TwoResolutions(Fraction(4), blocks)
    release = mechanism.release(table((5,) * (blocks * width)), randomness())
    made = mechanism.postprocess(release, n_records=5 * blocks * width)
    columns = [Integer(name=n, lower=0, upper=k - 1) for n, k in (("a", blocks), ("b", width))]
    coarse = NoisyTable(Domain(columns[:1]), release.blocks, 16.0)
    fine = NoisyTable(Domain(columns), release.counts.reshape(blocks, width), 16.0)
    both = make_consistent([coarse, fine], total=5.0 * blocks * width)
    assert made.estimates == pytest.approx(both[1].estimates.ravel(), abs=1e-9)
    assert made.standard_errors == pytest.approx(both[1].standard_errors.ravel(), abs=1e-9)


def test_blocks_are_projected_before_their_cells() -> None:
    counts = (40, 0, 0, 0, 0, 3, 0, 0, 0, 0, 17)
    mechanism = TwoResolutions(Fraction(6), 3)
    made = mechanism.postprocess(mechanism.release(table(counts), randomness()), n_records=60)
    assert made.projected is not None
    assert made.projected.min() == 0
    split = (3, 7)
    totals = [float(part.sum()) for part in np.split(made.estimates, split)]
    whole = project_to_simplex(totals, 60.0).values
    parts = [float(part.sum()) for part in np.split(made.projected, split)]
    assert parts == pytest.approx(whole, abs=1e-9)
    at_once = project_to_simplex(made.estimates, 60.0).values
    assert np.abs(at_once - made.projected).max() > 0.1


@pytest.mark.parametrize(("cells", "blocks"), [(50, 8), (60, 7), (100, 11), (23, 5)])
def test_the_expected_peak_is_that_of_the_cumulative_counts(cells: int, blocks: int) -> None:
    _, covariance = least_squares(cells, blocks)
    below = np.tril(np.ones((cells, cells)))
    most = np.diag(below @ covariance @ below.T).max()
    scale, n = Fraction(5), 1000
    expected = TwoResolutions(scale, blocks).expected_error(n_records=n, n_cells=cells)
    one_table = 2 * math.sqrt(math.pi / 2) * math.log(2) * 5 * math.sqrt(most) / n
    assert 1 <= expected.kolmogorov_smirnov / one_table < 1.08


@pytest.mark.parametrize(
    ("cells", "blocks", "factor"), [(20, 6, 0.9), (50, 8, 1.04), (100, 11, 1.14)]
)
def test_the_expected_distance_is_near_the_simulated_one(
    cells: int, blocks: int, factor: float
) -> None:
    matrix, _ = least_squares(cells, blocks)
    noise = np.random.default_rng(5).normal(0, 9, (cells + blocks, 4000))
    gaps = np.abs(np.cumsum(matrix[:, :-1] @ noise, axis=0)).max(axis=0) / 1000
    expected = TwoResolutions(Fraction(9), blocks).expected_error(n_records=1000, n_cells=cells)
    assert gaps.mean() == pytest.approx(factor * expected.kolmogorov_smirnov, rel=0.03)


@pytest.mark.parametrize("cells", [2, 3, 4, 5, 6, 10, 17, 50, 100, 733])
def test_the_default_blocks_are_the_best_of_all(cells: int) -> None:
    def error(blocks: int) -> float:
        return two_resolutions._peak(blocks, cells)

    target = Target(epsilon=1.0, delta=1e-6, n_records=9, n_cells=cells)
    chosen = TwoResolutions.calibrate(TwoResolutionsKnobs(), target).blocks
    assert error(chosen) == min(error(blocks) for blocks in range(2, cells + 1))


def test_projecting_all_blocks_at_once_is_projecting_one_by_one() -> None:
    rng = np.random.default_rng(8)
    for cells, blocks, n in ((50, 7, 200), (6, 6, 9), (31, 2, 1000)):
        ends = ends_of(blocks, cells)
        totals, estimates = rng.normal(n / blocks, n / 3, blocks), rng.normal(1, 30, cells)
        whole = project_to_simplex(totals, float(n)).values
        found = projected_rows(whole, estimates, ends)
        np.testing.assert_allclose(
            found, projected_by_blocks(totals, estimates, ends, n), rtol=0, atol=1e-9 * n
        )


def test_the_expected_variation_is_between_that_of_alike_and_of_scattered_cells() -> None:
    """Where noise hides most cells: less than that of noise on cells only, if they are alike."""
    n, cells, scale, found = 3000, 1000, 25.0, {}
    blocks = two_resolutions._best_blocks(cells)
    ends, rng = ends_of(blocks, cells), np.random.default_rng(9)
    zipf = n / np.arange(1, cells + 1)
    zipf *= n / zipf.sum()
    tenth = np.append(zipf[:100] * n / zipf[:100].sum(), np.zeros(900))[rng.permutation(cells)]
    for name, counts in (("even", np.full(cells, n / cells)), ("zipf", zipf), ("tenth", tenth)):
        noisy = counts + rng.normal(0, scale, cells)
        of_blocks = np.add.reduceat(counts, ends[:-1]) + rng.normal(0, scale, blocks)
        totals, estimates = block_estimates.least_squares(noisy, of_blocks, ends, n)
        whole = projected_by_blocks(totals, estimates, ends, n)
        found[name] = np.abs(whole - counts).sum() / (2 * n)
    expected = simulated_variation(Fraction(25), blocks, n, cells)
    assert expected == pytest.approx(np.mean(list(found.values())), rel=0.05)
    assert min(found.values()) < expected < max(found.values())
    made = TwoResolutions(Fraction(25), blocks).expected_error(n_records=n, n_cells=cells)
    assert made.projected_total_variation == expected
    at_once = ExpectedCounts.of_noise(scale, n_records=n, n_cells=cells)
    assert expected < 0.98 * at_once.projected_total_variation  # the twin: all cells at once


# --- release -----------------------------------------------------------------------------


def test_a_release_of_possible_cells_and_the_absent_one() -> None:
    columns = tuple(Integer(name=name, lower=0, upper=2) for name in "ab")
    domain = Domain(columns, (ZeroPattern((("a", ((1, 1),)), ("b", ((0, 1),)))),), absent=True)
    assert domain.possible_cells().tolist() == [0, 1, 2, 5, 6, 7, 8, 9]
    private = ContingencyTable(domain, np.array([1, 2, 5, 9]), np.array([4, 1, 2, 30]))
    told: list[int] = []
    release = TwoResolutions(Fraction(1, 16), 3).release(private, randomness(), told.append)
    assert sum(told) == 8
    assert release.blocks.tolist() == [4, 3, 30]  # of 2, 3 and 3 cells
    figures = release.figures()
    assert tuple(figures) == TwoResolutions.raw
    assert figures["raw"].tolist() == [0, 4, 1, 2, 0, 0, 0, 30]
    assert figures["raw_block"].tolist() == [4, 4, 3, 3, 3, 30, 30, 30]
    mechanism = TwoResolutions(Fraction(20), 3)
    made = mechanism.postprocess(mechanism.release(private, randomness()), n_records=37)
    assert made.estimates.sum() == pytest.approx(37)
    assert made.projected is not None
    assert made.projected.sum() == pytest.approx(37)


def test_counts_of_one_block_that_differ_are_refused() -> None:
    class Altered(BlockCounts):
        def figures(self) -> dict[str, np.ndarray]:
            return super().figures() | {"raw_block": np.array([1, 1, 2, 3])}

    release = Altered(line(4), np.arange(4), np.arange(4), np.arange(2))
    with pytest.raises(ValueError, match="several counts"):
        TwoResolutions(Fraction(1), 2).postprocess(release, n_records=6)


# --- calibration ---------------------------------------------------------------------------


TARGETS = {
    "epsilon": {"epsilon": 0.5, "delta": 0.01},
    "small delta": {"epsilon": 2.0, "delta": 1e-10},
    "rho": {"epsilon": 1.0, "delta": 1e-6, "rho": 0.1},
    "renyi": {"epsilon": 1.0, "delta": 1e-6, "renyi": (16, 0.7)},
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("c", [1, 3])
def test_calibration_uses_the_budget_and_no_more(name: str, c: int) -> None:
    target = Target(**TARGETS[name], n_records=900, n_cells=40, unit_records=c)
    mechanism = TwoResolutions.calibrate(TwoResolutionsKnobs(), target)
    assert target.allows(mechanism.loss(**target.frame))
    less = Fraction(float(mechanism.scale) * (1 - 2**-9))
    assert not target.allows(TwoResolutions(less, mechanism.blocks).loss(**target.frame))
    assert TwoResolutions.from_description(mechanism.describe()) == mechanism


def test_given_knobs_are_kept_or_refused() -> None:
    target = Target(epsilon=0.5, delta=0.01, n_records=900, n_cells=40)
    given = TwoResolutionsKnobs(scale=Fraction(50), blocks=40)
    assert TwoResolutions.calibrate(given, target) == TwoResolutions(Fraction(50), 40)
    with pytest.raises(InfeasibleBudgetError, match="at least 6"):
        TwoResolutions.calibrate(TwoResolutionsKnobs(scale=Fraction(6)), target)
    with pytest.raises(ConfigError, match="40 cells cannot be put into 41 blocks"):
        TwoResolutions.calibrate(TwoResolutionsKnobs(blocks=41), target)
    with pytest.raises(ConfigError, match="at least 2"):
        TwoResolutionsKnobs(blocks=1)
    with pytest.raises(RecordsError, match="double"):
        TwoResolutions(Fraction(1, 3), 2)
    with pytest.raises(RecordsError):
        TwoResolutionsKnobs(scale=Fraction(0))
    for cells, kind in ((1, ConfigError), (10**8, InfeasibleBudgetError)):
        wrong = Target(epsilon=0.5, delta=0.01, n_records=900, n_cells=cells)
        with pytest.raises(kind):
            TwoResolutions.calibrate(TwoResolutionsKnobs(), wrong)
    pure = Target(epsilon=0.5, delta=0.0, n_records=900, n_cells=40)
    with pytest.raises(InfeasibleBudgetError, match="delta above 0"):
        TwoResolutions.calibrate(TwoResolutionsKnobs(), pure)


@pytest.mark.parametrize(
    ("minimise", "cells", "chosen"),
    [
        ("kolmogorov_smirnov", 50, "two_resolutions"),
        ("kolmogorov_smirnov", 10, "gaussian"),
        ("cell_sd", 50, "gaussian"),
    ],
)
def test_auto_takes_it_for_cumulative_shares_of_many_cells(minimise, cells, chosen) -> None:
    target = Target(epsilon=0.5, delta=0.01, n_records=10_000, n_cells=cells)
    assert choose(TABLE, AutoKnobs(minimise=minimise), target).mechanism == chosen
