"""What every mechanism of the registry has to do, so that a new one inherits these tests.

Its release is in ``test_mechanism_laws.py``, its estimates of counts in
``test_mechanism_estimates.py``, its files in ``test_product_contract.py``.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from contract_cases import BUDGET, NAMES, SERVED, budgets, case, optional_budgets, planned

from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.mechanism import PROOF, Target
from statpress.mechanisms.planning.charges import recompute_charge
from statpress.mechanisms.registry import KINDS, REGISTRY, serving

EPSILONS = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)
ORDERS = (1.5, 2, 8, 40)
ROUNDING = 1 + 1e-9
PROOFS = (Path(__file__).parents[2] / "mechanisms" / "README.md").read_text()
ALL = pytest.mark.parametrize("name", NAMES)


def loss_of(mechanism: Any, target: Target) -> Any:
    return mechanism.loss(**target.frame)


# Where its guarantee is proven


@ALL
def test_it_cites_what_proves_its_guarantee(name: str) -> None:
    cited = REGISTRY[name].citations
    assert any(each.doi or each.arxiv for each in cited)
    for each in cited:
        assert not (each.doi and each.arxiv)
        if each.doi or each.arxiv:
            place = f"doi.org/{each.doi}" if each.doi else f"arxiv.org/abs/{each.arxiv}"
            row = next(line for line in PROOFS.splitlines() if f"{place})" in line)
            assert row.startswith(f"| {each.work}")
        elif each.work == PROOF.work:
            named = re.findall(r"(Theorem|Lemma)s? ([\d.]+)(?: (?:and|to) ([\d.]+))?", each.part)
            assert named
            for kind, *numbers in named:
                assert all(f"**{kind} {number}" in PROOFS for number in numbers if number)
        else:
            assert each.work.split(",")[0] in PROOFS


# The loss


@ALL
def test_its_loss_meets_every_budget_and_not_the_half(name: str) -> None:
    found = case(name)
    for budget in budgets(name):
        target = found.target(**budget)
        loss = loss_of(found.calibrated(**budget), target)
        assert target.allows(loss)
        half = dataclasses.replace(target, epsilon=target.epsilon / 2)
        assert not half.allows(loss)  # twin: it would pass whatever was asked


@ALL
def test_it_meets_another_budget_or_refuses_it(name: str) -> None:
    found = case(name)
    for budget in optional_budgets():
        target = found.target(**budget)
        try:
            made = found.calibrated(**budget)
        except (ConfigError, InfeasibleBudgetError):
            continue
        loss = loss_of(made, target)
        if target.renyi is not None and math.isinf(loss.rho.upper):
            continue  # no divergence is known, and composing uses the curve
        assert target.allows(loss)


@ALL
def test_its_loss_follows_from_public_quantities(name: str) -> None:
    mechanism = REGISTRY[name]
    parameters = inspect.signature(mechanism.loss).parameters
    assert list(parameters) == ["self", "n_records", "n_cells", "unit_records"]
    assert list(inspect.signature(mechanism.calibrate).parameters) == ["knobs", "target"]
    found = case(name)
    again = mechanism.calibrate(found.knobs, found.target())
    assert again.describe() == found.calibrated().describe()
    one, two = (loss_of(each, found.target()) for each in (found.calibrated(), again))
    assert [one.delta(e) for e in EPSILONS] == [two.delta(e) for e in EPSILONS]


@ALL
def test_the_measures_of_its_loss_agree(name: str) -> None:
    found = case(name)
    loss = loss_of(found.calibrated(), found.target())
    curve = [loss.delta(epsilon) for epsilon in EPSILONS]
    assert all(0 <= bounds.lower <= bounds.upper <= 1 for bounds in curve)
    # Far out an upper bound may be the error of a convolution, which is not of one size.
    assert all(after.upper <= before.upper + 1e-12 for before, after in pairwise(curve))
    assert curve[0].lower > 0
    assert loss.attack_advantage == curve[0]
    rho, pure = loss.rho, loss.pure_epsilon
    assert 0 <= rho.lower <= rho.upper
    assert 0 <= pure.lower <= pure.upper
    if REGISTRY[name].pure:
        assert loss.delta(pure.upper * ROUNDING).upper <= 1e-12
    for order in ORDERS:
        divergence = loss.renyi(order)
        assert divergence.lower <= divergence.upper
        assert divergence.lower <= order * rho.upper * ROUNDING
        if math.isfinite(rho.upper):
            assert divergence.upper <= order * rho.upper * ROUNDING
    for delta in (1e-6, 1e-3):
        epsilon = loss.epsilon(delta)
        assert epsilon.lower <= epsilon.upper
        assert loss.delta(epsilon.upper).lower <= delta


# Its description


@ALL
def test_its_description_gives_back_its_loss(name: str) -> None:
    found = case(name)
    made, described = found.calibrated(), found.calibrated().describe()
    assert described["mechanism"] == name == REGISTRY[name].name
    assert {type(value) for value in described.values()} <= {str, int}
    others = {"product": "p", "columns": "x", "epsilon": "1", "unit_records": 1}
    for given in (described, dict(reversed(described.items())), others | described):
        rebuilt: Any = REGISTRY[name].from_description(given)
        assert type(rebuilt) is type(made)
        assert rebuilt.describe() == described
        for epsilon in EPSILONS:
            ours, theirs = (
                loss_of(each, found.target()).delta(epsilon) for each in (made, rebuilt)
            )
            assert ours == theirs
    larger = found.calibrated(epsilon=4.0, delta=1e-3)
    assert larger.describe() != described  # twin: a description that leaves out its parameters
    for key in set(described) - {"mechanism"}:
        if described[key] != larger.describe()[key]:
            lacking = {each: value for each, value in described.items() if each != key}
            with pytest.raises(KeyError):
                REGISTRY[name].from_description(lacking)


# Its expected errors


@ALL
def test_its_expected_errors_are_worded_and_comparable(name: str) -> None:
    found = case(name)
    made = found.calibrated()
    sizes = {"n_records": found.n_records, "n_cells": found.domain.n_possible}
    error = made.expected_error(**sizes)
    assert error == made.expected_error(**sizes)
    fields = {each.name for each in dataclasses.fields(error)}
    assert "\n" not in error.summary()
    assert error.summary().strip()
    for kind in REGISTRY[name].kinds:
        compared = kind.expected_error(made, found.target())
        rows = list(kind.error_rows(made, compared))
        assert rows and all(value.strip() for _, value in rows)
        assert rows[0][0].strip()
        assert all("\n" not in label + value for label, value in rows)
        for criterion in kind.criteria:
            assert 0 <= compared.deciding(criterion) <= math.inf
        known = {each.name for each in dataclasses.fields(compared)}
        assert fields <= known
        assert set(kind.compared) <= known
        assert kind.label(made).startswith(name)
        assert kind.draws(made, found.domain.n_possible) >= 0
        assert isinstance(kind.objection(made, found.target()), str)
        generous = found.calibrated(epsilon=4.0, delta=1e-3)
        better = kind.expected_error(generous, found.target())
        criterion = kind.criterion(found.knobs)
        assert better.deciding(criterion) <= compared.deciding(criterion)


# Planning


@pytest.mark.parametrize(("name", "kind"), SERVED)
def test_a_plan_with_it_keeps_the_budget(name: str, kind: str) -> None:
    plan = planned(name, kind)
    (product,) = plan.products
    assert product.mechanism.name == name
    assert product.kind.name == kind
    assert BUDGET.epsilon is not None
    assert 0 < plan.epsilon <= BUDGET.epsilon
    assert plan.delta <= BUDGET.delta
    (described,) = plan.describe()
    again = recompute_charge([described], epsilon=plan.epsilon, delta=plan.delta)
    assert again["epsilon"] <= plan.epsilon
    assert serving(KINDS[kind]).count(REGISTRY[name]) == 1
