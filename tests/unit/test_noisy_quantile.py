"""Quantiles: the choice by enumeration over neighbours, its law, and coverage."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from mechanisms.accounting.analytic import BoundedRangeLoss
from mechanisms.errors import ConfigError
from mechanisms.inference import quantile_choice as noisy_quantile
from mechanisms.inference.quantile_choice import NoisyQuantile

F = Fraction
LEVEL = 1e-6


def generator(key: int = 1) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key))


def law(table: tuple[int, ...], wanted: int, epsilon: float) -> np.ndarray:
    """Probabilities of the cells by the definition."""
    ends = np.concatenate([[0], np.cumsum(table)])
    gaps = np.maximum(np.maximum(ends[:-1] - wanted, wanted - ends[1:]), 0)
    weights = np.exp(-epsilon * gaps / 2)
    return weights / weights.sum()


def tables(n: int, cells: int) -> list[tuple[int, ...]]:
    return [t for t in itertools.product(range(n + 1), repeat=cells) if sum(t) == n]


@functools.cache
def worst_loss(n: int, cells: int, wanted: int, epsilon: float) -> float:
    """Largest log-ratio over all neighbours and outcomes."""
    found = 0.0
    for a, b in itertools.permutations(tables(n, cells), 2):
        if sum(abs(x - y) for x, y in zip(a, b, strict=True)) == 2:
            ratio = np.log(law(a, wanted, epsilon) / law(b, wanted, epsilon))
            found = max(found, float(np.max(np.abs(ratio))))
    return found


@pytest.mark.parametrize("wanted", [0, 1, 2, 4])
def test_no_neighbours_lose_more_than_epsilon(wanted: int) -> None:
    assert worst_loss(4, 3, wanted, 0.7) <= 0.7 + 1e-12
    assert worst_loss(4, 3, wanted, 1.4) > 0.7 or wanted in (0, 4)  # without the factor 2


@pytest.mark.parametrize("wanted", [0, 1, 2, 4])
def test_a_choice_has_the_divergences_of_a_bounded_range(wanted: int) -> None:
    """Every pair of neighbours: the range of the loss, its curve and its divergences."""
    claimed, short = BoundedRangeLoss(F(7, 10)), BoundedRangeLoss(F(7, 20))
    ranges, refuted = [0.0], False
    for a, b in itertools.permutations(tables(4, 3), 2):
        if sum(abs(x - y) for x, y in zip(a, b, strict=True)) != 2:
            continue
        p, q = law(a, wanted, 0.7), law(b, wanted, 0.7)
        ranges.append(float(np.ptp(np.log(p / q))))
        for e in (-0.3, 0.0, 0.2, 0.5):
            curve = float(np.maximum(p - math.exp(e) * q, 0).sum())
            assert curve <= claimed.delta(e).upper + 1e-12
            refuted |= curve > short.delta(e).upper + 1e-6  # half the sensitivity
        for order in (1.001, 2.0, 9.0):
            divergence = math.log(np.sum(p * (p / q) ** (order - 1))) / (order - 1)
            assert divergence <= claimed.renyi(order).upper + 1e-12
            assert divergence <= order * claimed.rho.upper
    assert max(ranges) <= 0.7 + 1e-12
    assert refuted or wanted in (0, 4)


def test_choices_follow_their_law() -> None:
    made = NoisyQuantile(tuple(range(8)), F(1, 2), 0.9, F(3), 9)  # epsilon 1 a choice
    table, rng = (3, 0, 0, 4, 1, 0, 1), generator()
    cells = np.flatnonzero(table)
    counts = np.array(table)[cells]
    drawn = [made._choose(cells, counts, 4, rng) for _ in range(6000)]
    seen = np.bincount(drawn, minlength=7)
    assert stats.chisquare(seen, 6000 * law(table, 4, 1.0)).pvalue > LEVEL
    assert stats.chisquare(seen, 6000 * law(table, 4, 2.0)).pvalue < LEVEL


def test_loss_is_three_choices() -> None:
    made = NoisyQuantile((0.0, 1.0, 2.0), F(1, 2), 0.9, F(3, 2), 100)
    assert made.loss().pure_epsilon == pytest.approx((1.5, 1.5))


def coverage(made: NoisyQuantile, draw: str, runs: int = 120) -> tuple[float, float]:
    """Share of intervals that cover, and their mean width, over runs of the real release."""
    data, rng, hits, width = np.random.default_rng(4), generator(5), 0, 0.0
    edges = np.array(made.edges)
    truth = {"uniform": float(made.share), "atoms": 0.3}[draw]
    for _ in range(runs):
        x = data.random(made.n_records)
        if draw == "atoms":
            x = np.where(x < 0.8, 0.3, x)
        at = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
        cells, counts = np.unique(at, return_counts=True)
        found = made.release(cells, counts, rng)
        hits += found.lower <= truth <= found.upper
        width += found.upper - found.lower
    return hits / runs, width / runs


@pytest.mark.parametrize(
    ("draw", "share"), [("uniform", F(1, 2)), ("uniform", F(1, 20)), ("atoms", F(1, 2))]
)
def test_coverage_is_at_least_the_level(draw: str, share: Fraction) -> None:
    edges = tuple(np.linspace(0, 1, 257).tolist())
    made = NoisyQuantile(edges, share, 0.9, F(1), 2000)
    found, width = coverage(made, draw)
    assert found >= stats.binom.ppf(LEVEL, 120, 0.9) / 120
    assert width < 0.25


def test_an_interval_without_the_binomial_tail_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = NoisyQuantile(tuple(np.linspace(0, 1, 257).tolist()), F(1, 2), 0.9, F(300), 2000)
    assert coverage(made, "uniform")[0] > 0.88
    monkeypatch.setattr(noisy_quantile.NoisyQuantile, "wanted", (1000, 995, 1005))
    assert coverage(made, "uniform")[0] < 0.6


def test_ends_out_of_reach_are_those_of_the_range() -> None:
    made = NoisyQuantile((0.0, 1.0, 2.0, 3.0), F(1, 2), 0.9, F(1, 10), 20)
    found = made.release(np.array([1]), np.array([20]), generator())
    assert (found.lower, found.upper) == (0.0, 3.0)
    assert found.value in (0.5, 1.5, 2.5)
    assert made.error >= 2 / (0.1 / 3) * math.log(4 * 3 / 0.1)


def test_what_is_refused() -> None:
    good = {
        "edges": (0.0, 1.0), "share": F(1, 2), "level": 0.9, "epsilon": F(1), "n_records": 5,
    }  # fmt: skip
    for bad in (
        {"edges": (0.0,)}, {"edges": (0.0, math.inf)}, {"edges": (1.0, 1.0)}, {"share": F(1)},
        {"level": 0.0}, {"epsilon": F(0)}, {"n_records": 0},
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            NoisyQuantile(**{**good, **bad})


def test_binomial_quantiles_are_the_least_that_reach_their_share() -> None:
    sizes = np.array([0, 1, 2, 7, 400, 29_501, 10**8])
    for share, p in itertools.product((0.1, 0.25, 0.5, 0.9), (0.00125, 0.0125, 0.45, 0.9875)):
        expected = np.maximum(stats.binom.ppf(p, sizes, share), 0)
        assert np.array_equal(noisy_quantile._binomial_quantiles(p, sizes, share), expected)
