"""``statpress audit``: made-up neighbours through the engine, without a source or a ledger."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from households import CONFIG as OF_HOUSEHOLDS

from statpress.configs.loading import PlannedOrder
from statpress.configs.order import Order
from statpress.flows.cli import app
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.errors import AuditError, ConfigError, OutputNotWritableError
from statpress.mechanisms.marginals.measurement import references
from statpress.mechanisms.sampling.randomness import NoNoise
from statpress.mechanisms.tables.perturbed import GaussianTable
from statpress.tasks.release.audit import _counted, audit
from statpress.tasks.release.entropy import generator_of_made_up
from statpress.tasks.release.made_up import Neighbours

CONFIG = """
title: Pay & <conditions>
dataset: testdata
source: {{path: not_there.parquet}}
privacy: {{adjacency: replace_one, {unit}}}
budget: {{epsilon: 6, delta: 1.0e-6}}
domain:
  region: {{type: categorical, categories: [north, south, east], other: true, missing: true}}
  age: {{type: integer, lower: 0, upper: 99, width: 20}}
  pay: {{type: numeric, lower: 0, upper: 10, bins: 5}}
  born: {{type: date, first: 2000-01-01, last: 2000-06-30, by: month}}
{more}products:
  {products}
publish: {{directory: releases}}
"""
RECORDS = "unit: record, n_records: 400"
ONE_PAIR = "{kind: microdata, mechanism: marginals, columns: [region, pay], screen: 'no'}"
MARGINALS = "{kind: microdata, mechanism: marginals, columns: [region, pay, born]}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATPRESS_HOME", str(tmp_path / "home"))
    return tmp_path


def planned(folder: Path, products: str, *, unit: str = RECORDS, more: str = "") -> PlannedOrder:
    path = folder / "release.yaml"
    path.write_text(CONFIG.format(products=products, unit=unit, more=more))
    return PlannedOrder.of(Order(path))


def counted(order: PlannedOrder, folder: Path) -> list[Any]:
    """What the mechanism of the first product is given of each made-up source."""
    (product, *_) = order.plan.products
    neighbours = Neighbours.of(order.release, product)
    return [_counted(order.release, order.plan, product, neighbours, folder, s) for s in (0, 1)]


def command(folder: Path, *options: str) -> dict[str, Any]:
    words = ["audit", str(folder / "release.yaml"), "--json", *options]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        app(words, exit_on_error=False)
    facts: dict[str, Any] = json.loads(out.getvalue())
    return facts


def test_every_product_has_its_claim_its_bounds_and_its_twin(folder: Path) -> None:
    planned(
        folder,
        "ages: {kind: table, mechanism: gaussian, columns: [age], share: 0.33}\n"
        "  pays: {kind: estimate, statistic: mean, columns: [pay], mechanism: joint_moments, "
        "share: 0.33}\n"
        "  middle: {kind: estimate, statistic: median, columns: [pay], mechanism: noisy_quantile}",
    )
    page = folder / "audit.html"
    budget = "--set=budget.epsilon=12"
    seed = "--insecure-seed=4"
    facts = command(folder, "--runs=500", seed, budget, "--html", str(page))
    assert facts["proof"] is False
    assert facts["runs"] == 500
    for name in ("ages", "pays"):
        product = facts["products"][name]
        assert product["twin_caught"] is True
        assert product["contradicted"] is False
        assert product["twin"]["mu"] > product["claim"]["mu"]
        assert 0 < product["published"]["mu"] <= product["claim"]["mu"]
        assert 0.6 < product["share_of_ideal"] < 1.4
        assert product["ideal"]["mu"] < product["claim"]["mu"]
    unknown = facts["products"]["middle"]
    assert unknown["likelihood_ratio"] is None
    assert unknown["verdict"].startswith("Not audited")
    text = page.read_text()
    assert "no proof of privacy" in text
    assert "Pay &amp; &lt;conditions&gt;" in text
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    assert {each.name for each in folder.iterdir()} == {"release.yaml", "audit.html"}


def test_a_page_that_cannot_be_written_is_refused_first(folder: Path) -> None:
    planned(folder, "ages: {kind: table, mechanism: gaussian, columns: [age]}")
    with pytest.raises(OutputNotWritableError):
        command(folder, "--html", str(folder / "not_there" / "audit.html"))


def test_a_mechanism_with_half_its_noise_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(folder, "ages: {kind: table, mechanism: gaussian, columns: [age]}")
    monkeypatch.setattr(
        GaussianTable, "_noise", lambda self, rng, size: rng.discrete_gaussian(self.scale / 2, size)
    )
    with pytest.raises(AuditError) as caught:
        command(folder, "--runs", "500", "--insecure-seed", "4")
    assert "ages" in caught.value.where
    assert "gives away at least" in caught.value.what


@pytest.mark.parametrize(
    ("product", "runs", "blind"),
    [
        ("{kind: table, mechanism: laplace, columns: [age]}", 300, 300),
        ("{kind: table, mechanism: bootstrap, columns: [age]}", 300, 300),
        (ONE_PAIR, 200, 4),
        pytest.param(MARGINALS, 100, 100, marks=pytest.mark.nightly),
    ],
)
def test_twins_of_other_mechanisms_are_caught_and_they_are_not(
    folder: Path, product: str, runs: int, blind: int
) -> None:
    """Records by marginals take long to make, so that few are looked at."""
    order = planned(folder, f"it: {product}")
    (found,) = audit(
        order.release, order.plan, runs=runs, blind_runs=blind, announce=lambda text: None,
        insecure_seed=8,
    )  # fmt: skip
    assert found.caught
    assert not found.contradicted
    assert found.blind is not None and found.blind_runs == blind


def households(folder: Path) -> PlannedOrder:
    path = folder / "release.yaml"
    text = OF_HOUSEHOLDS.replace("epsilon: 3", "epsilon: 8")
    path.write_text(text.replace("upper: 90,", "upper: 89, width: 15,"))
    return PlannedOrder.of(Order(path))


def test_one_household_moves_with_all_its_persons(folder: Path) -> None:
    """Counted from two files, and in every table of its columns in two cells."""
    order = households(folder)
    (product,) = order.plan.products
    one, other = counted(order, folder)
    assert one.domain.names == product.domain.names
    every = range(len(one.domain.names))
    groups = [(a, b) for a in every for b in every if a < b]
    for table, moved in zip(one.tables(groups), other.tables(groups), strict=True):
        assert table.sum() == moved.sum() == 400
        assert np.abs(table - moved).sum() == 2
    place = one.domain.names.index("n_persons")
    (sizes,), (moved_sizes,) = one.tables([(place,)]), other.tables([(place,)])
    assert np.flatnonzero(sizes - moved_sizes).tolist() == [0, 3]  # nobody, and three persons


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("runs", "blind"), [(12, 2), pytest.param(200, 100, marks=pytest.mark.nightly)]
)
def test_households_are_audited(folder: Path, runs: int, blind: int) -> None:
    order = households(folder)
    (found,) = audit(
        order.release, order.plan, runs=runs, blind_runs=blind, announce=lambda text: None,
        insecure_seed=8,
    )  # fmt: skip
    assert not found.contradicted
    assert found.blind is not None and found.blind_runs == blind
    assert found.raw is not None and found.twin is not None
    assert found.raw.mu < found.twin.mu
    if runs == 200:
        assert found.caught


@pytest.mark.parametrize(
    ("unit", "moved"),
    [(RECORDS, 1), ("unit: {column: person, max_records: 3}, n_units: 50", 3)],
)
def test_one_unit_moves_and_nothing_else(folder: Path, unit: str, moved: int) -> None:
    zeros = "structural_zeros:\n  - {region: [south], age: {lower: 80}}\n"
    products = "it: {kind: table, mechanism: gaussian, columns: [region, age]}"
    order = planned(folder, products, unit=unit, more=zeros)
    one, other = counted(order, folder)
    cells = np.union1d(one.cells, other.cells)
    change = one.at(cells) - other.at(cells)
    assert sorted(change[change != 0].tolist()) == [-moved, moved]
    assert one.n_records == other.n_records == order.release.privacy.n_records


@pytest.mark.parametrize(("per", "records"), [("unit", 1), ("record", 3)])
def test_a_unit_moves_an_estimate_as_far_as_is_charged(
    folder: Path, per: str, records: int
) -> None:
    unit = "unit: {column: person, max_records: 3}, n_units: 50"
    counted_as = f"values: [south], columns: [region], mechanism: joint_moments, per: {per}"
    order = planned(folder, f"it: {{kind: estimate, statistic: count, {counted_as}}}", unit=unit)
    one, other = counted(order, folder)
    mechanism = order.plan.products[0].mechanism
    told = mechanism.evidence(one, other)(mechanism.release(one, NoNoise()))
    loss = mechanism.loss(n_records=150, n_cells=2, unit_records=records)
    assert told == pytest.approx(float(loss.mu_squared) / 2, rel=1e-5)
    assert one.n_records == other.n_records == 50 * records


def test_what_cannot_be_made_up_is_refused(folder: Path) -> None:
    products = "it: {kind: table, mechanism: gaussian, columns: [age]}"
    unit = "unit: {column: region, max_records: 3}, n_units: 50"
    order = planned(folder, products, unit=unit)
    with pytest.raises(ConfigError, match="names the unit"):
        counted(order, folder)


@pytest.mark.nightly
def test_the_move_attains_the_loss_of_tables_and_scores(folder: Path) -> None:
    """Every table moves by one in two cells, every score by two, as far as any may."""
    columns = "[region, age, pay, born]"
    order = planned(folder, f"it: {{kind: microdata, mechanism: marginals, columns: {columns}}}")
    one, other = counted(order, folder)
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    for table, moved in zip(one.tables(pairs), other.tables(pairs), strict=True):
        assert np.abs(table - moved).sum() == ((table - moved) ** 2).sum() == 2
    n = one.n_records
    shares = [table / n for table in one.tables([(c,) for c in range(4)])]
    fixed = references(pairs, n, shares)
    for pair, table, moved in zip(pairs, one.tables(pairs), other.tables(pairs), strict=True):
        distances = (int(np.abs(each - fixed[pair]).sum()) for each in (table, moved))
        assert abs(next(distances) - next(distances)) == 2
    # In all the evidence has the mean mu^2/2 that it has for the pair of the claim.
    (product,) = order.plan.products
    rng, evidence = generator_of_made_up(insecure_seed=9), product.mechanism.evidence(one, other)
    told = np.array([evidence(product.mechanism.release(one, rng)) for _ in range(200)])
    mu_squared = float(product.mechanism.mu) ** 2
    error = 5 * np.sqrt(mu_squared / len(told))
    assert abs(told.mean() - mu_squared / 2) < error
    assert told.var() == pytest.approx(mu_squared, rel=0.6)


def test_an_estimate_moves_between_the_ends_that_its_condition_allows(folder: Path) -> None:
    order = planned(
        folder,
        "it: {kind: estimate, statistic: sum, columns: [pay], mechanism: joint_moments,"
        " where: {column: region, values: [south]}}",
    )
    one, other = counted(order, folder)
    assert isinstance(one, ContingencyTable)
    (product,) = order.plan.products
    mechanism = product.mechanism
    told = mechanism.evidence(one, other)(mechanism.release(one, NoNoise()))
    most = float(mechanism.moments.loss().mu_squared) / 2
    assert 0.95 * most < told <= most * (1 + 1e-9)
