"""Every mechanism of the registry releases what it is charged for: enumeration, and its sampler.

The laws are in ``tests/support/exact_laws.py``. The twin of each test is the same mechanism
calibrated to a larger budget.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from contract_cases import N_TINY, NAMES, TINY, constant_case, tiny_case
from estimating import LEVEL, seeded
from exact_laws import has_law, has_noise, law_of, noise_of
from law_values import FiniteLaw, Law, independence, table_of
from neighbouring import neighbours, tables

from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.registry import REGISTRY

EPSILONS = (0.0, 0.3, 0.7, 1.2, 2.0, 3.0)
ENUMERATED = pytest.mark.parametrize("name", [name for name in NAMES if has_law(REGISTRY[name])])
NOISY = pytest.mark.parametrize("name", [name for name in NAMES if has_noise(REGISTRY[name])])


NOISY_DRAWS = 60


def budget(name: str, epsilon: float = 1.0) -> dict[str, float]:
    return {"epsilon": epsilon, "delta": 0.0 if REGISTRY[name].pure else 0.01}


@pytest.mark.parametrize("name", NAMES)
def test_its_law_is_known_or_there_is_a_reason(name: str) -> None:
    mechanism = REGISTRY[name]
    assert has_law(mechanism) != has_noise(mechanism), (
        f"register the law of '{name}' once in tests/support/exact_laws.py, by law_of or noise_of"
    )
    if has_noise(mechanism):
        assert noise_of(constant_case(name).calibrated()).reason


def excess(claimed: Any, released: Any, unit_records: int = 1) -> float:
    """How far the releases of one mechanism pass the delta that another claims, at most."""
    loss = claimed.loss(n_records=N_TINY, n_cells=TINY.size, unit_records=unit_records)
    pairs = list(neighbours(N_TINY, TINY.size, unit_records))
    laws: dict[tuple[int, ...], Law] = {a: law_of(released, a) for a, _ in pairs}
    return max(
        max(laws[a].divergence(laws[b], epsilon) for a, b in pairs) - loss.delta(epsilon).upper
        for epsilon in EPSILONS
    )


@ENUMERATED
def test_no_neighbours_are_told_apart_by_more_than_the_claim(name: str) -> None:
    found = tiny_case(name)
    made = found.calibrated(**budget(name))
    assert excess(made, made) <= 1e-11
    assert excess(made, found.calibrated(**budget(name, 16.0))) > 1e-6


@ENUMERATED
def test_nor_are_units_of_two_records(name: str) -> None:
    found = tiny_case(name)
    try:
        made = found.calibrated(**budget(name), unit_records=2)
    except ConfigError:
        return  # it serves only units of one record
    assert excess(made, made, unit_records=2) <= 1e-11


def least_missed(released: Any, alpha: float) -> float:
    """The rate of false negatives of the best test of any neighbours, outcome by outcome."""
    found = 1.0
    laws = {counts: law_of(released, counts) for counts in tables(N_TINY, TINY.size)}
    for a, b in neighbours(N_TINY, TINY.size):
        p, q = (law.masses for law in (laws[a], laws[b]) if isinstance(law, FiniteLaw))
        left, power = alpha, 0.0
        for z in sorted(p, key=lambda z: q.get(z, 0.0) / p[z] if p[z] else math.inf):
            share = min(1.0, left / q[z]) if q.get(z) else 1.0
            left, power = left - share * q.get(z, 0.0), power + share * p[z]
        found = min(found, 1 - power)
    return found


@ENUMERATED
def test_no_attack_misses_less_than_is_stated(name: str) -> None:
    found = tiny_case(name)
    made = found.calibrated(**budget(name))
    if not isinstance(law_of(made, (2, 1, 0)), FiniteLaw):
        return  # infinitely many outcomes; the curve itself is compared above
    loss = made.loss(n_records=N_TINY, n_cells=TINY.size)
    twin = found.calibrated(**budget(name, 16.0))
    for alpha in (Fraction(1, 100), Fraction(1, 20)):
        (stated,) = loss.missed_at_least((alpha,), 1.0)
        assert stated <= least_missed(made, float(alpha)) + 1e-12
        assert stated > least_missed(twin, float(alpha))


@pytest.mark.parametrize("draws", [300, pytest.param(1500, marks=pytest.mark.nightly)])
@ENUMERATED
def test_releases_follow_the_law(name: str, draws: int) -> None:
    found, counts = tiny_case(name), (2, 1, 0)
    table, rng = table_of(Domain((TINY,)), counts), seeded(5)

    def drawn(mechanism: Any) -> list[Any]:
        return [law.outcome(mechanism.release(table, rng)) for _ in range(draws)]

    made = found.calibrated(**budget(name))
    law = law_of(made, counts)
    assert law.p_value(drawn(made)) > LEVEL
    assert law.p_value(drawn(found.calibrated(**budget(name, 16.0)))) < LEVEL


@NOISY
def test_noise_has_the_stated_deviation(name: str) -> None:
    found, rng = constant_case(name), seeded(6)

    def drawn(mechanism: Any) -> list[Any]:
        return [mechanism.release(found.private, rng) for _ in range(NOISY_DRAWS)]

    made = found.calibrated()
    noise = noise_of(made)
    rebuilt = noise_of(type(made).from_description(made.describe()))
    assert rebuilt == noise
    sample = drawn(made)
    assert noise.p_value(sample) > LEVEL
    assert noise.p_value(drawn(found.calibrated(epsilon=4.0, delta=1e-3))) < LEVEL
    together = np.hstack(list(noise.scaled(sample).values()))
    if together.shape[1] > 1:  # the twin draws once for all of its numbers
        assert independence(np.repeat(together[:, :1], 2, axis=1)) < LEVEL
