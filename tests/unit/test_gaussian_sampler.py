"""The exact sampler of discrete Gaussian noise: its proof's steps, and its law."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from scipy.stats import chisquare

from statpress.mechanisms.sampling import randomness
from statpress.mechanisms.sampling.randomness import approximate, chance, discrete_gaussian

SIGMAS = [
    Fraction(1, 3), Fraction(1), Fraction(10, 7), Fraction(2**8) + Fraction(1, 2**20),
    Fraction(987654321, 1000), Fraction(2**56) - Fraction(1, 3),
]  # fmt: skip


@pytest.mark.parametrize("sigma", SIGMAS, ids=float)
def test_chances_are_at_most_1_and_doubles_are_within_the_band(sigma: Fraction) -> None:
    """At the ends of all intervals, where the chance is largest and least, and within."""
    width, rng = -(-sigma.numerator // sigma.denominator), np.random.default_rng(1)
    for k in range(63):
        within = {0, width - 1, *(int(r) for r in rng.integers(0, width, 4))}
        for r in within:
            size = k * width + r
            with ctx.workprec(200):
                exact = chance(size, k, sigma)
                assert exact < 1
                (found,) = approximate(np.array([size]), np.array([k]), sigma).tolist()
                assert abs(exact - arb(found)) < arb(2) ** -34


def test_a_smaller_width_would_need_chances_above_1() -> None:
    """Twin: half the width."""
    with ctx.workprec(200):
        assert chance(3 * 50, 3, Fraction(100)) > 1


def frequencies(sigma: Fraction, draws: Any, most: int) -> float:
    """p-value of the numbers up to the most, and all others together."""
    weights = np.exp(-(np.arange(-9 * most, 9 * most + 1) ** 2) / (2 * float(sigma) ** 2))
    law = weights / weights.sum()
    inside = law[8 * most : 10 * most + 1]
    counts = np.array([np.sum(draws == z) for z in range(-most, most + 1)])
    expected = len(draws) * np.append(inside, 1 - inside.sum())
    return float(chisquare(np.append(counts, len(draws) - counts.sum()), expected).pvalue)


@pytest.mark.parametrize(
    ("sigma", "most"), [(Fraction(1, 2), 1), (Fraction(10, 7), 4), (Fraction(41, 2), 50)]
)
def test_the_law(sigma: Fraction, most: int) -> None:
    draws = discrete_gaussian(sigma, 400_000, np.random.default_rng(2))
    assert frequencies(sigma, draws, most) > 1e-6
    assert frequencies(sigma * Fraction(103, 100), draws, most) < 1e-6  # twin: 3 % too wide


def test_zero_is_not_drawn_twice_as_often() -> None:
    """Twin: a generator whose signs are all plus still has the law of the absolute value."""
    draws = discrete_gaussian(Fraction(2), 200_000, np.random.default_rng(3))
    share = float(np.mean(draws == 0))
    law = 1 / np.exp(-(np.arange(-60, 61) ** 2) / 8.0).sum()
    assert share == pytest.approx(law, abs=0.006)
    assert share != pytest.approx(2 * law / (1 + law), abs=0.006)


@pytest.mark.parametrize("sigma", SIGMAS, ids=float)
def test_balls_decide_as_doubles_do(sigma: Fraction) -> None:
    fast = randomness._accepted(sigma, 400, np.random.default_rng(4))
    exact = randomness._accepted(sigma, 400, np.random.default_rng(4), band=2.0)
    assert len(fast) > 50
    assert np.array_equal(fast, exact)


class Bits:
    """Known bits: words for signs and zeros, nought for the rest, then the bits of U."""

    def __init__(self, words: list[int], coins: list[int], uniform: int, more: bytes) -> None:
        self.words, self.coins, self.uniform, self.more = words, coins, uniform, more

    def integers(self, low: int, high: int, n: int | None = None, **_: Any) -> Any:
        if n is None:
            return self.coins.pop(0)
        if high == 2**64:
            return np.array(self.words, np.uint64)
        return np.full(n, self.uniform if high == 2**53 else 0)

    def bytes(self, length: int) -> bytes:
        assert len(self.more) == length
        return self.more


def test_bits_are_added_where_53_do_not_decide() -> None:
    """A chance of 4/5 at 0: U is nearer than 2^-53, and its further bits are above or below."""
    near = 2**55 // 5  # the floor of 4/5 * 2**53
    for more, kept in ((b"\0" * 8, True), (b"\xff" * 8, False)):
        found = randomness._accepted(Fraction(9), 1, Bits([2], [], near, more))  # type: ignore[arg-type]
        assert (len(found) == 1) is kept


def test_rows_of_zeros_go_on() -> None:
    """Where 63 bits are 0 more are drawn; U of nought to 53 bits, then all ones, is refused."""
    bits = Bits([1, 2], [1, 1, 0], 0, b"\xff" * 8)
    found = randomness._accepted(Fraction(9), 2, bits)  # type: ignore[arg-type]
    assert found.tolist() == [0] and bits.coins == []


@pytest.mark.parametrize("sigma", [Fraction(0), Fraction(-1), Fraction(2**56 + 1)])
def test_sigma_has_bounds(sigma: Fraction) -> None:
    with pytest.raises(ValueError, match="sigma must be"):
        discrete_gaussian(sigma, 1, np.random.default_rng(0))
