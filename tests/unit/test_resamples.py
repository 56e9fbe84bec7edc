"""Resamples are drawn exactly: their laws by enumeration, and what breaks them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.estimates.subsample_split import subset_counts
from statpress.mechanisms.sampling import record_sampler as resamples
from statpress.mechanisms.sampling.record_sampler import BootstrapSampler, PoissonTables

LEVEL = 1e-6
Law = dict[tuple[int, ...], float]


def generator(key: int = 1) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key))


def bootstrap_counts(counts: np.ndarray, replicates: int, rng: np.random.Generator) -> np.ndarray:
    return BootstrapSampler(counts).draw(replicates, rng)


def bootstrap_law(counts: Sequence[int]) -> Law:
    n = sum(counts)
    return {
        row: math.factorial(n)
        * math.prod((c / n) ** k / math.factorial(k) for c, k in zip(counts, row, strict=True))
        for row in itertools.product(range(n + 1), repeat=len(counts))
        if sum(row) == n
    }


def subset_law(counts: Sequence[int], size: int) -> Law:
    total = math.comb(sum(counts), size)
    return {
        row: math.prod(math.comb(c, k) for c, k in zip(counts, row, strict=True)) / total
        for row in itertools.product(*(range(c + 1) for c in counts))
        if sum(row) == size
    }


def p_value(rows: np.ndarray, law: Law) -> float:
    seen = dict.fromkeys(law, 0)
    for row in rows.tolist():
        seen[tuple(row)] += 1
    observed, expected = np.array(list(seen.values())), len(rows) * np.array(list(law.values()))
    assert observed[expected == 0].sum() == 0
    rare = expected < 10
    observed = np.append(observed[~rare], observed[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    if kept.sum() == 1:
        return 1.0  # one outcome, and it is the only one seen
    return float(stats.chisquare(observed[kept], expected[kept]).pvalue)


@pytest.mark.parametrize("part", [1, pytest.param(2, marks=pytest.mark.nightly), 4096])
@pytest.mark.parametrize("counts", [[3], [1, 4], [2, 0, 3], [1, 1, 1, 1], [5, 2, 1]])
def test_bootstrap_follows_its_law(counts: list[int], part: int) -> None:
    rows = BootstrapSampler(np.array(counts), largest_part=part).draw(4000, generator())
    assert np.all(rows.sum(axis=1) == sum(counts))
    assert p_value(rows, bootstrap_law(counts)) > LEVEL


def test_a_law_off_by_one_record_is_caught() -> None:
    rows = bootstrap_counts(np.array([2, 4]), 8_000, generator())
    broken = {(a, b): p for (a, b), p in bootstrap_law([3, 3]).items()}
    assert p_value(rows, broken) < LEVEL


class Scripted:
    """A generator whose draws of records are given; the Poisson draws come from ``Given``."""

    def __init__(self, records: Sequence[int]) -> None:
        self.records = list(records)

    def integers(self, low: int, high: int, size: int) -> np.ndarray:
        taken, self.records = self.records[:size], self.records[size:]
        assert len(taken) == size and all(low <= r < high for r in taken)
        return np.array(taken, np.int64)


class Given:
    """Poisson draws as given, one vector after the other."""

    def __init__(self, vectors: Sequence[tuple[int, ...]]) -> None:
        self.vectors = list(vectors)

    def draw(self, tables: np.ndarray, size: int, rng: object) -> np.ndarray:
        assert size == 1
        return np.array(self.vectors.pop(0), np.int32)[:, None]


def enumerated(counts: list[int], rate: float, uneven: float = 1.0) -> Law:
    """The law of the sampler over all Poisson vectors and all records drawn after them.

    The first cell's mean is ``uneven`` times what it should be.
    """
    means = rate * np.array(counts) * [uneven, *[1.0] * (len(counts) - 1)]
    n, sampler = sum(counts), BootstrapSampler(np.array(counts))
    assert sampler._cells.tolist() == list(range(len(counts)))
    afresh = tuple([n + 1] + [0] * (len(counts) - 1))  # too many: must leave no trace
    law: Law = {}
    kept = stats.poisson(n * rate).cdf(n)
    for vector in itertools.product(range(n + 1), repeat=len(counts)):
        left = n - sum(vector)
        if left < 0:
            continue
        chance = float(np.prod(stats.poisson(means).pmf(vector))) / kept
        for records in itertools.product(range(n), repeat=left):
            sampler._poisson = Given([afresh, vector])
            row = sampler.draw(1, Scripted(records))
            key = tuple(row[0].tolist())
            law[key] = law.get(key, 0.0) + chance / n**left
    return law


@pytest.mark.parametrize(
    "counts",
    [[1], [2], [1, 1], [2, 1], [1, 1, 1], pytest.param([1, 2, 2], marks=pytest.mark.nightly)],
)
def test_all_outcomes_have_exactly_their_chances(counts: list[int]) -> None:
    """Whatever the rate is: the theorem that the sampler rests on, through its own code."""
    exact = bootstrap_law(counts)
    for rate in (resamples._rate(sum(counts)), 0.7):
        assert enumerated(counts, rate) == pytest.approx(exact, abs=1e-12)


def test_means_that_are_not_proportional_are_caught_by_enumeration() -> None:
    assert enumerated([2, 1], 0.25, uneven=1.01) != pytest.approx(bootstrap_law([2, 1]), abs=1e-4)


def marginal_p_values(rows: np.ndarray, counts: np.ndarray) -> list[float]:
    """Of each cell's binomial law, in classes of about equal chances."""
    found, n = [], int(counts.sum())
    for cell in np.flatnonzero(counts):
        law = stats.binom(n, counts[cell] / n)
        edges = np.unique(law.ppf(np.linspace(0, 1, 12)[1:-1]))
        seen = np.histogram(rows[:, cell], np.concatenate([[-1], edges, [n]]) + 0.5)[0]
        chances = np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
        kept = chances > 0
        found.append(stats.chisquare(seen[kept], len(rows) * chances[kept]).pvalue)
    return found


