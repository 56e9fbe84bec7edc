"""Survey weights: what is measured with their classes, at which loss, and how records are raked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from coded import in_memory

from statpress.mechanisms.domain.columns import Column, Integer, Numeric, Slot
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals import measurement
from statpress.mechanisms.marginals.linked_marginals import LinkedKnobs, LinkedMarginals
from statpress.mechanisms.marginals.marginals import ColumnGroup, Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.measurement import GdpFilter, table_sensitivity_squared
from statpress.mechanisms.marginals.residuals import GRID, NoisyMarginals
from statpress.mechanisms.marginals.survey_weights import SurveyWeight, class_values, raked
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.sampling.randomness import equivalent_variance
from statpress.tasks.release.entropy import SeededRandomness

N, EDGES = 2000, (0.0, 10.0, 20.0, 60.0)
WEIGHT = SurveyWeight(column="w", strata="c0")
rng = np.random.default_rng(7)
CODES = np.stack([rng.integers(0, k, N) for k in (4, 3, 5, 2, 3)], axis=1).astype(np.uint8)
CODES[:, 1] = CODES[:, 0] % 3  # the only pair that is related


def domain() -> Domain:
    columns: list[Column] = [
        Integer(name=f"c{i}", lower=0, upper=k - 1) for i, k in enumerate((4, 3, 5, 2))
    ]
    return Domain((*columns, Numeric(name="w", edges=EDGES)))


def made(weight: SurveyWeight | None = WEIGHT, **knobs: object) -> Marginals:
    target = Target(epsilon=0.3, delta=1e-6, n_records=N, n_cells=120, domain=domain())
    return Marginals.calibrate(MarginalsKnobs(weight=weight, **knobs), target)


def released(mechanism: Marginals, seed: int = 3) -> NoisyMarginals:
    return mechanism.release(in_memory(domain(), CODES), SeededRandomness(np.random.PCG64(seed)))


def spent(release: NoisyMarginals) -> Fraction:
    """What the drawn noise spends, by the sensitivities of tables and scores."""
    whole = Fraction(0)
    for table in (*release.one_way, *release.tables):
        whole += Fraction(2 * GRID**2) / equivalent_variance(table.scale)
    if release.scores is not None:
        squared = 4 * len(release.scores.pairs) * GRID**2
        whole += Fraction(squared) / equivalent_variance(release.scores.scale)
    return whole


def test_the_class_and_the_design_are_measured_with_every_column() -> None:
    asked = {(a, b) for a, b in itertools.combinations(range(5), 2) if {0, 4} & {a, b}}
    left = False
    for seed in range(4):
        release = released(made(), seed)
        assert asked <= {table.group for table in release.tables}
        assert release.scores is not None
        assert not asked & set(release.scores.pairs)
        plain = {table.group for table in released(made(None), seed).tables}
        left |= not asked <= plain
    assert left  # the twin: by scores alone one of them is left out


def test_pairs_are_added_to_groups_that_a_config_lists() -> None:
    listed = made(pairs=(ColumnGroup(columns=("c1", "c2", "c3")),))
    pairs = [group for group, _ in listed.groups if len(group) == 2]
    assert pairs == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 4), (2, 4), (3, 4)]


def test_the_loss_is_that_of_one_column_more() -> None:
    weighted, plain = made(), made(None)
    frame = {"n_records": N, "n_cells": 120}
    assert weighted.loss(**frame).mu_squared == plain.loss(**frame).mu_squared == plain.mu**2
    assert Marginals.from_description(weighted.describe()) == weighted
    assert "always" not in plain.describe()
    release = released(weighted)
    assert weighted.mu**2 * Fraction(99, 100) < spent(release) <= weighted.mu**2


def test_a_pair_that_is_not_charged_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin draws the weight's tables beside the filter."""
    measure = measurement.measure_tables

    def beside(coded, groups, amounts, *, budget, **more):
        free = GdpFilter(budget.mu_squared)
        tables = measure(coded, groups, amounts, budget=free, **more)
        charged = [each for each in tables if 4 not in each.group]
        again = [amount for group, amount in zip(groups, amounts, strict=True) if 4 not in group]
        for _, amount in zip(charged, again, strict=True):
            budget.spend(1, 1 / amount)
        return tables

    mechanism = made()
    monkeypatch.setattr(measurement, "measure_tables", beside)
    assert spent(released(mechanism)) > mechanism.mu**2


Coding = Callable[[tuple[tuple[int, float], ...]], list[tuple[int, int]]]
CLASSES = Numeric(name="w", edges=(0.0, 3.0, 6.0, 100.0))


def as_given(records: tuple[tuple[int, float], ...]) -> list[tuple[int, int]]:
    return [(x, CLASSES.code_of(w)) for x, w in records]


def after_raking(records: tuple[tuple[int, float], ...]) -> list[tuple[int, int]]:
    """The broken twin: weights are raked inside the private data, to a total of 12."""
    total = sum(w for _, w in records)
    return [(x, CLASSES.code_of(w * 12 / total)) for x, w in records]


