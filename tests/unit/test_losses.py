"""Privacy losses against brute force, closed forms, mpmath and dp-accounting."""

import itertools
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType

import mpmath
import numpy as np
import pytest
from discrete_loss import DiscreteLoss
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.accounting.balls import Bounds
from statpress.mechanisms.accounting.draws import DrawsLoss, contour_delta
from statpress.mechanisms.accounting.losses import (
    BoundedRangeLoss,
    GaussianLoss,
    PrivacyLoss,
    PureLoss,
)
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss

F = Fraction
EPSILONS = (-1.3, -0.2, 0.0, 0.1, 0.45, 1.0, 2.7)
LOPSIDED = (F(1, 10), F(9, 10)), (F(3, 10), F(7, 10))
LOSSES: list[PrivacyLoss] = [
    GaussianLoss(F(1, 3)),
    GaussianLoss(F(0), F(2)),
    PureLoss(F(3, 4)),
    BoundedRangeLoss(F(1, 2)),
    BoundedRangeLoss(F(6)),
    DiscreteLaplaceLoss(F(3), 2, 2),
    DiscreteLaplaceLoss(F(1, 2), 1, 1),
    DiscreteGaussianLoss(F(4), 1, 2),
    DiscreteGaussianLoss(F(1, 9), 3, 3),
    DiscreteGaussianLoss(F(9000), 40, 2),
    DiscreteLoss.mirrored(*LOPSIDED),
    DiscreteLoss.mirrored((F(1, 2), F(1, 3), F(1, 6)), (F(1, 5), F(3, 5), F(1, 5))),
    DrawsLoss(up=F(11, 100), down=F(1, 10), draws=50),
    DrawsLoss(up=F(11, 100), down=F(1, 10), draws=5000),
]
SOME = st.sampled_from(LOSSES)
PROPERTY = settings(max_examples=settings().max_examples, deadline=None)


def big(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def inside(value: object, bounds: tuple[float, float], slack: float = 1e-30) -> bool:
    return bool(bounds[0] - slack <= value <= bounds[1] + slack)


def privacy_loss_distributions() -> ModuleType:
    """dp-accounting, without the handler that its logging library leaves at the root."""
    before = list(logging.root.handlers)
    from dp_accounting.pld import privacy_loss_distribution

    logging.root.handlers[:] = before
    return privacy_loss_distribution


def noise_delta(
    log_weight: Callable[[int], mpmath.mpf], reach: int, shift: int, cells: int, *epsilons: float
) -> list[mpmath.mpf]:
    """Hockey-stick divergences of independent noisy cells by enumeration of every output."""
    weight = {z: mpmath.exp(log_weight(z)) for z in range(-reach - shift, reach + shift + 1)}
    norm = mpmath.fsum(weight.values())
    totals, factors = [mpmath.mpf(0)] * len(epsilons), [*map(mpmath.exp, epsilons)]
    for output in itertools.product(range(-reach, reach + shift + 1), repeat=cells):
        p = mpmath.fprod(weight.get(z, 0) for z in output)
        q = mpmath.fprod(weight.get(z - shift, 0) for z in output)
        for i, factor in enumerate(factors):
            totals[i] += max(p - factor * q, 0)
    return [total / norm**cells for total in totals]


@pytest.mark.parametrize(
    ("scale", "shift", "cells"),
    [(F(1, 2), 1, 1), (F(1, 2), 3, 1), (F(1, 2), 1, 2), (F(1, 2), 2, 2), (F(2), 1, 1), (F(2), 3, 1)]
    + [pytest.param(F(2), shift, 2, marks=pytest.mark.nightly) for shift in (1, 2)],
)
def test_discrete_laplace_against_every_output(scale: Fraction, shift: int, cells: int) -> None:
    loss = DiscreteLaplaceLoss(scale, shift, cells)
    epsilons = (0.0, 0.3, 1.1)
    deltas = noise_delta(lambda z: -abs(z) / big(scale), int(28 * scale), shift, cells, *epsilons)
    for epsilon, found in zip(epsilons, deltas, strict=True):
        assert inside(found, loss.delta(epsilon), 1e-11)
        assert loss.delta(epsilon).upper <= found + mpmath.mpf(1e-11)


@pytest.mark.parametrize(("shift", "cells"), [(1, 1), (3, 1), (1, 2), (2, 2), (1, 3)])
@pytest.mark.parametrize("square", [F(1, 3), F(3)])
def test_discrete_gaussian_against_every_output(square: Fraction, shift: int, cells: int) -> None:
    loss = DiscreteGaussianLoss(square, shift, cells)
    reach = 8 if cells == 3 else 20
    epsilons = (0.0, 0.7)
    deltas = noise_delta(lambda z: -(z * z) / (2 * big(square)), reach, shift, cells, *epsilons)
    for epsilon, found in zip(epsilons, deltas, strict=True):
        assert inside(found, loss.delta(epsilon), 1e-5 if cells == 3 else 1e-12)


@pytest.mark.parametrize("cells", [1, 2, 3, 4])
@pytest.mark.parametrize("ratio", [100, 255, 256, 257, 2000])
def test_discrete_gaussian_sums_against_convolution(cells: int, ratio: int) -> None:
    """Both ways of summing a tail, about the point where they change places."""
    square = F(ratio * cells) + F(1, 7)
    reach = 12 * math.isqrt(ratio * cells) + 3
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * float(square)))
    one /= one.sum()
    total = one
    for _ in range(cells - 1):
        total = np.convolve(total, one)
    loss = DiscreteGaussianLoss(square, 3, cells)
    values = np.arange(len(total)) - reach * cells
    losses = (cells * 9 + 6 * values) / (2 * float(square))
    for epsilon in (0.0, 0.05, 0.4):
        expected = total @ np.maximum(-np.expm1(epsilon - losses), 0)
        assert inside(expected, loss.delta(epsilon), 1e-13)


