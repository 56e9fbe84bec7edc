"""Readings of a history: never below what composition proves, and tight where they can be."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.accounting.composition import Reading, _level, _levelled
from statpress.mechanisms.accounting.draws import DrawsLoss
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.tasks.release.ledger_check import read_account

D = Decimal
ORDERS = tuple(1 + 2.0 ** (k / 4) for k in range(-32, 65))
EMPTY = dict.fromkeys(("epsilon", "epsilon_delta", "rho", "rho_delta"), D(0))


def reading(**changes: object) -> tuple[float, float]:
    given = {**EMPTY, "anchor": D(1), "delta": D("1e-6"), **changes}
    found = Reading.of_history(**given)
    return found.adaptive, found.fixed


def test_nothing_spent_reads_nothing() -> None:
    assert reading() == (0.0, 0.0)


def test_many_small_charges_read_less_than_their_sum() -> None:
    charges, epsilon = 1000, D("0.01")
    adaptive, fixed = reading(epsilon=charges * epsilon, rho=charges * epsilon**2 / 2)
    assert fixed < adaptive < float(charges * epsilon)
    assert fixed == pytest.approx(1.47, abs=0.05)  # rho 0.05: about 2 sqrt(rho log(1/delta))


def test_a_delta_beyond_the_reading_leaves_no_reading_by_sums() -> None:
    adaptive, fixed = reading(epsilon=D(1), epsilon_delta=D("2e-6"), rho=D("0.01"))
    assert fixed < adaptive < math.inf
    assert math.isinf(reading(epsilon=D(1), epsilon_delta=D("2e-6"), anchor=None)[0])
    assert reading(epsilon=D(1), epsilon_delta=D("2e-6"), rho_delta=D("1e-6")) == (
        math.inf,
        math.inf,
    )
    assert reading(epsilon=D(1), rho_delta=D("1e-6")) == (math.inf, 1.0)
    assert reading(epsilon=D(1), rho_delta=D("1e-6"), anchor=None) == (1.0, 1.0)


def test_the_policy_registered_decides_what_is_read_whatever_was_charged() -> None:
    """An adaptive analyst could spend the whole delta on either, so the least is no reading.

    First a mechanism whose rho reads as 8.72 at delta 1e-6, then, unless its loss passed
    that, one that is (0, delta)-DP: the least of both rules would still read 8.8 and be
    wrong with a probability of 1.33 delta.
    """
    first = {"epsilon": D("8.8"), "rho": D("0.99995")}
    then = {"epsilon": D("8.8"), "epsilon_delta": D("1e-6"), "rho": D("2.08095")}
    assert [reading(**step, anchor=None)[0] for step in (first, then)] == [8.8, 8.8]
    by_levels = [reading(**step)[0] for step in (first, then)]
    assert by_levels[0] > 8.73  # of nine tenths of delta
    assert by_levels[1] > 12
    assert by_levels[0] <= by_levels[1]


def test_the_parts_of_delta_add_up_to_the_whole() -> None:
    most = D("1e-7")  # a tenth
    assert reading(rho=D("0.1"), rho_delta=most)[0] == reading(rho=D("0.1"))[0]
    assert math.isinf(reading(rho=D("0.1"), rho_delta=most + D("1e-20"))[0])


@pytest.mark.parametrize("delta", [D(0), D(1), D("-0.1")])
def test_a_reading_needs_a_delta(delta: Decimal) -> None:
    with pytest.raises(ValueError, match="delta"):
        reading(delta=delta)


def test_a_reading_is_never_below_the_exact_composition() -> None:
    """Two unlike bootstraps, composed exactly by convolving their losses."""
    frame = {"n_records": 50, "n_cells": 4}
    losses = [Bootstrap(5, 20).loss(**frame), Bootstrap(9, 35).loss(**frame)]
    divergences = [(a, sum(x.renyi(a).upper for x in losses)) for a in ORDERS]
    for delta in (1e-2, 1e-4, 1e-6):
        rho = sum(D(loss.rho.upper) for loss in losses)
        epsilon = sum(D(loss.epsilon(delta / 2).upper) for loss in losses)
        adaptive, fixed = reading(
            epsilon=epsilon,
            epsilon_delta=D(delta),
            rho=rho,
            delta=D(delta),
            divergences=divergences,
        )
        exact = composed_epsilon(losses, delta)
        assert exact <= fixed <= float(epsilon)
        assert exact <= adaptive
        assert fixed < float(epsilon)
        assert fixed < 1.6 * exact
        halved = [(a, d / 4) for a, d in divergences]  # the broken twin
        assert reading(rho=rho, delta=D(delta), divergences=halved)[1] < exact


def composed_epsilon(losses: list[DrawsLoss], delta: float) -> float:
    """The exact epsilon of the composition, by brute force over all pairs of losses."""
    sums, masses = np.zeros(1), np.ones(1)
    for loss in losses:
        up, down = float(loss.up), float(loss.down)
        one = np.array([down, 1 - up - down, up])
        steps = np.ones(1)
        for _ in range(loss.draws):
            steps = np.convolve(steps, one)
        values = math.log(up / down) * np.arange(-loss.draws, loss.draws + 1)
        sums = (sums[:, None] + values[None, :]).ravel()
        masses = (masses[:, None] * steps[None, :]).ravel()

    def beyond(epsilon: float) -> float:
        return float(np.sum(masses * np.maximum(0, -np.expm1(epsilon - sums))))

    low, high = 0.0, float(sums.max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > delta else (low, middle)
    return low


def test_levels_cover_every_rho_and_their_deltas_add_up_to_less_than_the_whole() -> None:
    parts = sum(Fraction(1, 3 * (1 + abs(j)) ** 2) for j in range(-3000, 3001))
    assert parts < Fraction(77, 100)  # the rest of the series is below 2/(3 * 3000)
    for j in range(-50, 50):
        level = _level(D("0.37"), j)
        assert _level(D("0.37"), j + 1) < level
        at = _levelled(level, D("0.37"), D("1e-6"))
        just_below = _levelled(level * (1 - D("1e-15")), D("0.37"), D("1e-6"))
        just_above = _levelled(level * (1 + D("1e-15")), D("0.37"), D("1e-6"))
        assert at == just_below < just_above


@given(
    st.floats(1e-9, 1e3), st.floats(1e-6, 1e3), st.sampled_from(["1e-12", "1e-8", "1e-3", "0.5"])
)
def test_the_adaptive_reading_costs_a_bounded_factor(rho: float, anchor: float, delta: str) -> None:
    adaptive, fixed = reading(epsilon=D("1e9"), rho=D(rho), anchor=D(anchor), delta=D(delta))
    assert 0 <= fixed <= adaptive
    assert adaptive < math.inf
    assert adaptive >= rho  # of the tail of a mechanism with this rho
    levels = abs(math.log(rho / anchor) / math.log(0.9)) + 2
    tail = math.log(3 * levels**2 / (0.9 * float(delta)))
    assert adaptive <= 1.12 * (rho + 2 * math.sqrt(rho * tail))


def test_divergences_of_whole_losses_need_no_part_of_the_charged_delta() -> None:
    divergences = [(a, 0.05 * a) for a in ORDERS]
    delta = D("1e-6")
    given = {"epsilon": D(9), "rho": D("0.05"), "divergences": divergences}
    whole = reading(**given)[1]
    assert reading(**given, rho_delta=delta)[1] == pytest.approx(whole, rel=0.01)
    assert whole < 3
    assert reading(epsilon=D(9), rho=D("0.05"), rho_delta=delta)[1] == 9


@pytest.mark.parametrize(
    ("limit", "expected"), [("0", "1e-8"), ("1e-10", "1e-8"), ("1e-6", "1e-5"), ("0.5", "0.1")]
)
def test_accounts_are_read_where_their_limit_of_delta_leaves_a_reading(
    limit: str, expected: str
) -> None:
    spent = {"epsilon": D(9), "delta": D(limit), "rho": D("0.05"), "rho_delta": D(limit)}
    registered = {"policy": "zcdp", "rho": "0.1", "rho_delta": limit}
    account = SimpleNamespace(
        registration=SimpleNamespace(body=registered),
        has_design=False,
        spent_by_one=lambda *, measures: spent,
        charges={},
    )
    found = read_account(account)  # type: ignore[arg-type]
    assert found.delta == D(expected)
    assert (found.adaptive < 3) == (limit != "0.5")
