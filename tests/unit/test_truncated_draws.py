"""The approximate rho of draws: enumeration, other sums, the curve it implies, broken twins."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neighbouring import Table, multinomial, neighbours
from rho_references import reference_of

from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.accounting.losses import delta_of_rho
from statpress.mechanisms.accounting.truncated_draws import (
    MOVED_DRAWS,
    NET_STEPS,
    RULES,
    Approximate,
    approximately_concentrated,
)

F = Fraction
Law = dict[object, Fraction]
STEPS = (1, -1, 0)


def draws(pseudocount: str, m: int, n: int, cells: int, unit: int = 1) -> DrawsLoss:
    k, total = F(pseudocount), n + F(pseudocount) * cells
    return DrawsLoss(up=(unit + k) / total, down=k / total, draws=m)


DEMO = draws("19.5", 29_501, 29_501, 350)
SMALL = [
    (draws("1/2", 4, 3, 3), 0.2),
    (draws("1.3", 6, 4, 3, 2), 0.4),
    (draws("3", 5, 9, 20), 1e-3),
    (draws("0.01", 3, 50, 4), 1e-5),
    (draws("40", 6, 2, 3), 0.1),  # hardly any draw is a rest
]
WANTED = [
    (draws("5", 3000, 3000, 40), 1e-8, 0.2249, 0.1944),
    (DEMO, 6e-9, 0.0475, 0.0422),
    (draws("3.373", 10_000, 29_501, 71_400), 1e-6, 0.0287, 0.0243),
    (draws("1000", 38_459_154, 10**6, 1000), 1e-8, 0.01931, None),
]


def proven(loss: DrawsLoss, delta: float, rule: str = "") -> Approximate:
    made = approximately_concentrated(loss, delta, rule)
    assert made is not None and rule in ("", made.rule)
    return made


def size(rule: str, outcomes: Sequence[int]) -> int:
    """What the event of a rule is about: T or |S| of the steps."""
    return sum(map(abs, outcomes)) if rule == MOVED_DRAWS else abs(sum(outcomes))


def given_event(loss: DrawsLoss, made: Approximate, most: int) -> tuple[Law, Law, Fraction]:
    """Both laws of all sequences of outcomes given the event, exactly, and what is left out."""
    rest = 1 - loss.up - loss.down
    one, other = {1: loss.up, -1: loss.down, 0: rest}, {1: loss.down, -1: loss.up, 0: rest}
    p, q = {}, {}
    for outcomes in itertools.product(STEPS, repeat=loss.draws):
        if size(made.rule, outcomes) <= most:
            p[outcomes] = math.prod((one[step] for step in outcomes), start=F(1))
            q[outcomes] = math.prod((other[step] for step in outcomes), start=F(1))
    kept = sum(p.values(), F(0))
    assert kept == sum(q.values(), F(0))
    return {z: a / kept for z, a in p.items()}, {z: a / kept for z, a in q.items()}, 1 - kept


def enumerated(p: Law, q: Law) -> float:
    """The largest divergence over order among some orders."""
    masses: dict[Fraction, Fraction] = defaultdict(F)  # by the ratio of the chances
    for z, a in p.items():
        masses[a / q[z]] += a
    with mpmath.workdps(30):
        pairs = [
            (mpmath.mpf(a.numerator) / a.denominator, mpmath.mpf(r.numerator) / r.denominator)
            for r, a in masses.items()
        ]
        return max(
            float(mpmath.log(mpmath.fsum(a * r**u for a, r in pairs)) / (u * (1 + u)))
            for u in (0.001, 0.03, 0.3, 1, 2, 4, 8, 16, 40)
        )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("loss", "delta"), SMALL)
def test_against_every_sequence_of_draws(loss: DrawsLoss, delta: float, rule: str) -> None:
    if approximately_concentrated(loss, delta, rule) is None:
        assert (loss, rule) == (SMALL[-1][0], MOVED_DRAWS)  # all may be moved
        return
    made = proven(loss, delta, rule)
    p, q, tail = given_event(loss, made, made.most)
    assert tail <= F(made.delta) <= F(delta)
    assert made.delta == pytest.approx(float(tail), rel=1e-12)
    assert given_event(loss, made, made.most - 1)[2] > F(delta)  # less would not do
    rho = enumerated(p, q)
    assert rho == pytest.approx(enumerated(q, p), rel=1e-12)
    assert 0.97 * made.rho.upper < rho <= made.rho.upper  # a twin 3 % below is caught


@pytest.mark.parametrize(("loss", "delta"), SMALL)
def test_broken_twins_of_the_net_steps_are_caught(loss: DrawsLoss, delta: float) -> None:
    made = proven(loss, delta, NET_STEPS)
    p, q, tail = given_event(loss, made, made.most)
    # One step fewer in rho, whose larger tail is not paid.
    less, lesser, larger = given_event(loss, made, made.most - 1)
    assert enumerated(less, lesser) < enumerated(p, q)
    assert larger > F(made.delta)
    if made.most > 1:
        twin = proven(loss, float(larger) * (1 + 1e-9), NET_STEPS)
        assert twin.most < made.most and twin.rho.upper < enumerated(p, q)
    # One side of the tail, or half of it.
    law = defaultdict(F)
    for outcomes in itertools.product(STEPS, repeat=loss.draws):
        shares = {1: loss.up, -1: loss.down, 0: 1 - loss.up - loss.down}
        law[sum(outcomes)] += math.prod((shares[step] for step in outcomes), start=F(1))
    one_side = sum(mass for total, mass in law.items() if total > made.most)
    assert one_side < tail * (1 - F(1, 10**9)) and F(made.delta) / 2 < tail


def moves_of(one: Table, other: Table, unit: int) -> list[tuple[int, int]]:
    """Cells from and to which the records of a unit go."""
    falls, rises = (
        [j for j, (a, b) in enumerate(zip(x, y, strict=True)) for _ in range(a - b)]
        for x, y in ((one, other), (other, one))
    )
    left = [j for j, (a, b) in enumerate(zip(one, other, strict=True)) for _ in range(min(a, b))]
    stay = left[: unit - len(falls)]
    return [*zip(falls, rises, strict=True), *zip(stay, stay, strict=True)]


def kernel(one: Table, other: Table, k: Fraction, unit: int) -> list[list[Fraction]]:
    """Of the proof of Theorem 2.1: a cell's probability for each outcome of the pair."""
    moves = moves_of(one, other, unit)
    shared = [h - sum(a == j for a, _ in moves) for j, h in enumerate(one)]
    rows = [[F(0)] * len(one) for _ in STEPS]
    for a, b in moves:
        if a == b:  # the outcome is ignored
            weights = [[w + k + unit * (j == a) for j, w in enumerate(shared)]] * 3
        else:
            weights = [
                [F(j == a) for j in range(len(one))],
                [F(j == b) for j in range(len(one))],
                [w + k * (j not in (a, b)) for j, w in enumerate(shared)],
            ]
        for row, weight in zip(rows, weights, strict=True):
            for j, w in enumerate(weight):
                row[j] += F(w) / (sum(weight) or 1) / len(moves)
    return rows


