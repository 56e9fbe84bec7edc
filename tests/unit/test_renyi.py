"""Rényi divergences and zero-concentrated privacy against mpmath, closed forms, dp-accounting."""

import functools
import itertools
import logging
import math
import random
from decimal import Decimal
from fractions import Fraction
from types import ModuleType

import mpmath
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.accounting.composition import epsilon_at, epsilon_of_rho, tail_of_rho
from statpress.mechanisms.accounting.draws import DrawsLoss, _Draw
from statpress.mechanisms.tables.bootstrap import Bootstrap

TINY = mpmath.mpf(10) ** -40
PROPERTY = settings(max_examples=25, deadline=None)


def big(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def pair(mass: Fraction, slope: Fraction, draws: int) -> DrawsLoss:
    """Up + down = mass, (up - down) / mass = slope."""
    return DrawsLoss(up=mass * (1 + slope) / 2, down=mass * (1 - slope) / 2, draws=draws)


def bootstrap(kappa: object, m: int, n: int, n_cells: int) -> DrawsLoss:
    return Bootstrap(kappa, m).loss(n_records=n, n_cells=n_cells)


def direct(loss: DrawsLoss, order: Fraction) -> mpmath.mpf:
    """The definition, with 150 digits against its cancellation."""
    with mpmath.workdps(150):
        p, q, a = big(loss.up), big(loss.down), big(order)
        if order == 1:
            return loss.draws * (p - q) * mpmath.log(p / q)
        total = p**a * q ** (1 - a) + q**a * p ** (1 - a) + 1 - p - q
        return loss.draws * mpmath.log(total) / (a - 1)


@functools.cache
def densest(loss: DrawsLoss, points: int = 500) -> mpmath.mpf:
    """The largest D/alpha over a dense search in alpha - 1, refined about its best point."""
    with mpmath.workdps(100):
        scale = 1 / mpmath.log(big(loss.up / loss.down))

        def ratio(s: mpmath.mpf) -> mpmath.mpf:
            order = 1 + scale * mpmath.exp(s)
            p, q = big(loss.up), big(loss.down)
            total = p**order * q ** (1 - order) + q**order * p ** (1 - order) + 1 - p - q
            return loss.draws * mpmath.log(total) / (order - 1) / order

        low, high = mpmath.mpf(-60), mpmath.mpf(12)
        grid = [low + (high - low) * i / points for i in range(points + 1)]
        values = [ratio(s) for s in grid]
        best = max(range(points + 1), key=values.__getitem__)
        left, right = grid[max(best - 1, 0)], grid[min(best + 1, points)]
        for _ in range(60):
            third = (right - left) / 3
            if ratio(left + third) < ratio(right - third):
                left += third
            else:
                right -= third
        return max(*values, ratio((left + right) / 2), direct(loss, Fraction(1)))


def holds(rho: float, loss: DrawsLoss) -> bool:
    """Whether the dense search finds no order with D > rho alpha."""
    return densest(loss) * (1 - TINY) <= rho


def random_losses(count: int) -> list[DrawsLoss]:
    rng = random.Random(20)
    return [
        pair(
            Fraction(rng.random()) ** rng.choice([1, 1, 4, 12]),
            Fraction(rng.random()) ** rng.choice([1, 1, 4, 20]),
            rng.choice([1, 7, 10**6, 10**15]),
        )
        for _ in range(count)
    ]


INTERIOR = [
    bootstrap(Fraction(1, 10), 50, 1000, 40),
    bootstrap(3, 5_000, 10_000, 400),
    bootstrap(1000, 10**6, 10**6, 1000),
    bootstrap(Fraction(1, 10**15), 10**9, 10**6, 2),
    bootstrap(10**15, 10**12, 1, 2**62),
    pair(Fraction(1, 4), Fraction(1, 10**12), 3),
]
AT_ONE = [
    bootstrap(1, 30, 1, 2),
    bootstrap(Fraction(1, 10**15), 1, 1, 2),
    bootstrap(10**15, 10**15, 1, 2),
    pair(Fraction(1, 2), Fraction(1, 10**6), 100),
    pair(Fraction(9, 10), Fraction(1, 3), 4),
]
BORDER = [  # between the two kinds, where D/alpha is flat
    pair(Fraction(1, 3), Fraction(1, 100), 1),
    pair(Fraction(1, 3) + Fraction(1, 10**4), Fraction(1, 10), 1),
    pair(Fraction(1, 3), Fraction(1, 10**15), 1),
]


@pytest.mark.parametrize("order", [1 + 1e-9, 1.5, 2, 64, 12345.678, 1e9, 1, 1e300])
def test_divergence_against_its_definition(order: float) -> None:
    for loss in (*INTERIOR, *AT_ONE, *BORDER, *random_losses(40)):
        if order == 1e300:  # the limit, m l
            low, high = loss.renyi(order)
            assert loss.pure_epsilon.lower <= high <= loss.pure_epsilon.upper * (1 + 1e-15)
        else:
            exact = direct(loss, Fraction(order))
            low, high = loss.renyi(order)
            assert low <= exact * (1 + TINY) and exact * (1 - TINY) <= high
        assert 0 < low <= high <= low * (1 + 2e-15)


def test_divergence_at_random_orders() -> None:
    rng = random.Random(4)
    for loss in random_losses(150):
        order = 1 + Fraction(10 ** rng.uniform(-9, 9))
        exact = direct(loss, order)
        low, high = loss.renyi(order)
        assert low <= exact * (1 + TINY) and exact * (1 - TINY) <= high <= low * (1 + 2e-15)


def test_no_loss() -> None:
    for loss in (pair(Fraction(1, 2), Fraction(0), 9), pair(Fraction(1, 2), Fraction(1, 2), 0)):
        assert loss.renyi(3) == loss.rho == (0.0, 0.0)


@pytest.mark.parametrize("order", [0.5, math.inf, math.nan])
def test_orders_that_are_refused(order: float) -> None:
    with pytest.raises(ValueError, match="order"):
        INTERIOR[0].renyi(order)
    with pytest.raises(ValueError, match="orders"):
        epsilon_at([(order, 1.0)], 0.1)


ONE_OF_EACH = [INTERIOR[0], INTERIOR[4], AT_ONE[0], BORDER[0]]


@pytest.mark.parametrize(
    "loss",
    [
        loss if loss in ONE_OF_EACH else pytest.param(loss, marks=pytest.mark.nightly)
        for loss in (*INTERIOR, *AT_ONE, *BORDER)
    ],
)
def test_supremum_against_a_dense_search(loss: DrawsLoss) -> None:
    low, high = loss.rho
    found = densest(loss)
    assert low <= found * (1 + mpmath.mpf(2) ** -34)
    assert found * (1 - TINY) <= high <= low * (1 + 2**-35)


def test_ceiling_is_above_every_point_of_its_interval_and_closes_in() -> None:
    rng = random.Random(8)
    with ctx.workprec(300):
        for loss in (*INTERIOR, *AT_ONE, *BORDER, *random_losses(60)):
            draw = _Draw(loss)
            for width in (1e-6, 1e-3, 0.1, 3.0, 1e4):
                a = (arb(10.0 ** rng.uniform(-3, 1.5)) / draw.step).mid()
                b = (a * (1 + arb(width))).mid()
                ceiling = draw.ceiling(a, b, draw.excess(a), draw.excess(b))
                points = [a + (b - a) * i / 16 for i in range(17)]
                values = [draw.divergence(t) / (1 + t) for t in points]
                for value in values:
                    assert not value * (1 - arb(2) ** -200) > ceiling
                    assert value < draw.ceiling(a, arb(math.inf), arb(0), arb(0))
                    assert value < draw.ceiling(arb(0), b, arb(0), draw.excess(b))
                if width <= 1e-3:  # of second order in the width
                    largest = max(float(value) for value in values)
                    assert float(ceiling) <= largest * (1 + 200 * width**2) * (1 + 1e-15)


def test_where_the_supremum_lies() -> None:
    """The cases above are of the kind their names say."""
    for loss in INTERIOR:
        assert loss.rho.lower > loss.renyi(1).upper
    for loss in AT_ONE:
        assert loss.rho.upper == pytest.approx(loss.renyi(1).upper, rel=1e-9)


def test_search_catches_a_supremum_over_a_coarse_grid() -> None:
    loss = INTERIOR[0]
    orders = (1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
    broken = max(loss.renyi(a).upper / a for a in orders)
    assert not holds(broken, loss) and holds(loss.rho.upper, loss)


def test_search_catches_the_divergence_of_order_one_alone() -> None:
    for loss in INTERIOR[:2]:
        assert not holds(loss.renyi(1).upper, loss)


def test_search_catches_a_rho_slightly_too_small() -> None:
    for loss in (INTERIOR[0], AT_ONE[0], BORDER[0]):
        assert not holds(loss.rho.lower * (1 - 1e-10), loss)


@pytest.mark.parametrize("up", [Fraction(51, 100), Fraction(3, 4), Fraction(999_999, 10**6)])
def test_randomised_response_has_a_closed_form(up: Fraction) -> None:
    """With rest = 0, rho = m l tanh(l/2), the divergence of order 1."""
    low, high = DrawsLoss(up=up, down=1 - up, draws=11).rho
    step = mpmath.log(big(up / (1 - up)))
    exact = 11 * step * mpmath.tanh(step / 2)
    assert low == pytest.approx(float(exact), rel=1e-14)
    assert exact * (1 - mpmath.mpf(10) ** -14) <= high <= exact * (1 + mpmath.mpf(2) ** -35)


fractions = st.builds(
    lambda x, power: Fraction(x) ** power,
    st.floats(min_value=1e-3, max_value=1 - 1e-3),
    st.sampled_from([1, 1, 2, 5]),
)
losses = st.builds(pair, fractions, fractions, st.integers(1, 10**15))
above_one = st.floats(min_value=-12, max_value=9).map(lambda e: 1 + 10.0**e)


@PROPERTY
@given(loss=losses, orders=st.lists(above_one, min_size=2, max_size=12))
def test_no_order_exceeds_rho(loss: DrawsLoss, orders: list[float]) -> None:
    low, high = loss.rho
    assert low <= high <= low * (1 + 2**-35)
    assert loss.renyi(1).lower <= high
    step = math.log1p(float(loss.up / loss.down - 1))
    assert low <= loss.draws * step**2 / 2 * (1 + 1e-12)  # pure epsilon implies epsilon^2/2
    divergences = [loss.renyi(order) for order in sorted(orders)]
    for order, divergence in zip(sorted(orders), divergences, strict=True):
        assert Fraction(divergence.lower) <= Fraction(high) * Fraction(order)
    for before, after in itertools.pairwise(divergences):
        assert before.lower <= after.upper


@PROPERTY
@given(loss=losses, more=st.integers(1, 10**6), order=above_one)
def test_more_draws_lose_more(loss: DrawsLoss, more: int, order: float) -> None:
    larger = DrawsLoss(up=loss.up, down=loss.down, draws=loss.draws + more)
    assert loss.rho.upper <= larger.rho.upper
    assert loss.renyi(order).upper <= larger.renyi(order).upper
    whole = loss.draws * DrawsLoss(up=loss.up, down=loss.down, draws=1).rho.upper
    assert loss.rho.upper == pytest.approx(whole, rel=1e-14)


@pytest.mark.parametrize(
    "loss",
    [
        bootstrap(Fraction(1, 10), 50, 1000, 40),
        bootstrap(3, 5_000, 10_000, 400),
        bootstrap(100, 60_881, 10_000, 20),
        bootstrap(1, 4, 1, 2),
        bootstrap(1000, 10**6, 10**6, 1000),
        pair(Fraction(1, 3), Fraction(1, 100), 10**5),
    ],
)
@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-6, 1e-15])
def test_conversions_never_go_below_the_exact_epsilon(loss: DrawsLoss, delta: float) -> None:
    exact = loss.epsilon(delta).lower
    orders = [1 + 10 ** (i / 8) for i in range(-24, 32)]
    pairs = [(order, loss.renyi(order).upper) for order in orders]
    by_orders = epsilon_at(pairs, delta)
    rho = Decimal(loss.rho.upper)
    by_rho = epsilon_of_rho(rho, delta)
    assert exact <= by_orders and exact <= by_rho <= tail_of_rho(rho, delta)
    assert by_orders <= by_rho * 1.01 + 1e-3  # the curve says more than its slope
    assert all(epsilon_at([one], delta) >= by_orders for one in pairs)


