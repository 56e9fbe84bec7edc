"""Sensitivities of the functions, over random and over all neighbouring tables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.functions.function_targets import axes_of
from statpress.mechanisms.functions.kernels import (
    KernelDensity,
    NaiveBayes,
    PriestleyChao,
    ProductKernel,
)
from statpress.mechanisms.functions.learner import Axis, DeclaredFunction, Learner
from statpress.mechanisms.functions.polynomials import lattice
from statpress.mechanisms.functions.released_function import evaluate_grid

LABEL = Categorical(name="label", categories=("no", "yes"), other=True, missing=True)
RESPONSE = Numeric(name="response", edges=(-2.0, -0.5, 0.0, 1.0), missing=True)
BANDWIDTHS = st.sampled_from([0.01, 0.07, 0.3, 1.0])
SHAPES = st.sampled_from(["gaussian", "epanechnikov"])


def variables(count: int) -> tuple[Column, ...]:
    return (
        Numeric(name="a", edges=Numeric.uniform_edges(0, 1, 9), missing=True),
        Integer(name="b", lower=3, upper=8),
        Numeric(name="c", edges=(-1.0, 0.0, 5.0, 6.0)),
        Integer(name="d", lower=0, upper=5, width=2, missing=True),
    )[:count]


@st.composite
def learners(draw: st.DrawFn) -> tuple[Learner, Domain, int]:
    """A learner, its domain and its number of records."""
    n = draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["density", "regression", "bayes"]))
    count = 1 if kind == "regression" else draw(st.integers(1, 3))
    columns = variables(count)
    extra = {"density": (), "regression": (RESPONSE,), "bayes": (LABEL,)}[kind]
    domain = Domain((*extra, *columns))
    bandwidths = tuple(draw(BANDWIDTHS) for _ in columns)
    kernel = ProductKernel(draw(SHAPES), tuple(Axis.of(c) for c in columns), bandwidths)
    if kind == "density":
        return KernelDensity(kernel, n), domain, n
    if kind == "regression":
        gap = draw(st.sampled_from([0.05, 0.3, 1.0]))
        return PriestleyChao(kernel, Axis.of(RESPONSE), gap), domain, n
    return NaiveBayes(kernel, LABEL, n), domain, n


def table_of(domain: Domain, records: list[int]) -> ContingencyTable:
    cells = np.array(records, np.int64)
    return ContingencyTable.from_cells(domain, cells, np.ones(len(cells), np.int64))


def check(learner: Learner, one: ContingencyTable, two: ContingencyTable, degree: int) -> None:
    before, after = learner.values(one, degree), learner.values(two, degree)
    change = np.abs(after - before).ravel()
    bound, slack = learner.sensitivity(degree), 2 * learner.rounding
    assert change.max() <= bound.point + slack
    assert change.sum() <= bound.l1 + slack * change.size
    assert math.sqrt((change**2).sum()) <= bound.l2 + slack * math.sqrt(change.size)
    assert max(np.abs(before).max(), np.abs(after).max()) <= learner.magnitude + slack


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(st.data())
def test_no_neighbour_moves_further_than_the_sensitivity(data: st.DataObject) -> None:
    learner, domain, n = data.draw(learners())
    cell = st.integers(0, domain.n_cells - 1)
    records = data.draw(st.lists(cell, min_size=n, max_size=n))
    place, other = data.draw(st.integers(0, n - 1)), data.draw(cell)
    moved = [*records[:place], other, *records[place + 1 :]]
    degree = data.draw(st.integers(1, 4))
    check(learner, table_of(domain, records), table_of(domain, moved), degree)


@settings(max_examples=settings().max_examples, deadline=None)
@given(st.data())
def test_the_operator_errs_no_more_than_foreseen_for_the_worst_data(data: st.DataObject) -> None:
    learner, domain, n = data.draw(learners())
    cell = st.integers(0, domain.n_cells - 1)
    table = table_of(domain, data.draw(st.lists(cell, min_size=n, max_size=n)))
    degree, order = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    places = [lattice(12)] * len(learner.axes)
    error = evaluate_grid(learner.values(table, degree), order, places)
    error -= learner.values(table, 12)
    most = learner.bias(degree, order, worst=True)
    assert np.abs(error).max() <= 1.05 * most + 1e-9  # the bound is looked for on a grid
    assert 0 <= learner.bias(degree, order) < math.inf


def worst(learner: Learner, domain: Domain, n: int, degree: int) -> tuple[float, float, float]:
    """Largest change over all pairs of neighbouring tables of n records."""
    found = [0.0, 0.0, 0.0]
    for rest in itertools.combinations_with_replacement(range(domain.n_cells), n - 1):
        rows = np.stack(
            [
                learner.values(table_of(domain, [*rest, cell]), degree).ravel()
                for cell in range(domain.n_cells)
            ]
        )
        change = np.abs(rows[:, None, :] - rows[None, :, :])
        found[0] = max(found[0], float(change.max()))
        found[1] = max(found[1], float(change.sum(axis=2).max()))
        found[2] = max(found[2], float(np.sqrt((change**2).sum(axis=2)).max()))
    return found[0], found[1], found[2]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("bandwidth", [0.05, 0.4])
def test_the_lattice_sensitivity_of_a_density_is_attained(bandwidth: float, missing: bool) -> None:
    domain = Domain((Numeric(name="a", edges=Numeric.uniform_edges(0, 1, 5), missing=missing),))
    learner = KernelDensity(ProductKernel("gaussian", axes_of(domain, ["a"]), (bandwidth,)), 2)
    bound = learner.sensitivity(5)
    _, l1, l2 = worst(learner, domain, 2, 5)
    assert l1 == pytest.approx(bound.l1, rel=1e-6)
    assert l2 == pytest.approx(bound.l2, rel=1e-6)


def test_the_bounds_for_many_cells_hold_where_pairs_can_be_compared() -> None:
    kernel = ProductKernel("gaussian", tuple(Axis.of(each) for each in variables(2)), (0.1, 0.2))
    pairs, bounds = kernel.replacement(4), kernel.replacement(4, most_pairs=0)
    assert pairs[0] <= bounds[0] <= 1.5 * pairs[0]
    assert pairs[1] <= bounds[1] <= 1.5 * pairs[1]


def test_naive_bayes_moves_further_than_the_paper_allows_and_no_further_than_ours() -> None:
    columns = tuple(Numeric(name=name, edges=Numeric.uniform_edges(0, 1, 2)) for name in ("a", "b"))
    label = Categorical(name="label", categories=(0, 1))
    domain, b = Domain((*columns, label)), 0.02
    axes = axes_of(domain, ["a", "b"])
    learner = NaiveBayes(ProductKernel("gaussian", axes, (b, b)), label, 3)
    point, l1, l2 = worst(learner, domain, 3, 4)  # the lattice holds the middles
    bound = learner.sensitivity(4)
    assert point == pytest.approx(bound.point, rel=1e-6)
    assert l1 <= bound.l1 and l2 <= bound.l2
    paper = 2 * (1 / 3 + (2**2 - 1) / (3 * math.sqrt(2 * math.pi) * b))
    assert point > 2 * paper


@pytest.mark.parametrize("gap", [0.1, 0.25, 0.6])
def test_the_sensitivity_of_priestley_chao_is_nearly_attained(gap: float) -> None:
    domain = Domain(
        (
            Integer(name="a", lower=0, upper=4),
            Numeric(name="response", edges=(-1.0, -0.98, 0.98, 1.0)),
        )
    )
    kernel = ProductKernel("gaussian", axes_of(domain, ["a"]), (0.05,))
    learner = PriestleyChao(kernel, Axis.of(domain["response"]), gap)
    bound = learner.sensitivity(4)
    point, l1, l2 = worst(learner, domain, 3, 4)
    assert 0.45 * bound.point < point <= bound.point
    assert 0.7 * bound.l1 < l1 <= bound.l1
    assert l2 <= bound.l2
    assert bound.point <= 4 * gap * kernel.peak * (1 + 1e-6)  # the paper's


def test_priestley_chao_is_the_papers_sum_where_no_gap_is_wide() -> None:
    domain = Domain((Integer(name="b", lower=0, upper=10), RESPONSE))
    kernel = ProductKernel("gaussian", axes_of(domain, ["b"]), (0.2,))
    learner = PriestleyChao(kernel, Axis.of(RESPONSE), 0.2)
    places, codes = [0, 2, 3, 5, 7, 8, 10], [0, 2, 1, 2, 0, 1, 1]
    middles = RESPONSE.decode(np.array(codes))
    table = table_of(
        domain, [int(p * RESPONSE.size + c) for p, c in zip(places, codes, strict=True)]
    )
    y = np.arange(5) / 4
    expected = sum(
        (places[i] - places[i - 1])
        / 10
        * np.exp(-(((y - places[i] / 10) / 0.2) ** 2) / 2)
        / (0.2 * math.sqrt(2 * math.pi))
        * middles[i]
        for i in range(1, len(places))
    )
    np.testing.assert_allclose(learner.values(table, 4), expected, atol=1e-12)


def test_a_density_in_four_variables_is_its_definition() -> None:
    columns = variables(4)
    domain = Domain(columns)
    axes = tuple(Axis.of(column) for column in columns)
    learner = KernelDensity(ProductKernel("epanechnikov", axes, (0.4, 0.5, 0.6, 0.7)), 50)
    rng = np.random.default_rng(5)
    records = rng.integers(0, domain.n_cells, 50)
    found = learner.values(table_of(domain, list(records)), 2)
    expected = np.zeros_like(found)
    for record in records:
        codes = [int(domain.codes(np.array([record]), c.name)[0]) for c in columns]
        if any(code >= c.n_values for code, c in zip(codes, columns, strict=True)):
            continue
        for index in np.ndindex(found.shape):
            expected[index] += math.prod(
                0.75 / b * max(1 - ((v / 2 - axis.middles[code]) / b) ** 2, 0) / 50 ** (i == 0)
                for i, (v, axis, code, b) in enumerate(
                    zip(index, axes, codes, learner.kernel.bandwidths, strict=True)
                )
            )
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_what_has_no_sensitivity_is_refused() -> None:
    axes = (Axis.of(variables(1)[0]),)
    constant = {"axes": axes, "function": lambda table, points: np.zeros(len(points))}
    with pytest.raises(ConfigError, match="no sensitivity"):
        DeclaredFunction(magnitude=1.0, **constant)
    with pytest.raises(ConfigError, match="above 0"):
        DeclaredFunction(magnitude=1.0, sensitivity_bound=-1.0, **constant)
    for bandwidth in (0.0, -1.0, math.nan):
        with pytest.raises(ConfigError, match="bandwidth"):
            ProductKernel("gaussian", axes, (bandwidth,))
    kernel = ProductKernel("gaussian", axes, (0.1,))
    for gap in (0.0, 1.5, math.nan):
        with pytest.raises(ConfigError, match="gap"):
            PriestleyChao(kernel, Axis.of(RESPONSE), gap)
    with pytest.raises(ConfigError, match="one variable"):
        PriestleyChao(ProductKernel("gaussian", axes * 2, (0.1,) * 2), Axis.of(RESPONSE), 0.5)
    with pytest.raises(ConfigError, match="one of gaussian, epanechnikov"):
        ProductKernel("round", axes, (0.1,))
    with pytest.raises(ConfigError, match="one bandwidth"):
        ProductKernel("gaussian", axes, (0.1, 0.1))
    with pytest.raises(ConfigError, match="from 1 to 4"):
        DeclaredFunction(**(constant | {"axes": axes * 5}), magnitude=1.0, sensitivity_bound=1.0)
    with pytest.raises(ConfigError, match="from 1 to 4"):
        ProductKernel("gaussian", axes * 5, (0.1,) * 5)
    with pytest.raises(ConfigError, match="two classes"):
        NaiveBayes(
            ProductKernel("gaussian", axes, (0.1,)),
            Categorical(name="label", categories=(1, 2, 3)),
            5,
        )
    with pytest.raises(ConfigError, match="does not hold numbers"):
        Axis.of(LABEL)
    with pytest.raises(ConfigError, match="more than one value"):
        Axis.of(Integer(name="b", lower=2, upper=2))
