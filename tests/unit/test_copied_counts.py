"""Copies of a noisy table: what they keep, what they leave open, and intervals from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Categorical, Ordinal
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.copies import combined
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.copied_counts import CopiedCounts, _Margin, _Trend
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable, PerturbedKnobs

N, ERROR, COPIES = 3000, 8.0, 8
DOMAIN = Domain(
    (
        Ordinal(name="pay", categories=tuple(range(6))),
        Ordinal(name="school", categories=tuple(range(5))),
        Categorical(name="region", categories=tuple("abcde")),
        Categorical(name="sex", categories=("f", "m")),
    )
)
CELLS = DOMAIN.possible_cells()
PAY, SCHOOL, REGION, SEX = (DOMAIN.codes(CELLS, name) for name in DOMAIN.names)


def shares() -> NDArray[np.float64]:
    """Of a population in which pay rises with school, and a third of all cells is nearly empty."""
    weights = np.exp(-((PAY - SCHOOL - 0.5 * SEX) ** 2) / 2) * (1 + REGION % 3)
    return np.asarray(weights / weights.sum())


def noisy(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.multinomial(N, shares()) + np.rint(rng.normal(0, ERROR, len(CELLS))).astype(float)


def figures(counts: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The slope of pay on school, and shares of columns and of large cells, with variances."""
    n, x = counts.sum(), SCHOOL - np.average(SCHOOL, weights=counts)
    slope = (counts * x * PAY).sum() / (counts * x**2).sum()
    left = PAY - np.average(PAY, weights=counts) - slope * x
    variance = (counts * left**2).sum() / (n - 2) / (counts * x**2).sum()
    groups = [code == PAY for code in range(6)] + [code == REGION for code in range(5)]
    groups += [np.arange(len(CELLS)) == cell for cell in np.argsort(-shares())[:8]]
    p = np.array([counts[group].sum() / n for group in groups])
    return np.append(slope, p), np.append(variance, p * (1 - p) / n)


class WithoutTrends(_Margin):
    def _trends(self, *given: object) -> list[_Trend]:
        return []


def covered(
    replicates: int, *, margins: bool = True, trends: bool = True, copies: int = COPIES
) -> NDArray[np.float64]:
    """How often 95 % intervals hold each figure of the population."""
    true, rng = figures(shares() * N)[0], np.random.default_rng(4)
    held = np.zeros(len(true))
    for _ in range(replicates):
        found = CopiedCounts.of(DOMAIN, CELLS, noisy(rng), ERROR, N)
        if not margins:
            found = replace(found, pairs={})
        if not trends:
            pairs = {pair: WithoutTrends(**vars(each)) for pair, each in found.pairs.items()}
            found = replace(found, pairs=pairs)
        each = [figures(found.draw(rng).astype(np.float64)) for _ in range(copies)]
        for at, value in enumerate(true):
            q, w = np.array([[estimates[at], errors[at]] for estimates, errors in each]).T
            if copies == 1:
                low, high = q[0] - 1.96 * w[0] ** 0.5, q[0] + 1.96 * w[0] ** 0.5
            else:
                low, high = combined(q, w).interval()
            held[at] += low <= value <= high
    return held / replicates


@pytest.mark.parametrize("replicates", [10, pytest.param(30, marks=pytest.mark.nightly)])
def test_intervals_from_copies_cover_and_those_of_one_set_of_records_do_not(
    replicates: int,
) -> None:
    found = covered(replicates)
    assert 0.9 < found.mean() < 0.98
    assert found.min() > 0.95 - 5 * (0.95 * 0.05 / replicates) ** 0.5
    assert covered(replicates, copies=1).mean() < 0.75


def test_without_margins_the_columns_of_a_table_of_many_cells_are_missed() -> None:
    assert covered(7, margins=False)[1:12].mean() < 0.87


def test_without_trends_slopes_are_missed() -> None:
    assert covered(8, trends=False)[0] < 0.6


def test_copies_add_up_and_have_the_columns_that_were_drawn() -> None:
    rng = np.random.default_rng(1)
    estimates = noisy(rng)
    found = CopiedCounts.of(DOMAIN, CELLS, estimates, ERROR, N)
    drawn = np.array([found.draw(rng) for _ in range(40)])
    assert drawn.dtype == np.int64 and drawn.min() == 0
    assert set(drawn.sum(axis=1)) == {N}
    for codes, size in ((PAY, 6), (SEX, 2)):
        sums = np.array([np.bincount(codes, weights=each, minlength=size) for each in drawn])
        measured = np.bincount(codes, weights=estimates)
        error = ERROR * np.sqrt(len(CELLS) / size)
        spread = sums.std(axis=0, ddof=1)
        # the total is known, so the errors of two columns are one
        assert np.all(np.abs(sums.mean(axis=0) - measured * N / measured.sum()) < error)
        assert np.all((spread > 0.4 * error) & (spread < 1.4 * error))


def test_cells_that_are_empty_stay_empty() -> None:
    """Cut off at 0 alone, each would have half of the noise: more records than there are."""
    domain = Domain((Ordinal(name="a", categories=tuple(range(400))),))
    true = np.zeros(400)
    true[::20] = 100
    rng = np.random.default_rng(2)
    estimates = true + np.rint(rng.normal(0, 10, 400))
    found = CopiedCounts.of(domain, domain.possible_cells(), estimates, 10.0, 2000)
    drawn = np.mean([found.draw(rng) for _ in range(20)], axis=0)
    assert drawn[true == 0].sum() < 200 < np.maximum(estimates[true == 0], 0).sum()
    assert np.abs(drawn[true > 0] - 100).mean() < 12


def test_where_nothing_is_hidden_copies_are_the_table() -> None:
    counts = np.random.default_rng(3).multinomial(N, shares())
    found = CopiedCounts.of(DOMAIN, CELLS, counts.astype(np.float64), 0.0, N)
    assert np.array_equal(found.draw(np.random.default_rng(1)), counts)


def test_structural_zeros_have_no_records() -> None:
    domain = replace(DOMAIN, zeros=(ZeroPattern((("pay", ((5, 5),)), ("school", ((0, 0),)))),))
    cells = domain.possible_cells()
    assert len(cells) < len(CELLS)
    estimates = np.full(len(cells), 20.0)
    drawn = CopiedCounts.of(domain, cells, estimates, ERROR, 2000).draw(np.random.default_rng(1))
    assert len(drawn) == len(cells) and drawn.sum() == 2000


def target(domain: Domain = DOMAIN, n_cells: int = 300) -> Target:
    return Target(epsilon=1.0, delta=1e-6, n_records=N, n_cells=n_cells, domain=domain)


@pytest.mark.parametrize("kind", [GaussianTable, LaplaceTable])
def test_they_are_part_of_the_description_only_where_they_are_asked_for(
    kind: type[GaussianTable],
) -> None:
    without, one, some = (
        kind.calibrate(PerturbedKnobs(copies=copies), target()) for copies in (None, 1, 7)
    )
    assert without == one and "copies" not in one.describe()
    assert some.describe() == {**one.describe(), "copies": 7}
    assert kind.from_description(some.describe()) == some


def test_what_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 to 100 copies"):
        PerturbedKnobs(copies=101)
    asked = PerturbedKnobs(copies=10)
    with pytest.raises(ConfigError, match="at most 1,000,000 cells; here are 1,000,001"):
        GaussianTable.calibrate(asked, target(n_cells=1_000_001))
    with pytest.raises(ConfigError, match="units of one record"):
        GaussianTable.calibrate(asked, target(replace(DOMAIN, absent=True)))
