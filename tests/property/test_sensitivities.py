"""Declared sensitivities against random neighbours, and a statistic that lies."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.resampled import largest_move
from statpress.mechanisms.estimates.statistics import (
    Covariance,
    Mean,
    Statistic,
    Variance,
    evaluated,
)

ONE, HALF = Fraction(1), Fraction(1, 2)
STATISTICS: list[Statistic] = [Mean(), Variance(), Covariance()]
VALUE = st.sampled_from([0.0, 1.0, 0.5, 1 / 3]) | st.floats(0, 1)


@dataclass(frozen=True)
class SecondMoment:
    """A user's own statistic."""

    columns: int = 1
    dimension: int = 1
    constant: Fraction = ONE
    bounds: tuple[float, float] = (0.0, 1.0)

    def evaluate(self, weights, columns):
        return weights @ columns**2 / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class LyingMaximum(SecondMoment):
    """The largest record moves by 1, not by 1/m."""

    def evaluate(self, weights, columns):
        return np.max(np.where(weights > 0, columns[:, 0], 0.0), axis=1)[:, None]


@dataclass(frozen=True)
class LyingVariance(Variance):
    """Off by a constant: half the true sensitivity."""

    constant: Fraction = HALF


@dataclass(frozen=True)
class Ratio(SecondMoment):
    """Not finite where a column is all 0."""

    def evaluate(self, weights, columns):
        with np.errstate(divide="ignore", invalid="ignore"):
            return (weights @ columns**2) / (weights @ columns)


def records(columns: int) -> st.SearchStrategy[list[tuple[float, ...]]]:
    row = st.tuples(*[VALUE] * columns)
    return st.lists(row, min_size=3, max_size=9)


@pytest.mark.parametrize("statistic", [*STATISTICS, SecondMoment()], ids=lambda s: type(s).__name__)
@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(data=st.data())
def test_no_neighbours_move_further_than_declared(
    statistic: Statistic, data: st.DataObject
) -> None:
    rows = data.draw(records(statistic.columns))
    size = len(rows) - 1  # the last two rows are the record before and after
    weights = np.ones((2, size + 1), np.int64)
    weights[0, -1] = weights[1, -2] = 0
    one, two = evaluated(statistic, weights, np.array(rows))
    assert np.linalg.norm(one - two) <= float(statistic.constant) / size * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("size", [2, 3, 30])
@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
def test_sensitivities_are_attained(statistic: Statistic, size: int) -> None:
    columns = np.zeros((3, statistic.columns))
    columns[2] = 1.0  # all others at 0, one moves from 0 to 1
    weights = np.array([[size - 1, 1, 0], [size - 1, 0, 1]])
    one, two = evaluated(statistic, weights, columns)
    assert np.linalg.norm(one - two) == pytest.approx(float(statistic.constant) / size)


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: type(s).__name__)
def test_the_search_finds_nothing_where_there_is_nothing(statistic: Statistic) -> None:
    for size in (3, 10):
        found = largest_move(statistic, size, np.random.default_rng(1))
        assert 0.9 < found < 1 + 1e-9


@pytest.mark.parametrize("liar", [LyingMaximum(), LyingVariance(), Ratio()], ids=repr)
def test_the_search_exposes_a_lie(liar: Statistic) -> None:
    assert largest_move(liar, 10, np.random.default_rng(1)) > 1.5


def test_weights_stand_for_repeated_records() -> None:
    rng = np.random.default_rng(3)
    columns, weights = rng.random((6, 2)), rng.integers(0, 5, (4, 6)) + 1
    for statistic in STATISTICS:
        found = evaluated(statistic, weights, columns[:, : statistic.columns])
        for row, value in zip(weights, found, strict=True):
            drawn = np.repeat(columns, row, axis=0)
            expected = {
                "Mean": drawn[:, 0].mean(),
                "Variance": drawn[:, 0].var(ddof=1),
                "Covariance": np.cov(drawn.T)[0, 1],
            }[type(statistic).__name__]
            assert value[0] == pytest.approx(expected)


def test_what_is_no_number_stops_nothing() -> None:
    weights, zeros = np.array([[2, 1]]), np.zeros((2, 1))
    assert evaluated(Ratio(), weights, zeros).tolist() == [[0.0]]


def test_what_is_refused() -> None:
    @dataclass(frozen=True)
    class Wide(SecondMoment):
        dimension: int = 2

    with pytest.raises(ConfigError, match="dimension"):
        evaluated(Wide(), np.array([[1, 1]]), np.zeros((2, 1)))
