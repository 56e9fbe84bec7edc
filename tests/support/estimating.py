"""What every mechanism for estimates has to do, on one small table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.estimates.estimand import Among, EstimandKnobs
from statpress.mechanisms.estimates.estimate import Estimate
from statpress.mechanisms.estimates.resampled import resampling_goal
from statpress.mechanisms.estimates.statistics import NamedStatistic
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

LEVEL = 1e-6
COLUMNS: dict[str, Column] = {
    "age": Integer(name="age", lower=-20, upper=79),
    "pay": Numeric(name="pay", edges=Numeric.uniform_edges(0, 50, 100)),
    "debt": Integer(name="debt", lower=0, upper=199, width=4),
    "sex": Categorical(name="sex", categories=("f", "m")),
    "region": Categorical(name="region", categories=("north", "east", "south")),
    "rent": Numeric(name="rent", edges=Numeric.uniform_edges(10, 30, 40), missing=True),
}
EPSILON_DELTA = {"epsilon": 1.0, "delta": 1e-6}
RENYI = {"epsilon": 1.0, "delta": 1e-6, "renyi": (12, 0.6)}
RHO = {"epsilon": 1.0, "delta": 1e-6, "rho": 0.04}
KNOBS: dict[str, Any] = {
    "values": ("f",),
    "q": Fraction(1, 4),
    "group": Among(column="sex", values=("m",)),
    "where": Among(column="region", values=("north",)),
    "categories": ("debt",),
}
"""A value of every knob that a statistic may need, for the columns above."""


def needed_knobs(statistic: NamedStatistic) -> dict[str, Any]:
    """The knobs that it cannot do without."""
    return {name: KNOBS[name] for name in statistic.needs}


def columns_of(statistic: NamedStatistic) -> list[str]:
    """Names of columns that suit it, that of a group last."""
    own = ["sex"] if statistic.is_share else ["pay", "debt"][: statistic.columns]
    return own + ["sex"] * ("group" in statistic.needs)


def seeded(seed: int = 1) -> SeededRandomness:
    return SeededRandomness(np.random.PCG64(seed))


def draw(n: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Codes of records of all columns, which depend on one another."""
    rng = np.random.default_rng(seed)
    base = rng.beta(2, 4, n)
    sex = (rng.random(n) < 0.4).astype(np.int64)
    return {
        "age": np.minimum((100 * base).astype(np.int64), 99),
        "pay": (100 * np.clip(0.5 * base + 0.3 * rng.random(n) + 0.1 * sex, 0, 0.999)).astype(int),
        "debt": (50 * rng.beta(3, 3, n)).astype(np.int64),
        "sex": sex,
        "region": (3 * rng.random(n) ** (1 + sex)).astype(np.int64),
        "rent": np.where(rng.random(n) < 0.2, 40, (40 * rng.beta(2, 2, n)).astype(np.int64)),
    }


def domain_of(names: Sequence[str]) -> Domain:
    return Domain(tuple(COLUMNS[name] for name in names))


def table_of(names: Sequence[str], codes: dict[str, np.ndarray]) -> ContingencyTable:
    domain = domain_of(names)
    cells = domain.encode({name: codes[name] for name in names})
    return ContingencyTable.from_cells(domain, cells, np.ones(len(cells), np.int64))