def farthest(coding: Coding) -> int:
    """The largest squared distance of the tables of neighbours, over all of three records."""
    every = list(itertools.product((0, 1), (1.0, 4.0, 10.0)))
    most = 0
    for records in itertools.product(every, repeat=3):
        for other in every:
            tables = []
            for each in (records, (other, *records[1:])):
                table = np.zeros((2, 3), dtype=np.int64)
                for cell in coding(each):
                    table[cell] += 1
                tables.append(table)
            most = max(most, int(((tables[0] - tables[1]) ** 2).sum()))
    return most


def test_weights_as_given_move_a_table_as_any_column_does() -> None:
    assert farthest(as_given) == table_sensitivity_squared(1, Adjacency.REPLACE_ONE) == 2
    assert farthest(after_raking) > 2


def test_raked_weights_add_up_to_public_totals() -> None:
    cells = {"a": CODES[:, 0], "b": CODES[:, 2]}
    totals = {"a": (100.0, 0.0, 300.0, 50.0), "b": (90.0, 90.0, 90.0, 90.0, 90.0)}
    start = class_values(domain(), "w")[CODES[:, 4]]
    weights = raked(start, cells, totals)
    for name, total in totals.items():
        sums = np.bincount(cells[name], weights=weights)
        assert sums == pytest.approx(np.array(total), rel=1e-12, abs=1e-9)
    factors = weights / start
    for a, b in itertools.product(range(4), range(5)):  # one factor for each combination of cells
        own = factors[(CODES[:, 0] == a) & (CODES[:, 2] == b)]
        assert np.ptp(own) <= 1e-12 * own.max()
    assert start == pytest.approx(raked(start, {}, {}))


def test_a_cell_without_a_record_leaves_the_other_totals_met() -> None:
    codes = np.array([0, 0, 2])
    weights = raked(np.array([1.0, 3.0, 5.0]), {"a": codes}, {"a": (8.0, 7.0, 1.0)})
    assert weights.tolist() == [2.0, 6.0, 1.0]


def test_records_carry_raked_weights_in_every_copy() -> None:
    totals = {"c0": (1.0, 2.0, 3.0, 4.0)}
    mechanism = made(SurveyWeight(column="w", totals=totals), copies=2)
    microdata = mechanism.postprocess(released(mechanism))
    for codes in (microdata.codes, *(tuple(each.T) for each in microdata.copies.sets)):
        weights = microdata.weights(codes)
        assert np.bincount(codes[0], weights=weights) == pytest.approx([1.0, 2.0, 3.0, 4.0])
        assert len(np.unique((weights / np.array(totals["c0"])[codes[0]]).round(9))) > 3


@pytest.mark.parametrize(
    "weight",
    [
        SurveyWeight(column="v"),
        SurveyWeight(column="w", cluster="v"),
        SurveyWeight(column="w", totals={"v": (1.0,)}),
        SurveyWeight(column="w", totals={"c0": (1.0,)}),
    ],
)
def test_columns_that_do_not_serve_a_weight_are_refused(weight: SurveyWeight) -> None:
    with pytest.raises(ConfigError, match=r"weight|totals"):
        made(weight)


def test_weights_of_households_are_measured_with_every_place_at_the_loss_of_any_column() -> None:
    relation = Integer(name="relation", lower=0, upper=2)
    slots = [
        Slot(name=f"relation_{place}", of=relation, place=place, size_name="n") for place in (1, 2)
    ]
    size, tenure = Integer(name="n", lower=0, upper=2), Integer(name="tenure", lower=0, upper=2)
    weight = Numeric(name="w", edges=EDGES)
    linked = Domain((tenure, weight, size, *slots))
    target = Target(epsilon=0.3, delta=1e-6, n_records=N, n_cells=2, domain=linked)
    found = LinkedMarginals.calibrate(
        LinkedKnobs(weight=SurveyWeight(column="w", strata="tenure")), target
    )
    plain = LinkedMarginals.calibrate(LinkedKnobs(), target)
    frame = {"n_records": N, "n_cells": 2}
    assert found.loss(**frame).mu_squared == plain.loss(**frame).mu_squared
    sizes = rng.integers(0, 3, N)
    persons = [np.where(sizes >= place, rng.integers(0, 3, N), 3) for place in (1, 2)]
    columns = [rng.integers(0, 3, N), rng.integers(0, 3, N), sizes, *persons]
    codes = np.stack(columns, axis=1).astype(np.uint8)
    release = found.release(in_memory(linked, codes), SeededRandomness(np.random.PCG64(2)))
    asked = {pair for pair in itertools.combinations(range(5), 2) if {0, 1} & {*pair}}
    assert asked <= {table.group for table in release.tables}
    assert found.mu**2 * Fraction(99, 100) < spent(release) <= found.mu**2
