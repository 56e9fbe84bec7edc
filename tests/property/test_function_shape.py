"""Shapes imposed on a released function: what they promise, on random values."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.functions.released_function import (
    clip_below,
    monotone,
    normalise_density,
    unimodal,
)

VALUES = st.lists(st.floats(-5, 5), min_size=2, max_size=12).map(np.array)


@given(VALUES, st.integers(0, 2**32 - 1))
def test_errors_do_not_grow(noise: np.ndarray, seed: int) -> None:
    rising = np.sort(np.random.default_rng(seed).random(len(noise)))
    noisy = rising + noise
    for fit, truth in ((clip_below(noisy), rising), (monotone(noisy), rising)):
        assert np.abs(fit - truth).max() <= np.abs(noise).max() + 1e-12
        assert ((fit - truth) ** 2).sum() <= (noise**2).sum() + 1e-9
    falling = monotone(noisy[::-1], increasing=False)
    np.testing.assert_allclose(falling, monotone(noisy)[::-1], atol=1e-9)


@given(VALUES)
def test_a_density_is_one(values: np.ndarray) -> None:
    axis = np.linspace(2, 5, len(values))
    found = normalise_density(values, [axis])
    assert found.min() >= 0
    assert np.trapezoid(found, axis) == pytest.approx(1)


def test_a_density_in_two_variables_is_one() -> None:
    axes = [np.array([0.0, 0.1, 1.0]), np.array([-1.0, 3.0])]
    found = normalise_density([[1, -2], [3, 4], [0, 1]], axes)
    total = np.trapezoid(np.trapezoid(found, axes[1], axis=1), axes[0])
    assert total == pytest.approx(1)
    assert found[0, 1] == 0
    with pytest.raises(ValueError, match="lengths"):
        normalise_density(np.ones((2, 2)), axes)
    with pytest.raises(ValueError, match="ascending"):
        normalise_density(np.ones(2), [np.array([1.0, 1.0])])


def is_unimodal(values: np.ndarray) -> np.ndarray:
    """Whether each of some sequences float64[.., k] is."""
    steps = np.diff(values)
    falls = np.minimum.accumulate(steps[..., :-1], axis=-1) < -1e-9
    return ~np.any((steps[..., 1:] > 1e-9) & falls, axis=-1)


@functools.cache
def unimodal_sequences(length: int) -> np.ndarray:
    """float64[m, length]: of these levels."""
    levels = (0, 0.5, 1, 4 / 3, 1.5, 5 / 3, 2)
    every = np.array(list(itertools.product(levels, repeat=length)))
    return every[is_unimodal(every)]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_the_unimodal_fit_is_the_nearest(values: list[int]) -> None:
    given_values = np.array(values, float)
    fit = unimodal(given_values)
    assert is_unimodal(fit)
    least = ((fit - given_values) ** 2).sum()
    others = unimodal_sequences(len(values))
    assert (((others - given_values) ** 2).sum(axis=1) >= least - 1e-12).all()
