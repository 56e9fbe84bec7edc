"""Mechanisms under add-remove: exact losses by enumeration, and nothing that reads the size."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from coded import domain_of, in_memory
from contract_cases import BUDGET, NAMES, case, tiny_case
from exact_laws import has_law, law_of
from neighbouring import tables

from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain, Privacy, Size
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.marginals import KnownTotal, Marginals, MarginalsKnobs
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.charges import described_loss
from statpress.mechanisms.planning.choice import AUTO, ProductRequest
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.postprocessing.covariance import EstimatedTotal
from statpress.mechanisms.registry import KINDS, REGISTRY
from statpress.mechanisms.tables.perturbed import GaussianTable, LaplaceTable, PerturbedKnobs
from statpress.tasks.release.entropy import SeededRandomness

ADDED, REPLACED = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
EPSILONS = (0.0, 0.3, 0.7, 1.2, 2.0, 3.0)
SERVING = [name for name in NAMES if ADDED in getattr(REGISTRY[name], "adjacencies", ())]
ENUMERATED = [name for name in SERVING if has_law(REGISTRY[name])]
PRIVACY = Privacy(adjacency=ADDED, unit="record", n_records=200, size=Size.ROUGH)


def added(n_cells: int, unit_records: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tables, each with all that it can be once a unit is there too."""
    units = [u for k in range(unit_records + 1) for u in tables(k, n_cells)]
    return [
        (table, tuple(a + b for a, b in zip(table, unit, strict=True)))
        for n in range(3)
        for table in tables(n, n_cells)
        for unit in units
    ]


def made(name: str, n_cells: int, unit_records: int = 1, epsilon: float = 1.0) -> Any:
    found = tiny_case(name)
    delta = 0.0 if REGISTRY[name].pure else 0.01
    target = Target(
        epsilon=epsilon,
        delta=delta,
        n_records=9,
        n_cells=n_cells,
        unit_records=unit_records,
        adjacency=ADDED,
    )
    return found.mechanism.calibrate(found.knobs, target)


def furthest(released: Any, n_cells: int, unit_records: int, epsilon: float) -> float:
    """The largest divergence of a release with a unit from one without, in either order."""
    found = 0.0
    for one, two in added(n_cells, unit_records):
        first, second = law_of(released, one), law_of(released, two)
        found = max(found, first.divergence(second, epsilon), second.divergence(first, epsilon))
    return found


def test_some_mechanisms_serve_it() -> None:
    assert {"laplace", "gaussian", "marginals"} <= set(SERVING)


@pytest.mark.parametrize("unit_records", [1, 2])
@pytest.mark.parametrize("n_cells", [1, 3])
@pytest.mark.parametrize("name", ENUMERATED)
def test_the_loss_is_the_worst_over_all_neighbours(
    name: str, n_cells: int, unit_records: int
) -> None:
    mechanism = made(name, n_cells, unit_records)
    frame = {"n_records": 9, "n_cells": n_cells, "unit_records": unit_records}
    loss = mechanism.loss(**frame)
    worst = {epsilon: furthest(mechanism, n_cells, unit_records, epsilon) for epsilon in EPSILONS}
    for epsilon, found in worst.items():
        assert found <= loss.delta(epsilon).upper + 1e-11
        if unit_records == 1 or not mechanism.is_laplace:  # else it is charged somewhat more
            assert found == pytest.approx(loss.delta(epsilon).upper, abs=1e-9)
    louder = made(name, n_cells, unit_records, 16.0)  # twin: too little noise
    assert furthest(louder, n_cells, unit_records, 1.0) > loss.delta(1.0).upper
    fewer = mechanism.loss(**{**frame, "unit_records": unit_records - 1 or 1})
    if unit_records > 1:  # twin: a record of the unit forgotten
        assert worst[0.3] > fewer.delta(0.3).upper


@pytest.mark.parametrize("name", ENUMERATED)
def test_one_cell_is_the_private_size_and_not_free(name: str) -> None:
    """Twin: the rule of replace-one, where the count of a single cell is public."""
    mechanism = made(name, 1)
    assert mechanism.loss(n_records=9, n_cells=1).delta(0.0).upper > 0.1
    free = type(mechanism)(mechanism.scale).loss(n_records=9, n_cells=1)
    assert furthest(mechanism, 1, 1, 0.0) > free.delta(0.0).upper