def proposition_12(divergence: mpmath.mpf, t: mpmath.mpf, delta: float) -> mpmath.mpf:
    return divergence + mpmath.log(t / (1 + t)) - mpmath.log(mpmath.mpf(delta) * (1 + t)) / t


@pytest.mark.parametrize(
    "rho",
    ["1e-300", "0.001", "3", "1e300"]
    + [pytest.param(rho, marks=pytest.mark.nightly) for rho in ("1e-9", "0.5", "1e5")],
)
@pytest.mark.parametrize(
    "delta",
    [0.999, 1e-6, 5e-324]
    + [pytest.param(delta, marks=pytest.mark.nightly) for delta in (0.1, 1e-100, 1e-300)],
)
def test_rho_against_the_minimum_over_all_orders(rho: str, delta: float) -> None:
    with mpmath.workdps(700):
        exact = mpmath.mpf(rho)
        low, high = mpmath.mpf(-800), mpmath.mpf(800)
        for _ in range(90):
            s = (low + high) / 2
            t = mpmath.exp(s)
            if exact * t * t + mpmath.log(mpmath.mpf(delta) * (1 + t)) < 0:
                low = s
            else:
                high = s
        best = proposition_12(exact * (1 + t), t, delta)
        found = epsilon_of_rho(Decimal(rho), delta)
        assert found >= best * (1 - TINY)
        assert found <= max(best, 0) * (1 + mpmath.mpf(10) ** -12) + mpmath.mpf(10) ** -50
        tail = exact + 2 * mpmath.sqrt(exact * mpmath.log(1 / mpmath.mpf(delta)))
        assert tail <= tail_of_rho(Decimal(rho), delta) <= tail * (1 + mpmath.mpf(10) ** -15)
        for order in (1.001, 2.0, 1e6):
            one = epsilon_at([(order, 0.75)], delta)
            exact_one = proposition_12(mpmath.mpf(0.75), mpmath.mpf(order) - 1, delta)
            assert exact_one <= one <= max(exact_one, 0) * (1 + mpmath.mpf(10) ** -15)


