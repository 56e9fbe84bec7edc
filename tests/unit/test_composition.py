"""Composition against brute-force convolution, exact formulas and broken twins."""

from __future__ import annotations

import itertools
import logging
import math
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_loss import ProfileLoss

from statpress.mechanisms.accounting import privacy_loss_distributions
from statpress.mechanisms.accounting.composition import ComposedLoss, compose, compose_quickly
from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.losses import GaussianLoss, PrivacyLoss, PureLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss
from statpress.mechanisms.accounting.privacy_loss_distributions import fast_length, power, product

F = Fraction
DELTAS = (1e-2, 1e-6, 1e-9)
FULL = pytest.mark.nightly

Atoms = list[tuple[float, float]]  # loss and probability under P


def forget() -> None:
    for cached in (
        privacy_loss_distributions.account,
        privacy_loss_distributions._grid,
        privacy_loss_distributions.reach,
    ):
        cached.cache_clear()


@pytest.fixture
def fresh() -> Iterable[None]:
    """No memory of other tests, and none left of a broken twin."""
    forget()
    yield
    forget()


def draws(up: int, down: int, m: int) -> DrawsLoss:
    return DrawsLoss(up=F(up, 100), down=F(down, 100), draws=m)


def lattice_atoms(loss: DrawsLoss) -> dict[int, Fraction]:
    """Exact probabilities of the multiples of the step, by repeated convolution."""
    pmf = {0: F(1)}
    steps = ((1, loss.up), (-1, loss.down), (0, 1 - loss.up - loss.down))
    for _ in range(loss.draws):
        new: dict[int, Fraction] = {}
        for (j, mass), (jump, weight) in itertools.product(pmf.items(), steps):
            new[j + jump] = new.get(j + jump, F(0)) + mass * weight
        pmf = new
    return pmf


