"""Records are fitted to all that their release measured of their columns, whatever the product."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from coded import dependent_codes, domain_of, in_memory

from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, Privacy, ZeroPattern
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.marginals.marginals import ColumnGroup, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import NoisySum, NoisyTable
from statpress.mechanisms.planning.choice import Budget, ProductRequest
from statpress.mechanisms.planning.plan import Plan
from statpress.mechanisms.planning.planner import plan_release
from statpress.mechanisms.registry import KINDS
from statpress.mechanisms.tables.perturbed import PerturbedKnobs
from statpress.tasks.products.beside import differences, with_beside
from statpress.tasks.products.marginal_product import kept_in_words
from statpress.tasks.products.product_kind import kind_of
from statpress.tasks.release.build import derive
from statpress.tasks.release.entropy import SeededRandomness

SIZES, N = (6, 5, 4), 2000
CODES = dependent_codes(N, SIZES, 3, strength=0.8)
PRODUCTS = {
    "records": ("microdata", "marginals", MarginalsKnobs(), ("c0", "c1", "c2"), "0.1"),
    "pair": ("table", "gaussian", PerturbedKnobs(), ("c1", "c0"), "0.6"),
    "single": ("table", "laplace", PerturbedKnobs(), ("c2",), "0.1"),
    "mean": ("estimate", "joint_moments", EstimandKnobs(statistic="mean"), ("c1",), "0.1"),
    "three": ("table", "gaussian", PerturbedKnobs(), ("c0", "c1", "c2"), "0.1"),
}


def plan_of(domain: Domain, **knobs_of: Any) -> Plan:
    requests = [
        ProductRequest(
            name=name,
            kind=KINDS[kind],
            mechanism=mechanism,
            knobs=knobs_of.get(name, knobs),
            columns=columns,
            share=Decimal(share),
        )
        for name, (kind, mechanism, knobs, columns, share) in PRODUCTS.items()
    ]
    privacy = Privacy(adjacency="replace_one", unit="record", n_records=N)
    budget = Budget(epsilon=Decimal(1), delta=Decimal("1e-6"))
    return plan_release(requests, domain=domain, privacy=privacy, budget=budget)


PLAN = plan_of(domain_of(SIZES))


def counted(group: tuple[int, ...]) -> np.ndarray:
    (table,) = in_memory(domain_of(SIZES), CODES).tables([group])
    return table


def drawn_of(plan: Plan, seed: int) -> dict[str, Any]:
    drawn = {}
    for place, product in enumerate(plan.products):
        rng = SeededRandomness(np.random.PCG64([seed, place]))
        private: Any = in_memory(product.domain, CODES)
        if product.mechanism.needs != "columns":
            cells = np.ravel_multi_index(
                [CODES[:, int(name[1])] for name in product.domain.names],
                [column.size for column in product.domain.columns],
            )
            private = ContingencyTable(product.domain, *np.unique(cells, return_counts=True))
        drawn[product.name] = product.mechanism.release(private, rng)
    return drawn


def pair_error(microdata: Any) -> float:
    records = np.zeros(SIZES[:2])
    np.add.at(records, (microdata.codes[0], microdata.codes[1]), 1)
    return float(np.abs(records - counted((0, 1))).sum()) / 2 / N


def test_what_bears_on_the_columns_stands_beside_with_its_noise() -> None:
    """By what was drawn, in the order of the records' columns; tables of three do not enter."""
    drawn = drawn_of(PLAN, 1)
    pair, single, mean = with_beside(PLAN.products[0], PLAN, drawn).beside
    noise = {product.name: product.mechanism for product in PLAN.products}
    assert isinstance(pair, NoisyTable) and pair.group == (0, 1)
    assert np.array_equal(pair.counts, drawn["pair"].counts.reshape(SIZES[1], SIZES[0]).T)
    assert isinstance(single, NoisyTable) and single.group == (2,)
    for found, name in ((pair, "pair"), (single, "single")):
        assert found.variance == pytest.approx(noise[name].sd ** 2)
    assert isinstance(mean, NoisySum) and mean.column == 1
    (estimate,) = noise["mean"].estimates(drawn["mean"])
    assert mean.value / N * (SIZES[1] - 1) == pytest.approx(estimate.value)
    assert mean.variance**0.5 == pytest.approx(noise["mean"].moments.sigma)
    assert abs(mean.value - mean.weights @ counted((1,))) < 5 * mean.variance**0.5
    for product in PLAN.products[1:]:
        assert with_beside(product, PLAN, drawn) is drawn[product.name]


