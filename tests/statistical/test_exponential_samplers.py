"""The real samplers of sections 4 to 6 against their laws, at test level 1e-6.

Each test has a broken twin, the same code with one mistake, that it must catch.
"""

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from density_law import cell_probabilities
from flint import ctx
from neighbouring import Table, tables
from numpy.typing import NDArray
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.tables.density import (
    Density,
    HistogramKernel,
    Kernel,
    SmoothedHistogram,
    gaussian_kernel,
    sample_density,
)
from statpress.mechanisms.tables.exponential_ks import (
    Band,
    ExponentialKS,
    dense_counts,
    sample_ks,
    sparse_table,
)
from statpress.mechanisms.tables.sample_resample import (
    SampleResample,
    Scores,
    choose_candidate,
    cramer_von_mises_scores,
    draw_candidates,
    feature_scores,
    ks_scores,
    series_features,
)
from statpress.tasks.release.entropy import SystemRandomness

LEVEL = 1e-6
Array = NDArray[np.int64]


def generator() -> np.random.Generator:
    return np.random.Generator(AESCounter(key=20261121))


def p_value(observed: Array, law: NDArray[np.float64]) -> float:
    """Chi-square, with the outcomes expected less than ten times taken together."""
    expected = observed.sum() * law / law.sum()
    rare = expected < 10
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(observed, expected).pvalue)


# --- Kolmogorov-Smirnov ------------------------------------------------------


def ks_law(table: Table, k: int, rate: float) -> dict[Table, float]:
    law, n = {}, sum(table)
    for z in tables(k, len(table)):
        gaps = itertools.accumulate(k * h - n * x for h, x in zip(table, z, strict=True))
        cost = math.ceil(Fraction(max(abs(gap) for gap in gaps), k))
        ways = math.factorial(k) / math.prod(math.factorial(x) for x in z)
        law[z] = ways * math.exp(-rate * cost)
    return law


def ks_p_value(table: Table, k: int, epsilon: float, *, claim: float, draws: int) -> float:
    """Of draws at one epsilon against the law at another."""
    law, rng = ks_law(table, k, claim / 2), generator()
    seen = dict.fromkeys(law, 0)
    for _ in range(draws):
        seen[tuple(sample_ks(np.array(table), k, epsilon, rng).tolist())] += 1
    return p_value(np.array(list(seen.values())), np.array(list(law.values())))


KS_CASES = [
    ((3, 0, 2), 4, 0.8, 1500),
    pytest.param((1, 6, 0, 1), 3, 0.4, 800, marks=pytest.mark.nightly),
    pytest.param((20, 3), 9, 0.3, 500, marks=pytest.mark.nightly),
]
"""Of the larger tables fewer draws are enough to catch the twin."""


@pytest.mark.parametrize(("table", "k", "epsilon", "draws"), KS_CASES)
def test_ks_release_follows_its_law(table: Table, k: int, epsilon: float, draws: int) -> None:
    assert ks_p_value(table, k, epsilon, claim=epsilon, draws=draws) > LEVEL


@pytest.mark.parametrize(("table", "k", "epsilon", "draws"), KS_CASES)
def test_ks_with_half_the_sensitivity_is_caught(
    table: Table, k: int, epsilon: float, draws: int
) -> None:
    assert ks_p_value(table, k, 2 * epsilon, claim=epsilon, draws=draws) < LEVEL


