"""The real samplers of section 5 and 6 against their laws, at test level 1e-6.

Each test has a broken twin, the same code with one mistake, that it must catch.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from flint import ctx
from numpy.typing import NDArray
from randomgen import AESCounter
from scipy import stats

from mechanisms.candidates import (
    Scores,
    choose_candidate,
    cramer_von_mises_scores,
    draw_candidates,
    feature_scores,
    ks_scores,
    series_features,
)
from mechanisms.density_sampling import (
    HistogramKernel,
    Kernel,
    cell_probabilities,
    gaussian_kernel,
    sample_density,
)
from mechanisms.ks_sampler import Band, sample_ks

LEVEL = 1e-6
Table = tuple[int, ...]
Array = NDArray[np.int64]


def generator() -> np.random.Generator:
    return np.random.Generator(AESCounter(key=20261121))


def tables(n_records: int, n_cells: int) -> Iterator[Table]:
    """All tables of n records over the cells."""
    for cuts in itertools.combinations(range(n_records + n_cells - 1), n_cells - 1):
        bounds = (-1, *cuts, n_records + n_cells - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(bounds))


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


def ks_p_value(table: Table, k: int, epsilon: float, *, claim: float, draws: int = 6000) -> float:
    """Of draws at one epsilon against the law at another."""
    law, rng = ks_law(table, k, claim / 2), generator()
    seen = dict.fromkeys(law, 0)
    for _ in range(draws):
        seen[tuple(sample_ks(np.array(table), k, epsilon, rng).tolist())] += 1
    return p_value(np.array(list(seen.values())), np.array(list(law.values())))


KS_CASES = [((3, 0, 2), 4, 0.8), ((1, 6, 0, 1), 3, 0.4), ((20, 3), 9, 0.3)]


@pytest.mark.parametrize(("table", "k", "epsilon"), KS_CASES)
def test_ks_release_follows_its_law(table: Table, k: int, epsilon: float) -> None:
    assert ks_p_value(table, k, epsilon, claim=epsilon) > LEVEL


@pytest.mark.parametrize(("table", "k", "epsilon"), KS_CASES)
def test_ks_with_half_the_sensitivity_is_caught(table: Table, k: int, epsilon: float) -> None:
    assert ks_p_value(table, k, 2 * epsilon, claim=epsilon) < LEVEL


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
    for _ in range(1000):
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
        picks = [choose_candidate(scores, used, rng) for _ in range(15_000)]
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
