"""Resamples are drawn exactly: their laws by enumeration, and the tables they are drawn by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.estimates.subsample_split import subset_counts
from statpress.mechanisms.sampling import record_sampler as poisson_tables
from statpress.mechanisms.sampling import record_sampler as resamples
from statpress.mechanisms.sampling.record_sampler import (
    LARGEST_MULTIPLE,
    BootstrapSampler,
    PoissonTables,
)

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


# Poisson draws are exact: what their tables decide is proven, and the rest is


RATES = st.integers(2**22, 2**24).map(lambda a: a / 2**24)


def scaled_distribution(mean: float, x: int, bits: int) -> int:
    """The floor of F(x) 2^bits."""
    with ctx.workprec(bits + 120):
        value = arb(mean).gamma_upper(arb(x + 1), regularized=1) * arb(2) ** bits
        found = value.floor().unique_fmpz()
    assert found is not None
    return int(found)


@settings(max_examples=30, deadline=None)
@given(RATES, st.integers(1, LARGEST_MULTIPLE), st.data())
def test_values_are_within_their_bound(rate: float, multiple: int, data: st.DataObject) -> None:
    tables = PoissonTables(rate, np.array([multiple]))
    values = tables._open.values
    assert tables._margin < 2.0**-34
    lowest = 1 - int(tables._open.shift[0])
    places = {1, len(values) - 1, data.draw(st.integers(1, len(values) - 1))}
    for i in places | {int(np.searchsorted(values, data.draw(st.floats(0, 0.999))))}:
        exact = scaled_distribution(rate * multiple, lowest - 1 + i, 80) if i else 0
        assert abs(values[i] - exact / 2**80) <= tables._margin


def test_tables_made_together_keep_their_bound_and_their_places() -> None:
    tables = PoissonTables(0.96875, np.arange(1, 4096))
    made = tables._open
    assert tables._margin < 2.0**-36
    for i in np.random.default_rng(1).integers(0, len(made.table), 60):
        x, mean = int(made.least[i] - made.shift[i]), 0.96875 * (int(made.table[i]) + 1)
        exact = scaled_distribution(mean, x, 80)
        assert abs(made.values[made.least[i]] - exact / 2**80) <= tables._margin
        assert 0 <= made.least[i] < made.most[i]


def test_ball_arithmetic_agrees_with_another_library() -> None:
    with mpmath.workprec(200):
        for mean, x in ((0.25, 0), (0.99, 3), (300.5, 280), (4000.25, 4300)):
            exact = mpmath.gammainc(x + 1, mean, regularized=True)
            assert scaled_distribution(mean, x, 100) == int(mpmath.floor(exact * 2**100))


@pytest.mark.parametrize("rate", [0.25, 0.9375, 1 - 2.0**-24])
@pytest.mark.parametrize("multiples", [[1], [1, 2, 3, 57, 58, 400, 401, 4095]])
def test_buckets_decide_all_that_is_certain_and_no_more(rate: float, multiples: list[int]) -> None:
    """Each bucket of each table; those with no F(x) inside are decided, and rightly."""
    tables = PoissonTables(rate, np.array(multiples))
    decided = tables._direct
    for row, multiple in zip(decided, multiples, strict=True):
        mean = rate * multiple
        low, high = (int(stats.poisson(mean).ppf(p)) for p in (1e-9, 1 - 1e-9))
        ends = [
            scaled_distribution(mean, x, tables._bits) for x in range(max(low - 1, 0), high + 9)
        ]
        expected = np.full(len(row), -1)
        start = 0
        for x, end in zip(range(max(low - 1, 0), high + 9), ends, strict=True):
            expected[start:end] = x
            start = end + 1
        if low > 1:
            expected[: ends[0] + 1] = -1
        assert np.array_equal(np.where(row < 0, -1, row), expected)


class Bits:
    """A generator that gives words as told, and counts them."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def integers(
        self, low: int, high: int, size: int | None = None, dtype: object = None
    ) -> object:
        word = self.words.pop(0)
        assert low <= word < high
        return word if size is None else np.full(size, word)


