"""Resamples are drawn exactly: their laws by enumeration, and what breaks them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from mechanisms import resamples
from mechanisms.errors import RecordsError
from mechanisms.resamples import bootstrap_counts, subset_counts

LEVEL = 1e-6
Law = dict[tuple[int, ...], float]


def generator(key: int = 1) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key))


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


@pytest.mark.parametrize("many", [0, 256])
@pytest.mark.parametrize("counts", [[3], [1, 4], [2, 0, 3], [1, 1, 1, 1], [5, 2, 1]])
def test_bootstrap_follows_its_law(
    counts: list[int], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resamples, "_MANY", many)
    rows = bootstrap_counts(np.array(counts), 20_000, generator())
    assert np.all(rows.sum(axis=1) == sum(counts))
    assert p_value(rows, bootstrap_law(counts)) > LEVEL


def test_a_law_off_by_one_record_is_caught() -> None:
    rows = bootstrap_counts(np.array([2, 4]), 20_000, generator())
    broken = {(a, b): p for (a, b), p in bootstrap_law([3, 3]).items()}
    assert p_value(rows, broken) < LEVEL


@pytest.mark.parametrize("few", [1, 1000])
def test_the_tree_and_the_single_draws_agree(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many records, so that halving goes deep, and none of it."""
    monkeypatch.setattr(resamples, "_FEW", few)
    monkeypatch.setattr(resamples, "_MANY", 0)
    counts = np.array([700, 1, 0, 250, 3000, 49])
    rows = bootstrap_counts(counts, 4000, generator(few))
    n = counts.sum()
    for cell, c in enumerate(counts):
        law = stats.binom(n, c / n)
        edges = np.unique(law.ppf(np.linspace(0, 1, 12)[1:-1]))
        seen = np.histogram(rows[:, cell], np.concatenate([[-1], edges, [n]]) + 0.5)[0]
        chances = np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
        kept = chances > 0
        assert seen[~kept].sum() == 0
        if c:
            assert stats.chisquare(seen[kept], 4000 * chances[kept]).pvalue > LEVEL
    expected = -np.sqrt(250 * 3000 / ((n - 250) * (n - 3000)))
    assert np.corrcoef(rows[:, 3], rows[:, 4])[0, 1] == pytest.approx(expected, abs=0.08)


def test_chunks_change_nothing_but_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resamples, "_CHUNK_BITS", 10)
    monkeypatch.setattr(resamples, "_MANY", 0)
    rows = bootstrap_counts(np.array([2, 3]), 20_000, generator())
    assert p_value(rows, bootstrap_law([2, 3])) > LEVEL


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
