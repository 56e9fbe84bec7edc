"""Regularised risk: the minimiser by other means, its accuracy, and its sensitivity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError, InternalError
from statpress.mechanisms.functions.function_targets import axes_of
from statpress.mechanisms.functions.lattice_release import BernsteinMechanism
from statpress.mechanisms.functions.released_function import evaluate_grid
from statpress.mechanisms.functions.risk import EmpiricalRisk, Rows, duality_gap, minimiser, slopes
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

CLASS = Categorical(name="class", categories=("no", "yes"), missing=True)
AMOUNT = Numeric(name="amount", edges=(-3.0, -1.0, 1.0, 5.0))
COLUMNS = (
    Numeric(name="a", edges=Numeric.uniform_edges(0, 1, 6), missing=True),
    Integer(name="b", lower=0, upper=4),
)
LOSSES = ["hinge", "logistic", "squared"]


def learner_of(loss: str, n: int, dimensions: int = 2, **fields) -> tuple[EmpiricalRisk, Domain]:
    label = AMOUNT if loss == "squared" else CLASS
    domain = Domain((*COLUMNS[:dimensions], label))
    axes = axes_of(domain, [column.name for column in COLUMNS[:dimensions]])
    return EmpiricalRisk(axes=axes, label=label, loss=loss, n_records=n, **fields), domain


def table_of(domain: Domain, records: list[int]) -> ContingencyTable:
    return ContingencyTable.from_cells(
        domain, np.array(records, np.int64), np.ones(len(records), np.int64)
    )


def rows_of(rng: np.random.Generator, m: int, loss: str, width: float, cost: float) -> Rows:
    points = rng.random((m, 2))
    gram = np.exp(-((points[:, None] - points) ** 2).sum(axis=2) / (2 * width**2))
    labels = rng.normal(size=m) if loss == "squared" else rng.choice([-1.0, 1.0], m)
    return Rows(gram, labels, rng.integers(1, 5, m) * cost / m)


def risk(rows: Rows, loss: str, b: np.ndarray) -> float:
    f = rows.gram @ b
    losses = {
        "hinge": np.maximum(1 - rows.labels * f, 0),
        "logistic": np.logaddexp(0, -rows.labels * f),
        "squared": (f - rows.labels) ** 2 / 2,
    }[loss]
    return float(rows.weights @ losses + b @ f / 2)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("width", [0.1, 1.0])
@pytest.mark.parametrize("cost", [0.5, 50.0])
def test_the_minimiser_is_the_minimiser(loss: str, width: float, cost: float) -> None:
    rows = rows_of(np.random.default_rng(1), 30, loss, width, cost)
    found = minimiser(rows, loss, 1e-9)
    least = risk(rows, loss, found)
    if loss == "hinge":
        assert duality_gap(rows, rows.labels * found) <= 1e-9
        best = minimize(
            lambda a: a @ (rows.labels[:, None] * rows.gram * rows.labels) @ a / 2 - a.sum(),
            np.zeros(30),
            bounds=[(0, w) for w in rows.weights],
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-12, "maxiter": 20_000, "maxfun": 200_000},
        )
        assert least == pytest.approx(-best.fun, abs=1e-6 * cost)
    else:
        assert np.abs(found + slopes(rows, loss, rows.gram @ found)[0]).sum() <= 1e-9
        other = minimize(lambda b: risk(rows, loss, b), np.zeros(30), method="BFGS")
        assert least <= other.fun + 1e-9
        assert least == pytest.approx(other.fun, rel=1e-3)
    for _ in range(20):
        moved = found + np.random.default_rng(2).normal(size=30) * 1e-3
        assert risk(rows, loss, moved) > least


@pytest.mark.parametrize("cost", [1e-3, 1e-5])
@pytest.mark.parametrize("width", [None, 0.3])
def test_a_small_cost_asks_for_no_accuracy_beyond_doubles(cost: float, width: float | None) -> None:
    """Or the minimiser would fail, after the charge."""
    learner, domain = learner_of("hinge", 10**6, 1, cost=cost, width=width)
    cells = np.array([0, 1, 4, 9])
    counts = np.array([10**6 - 1003, 1, 2, 1000])
    assert np.isfinite(learner.values(ContingencyTable(domain, cells, counts), 2)).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_an_accuracy_that_cannot_be_had_is_an_error(loss: str) -> None:
    rows = rows_of(np.random.default_rng(3), 8, loss, 0.5, 3.0)
    with pytest.raises(InternalError, match="accuracy"):
        minimiser(rows, loss, -1.0)
    empty = Rows(np.empty((0, 0)), np.empty(0), np.empty(0))
    assert len(minimiser(empty, loss, 1e-9)) == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_neighbour_moves_further_than_the_sensitivity(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 5))
    learner, domain = learner_of(
        data.draw(st.sampled_from(LOSSES)),
        n,
        data.draw(st.integers(1, 2)),
        cost=data.draw(st.sampled_from([0.1, 1.0, 8.0, 200.0])),
        width=data.draw(st.sampled_from([None, 0.1, 1.0])),
    )
    cell = st.integers(0, domain.n_cells - 1)
    records = data.draw(st.lists(cell, min_size=n, max_size=n))
    moved = [data.draw(cell), *records[1:]]
    degree = data.draw(st.integers(1, 4))
    before = learner.values(table_of(domain, records), degree)
    after = learner.values(table_of(domain, moved), degree)
    change, bound = np.abs(after - before).ravel(), learner.sensitivity(degree)
    slack = 2 * learner.rounding
    assert change.max() <= bound.point + slack
    assert change.sum() <= bound.l1 + slack * change.size
    assert math.sqrt((change**2).sum()) <= bound.l2 + slack * change.size
    assert max(np.abs(before).max(), np.abs(after).max()) <= learner.magnitude + slack


def test_the_bound_is_attained_and_the_papers_is_not_enough() -> None:
    domain = Domain((Integer(name="b", lower=0, upper=1), CLASS))
    learner = EmpiricalRisk(
        axes=axes_of(domain, ["b"]), label=CLASS, loss="hinge", n_records=1, cost=0.5, width=0.3
    )
    no, yes = (learner.values(table_of(domain, [code]), 1) for code in (0, 1))
    change, bound = np.abs(yes - no), learner.sensitivity(1)
    assert change.max() == pytest.approx(2 * 0.5, rel=0.01)
    assert bound.point == pytest.approx(change.max(), rel=0.03)  # the solver's accuracy is in it
    assert bound.l2 == pytest.approx(math.sqrt((change**2).sum()), rel=0.03)
    assert change.max() > 1.9 * 0.5  # M C sup K / n


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("cost", [0.5, 1.0, 30.0])
@pytest.mark.parametrize("width", [None, 0.1, 0.5])
def test_the_sensitivity_is_below_what_it_was(loss: str, cost: float, width: float | None) -> None:
    """And a record that changes sides among labels in balance moves as far as the hinge allows."""
    n, degree = 41, 8
    learner, domain = learner_of(loss, n, 1, cost=cost, width=width)
    bound, before = learner.sensitivity(degree), as_before(learner, degree)
    most = {"hinge": (1.02, 1.02), "logistic": (0.69, 1.01), "squared": (0.81, 0.6)}[loss]
    assert all(np.array(bound) <= most[cost > 1] * np.array(before))  # twice the solver's accuracy
    if width == 0.1:
        assert bound.l1 < 0.77 * before[1]
    values, classes = [], (0, 2) if loss == "squared" else (0, 1)
    for last in classes:
        cells = np.array([classes[0], classes[1], last]) + 2 * domain["amount" if loss == "squared"
                                                                   else "class"].size  # fmt: skip
        table = ContingencyTable.from_cells(domain, cells, np.array([n // 2, n // 2, 1]))
        values.append(learner.values(table, degree))
    change = np.abs(values[1] - values[0])
    assert change.max() <= bound.point and change.sum() <= bound.l1
    assert math.sqrt((change**2).sum()) <= bound.l2
    if loss == "hinge" and width is not None:
        assert change.max() > 0.7 * bound.point  # a lattice point is not where the records are
        with_half = learner.sensitivity(degree).point / 2  # the broken twin: the paper's figure
        assert change.max() > with_half


def as_before(learner: EmpiricalRisk, degree: int) -> tuple[float, float, float]:
    """r = 2 M C kappa / n in every direction, with |w|^2 <= 2 J(0)."""
    reach = learner._centre[1]
    slope = 1.0
    if learner.loss == "squared":
        slope = reach * (1 + learner._kappa * math.sqrt(learner.cost))
    length = 2 * slope * learner.cost * learner._kappa / learner.n_records
    one, two = learner._lattice_norms(degree)
    return length * learner._kappa, length * math.sqrt(one), length * math.sqrt(two)


def test_linear_learners_need_two_points_in_each_variable() -> None:
    for loss in LOSSES:
        learner, domain = learner_of(loss, 400, cost=20.0)
        rng = np.random.default_rng(4)
        table = table_of(domain, list(rng.integers(0, domain.n_cells, 400)))
        target = Target(epsilon=1e5, delta=0.0, n_records=400, n_cells=domain.n_cells)
        mechanism = BernsteinMechanism.calibrate(learner, "laplace", target)
        assert (mechanism.degree, mechanism.order) == (1, 1)
        released = mechanism.release(table, SeededRandomness(np.random.PCG64(1))).function()
        fine = learner.values(table, 4).ravel()
        grid = np.stack(
            [g.ravel() for g in np.meshgrid(np.arange(5) / 4, np.arange(5), indexing="ij")], axis=1
        )
        np.testing.assert_allclose(released(grid), fine, atol=0.01 * np.abs(fine).max())
        assert np.ptp(fine) > 0


@pytest.mark.parametrize("width", [0.2, 1.0])
def test_the_operators_error_is_bounded_for_all_data(width: float) -> None:
    learner, domain = learner_of("hinge", 30, cost=10.0, width=width)
    rng = np.random.default_rng(5)
    for _ in range(5):
        table = table_of(domain, list(rng.integers(0, domain.n_cells, 30)))
        for degree, order in ((2, 1), (4, 3)):
            places = np.arange(13) / 12
            smooth = evaluate_grid(learner.values(table, degree), order, [places, places])
            error = np.abs(smooth - learner.values(table, 12)).max()
            assert error <= learner.bias(degree, order, worst=True) * 1.001
            reference = learner.bias(degree, order)
            assert 0 < reference <= learner.bias(degree, order, worst=True)


def test_what_cannot_be_learned_is_refused() -> None:
    learner, _ = learner_of("squared", 5)
    with pytest.raises(ConfigError, match="two classes"):
        EmpiricalRisk(axes=learner.axes, label=AMOUNT, loss="hinge", n_records=5)
    with pytest.raises(ConfigError, match="does not hold numbers"):
        EmpiricalRisk(axes=learner.axes, label=CLASS, loss="squared", n_records=5)
    for fields, said in (
        ({"cost": 0.0}, "cost"),
        ({"cost": math.inf}, "cost"),
        ({"cost": 1e15}, "accuracy"),
        ({"width": 0.0}, "bandwidth"),
        ({"width": math.nan}, "bandwidth"),
    ):
        with pytest.raises(ConfigError, match=said):
            learner_of("hinge", 5, **fields)


def test_too_many_points_are_refused() -> None:
    """Of cells and labels, or of records if they are fewer."""
    columns = tuple(Integer(name=name, lower=0, upper=54) for name in "ab")
    domain = Domain((*columns, CLASS))
    axes = axes_of(domain, ["a", "b"])
    most = EmpiricalRisk(axes=axes, label=CLASS, loss="hinge", n_records=6000)
    assert most.n_records == 6000
    with pytest.raises(ConfigError, match="6,001 points, more than 6,000"):
        EmpiricalRisk(axes=axes, label=CLASS, loss="hinge", n_records=6001)
    with pytest.raises(ConfigError, match="6,050 points, more than 6,000"):
        EmpiricalRisk(axes=axes, label=CLASS, loss="hinge", n_records=10**6)
