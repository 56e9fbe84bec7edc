"""Values that lie within cells by the slope of the cells beside them."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from statpress.mechanisms.domain.column import leant, tilts
from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric

N = 8_000
LAST = float(np.nextafter(1.0, 0.0))
PAY = Numeric(name="pay", edges=tuple(range(11)), special=(0,), missing=True)


def falling() -> tuple[np.ndarray, np.ndarray]:
    """Values of an exponential law that is cut off, and their codes."""
    values = stats.truncexpon(10).rvs(N, random_state=np.random.default_rng(1))
    return values, np.array([PAY.code_of(value) for value in values])


def errors_of_means(column: Column, values: np.ndarray, codes: np.ndarray, lean: float) -> float:
    """How far means of cells are from the truth, on average of records; tilts times a factor."""
    tilted = lean * tilts(column, np.bincount(codes, minlength=column.size))
    places = leant(np.random.default_rng(2).random(len(codes)), tilted[codes])
    drawn = column.spread(codes, places).astype(np.float64)
    assert np.array_equal([column.code_of(value) for value in drawn.tolist()], codes)
    counts = np.bincount(codes, minlength=column.size)
    gaps = np.bincount(codes, drawn - values, minlength=column.size)
    return float(np.abs(gaps).sum() / counts.sum())


def test_means_of_cells_are_nearer_to_the_truth_where_a_density_falls() -> None:
    values, codes = falling()
    sloped, even, against = (errors_of_means(PAY, values, codes, lean) for lean in (1, 0, -1))
    middle = float(
        np.abs(np.bincount(codes, PAY.decode(codes) - values, minlength=PAY.size)).sum() / N
    )
    assert sloped < 0.5 * min(middle, even)
    assert not against < 0.5 * min(middle, even)


def test_a_tilt_is_that_of_the_line_through_the_cells_beside() -> None:
    column = Numeric(name="x", edges=(0, 1, 2, 4, 8), special=(1.7, 99), missing=True)
    # Densities 8, 6, 5 and 1; centres .5, 1.5, 3 and 6; a special value and others between them.
    codes = column.codes_of_bins(np.arange(4))
    counts = np.full(column.size, 1000)
    counts[codes] = [8, 6, 10, 4]
    found = tilts(column, counts)
    wanted = [-2 * 0.5 / 8, -3 / 2.5 * 0.5 / 6, -5 / 4.5 * 1 / 5, -1.0]
    assert found[codes] == pytest.approx(wanted)
    assert not np.delete(found, codes).any()


@given(st.floats(-1, 1), st.lists(st.floats(0, LAST), min_size=1, max_size=20))
def test_places_have_the_law_of_a_line(lean: float, evenly: list[float]) -> None:
    places = leant(np.array(evenly), np.full(len(evenly), lean))
    assert np.all((places >= 0) & (places < 1))
    assert (1 - lean) * places + lean * places**2 == pytest.approx(evenly, abs=1e-12)


def test_empty_single_and_flat_cells_are_not_tilted() -> None:
    assert not tilts(Categorical(name="c", categories=("a", "b")), np.array([1, 9])).any()
    assert not tilts(Integer(name="c", lower=0, upper=4), np.arange(5)).any()
    assert not tilts(Integer(name="c", lower=0, upper=4, width=5), np.array([3])).any()
    ages = Integer(name="c", lower=0, upper=19, width=5)
    assert not tilts(ages, np.full(4, 7)).any()
    assert not tilts(ages, np.zeros(4, np.int64)).any()
    assert tilts(ages, np.array([4, 0, 0, 1]))[[0, 3]] == pytest.approx([-0.5, 0.5])
    narrow = Numeric(name="c", edges=(0.0, 5e-324, 1e-323, 1.0))
    assert np.all(np.abs(tilts(narrow, np.array([5, 5, 1]))) <= 1)
    month = Date(name="c", first=datetime.date(2001, 1, 1), last=datetime.date(2001, 3, 31))
    days = np.array([31, 28, 31])  # evenly: as many as days
    assert not tilts(month, days).any()
    assert tilts(month, np.array([31, 28, 1]))[2] == -1
