"""What every statistic of the registry has to be, each part with a twin that breaks it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from estimating import (
    COLUMNS,
    EPSILON_DELTA,
    KNOBS,
    columns_of,
    domain_of,
    draw,
    needed_knobs,
    table_of,
    target,
    values_of,
)

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import Among, Estimand, EstimandKnobs
from statpress.mechanisms.estimates.exact_values import exact_values
from statpress.mechanisms.estimates.resampled import largest_move
from statpress.mechanisms.estimates.statistics import (
    STATISTICS,
    NamedStatistic,
    Scale,
    Statistic,
    evaluated,
    named,
    register,
)
from statpress.mechanisms.registry import REGISTRY

ROUNDING = 1 + 1e-9
ALL = pytest.mark.parametrize("statistic", STATISTICS.values(), ids=list(STATISTICS))
BOUNDED = {name: each for name, each in STATISTICS.items() if each.bounded is not None}
OF_KNOWN_SENSITIVITY = pytest.mark.parametrize("statistic", BOUNDED.values(), ids=list(BOUNDED))
SCALED = {name: each for name, each in STATISTICS.items() if each.scales is not None}
WITH_UNITS = pytest.mark.parametrize("statistic", SCALED.values(), ids=list(SCALED))


def knobs_of(statistic: NamedStatistic, **others: Any) -> EstimandKnobs:
    """All that it needs, and the knobs given."""
    return EstimandKnobs(statistic=statistic.name, **(needed_knobs(statistic) | others))


def bounded(statistic: NamedStatistic) -> Statistic:
    assert statistic.bounded is not None
    return statistic.bounded


# Names


@ALL
def test_it_is_found_by_its_name(statistic: NamedStatistic) -> None:
    assert named(statistic.name) is statistic


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="already"):
        register(NamedStatistic(name="mean"))
    with pytest.raises(ConfigError, match="no statistic 'mode'; there are count, "):
        named("mode")


# Knobs and columns


@ALL
@pytest.mark.parametrize("knob", KNOBS)
def test_knobs_are_asked_for_or_refused(statistic: NamedStatistic, knob: str) -> None:
    given = knobs_of(statistic)
    if knob in statistic.needs:
        others = {name: KNOBS[name] for name in statistic.needs if name != knob}
        with pytest.raises(ConfigError, match=f"needs '{knob}'"):
            EstimandKnobs(statistic=statistic.name, **others)
    elif knob in statistic.allows:
        assert getattr(knobs_of(statistic, **{knob: KNOBS[knob]}), knob) == KNOBS[knob]
    else:
        with pytest.raises(ConfigError, match=f"'{knob}' does not go with"):
            replace(given, **{knob: KNOBS[knob]})


@ALL
def test_it_takes_the_columns_that_it_says(statistic: NamedStatistic) -> None:
    knobs, names = knobs_of(statistic), columns_of(statistic)
    estimand = Estimand.resolve(knobs, domain_of(names))
    assert estimand.statistic is statistic
    assert [each.name for each in estimand.arguments] == names
    assert len(estimand.statistic.own_units(estimand.arguments, 100)) == len(
        statistic.quantities(estimand.quantity())
    )
    further = [*names, "age"]
    if statistic.several:
        arguments = Estimand.resolve(knobs, domain_of(further)).arguments
        assert [each.name for each in arguments] == further
        with pytest.raises(ConfigError, match=f"takes {statistic.columns} or more columns"):
            Estimand.resolve(knobs, domain_of(names[:-1]))
    else:
        with pytest.raises(ConfigError, match=f"takes {statistic.columns} column"):
            Estimand.resolve(knobs, domain_of(further))
    if statistic.bounded is not None:
        assert statistic.bounded.columns == len(names)


@ALL
def test_records_without_a_value_are_left_out_or_refused(statistic: NamedStatistic) -> None:
    if statistic.is_share:
        return  # which counts by cells, of which one is that without a value
    names = ["rent", *columns_of(statistic)[1:]]
    if statistic.leaves_out_missing:
        (kept,) = Estimand.resolve(knobs_of(statistic), domain_of(names)).kept
        cells = np.array([0, COLUMNS["rent"].n_values])
        assert kept.scaled(domain_of(["rent"]), cells).tolist() == [1, 0]
    else:
        with pytest.raises(ConfigError, match="can lack a value"):
            Estimand.resolve(knobs_of(statistic), domain_of(names))


# Sensitivity and bounds


@functools.cache
def largest_multiple(statistic: Statistic, sizes: tuple[int, ...] = (2, 3, 10, 50)) -> float:
    """The largest move found between neighbours, as a multiple of the declared c/m.

    Random neighbours of several sizes, and all neighbours of few records at the corners.
    """
    found = [largest_move(statistic, m, np.random.default_rng(m)) for m in sizes]
    corners = list(itertools.product((0.0, 1.0), repeat=statistic.columns))
    for m in range(2, min(5, len(sizes) + 2)):
        weights = np.ones((2, m + 1), np.int64)
        weights[0, -1] = weights[1, -2] = 0
        for records in itertools.product(corners, repeat=m + 1):
            one, two = evaluated(statistic, weights, np.array(records))
            found.append(float(np.linalg.norm(one - two)) * m / float(statistic.constant))
    return max(found)


@dataclass(frozen=True)
class Redeclared:
    """A statistic with another constant or other bounds than its own."""

    statistic: Statistic
    constant: Fraction
    bounds: tuple[float, float]

    @property
    def columns(self) -> int:
        return self.statistic.columns

    @property
    def dimension(self) -> int:
        return self.statistic.dimension

    def evaluate(self, weights: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return self.statistic.evaluate(weights, columns)


@OF_KNOWN_SENSITIVITY
def test_no_neighbour_moves_it_further_than_declared(statistic: NamedStatistic) -> None:
    assert largest_multiple(bounded(statistic)) <= ROUNDING


@OF_KNOWN_SENSITIVITY
def test_half_the_constant_is_found_out(statistic: NamedStatistic) -> None:
    own = bounded(statistic)
    twin = Redeclared(own, Fraction(own.constant) / 2, own.bounds)
    assert largest_multiple(twin, (2,)) > ROUNDING


def keeps_its_bounds(statistic: Statistic) -> bool:
    """Whether no value of random or extreme records lies beyond the bounds, unclipped."""
    rng, (low, high) = np.random.default_rng(5), statistic.bounds
    for m in (2, 3, 7):
        for _ in range(200):
            records = rng.random((m, statistic.columns))
            records = np.where(rng.random(records.shape) < rng.random(), np.rint(records), records)
            weights = rng.multinomial(m, np.full(m, 1 / m), size=4)
            found = statistic.evaluate(weights, records)
            if found.min() < low - 1e-12 or found.max() > high + 1e-12:
                return False
    return True


@OF_KNOWN_SENSITIVITY
def test_it_lies_within_its_bounds(statistic: NamedStatistic) -> None:
    own = bounded(statistic)
    low, high = own.bounds
    assert keeps_its_bounds(own)
    assert not keeps_its_bounds(
        Redeclared(own, Fraction(own.constant), (low, (3 * low + high) / 4))
    )


# Units


@dataclass(frozen=True)
class Range:
    """The declared range of a column."""

    lower: float
    upper: float


def in_own_units(
    statistic: NamedStatistic, records: np.ndarray, ranges: Sequence[Range]
) -> list[float]:
    """The statistic of records in their own units, by way of columns in [0, 1]."""
    n, (low, high) = len(records), np.array([(each.lower, each.upper) for each in ranges]).T
    columns = (records - low) / (high - low)
    if statistic.bounded is not None:
        found = statistic.bounded.evaluate(np.ones((1, n), np.int64), columns)[0]
    else:
        assert statistic.moments is not None
        x, y = columns[:, -1], columns[:, 0]
        means = np.array([each.mean() for each in (x, y, x**2, x * y, y**2)])
        functions = statistic.moments.functions(n, statistic.moments.origin(ranges))
        found = np.array([function.value(means) for function in functions])
    scales = statistic.own_units(ranges, n)
    return [scale.value(float(each)) for scale, each in zip(scales, found, strict=True)]


def same_however_wide(statistic: NamedStatistic) -> bool:
    """Whether the statistic in its own units is the same for other declared ranges."""
    rng, grouped = np.random.default_rng(8), "group" in statistic.needs
    own = rng.uniform(2.0, 5.0, (50, statistic.columns))
    records = np.column_stack([own, rng.random(50) < 0.4]) if grouped else own
    amounts = statistic.moments is not None and statistic.moments.amounts
    found = []
    for low, high in ((2.0, 5.0), (-3.0, 6.5)):
        ranges = [Range(0.0 if amounts else low, high + i) for i in range(statistic.columns)]
        ranges += [Range(0.0, 1.0)] * grouped
        found.append(in_own_units(statistic, records, ranges))
    return bool(np.allclose(*found, rtol=1e-9, atol=0))


@WITH_UNITS
def test_its_scale_undoes_that_of_its_columns(statistic: NamedStatistic) -> None:
    assert same_however_wide(statistic)
    count = len(statistic.own_units([Range(1.0, 2.0)] * len(columns_of(statistic)), 10))
    assert not same_however_wide(replace(statistic, scales=lambda spans, n: (Scale(),) * count))


def spread(statistic: NamedStatistic) -> float:
    """Its variance, times n, over samples of evenly spread records."""
    rng, n, found = np.random.default_rng(3), 200, []
    for _ in range(3000):
        records = rng.random((n, bounded(statistic).columns))
        columns = np.rint(records) if statistic.is_share else records
        found.append(bounded(statistic).evaluate(np.ones((1, n), np.int64), columns)[0, 0])
    return float(np.var(found, ddof=1)) * n


@OF_KNOWN_SENSITIVITY
def test_its_variance_is_that_of_evenly_spread_records(statistic: NamedStatistic) -> None:
    if statistic.even_variance is not None:
        assert statistic.even_variance == pytest.approx(spread(statistic), rel=0.12)


# Mechanisms


@ALL
def test_some_mechanism_serves_it(statistic: NamedStatistic) -> None:
    names, refused = columns_of(statistic), []
    wanted = target(names, **EPSILON_DELTA)
    for mechanism in REGISTRY.values():
        if not issubclass(mechanism.knobs, EstimandKnobs):
            continue
        given = needed_knobs(statistic)
        try:
            made: Any = mechanism.calibrate(
                mechanism.knobs(statistic=statistic.name, **given), wanted
            )
        except ConfigError as error:
            refused.append(str(error))
            continue
        rebuilt: Any = mechanism.from_description(made.describe())
        assert rebuilt.terms == made.terms
        expected = made.expected_error(n_records=3000, n_cells=wanted.n_cells)
        assert expected.quantities == made.terms.quantities
        return
    pytest.fail("; ".join(refused))


# Statistics of the confidential records without noise, against NumPy on the records


N = 500
CODES = draw(N, seed=3)
SEX = CODES["sex"] == 1


def _line(y: Any, x: Any) -> list[float]:
    slope, intercept = np.polyfit(x, y, 1)
    return [intercept, slope]


EXPECTED: dict[str, Any] = {
    "count": lambda sex: [np.sum(sex == "f")],
    "proportion": lambda sex: [np.mean(sex == "f")],
    "mean": lambda x: [x.mean()],
    "sum": lambda x: [x.sum()],
    "variance": lambda x: [x.var(ddof=1)],
    "covariance": lambda x, y: [np.cov(x, y)[0, 1]],
    "correlation": lambda x, y: [np.corrcoef(x, y)[0, 1]],
    "median": lambda x: [np.quantile(x, 0.5, method="inverted_cdf")],
    "quantile": lambda x: [np.quantile(x, 0.25, method="inverted_cdf")],
    "ratio": lambda y, x: [y.sum() / x.sum()],
    "regression": _line,
    "difference": lambda y, group: [y[group == "m"].mean() - y[group != "m"].mean()],
}


def exact(names: list[str], **said: Any) -> list[float]:
    """Through the estimand, with the scales that mechanisms state."""
    knobs = EstimandKnobs(**said)
    table = table_of(names, CODES)
    estimand = Estimand.resolve(knobs, table.domain)
    statistic, spans = estimand.statistic, estimand.arguments
    scales = (Scale(),) if statistic.is_quantile else statistic.own_units(spans, N)
    return list(exact_values(knobs, table, scales))


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_of_all_records(name: str) -> None:
    names = columns_of(STATISTICS[name])
    found = exact(names, statistic=name, **needed_knobs(STATISTICS[name]))
    assert found == pytest.approx(EXPECTED[name](*values_of(names, CODES)), rel=1e-9)


def test_records_that_do_not_count_or_lack_a_value_are_left_out() -> None:
    (pay,), (rent,) = values_of(["pay"], CODES), values_of(["rent"], CODES)
    men = Among(column="sex", values=("m",))
    assert exact(["pay", "sex"], statistic="mean", where=men) == pytest.approx([pay[SEX].mean()])
    there = CODES["rent"] < 40
    known = rent[there].astype(float)
    assert exact(["rent"], statistic="mean") == pytest.approx([known.mean()])
    q = exact(["rent"], statistic="quantile", q=Fraction(9, 10))
    assert q == pytest.approx([np.quantile(known, 0.9, method="inverted_cdf")])


def test_a_mean_of_no_record_is_no_number() -> None:
    table = table_of(["pay", "sex"], {"pay": CODES["pay"][~SEX], "sex": CODES["sex"][~SEX]})
    knobs = EstimandKnobs(statistic="mean", where=Among(column="sex", values=("m",)))
    assert np.isnan(exact_values(knobs, table, (Scale(),))).all()
    assert COLUMNS["sex"].size == 2


# A user-defined statistic that fails on some records cannot stop a release


class Failing:
    """A mean that fails where the last record is in a row, and so does a batch with it."""

    columns, dimension, constant, bounds = 1, 1, 1, (0.25, 1.0)

    def evaluate(self, weights: Any, columns: Any) -> Any:
        if weights[:, -1].any():
            raise ZeroDivisionError
        return weights @ columns / weights.sum(axis=1, keepdims=True)


def test_a_row_that_fails_becomes_the_lower_bound_and_the_others_stay() -> None:
    weights, columns = np.array([[2, 0, 0], [1, 1, 0], [0, 1, 1]]), np.array([[0.5], [1.0], [0.0]])
    np.testing.assert_array_equal(evaluated(Failing(), weights, columns)[:, 0], [0.5, 0.75, 0.25])
