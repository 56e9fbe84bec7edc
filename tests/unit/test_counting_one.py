"""Figures of units that may have several records: what counts one, losses and intervals.

Neighbours are sources that differ in a whole unit. The tables of all of them are made by hand, as
padded records, as parts that the records of a unit share, or of one drawn record of each.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exact_laws import law_of
from hypothesis import given
from hypothesis import strategies as st
from law_values import FiniteLaw

from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric, Total
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, parts_of
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import Among, Clamped, EstimandKnobs
from statpress.mechanisms.estimates.estimate import RawEstimates
from statpress.mechanisms.estimates.exact_values import exact_values
from statpress.mechanisms.estimates.joint_moments import JointMoments, MeanEstimate
from statpress.mechanisms.estimates.noisy_quantile import QuantileOfCells
from statpress.mechanisms.estimates.pair_moments import PairEstimate
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.sampling.randomness import NoNoise, equivalent_variance
from statpress.tasks.source.aggregates import Units, count
from statpress.tasks.source.files import FileSource

C, N_UNITS = 3, 3
AGE = Integer(name="age", lower=0, upper=2)
PAY = Integer(name="pay", lower=0, upper=1)
SEX = Categorical(name="sex", categories=("f", "m"))
Unit = tuple[int, ...]
"""The cells of a unit's records, 1 to C of them."""

CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "mean": ("unit", (AGE,), {}),
    "proportion": ("unit", (SEX,), {"values": ("f",)}),
    "count": ("both", (SEX,), {"values": ("f",)}),
    "sum": ("record", (AGE,), {}),
    "mean of records": ("record", (AGE,), {}),
    "proportion of records": ("record", (SEX,), {"values": ("f",)}),
    "mean where": ("both", (AGE, SEX), {"where": Among(column="sex", values=("f",))}),
    "variance": ("unit", (AGE,), {}),
    "covariance": ("unit", (AGE, PAY), {}),
    "correlation": ("unit", (AGE, PAY), {}),
    "regression": ("unit", (AGE, PAY), {}),
    "difference": ("unit", (AGE, SEX), {"group": Among(column="sex", values=("f",))}),
    "ratio": ("both", (AGE, PAY), {}),
}
BOTH = [
    (name, per)
    for name, (served, *_) in CASES.items()
    for per in ("unit", "record")
    if served in ("both", per)
]


def calibrated(name: str, per: str, *, n_units: int = N_UNITS, c: int = C, **budget: Any) -> Any:
    """The mechanism of a statistic, for units of up to c records."""
    _, columns, said = CASES[name]
    domain = Domain(columns, absent=per == "record")
    knobs = EstimandKnobs(statistic=name.split()[0], per=per, **said)
    target = Target(
        **({"epsilon": 1.0, "delta": 1e-6} | budget),
        n_records=n_units * (c if per == "record" else 1),
        unit_records=c if per == "record" else 1,
        n_cells=domain.n_possible,
        domain=domain,
    )
    for mechanism in (MeanEstimate, PairEstimate):
        try:
            return mechanism.calibrate(knobs, target), domain
        except ConfigError:
            continue
    raise LookupError(name)