def test_discrete_gaussian_with_much_noise_is_fast_and_nearly_continuous() -> None:
    loss = DiscreteGaussianLoss(F(10**10), 10**5, 2)
    start = time.process_time()
    low, high = loss.delta(1.0)
    assert time.process_time() - start < 0.5
    assert high - low < 1e-15
    assert GaussianLoss(F(0), F(2)).delta(1.0).upper == pytest.approx(low, rel=1e-5)
    far = loss.delta(20.0)
    assert 0 < far.lower <= far.upper < 1e-30
    assert far.upper <= far.lower * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("mu", [F(1, 100), F(1, 2), F(4)])
def test_gaussian_against_mpmath(mu: Fraction, epsilon: float) -> None:
    with mpmath.workdps(60):
        m, e = big(mu), mpmath.mpf(epsilon)
        found = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert inside(found, GaussianLoss(mu).delta(epsilon))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_pure_loss_is_randomised_response(epsilon: float) -> None:
    with mpmath.workdps(60):
        e = mpmath.mpf(3) / 4
        p, q = mpmath.exp(e) / (1 + mpmath.exp(e)), 1 / (1 + mpmath.exp(e))
        x = mpmath.exp(epsilon)
        assert inside(max(p - x * q, 0) + max(q - x * p, 0), PureLoss(F(3, 4)).delta(epsilon))
        for order in (F(11, 10), F(2), F(50)):
            a = big(order)
            found = mpmath.log(p**a * q ** (1 - a) + q**a * p ** (1 - a)) / (a - 1)
            assert inside(found, PureLoss(F(3, 4)).renyi(order))


def events(loss: DiscreteLoss, epsilon: float) -> float:
    """Largest P(S) - e^epsilon Q(S) over every event and both orders, exactly."""
    factor = F(math.exp(epsilon))
    found = F(0)
    for p, q in ((loss.p, loss.q), (loss.q, loss.p)):
        for chosen in itertools.product((0, 1), repeat=len(p)):
            sums = [sum(c * x for c, x in zip(chosen, d, strict=True)) for d in (p, q)]
            found = max(found, sums[0] - factor * sums[1])
    return float(found)