COUNTS = np.array([700, 1, 0, 250, 3000, 49, 4096, 9000])


def test_cells_are_binomial_and_correlated_as_they_should() -> None:
    rows = bootstrap_counts(COUNTS, 6000, generator())
    n = COUNTS.sum()
    assert np.all(rows.sum(axis=1) == n) and not rows[:, 2].any()
    assert min(marginal_p_values(rows, COUNTS)) > LEVEL
    chance = COUNTS / n
    exact = n * (np.diag(chance) - np.outer(chance, chance))
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)) + exact**2) / math.sqrt(len(rows))
    error = np.abs(np.cov(rows.T) - exact)
    assert np.all(error <= 5.5 * scale + 1e-9)


def test_a_mean_off_by_one_percent_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = BootstrapSampler(COUNTS)
    rate, largest = resamples._rate(int(COUNTS.sum())), 3000
    multiples = np.unique(resamples._parts(COUNTS)[1])
    broken = np.where(multiples == largest, 3030, multiples)
    sampler._poisson = PoissonTables(rate, broken)
    assert min(marginal_p_values(sampler.draw(6000, generator()), COUNTS)) < LEVEL


def test_cutting_what_is_too_much_is_caught() -> None:
    """At a rate where N > n is common: drawing afresh keeps the law, and a twin that cuts not."""
    sampler, rng = BootstrapSampler(np.array([2, 1])), generator()
    sampler._poisson = PoissonTables(1.0, np.array([1, 2]))
    assert p_value(sampler.draw(8_000, rng), bootstrap_law([2, 1])) > LEVEL
    rows = np.empty((8_000, 2), np.int64)
    sampler._poisson_counts(rows, rng)
    rows = rows[rows.sum(axis=1) >= 3]
    rows[:, 1] = np.minimum(rows[:, 1], 3)
    rows[:, 0] = 3 - rows[:, 1]
    assert p_value(rows, bootstrap_law([2, 1])) < LEVEL


def test_blocks_and_the_place_written_to_change_nothing() -> None:
    sampler = BootstrapSampler(np.array([2, 0, 3]), largest_part=1, block=10)
    rng = generator()
    out = np.full((4, 3), -7)
    rows = np.concatenate([sampler.draw(4, rng, out=out).copy() for _ in range(500)])
    assert np.all(out >= 0)
    assert p_value(rows, bootstrap_law([2, 0, 3])) > LEVEL


@pytest.mark.parametrize("counts", [[1] * 40, [3, 0, 0, 900, 1, 2**13 + 5], [0, 2**21], [7]])
def test_every_record_has_its_cell_and_every_count_its_parts(counts: list[int]) -> None:
    given = np.array(counts)
    records = np.unique(np.linspace(0, given.sum() - 1, 3000).astype(np.int64))
    expected = np.searchsorted(np.cumsum(given), records, side="right")
    assert np.array_equal(resamples._Records(given).cells(records), expected)
    cells, parts = resamples._parts(given)
    assert np.array_equal(np.bincount(cells, parts, minlength=len(given)), given)
    assert np.all(parts > 0) and np.all(np.diff(cells) >= 0)
    rows = bootstrap_counts(given, 20, generator())
    assert np.all(rows.sum(axis=1) == given.sum()) and not rows[:, given == 0].any()


@pytest.mark.parametrize(
    ("counts", "size"), [([3, 2], 2), ([1, 2, 2], 3), ([4], 4), ([5, 0, 1], 1)]
)
def test_subsets_follow_their_law(counts: list[int], size: int) -> None:
    rows = subset_counts(np.array(counts), size, 8000, generator())
    assert p_value(rows, subset_law(counts, size)) > LEVEL


def test_subsets_with_replacement_are_caught() -> None:
    rng = generator()
    rows = rng.multinomial(3, [0.4, 0.4, 0.2], size=8000)
    seen = {tuple(row) for row in rows.tolist()}
    assert not seen <= set(subset_law([2, 2, 1], 3))


def test_what_is_refused() -> None:
    with pytest.raises(RecordsError):
        bootstrap_counts(np.array([0, 0]), 3, generator())
    with pytest.raises(RecordsError):
        subset_counts(np.array([2, 1]), 4, 3, generator())