@pytest.mark.parametrize("name", ENUMERATED)
def test_a_record_that_is_replaced_is_two_moves(name: str) -> None:
    """Twin: add-remove's loss for a replaced record, which moves two cells."""
    mechanism, found = made(name, 3), 0.0
    for one, two in itertools.permutations(tables(2, 3), 2):
        if sum(abs(a - b) for a, b in zip(one, two, strict=True)) == 2:
            found = max(found, law_of(mechanism, one).divergence(law_of(mechanism, two), 0.3))
    assert found > mechanism.loss(n_records=9, n_cells=3).delta(0.3).upper
    replaced = type(mechanism)(mechanism.scale).loss(n_records=9, n_cells=3)
    assert found == pytest.approx(replaced.delta(0.3).upper, abs=1e-9)


def test_noise_meets_the_budget_and_no_more() -> None:
    """One cell moves by one: Laplace noise of 1/epsilon, and sqrt(2) less Gaussian noise."""
    frame = {"n_records": 1000, "n_cells": 20}
    pure = Target(epsilon=0.5, delta=0.0, **frame, adjacency=ADDED)
    assert float(LaplaceTable.calibrate(PerturbedKnobs(), pure).scale) == pytest.approx(2, 1e-3)
    one, two = (
        GaussianTable.calibrate(
            PerturbedKnobs(), Target(epsilon=0.5, delta=1e-6, **frame, adjacency=each)
        ).sd
        for each in (ADDED, REPLACED)
    )
    assert two / one == pytest.approx(2**0.5, 3e-3)


@pytest.mark.parametrize("name", SERVING)
def test_a_description_gives_the_loss_back_and_names_the_relation(name: str) -> None:
    found = case(name)
    mechanism = found.calibrated(adjacency=ADDED)
    described = mechanism.describe()
    assert described["adjacency"] == "add_remove"
    assert type(mechanism).from_description(described) == mechanism
    frame = {"n_records": 200, "n_cells": found.domain.n_possible, "unit_records": 1}
    again = described_loss(described | frame | {"n_cells": str(frame["n_cells"])})
    assert again.delta(0.5) == mechanism.loss(**frame).delta(0.5)
    assert "adjacency" not in found.calibrated().describe()


class Counted:
    """Coded columns whose number of records nobody may read."""

    def __init__(self, coded: Any) -> None:
        self.domain, self.tables = coded.domain, coded.tables
        self.table_at, self.room = coded.table_at, coded.room

    @property
    def n_records(self) -> int:
        raise AssertionError("the private size was read")


class Unread(ContingencyTable):
    """A table whose number of records nobody may read."""

    @property
    def n_records(self) -> int:
        raise AssertionError("the size was read")


@pytest.mark.parametrize("name", SERVING)
def test_no_release_reads_the_number_of_records(name: str) -> None:
    found = case(name)
    mechanism, private = found.calibrated(adjacency=ADDED), found.private
    rng, n_records = SeededRandomness(np.random.PCG64(1)), found.n_records
    if mechanism.needs == "columns":
        private = Counted(private)
    else:
        private = Unread(private.domain, private.cells, private.counts)
    total = mechanism.total(mechanism.release(private, rng))
    assert abs(total.value - n_records) < 8 * math.sqrt(total.variance)
    if mechanism.needs == "columns":  # twin: under replace-one it is read, being public
        with pytest.raises(AssertionError, match="private size"):
            found.calibrated().release(private, rng)


@pytest.mark.parametrize("name", SERVING)
def test_the_estimated_total_has_its_stated_variance(name: str) -> None:
    found = case(name)
    mechanism, private = found.calibrated(adjacency=ADDED), found.private
    rng = SeededRandomness(np.random.PCG64(7))
    totals = [mechanism.total(mechanism.release(private, rng)) for _ in range(90)]
    scaled = [(each.value - found.n_records) / math.sqrt(each.variance) for each in totals]
    assert abs(np.mean(scaled)) < 5 / math.sqrt(len(scaled))
    assert 0.75 < np.std(scaled) < 1.25
    assert not 0.75 < np.std(scaled) / 2 < 1.25  # twin: half the noise


