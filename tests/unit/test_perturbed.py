"""Perturbed histograms: exact loss by enumeration, calibration, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from neighbouring import neighbours

from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss
from statpress.mechanisms.domain.columns import Categorical
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import InfeasibleBudgetError, RecordsError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable, PerturbedKnobs
from statpress.tasks.release.entropy import SeededRandomness, SystemRandomness

FRAME = {"n_records": 3, "n_cells": 3}


def masses(mechanism: LaplaceTable | GaussianTable, reach: int) -> np.ndarray:
    """Probabilities of the noise at -reach..reach, by the definition."""
    z = np.arange(-reach, reach + 1)
    s = float(mechanism.scale)
    laplace = isinstance(mechanism, LaplaceTable)
    weights = np.exp(-np.abs(z) / s if laplace else -(z**2) / (2 * s**2))
    return weights / weights.sum()


def enumerated(mechanism: LaplaceTable | GaussianTable, epsilon: float, reach: int = 80) -> float:
    """Worst hockey-stick divergence over all neighbours, from the whole output distribution.

    The cells are independent, and those that do not move have the same noise in both
    tables: they cancel. So the outputs of the moved cells are enumerated.
    """
    p = masses(mechanism, reach)
    worst = 0.0
    for a, b in neighbours(2, 3):
        shifts = [y - x for x, y in zip(a, b, strict=True) if x != y]
        first, second = np.ones(1), np.ones(1)
        for shift in shifts:
            moved = np.zeros_like(p)
            if shift > 0:
                moved[shift:] = p[:-shift]
            else:
                moved[:shift] = p[-shift:]
            first = np.multiply.outer(first, p).ravel()
            second = np.multiply.outer(second, moved).ravel()
        worst = max(worst, float(np.maximum(first - math.exp(epsilon) * second, 0).sum()))
    return worst


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(3, 2), Fraction(5, 2)])
@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.7, 1.1, 1.9])
def test_the_loss_is_the_worst_over_all_neighbours(kind, scale: Fraction, epsilon: float) -> None:
    mechanism = kind(scale)
    claimed = mechanism.loss(**FRAME).delta(epsilon)
    found = enumerated(mechanism, epsilon)
    assert found == pytest.approx(claimed.upper, abs=1e-9)  # noise beyond the reach is left out
    # The broken twins: one cell instead of two, and half the noise.
    one_cell = (
        DiscreteLaplaceLoss(scale, 1, 1)
        if kind is LaplaceTable
        else DiscreteGaussianLoss(scale**2, 1, 1)
    )
    assert one_cell.delta(epsilon).upper < found or found < 1e-9 or epsilon == 0
    assert enumerated(kind(scale / 2), epsilon) > claimed.upper or claimed.upper < 1e-9


def test_pure_epsilon_and_rho_are_the_textbooks() -> None:
    assert LaplaceTable(Fraction(4)).loss(**FRAME).pure_epsilon == (0.5, 0.5)
    assert GaussianTable(Fraction(4)).loss(**FRAME).rho == (1 / 16, 1 / 16)
    assert math.isinf(GaussianTable(Fraction(4)).loss(**FRAME).pure_epsilon.lower)


def test_a_domain_of_one_cell_costs_nothing() -> None:
    loss = LaplaceTable(Fraction(1)).loss(n_records=5, n_cells=1)
    assert loss.delta(0.0) == (0.0, 0.0)


@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-8), (5.0, 1e-10), (0.01, 1e-3), (20.0, 1e-12)]
)
def test_the_smallest_scale_meets_the_budget_and_no_smaller_one(
    kind, epsilon: float, delta: float
) -> None:
    target = Target(epsilon=epsilon, delta=delta, n_records=1000, n_cells=50)
    mechanism = kind.calibrate(PerturbedKnobs(), target)
    frame = {"n_records": 1000, "n_cells": 50}
    assert mechanism.loss(**frame).delta(epsilon).upper <= delta
    finer = kind(Fraction(float(mechanism.scale) * (1 - 2**-9)))
    assert finer.loss(**frame).delta(epsilon).upper > delta
    assert kind.from_description(mechanism.describe()) == mechanism


def test_pure_budgets() -> None:
    target = Target(epsilon=0.5, delta=0.0, n_records=1000, n_cells=50)
    assert LaplaceTable.calibrate(PerturbedKnobs(), target).scale == 4
    with pytest.raises(InfeasibleBudgetError, match="No scale"):
        GaussianTable.calibrate(PerturbedKnobs(), target)


def test_a_given_scale_is_kept_or_refused_with_one_that_would_do() -> None:
    target = Target(epsilon=0.5, delta=0.0, n_records=1000, n_cells=50)
    assert LaplaceTable.calibrate(PerturbedKnobs(scale=Fraction(9)), target).scale == 9
    third = LaplaceTable.calibrate(PerturbedKnobs(scale=Fraction(13, 3)), target).scale
    assert 0 <= third - Fraction(13, 3) < Fraction(1, 10**12)
    with pytest.raises(InfeasibleBudgetError, match="at least 4"):
        LaplaceTable.calibrate(PerturbedKnobs(scale=Fraction(3)), target)
    for scale in (Fraction(0), Fraction(-1), Fraction(2**41)):
        with pytest.raises(RecordsError):
            PerturbedKnobs(scale=scale)
    with pytest.raises(RecordsError, match="double"):
        LaplaceTable(Fraction(1, 3))
    with pytest.raises(InfeasibleBudgetError, match="a row per cell"):
        LaplaceTable.calibrate(
            PerturbedKnobs(), Target(epsilon=1, delta=0, n_records=9, n_cells=10**8)
        )


def table() -> ContingencyTable:
    columns = (
        Categorical(name="a", categories=tuple("abcd")),
        Categorical(name="b", categories=tuple("xyz")),
    )
    domain = Domain(columns)
    return ContingencyTable(domain, np.array([0, 5, 11]), np.array([7, 2, 40]))


def test_every_cell_has_noise_and_the_counts_are_in_it() -> None:
    private = table()
    mechanism = LaplaceTable(Fraction(1, 16))  # so little noise that all of it is 0
    noisy = mechanism.release(private, SeededRandomness(np.random.PCG64(1)))
    assert noisy.counts.tolist() == [7, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 40]
    told: list[int] = []
    loud = GaussianTable(Fraction(50)).release(
        private, SeededRandomness(np.random.PCG64(1)), told.append
    )
    assert np.all(loud.counts != noisy.counts)
    assert sum(told) == 12
    again = GaussianTable(Fraction(50)).postprocess(loud, n_records=49)
    assert again.estimates.tolist() == loud.counts.tolist()
    assert np.all(again.standard_errors == 50)


@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(20)])
def test_the_stated_deviation_is_the_noises(kind, scale: Fraction) -> None:
    p = masses(kind(scale), 2000)
    z = np.arange(-2000, 2001)
    true = math.sqrt(float(p @ z**2))
    stated = kind(scale).sd
    assert true <= stated * (1 + 1e-9)
    if kind is LaplaceTable:
        assert stated == pytest.approx(true, rel=1e-9)


SAMPLERS = {
    "system": SystemRandomness(np.random.PCG64(20261128)),
    "seeded": SeededRandomness(np.random.PCG64(20261121)),
}


@pytest.mark.parametrize("size", [20_000, pytest.param(60_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
@pytest.mark.parametrize("scale", [Fraction(3, 4), Fraction(6)])
def test_the_samplers_draw_this_noise_and_no_other(
    sampler: str, kind, scale: Fraction, size: int
) -> None:
    """Chi-square at level 1e-6; noise of an eighth less and an eighth more is caught."""
    from scipy.stats import chi2

    rng = SAMPLERS[sampler]
    drawn = kind(scale)._noise(rng, size)

    def statistic(assumed: Fraction) -> float:
        p = masses(kind(assumed), 400)
        reach = max(k for k in range(1, 400) if size * p[400 - k : 401 + k].min() >= 20)
        inner = p[400 - reach : 401 + reach]
        counts = np.bincount(np.clip(drawn + reach, -1, 2 * reach + 1) + 1, minlength=2 * reach + 3)
        observed = np.append(counts[1:-1], counts[0] + counts[-1])
        expected = size * np.append(inner, 1 - inner.sum())
        if expected[-1] < 20:
            observed[-2] += observed[-1]
            expected[-2] += expected[-1]
            observed, expected = observed[:-1], expected[:-1]
        value = float(np.sum((observed - expected) ** 2 / expected))
        return float(chi2.sf(value, len(expected) - 1))

    assert statistic(scale) > 1e-6
    assert statistic(scale * Fraction(7, 8)) < 1e-6
    assert statistic(scale * Fraction(9, 8)) < 1e-6


def test_the_average_over_many_tables_is_the_truth() -> None:
    private, rng = table(), SeededRandomness(np.random.PCG64(5))
    mechanism = GaussianTable(Fraction(2))
    total = sum(mechanism.release(private, rng).counts for _ in range(4000))
    truth = np.zeros(12)
    truth[private.cells] = private.counts
    assert total / 4000 == pytest.approx(truth, abs=5 * 2 / math.sqrt(4000))


@pytest.mark.parametrize("frame", [{"n_records": 0, "n_cells": 3}, {"n_records": 3, "n_cells": 0}])
def test_a_size_that_cannot_be_has_no_loss_to_state(frame: dict[str, int]) -> None:
    with pytest.raises(RecordsError):
        LaplaceTable(Fraction(1)).loss(**frame)