def table_of(units: list[Unit], domain: Domain, per: str, c: int = C) -> ContingencyTable:
    """Counts of padded records, or of the parts that the records of each unit share."""
    if per == "record":
        lacking = sum(c - len(unit) for unit in units)
        cells = [*itertools.chain(*units), *[domain.n_cells - 1] * lacking]
        return ContingencyTable.from_cells(domain, np.array(cells), np.ones(len(cells), np.int64))
    parts = parts_of(c)
    shared = replace(domain, parts=parts)
    cells = list(itertools.chain(*units))
    counts = [parts // len(unit) for unit in units for _ in unit]
    return ContingencyTable.from_cells(shared, np.array(cells), np.array(counts))


def all_units(domain: Domain, c: int = C) -> list[Unit]:
    """Every unit of 1 to c records."""
    cells = range(math.prod(column.size for column in domain.columns))
    return [
        unit for k in range(1, c + 1) for unit in itertools.combinations_with_replacement(cells, k)
    ]


def mu_squared_of_units(mechanism: Any, domain: Domain, per: str) -> float:
    """The largest squared distance over the noise, over every pair of units that differ."""
    others = [(0,), (0, 0, 1)]
    rows = []
    for unit in all_units(domain):
        table = table_of([unit, *others], domain, per)
        assert table.n_records == (N_UNITS * C if per == "record" else N_UNITS)
        numbers = mechanism.release(table, NoNoise()).numbers
        if isinstance(mechanism, MeanEstimate):
            scales = (mechanism.moments.scale, mechanism.moments.square_scale)
            rows.append(
                [
                    float(numbers[key][0]) / math.sqrt(equivalent_variance(scale))
                    for key, scale in zip(("sum", "sum_of_squares"), scales, strict=True)
                ]
            )
        else:
            noise = mechanism.moments.noise
            unit_of_noise = float(noise.step) * math.sqrt(equivalent_variance(noise.scale))
            rows.append([x / unit_of_noise for x in numbers["sums"]])
    found = np.array(rows)
    return float(max(((found - row) ** 2).sum(axis=1).max() for row in found))


@pytest.mark.parametrize(("name", "per"), BOTH)
def test_a_replaced_unit_moves_the_sums_by_no_more_than_is_charged(name: str, per: str) -> None:
    mechanism, domain = calibrated(name, per)
    c = C if per == "record" else 1
    loss = mechanism.loss(n_records=N_UNITS * c, n_cells=domain.n_possible, unit_records=c)
    found = mu_squared_of_units(mechanism, domain, per)
    assert found <= float(loss.mu_squared) * (1 + 1e-12)
    # Nearly attained: what one record may move, and c of them alike.
    assert found > 0.55 * loss.mu_squared
    if per == "record":  # twin: the factor c forgotten
        assert found > mechanism.whole_loss().mu_squared * 1.5


TOTAL = Total(name="age", of=AGE, lower=0.5, upper=4.5)


def test_a_clamped_total_is_one_record() -> None:
    domain = Domain((TOTAL,))
    knobs = EstimandKnobs(statistic="sum", per="unit", total=Clamped(lower=0.5, upper=4.5))
    target = Target(epsilon=1.0, delta=1e-6, n_records=2, n_cells=domain.n_possible, domain=domain)
    mechanism = MeanEstimate.calibrate(knobs, target)
    assert not mechanism.takes_parts
    units = all_units(Domain((AGE,)))
    codes = TOTAL.codes_of(np.array([*map(len, units)]), np.array([*map(sum, units)]))
    sums, scale = [], mechanism.moments.scale
    for code in codes:
        table = ContingencyTable.from_cells(domain, np.array([code, 0]), np.ones(2, np.int64))
        sums.append(mechanism.release(table, NoNoise()).numbers["sum"][0])
        (found,) = exact_values(knobs, table, mechanism.terms.scales)
        assert found == pytest.approx(0.5 + float(TOTAL.decode(np.array([code]))[0]))
    moved = (max(sums) - min(sums)) ** 2 / equivalent_variance(scale)
    loss = mechanism.loss(n_records=2, n_cells=domain.n_possible)
    assert 0.9999 * loss.mu_squared < moved <= loss.mu_squared
    # Twin: totals that are not clamped reach from 0 to 6.
    assert moved * Fraction(6, 4) ** 2 > loss.mu_squared


@pytest.mark.parametrize("key", ["a", "b"])
def test_totals_are_those_of_the_kept_records(tmp_path: Path, key: str) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    units = [(0,), (1, 2), (2, 2, 2), (0, 1, 1), (2, 2, 2, 2, 2)]
    source, domain = source_of(tmp_path, units), Domain((TOTAL,))
    table = count(source, domain, scratch=scratch, units=Units("who", 3), key=key)
    assert table.n_records == len(units)
    found = dict(zip(TOTAL.decode(table.cells).round(5), table.counts.tolist(), strict=True))
    assert found == {0.5: 1, 3.0: 1, 2.0: 1, 4.5: 2}
    assert TOTAL.code_of(3) == TOTAL.codes_of(np.array([2]), np.array([3]))[0]
    uneven = Numeric(name="pay", edges=(0.0, 1.0, 3.0, 9.0))
    with pytest.raises(ConfigError, match="equally far apart"):
        Total(name="pay", of=uneven, lower=0, upper=4)
    for special in (99, 3):  # the second one is where the next amount would be
        coded = Integer(name="age", lower=0, upper=2, special=(special,))
        with pytest.raises(ConfigError, match="special values"):
            Total(name="age", of=coded, lower=0, upper=4)


@pytest.mark.parametrize("name", ["mean", "covariance"])
def test_records_that_each_count_one_pass_what_a_unit_is_charged(name: str) -> None:
    """Twin: the records of a unit do not share one, but have all of its parts each."""
    mechanism, domain = calibrated(name, "unit")
    parts = parts_of(C)

    def released(unit: Unit) -> list[float]:
        counts = np.full(len(unit), parts)
        table = ContingencyTable.from_cells(replace(domain, parts=parts), np.array(unit), counts)
        numbers = mechanism.release(table, NoNoise()).numbers
        return [float(x) for values in numbers.values() for x in values]

    moved = np.subtract(released((0,) * C), released((domain.n_cells - 1,) * C))
    honest = np.subtract(released((0,)), released((domain.n_cells - 1,)))
    assert np.linalg.norm(moved) == pytest.approx(C * np.linalg.norm(honest))


def test_rounding_parts_is_charged() -> None:
    mu = Fraction(1, 3)
    made = JointMoments.calibrate(mu, lower=0, upper=1, rounded=True)
    whole = JointMoments.calibrate(mu, lower=0, upper=1)
    assert made.loss().mu_squared <= mu**2 < whole.loss().mu_squared * (1 + Fraction(1, 10**6))
    assert 1 < made.sigma / whole.sigma < 1 + 2e-6
    # All moves of a third of a unit, rounded, against the noise: none is above what is charged.
    half, worst = 1 << 20, Fraction(0)
    one, two = equivalent_variance(made.scale), equivalent_variance(made.square_scale)
    steps = [-half, -half + 1, -1, 0, 1, half // 3, half - 1, half]
    units = [(Fraction(a + b + c, 3), Fraction(a * a + b * b + c * c, 3))
             for a, b, c in itertools.combinations_with_replacement(steps, 3)]  # fmt: skip
    for first, second in itertools.permutations(units, 2):
        first_move = abs(first[0] - second[0]).__ceil__()
        second_move = abs(first[1] - second[1]).__ceil__()
        worst = max(worst, Fraction(first_move**2) / one + Fraction(second_move**2) / two)
    assert worst <= made.loss().mu_squared
    with pytest.raises(ValueError, match="whole records"):
        whole.release(np.zeros(1), np.array([6]), NoNoise(), 6)


def drawn_law(quantile: QuantileOfCells, units: list[Unit], most: int = 1) -> FiniteLaw:
    """The law of a release where ``most`` records of each unit are drawn at random."""
    masses: Counter[Any] = Counter()
    draws = [list(itertools.combinations(unit, min(most, len(unit)))) for unit in units]
    weight = 1 / math.prod(map(len, draws))
    for chosen in itertools.product(*draws):
        counts = np.bincount(list(itertools.chain(*chosen)), minlength=AGE.size)
        for outcome, mass in law_of(quantile, tuple(counts.tolist())).masses.items():
            masses[outcome] += weight * mass
    return FiniteLaw(dict(masses))


def test_a_median_of_units_tells_no_more_of_one_than_is_charged() -> None:
    domain = Domain((AGE,))
    knobs = EstimandKnobs(statistic="median", per="unit", confidence=0.5)
    target = Target(epsilon=3.0, n_records=N_UNITS, n_cells=3, domain=domain)
    quantile = QuantileOfCells.calibrate(knobs, target)
    loss = quantile.loss(n_records=N_UNITS, n_cells=3)
    units = all_units(domain, 2)

    def excess(most: int) -> float:
        laws = [drawn_law(quantile, [unit, (0, 2), (1,)], most) for unit in units]
        return max(
            one.divergence(two, epsilon) - loss.delta(epsilon).upper
            for epsilon in (0.0, 0.75, 1.5, 2.5)
            for one, two in itertools.permutations(laws, 2)
        )

    assert excess(1) <= 1e-12
    assert excess(2) > 1e-3  # twin: all records of a unit count


def test_only_a_record_of_each_unit_goes_to_mechanisms_of_whole_records() -> None:
    for name, mechanism in REGISTRY.items():
        taken = getattr(mechanism, "takes_parts", None) is not None
        assert taken == hasattr(mechanism, "serves_units"), name
    knobs = EstimandKnobs(statistic="mean", per="unit", inference="guaranteed")
    target = Target(epsilon=1.0, delta=1e-6, n_records=50, n_cells=3, domain=Domain((AGE,)))
    assert not MeanEstimate.calibrate(knobs, target).takes_parts
    assert MeanEstimate.calibrate(replace(knobs, inference="asymptotic"), target).takes_parts


# --- intervals -----------------------------------------------------------------

POPULATION, SIZES = 400, 3


@functools.cache
def covered(name: str, per: str, alike: bool, as_of_records: bool = False, runs: int = 60) -> float:
    """How often the interval holds the figure of the population, with hardly any noise.

    Units have 1 to 3 records, the older the more; alike ones, or independent given their number.
    """
    rng = np.random.default_rng(7)
    mechanism, domain = calibrated(name, per, n_units=POPULATION, epsilon=50.0, delta=1e-2)
    if as_of_records:
        mechanism = replace(mechanism, of_unit=1)
    cells = math.prod(column.size for column in domain.columns)

    def drawn(n: int) -> ContingencyTable:
        sizes = rng.integers(1, SIZES + 1, n) if not alike else np.full(n, SIZES)
        ends = np.cumsum(LAWS[:, :cells], axis=1) / LAWS[:, :cells].sum(axis=1, keepdims=True)
        first, *others = (rng.random((SIZES, n, 1)) > ends[sizes - 1]).sum(axis=2)
        records, shares, parts = [], [], parts_of(SIZES)
        for slot, other in enumerate([first, *others]):
            has = sizes > slot
            records.append((first if alike else other)[has])
            shares.append((parts // sizes)[has] if per == "unit" else np.ones(has.sum(), np.int64))
        own = domain if per == "record" else replace(domain, parts=parts)
        found, counts = np.concatenate(records), np.concatenate(shares)
        if per == "record" and (lacking := SIZES * n - len(found)):
            found = np.append(found, domain.n_cells - 1)
            counts = np.append(counts, lacking)
        return ContingencyTable.from_cells(own, found, counts)

    knobs = mechanism.estimand.knobs
    (true, *_) = exact_values(knobs, drawn(60_000), mechanism.terms.scales)[-1:]
    held = 0
    for _ in range(runs):
        raw = mechanism.release(drawn(POPULATION), NoNoise())
        estimate = mechanism.estimates(RawEstimates(raw.numbers, raw.n_records))[-1]
        held += estimate.lower <= true <= estimate.upper
    return held / runs


LAWS = np.array([[4, 2, 1, 1, 2, 1], [1, 1, 1, 2, 1, 1], [1, 2, 4, 1, 1, 3]], float)


def least(runs: int) -> float:
    return 0.95 - 5 * math.sqrt(0.95 * 0.05 / runs)


@pytest.mark.parametrize(("name", "per", "alike"), [
    ("mean", "unit", True), ("proportion", "unit", True), ("covariance", "unit", True),
    ("sum", "record", True), ("mean of records", "record", True), ("ratio", "record", True),
    ("mean", "unit", False), ("mean of records", "record", False),
    *(
        pytest.param(name, per, False, marks=pytest.mark.nightly)
        for name, per in (
            ("proportion", "unit"), ("covariance", "unit"), ("sum", "record"), ("ratio", "record"),
        )
    ),
])  # fmt: skip
def test_intervals_cover_populations_of_units(name: str, per: str, alike: bool) -> None:
    assert covered(name, per, alike) >= least(60)


@pytest.mark.parametrize("name", ["sum", pytest.param("ratio", marks=pytest.mark.nightly)])
def test_intervals_as_of_independent_records_would_not(name: str) -> None:
    assert covered(name, "record", True, as_of_records=True, runs=300) < least(300) - 0.05


# --- counting ------------------------------------------------------------------


def source_of(folder: Path, units: list[Unit]) -> FileSource:
    rows = [(f"u{i}", cell) for i, unit in enumerate(units) for cell in unit]
    who, age = zip(*rows, strict=True)
    pq.write_table(pa.table({"who": list(who), "age": list(age)}), folder / "units.parquet")
    return FileSource(str(folder / "units.parquet"), "parquet")


def counts_of(folder: Path, units: list[Unit], c: int, parts: int, key: str) -> np.ndarray:
    domain = Domain((AGE,), parts=parts)
    (scratch := folder / "scratch").mkdir(exist_ok=True)
    source = source_of(folder, units)
    table = count(source, domain, scratch=scratch, units=Units("who", c), key=key)
    assert table.n_records == len(units)
    assert int(table.counts.sum()) == parts * len(units)
    return table.at(np.arange(AGE.size))


UNITS = [(0,), (1, 2), (0, 0, 1), (2, 2, 1, 0, 0), (1,) * 7]


def test_records_of_a_unit_share_its_parts_equally(tmp_path: Path) -> None:
    found = counts_of(tmp_path, UNITS[:3], 3, parts_of(3), "k")
    assert found.tolist() == [6 + 4, 3 + 2, 3]
    five = counts_of(tmp_path, [(0, 0, 1, 2, 2), (1,)], 5, parts_of(5), "k")
    assert five.tolist() == [24, 12 + 60, 24]


def test_parts_that_do_not_divide_are_dealt_and_right_on_average(tmp_path: Path) -> None:
    units = [(0, 1, 2)]
    found = [counts_of(tmp_path, units, 3, 4, key) for key in "ab"]
    assert {tuple(sorted(row.tolist())) for row in found} == {(1, 1, 2)}
    mean = counts_of(tmp_path, units * 24, 3, 4, "k") / 24
    assert np.abs(mean - 4 / 3).max() < 5 * math.sqrt(2 / 9 / 24)


@pytest.mark.parametrize("parts", [1, pytest.param(4, marks=pytest.mark.nightly), parts_of(3)])
def test_another_unit_moves_exactly_its_parts(tmp_path: Path, parts: int) -> None:
    tables = [counts_of(tmp_path, [unit, *UNITS[2:]], 3, parts, "k") for unit in UNITS]
    for first, second in itertools.permutations(tables, 2):
        assert np.maximum(first - second, 0).sum() <= parts
        # What is left of both without the unit that differs is the same table.
        assert (first - second).sum() == 0


def test_one_record_of_each_unit_is_drawn_evenly(tmp_path: Path) -> None:
    for key in "ab":
        assert counts_of(tmp_path, [(0, 0, 1)], 3, 1, key).sum() == 1
    assert 0 < counts_of(tmp_path, [(0, 0, 1)] * 24, 3, 1, "k")[1] < 0.75 * 24


@given(st.integers(1, 5000))
def test_parts_are_few_and_divide_while_they_can(c: int) -> None:
    parts = parts_of(c)
    assert 1 <= parts <= 4096
    assert parts == 4096 or all(parts % k == 0 for k in range(1, c + 1))