def test_totals_are_combined_by_their_variances() -> None:
    one, two = EstimatedTotal(90.0, 4.0), EstimatedTotal(100.0, 1.0)
    both = EstimatedTotal.combined([one, two])
    assert (both.value, both.variance) == (pytest.approx(98.0), pytest.approx(0.8))
    assert one.times(3) == EstimatedTotal(270.0, 36.0)
    assert (both.records, EstimatedTotal(-7.0, 1.0).records) == (98, 1)


def test_marginals_spend_the_whole_of_mu_and_no_more() -> None:
    """Every spending of one release, of Gaussian steps with the sensitivities of add-remove."""
    sizes = (3, 4, 2, 5)
    domain = domain_of(sizes)
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, k, 500) for k in sizes], axis=1).astype(np.uint8)
    target = Target(
        epsilon=1.0, delta=1e-6, n_records=400, n_cells=2, domain=domain, adjacency=ADDED
    )
    mechanism = Marginals.calibrate(MarginalsKnobs(), target)
    found = mechanism.release(in_memory(domain, codes), SeededRandomness(np.random.PCG64(3)))
    tables_spent = sum(1 / each.variance for each in (*found.one_way, *found.tables))
    assert found.scores is not None
    spent = tables_spent + len(found.scores.pairs) / found.scores.sigma**2
    assert spent == pytest.approx(float(mechanism.mu) ** 2, rel=1e-6)
    assert mechanism.loss(n_records=400, n_cells=2).delta(1.0) == GaussianLoss(mechanism.mu).delta(
        1.0
    )
    assert found.n_records is None and found.n_present is None
    published = mechanism.postprocess(found)
    assert len(published.codes[0]) == round(float(found.residuals().values[()]))


def test_known_totals_state_the_size_and_are_refused() -> None:
    domain = domain_of((2, 2))
    target = Target(epsilon=1.0, delta=1e-6, n_records=4, n_cells=2, domain=domain, adjacency=ADDED)
    known = {domain.names[0]: KnownTotal(counts=(1, 3))}
    with pytest.raises(ConfigError, match="number of records is private"):
        Marginals.calibrate(MarginalsKnobs(known=known), target)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(SERVING)))
def test_other_mechanisms_say_what_to_use(name: str) -> None:
    found = case(name)
    request = ProductRequest(
        name="p",
        kind=found.mechanism.kinds[0],
        mechanism=name,
        knobs=found.knobs,
        columns=found.domain.names,
        share=Decimal(1),
    )
    with pytest.raises(ConfigError, match=f"'{name}' serves only replace_one") as refused:
        plan_release([request], domain=found.domain, privacy=PRIVACY, budget=BUDGET)
    assert "'gaussian' or 'laplace'" in refused.value.next_step


@pytest.mark.parametrize("kind", ["table", "microdata"])
def test_auto_chooses_among_those_that_serve_it(kind: str) -> None:
    found = case("gaussian")
    request = ProductRequest(
        name="p",
        kind=KINDS[kind],
        mechanism=AUTO,
        knobs=KINDS[kind].left_open(),
        columns=found.domain.names,
        share=Decimal(1),
    )
    plan = plan_release([request], domain=found.domain, privacy=PRIVACY, budget=BUDGET)
    assert plan.products[0].mechanism.name in SERVING
    assert plan.epsilon <= 1


def test_a_private_size_is_only_a_rough_one() -> None:
    for size in (Size.DECLARED, Size.FROM_SOURCE):
        with pytest.raises(ConfigError, match="the size is private"):
            Privacy(adjacency=ADDED, unit="record", n_records=200, size=size)


def test_a_table_of_one_cell_counts_the_records() -> None:
    domain = Domain((tiny_case("gaussian").domain.columns[0],))
    one = Domain((type(domain.columns[0])(name="all", lower=0, upper=0),))
    request = ProductRequest(
        name="p",
        kind=KINDS["table"],
        mechanism="laplace",
        knobs=PerturbedKnobs(scale=Fraction(3)),
        columns=one.names,
        share=Decimal(1),
    )
    plan = plan_release([request], domain=one, privacy=PRIVACY, budget=BUDGET)
    assert float(plan.epsilon) == pytest.approx(1 / 3, rel=1e-2)