def test_columns_declared_otherwise_and_impossible_cells_do_not_enter() -> None:
    drawn = drawn_of(PLAN, 1)
    records, *others = PLAN.products

    def entering(domain: Domain) -> list[type]:
        changed = [dataclasses.replace(p, domain=domain.project(p.domain.names)) for p in others]
        plan = dataclasses.replace(PLAN, products=(records, *changed))
        return [type(each) for each in with_beside(records, plan, drawn).beside]

    assert entering(domain_of(SIZES)) == [NoisyTable, NoisyTable, NoisySum]
    assert entering(domain_of((6, 5, 9))) == [NoisyTable, NoisySum]  # without c2
    assert entering(domain_of((6, 9, 4))) == [NoisyTable]  # only c2
    zeros = (ZeroPattern((("c0", ((0, 0),)), ("c1", ((0, 0),)))),)
    assert entering(domain_of(SIZES, zeros)) == [NoisyTable, NoisySum]  # without the pair


def test_records_are_nearer_to_a_precise_table_beside_and_the_own_tables_stay() -> None:
    """Twin: the same products, each by itself."""
    errors = []
    for seed in range(3):
        drawn = drawn_of(PLAN, seed)
        records = PLAN.products[0]
        together = derive(PLAN, drawn).derived["records"].microdata
        apart = records.mechanism.postprocess(drawn["records"])
        errors.append([pair_error(together), pair_error(apart)])
        assert together.residuals.variances == apart.residuals.variances
        for group, values in apart.residuals.values.items():
            assert np.array_equal(together.residuals.values[group], values)
    mean = np.mean(errors, axis=0)
    assert mean[0] < 0.7 * mean[1], mean


def test_a_pair_that_only_another_product_measured_is_one_that_is_not_in_the_own_tables() -> None:
    """Its relation is said, and neither an error nor what was kept by the own tables."""
    pairs = (ColumnGroup(columns=("c1", "c2")),)
    plan = plan_of(domain_of(SIZES), records=MarginalsKnobs(pairs=pairs))
    derived = derive(plan, drawn_of(plan, 2)).derived["records"]
    files = kind_of(plan.products[0]).publication(plan.products[0], derived).tables
    (arrays,) = files[-1].rows.batches()
    rows = dict(
        zip(files[-1].rows.schema.names, (each.to_pylist() for each in arrays), strict=True)
    )
    assert rows["relation"] == ["measured elsewhere", "assumed independent", "measured"]
    assert [error is None for error in rows["standard_error"]] == [True, True, False]
    listed = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    assert "1 was measured by another product" in kept_in_words(listed)


def test_nothing_enters_where_a_column_names_the_units() -> None:
    """Even if each has one record: products may have kept another one of a unit's."""
    drawn = drawn_of(PLAN, 1)
    privacy = Privacy.of_units(adjacency="replace_one", column="who", max_records=1, n_units=N)
    plan = dataclasses.replace(PLAN, privacy=privacy)
    assert with_beside(PLAN.products[0], plan, drawn) is drawn["records"]
    assert differences(plan, drawn, derive(plan, drawn).derived) == []
    assert with_beside(PLAN.products[0], PLAN, drawn) is not drawn["records"]


def test_records_that_are_apart_from_a_figure_are_said_to_be() -> None:
    """Hardly ever where they were fitted to it; always where they were not and it is far."""
    said = []
    for seed in range(10):
        drawn = drawn_of(PLAN, seed)
        derived = derive(PLAN, drawn).derived
        said += differences(PLAN, drawn, derived)
    assert len(said) <= 1, said
    total, counts = drawn["mean"].numbers["sum"][0], drawn["single"].counts
    noise = {product.name: product.mechanism for product in PLAN.products}
    far = int(12 * noise["mean"].moments.scale)
    moved = drawn | {
        "mean": dataclasses.replace(
            drawn["mean"], numbers=drawn["mean"].numbers | {"sum": (total + far,)}
        ),
        "single": dataclasses.replace(drawn["single"], counts=np.roll(counts, 1)),
    }
    texts = differences(PLAN, moved, derived)
    assert [text.split(" by ")[0].split(" from ")[1] for text in texts] == ["single", "mean"]


def test_the_same_release_gives_the_same_records() -> None:
    drawn = drawn_of(PLAN, 7)
    one, two = (derive(PLAN, drawn).derived["records"].microdata for _ in range(2))
    assert all(map(np.array_equal, one.codes, two.codes))
    raw = with_beside(PLAN.products[0], PLAN, drawn)
    for beside in (raw.beside[1:], raw.beside[:-1]):  # each of them seeds the records
        changed = dataclasses.replace(raw, beside=beside).public_generator()
        assert changed.integers(2**62) != raw.public_generator().integers(2**62)
