"""The table of a lattice's masses against the contour integral and the full sum."""

from __future__ import annotations

from fractions import Fraction

import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.accounting import privacy_loss_distributions
from statpress.mechanisms.accounting.balls import Bounds
from statpress.mechanisms.accounting.draws import DrawsLoss, contour_delta
from statpress.mechanisms.accounting.privacy_loss_distributions import TabulatedLoss, fits
from statpress.mechanisms.tables.bootstrap import Bootstrap

SETTINGS = [
    (Fraction(1, 2), 3, 3, 3),
    (Fraction(39, 2), 29_501, 29_501, 350),
    (Fraction(70), 100_000, 100_000, 41),
    (Fraction(1, 10**9), 10, 100, 5),
    (Fraction(100), 60_881, 10_000, 20),
]


def table_of(loss: DrawsLoss) -> TabulatedLoss:
    """A table made afresh."""
    return TabulatedLoss(up=loss.up, down=loss.down, draws=loss.draws)


def overlap(one: Bounds, two: Bounds) -> bool:
    return max(one.lower, two.lower) <= min(one.upper, two.upper)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_table_and_the_contour_enclose_the_same_curve(
    setting: tuple[Fraction, int, int, int],
) -> None:
    pseudocount, draws, n_records, n_cells = setting
    loss = Bootstrap(pseudocount, draws).loss(n_records=n_records, n_cells=n_cells)
    assert fits(loss)
    table = table_of(loss)
    for epsilon in (0.0, 1e-9, 0.01, 0.3, 1.0, 2.5, 20.0, 500.0, 4096.0):
        found, exact = table.delta(epsilon), contour_delta(loss, epsilon)
        assert overlap(found, exact), epsilon
        if exact.lower > 1e-25:
            assert found.upper <= found.lower * (1 + 1e-9)
        assert found.upper <= exact.upper + 1e-30


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("delta", [0.0, 1e-30, 1e-8, 1e-3, 0.2])
def test_epsilon_is_the_contours_bit_for_bit_in_a_fraction_of_the_looks(
    setting: tuple[Fraction, int, int, int], delta: float
) -> None:
    pseudocount, draws, n_records, n_cells = setting
    loss = Bootstrap(pseudocount, draws).loss(n_records=n_records, n_cells=n_cells)
    contour_delta.cache_clear()
    plain, plainly = loss.epsilon(delta), sum(contour_delta.cache_info()[:2])
    contour_delta.cache_clear()
    assert table_of(loss).epsilon(delta) == plain
    looks = sum(contour_delta.cache_info()[:2])  # those that were asked before are looks too
    assert looks <= (max(8, 0.5 * plainly) if delta > 1e-20 else plainly)


def test_a_wrong_first_look_changes_no_bound() -> None:
    loss = Bootstrap(Fraction(39, 2), 29_501).loss(n_records=29_501, n_cells=350)
    assert {loss._epsilon(1e-8, near) for near in (None, 1e-6, 0.3, 5.0, 1e9)} == {
        loss.epsilon(1e-8)
    }


@settings(max_examples=25, deadline=None)
@given(
    st.fractions(Fraction(1, 10**4), 50, max_denominator=10**4),
    st.integers(1, 400),
    st.integers(1, 200),
    st.integers(2, 50),
    st.floats(0, 12),
)
def test_the_table_agrees_everywhere(
    pseudocount: Fraction, draws: int, n_records: int, n_cells: int, epsilon: float
) -> None:
    loss = Bootstrap(pseudocount, draws).loss(n_records=n_records, n_cells=n_cells)
    table = table_of(loss)
    assert overlap(table.delta(epsilon), contour_delta(loss, epsilon))
    assert table.pure_epsilon == loss.pure_epsilon


def within(loss: DrawsLoss, width: int, moved: arb) -> TabulatedLoss:
    """A table of a window of this width, with so much moved to its ends."""

    class Narrow(TabulatedLoss):
        @property
        def _table(self) -> tuple[arb, list[tuple[arb, arb]]]:
            return super()._table[0], privacy_loss_distributions._sums_within(loss, width, moved)

    return Narrow(up=loss.up, down=loss.down, draws=loss.draws)


def test_a_window_that_cuts_the_tail_off_says_so() -> None:
    """With a tail bound of nought, the twin, a window too narrow goes unnoticed."""
    loss = Bootstrap(Fraction(20), 5000).loss(n_records=5000, n_cells=20)
    moved = privacy_loss_distributions._outside(loss, 13)
    assert overlap(within(loss, 12, moved).delta(0.5), contour_delta(loss, 0.5))
    assert not overlap(within(loss, 12, arb(0)).delta(1.0), contour_delta(loss, 1.0))


def test_the_tail_bound_bounds_the_tail() -> None:
    loss = Bootstrap(Fraction(3), 300).loss(n_records=200, n_cells=10)
    table = privacy_loss_distributions._table_sums(loss)
    with ctx.workprec(192):
        for start in (2, 10, 40, len(table) - 2):
            above, below = table[start]
            bound = privacy_loss_distributions._outside(loss, start)
            assert bound.upper() >= (above + below).lower()
            if start > 5:
                assert bound < 1


def test_a_wide_lattice_has_no_table() -> None:
    wide = Bootstrap(Fraction(10**6), 10**12).loss(n_records=10**6, n_cells=100)
    assert not fits(wide)
    assert not fits(DrawsLoss(up=Fraction(1, 3), down=Fraction(1, 3), draws=5))
