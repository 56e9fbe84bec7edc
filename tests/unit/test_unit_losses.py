"""Losses of units of several records, by enumeration over every neighbouring pair.

The datasets are tables of n records over the possible cells of a tiny domain with a
structural zero and an absent cell; two are neighbours if at most c records lie elsewhere.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import ConcentratedLoss, GaussianLoss, delta_of_rho
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable, PerturbedKnobs

COLUMNS = tuple(Integer(name=name, lower=0, upper=1) for name in "ab")
CORNER = (ZeroPattern((("a", ((0, 0),)), ("b", ((1, 1),)))),)
DOMAINS = {
    "zero": Domain(COLUMNS, CORNER),
    "absent": Domain(COLUMNS[:1], absent=True),
    "both": Domain(COLUMNS, CORNER, absent=True),
}
EPSILONS = (0.0, 0.3, 0.7, 1.5)


def tables(n: int, cells: int) -> list[tuple[int, ...]]:
    return [t for t in itertools.product(range(n + 1), repeat=cells) if sum(t) == n]


def neighbours_by_filtering(
    n: int, cells: int, c: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All neighbours: counts fall by at most c in all, and rise by as much."""
    pairs = itertools.product(tables(n, cells), repeat=2)
    return [
        (h, g)
        for h, g in pairs
        if h != g and sum(max(a - b, 0) for a, b in zip(h, g, strict=True)) <= c
    ]


# --- bootstrap ---------------------------------------------------------------------


def draws(h: tuple[int, ...], kappa: Fraction, m: int) -> dict[tuple[int, ...], Fraction]:
    """Distribution of the drawn counts, exactly: p_j = (h_j + kappa)/N on these cells alone."""
    total = sum(h) + kappa * len(h)
    found = {}
    for z in tables(m, len(h)):
        ways = math.factorial(m)
        for k in z:
            ways //= math.factorial(k)
        weights = (((x + kappa) / total) ** k for x, k in zip(h, z, strict=True))
        found[z] = ways * math.prod(weights, start=Fraction(1))
    return found


@functools.cache
def laws_of(n: int, cells: int, pseudocount: Fraction, records: int) -> dict[Any, Any]:
    """What is drawn of every table."""
    return {h: draws(h, pseudocount, records) for h in tables(n, cells)}


def worst(mechanism: Bootstrap, n: int, cells: int, c: int, epsilon: float) -> float:
    """Largest hockey-stick divergence over all neighbours."""
    made = laws_of(n, cells, mechanism.pseudocount, mechanism.records)
    factor = Fraction(math.exp(epsilon))
    return max(
        float(sum(max(p - factor * made[g][z], 0) for z, p in made[h].items()))
        for h, g in neighbours_by_filtering(n, cells, c)
        if tuple(sorted(h)) == h  # the others are these with their cells renamed
    )


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_bootstrap_over_possible_cells_and_the_absent_one(
    name: str, c: int, epsilon: float
) -> None:
    domain, n = DOMAINS[name], 4
    mechanism = Bootstrap(Fraction(13, 10), 3)
    frame = {"n_records": n, "n_cells": domain.n_possible, "unit_records": c}
    found = worst(mechanism, n, domain.n_possible, c, epsilon)
    assert found == pytest.approx(mechanism.loss(**frame).delta(epsilon).upper, abs=1e-12)
    if found > 0:  # the broken twins: impossible cells counted in N, and a unit of one record
        wide = frame | {"n_cells": math.prod((2,) * len(domain.columns)) + domain.absent}
        if domain.zeros:
            assert mechanism.loss(**wide).delta(epsilon).upper < found - 1e-6
        if c == 2:
            assert (
                mechanism.loss(**(frame | {"unit_records": 1})).delta(epsilon).upper < found - 1e-6
            )


# --- noise ---------------------------------------------------------------------------


def noise(mechanism: LaplaceTable | GaussianTable, reach: int) -> np.ndarray:
    """Probabilities of the noise at -reach..reach, by the definition."""
    z, s = np.arange(-reach, reach + 1), float(mechanism.scale)
    laplace = isinstance(mechanism, LaplaceTable)
    weights = np.exp(-np.abs(z) / s if laplace else -(z**2) / (2 * s**2))
    return np.asarray(weights / weights.sum())


@functools.cache
def shifts(n: int, cells: int, c: int) -> list[tuple[int, ...]]:
    """What the counts of the moved cells change by; the order of cells does not matter."""
    pairs = neighbours_by_filtering(n, cells, c)
    found = {tuple(sorted(b - a for a, b in zip(h, g, strict=True) if a != b)) for h, g in pairs}
    return sorted(found)