def test_ks_over_many_cells() -> None:
    """The law of u itself, over a domain too large to enumerate, from the band sizes."""
    rng, n, k, epsilon = generator(), 103, 60, 0.5
    table = np.random.default_rng(2).multinomial(n, np.full(15, 1 / 15))
    heights = [int(value) for value in np.cumsum(table)]
    with ctx.workprec(200):
        sizes = [0, *(Band(heights, k, radius).size() for radius in range(n + 1))]
        shells = [float((b - a).mid()) for a, b in itertools.pairwise(sizes)]
    law = np.array([shell * math.exp(-epsilon / 2 * r) for r, shell in enumerate(shells)])
    seen, broken = np.zeros((2, n + 1), dtype=np.int64)
    for _ in range(450):
        gaps = np.abs(k * np.cumsum(table) - n * np.cumsum(sample_ks(table, k, epsilon, rng)))
        seen[-(-int(gaps.max()) // k)] += 1
        broken[int(gaps.max()) // k] += 1
    assert p_value(seen, law) > LEVEL
    assert p_value(broken, law) < LEVEL  # the floor for the ceiling


# --- candidates --------------------------------------------------------------

PHI = series_features(5, 3)
SCORES: dict[str, Callable[[Array, Array], Scores]] = {
    "ks": ks_scores,
    "cramer": cramer_von_mises_scores,
    "series": lambda h, z: feature_scores(h, z, PHI),
}


@pytest.mark.parametrize("name", SCORES)
def test_candidates_are_chosen_by_their_weights(name: str) -> None:
    rng, epsilon = generator(), 1.5
    public = draw_candidates(12, 5, 6, rng, concentration=0.5)
    scores = SCORES[name](np.array([9, 1, 0, 4, 2]), public)
    plain = np.array([x / scores.denominator for x in scores.numerators])
    law = np.exp(-epsilon / 2 * (np.sqrt(plain) if scores.root else plain))

    def drawn(used: float) -> Array:
        picks = [choose_candidate(scores, used, rng) for _ in range(1500)]
        return np.bincount(picks, minlength=len(law))

    assert p_value(drawn(epsilon), law) > LEVEL
    assert p_value(drawn(2 * epsilon), law) < LEVEL  # half the sensitivity


# --- density estimates -------------------------------------------------------

KERNELS: dict[str, Kernel] = {
    "histogram": HistogramKernel(np.array([0, 0, 1, 2, 2, 2])),
    "gaussian": gaussian_kernel(6, 0.7),
}


@pytest.mark.parametrize("name", KERNELS)
def test_density_draws_follow_the_mixture(name: str) -> None:
    kernel, table, w = KERNELS[name], np.array([5, 0, 3, 0, 0, 30]), Fraction(1, 5)
    law = np.array([float(p) for p in cell_probabilities(table, kernel, w)])
    assert p_value(sample_density(table, kernel, w, 1_000_000, generator()), law) > LEVEL
    for broken in (Fraction(1, 10**9), w / 2):  # the share ignored, and halved
        assert p_value(sample_density(table, kernel, broken, 1_000_000, generator()), law) < LEVEL


# --- the mechanisms that a config names ---------------------------------------


def releases(mechanism: Any, counts: Array, times: int) -> list[Table]:
    """Releases of the mechanism, as counts of all cells."""
    domain = Domain((Integer(name="a", lower=0, upper=len(counts) - 1),))
    private, rng = sparse_table(domain, counts), SystemRandomness(AESCounter(key=20261122))
    drawn = (mechanism.release(private, rng) for _ in range(times))
    return [tuple(dense_counts(release).tolist()) for release in drawn]


def law_p_value(mechanism: Any, counts: Array, law: dict[Table, float], times: int) -> float:
    seen = dict.fromkeys(law, 0)
    for z in releases(mechanism, counts, times):
        seen[z] += 1
    return p_value(np.array(list(seen.values())), np.array(list(law.values())))


def test_exponential_ks_releases_follow_the_law_they_are_charged_for() -> None:
    """Twice the epsilon is caught."""
    counts, k = np.array([1, 6, 0, 1]), 3
    law = ks_law((1, 6, 0, 1), k, 0.8 / 2)
    assert law_p_value(ks("0.8", k), counts, law, 600) > LEVEL
    assert law_p_value(ks("1.6", k), counts, law, 600) < LEVEL


def ks(epsilon: str, records: int) -> ExponentialKS:
    return ExponentialKS(epsilon_per_record=Decimal(epsilon), records=records)


def test_sample_resample_releases_follow_the_law_they_are_charged_for() -> None:
    """Two uniform candidates of two records: the law is that of all pairs of them."""
    counts = np.array([4, 0, 1])
    every = list(tables(2, 3))
    base = np.array([2 / math.prod(math.factorial(x) for x in z) for z in every]) / 9
    weights = np.exp(-1.5 / 2 * np.array(ks_scores(counts, np.array(every)).numerators) / 2)
    pairs = np.outer(base, base) * weights[:, None] / np.add.outer(weights, weights)
    law = dict(zip(every, 2 * pairs.sum(axis=1), strict=True))

    def mechanism(epsilon: str) -> SampleResample:
        return SampleResample(
            epsilon_per_record=Decimal(epsilon), records=2, distance="ks", candidates=2
        )

    assert sum(law.values()) == pytest.approx(1)
    assert law_p_value(mechanism("1.5"), counts, law, 2500) > LEVEL
    assert law_p_value(mechanism("3"), counts, law, 2500) < LEVEL


TABLE = np.array([5, 0, 3, 0, 0, 30])
SAMPLED: dict[str, Callable[[Fraction], Any]] = {
    "histogram": lambda w: Density(records=400_000, uniform=w),
    "bins": lambda w: Density(records=400_000, uniform=w, bins=4),
    "kde": lambda w: Density(
        records=400_000, uniform=w, estimator="kde", bandwidth=Fraction(2, 3)
    ),
    "smoothed": lambda w: SmoothedHistogram(38 * w / (6 * (1 - w)), 400_000),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLED)
def test_draws_follow_the_mixture_they_are_charged_for(name: str) -> None:
    w = Fraction(1, 5)
    mechanism = SAMPLED[name](w)
    kernel = Density(records=1, uniform=w) if name == "smoothed" else mechanism
    law = np.array([float(p) for p in cell_probabilities(TABLE, kernel.kernel(6), w)])
    assert p_value(np.array(releases(mechanism, TABLE, 1)[0]), law) > LEVEL
    for twin in (w / 2, w * Fraction(9, 10)):
        assert p_value(np.array(releases(SAMPLED[name](twin), TABLE, 1)[0]), law) < LEVEL