def released(
    rows: list[list[Fraction]], shares: Sequence[Fraction], m: int, rule: str, most: int
) -> tuple[Law, Fraction]:
    """The law of the counts given the event, and the probability of the event."""
    states: dict[tuple[int, tuple[int, ...]], Fraction] = {(0, (0,) * len(rows[0])): F(1)}
    for _ in range(m):
        after: dict[tuple[int, tuple[int, ...]], Fraction] = defaultdict(F)
        for (at, counts), mass in states.items():
            for step, share, row in zip(STEPS, shares, rows, strict=True):
                for j, probability in enumerate(row):
                    drawn = (*counts[:j], counts[j] + 1, *counts[j + 1 :])
                    moved = at + (abs(step) if rule == MOVED_DRAWS else step)
                    after[moved, drawn] += mass * share * probability
        states = after
    law: Law = defaultdict(F)
    for (at, counts), mass in states.items():
        if abs(at) <= most and mass:
            law[counts] += mass
    kept = sum(law.values(), F(0))
    return {z: mass / kept for z, mass in law.items()}, kept


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("k", "m", "n", "cells", "unit", "delta"),
    [
        pytest.param("1/2", 3, 3, 3, 1, 0.2, marks=pytest.mark.nightly),
        ("1", 3, 3, 2, 1, 0.4),
        ("1.3", 3, 3, 3, 2, 0.5),
    ],
)
def test_every_pair_of_neighbours_is_a_post_processing_under_the_event(
    k: str, m: int, n: int, cells: int, unit: int, delta: float, rule: str
) -> None:
    """Also where the records of a unit move from and to different cells."""
    loss = draws(k, m, n, cells, unit)
    made = proven(loss, delta, rule)
    rest, worst, different = 1 - loss.up - loss.down, 0.0, 0
    for one, other in neighbours(n, cells, unit):
        if tuple(sorted(one)) != one:
            continue  # a pair whose cells are renamed is in the list, too
        different += len(set(moves_of(one, other, unit))) > 1
        rows = kernel(one, other, F(k), unit)
        laws = []
        for table, shares in (
            (one, (loss.up, loss.down, rest)),
            (other, (loss.down, loss.up, rest)),
        ):
            whole, all_of_it = released(rows, shares, m, rule, m)
            smoothed = [(h + F(k)) / (n + F(k) * cells) for h in table]
            assert all_of_it == 1 and whole == multinomial(smoothed, m)
            law, kept = released(rows, shares, m, rule, made.most)
            assert 1 - kept <= F(made.delta)
            laws.append(law)
        worst = max(worst, enumerated(*laws))
    assert 0 < worst <= made.rho.upper and (unit == 1 or different)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("loss", "delta", "by_moved", "by_net"), WANTED)
