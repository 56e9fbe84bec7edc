"""Poisson draws are exact: what their tables decide is proven, and the rest is."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.sampling import record_sampler as poisson_tables
from statpress.mechanisms.sampling.record_sampler import LARGEST_MULTIPLE, PoissonTables

LEVEL = 1e-6
RATES = st.integers(2**22, 2**24).map(lambda a: a / 2**24)


def generator(key: int = 1) -> np.random.Generator:
    return np.random.Generator(AESCounter(key=key))


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