def test_ends_of_the_conversions() -> None:
    zero, one = Decimal(0), Decimal(1)
    assert epsilon_of_rho(zero, 1e-9) == epsilon_of_rho(zero, 0.0) == tail_of_rho(zero, 0.0) == 0
    assert epsilon_of_rho(one, 0.0) == tail_of_rho(one, 0.0) == math.inf
    assert epsilon_at([], 0.1) == epsilon_at([(2.0, 1.0)], 0.0) == math.inf
    assert epsilon_at([(2.0, math.inf)], 0.1) == math.inf
    assert epsilon_at([(2.0, 0.0)], 0.9) == 0.0
    assert 1 <= tail_of_rho(one, 1.0) <= 1 + 1e-15
    assert tail_of_rho(one, Decimal("1e-500")) == pytest.approx(
        1 + 2 * math.sqrt(500 * math.log(10))
    )
    for rho, delta in ((Decimal(-1), 0.1), (Decimal("NaN"), 0.1), (one, 1.5), (one, math.nan)):
        with pytest.raises(ValueError, match="rho"):
            epsilon_of_rho(rho, delta)
        with pytest.raises(ValueError, match="rho"):
            tail_of_rho(rho, delta)
    with pytest.raises(ValueError, match="delta"):
        epsilon_at([], 1.0)
    with pytest.raises(ValueError, match="divergences"):
        epsilon_at([(2.0, math.nan)], 0.1)


