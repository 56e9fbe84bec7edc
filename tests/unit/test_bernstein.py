"""The Bernstein mechanism: its loss by enumeration, calibration, choice of k, h and cost."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.accounting.losses import ConcentratedLoss, GaussianLoss, PureLoss
from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError, RecordsError
from statpress.mechanisms.functions import bernstein
from statpress.mechanisms.functions.bernstein import (
    FunctionRelease,
    at_default_cost,
    expected_wrong,
    least_error,
    least_gaussian_error,
)
from statpress.mechanisms.functions.function_targets import FunctionKnobs, axes_of
from statpress.mechanisms.functions.kernels import KernelDensity, ProductKernel
from statpress.mechanisms.functions.lattice_release import (
    BernsteinMechanism,
    expected_noise,
    integer_sensitivity,
    integer_values,
    noise_bound,
)
from statpress.mechanisms.functions.learner import DeclaredFunction, LatticeSensitivity
from statpress.mechanisms.functions.polynomials import iterated_basis
from statpress.mechanisms.functions.released_function import evaluate_grid
from statpress.mechanisms.functions.risk import EmpiricalRisk
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

TWO = Domain((Integer(name="x", lower=0, upper=1),))
PURE = Target(epsilon=1.0, delta=0.0, n_records=2, n_cells=2)
APPROXIMATE = Target(epsilon=1.0, delta=1e-6, n_records=2, n_cells=2)


def density(domain: Domain, n: int, bandwidth: float) -> KernelDensity:
    axes = axes_of(domain, domain.names)
    return KernelDensity(ProductKernel("gaussian", axes, (bandwidth,) * len(axes)), n)


def tables(domain: Domain, n: int) -> list[ContingencyTable]:
    """Every table of n records."""
    made = []
    for cells in itertools.combinations_with_replacement(range(domain.n_cells), n):
        made.append(
            ContingencyTable.from_cells(domain, np.array(cells, np.int64), np.ones(n, np.int64))
        )
    return made


def neighbours(domain: Domain, n: int) -> list[tuple[ContingencyTable, ContingencyTable]]:
    """Every pair of tables that differ in one record, in both orders."""

    def full(table: ContingencyTable) -> np.ndarray:
        return np.bincount(table.cells, table.counts, domain.n_cells)

    every = tables(domain, n)
    return [(a, b) for a in every for b in every if np.abs(full(a) - full(b)).sum() == 2]


def coarse() -> DeclaredFunction:
    """The share of ones plus y, with a grid so coarse that all outputs can be listed."""

    def share(table: ContingencyTable, points: np.ndarray) -> np.ndarray:
        ones = table.counts[table.cells == 1].sum()
        return ones * (1 + points[:, 0])

    return DeclaredFunction(
        axes=axes_of(TWO, ["x"]), function=share, sensitivity_bound=2.0, magnitude=2.0**59
    )


def law(exact: np.ndarray, mechanism: BernsteinMechanism, reach: int) -> np.ndarray:
    """Probabilities of every pair of outputs in a window, by the definition of the noise."""
    z, s = np.arange(-reach, reach + 1), float(mechanism.scale)
    wide, rows = np.arange(-50 * reach, 50 * reach + 1), []

    def weights(x: np.ndarray) -> np.ndarray:
        laplace = mechanism.noise == "laplace"
        return np.exp(-np.abs(x) / s if laplace else -(x**2) / (2 * s**2))

    for value in exact.ravel():
        rows.append(weights(z - value) / weights(wide).sum())
    return np.multiply.outer(rows[0], rows[1])


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(5, 2), Fraction(4)])
def test_pure_privacy_by_enumeration_on_two_cells(scale: Fraction) -> None:
    learner = coarse()
    mechanism = BernsteinMechanism(learner=learner, degree=1, order=1, noise="laplace", scale=scale)
    assert mechanism.step_bits == 0
    claimed = mechanism.loss().pure_epsilon.upper
    worst = 0.0
    for one, two in neighbours(TWO, 2):
        p = law(integer_values(learner, one, 1), mechanism, 15)
        q = law(integer_values(learner, two, 1), mechanism, 15)
        worst = max(worst, float(np.log(p / q).max()))
    assert worst <= claimed + 1e-9
    # It moves by 1 and 2 at the two points, and the steps' rounding adds 1 at each.
    assert worst == pytest.approx(float(3 / scale))
    assert claimed == pytest.approx(float(6 / scale))
    paper = PureLoss(Fraction(2) / scale)  # the broken twin: S(F) for the whole lattice
    assert worst > paper.pure_epsilon.upper


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.5, 1.0])
def test_gaussian_privacy_by_enumeration_on_two_cells(epsilon: float) -> None:
    learner = coarse()
    mechanism = BernsteinMechanism(
        learner=learner, degree=1, order=1, noise="gaussian", scale=Fraction(5)
    )
    worst = 0.0
    for one, two in neighbours(TWO, 2):
        p = law(integer_values(learner, one, 1), mechanism, 60)
        q = law(integer_values(learner, two, 1), mechanism, 60)
        worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0).sum()))
    assert worst <= mechanism.loss().delta(epsilon).upper
    if epsilon == 1.0:  # the broken twin: a quarter of the noise, where the bound is no slack
        broken = replace(mechanism, scale=Fraction(5, 4))
        p, q = (law(integer_values(learner, t, 1), broken, 60) for t in neighbours(TWO, 2)[0])
        seen = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        assert seen > mechanism.loss().delta(epsilon).upper


def test_gaussian_noise_on_a_fine_grid_is_charged_as_normal_noise_by_enumeration() -> None:
    def ones(table: ContingencyTable, points: np.ndarray) -> np.ndarray:
        return np.full(len(points), 200.0 * table.counts[table.cells == 1].sum())

    # Both points move by as much as is declared, so that the bound is no slack.
    learner = replace(coarse(), function=ones, sensitivity_bound=200.0)
    mechanism = BernsteinMechanism(
        learner=learner, degree=1, order=1, noise="gaussian", scale=Fraction(256)
    )
    assert mechanism.step_bits == 0 and isinstance(mechanism.loss(), GaussianLoss)
    p, q = (law(integer_values(learner, t, 1), mechanism, 1200) for t in tables(TWO, 1))
    for epsilon in (0.5, 1.5):
        seen = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        claimed = mechanism.loss().delta(epsilon).upper
        assert 0.95 * claimed < seen <= claimed
        # The broken twin: the change at one point of the lattice alone.
        assert seen > GaussianLoss(Fraction(200, 256)).delta(epsilon).upper


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("bandwidth", [0.02, 0.3])
@pytest.mark.parametrize("degree", [1, 4])
def test_the_integers_move_as_far_as_claimed_and_no_further(
    noise: str, bandwidth: float, degree: int
) -> None:
    domain = Domain((Integer(name="x", lower=0, upper=4),))
    learner = density(domain, 2, bandwidth)
    worst = 0
    for one, two in neighbours(domain, 2):
        change = integer_values(learner, one, degree) - integer_values(learner, two, degree)
        power = 1 if noise == "laplace" else 2
        worst = max(worst, int((np.abs(change) ** power).sum()))
    claimed = integer_sensitivity(learner, degree, noise)
    assert worst <= claimed <= worst * 1.002
    assert claimed.denominator == 1
    assert integer_sensitivity(learner, degree, noise, 2) > 1.9 * claimed


@pytest.mark.parametrize(("noise", "target"), [("laplace", PURE), ("gaussian", APPROXIMATE)])
def test_calibration_meets_the_budget_and_wastes_little(noise: str, target: Target) -> None:
    learner = density(TWO, 2, 0.3)
    found = BernsteinMechanism.calibrate(learner, noise, target)
    assert target.allows(found.loss())
    less = Fraction(float(found.scale * Fraction(999, 1000)))
    assert not target.allows(replace(found, scale=less).loss())
    rho = Target(epsilon=1.0, delta=0.0, n_records=2, n_cells=2, rho=0.1)
    assert BernsteinMechanism.calibrate(learner, noise, rho).loss().rho.upper <= 0.1
    pairs = replace(target, unit_records=2)
    twice = BernsteinMechanism.calibrate(learner, noise, pairs, degree=found.degree, order=1)
    assert twice.loss(unit_records=2).epsilon(target.delta).upper <= 1.0 + 1e-9
    assert float(twice.scale / found.scale) == pytest.approx(2, rel=0.01)


def test_gaussian_noise_without_delta_is_refused() -> None:
    with pytest.raises(InfeasibleBudgetError, match="needs a delta"):
        BernsteinMechanism.calibrate(density(TWO, 2, 0.3), "gaussian", PURE)


def test_k_and_h_are_chosen_near_the_best_of_the_foreseen_error() -> None:
    learner = density(Domain((Numeric(name="x", edges=(0.0, 0.5, 1.0)),)), 5000, 0.05)
    errors = []
    for epsilon in (0.01, 0.1, 1.0):
        target = Target(epsilon=epsilon, delta=0.0, n_records=5000, n_cells=2)
        found = BernsteinMechanism.calibrate(learner, "laplace", target)
        errors.append(found.expected_sup_error())
        for degree, order in ((20, 1), (20, 8), (2, 2), (64, 8)):
            other = BernsteinMechanism.calibrate(
                learner, "laplace", target, degree=degree, order=order
            )
            assert (other.degree, other.order) == (degree, order)
            assert errors[-1] <= other.expected_sup_error() * (1 + 1e-9)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_expected_noise_is_that_of_fresh_noise(noise: str, dimensions: int) -> None:
    rng, places = np.random.default_rng(1), np.linspace(0, 1, 61)
    draws = getattr(rng, "laplace" if noise == "laplace" else "normal")(
        size=(400, *(9,) * dimensions)
    )
    for _ in range(dimensions):
        draws = np.tensordot(draws, iterated_basis(8, 3, places), axes=(1, 0))
    fresh = np.abs(draws).reshape(400, -1).max(axis=1)
    assert expected_noise(dimensions, 8, 3, noise) == pytest.approx(fresh.mean(), rel=0.12)
    bound = noise_bound(dimensions, 8, 3, noise, 0.05)
    assert np.mean(fresh > bound) <= 0.05
    assert np.mean(fresh > bound / 3) > 0.05


def test_the_error_bound_holds_for_the_hardest_data() -> None:
    domain = Domain((Numeric(name="x", edges=Numeric.uniform_edges(0, 1, 50)),))
    learner = density(domain, 200, 0.08)
    target = Target(epsilon=5.0, delta=0.0, n_records=200, n_cells=50)
    mechanism = BernsteinMechanism.calibrate(learner, "laplace", target)
    heap = ContingencyTable(domain, np.array([20]), np.array([200]))
    rng, y = SeededRandomness(np.random.PCG64(1)), np.linspace(0, 1, 500)
    truth = learner.kernel.factor(0, y)[20]
    seen = [np.abs(mechanism.release(heap, rng).function()(y) - truth).max() for _ in range(100)]
    assert np.mean(np.array(seen) > mechanism.error_bound(0.1)) <= 0.1
    assert max(seen) > mechanism.error_bound(0.1) / 10
    assert coarse().bias(3, 2, worst=True) == math.inf


def test_no_private_mechanism_is_better_than_the_lower_bound() -> None:
    # Randomised response on one of two values is a mechanism: its error is not below.
    for epsilon, n in ((0.01, 5000), (0.5, 5000), (1.0, 1), (3.0, 7)):
        bound = least_error(1.0, epsilon, n)
        assert bound >= 0.5 / (1 + math.exp(epsilon))
        scan = max(m / 2 / (1 + math.exp(m * epsilon)) for m in range(1, min(n, 200) + 1))
        assert bound == pytest.approx(scan)
    assert least_error(1.0, 0.01, 5000) > 13
    for mu, n in ((0.01, 5000), (0.7, 50), (2.0, 3)):
        bound = least_gaussian_error(1.0, mu, n)
        tails = [m / 2 * 0.5 * math.erfc(m * mu / 2**1.5) for m in range(1, n + 1)]
        assert bound == pytest.approx(max(tails), rel=1e-4)
        assert bound < math.sqrt(2 / math.pi) / mu  # the mean error of noise with this mu
    learner = density(TWO, 100, 0.3)
    target = Target(epsilon=0.5, delta=0.0, n_records=100, n_cells=2)
    found = BernsteinMechanism.calibrate(learner, "laplace", target, degree=1, order=1)
    spread = learner.kernel.peak * (1 - math.exp(-0.5 / 0.3**2)) / 100
    assert learner.shift == pytest.approx(spread)
    assert found.noise_scale > least_error(learner.shift, 0.5, 100)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_four_variables_are_released_and_evaluated(noise: str) -> None:
    domain = Domain(
        tuple(Numeric(name=c, edges=(0.0, 1.0, 2.0, 3.0), missing=c == "a") for c in "abcd")
    )
    learner = density(domain, 1000, 0.5)
    cells = np.random.default_rng(6).integers(0, domain.n_cells, 1000)
    table = ContingencyTable.from_cells(domain, cells, np.ones(1000, np.int64))
    target = Target(epsilon=1e4, delta=1e-6, n_records=1000, n_cells=domain.n_cells)
    mechanism = BernsteinMechanism.calibrate(learner, noise, target, degree=5, order=8)
    released = mechanism.release(table, SeededRandomness(np.random.PCG64(6))).function()
    truth = learner.values(table, 6)
    places = np.stack([g.ravel() for g in np.meshgrid(*[np.arange(7) / 2] * 4, indexing="ij")], 1)
    error = np.abs(released(places) - truth.ravel()).max()
    assert error < 0.2 * truth.max()
    assert error < mechanism.error_bound(0.01)


def test_a_release_is_the_values_but_for_the_noise() -> None:
    domain = Domain((Numeric(name="x", edges=(10.0, 20.0, 30.0)),))
    learner = density(domain, 4, 0.4)
    table = ContingencyTable(domain, np.array([0, 1]), np.array([1, 3]))
    target = Target(epsilon=1e6, delta=0.0, n_records=4, n_cells=2)
    mechanism = BernsteinMechanism.calibrate(learner, "laplace", target, degree=6, order=40)
    found = mechanism.release(table, SeededRandomness(np.random.PCG64(2))).function()
    lattice_values = found([10.0, 30.0])
    np.testing.assert_allclose(lattice_values, learner.values(table, 6)[[0, 6]], atol=1e-4)
    with pytest.raises(ValueError, match="outside"):
        found([9.0])


def test_what_cannot_be_released_is_refused() -> None:
    learner = density(TWO, 2, 0.3)
    fields = {"learner": learner, "noise": "laplace", "order": 1}
    for degree in (0, 1001):
        with pytest.raises(ConfigError, match="k must be"):
            BernsteinMechanism(degree=degree, scale=Fraction(1), **fields)
    with pytest.raises(ConfigError, match="order"):
        BernsteinMechanism(degree=1, scale=Fraction(1), **(fields | {"order": 0}))
    for scale in (Fraction(0), Fraction(1, 3)):
        with pytest.raises(RecordsError, match="scale"):
            BernsteinMechanism(degree=1, scale=scale, **fields)
    square = Domain(tuple(Integer(name=name, lower=0, upper=1) for name in "abcd"))
    with pytest.raises(ConfigError, match="more than 20,000 points"):
        BernsteinMechanism(
            **(fields | {"learner": density(square, 2, 0.3)}), degree=11, scale=Fraction(1)
        )
    with pytest.raises(RecordsError, match="n_records"):
        density(TWO, 0, 0.3)
    assert LatticeSensitivity.of_point(2.0, 9) == (2.0, 18.0, 6.0)
    assert isinstance(
        BernsteinMechanism(
            learner=learner, degree=1, order=1, noise="gaussian", scale=Fraction(1)
        ).loss(),
        ConcentratedLoss,
    )


# The cost of a classifier that its config leaves open


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