def values_of(names: Sequence[str], codes: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The public values of the records' cells."""
    return [COLUMNS[name].decode(codes[name]) for name in names]


def target(names: Sequence[str], n: int = 3000, **budget: Any) -> Target:
    domain = domain_of(names)
    return Target(n_records=n, n_cells=domain.n_possible, domain=domain, **budget)


def calibrated(kind: Any, knobs: EstimandKnobs, names: Sequence[str], **budget: Any) -> Any:
    """Calibrate a mechanism once for all tests that ask for it."""
    return _calibrated(kind, knobs, tuple(names), tuple(sorted(budget.items())))


@functools.cache
def _calibrated(kind: Any, knobs: EstimandKnobs, names: Sequence[str], budget: Any) -> Any:
    return kind.calibrate(knobs, target(names, **dict(budget)))


def loss_of(mechanism: Any, wanted: Target) -> Any:
    return mechanism.loss(**wanted.frame)


def check_targets(
    kind: Any, knobs: EstimandKnobs, names: Sequence[str], *budgets: dict[str, Any]
) -> None:
    """The loss meets every target, and not by much."""
    for budget in budgets:
        wanted = target(names, **budget)
        loss = loss_of(calibrated(kind, knobs, names, **budget), wanted)
        if wanted.renyi is None or np.isfinite(loss.rho.upper):
            assert wanted.allows(loss)
        else:  # no divergence is known: the curve of the Gaussian loss of the same one
            goal = resampling_goal(wanted, kind.name)
            # calibrated on another grid: compositions of some hundred parts differ by 2e-11
            assert all(loss.delta(e).upper <= delta + 3e-11 for e, delta in goal[::32])
        if wanted.renyi is None and wanted.rho is None:
            delta = 0.0 if kind.pure else wanted.delta  # what a release is charged
            assert loss.delta(0.97 * wanted.epsilon).upper > delta


def check_round_trip(kind: Any, knobs: EstimandKnobs, names: Sequence[str]) -> None:
    """A description gives back the loss and the estimates."""
    wanted = target(names, **EPSILON_DELTA)
    made = calibrated(kind, knobs, names, **EPSILON_DELTA)
    described = made.describe()
    rebuilt = kind.from_description(described)
    assert rebuilt.describe() == described
    for epsilon in (0.0, 0.5, 1.0):
        assert loss_of(rebuilt, wanted).delta(epsilon) == loss_of(made, wanted).delta(epsilon)
    raw = made.release(table_of(names, draw(3000)), seeded())
    assert str(rebuilt.estimates(raw)) == str(made.estimates(raw))
    for one, two in zip(rebuilt.distributions(raw), made.distributions(raw), strict=True):
        assert np.array_equal(one.points, two.points) and np.array_equal(one.masses, two.masses)
    expected = made.expected_error(n_records=3000, n_cells=wanted.n_cells)
    assert expected.quantities == tuple(each.quantity for each in made.estimates(raw))
    assert len(expected.width) == len(expected.noise_sd) == len(expected.quantities)


def released(
    kind: Any, knobs: EstimandKnobs, names: Sequence[str], n: int, seed: int, **budget: Any
) -> tuple[Estimate, ...]:
    made = kind.calibrate(knobs, target(names, n, **budget))
    found: tuple[Estimate, ...] = made.estimates(
        made.release(table_of(names, draw(n, seed)), seeded(seed))
    )
    return found


def check_units(
    kind: Any,
    knobs: EstimandKnobs,
    names: Sequence[str],
    truth: Callable[..., Any],
    tolerance: float = 0.01,
) -> None:
    """At a large budget the estimate is the statistic of the records, in their own units."""
    found = released(kind, knobs, names, 3000, 2, epsilon=60.0, delta=1e-3)
    direct = np.atleast_1d(truth(*values_of(names, draw(3000, 2)))).tolist()
    for estimate, value in zip(found, direct, strict=True):
        assert estimate.value == pytest.approx(value, rel=tolerance)
        assert estimate.lower < value < estimate.upper and estimate.valid


def coverage(
    made: Any, names: Sequence[str], truth: float, *, n: int, runs: int, which: int = 0
) -> tuple[float, float]:
    """Share of intervals over samples of the population that hold its figure.

    The second is that of intervals half as long: the broken twin.
    """
    hits, rng = np.zeros(2), seeded(7)
    for run in range(runs):
        found = made.estimates(made.release(table_of(names, draw(n, 1000 + run)), rng))[which]
        middle, reach = (found.lower + found.upper) / 2, (found.upper - found.lower) / 2
        hits += [abs(truth - middle) <= reach, abs(truth - middle) <= reach / 2]
    return float(hits[0]) / runs, float(hits[1]) / runs


def least(runs: int, level: float) -> float:
    """What a coverage of this level is above but for a chance of 10^-6."""
    return float(stats.binom.ppf(LEVEL, runs, level)) / runs
