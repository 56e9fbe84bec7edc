"""Means, sums and counts under add-remove: what a record moves, the noise and the intervals."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.joint_moments import JointMoments, MeanEstimate
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.charges import described_loss
from statpress.mechanisms.sampling.randomness import equivalent_variance
from statpress.tasks.release.entropy import SeededRandomness

F = Fraction
HALF = 1 << 20
ADDED = Adjacency.ADD_REMOVE
REGION = Categorical(name="region", categories=tuple("abcdefgh"))
PAY = Numeric(name="pay", edges=Numeric.uniform_edges(20, 60, 8))


def moves(made: JointMoments) -> list[Fraction]:
    """What every record of a grid moves, squared and over the variances of the noise."""
    assert made.count_scale is not None
    scales = (made.scale, made.square_scale, made.count_scale)
    one, two, three = map(equivalent_variance, scales)
    values = [HALF * k // 16 for k in range(-16, 17)] + [123_457, -999_983]
    return [F(u * u) / one + F(u**4) / two + F((2 * HALF) ** 2) / three for u in values]


@pytest.mark.parametrize("mu", [F(1, 10), F(1), F(7, 3)])
def test_the_loss_covers_every_record_that_is_added(mu: Fraction) -> None:
    made = JointMoments.calibrate(mu, lower=0, upper=1, adjacency=ADDED)
    spent = made.loss().mu_squared
    assert mu**2 * (1 - F(1, 10**6)) < spent <= mu**2
    assert max(moves(made)) == spent  # attained, by a record at a bound
    forgotten = spent - (2 * HALF) ** 2 / equivalent_variance(made.count_scale)
    assert max(moves(made)) > forgotten  # twin: the number of records is free
    replaced = JointMoments.calibrate(mu, lower=0, upper=1)
    assert replaced.count_scale is None
    quieter = JointMoments(0, 1, made.scale / 2, made.square_scale, count_scale=made.count_scale)
    assert max(moves(quieter)) > spent  # twin: half the noise


def test_the_sum_has_about_the_noise_of_a_sum_alone() -> None:
    """A sum of records in [0, 1] has the sensitivity 1: the rest costs a sixteenth."""
    made = JointMoments.calibrate(F(1), lower=0, upper=1, adjacency=ADDED)
    assert made.total_sigma() == pytest.approx(math.sqrt(1.125), rel=1e-3)
    assert made.sigma == pytest.approx(math.sqrt(0.5), rel=1e-3)


def made_for(knobs: EstimandKnobs, domain: Domain, about: int) -> MeanEstimate:
    target = Target(
        epsilon=1.0,
        delta=1e-6,
        n_records=about,
        n_cells=domain.n_possible,
        domain=domain,
        adjacency=ADDED,
    )
    return MeanEstimate.calibrate(knobs, target)


def covered(
    statistic: str,
    about: int,
    n: int,
    runs: int,
    kind: type[JointMoments] = JointMoments,
    **knobs: Any,
) -> tuple[float, float]:
    """How often intervals at .9 hold the population's figure, and the mean error over its sd."""
    domain = Domain((PAY if statistic in ("mean", "sum") else REGION,))
    mechanism = made_for(EstimandKnobs(statistic=statistic, confidence=0.9, **knobs), domain, about)
    own = {each.name: getattr(mechanism.moments, each.name) for each in fields(JointMoments)}
    mechanism = replace(mechanism, moments=kind(**own))
    rng = np.random.default_rng(5)
    shares = np.array([0.02, 0.03, 0.05, 0.1, 0.1, 0.2, 0.2, 0.3])
    values = np.array([22.5, 27.5, 32.5, 37.5, 42.5, 47.5, 52.5, 57.5])
    truth = {
        "mean": float(shares @ values),
        "sum": n * float(shares @ values),
        "count": n * float(shares[2:4].sum()),
        "proportion": float(shares[2:4].sum()),
    }[statistic]
    noise, hits, errors = SeededRandomness(np.random.PCG64(11)), 0, []
    for _ in range(runs):
        counts = rng.multinomial(n, shares)
        cells = np.flatnonzero(counts)
        table = ContingencyTable(domain, cells, counts[cells].astype(np.int64))
        (found,) = mechanism.estimates(mechanism.release(table, noise))
        hits += found.lower <= truth <= found.upper
        assert found.standard_error is not None
        errors.append((found.value - truth) / found.standard_error)
    return hits / runs, float(np.mean(errors))


@pytest.mark.parametrize(
    ("statistic", "about"),
    [
        ("mean", 1500), ("sum", 700), ("count", 1500),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                ("mean", 700), ("sum", 1500), ("count", 700), ("proportion", 700),
                ("proportion", 1500),
            )
        ),
    ],
)  # fmt: skip
def test_intervals_cover_whatever_the_plan_expected(statistic: str, about: int) -> None:
    """The truth is 1,000 records: the plan's number is off by half, or by a third."""
    knobs = {"values": ("c", "d")} if statistic in ("count", "proportion") else {}
    runs = 400
    share, bias = covered(statistic, about, 1000, runs, **knobs)
    slack = 4 * math.sqrt(0.9 * 0.1 / runs)
    assert 0.9 - slack <= share <= 0.965
    assert abs(bias) < 0.15


class SizeTakenForPublic(JointMoments):
    count_sigma = 0.0  # type: ignore[assignment]


def test_without_its_own_noise_the_number_would_bring_coverage_down() -> None:
    """Twin: the noisy number of records taken for the public one."""
    share, _ = covered("sum", 100, 100, 400, SizeTakenForPublic)
    assert share < 0.86


def test_a_description_rebuilds_it_and_its_loss() -> None:
    made = made_for(EstimandKnobs(statistic="mean"), Domain((PAY,)), 500)
    described = made.describe()
    assert MeanEstimate.from_description(described) == made
    frame = {"n_records": 500, "n_cells": 8, "unit_records": 1}
    again = described_loss(described | frame | {"n_cells": "8"})
    assert again.delta(0.7) == made.loss(**frame).delta(0.7)
    wrong = described | {"count_scale": str(made.moments.count_scale / 2)}  # type: ignore[operator]
    assert (
        described_loss(wrong | frame | {"n_cells": "8"}).delta(0.7).upper > again.delta(0.7).upper
    )


def test_so_few_records_that_noise_hides_them_have_any_mean() -> None:
    made = made_for(EstimandKnobs(statistic="mean"), Domain((PAY,)), 500)
    table = ContingencyTable(Domain((PAY,)), np.array([3]), np.array([1]))
    (found,) = made.estimates(made.release(table, SeededRandomness(np.random.PCG64(2))))
    assert (found.lower, found.upper) == (20.0, 60.0)


def test_guarantees_and_units_are_refused() -> None:
    domain = Domain((PAY,))
    with pytest.raises(ConfigError, match="guaranteed for a public number"):
        made_for(EstimandKnobs(statistic="mean", inference="guaranteed"), domain, 500)
    several = Domain((Integer(name="age", lower=0, upper=9),), absent=True)
    target = Target(
        epsilon=1.0, delta=1e-6, n_records=300, n_cells=11, unit_records=3, domain=several,
        adjacency=ADDED,
    )  # fmt: skip
    with pytest.raises(ConfigError, match="units of one record"):
        MeanEstimate.calibrate(EstimandKnobs(statistic="mean", per="record"), target)