def test_the_figures_asked_for(
    loss: DrawsLoss, delta: float, by_moved: float, by_net: float | None, rule: str
) -> None:
    most = by_moved if rule == MOVED_DRAWS else by_net
    made = approximately_concentrated(loss, delta, rule)
    if most is None:
        assert made is None  # too many steps to tabulate, and next to nothing to gain
        assert loss.approximate_rho(delta).rule == MOVED_DRAWS
        return
    assert made is not None
    rho, tail = reference_of(loss, made)
    print(
        f"{rule}: rho {loss.rho.upper:.6g} whole, {made.rho.upper:.6g} but for {made.delta:.3g};"
        f" by other sums {rho:.6g}, {tail:.3g}"
    )
    assert rho * (1 - 1e-7) <= made.rho.upper <= min(most, rho * 1.0005)
    assert made.rho.lower <= rho * (1 + 1e-6)
    assert tail * (1 - 1e-6) <= made.delta <= delta
    assert loss.approximate_rho(delta, rule) == (made.rho, made.delta, rule)
    assert loss.approximate_rho(delta).rule == (NET_STEPS if by_net else MOVED_DRAWS)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("loss", "delta"), [*SMALL[:2], (DEMO, 6e-9), (DEMO, 1e-3)])
def test_the_curve_that_it_implies_holds(loss: DrawsLoss, delta: float, rule: str) -> None:
    """H(P || Q) <= delta + (1 - delta) H(P|E || Q|E), the last bounded by rho."""
    made = proven(loss, delta, rule)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        implied = made.delta + delta_of_rho(F(made.rho.upper), epsilon)
        assert loss.delta(epsilon).lower <= implied
    # A twin without the delta: beyond the largest loss within the event only the others are left.
    most = made.most * math.log(loss.up / loss.down)
    assert loss.delta(most + 0.01).upper <= made.delta
    assert made.delta / 2 + delta_of_rho(F(made.rho.upper) / 40, 0.0) < loss.delta(0.0).lower


