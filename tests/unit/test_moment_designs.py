"""What is released of two columns: how far a record moves it, and how wide the intervals are."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, arb_poly, fmpq_poly
from squared_distances import is_proven

from statpress.mechanisms.estimates.moment_designs import (
    CORRELATION,
    COVARIANCE,
    DESIGNS,
    FIRST_ONE,
    FIRST_PAIR,
    GROUP,
    GROUP_DIFFERENCE,
    ONE,
    PAIR,
    POWERS,
    RATIO_DESIGN,
    SLOPE,
    SOME,
    VARIANCE,
    Derived,
    MomentDesign,
)
from statpress.mechanisms.estimates.moment_designs import RATIO as RATIO_OF_SUMS
from statpress.mechanisms.estimates.pair_moments import NoisyPair, PairMoments

F = Fraction
SLACK = F(1, 2**12)
ATTAINED: list[tuple[MomentDesign, Fraction, list[tuple[float, ...]]]] = [
    (PAIR, F(13, 4), [(0, 0), (1, 0)]),
    (ONE, F(1), [(0,), (1,)]),
    (RATIO_DESIGN, F(2), [(0, 0), (1, 1)]),
    (GROUP, F(2), [(1, 0), (1, 1)]),
    (SOME, F(1), [(1, 0), (1, 1)]),
    (FIRST_PAIR, F(3), [(0, 1), (1, 0)]),
    (FIRST_ONE, F(5, 4), [(0,), (1,)]),
]
EACH = pytest.mark.parametrize(
    ("design", "attained", "records"),
    ATTAINED,
    ids=[design.name or f"first-{design.columns}" for design, *_ in ATTAINED],
)


@EACH
def test_the_largest_distance_is_proven_and_attained(
    design: MomentDesign, attained: Fraction, records: list[tuple[float, ...]]
) -> None:
    one, two = design.values(np.array(records, np.float64))
    assert float(((one - two) ** 2).sum()) == pytest.approx(float(attained), rel=1e-12)
    assert attained + SLACK <= design.squared_sensitivity or not design.name
    assert is_proven(design, attained + SLACK)


@EACH
def test_random_records_are_no_further_apart(
    design: MomentDesign, attained: Fraction, records: list[tuple[float, ...]]
) -> None:
    """By other means than the proof: records as they are released, many of them at the ends."""
    rng = np.random.default_rng(5)
    places = np.clip(rng.uniform(-0.3, 1.3, (1200, design.columns)), -0.1, 1.1)
    values = design.values(places)
    norms = (values**2).sum(axis=1)
    squares = norms[:, None] + norms - 2 * values @ values.T
    assert 0.98 * attained < squares.max() <= float(attained) + 1e-9
    assert np.abs(values).max() <= 1  # which the proof of the rounding asks for


@pytest.mark.parametrize("design", [PAIR, ONE, GROUP, SOME], ids=lambda design: design.name)
def test_a_weight_too_large_is_not_proven(design: MomentDesign) -> None:
    """The broken twin: the second moments weigh a quarter more."""

    def heavier(k: int) -> bool:
        return any(len(a) == 3 or len(b) == 3 for _, a, b in design.functions[k])

    functions = tuple(
        tuple(p._replace(weight=p.weight * F(5, 4)) for p in products) if heavier(k) else products
        for k, products in enumerate(design.functions)
    )
    assert not is_proven(
        dataclasses.replace(design, functions=functions), design.squared_sensitivity
    )


@pytest.mark.parametrize(
    ("design", "less"), [(SOME, 1 - SLACK), pytest.param(PAIR, F(3), marks=pytest.mark.nightly)]
)
def test_less_than_what_is_attained_is_not_proven(design: MomentDesign, less: Fraction) -> None:
    assert not is_proven(design, less)


def test_the_first_weights_are_charged_by_the_sum_of_separate_moves() -> None:
    """1 - (1 - b)^2 (1 + b^2 (9 + 25 ((1-b)^2 + b^2)^2 / 4)) = b r(b) with r > 0 on [0, 1]."""
    b, one = fmpq_poly([0, 1]), fmpq_poly([1])
    half = ((one - b) ** 2 + b**2) / 2
    rest = one - (one - b) ** 2 * (one + b**2 * (9 + 25 * half**2))
    assert rest[0] == 0
    r = arb_poly([rest[k + 1] for k in range(rest.degree())])
    pieces = 4096
    for k in range(pieces):
        assert r(arb(k) / pieces + arb(0, 1) / pieces + arb(1) / (2 * pieces)) > 0
    separate = F(0)
    for products, (i, j) in zip(FIRST_PAIR.functions, POWERS, strict=True):
        if (i and j) or i + j == 3:
            both_signs = 1 if i % 2 == 0 and j % 2 == 0 else 2
            separate += (products[0].weight * F(both_signs, 2 ** (i + j))) ** 2
    assert FIRST_PAIR.squared_sensitivity == 2 + separate
    assert FIRST_ONE.squared_sensitivity == 1 + (2 * F(1, 4)) ** 2


@pytest.mark.parametrize("design", [*DESIGNS.values(), FIRST_PAIR, FIRST_ONE])
def test_monomials_follow_from_the_functions(design: MomentDesign) -> None:
    rng = np.random.default_rng(7)
    records = rng.random((50, design.columns))
    if design.records in ("groups", "some"):
        records[:, 0] = np.rint(records[:, 0])
    if design.records == "some":
        records[:, 1] *= records[:, 0]
    u, v = records[:, 0] - 0.5, records[:, -1] - 0.5 if design.columns == 2 else np.zeros(50)
    slopes, constant = design.monomials
    found = design.values(records) @ slopes.T + constant
    known = {power for power, row, more in zip(POWERS, slopes, constant, strict=True)
             if row.any() or more}  # fmt: skip
    for power, values in zip(POWERS, found.T, strict=True):
        if power in known:
            np.testing.assert_allclose(values, u ** power[0] * v ** power[1], atol=1e-12)
    needed = {"one": 4, "ratio": 5, "group": 11, "some": 11}.get(design.name)
    assert len(known) == needed if needed else known


def population(name: str, size: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(3)
    x, z = rng.beta(2, 5, size), rng.normal(size=(size, 2))
    return {
        "uniform": rng.random((size, 2)),
        "skewed": np.column_stack([x, np.clip(0.3 * x + rng.beta(2, 8, size), 0, 1)]),
        "normal": np.clip(0.5 + 0.15 * z @ np.array([[1, 0.6], [0, 0.8]]), 0, 1),
        "groups": np.column_stack([x < 0.25, rng.beta(2, 5, size)]).astype(float),
        "some": np.column_stack([x < 0.25, (x < 0.25) * rng.beta(2, 5, size)]).astype(float),
    }[name]


def expected(design: MomentDesign, wanted: Derived, data: np.ndarray, mu: Fraction) -> float:
    """The standard error where the noise happens to be 0."""
    made = PairMoments.calibrate(mu, n_records=len(data), design=design)
    sums = design.values(data[:, : design.columns]).sum(axis=0)
    pair = NoisyPair(made, len(data), sums)
    return pair.known.error(wanted, sampling=True, cautious=True)


CASES = {
    "correlation": (PAIR, FIRST_PAIR, CORRELATION, ("uniform", "skewed", "normal"), 0.77),
    "covariance": (PAIR, FIRST_PAIR, COVARIANCE, ("uniform", "skewed", "normal"), 0.8),
    "slope": (PAIR, FIRST_PAIR, SLOPE, ("uniform", "skewed", "normal"), 0.78),
    "variance": (ONE, FIRST_ONE, VARIANCE, ("uniform", "skewed", "normal"), 0.96),
    "ratio": (RATIO_DESIGN, FIRST_PAIR, RATIO_OF_SUMS, ("uniform", "skewed", "normal"), 0.9),
    "difference": (GROUP, FIRST_PAIR, GROUP_DIFFERENCE, ("groups",), 0.9),
    "mean of some": (SOME, FIRST_PAIR, RATIO_OF_SUMS, ("some",), 0.8),
}


@pytest.mark.parametrize("name", CASES)
def test_intervals_are_narrower_than_by_the_first_weights(name: str) -> None:
    new, old, wanted, populations, most = CASES[name]
    ratios = []
    for each in populations:
        data = population(each)
        for mu in (F(1, 10), F(1, 2), F(2)):
            ratios.append(expected(new, wanted, data, mu) / expected(old, wanted, data, mu))
    assert max(ratios) < 1
    assert float(np.exp(np.mean(np.log(ratios)))) < most