@st.composite
def pairs(draw: st.DrawFn) -> DiscreteLoss:
    size = draw(st.integers(2, 4))
    weights = st.lists(st.integers(1, 30), min_size=size, max_size=size)
    p, q = draw(weights), draw(weights)
    return DiscreteLoss.mirrored(tuple(F(a, sum(p)) for a in p), tuple(F(a, sum(q)) for a in q))


@PROPERTY
@given(pairs(), st.sampled_from(EPSILONS))
def test_discrete_loss_against_every_event(loss: DiscreteLoss, epsilon: float) -> None:
    assert inside(events(loss, epsilon), loss.delta(epsilon), 1e-15)


class OneOrder(DiscreteLoss):
    """Broken: takes an asymmetric pair for a symmetric one."""

    def __post_init__(self) -> None:
        pass


def test_events_catch_a_loss_of_one_order_only() -> None:
    broken = OneOrder(*LOPSIDED)
    assert broken.delta(0.5).upper < events(broken, 0.5) - 1e-3
    whole = DiscreteLoss.mirrored(*LOPSIDED)
    assert inside(events(whole, 0.5), whole.delta(0.5), 1e-15)


@pytest.mark.parametrize("kind", [DiscreteLaplaceLoss, DiscreteGaussianLoss])
def test_enumeration_catches_one_cell_in_place_of_two(kind: type) -> None:
    def weight(z: int) -> mpmath.mpf:
        return mpmath.mpf(-abs(z)) / 2 if kind is DiscreteLaplaceLoss else mpmath.mpf(-z * z) / 4

    (found,) = noise_delta(weight, 30, 1, 2, 0.3)
    assert kind(F(2), 1, 1).delta(0.3).upper < found - 1e-2
    assert inside(found, kind(F(2), 1, 2).delta(0.3), 1e-5)


@pytest.mark.parametrize("shift", [1, 3])
def test_against_dp_accounting(shift: int) -> None:
    pld = privacy_loss_distributions()
    step = {"value_discretization_interval": 1e-4}
    laplace = pld.from_discrete_laplace_mechanism(0.25, shift, **step)
    noise = pld.from_discrete_gaussian_mechanism(2.0, shift, **step)
    twins = [
        (DiscreteLaplaceLoss(F(4), shift, 1), laplace),
        (DiscreteGaussianLoss(F(4), shift, 1), noise),
        (GaussianLoss(F(shift, 4)), pld.from_gaussian_mechanism(4.0, shift, **step)),
    ]
    for loss, theirs in twins:
        for epsilon in (0.0, 0.1, 0.5, 1.0):
            upper = theirs.get_delta_for_epsilon(epsilon)
            assert loss.delta(epsilon).lower <= upper + 1e-9
            assert upper <= loss.delta(max(0.0, epsilon - 2e-4)).upper + 1e-9


def test_few_draws_equal_the_contour_integral() -> None:
    loss = DrawsLoss(up=F(3, 10), down=F(1, 5), draws=40)
    for epsilon in EPSILONS:
        few, contour = loss.delta(epsilon), contour_delta(loss, epsilon)
        assert few.lower <= contour.upper and contour.lower <= few.upper
        assert few.upper - few.lower < 1e-15


def neyman_pearson(loss: DiscreteLoss, alpha: Fraction) -> float:
    """The type II error of the best randomised test, in either order."""
    best = F(1)
    for p, q in ((loss.p, loss.q), (loss.q, loss.p)):
        left, power = alpha, F(0)
        for a, b in sorted(zip(p, q, strict=True), key=lambda x: F(x[0]) / x[1]):
            share = min(F(1), left / a)
            left, power = left - share * a, power + share * b
        best = min(best, 1 - power)
    return float(best)


@PROPERTY
@given(pairs(), st.fractions(0, 1, max_denominator=64))
def test_trade_off_against_the_best_test(loss: DiscreteLoss, alpha: Fraction) -> None:
    low, high = loss.trade_off(float(alpha))
    best = neyman_pearson(loss, F(float(alpha)))
    assert low - 1e-15 <= best <= high + 1e-15
    assert alpha == 0 or high - low < 1e-8


