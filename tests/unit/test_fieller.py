"""Confidence sets for quotients: their algebra, shapes and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from statpress.mechanisms.estimates.fieller import (
    GAP,
    HALF_LINE,
    INTERVAL,
    RARE,
    WHOLE_LINE,
    WHOLE_RANGE,
    ConfidenceSet,
    Quotient,
    cautious_quantile,
    normal_quantile,
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


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_intervals_hold_a_steep_quotient_unless_they_are_rare(level: float) -> None:
    """By sums over the error e of the denominator w, which decides; the twin has one quantile."""
    e = np.linspace(-9, 9, 20_001)
    masses = np.exp(-(e**2) / 2) / np.exp(-(e**2) / 2).sum()
    plain, seen = np.full(len(e), normal_quantile(level)), 0
    for w in np.linspace(0, 12, 121):
        shares = []
        for z in (cautious_quantile(w + e, level), plain):
            interval = w + e > z
            shares.append((masses[interval].sum(), masses[interval & (np.abs(e) > z)].sum()))
        (given, missed), (given_before, missed_before) = shares
        if given >= RARE:
            assert missed <= (1 - level) * given * 1.002
        if RARE <= given_before < 0.1:
            seen += 1
            assert missed_before > 1.2 * (1 - level) * given_before
    assert seen > 3


def test_the_quantile_falls_to_that_of_fieller_and_is_never_below() -> None:
    z = cautious_quantile(np.linspace(-40, 40, 4001), 0.95)
    assert (np.diff(z) <= 0).all() and z[-1] == normal_quantile(0.95)
    assert z[0] == normal_quantile(1 - RARE * 0.05)


def test_cautious_sets_hold_those_of_fieller_and_give_no_interval_below_zero() -> None:
    rng, whole, points = np.random.default_rng(5), 0, np.tan(np.linspace(-1.57, 1.57, 101))

    def holds(found: ConfidenceSet, t: float) -> bool:
        in_gap = found.gap is not None and found.gap[0] < t < found.gap[1]
        return found.lower <= t <= found.upper and not in_gap

    for _ in range(300):
        top, below = rng.normal(0, 6, 2)
        each = quotient(top, below, 1.0, 0.3, 1.0)
        for noise in (True, False):
            found = each.cautious_sets(0.95, ALL, np.asarray(noise)).one(ALL)
            plain = each.sets(normal_quantile(0.95), ALL).one(ALL)
            assert found.lower <= plain.lower and plain.upper <= found.upper
            assert all(holds(found, t) for t in points if holds(plain, t))
            if below <= 0:
                assert found.shape != INTERVAL
                whole += plain.shape == INTERVAL
            elif not noise:
                assert found == plain
    assert whole > 100
