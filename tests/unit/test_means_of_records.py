"""The means of records' columns: within what the unbiased counts say of them."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from coded import in_memory
from scipy.optimize import minimize

from statpress.mechanisms.domain.column import Ranges
from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals import column_shares
from statpress.mechanisms.marginals.column_shares import _within, ends_of, one_ways
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import NoisyMarginals
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

N = 3000


def released(column: Column, codes: np.ndarray, seed: int = 1) -> NoisyMarginals:
    """A product of one column."""
    domain = Domain((column,))
    target = Target(epsilon=0.5, delta=1e-6, n_records=N, n_cells=column.size, domain=domain)
    coded = in_memory(domain, codes[:, None].astype(np.uint8))
    rng = SeededRandomness(np.random.PCG64(seed))
    return Marginals.calibrate(MarginalsKnobs(), target).release(coded, rng)


def shares_of(release: NoisyMarginals) -> np.ndarray:
    (shares,) = one_ways(release, release.residuals(), release.n_records, (), smoothed=True)
    return shares


def tail(size: int) -> np.ndarray:
    return np.minimum(np.random.default_rng(5).negative_binomial(0.6, 0.2, N), size - 1)


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_the_nearest_with_such_a_mean(seed: int) -> None:
    """Against a solver; an impossible cell stays empty."""
    rng = np.random.default_rng(seed)
    estimate, side = rng.normal(1 / 8, 0.2, 8), np.arange(8) - rng.uniform(0.5, 3)
    possible = np.arange(8) != 4
    found = _within(np.full(8, 1 / 8), estimate, [side], possible)
    assert found.min() >= 0 and not found[4]
    assert found.sum() == pytest.approx(1) and side @ found <= 1e-12
    best = minimize(
        lambda x: float(((x - estimate) ** 2).sum()),
        found,
        bounds=[(0, 1 if there else 0) for there in possible],
        constraints=[
            {"type": "eq", "fun": lambda x: x.sum() - 1},
            {"type": "ineq", "fun": lambda x: -side @ x},
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert ((found - estimate) ** 2).sum() <= best.fun + 1e-7
    inside = np.eye(8)[0]
    assert _within(inside, estimate, [side], possible) is inside  # nothing moves without need
    assert _within(inside, estimate, [np.ones(8)], possible) is inside  # no shares have such a mean


def test_an_interval_leaves_room_for_the_truth() -> None:
    low, high = ends_of(50.0, 2.0, 0.0, 100.0)
    assert (low, high) == (pytest.approx(48, abs=1e-3), pytest.approx(52, abs=1e-3))
    for value in (-9.0, -3.0, 0.0, 3.0):
        low, high = ends_of(value, 1.0, 0.0, 100.0)
        assert low < high and high > max(0.0, value)
        mirrored = ends_of(100 - value, 1.0, 0.0, 100.0)
        assert mirrored == (pytest.approx(100 - high), pytest.approx(100 - low))


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="x", lower=0, upper=89),
        Integer(name="x", lower=0, upper=88, missing=True),
        Integer(name="x", lower=0, upper=88, special=(99999,)),
        Numeric(name="x", edges=tuple(float(i**1.5) for i in range(91))),
        Date(name="x", first=datetime.date(2000, 1, 1), last=datetime.date(2000, 3, 30), by="day"),
    ],
    ids=["integer", "missing", "special", "numeric", "date"],
)
def test_the_mean_of_a_long_tail_is_where_the_unbiased_counts_have_it(
    column: Ranges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: projected without regard to the mean, the mean is further off."""
    k = len(column.amounts)
    codes = tail(k)
    if k < column.size:
        codes = np.where(np.arange(N) % 7 == 0, column.size - 1, codes)
    release = released(column, codes)
    numbers = column_shares._numbers(column)
    residuals = release.residuals()
    counts = residuals.table((0,))[:k]
    unbiased = float(numbers @ counts / counts.sum())
    weights = np.zeros(column.size)
    weights[:k] = numbers - unbiased
    sd = residuals.query_variance((0,), weights) ** 0.5 / counts.sum()

    def apart() -> float:
        shares = shares_of(release)
        return float((numbers @ shares[:k] / shares[:k].sum() - unbiased) / sd)

    assert abs(apart()) <= 1.2  # wider by what a value near the least one leaves to the truth
    monkeypatch.setattr(column_shares, "_of_mean", lambda *_: [])
    assert apart() > 1.5


def test_a_column_of_one_amount_and_one_of_labels_have_no_mean() -> None:
    two = released(Integer(name="x", lower=3, upper=3, missing=True), np.arange(N) % 2)
    assert shares_of(two) == pytest.approx([0.5, 0.5], abs=0.05)
    codes = tail(30)
    labelled = Categorical(name="x", categories=tuple(f"v{i}" for i in range(30)))
    release = released(labelled, codes)
    counts = release.residuals().table((0,))
    assert shares_of(release)[counts < 0].max() <= 1 / N  # projected, and a record each
