"""The filter of Gaussian differential privacy under any sequence of requests."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.errors import InsufficientBudgetError, RecordsError
from statpress.mechanisms.marginals.measurement import GdpFilter

F = Fraction
SQUARES = st.fractions(min_value=0, max_value=4, max_denominator=10**9)
VARIANCES = st.fractions(min_value=F(1, 10**6), max_value=10**6, max_denominator=10**9)


@given(st.data(), st.fractions(min_value=0, max_value=3, max_denominator=10**6))
def test_no_choice_of_steps_spends_more_than_is_there(data: st.DataObject, whole: F) -> None:
    """The adversary sees the exact remainder before each request."""
    budget, spent = GdpFilter(whole), F(0)
    for _ in range(12):
        left = budget.remaining
        greedy = [st.just((left, F(1))), st.just((left + F(1, 10**80), F(1)))]
        square, variance = data.draw(st.one_of(st.tuples(SQUARES, VARIANCES), *greedy))
        refused, amount = False, square / variance
        try:
            budget.spend(square, variance)
        except InsufficientBudgetError:
            refused = True
        assert refused or amount <= left
        assert not refused or (amount > left - F(1, 2**256) and budget.remaining == left)
        spent += 0 if refused else amount
        assert spent <= budget.spent <= whole == budget.mu_squared
        assert budget.spent - spent <= 12 * F(1, 2**256)


def test_the_last_grain_is_refused_and_rounding_is_against_ourselves() -> None:
    budget = GdpFilter(F(1))
    budget.spend(F(1, 3), F(1))
    assert budget.spent > F(1, 3)
    with pytest.raises(InsufficientBudgetError):
        budget.spend(F(2, 3), F(1))  # exactly what is left, but for the rounding up
    budget.spend(F(2, 3) - F(1, 2**200), F(1))
    with pytest.raises(InsufficientBudgetError):
        budget.spend(F(1, 2**199), F(1))


def test_a_filter_that_forgets_would_be_seen() -> None:
    """The broken twin: it adds up in floating point."""

    class Forgetful(GdpFilter):
        def spend(self, sensitivity_squared: int | F, variance: F) -> None:
            amount = float(F(sensitivity_squared) / variance)
            self._spent = F(float(self._spent) + amount)

    budget, spent = Forgetful(F(1)), F(0)
    budget.spend(1, F(1))
    for _ in range(1000):
        budget.spend(F(1, 10**17), F(1))
        spent += F(1, 10**17)
    assert budget.spent < 1 + spent


@pytest.mark.parametrize("request_", [(-1, F(1)), (1, F(0)), (1, F(-2)), (0.5, F(1)), (1, 0.5)])
def test_what_is_refused(request_: tuple) -> None:
    budget = GdpFilter(F(1))
    with pytest.raises(RecordsError):
        budget.spend(*request_)
    assert budget.spent == 0


@pytest.mark.parametrize("whole", [F(-1), 1.0])
def test_the_whole_is_an_exact_number(whole: object) -> None:
    with pytest.raises(RecordsError):
        GdpFilter(whole)  # type: ignore[arg-type]
