"""Functions as products: what the config says, calibration, descriptions, evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from own_statistics import imported

from statpress.mechanisms.accounting.losses import ConcentratedLoss, GaussianLoss, PureLoss
from statpress.mechanisms.domain.columns import Categorical, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError, InfeasibleBudgetError
from statpress.mechanisms.functions.bernstein import FUNCTION, FunctionRelease
from statpress.mechanisms.functions.function_targets import FunctionKnobs
from statpress.mechanisms.functions.kernels import KernelDensity, PriestleyChao
from statpress.mechanisms.functions.lattice_release import NoisyLattice
from statpress.mechanisms.functions.released_function import FunctionShape, ReleasedFunction
from statpress.mechanisms.functions.risk import EmpiricalRisk
from statpress.mechanisms.mechanism import Target, UserDefined
from statpress.mechanisms.planning.choice import compare
from statpress.tasks.products import evaluate
from statpress.tasks.products.function_product import FunctionProduct, function_facts
from statpress.tasks.products.publication import Publication
from statpress.tasks.release.entropy import SeededRandomness

AGE = Integer(name="age", lower=0, upper=99, width=5)
PAY = Numeric(name="pay", edges=Numeric.uniform_edges(-3, 7, 12), missing=True)
SEX = Categorical(name="sex", categories=("f", "m"), missing=True)
N = 2000
TARGETS: Mapping[str, Mapping[str, Any]] = {
    "kde": {"bandwidth": 0.1},
    "regression": {"response": "pay", "bandwidth": 0.1},
    "naive_bayes": {"label": "sex", "kernel": "epanechnikov"},
    "logistic": {"label": "sex", "cost": 10.0},
    "ridge": {"response": "pay"},
    "svm": {"label": "sex"},
    "kernel_logistic": {"label": "sex", "bandwidth": 0.3},
}
BUDGETS: Mapping[str, Mapping[str, Any]] = {
    "pure": {"epsilon": 1.0, "delta": 0.0},
    "approximate": {"epsilon": 1.0, "delta": 1e-6},
    "rho": {"epsilon": 1.0, "delta": 1e-6, "rho": 0.05},
    "renyi": {"epsilon": 1.0, "delta": 1e-6, "renyi": (9, 0.4)},
}


def target(*columns: Any, **budget: Any) -> Target:
    domain = Domain(columns)
    frame = {"n_records": N, "n_cells": domain.n_cells, "domain": domain}
    return Target(**(BUDGETS["approximate"] | frame | budget))


def columns_for(name: str) -> list[Any]:
    beside = [c for c in (SEX, PAY) if c.name in TARGETS[name].values()]
    return [AGE, *beside]


def frame(asked: Target) -> dict[str, int]:
    return {"n_records": asked.n_records, "n_cells": asked.n_cells}


def people(*columns: Any) -> ContingencyTable:
    domain = Domain(columns)
    cells = np.random.default_rng(4).integers(0, domain.n_cells, N)
    return ContingencyTable.from_cells(domain, cells, np.ones(N, np.int64))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", TARGETS)
def test_every_target_meets_every_budget_and_is_rebuilt(name: str, budget: str) -> None:
    columns = columns_for(name)
    asked = target(*columns, **BUDGETS[budget])
    knobs = FunctionKnobs(target=name, degree=6, order=2, **TARGETS[name])
    found = FunctionRelease.calibrate(knobs, asked)
    assert asked.allows(found.loss(**frame(asked)))
    less = replace(found, scale=Fraction(float(found.scale) * 0.999))
    assert not asked.allows(less.loss(**frame(asked)))

    described = json.loads(json.dumps(found.describe()))
    rebuilt = FunctionRelease.from_description(described)
    assert rebuilt == found and rebuilt.describe() == described
    assert rebuilt.loss(**frame(asked)) == found.loss(**frame(asked))
    drawn = found.release(people(*columns), SeededRandomness(np.random.PCG64(1)))
    ages = np.linspace(0, 99, 7)
    assert np.array_equal(rebuilt.function(drawn)(ages), found.function(drawn)(ages))
    expected = found.expected_error(**frame(asked))
    assert expected.sup_error == pytest.approx(expected.bias + expected.noise)
    assert expected.bound_95 is not None and expected.bound_95 > expected.sup_error
    for change in ({"n_records": N + 1}, {"unit_records": 2}):
        with pytest.raises(ConfigError, match="own size"):
            found.loss(**(frame(asked) | change))


def test_without_delta_the_noise_is_laplace_and_with_it_the_better_of_both() -> None:
    knobs = FunctionKnobs(target="kde", bandwidth=0.1)
    pure = FunctionRelease.calibrate(knobs, target(AGE, **BUDGETS["pure"]))
    assert pure.noise == "laplace"
    assert pure.loss(**frame(target(AGE))) == PureLoss(pure.sensitivity / pure.scale)
    with pytest.raises(InfeasibleBudgetError, match="delta"):
        FunctionRelease.calibrate(replace(knobs, noise="gaussian"), target(AGE, **BUDGETS["pure"]))
    asked = target(AGE)
    laplace, gaussian = compare(FUNCTION, knobs, asked)
    assert laplace.error("largest_error") > gaussian.error("largest_error")
    chosen = FunctionRelease.calibrate(knobs, asked)
    assert chosen == gaussian.mechanism
    assert isinstance(chosen.loss(**frame(asked)), GaussianLoss)
    tiny = target(AGE, delta=1e-300)
    assert FunctionRelease.calibrate(knobs, tiny).noise == "laplace"


def test_gaussian_noise_is_charged_below_what_rho_would_cost() -> None:
    asked = target(AGE)
    knobs = FunctionKnobs(target="kde", bandwidth=0.1, noise="gaussian", degree=16, order=4)
    found = FunctionRelease.calibrate(knobs, asked)
    rho = ConcentratedLoss(Fraction(found.sensitivity) / (2 * found.scale**2))
    assert found.loss(**frame(asked)).epsilon(1e-6).upper < 0.95 * rho.epsilon(1e-6).upper


def test_a_density_counts_in_the_units_of_its_columns() -> None:
    generous = target(AGE, epsilon=1e5, delta=0.0)
    knobs = FunctionKnobs(target="kde", bandwidth=0.15, order=20, degree=32)
    found = FunctionRelease.calibrate(knobs, generous)
    table = ContingencyTable(Domain((AGE,)), np.array([10]), np.array([N]))
    density = found.function(found.release(table, SeededRandomness(np.random.PCG64(2))))
    middle = 52.0  # of the ages from 50 to 54
    assert density([middle]) == pytest.approx(1 / (math.sqrt(2 * math.pi) * 0.15 * 99), rel=0.01)
    error = found.expected_error(**frame(generous))
    assert error.least_error is not None and 0 < error.least_error < error.sup_error
    both = FunctionRelease.calibrate(replace(knobs, noise="gaussian"), target(AGE))
    error = both.expected_error(**frame(target(AGE)))
    assert error.least_error is not None and 0 < error.least_error < error.sup_error


def test_public_defaults() -> None:
    domain = Domain((AGE, PAY))
    density = FunctionKnobs(target="kde").learner(domain, N)
    assert isinstance(density, KernelDensity)
    assert density.kernel.bandwidths == pytest.approx([0.3 * N ** (-1 / 6)] * 2)
    curve = FunctionKnobs(target="regression", response="pay").learner(domain, N)
    assert isinstance(curve, PriestleyChao)
    assert curve.widest_gap == curve.least_distance == pytest.approx(5 / 99)
    for said, width in (
        ({"target": "ridge", "response": "pay"}, None),
        ({"target": "ridge", "response": "pay", "bandwidth": 0.2}, 0.2),
        ({"target": "svm", "label": "sex"}, 0.5),
    ):
        columns = Domain((AGE, PAY if "response" in said else SEX))
        risk = FunctionKnobs(**said).learner(columns, N)
        assert isinstance(risk, EmpiricalRisk) and risk.width == width


SHAPES = [
    FunctionShape(),
    FunctionShape(non_negative=True),
    FunctionShape(non_negative=True, normalise=True),
    FunctionShape(monotone="increasing"),
    FunctionShape(monotone="decreasing", non_negative=True, normalise=True),
    FunctionShape(unimodal=True),
]


def release_of(dimensions: int, degree: int, shape: FunctionShape) -> FunctionRelease:
    columns = [
        Numeric(name=f"x{i}", edges=tuple(np.linspace(-i - 1.0, 3.7, 5))) for i in range(dimensions)
    ]
    knobs = FunctionKnobs(target="kde", bandwidth=0.3, degree=degree, order=3, noise="laplace")
    return replace(FunctionRelease.calibrate(knobs, target(*columns)), shape=shape)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(s.names) or "plain")
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_the_shipped_evaluator_agrees_with_ours(dimensions: int, shape: FunctionShape) -> None:
    if dimensions > 1 and (shape.monotone or shape.unimodal):
        shape = FunctionShape(non_negative=True)
    mechanism, rng = release_of(dimensions, 5, shape), np.random.default_rng(dimensions)
    lower = tuple(v.lower for v in mechanism.variables)
    upper = tuple(v.upper for v in mechanism.variables)
    counts = rng.integers(-(2**30), 2**30, (6,) * dimensions)
    drawn = NoisyLattice(counts, mechanism.step_bits, 3, lower, upper)
    ours = mechanism.function(drawn)
    facts = json.loads(json.dumps(function_facts(mechanism, ours, drawn), allow_nan=False))
    theirs = evaluate.Function(facts)
    points = rng.uniform(lower, upper, (3000, dimensions))
    points[0], points[1] = lower, upper
    values = ours(points)
    np.testing.assert_allclose(theirs(points), values, rtol=0, atol=1e-12 * np.abs(values).max())
    assert FunctionShape.of(shape.names) == shape
    if dimensions == 1:
        line = np.linspace(lower[0], upper[0], 4001)
        check_shape(shape, line, theirs(line))
        assert np.array_equal(theirs(line[:, None]), theirs(line))
        assert theirs(line[3]).shape == (1,)


def check_shape(shape: FunctionShape, line: np.ndarray, values: np.ndarray) -> None:
    steps = np.diff(values)
    if shape.non_negative:
        assert values.min() >= 0
    else:
        assert values.min() < 0  # so that the draw is one that a floor would change
    if shape.normalise:
        assert np.trapezoid(values, line) == pytest.approx(1, abs=1e-3)
    if shape.monotone:
        assert (steps * (1 if shape.monotone == "increasing" else -1)).min() >= -1e-12
    elif not shape.unimodal:
        assert steps.min() < 0 < steps.max()
    if shape.unimodal:
        mode = int(values.argmax())
        assert steps[:mode].min(initial=0) >= -1e-12 and steps[mode:].max(initial=0) <= 1e-12


def test_nothing_above_zero_is_released_as_the_uniform_density() -> None:
    mechanism = release_of(2, 2, FunctionShape(non_negative=True, normalise=True))
    lower, upper = (-1.0, -2.0), (3.7, 3.7)
    counts = np.full((3, 3), -100)
    drawn = NoisyLattice(counts, mechanism.step_bits, 3, lower, upper)
    value = mechanism.function(drawn)([[0.0, 0.0]])
    assert value == pytest.approx(1 / (4.7 * 5.7))


def test_a_query_that_makes_no_sense_is_refused_in_words() -> None:
    mechanism = release_of(2, 2, FunctionShape())
    drawn = NoisyLattice(np.ones((3, 3), np.int64), 3, 3, (-1.0, -2.0), (3.7, 3.7))
    facts = function_facts(mechanism, mechanism.function(drawn), drawn)
    function = evaluate.Function(facts)
    for points, words in (
        ([[0.0, 9.0]], "x1 is declared from -2 to 3.7, and 1 of the points"),
        ([[math.nan, 0.0]], "x0 is declared"),
        ([[0.0]], "columns x0, x1"),
        ([0.0, 1.0], "columns x0, x1"),
    ):
        with pytest.raises(ValueError, match=words):
            function(points)
    with pytest.raises(ValueError, match="no function of the format"):
        evaluate.Function(facts | {"format": "another"})


def test_the_evaluator_has_a_command_line(tmp_path: Any, capsys: Any) -> None:
    mechanism = release_of(1, 2, FunctionShape())
    drawn = NoisyLattice(np.array([1, 2, 3]), 0, 1, (-1.0,), (3.7,))
    facts = function_facts(mechanism, mechanism.function(drawn), drawn) | {"factor": 1.0}
    path = tmp_path / "f.json"
    path.write_text(json.dumps(facts))
    assert evaluate.main([str(path), "3.7"]) == 0
    assert float(capsys.readouterr().out) == 3.0
    assert evaluate.main([str(path), "4"]) == 1
    assert "x0 is declared" in capsys.readouterr().err
    assert evaluate.main([str(path)]) == 2


def share_at(table: ContingencyTable, points: np.ndarray) -> np.ndarray:
    return table.counts.max() / N * points[:, 0]


@pytest.mark.parametrize(
    ("said", "where", "what"),
    [
        ({}, "", "either a 'target'"),
        ({"target": "kde", "function": UserDefined("a:b", None)}, "", "either a 'target'"),
        ({"target": "kde", "bandwidth": 0.0}, "bandwidth", "above 0"),
        ({"target": "kde", "bandwidth": (0.1, -1.0)}, "bandwidth", "above 0"),
        ({"target": "kde", "bandwidth": math.nan}, "bandwidth", "above 0"),
        ({"target": "kde", "degree": 0}, "degree", "from 1 to"),
        ({"target": "kde", "order": 0}, "order", "from 1 to"),
        ({"target": "kde", "label": "sex"}, "label", "does not go"),
        ({"target": "kde", "sensitivity": 1.0}, "sensitivity", "does not go"),
        ({"target": "svm"}, "target", "needs a 'label'"),
        ({"target": "ridge", "label": "sex"}, "label", "does not go"),
        ({"target": "svm", "label": "sex", "cost": -1.0}, "cost", "above 0"),
        ({"target": "svm", "label": "sex", "normalise": True}, "normalise", "does not go"),
        ({"target": "kde", "monotone": "increasing", "unimodal": True}, "unimodal", "monotone or"),
        ({"function": UserDefined("a:b", None), "magnitude": 1.0}, "function", "no sensitivity"),
        ({"function": UserDefined("a:b", None), "sensitivity": 1.0}, "function", "no magnitude"),
    ],
)
def test_knobs_that_make_no_sense(said: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        FunctionKnobs(**said)
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("said", "columns", "what"),
    [
        ({"target": "kde", "monotone": "increasing"}, (AGE, PAY), "one variable"),
        (
            {"target": "regression", "response": "pay"},
            (AGE, SEX, PAY),
            "does not hold numbers|one variable",
        ),
        ({"target": "kde"}, (SEX,), "does not hold numbers"),
        ({"target": "kde", "bandwidth": (0.1, 0.2)}, (AGE,), "one bandwidth"),
        ({"target": "svm", "label": "sex", "bandwidth": (0.1,)}, (AGE, SEX), "one bandwidth"),
        ({"target": "svm", "label": "pay"}, (AGE, PAY), "two classes"),
        ({"target": "ridge", "response": "sex"}, (AGE, SEX), "does not hold numbers"),
        ({"target": "kde", "degree": 200}, (AGE, PAY), "more than 20,000 points"),
        ({"target": "kde"}, tuple(replace(AGE, name=c) for c in "abcde"), "here 5"),
        ({"target": "svm", "label": "sex"}, (SEX,), "here 0"),
        ({"target": "kde"}, (replace(AGE, upper=10**6 - 1),), "more than 20,000 values"),
        (
            {"function": "no.module:f", "sensitivity": 1.0, "magnitude": 1.0},
            (AGE,),
            "There is no function",
        ),
        (
            {"function": "math:pi", "sensitivity": 1.0, "magnitude": 1.0},
            (AGE,),
            "'math:pi' is not a function",
        ),
    ],
)
def test_columns_that_do_not_suit(said: dict[str, Any], columns: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        FunctionRelease.calibrate(FunctionKnobs(**imported(said, "function")), target(*columns))


def test_units_of_several_records_are_refused() -> None:
    knobs = FunctionKnobs(target="kde")
    with pytest.raises(ConfigError, match="no unit more than once") as refused:
        FunctionRelease.calibrate(knobs, target(AGE, unit_records=2))
    assert (refused.value.where, "'per: unit'" in refused.value.next_step) == ("per", True)
    with pytest.raises(ConfigError, match="needs the columns"):
        FunctionRelease.calibrate(knobs, target(AGE, domain=None))


def test_a_user_defined_function_is_released() -> None:
    own = UserDefined("somewhere:share_at", share_at)
    knobs = FunctionKnobs(function=own, sensitivity=2 / N, magnitude=1.0, degree=1)
    asked = target(AGE, epsilon=1e4, delta=0.0)
    found = FunctionRelease.calibrate(knobs, asked)
    found.rehearse(Domain((AGE,)))
    assert found.expected_error(**frame(asked)).bound_95 is None
    table = ContingencyTable(Domain((AGE,)), np.array([3, 4]), np.array([N // 4, 3 * N // 4]))
    released = found.function(found.release(table, SeededRandomness(np.random.PCG64(3))))
    assert isinstance(released, ReleasedFunction)
    np.testing.assert_allclose(released([0.0, 49.5, 99.0]), [0, 0.375, 0.75], atol=1e-4)


@pytest.mark.parametrize("wrong", [lambda table: 0, lambda table, points: points.T[:, :1]])
def test_a_function_that_fails_does_so_before_a_charge(wrong: Any) -> None:
    own = UserDefined("somewhere:wrong", wrong)
    knobs = FunctionKnobs(function=own, sensitivity=1.0, magnitude=1.0, degree=2)
    zeros = (ZeroPattern((("age", ((0, 3),)),)),)
    with pytest.raises(ConfigError, match=r"fails on a table of one cell \((Type|Value)Error\)"):
        FunctionRelease.calibrate(knobs, target(AGE)).rehearse(Domain((AGE,), zeros))


# --- the files of a function: the release gate sees a table and an evaluator that disagree


DOMAIN = Domain(tuple(Numeric(name=c, edges=(0.0, 0.1, 0.7)) for c in "xy"))
PUBLISH: Any = SimpleNamespace(formats=["parquet", "csv"], plots=False)


def written(folder: Path) -> Publication:
    (folder / "data").mkdir()
    asked = Target(epsilon=1.0, delta=0.0, n_records=90, n_cells=4, domain=DOMAIN)
    knobs = FunctionKnobs(target="kde", degree=3, order=2)
    mechanism = FunctionRelease.calibrate(knobs, asked)
    request = SimpleNamespace(knobs=knobs)
    product = SimpleNamespace(
        name="f", kind=FUNCTION, mechanism=mechanism, domain=DOMAIN, request=request
    )
    table = ContingencyTable(DOMAIN, np.array([0, 2]), np.array([50, 40]))
    drawn = mechanism.release(table, SeededRandomness(np.random.PCG64(1)))
    kind = FunctionProduct()
    mechanism.rehearse(DOMAIN)
    derived = kind.postprocess(product, drawn, 90)
    publication = kind.publication(product, derived)
    publication.write(folder, PUBLISH, lambda rows: None)
    return publication


def test_what_was_written_is_whole(tmp_path: Path) -> None:
    publication = written(tmp_path)
    profiles, rows = publication.profile(tmp_path, PUBLISH)
    assert rows == {"f.parquet": 16, "f.csv": 16}
    clean = {"rows": 16, "schema": 0, "values off": 0}
    assert profiles == {"f.parquet": clean, "f.csv": clean}
    paths = [each["path"] for each in publication.resources(PUBLISH)]
    assert sorted(paths) == sorted(
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")
    )


@pytest.mark.parametrize("change", [{"factor": 2.0}, {"floor": 1e6}, {"degree": 3}])
def test_an_evaluator_that_gives_something_else_is_seen(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    publication = written(tmp_path)
    path = tmp_path / "data" / "f.json"
    facts = json.loads(path.read_text()) | change
    if "degree" in change:
        facts["coefficients"][0] += 0.5
    path.write_text(json.dumps(facts))
    for found in publication.profile(tmp_path, PUBLISH)[0].values():
        assert found["values off"] > 0