def hockey_stick(
    mechanism: LaplaceTable | GaussianTable, shift: tuple[int, ...], epsilons: tuple[float, ...]
) -> list[float]:
    """Divergences of the moved cells' noise from the shifted noise.

    The loss of a cell at noise z that moves by v is of the form k / unit with an integer k:
    |z - v| - |z| by the scale, or v (v - 2 z) by twice its square. So outputs are merged
    by the loss, which is exact, and losses of cells add.
    """
    laplace, reach = isinstance(mechanism, LaplaceTable), 160
    unit = float(mechanism.scale) if laplace else 2 * float(mechanism.scale) ** 2
    p, total = noise(mechanism, reach), {0: 1.0}
    for v in shift:
        cell: collections.Counter[int] = collections.Counter()
        for z in range(-reach, reach + 1):
            cell[abs(z - v) - abs(z) if laplace else v * (v - 2 * z)] += float(p[z + reach])
        both: collections.Counter[int] = collections.Counter()
        for (one, q), (two, r) in itertools.product(total.items(), cell.items()):
            if q * r > 1e-18:
                both[one + two] += q * r
        total = both
    return [
        sum(q * -math.expm1(e - k / unit) for k, q in total.items() if k / unit > e)
        for e in epsilons
    ]


def test_all_moves_of_two_records_are_looked_at() -> None:
    assert shifts(4, 4, 2) == [
        (-2, 1, 1), (-2, 2), (-1, -1, 1, 1), (-1, -1, 2), (-1, 1),
    ]  # fmt: skip
    assert len(shifts(3, 6, 3)) == 1 + 4 + 9 - 2 + 2  # pairs of partitions of 1, 2 and 3, in 6


@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
@pytest.mark.parametrize("scale", [Fraction(1), Fraction(3, 2), Fraction(5)])
@pytest.mark.parametrize("c", [2, 3])
def test_no_move_of_a_unit_passes_the_claimed_loss(kind, scale: Fraction, c: int) -> None:
    mechanism = kind(scale)
    loss = mechanism.loss(n_records=9, n_cells=6, unit_records=c)
    found = {shift: hockey_stick(mechanism, shift, EPSILONS) for shift in shifts(c, 2 * c, c)}
    for i, epsilon in enumerate(EPSILONS):
        most = max(curve[i] for curve in found.values())
        bounds = loss.delta(epsilon)
        assert most <= bounds.upper * (1 + 1e-9)
        assert found[-c, c][i] >= most - 1e-12  # all from one cell to one other
        if kind is GaussianTable:
            assert most == pytest.approx(bounds.upper, abs=1e-12)
        # The broken twin charges a unit as one record.
        alone = mechanism.loss(n_records=9, n_cells=6).delta(epsilon).upper
        assert most > alone * (1 + 1e-6) or most < 1e-12
    if kind is LaplaceTable:
        assert loss.pure_epsilon == pytest.approx((2 * c / scale, 2 * c / scale))
        near = float(loss.pure_epsilon.lower) * (1 - 1e-6)
        assert hockey_stick(mechanism, (-c, c), (near,))[0] > 0  # no smaller epsilon would do
    else:
        assert loss.rho == DiscreteGaussianLoss(scale**2, c, 2).rho


def test_merging_outputs_by_loss_is_the_enumeration_of_outputs() -> None:
    mechanism, shift, reach = GaussianTable(Fraction(1)), (-2, 1, 1), 12
    p = noise(mechanism, reach)
    first, second = np.ones(1), np.ones(1)
    for v in shift:
        moved = np.roll(p, v)
        moved[: max(v, 0)] = 0
        moved[len(moved) + min(v, 0) :] = 0
        first = np.multiply.outer(first, p).ravel()
        second = np.multiply.outer(second, moved).ravel()
    for epsilon, merged in zip(EPSILONS, hockey_stick(mechanism, shift, EPSILONS), strict=True):
        enumerated = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
        assert enumerated == pytest.approx(merged, abs=1e-9)


@pytest.mark.parametrize("order", [1, Fraction(3, 2), 2, 7])
def test_divergences_of_all_moves(order: Fraction) -> None:
    scale, c = Fraction(3, 2), 2
    loss = GaussianTable(scale).loss(n_records=9, n_cells=6, unit_records=c)
    p = noise(GaussianTable(scale), 50)
    z, a = np.arange(-50, 51), float(order)

    def divergence(v: int) -> float:
        log_ratio = ((z - v) ** 2 - z**2) / (2 * float(scale) ** 2)
        if order == 1:
            return float(p @ log_ratio)
        return math.log(float(p @ np.exp((a - 1) * log_ratio))) / (a - 1)

    most = max(sum(map(divergence, shift)) for shift in shifts(c, 2 * c, c))
    assert loss.renyi(order).lower * (1 - 1e-9) <= most <= loss.renyi(order).upper * (1 + 1e-9)
    assert loss.renyi(order).upper == pytest.approx(float(order * c**2 / scale**2))


@pytest.mark.parametrize(
    "rho",
    [Fraction(1, 10**9), Fraction(1)]
    + [pytest.param(Fraction(rho), marks=pytest.mark.nightly) for rho in ("1/100", "40")],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 30.0])