@pytest.mark.parametrize("alpha", [1e-6, 0.05, 0.5, 0.99])
def test_trade_off_of_a_gaussian(alpha: float) -> None:
    low, high = GaussianLoss(F(3, 2)).trade_off(alpha)
    with mpmath.workdps(40):
        quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(alpha))
        assert inside(mpmath.ncdf(quantile - 1.5), (low, high), 1e-15)
    assert high - low < 1e-9


@dataclass(frozen=True)
class Boastful(DiscreteLoss):
    """Broken: its curve is half of what it should be."""

    def _ahead(self, epsilon: float) -> Bounds:
        low, high = super()._ahead(epsilon)
        return Bounds(low / 2, high / 2)


@PROPERTY
@given(pairs(), st.fractions(0, 1, max_denominator=64), st.floats(0.01, 4))
def test_no_test_misses_less_than_stated(loss: DiscreteLoss, alpha: F, scale: float) -> None:
    (stated,) = loss.missed_at_least((alpha,), scale)
    assert stated <= neyman_pearson(loss, alpha) + 1e-15


def test_a_curve_that_is_too_low_is_caught() -> None:
    p, q = (F(1, 2), F(1, 3), F(1, 6)), (F(1, 5), F(3, 5), F(1, 5))
    for alpha in (F(1, 4), F(1, 3)):
        honest, twin = DiscreteLoss.mirrored(p, q), Boastful.mirrored(p, q)
        best = neyman_pearson(honest, alpha)
        assert honest.missed_at_least((alpha,), 1.0)[0] <= best
        assert twin.missed_at_least((alpha,), 1.0)[0] > best


@pytest.mark.parametrize("mu", [F(1, 50), F(1, 5), F(3, 2), F(6)])
def test_what_is_missed_of_a_gaussian(mu: F) -> None:
    alphas = (F(1, 100), F(1, 20))
    epsilon = GaussianLoss(mu).epsilon(1e-6).upper
    stated = GaussianLoss(mu).missed_at_least(alphas, epsilon)
    twin = GaussianLoss(mu * F(9, 10)).missed_at_least(alphas, epsilon)
    for alpha, least, other in zip(alphas, stated, twin, strict=True):
        with mpmath.workdps(40):
            exact = mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * big(alpha)) - big(mu))
        assert exact - 1e-4 < least <= exact < other


def test_a_loss_of_nothing_and_one_of_everything() -> None:
    alphas = (F(0), F(1, 20), F(1))
    nothing = PureLoss(F(0)).missed_at_least(alphas, 0.0)
    assert nothing == pytest.approx((1, 0.95, 0), abs=1e-15)
    everything = PureLoss(F(50)).missed_at_least(alphas, 50.0)
    assert everything[0] > 0 and everything[1] < 1e-20 and everything[2] == 0
    with pytest.raises(ValueError, match="alpha"):
        PureLoss(F(1)).missed_at_least((F(3, 2),), 1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_rho_is_the_supremum_of_divergence_over_order(loss: PrivacyLoss) -> None:
    low, high = loss.rho
    assert low <= high <= low * (1 + 2e-6)
    orders = [1, *(1 + F(2) ** k for k in range(-20, 12)), *(1 + F(k, 7) for k in range(1, 30))]
    ratios = [loss.renyi(a).lower / float(a) for a in orders]
    assert max(ratios) <= high * (1 + 1e-14)
    assert max(ratios) >= low * (1 - 0.02)


@pytest.mark.parametrize(
    "order", [F(1), F(21, 2), *(pytest.param(F(k, 2), marks=pytest.mark.nightly) for k in (3, 4))]
)
def test_divergences_against_the_definition(order: Fraction) -> None:
    lopsided = DiscreteLoss.mirrored(*LOPSIDED)
    laplace, gauss = DiscreteLaplaceLoss(F(3, 2), 2, 1), DiscreteGaussianLoss(F(1, 2), 1, 1)
    with mpmath.workdps(50):
        a = big(order)

        def divergence(p: list[mpmath.mpf], q: list[mpmath.mpf]) -> mpmath.mpf:
            if a == 1:
                return mpmath.fsum(x * mpmath.log(x / y) for x, y in zip(p, q, strict=True))
            total = mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))
            return mpmath.log(total) / (a - 1)

        def shifted(weight: Callable[[int], mpmath.mpf], shift: int) -> mpmath.mpf:
            w = [mpmath.exp(weight(z)) for z in range(-150, 151)]
            u = [mpmath.exp(weight(z - shift)) for z in range(-150, 151)]
            return divergence([x / mpmath.fsum(w) for x in w], [x / mpmath.fsum(u) for x in u])

        x, y = ([big(v) for v in each] for each in (lopsided.p, lopsided.q))
        assert inside(divergence(x, y), lopsided.renyi(order))
        assert inside(shifted(lambda z: -abs(z) / mpmath.mpf(1.5), 2), laplace.renyi(order), 1e-18)
        assert inside(shifted(lambda z: -mpmath.mpf(z * z), 1), gauss.renyi(order), 1e-18)


