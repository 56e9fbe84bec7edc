"""What repeated releases prove: limits at their level, the ideal test, evidence against laws."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from neighbouring import multinomial
from scipy.stats import binom, norm

from statpress.mechanisms.accounting.auditing import (
    ALARM_MISS,
    MISS,
    Decisions,
    IdealTest,
    rate_limits,
)
from statpress.mechanisms.accounting.losses import GaussianLoss, PureLoss
from statpress.mechanisms.accounting.noise_losses import DiscreteLaplaceLoss
from statpress.mechanisms.domain.columns import Categorical
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.sampling.randomness import HalvedNoise, NoNoise
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable
from statpress.tasks.release.entropy import SeededRandomness

RUNS = 1000


@pytest.mark.parametrize("rates", [(0.3, 0.3), (0.1, 0.4), (0.02, 0.0), (0.001, 0.0)])
def test_limits_hold_for_the_mean_of_two_rates(rates: tuple[float, float]) -> None:
    each, (first, second) = 60, rates
    masses = np.convolve(
        binom.pmf(np.arange(each + 1), each, first), binom.pmf(np.arange(each + 1), each, second)
    )
    limits = np.array([rate_limits(k, 2 * each, MISS) for k in range(2 * each + 1)])
    mean = (first + second) / 2
    assert masses[limits[:, 0] > mean].sum() <= MISS
    assert masses[limits[:, 1] < mean].sum() <= MISS


def test_limits_are_near_their_level_where_they_are_tight() -> None:
    n, p = 2000, 0.3
    k = np.arange(n + 1)
    low = np.array([rate_limits(each, n, MISS)[0] for each in k])
    assert 0.8 * MISS < binom.pmf(k, n, p)[low > p].sum() <= MISS


def test_the_ideal_test_of_gaussian_privacy_has_its_known_errors() -> None:
    mu = Fraction(2, 3)
    ideal = IdealTest(GaussianLoss(mu), 3.0, 1e-6, 2 * RUNS)
    assert ideal.mu == pytest.approx(float(mu), rel=1e-9)
    for threshold, mistaken, right in ideal.points[::6]:
        at = norm.isf(mistaken) - float(mu)
        assert right == pytest.approx(norm.sf(at), abs=2e-3)
        assert mistaken == pytest.approx(
            norm.sf(threshold / float(mu) + float(mu) / 2), rel=0.05, abs=1e-6
        )


def test_the_ideal_test_of_a_pure_guarantee_comes_near_it() -> None:
    ideal = IdealTest(PureLoss(Fraction(1)), 1.0, 0.0, 2_000_000)
    assert 0.99 < ideal.bounds()[0] < 1.0


@pytest.mark.parametrize(("factor", "caught"), [(1.0, False), (2.0, True)])
def test_a_claim_is_contradicted_by_a_loss_twice_as_large_and_not_by_its_own(
    factor: float, caught: bool
) -> None:
    mu, rng = 0.65, np.random.default_rng(5)
    ideal = IdealTest(GaussianLoss(Fraction(mu)), 3.0, 1e-6, 2 * RUNS)
    found = []
    for _ in range(20):
        one, other = (rng.normal(side * mu * factor / 2, 1.0, RUNS) for side in (1, -1))
        decided = Decisions.of(one, other, 0.0, rng)
        assert decided.right + decided.mistaken == decided.runs
        found.append(ideal.contradicted_by(0.0, decided.mu(ALARM_MISS)))
    assert set(found) == {caught}


def test_the_bound_on_mu_exceeds_the_truth_no_more_often_than_it_says() -> None:
    mu, rng = 0.65, np.random.default_rng(6)
    passed = 0
    for _ in range(400):
        one, other = (rng.normal(side * mu / 2, 1.0, 300) for side in (1, -1))
        passed += Decisions.of(one, other, 0.0, rng).mu(MISS) > mu
    assert binom.sf(passed - 1, 400, MISS) > 1e-6


def test_a_coin_decides_what_is_at_zero() -> None:
    nothing = np.zeros(RUNS)
    decided = Decisions.of(nothing, nothing, 0.0, np.random.default_rng(1))
    assert binom.cdf(decided.right, decided.runs, 0.5) > 1e-6
    assert decided.mu(ALARM_MISS) == 0.0
    assert Decisions.of(nothing, nothing, 0.5, np.random.default_rng(1)).right == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_learnt_test_finds_a_difference_in_either_direction(sign: int) -> None:
    rng = np.random.default_rng(2)
    one, other = (np.rint(rng.normal(sign * side, 1.0, RUNS)) for side in (1, -1))
    learnt = Decisions.learnt(one, other)
    assert learnt.runs == RUNS
    assert 1.5 < learnt.mu(MISS) < 2.0


def test_a_learnt_test_finds_nothing_where_there_is_nothing() -> None:
    rng = np.random.default_rng(3)
    learnt = Decisions.learnt(rng.normal(size=RUNS), rng.normal(size=RUNS))
    assert learnt.mu(ALARM_MISS) == 0.0
    constant = Decisions.learnt(np.ones(RUNS), np.ones(RUNS))
    assert constant.right == constant.mistaken


def tables_of(*rows: tuple[int, ...]) -> list[ContingencyTable]:
    column = Categorical(name="x", categories=tuple(f"v{i}" for i in range(len(rows[0]))))
    tables = [np.array(row) for row in rows]
    return [ContingencyTable(Domain((column,)), np.flatnonzero(t), t[t > 0]) for t in tables]


def test_the_evidence_of_draws_is_the_log_ratio_of_their_law() -> None:
    rows = (1, 0, 2), (0, 1, 2)
    mechanism = Bootstrap(Fraction(1, 2), 4)
    evidence = mechanism.evidence(*tables_of(*rows))
    laws = [
        multinomial([(h + Fraction(1, 2)) / Fraction(9, 2) for h in row], mechanism.records)
        for row in rows
    ]
    for drawn in laws[0]:
        (release,) = tables_of(drawn)
        expected = math.log(laws[0][drawn] / laws[1][drawn])
        assert evidence(release) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", [LaplaceTable, GaussianTable])
def test_the_evidence_of_noise_is_the_log_ratio_of_its_law(kind) -> None:
    scale = Fraction(3, 2)
    mechanism = kind(scale)
    one, other = tables_of((3, 0, 4), (1, 2, 4))
    evidence = mechanism.evidence(one, other)
    for moved in itertools.product((-2, 0, 3), repeat=3):
        exact = mechanism.release(one, NoNoise())
        release = replace(exact, counts=exact.counts + moved)
        z = [np.array(release.counts) - np.array(row) for row in ((3, 0, 4), (1, 2, 4))]
        if kind is LaplaceTable:
            logs = [-np.abs(each).sum() / 1.5 for each in z]
        else:
            logs = [-(each**2).sum() / 4.5 for each in z]
        assert evidence(release) == pytest.approx(logs[0] - logs[1], abs=1e-12)


def test_half_the_noise_of_a_laplace_table_is_caught_and_the_whole_is_not() -> None:
    mechanism = LaplaceTable(Fraction(1))
    one, other = tables_of((1, 0, 9), (0, 1, 9))
    evidence = mechanism.evidence(one, other)
    loss = mechanism.loss(n_records=10, n_cells=3)
    assert isinstance(loss, DiscreteLaplaceLoss)
    ideal = IdealTest(loss, 2.0, 0.0, 2 * RUNS)
    rng = SeededRandomness(np.random.PCG64(7))
    for source, caught in ((rng, False), (HalvedNoise(rng), True)):
        told = [
            np.array([evidence(mechanism.release(table, source)) for _ in range(RUNS)])
            for table in (one, other)
        ]
        high = Decisions.of(*told, ideal.threshold, rng)
        assert ideal.contradicted_by(high.epsilon(0.0, ALARM_MISS), 0.0) is caught
    assert 1.7 < ideal.bounds()[0] < 2.0