@pytest.mark.parametrize("rule", ["", *RULES])
def test_the_whole_loss_where_nothing_may_be_left_out(rule: str) -> None:
    assert approximately_concentrated(DEMO, 0.0, rule) is None
    assert DEMO.approximate_rho(0.0, rule) == (DEMO.rho, 0.0, "")
    assert approximately_concentrated(draws("1/2", 3, 3, 3), 1e-4, rule) is None  # all may move
    free = DrawsLoss(up=F(1, 2), down=F(1, 2), draws=9)
    assert approximately_concentrated(free, 0.1, rule) is None
    certain = DrawsLoss(up=F(2, 3), down=F(1, 3), draws=5)  # two cells, one record
    assert approximately_concentrated(certain, 0.5, rule) is None
    rare = proven(draws("1/1000", 1, 10**6, 10), 1e-5, rule)
    assert rare.rho == (0, 0) and rare.most == 0 and 0 < rare.delta < 1.1e-6
    with pytest.raises(ValueError, match="delta"):
        approximately_concentrated(DEMO, 1.0, rule)


@pytest.mark.parametrize(
    ("loss", "delta"), [*SMALL, (DEMO, 6e-9), (DEMO, 1e-300), (draws("0.5", 300, 3000, 40), 1e-8)]
)
def test_the_smallest_of_the_rhos_is_charged(loss: DrawsLoss, delta: float) -> None:
    """Also where one divergence is enough to tell."""
    by_rule = [approximately_concentrated(loss, delta, rule) for rule in RULES]
    rhos = [(made.rho, made.delta, made.rule) for made in by_rule if made is not None]
    best = min([*rhos, (loss.rho, 0.0, "")], key=lambda rho: rho[0].upper)
    assert loss.approximate_rho(delta) == best


def test_where_both_events_have_one_size_the_moved_draws_may_lose_less() -> None:
    loss = draws("0.5", 300, 3000, 40)
    moved, net = (proven(loss, 1e-8, rule) for rule in RULES)
    assert moved.most == net.most and moved.rho.upper < net.rho.lower
    assert loss.approximate_rho(1e-8).rule == MOVED_DRAWS


@settings(max_examples=settings().max_examples // 3, deadline=None)
@given(
    st.fractions(F(1, 50), 500, max_denominator=50),
    st.integers(1, 10**7),
    st.integers(1, 10**6),
    st.integers(2, 10**5),
    st.floats(-11, -2),
)
def test_it_is_never_above_another_bound(
    k: Fraction, m: int, n: int, cells: int, exponent: float
) -> None:
    loss, delta = draws(str(k), m, n, cells), 10**exponent
    charged, whole = loss.approximate_rho(delta), loss.rho
    assert 0 <= charged.rho.lower <= charged.rho.upper <= whole.upper
    assert charged.delta <= delta
    length = math.log(loss.up / loss.down)
    more = DrawsLoss(up=loss.up, down=loss.down, draws=m + 1 + m // 9)
    for rule in RULES:
        made = approximately_concentrated(loss, delta, rule)
        if made is not None:
            assert charged.rho.upper <= made.rho.upper * (1 + 0.002)  # the width of bounds
            response = length if rule == MOVED_DRAWS else made.most * length
            most = length * made.most * math.tanh(response / 2)
            assert made.rho.upper <= most * (1 + 1e-9)
    assert charged.rho.lower <= more.approximate_rho(delta).rho.upper * (1 + 0.02)
    assert more.approximate_rho(delta).rho.upper >= charged.rho.upper * (1 - 0.02)


def test_net_steps_need_a_law_without_dents_or_all_draws() -> None:
    """Unless rest**2 is at least up * down, the law of |S| is not log-concave; a cut needs that."""

    def dented(m: int) -> DrawsLoss:
        return DrawsLoss(up=F(9, 20), down=F(8, 20), draws=m)

    assert approximately_concentrated(dented(600), 1e-6, NET_STEPS) is None
    assert approximately_concentrated(dented(600), 1e-6) is not None
    assert proven(dented(6), 0.2, NET_STEPS).rule == NET_STEPS