def lattice_pair_delta(one: DrawsLoss, two: DrawsLoss, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(40):

        def big(value: Fraction) -> mpmath.mpf:
            return mpmath.mpf(value.numerator) / value.denominator

        def found(loss: DrawsLoss) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
            step = mpmath.log(big(loss.up / loss.down))
            return [(j * step, big(mass)) for j, mass in lattice_atoms(loss).items()]

        return mpmath.fsum(
            p * q * -mpmath.expm1(epsilon - x - y)
            for (x, p), (y, q) in itertools.product(found(one), found(two))
            if x + y > epsilon
        )


def test_two_lattices_against_exact_convolution() -> None:
    one, two = draws(22, 20, 9), draws(30, 20, 7)
    composed = compose([one, two])
    for epsilon in (0.0, 0.2, 0.9, 2.0):
        low, high = composed.delta(epsilon)
        exact = lattice_pair_delta(one, two, epsilon)
        assert low <= exact <= high
    for delta in (1e-2, 1e-6):
        low, high = composed.epsilon(delta)
        assert lattice_pair_delta(one, two, low) >= delta
        assert lattice_pair_delta(one, two, high) <= delta
        assert high - low < 0.01 * high


def atoms(loss: PrivacyLoss) -> Atoms:
    """The loss distribution of a part, in floating point."""
    if isinstance(loss, PureLoss):
        e = float(loss.bound)
        return [(e, 1 / (1 + math.exp(-e))), (-e, 1 / (1 + math.exp(e)))]
    if isinstance(loss, DiscreteLaplaceLoss):
        s, r = loss.shift, math.exp(-1 / loss.scale)
        weight = [1.0, *((1 - r) * r**j for j in range(1, s)), r**s]
        one = [(float((s - 2 * j) / loss.scale), w / (1 + r)) for j, w in enumerate(weight)]
        return convolved([one] * loss.cells)
    raise TypeError


def convolved(parts: list[Atoms]) -> Atoms:
    total: dict[float, float] = {0.0: 1.0}
    for part in parts:
        new: dict[float, float] = {}
        for (x, p), (y, q) in itertools.product(total.items(), part):
            key = round(x + y, 13)
            new[key] = new.get(key, 0.0) + p * q
        total = new
    return list(total.items())


def curve(found: Atoms, epsilon: float) -> float:
    return math.fsum(p * -math.expm1(epsilon - x) for x, p in found if x > epsilon)


def exact_epsilon(found: Atoms, delta: float) -> float:
    low, high = 0.0, max(x for x, _ in found)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(found, middle) > delta else (low, middle)
    return high


MIXTURES: list[list[PrivacyLoss]] = [
    [PureLoss(F(1, 3)), PureLoss(F(1, 2))],
    [PureLoss(F(1, 10))] * 50,
    [PureLoss(F(k, 40)) for k in range(1, 13)],
    [DiscreteLaplaceLoss(F(5), 2, 2), DiscreteLaplaceLoss(F(7), 3, 2)],
    [DiscreteLaplaceLoss(F(9), 1, 2)] * 5 + [PureLoss(F(1, 7))] * 8,
    [PureLoss(F(2)), DiscreteLaplaceLoss(F(30), 4, 1), PureLoss(F(1, 50))],
]


@pytest.mark.parametrize(
    "parts",
    [pytest.param(x, marks=[FULL] * (i in (2, 4)), id=str(i)) for i, x in enumerate(MIXTURES)],
)
def test_mixtures_against_brute_force_and_the_one_percent_rule(parts: list[PrivacyLoss]) -> None:
    composed = compose(parts)
    found = convolved([atoms(part) for part in parts])
    for delta in DELTAS:
        exact = exact_epsilon(found, delta)
        low, high = composed.epsilon(delta)
        assert low <= exact * (1 + 1e-9)
        assert exact * (1 - 1e-9) <= high <= 1.01 * exact
        assert low >= (0.97 if delta < 1e-8 else 0.985) * exact
    for epsilon in (0.0, 0.4, 1.1):
        low, high = composed.delta(epsilon)
        assert low - 1e-13 <= curve(found, epsilon) <= high + 1e-13


def hidden(loss: PrivacyLoss) -> ProfileLoss:
    """The same curve without its formula, so that it must go through the grid."""
    return ProfileLoss(lambda e: loss.delta(e).upper, lambda e: loss.delta(e).lower)


QUICK = {(F(1, 10), 3000), (F(1), 100), (F(3), 1)}


@pytest.mark.parametrize(
    ("count", "mu"),
    [
        pytest.param(count, mu, marks=[FULL] * ((mu, count) not in QUICK))
        for count in (1, 2, 10, 100, 3000)
        for mu in (F(1, 10), F(1), F(3))
    ],
)
def test_one_percent_rule_against_the_exact_gaussian(count: int, mu: Fraction) -> None:
    part = hidden(GaussianLoss(F(0), mu**2 / count))
    composed = ComposedLoss((part,) * count)
    whole = GaussianLoss(mu)
    for delta in (1e-2, 1e-6):
        low, high = composed.epsilon(delta)
        exact = whole.epsilon(delta)
        assert low <= exact.upper
        assert exact.lower <= high <= 1.01 * exact.upper
        assert low >= 0.985 * exact.lower


def test_one_percent_rule_for_discrete_gaussian_noise() -> None:
    exact = DiscreteGaussianLoss(F(10), 1, 12)
    part = hidden(DiscreteGaussianLoss(F(10), 1, 2))
    other = hidden(DiscreteGaussianLoss(F(10), 1, 4))
    low, high = compose([part, other, part, other]).epsilon(1e-6)
    assert low <= exact.epsilon(1e-6).upper
    assert exact.epsilon(1e-6).lower <= high <= 1.01 * exact.epsilon(1e-6).upper


@pytest.mark.parametrize("alpha", [0.01, pytest.param(0.3, marks=FULL)])
def test_trade_off_against_the_exact_gaussian(alpha: float) -> None:
    part = hidden(GaussianLoss(F(0), F(1, 20)))
    low, high = ComposedLoss((part,) * 20).trade_off(alpha)
    exact = GaussianLoss(F(1)).trade_off(alpha)
    assert low <= exact.upper and exact.lower <= high
    assert high - low < 0.02


def test_exact_special_cases() -> None:
    gauss = compose([GaussianLoss(F(3, 5)), GaussianLoss(F(4, 5))])
    assert gauss == GaussianLoss(F(1))
    assert compose([GaussianLoss(F(1))] * 2) == GaussianLoss(F(0), F(2))
    assert compose([draws(11, 10, 3), draws(11, 10, 4)]) == draws(11, 10, 7)
    laplace, noise = DiscreteLaplaceLoss(F(3), 1, 2), DiscreteGaussianLoss(F(3), 1, 2)
    assert compose([laplace] * 3) == DiscreteLaplaceLoss(F(3), 1, 6)
    assert compose([noise] * 2) == DiscreteGaussianLoss(F(3), 1, 4)
    pure = compose([PureLoss(F(1, 4)), PureLoss(F(1, 2))])
    assert pure.epsilon(0.0).lower <= 0.75 <= pure.epsilon(0.0).upper < 0.75 + 1e-12
    assert compose([compose([PureLoss(F(1)), noise]), noise]) == compose(
        [PureLoss(F(1)), noise, noise]
    )
    assert compose([]).delta(0.0) == (0.0, 0.0)
    assert compose([PureLoss(F(0)), noise]) == noise


def test_rho_and_divergences_add() -> None:
    parts = [PureLoss(F(1, 2)), DiscreteLaplaceLoss(F(3), 1, 2), GaussianLoss(F(1, 2))]
    composed = compose(parts)
    assert composed.renyi(2).upper == pytest.approx(sum(p.renyi(2).upper for p in parts))
    assert composed.rho.lower <= sum(p.rho.upper for p in parts)
    assert composed.rho.upper >= sum(p.rho.lower for p in parts)


def test_roundings_of_the_losses_are_caught() -> None:
    """Twins: rounded down without what passes the end, and up by whole intervals.

    Of the latter the excess is n intervals, which connecting the dots avoids.
    """
    parts = [PureLoss(F(1, 10))] * 50
    (counts,), h = ((parts[0], 50),), 2.0**-9
    exact = exact_epsilon(convolved([atoms(part) for part in parts]), 1e-6)

    def down(part: PrivacyLoss, h: float) -> Any:
        grid = privacy_loss_distributions._grid(part, h)
        return replace(grid, first=grid.first - 1, infinite=0.0, above=0.0, below=0.0)

    def up(part: PrivacyLoss, h: float) -> Any:
        grid = privacy_loss_distributions._grid(part, h)
        return replace(grid, first=grid.first + 1, above=0.0, below=0.0)

    honest, optimistic, whole = (
        privacy_loss_distributions.account((counts,), h, grid_of)
        for grid_of in (privacy_loss_distributions._grid, down, up)
    )
    assert honest.upper(exact) >= 1e-6 > optimistic.upper(exact)
    assert honest.upper(1.01 * exact) <= 1e-6 < whole.upper(1.01 * exact)


def test_one_cell_in_place_of_two_is_caught() -> None:
    right = [DiscreteLaplaceLoss(F(5), 2, 2), PureLoss(F(1, 3))]
    broken = [DiscreteLaplaceLoss(F(5), 2, 1), PureLoss(F(1, 3))]
    exact = exact_epsilon(convolved([atoms(part) for part in right]), 1e-6)
    assert compose(broken).epsilon(1e-6).upper < 0.9 * exact


def test_fifty_parts_are_quick() -> None:
    forget()
    start = time.process_time()
    repeated = PureLoss(F(1, 31))
    compose([repeated] * 49 + [GaussianLoss(F(1, 3))]).epsilon(1e-6)
    different = [DiscreteLaplaceLoss(F(20 + k), 1, 2) for k in range(50)]
    compose(different).epsilon(1e-6)
    assert time.process_time() - start < 2.0


def test_composition_imports_no_logging_library() -> None:
    code = (
        "import logging, sys\n"
        "from fractions import Fraction\n"
        "from statpress.mechanisms.accounting.losses import GaussianLoss, PureLoss\n"
        "from statpress.mechanisms.accounting.composition import compose\n"
        "parts = [PureLoss(Fraction(1, 9))] * 3 + [GaussianLoss(Fraction(1, 3))]\n"
        "assert compose(parts).epsilon(1e-6).upper > 0\n"
        "assert not logging.root.handlers\n"
        "assert not {'absl', 'dp_accounting'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_lower_bounds_still_give_a_bracket() -> None:
    exact = GaussianLoss(F(1, 2))
    part = ProfileLoss(lambda e: exact.delta(e).upper)
    low, high = compose([part, part]).epsilon(1e-6)
    assert low == 0.0
    assert GaussianLoss(F(0), F(1, 2)).epsilon(1e-6).lower <= high
    low, high = compose([part, part, PureLoss(F(1))]).epsilon(1e-6)
    assert 0.9 < low < high


def test_tiny_deltas_fall_back_to_divergences() -> None:
    composed = compose([PureLoss(F(1, 10))] * 30 + [GaussianLoss(F(1, 2))])
    low, high = composed.epsilon(1e-30)
    assert 0 < low < high < math.inf
    assert composed.epsilon(1e-9).upper < high


def test_transform_errors_stay_within_what_is_charged() -> None:
    rng = np.random.default_rng(3)
    for size, times in ((301, 7), (801, 60)):
        masses = np.exp(-((np.arange(size) - size / 2) ** 2) / 800.0) * rng.uniform(0.5, 1, size)
        masses /= masses.sum()
        found = privacy_loss_distributions.power(masses, times)
        exact = np.array([1.0])
        for _ in range(times):
            exact = np.convolve(exact, masses)
        part = exact[found.first : found.first + len(found.masses)]
        assert np.abs(found.masses - part).sum() <= found.error
        assert exact.sum() - part.sum() <= privacy_loss_distributions.TRUNCATION + 1e-16
        both = privacy_loss_distributions.product(masses, masses)
        error = np.abs(both - np.convolve(masses, masses)).sum()
        assert error <= privacy_loss_distributions.product_error(masses, masses)


def test_next_to_no_mass_left_is_composed_all_the_same(fresh: None) -> None:
    """Nearly all losses are beyond the grid: then the truth is a delta of nearly 1."""
    assert len(privacy_loss_distributions.power(np.array([1e-9, 1e-9]), 3).masses) == 1
    for sigma_squared, step in ((F(1, 100_000), 64.0), (F(1, 8150), 16.0)):
        part = DiscreteGaussianLoss(sigma_squared, 1, 1)
        for counts in (((part, 2),), ((part, 3), (DiscreteLaplaceLoss(F(3), 1, 2), 2))):
            found = privacy_loss_distributions.account(counts, step)
            assert found.lower(1.0) <= 1.0 == found.upper(1.0)


def test_convolutions_equal_those_of_dp_accounting() -> None:
    """To the last bit: a library's own account of the same sums."""
    handlers = list(logging.root.handlers)  # its logging library adds one that pytest closes
    from dp_accounting.pld.pld_pmf import DensePLDPmf as dense

    logging.root.handlers[:] = handlers
    rng = np.random.default_rng(4)
    for size, times in ((2, 3), (301, 7), (801, 60), (50, 100_000)):
        masses = rng.uniform(0, 1, size) ** 4
        masses /= masses.sum() * 1.01
        theirs = dense(0.01, -5, masses, 0.01, True).self_compose(
            times, privacy_loss_distributions.TRUNCATION
        )
        ours = privacy_loss_distributions.power(masses, times)
        assert theirs._lower_loss == -5 * times + ours.first
        assert np.array_equal(theirs._probs, ours.masses)
        other = rng.uniform(0, 1, 1 + size // 3)
        theirs = dense(0.01, 0, masses, 0.0, True).compose(dense(0.01, 0, other, 0.0, True), 0.0)
        assert np.array_equal(theirs._probs, privacy_loss_distributions.product(masses, other))


PARTS = st.one_of(
    st.fractions(F(1, 20), 1, max_denominator=20).map(PureLoss),
    st.builds(
        DiscreteLaplaceLoss,
        st.fractions(2, 20, max_denominator=4),
        st.integers(1, 3),
        st.just(2),
    ),
)


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(st.lists(PARTS, min_size=2, max_size=4), st.floats(-7, -1))
def test_bracket_holds_for_any_parts(parts: list[PrivacyLoss], exponent: float) -> None:
    delta = 10**exponent
    found = convolved([atoms(part) for part in parts])
    low, high = compose(parts).epsilon(delta)
    if curve(found, 0.0) <= delta:
        assert low == 0.0
        return
    exact = exact_epsilon(found, delta)
    assert low <= exact * (1 + 1e-9) + 1e-9
    assert exact * (1 - 1e-9) <= high + 1e-9
    small = compose(parts).delta(low + high)
    assert 0 <= small.lower <= small.upper <= delta
    assert compose(parts).delta(-0.1).upper >= compose(parts).delta(0.1).lower


def test_losses_below_what_a_double_shows_are_not_lost() -> None:
    tiny = [PureLoss(F(1, 10**17)), PureLoss(F(2, 10**17))]
    for composed in (compose(tiny), compose_quickly(tiny)):
        assert composed.delta(0.0).upper >= 1.5e-17 - 1e-30
        assert composed.epsilon(1e-18).upper >= 2.7e-17
        assert composed.epsilon(1e-18).upper <= 3.1e-17
    rare = [draws(1, 1, 0), DrawsLoss(up=F(2, 10**17), down=F(1, 10**20), draws=2)]
    alone = rare[1].epsilon(1e-18)
    for composed in (compose([*rare, tiny[0]]), compose_quickly([*rare, tiny[0]])):
        assert composed.epsilon(1e-18).upper >= alone.lower
        assert composed.delta(0.0).upper >= rare[1].delta(0.0).lower


def test_epsilons_past_the_extended_numbers_are_bounded_all_the_same() -> None:
    huge = compose_quickly([PureLoss(F(3793))] * 3)
    for epsilon in (11_300.0, 11_358.0, 11_378.0):
        found = huge.delta(epsilon)
        assert found.upper >= -math.expm1(epsilon - 11_379) * 0.99
        assert 0 <= found.lower <= found.upper
    assert 11_378 <= huge.epsilon(1e-6).upper <= 11_380
    assert huge.epsilon(0.1).upper >= 11_378


def test_a_delta_below_the_grid_s_noise_still_has_an_epsilon() -> None:
    parts = [DiscreteGaussianLoss(F(100), 1, 2), DiscreteLaplaceLoss(F(10), 1, 2)]
    for delta in (1e-16, 1e-18, 1e-30):
        quick, fine = compose_quickly(parts).epsilon(delta), compose(parts).epsilon(delta)
        assert math.isfinite(quick.upper)
        assert quick.upper <= 1.3 * fine.upper
        assert quick.upper >= fine.lower


# The transforms of composition against SciPy's, whose lengths and bits they have


def test_lengths_are_those_of_scipy() -> None:
    from scipy.fft import next_fast_len

    sizes = [*range(1, 700), *np.random.default_rng(1).integers(700, 10**6, 100).tolist()]
    assert [fast_length(n) for n in sizes] == [next_fast_len(n) for n in sizes]
    assert [fast_length(n, 5) for n in sizes] == [next_fast_len(n, True) for n in sizes]


@pytest.mark.parametrize("size", [1, 2, 7, 1001, 4096, 30_001])
def test_sums_have_the_bits_of_scipys_transform(size: int) -> None:
    from scipy import fft

    rng = np.random.default_rng(size)
    one, two = (rng.dirichlet(np.full(size, 0.1)) for _ in range(2))
    found = power(one, 3)
    length = fast_length(max(len(found.masses), size))
    whole = np.real(fft.ifft(fft.fft(one, length) ** 3))
    assert np.array_equal(found.masses, np.roll(whole, -found.first)[: len(found.masses)])
    if size > 1:
        length = fast_length(2 * size - 1, 5)
        whole = fft.irfft(fft.rfft(one, length) * fft.rfft(two, length), length)
        assert np.array_equal(product(one, two), whole[: 2 * size - 1])