@pytest.mark.parametrize(
    "loss", [bootstrap(1, 40, 30, 5), pair(Fraction(1, 3), Fraction(1, 5), 60)]
)
def test_tail_against_the_exact_distribution_of_the_loss(loss: DrawsLoss) -> None:
    steps = {0: 1.0}
    for _ in range(loss.draws):
        moved: dict[int, float] = {}
        for j, mass in steps.items():
            for jump, weight in ((1, loss.up), (-1, loss.down), (0, 1 - loss.up - loss.down)):
                moved[j + jump] = moved.get(j + jump, 0.0) + mass * float(weight)
        steps = moved
    unit = math.log(loss.up / loss.down)
    rho = Decimal(loss.rho.upper)
    for delta in (0.9, 0.5, 0.1, 1e-3, 1e-9):
        epsilon = tail_of_rho(rho, delta)
        assert sum(mass for j, mass in steps.items() if unit * j > epsilon) <= delta


def accountant() -> ModuleType:
    """dp-accounting, without the handler that its logging library leaves at the root."""
    before = list(logging.root.handlers)
    from dp_accounting.rdp import rdp_privacy_accountant

    logging.root.handlers[:] = before
    return rdp_privacy_accountant


@pytest.mark.parametrize("rho", ["0.001", "0.08", "0.5", "12"])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_conversion_against_dp_accounting(rho: str, delta: float) -> None:
    centre = math.log(math.sqrt(math.log(1 / delta) / float(rho)))
    orders = [1 + math.exp(centre + i / 500) for i in range(-700, 700)]
    theirs, _ = accountant().compute_epsilon(orders, [float(rho) * a for a in orders], delta)
    ours = epsilon_of_rho(Decimal(rho), delta)
    assert ours <= theirs * (1 + 1e-12)
    assert ours == pytest.approx(theirs, rel=1e-5)
    pairs = [(order, float(rho) * order) for order in orders]
    assert epsilon_at(pairs, delta) == pytest.approx(theirs, rel=1e-9)