@PROPERTY
@given(SOME, st.floats(-2, 4), st.floats(1e-4, 2))
def test_curves_fall_and_are_convex_in_the_exponential(
    loss: PrivacyLoss, e: float, step: float
) -> None:
    a, b, c = (loss.delta(x) for x in (e, e + step, e + 2 * step))
    assert 0 <= c.lower <= c.upper <= 1
    assert c.lower <= b.upper and b.lower <= a.upper
    x, y, z = (math.exp(v) for v in (e, e + step, e + 2 * step))
    chord = (a.upper * (z - y) + c.upper * (y - x)) / (z - x)
    assert b.lower <= chord + 1e-14
    assert a.lower >= -math.expm1(e) - 1e-15


@PROPERTY
@given(SOME, st.floats(-12, -0.5))
def test_epsilon_inverts_delta(loss: PrivacyLoss, exponent: float) -> None:
    delta = 10**exponent
    low, high = loss.epsilon(delta)
    assert 0 <= low <= high
    assert loss.delta(high).upper <= delta
    assert low == 0 or loss.delta(low * (1 - 1e-9)).upper > delta
    assert high - low <= 1e-9 * high
    assert high <= loss.pure_epsilon.upper


@PROPERTY
@given(SOME)
def test_currencies_agree(loss: PrivacyLoss) -> None:
    pure, rho = loss.pure_epsilon.upper, loss.rho.upper
    assert loss.attack_advantage == loss.delta(0.0)
    if pure < math.inf:
        assert loss.delta(pure).upper == 0
        assert rho <= PureLoss(Fraction(pure)).rho.upper * (1 + 1e-6)
        assert loss.delta(pure / 2).lower <= PureLoss(Fraction(pure)).delta(pure / 2).upper
    assert loss.epsilon(1e-5).lower <= rho + 2 * math.sqrt(rho * math.log(1e5))  # Bun, Steinke
    assert loss.attack_advantage.lower <= math.sqrt(rho / 2) * (1 + 1e-6)  # Pinsker


def test_different_supports_have_no_finite_epsilon() -> None:
    loss = DiscreteLoss((F(9, 10), F(1, 10), F(0)), (F(9, 10), F(0), F(1, 10)))
    assert loss.pure_epsilon == loss.rho == loss.renyi(2) == (math.inf, math.inf)
    assert loss.epsilon(0.05).upper == math.inf
    assert loss.epsilon(0.1 + 1e-9) == (0.0, 0.0)
    assert loss.trade_off(0.0).upper <= 1


@pytest.mark.parametrize(
    "build",
    [
        lambda: GaussianLoss(F(-1)),
        lambda: PureLoss(F(-1)),
        lambda: DiscreteLaplaceLoss(F(0), 1, 1),
        lambda: DiscreteGaussianLoss(F(1), 0, 1),
        lambda: PureLoss(F(1)).delta(math.nan),
        lambda: PureLoss(F(1)).epsilon(1.0),
        lambda: PureLoss(F(1)).renyi(F(1, 2)),
        lambda: PureLoss(F(1)).trade_off(1.5),
    ],
)
def test_values_out_of_range(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        build()
