"""The cost of a classifier that its config leaves open."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.functions import bernstein
from statpress.mechanisms.functions.bernstein import (
    FunctionRelease,
    at_default_cost,
    expected_wrong,
)
from statpress.mechanisms.functions.function_targets import FunctionKnobs
from statpress.mechanisms.functions.lattice_release import BernsteinMechanism
from statpress.mechanisms.functions.released_function import evaluate_grid
from statpress.mechanisms.functions.risk import EmpiricalRisk
from statpress.mechanisms.mechanism import Target

SIDE = Numeric.uniform_edges(0, 1, 12)
LABEL = Categorical(name="label", categories=("no", "yes"))


def release(n: int, epsilon: float, *, d: int = 1, delta: float = 1e-6, **said: Any) -> Any:
    columns = [Numeric(name=f"x{i}", edges=SIDE) for i in range(d)]
    beside = Numeric(name="pay", edges=SIDE) if "response" in said else LABEL
    domain = Domain((*columns, beside))
    target = Target(
        epsilon=epsilon, delta=delta, n_records=n, n_cells=domain.n_cells, domain=domain
    )
    knobs = FunctionKnobs(**({"label": "label"} | said if "response" not in said else said))
    return FunctionRelease.calibrate(knobs, target)


def cost_of(found: FunctionRelease) -> float:
    assert found.mechanism is not None and isinstance(found.mechanism.learner, EmpiricalRisk)
    return found.mechanism.learner.cost


@functools.cache
def small_release(name: str) -> Any:
    return release(500, 0.05, target=name)


@pytest.mark.parametrize("name", ["logistic", pytest.param("svm", marks=pytest.mark.nightly)])
def test_it_rises_with_what_the_budget_lets_one_see(name: str) -> None:
    small = small_release(name)
    middling, large = release(5000, 0.5, target=name), release(10**5, 3, target=name)
    assert 1 <= cost_of(small) < cost_of(middling) <= cost_of(large)  # hinges have an end
    assert name == "svm" or cost_of(middling) < cost_of(large)
    assert all(math.log2(cost_of(each)).is_integer() for each in (small, middling, large))
    assert f", C = {cost_of(large):g} by default" in str(large.describe()["function"])
    assert FunctionRelease.from_description(large.describe()) == large


def test_what_a_config_says_is_obeyed_and_a_ridge_keeps_1() -> None:
    found = release(10**6, 3.0, target="logistic", cost=1.0)
    assert cost_of(found) == 1 and found.words == "logistic regression, log odds of label, C = 1"
    ridge = release(10**6, 3.0, target="ridge", response="pay")
    assert cost_of(ridge) == 1 and ridge.words.endswith("C = 1 by default")


def test_nothing_but_the_budget_and_the_declaration_decides() -> None:
    assert release(500, 0.05, target="logistic") == small_release("logistic")
    with pytest.raises(InfeasibleBudgetError, match="delta"):
        release(500, 0.05, delta=0.0, target="logistic", noise="gaussian")


@pytest.mark.parametrize(("name", "noise"), [("logistic", "laplace"), ("svm", "gaussian")])
def test_the_expected_error_is_that_of_simulated_noise(name: str, noise: Any) -> None:
    """On the second reference, through the operator; with half the noise it is not."""
    mechanism = release(2000, 0.3, target=name, cost=32.0, noise=noise, d=2).mechanism
    d, middles = 2, bernstein._middles(bernstein._SIDE[2])
    rng, found = np.random.default_rng(5), []
    draw = rng.laplace if noise == "laplace" else rng.normal
    lattice_points = bernstein._grid(np.arange(mechanism.degree + 1) / mechanism.degree, d)
    places = bernstein._grid(middles, d)
    learner = mechanism.learner
    around = bernstein._kernel(lattice_points, places, learner.width)
    for boundary in bernstein._BOUNDARIES:
        b = bernstein._minimiser(learner.loss, learner.width, d, learner.cost, boundary)
        values = (around @ b).reshape((mechanism.degree + 1,) * d)
        along = (places - boundary).sum(axis=1) / math.sqrt(d)
        eta = 1 / (1 + np.exp(-20 * along))
        for _ in range(400):
            noisy = values + mechanism.noise_scale * draw(size=values.shape)
            score = evaluate_grid(noisy, mechanism.order, [middles, middles]).ravel()
            found.append(np.where(score > 0, 1 - eta, eta).mean())
    simulated, error = np.mean(found), np.std(found) / math.sqrt(len(found))
    allowed = 5 * error + (0.02 if noise == "laplace" else 0.0)  # whose sums are not quite normal
    assert abs(expected_wrong(mechanism) - simulated) < allowed
    twin = BernsteinMechanism(**{**vars(mechanism), "scale": mechanism.scale / 2})
    assert abs(expected_wrong(twin) - simulated) > allowed


def test_a_cost_without_a_proof_is_passed_over() -> None:
    tried = []

    def at(cost: float) -> BernsteinMechanism:
        tried.append(cost)
        if cost > 4:
            raise ConfigError("No accuracy can be proven for so large a cost.")
        found: BernsteinMechanism = release(10**6, 3.0, target="logistic", cost=cost).mechanism
        return found

    learner = at_default_cost(at).learner
    assert isinstance(learner, EmpiricalRisk) and learner.cost == 4
    assert max(tried) > 4

    def never(cost: float) -> BernsteinMechanism:
        raise ConfigError("Two classes are needed.")

    with pytest.raises(ConfigError, match="Two classes"):
        at_default_cost(never)