@pytest.mark.parametrize(("multiple", "x"), [(1, 0), (1, 2), (57, 50), (4095, 4000)])
def test_at_the_very_edge_bits_are_added_until_the_order_is_proven(multiple: int, x: int) -> None:
    """U is above F(x) iff the expansion of U is: by 52 bits, by 116 and by 180."""
    tables = PoissonTables(0.9375, np.array([1, 57, 4095]))
    place = [1, 57, 4095].index(multiple)
    mean = 0.9375 * multiple
    edge = scaled_distribution(mean, x, 180)
    first, second, third = edge >> 128, edge >> 64 & (2**64 - 1), edge & (2**64 - 1)
    rest = 52 - tables._bits
    bucket = first >> rest
    case = ~int(tables._direct[place, bucket])
    assert case >= 0
    wide = 1 << 20  # further than the bound
    for words, expected in (
        ([first - wide], x),
        ([first + wide], x + 1),
        ([first - 1], x),
        ([first + 1], x + 1),
        ([first, second - 1], x),
        ([first, second + 1], x + 1),
        ([first, second, third - 1], x),
        ([first, second, third + 1], x + 1),
    ):
        assert words[0] >> rest == bucket
        rng = Bits(words[0] & ((1 << rest) - 1), *words[1:])
        found = tables._compare(
            np.array([case], np.int32),
            np.array([bucket], np.uint16),
            rng,
        )
        assert found[0] == expected and not rng.words


def classes(mean: float, drawn: np.ndarray) -> float:
    law = stats.poisson(mean)
    edges = np.unique(law.ppf(np.linspace(0, 1, 40)[1:-1]))
    seen = np.histogram(drawn, np.concatenate([[-1], edges, [2e9]]) + 0.5)[0]
    chances = np.diff(np.concatenate([[0], law.cdf(edges), [1]]))
    kept = chances * len(drawn) > 5
    seen, chances = (
        np.append(seen[kept], seen[~kept].sum()),
        np.append(chances[kept], chances[~kept].sum()),
    )
    some = chances > 0
    return float(stats.chisquare(seen[some], len(drawn) * chances[some]).pvalue)


MULTIPLES = np.array([1, 2, 30, 57, 58, 1000, 4095, 4096, LARGEST_MULTIPLE])


def test_draws_follow_their_laws() -> None:
    drawn = PoissonTables(0.96875, MULTIPLES).draw(np.arange(len(MULTIPLES)), 60_000, generator())
    for row, multiple in zip(drawn, MULTIPLES, strict=True):
        assert classes(0.96875 * multiple, row) > LEVEL
        if multiple > 30:  # a broken twin: 1 % more
            assert classes(0.96875 * multiple * 1.01, row) < LEVEL


def test_the_exact_route_alone_gives_the_same_law() -> None:
    tables = PoissonTables(0.5, np.array([1, 9, 2000]))
    tables._margin = 2.0  # nothing is proven by doubles
    drawn = tables.draw(np.arange(3), 4000, generator(2))
    for row, mean in zip(drawn, (0.5, 4.5, 1000.0), strict=True):
        assert classes(mean, row) > LEVEL


@pytest.mark.parametrize("mean", [0.9375, 0.9375 * 4095])
def test_the_tails_beyond_the_tables_are_drawn_exactly(mean: float) -> None:
    """The first and the last of 2^52 intervals may hold many x; the bits that follow tell which."""
    law, middle = stats.poisson(mean), 2**63
    low = poisson_tables._quantile(mean, 0, int(mean), Bits(middle))
    high = poisson_tables._quantile(mean, 2**52 - 1, int(mean), Bits(middle))
    assert law.cdf(low - 1) < 2.0**-53 <= law.cdf(low)
    assert law.sf(high) < 2.0**-53 <= law.sf(high - 1)