def test_delta_of_rho_is_the_best_order_and_valid(rho: Fraction, epsilon: float) -> None:
    from mpmath import mp, mpf

    with mp.workdps(60):

        def bound(t: mpf) -> mpf:
            exponent = t * (
                mpf(rho.numerator) / rho.denominator * (1 + t) - mpf(epsilon) + mp.log(t)
            )
            return mp.exp(exponent - (1 + t) * mp.log1p(t))

        place = min(range(-240, 400), key=lambda k: bound(mpf(10) ** (mpf(k) / 20)))
        best = min(bound(mpf(10) ** (mpf(place * 50 + k) / 1000)) for k in range(-50, 51))
        pinsker = mp.sqrt(mpf(rho.numerator) / rho.denominator / 2)
        wanted = min(best, pinsker, mpf(1))
        found = mpf(delta_of_rho(rho, epsilon))
    assert found <= wanted * (1 + mpf(10) ** -12) or found <= 5e-324
    assert found >= wanted * mpf("0.99") or wanted < 1e-300  # the grid of orders is coarse
    # Gaussian noise of this rho is rho-zCDP: its exact delta may not be above.
    root = Fraction(math.isqrt(int(2 * rho * 10**24)), 10**12)
    assert GaussianLoss(root).delta(epsilon).lower <= float(found)


def test_losses_that_are_bounded_in_rho_compose_in_rho() -> None:
    scales = (Fraction(10), Fraction(10), Fraction(20))
    exact = [DiscreteGaussianLoss(scale**2, 2, 2) for scale in scales]
    parts = [ConcentratedLoss(4 / scale**2, one) for scale, one in zip(scales, exact, strict=True)]
    together, least = compose(parts), compose(exact)
    assert isinstance(together, ConcentratedLoss)
    assert together.bound == sum(4 / scale**2 for scale in scales)
    for epsilon in EPSILONS:
        assert together.delta(epsilon).upper == delta_of_rho(together.bound, epsilon)
        assert together.delta(epsilon).lower <= least.delta(epsilon).lower
        assert together.delta(epsilon).upper >= least.delta(epsilon).upper
    alike = compose(parts[:2])
    assert alike.delta(1.0).lower == DiscreteGaussianLoss(Fraction(100), 2, 4).delta(1.0).lower


def worst_powers(p: list[Fraction], moved: int) -> list[tuple[Fraction, Fraction]]:
    """The corners of T of the proof: powers of half-lines under a law and under it moved."""
    padded = [Fraction(0)] * moved + p + [Fraction(0)] * moved
    whole = list(itertools.accumulate(padded, initial=Fraction(0)))
    return sorted({(whole[t], whole[max(t - moved, 0)]) for t in range(len(whole))})


def least_power(corners: list[tuple[Fraction, Fraction]], x: Fraction) -> Fraction:
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        if x0 < x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return min(y for at, y in corners if at == x)


@pytest.mark.parametrize("law", [(1, 4, 6, 4, 1), (2, 3, 4, 4, 1), (1, 1, 1)])
def test_moves_of_one_cell_add_up_as_in_the_proof(law: tuple[int, ...]) -> None:
    """T_a after T_b is T_(a+b) for log-concave laws, exactly; a law with two peaks is a twin."""
    powers = [Fraction(k, 40) for k in range(41)]
    for weights in (law, (3, 1, 3)):
        p = [Fraction(w, sum(weights)) for w in weights]
        one, two, three = (worst_powers(p, s) for s in (1, 2, 3))
        same = all(
            least_power(one, least_power(two, x)) == least_power(three, x)
            and least_power(one, least_power(one, x)) == least_power(two, x)
            for x in powers
        )
        convex = all(
            (b1 - b0) * (a2 - a1) <= (b2 - b1) * (a1 - a0)
            for (a0, b0), (a1, b1), (a2, b2) in zip(one, one[1:], one[2:], strict=False)
        )
        assert (same and convex) == (weights == law)


def test_what_is_no_rho() -> None:
    assert delta_of_rho(Fraction(0), 0.0) == 0
    for rho, epsilon in ((Fraction(-1), 0.0), (Fraction(1), -1.0), (Fraction(1), math.inf)):
        with pytest.raises(ValueError, match="at least 0"):
            delta_of_rho(rho, epsilon)


@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
@pytest.mark.parametrize("c", [2, 30])
def test_calibration_for_units_of_several_records(kind, c: int) -> None:
    delta = 0.0 if kind is LaplaceTable else 1e-8
    target = Target(epsilon=1.0, delta=delta, n_records=3000, n_cells=50, unit_records=c)
    mechanism = kind.calibrate(PerturbedKnobs(), target)
    assert target.allows(mechanism.loss(**target.frame))
    finer = kind(Fraction(float(mechanism.scale) * (1 - 2**-9)))
    assert not target.allows(finer.loss(**target.frame))
    if kind is LaplaceTable:
        assert mechanism.scale == 2 * c
    with pytest.raises(RecordsError):
        mechanism.loss(n_records=3, n_cells=5, unit_records=4)
