"""Confidence sets for quotients: their algebra, shapes and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mechanisms.inference.fieller import (
    GAP,
    HALF_LINE,
    INTERVAL,
    WHOLE_LINE,
    WHOLE_RANGE,
    ConfidenceSet,
    Quotient,
)

ALL = (-math.inf, math.inf)


def quotient(*figures: float) -> Quotient:
    return Quotient(*(np.asarray(each, np.float64) for each in figures))


def one(*figures: float, bounds: tuple[float, float] = ALL, z: float = 2.0) -> ConfidenceSet:
    return quotient(*figures).sets(z, bounds).one(bounds)


@pytest.mark.parametrize(
    ("figures", "bounds", "shape"),
    [
        ((3, 10, 1, 0, 1), ALL, INTERVAL),
        ((0, 10, 1, 0, 1), ALL, INTERVAL),
        ((10, 1, 1, 0, 1), ALL, GAP),
        ((1, 1, 1, 0, 1), ALL, WHOLE_LINE),
        ((0, 0, 1, 0, 1), ALL, WHOLE_LINE),
        ((10, 2, 1, 0, 1), ALL, HALF_LINE),  # 2 = z sd of the denominator
        ((1, 1, 1, 0, 1), (0.0, math.inf), HALF_LINE),
        ((1, 1, 1, 0, 1), (0.0, 1.0), WHOLE_RANGE),
        ((10, 1, 1, 0, 1), (0.0, math.inf), HALF_LINE),
        ((10, 1, 1, 0, 1), (-100.0, 100.0), GAP),
        ((30, 10, 1, 0, 1), (0.0, 1.0), INTERVAL),  # all of it is impossible
    ],
)
def test_shapes(figures: tuple[float, ...], bounds: tuple[float, float], shape: str) -> None:
    assert one(*figures, bounds=bounds).shape == shape


def test_a_set_holds_just_what_the_test_accepts() -> None:
    rng = np.random.default_rng(1)
    points = np.tan(np.linspace(-1.57, 1.57, 101))
    seen = set()
    for _ in range(150):
        top, below = rng.normal(0, 3, 2)
        spread = rng.normal(size=(2, 2))
        matrix = spread @ spread.T
        each = quotient(top, below, matrix[0, 0], matrix[0, 1], matrix[1, 1])
        found = each.sets(1.5, ALL).one(ALL)
        seen.add(found.shape)
        for t in points:
            inside = found.lower <= t <= found.upper and not (
                found.gap and found.gap[0] < t < found.gap[1]
            )
            ends = [found.lower, found.upper, *(found.gap or ())]
            if min(abs(t - end) for end in ends) > 1e-9 * (1 + abs(t)):
                assert inside == bool(each.holds(float(t), 1.5))
    assert seen == {INTERVAL, GAP, WHOLE_LINE}


def test_bounds_only_take_away_what_is_impossible() -> None:
    rng, bounds = np.random.default_rng(2), (-0.5, 2.0)
    for _ in range(100):
        figures = (*rng.normal(0, 3, 2), 1.0, 0.0, 1.0)
        found, line = one(*figures, bounds=bounds), quotient(*figures)
        assert bounds[0] <= found.lower <= found.upper <= bounds[1]
        for t in np.linspace(*bounds, 41):
            if line.holds(float(t), 2.0):
                assert found.lower - 1e-9 <= t <= found.upper + 1e-9
                assert found.gap is None or not found.gap[0] + 1e-9 < t < found.gap[1] - 1e-9


def test_coverage_does_not_depend_on_the_denominator_and_a_gate_on_it_does() -> None:
    """The broken twin is the rule of before: valid where the noisy denominator is large."""
    rng, z = np.random.default_rng(3), 1.96
    for below in (0.0, 0.5, 2.0, 10.0):
        truth = 0.7
        top = truth * below + rng.normal(size=40_000)
        found = quotient(0, 0, 1, 0, 1)._replace(top=top, below=below + rng.normal(size=40_000))
        assert np.mean(found.holds(truth, z)) == pytest.approx(0.95, abs=0.006)
        if below == 0.5:
            large = found.below > 3
            ratio = found.top[large] / found.below[large]
            error = np.sqrt(1 + ratio**2) / found.below[large]
            assert large.sum() > 100
            assert np.mean(np.abs(ratio - truth) <= z * error) < 0.8
            assert np.mean(found.holds(truth, z)[large]) < 0.8  # no gate helps: publish them all
