"""The Bernstein mechanism's real sampler, at test level 1e-6, with broken twins."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.domain.columns import Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.functions.function_targets import axes_of
from statpress.mechanisms.functions.kernels import KernelDensity, ProductKernel
from statpress.mechanisms.functions.lattice_release import BernsteinMechanism, integer_values
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SystemRandomness

LEVEL = 1e-6
DOMAIN = Domain((Numeric(name="x", edges=Numeric.uniform_edges(0, 1, 8)),))
N = 20
LEARNER = KernelDensity(ProductKernel("gaussian", axes_of(DOMAIN, ["x"]), (0.6,)), N)
ONE = ContingencyTable(DOMAIN, np.array([0, 3]), np.array([5, 15]))
TWO = ContingencyTable(DOMAIN, np.array([0, 3, 7]), np.array([4, 15, 1]))


def calibrated(noise: str, degree: int) -> BernsteinMechanism:
    delta = 0.0 if noise == "laplace" else 1e-5
    target = Target(epsilon=1.0, delta=delta, n_records=N, n_cells=8)
    return BernsteinMechanism.calibrate(LEARNER, noise, target, degree=degree, order=2)


def generator() -> SystemRandomness:
    return SystemRandomness(AESCounter(key=1))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_noise_has_its_law_on_every_lattice_point(noise: str) -> None:
    mechanism = calibrated(noise, 200)
    exact = integer_values(LEARNER, ONE, 200)

    def p_value(made: BernsteinMechanism) -> float:
        rng = generator()
        noises = np.concatenate([made.release(ONE, rng).counts - exact for _ in range(60)])
        law = stats.laplace if noise == "laplace" else stats.norm
        return float(stats.kstest(noises, law(scale=float(mechanism.scale)).cdf).pvalue)

    assert mechanism.scale > 10_000  # so that steps are invisible to the test
    assert p_value(mechanism) > LEVEL
    assert p_value(replace(mechanism, scale=mechanism.scale / 2)) < LEVEL
    assert p_value(replace(mechanism, scale=Fraction(float(mechanism.scale) * 1.3))) < LEVEL


@pytest.mark.parametrize("times", [600, pytest.param(1200, marks=pytest.mark.nightly)])
def test_no_event_tells_neighbours_apart_by_more_than_epsilon(times: int) -> None:
    mechanism = calibrated("laplace", 3)
    a, b = (integer_values(LEARNER, table, 3) for table in (ONE, TWO))

    def p_value(made: BernsteinMechanism, epsilon: float, times: int) -> float:
        """Of "the likelier event under the first table has at most e^epsilon the chance"."""
        rng, hits = generator(), []
        for table in (ONE, TWO):
            counts = np.stack([made.release(table, rng).counts for _ in range(times)])
            loss = (np.abs(counts - b) - np.abs(counts - a)).sum(axis=1)
            hits.append(int((loss >= 0.9 * np.abs(a - b).sum()).sum()))
        share = math.exp(epsilon) / (1 + math.exp(epsilon))
        return float(stats.binom.sf(hits[0] - 1, sum(hits), share))

    assert p_value(mechanism, 1.0, times) > LEVEL
    # The broken twin: noise for the change at one point of the lattice, not for all four.
    change = np.abs(a - b)
    point = float(mechanism.scale) * change.max() / change.sum()
    assert p_value(replace(mechanism, scale=Fraction(point)), 1.0, 5 * times) < LEVEL
