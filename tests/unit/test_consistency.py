"""Consistent tables: a quadratic programme built cell by cell, projections, broken twins."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from constrained_least_squares import CellwiseTable, solved
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.consistency import (
    ConsistentTable,
    NoisyTable,
    disagreement,
    make_consistent,
    project_consistently,
    project_to_simplex,
)
from statpress.mechanisms.tables.bootstrap import Bootstrap

Floats = NDArray[np.float64]
Adjust = Callable[..., list[ConsistentTable]]
SIZES = {"a": 2, "b": 3, "c": 2, "d": 1, "e": 4}
SCHEMES = [
    ("ab", "bc", "ca"),  # a cycle
    ("ab", "cb", "b"),
    ("ab", "ce"),  # nothing in common but the total
    ("abc", "cab", "cb", "a"),  # axes in different orders
    ("ad", "db", "d"),  # a column of one code
    ("abe", "eb", "be", "ae"),
    ("ab",),
]


def domain(names: str) -> Domain:
    return Domain(tuple(Integer(name=n, lower=0, upper=SIZES[n] - 1) for n in names))


def made(scheme: Sequence[str], seed: int) -> list[NoisyTable]:
    rng = np.random.default_rng(seed)
    tables = []
    for names in scheme:
        shape = tuple(SIZES[n] for n in names)
        variance = float(np.exp(rng.normal(0, 1.5)))
        tables.append(NoisyTable(domain(names), rng.normal(20, 9, shape), variance))
    return tables


def cellwise(tables: Sequence[NoisyTable], seed: int | None = None) -> list[CellwiseTable]:
    """The same tables with a variance per cell, drawn anew or the same in all."""
    rng = np.random.default_rng(seed)
    return [
        CellwiseTable(
            t.domain,
            t.estimates,
            np.full(t.estimates.shape, t.variance)
            if seed is None
            else np.exp(rng.normal(0, 1.5, t.estimates.shape)),
        )
        for t in tables
    ]


def spread(table: NoisyTable | CellwiseTable) -> Floats:
    """Variances of the shape of the estimates."""
    held = table.variance if isinstance(table, NoisyTable) else table.variances
    return np.broadcast_to(held, table.estimates.shape)


def programme(
    tables: Sequence[NoisyTable] | Sequence[CellwiseTable], total: float | None
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Cells, variances, their errors, and the constraints, pair by pair and cell by cell.

    The constraints are all that are asked for, most of them redundant.
    """
    cells = [
        (i, dict(zip(t.domain.names, codes, strict=True)))
        for i, t in enumerate(tables)
        for codes in itertools.product(*(range(c.size) for c in t.domain.columns))
    ]
    rows, wanted = [], []
    for i, j in itertools.combinations(range(len(tables)), 2):
        common = sorted(set(tables[i].domain.names) & set(tables[j].domain.names))
        for codes in itertools.product(*(range(SIZES[n]) for n in common)):
            here = [
                all(c.get(n) == v for n, v in zip(common, codes, strict=True)) for _, c in cells
            ]
            sign = [{i: 1.0, j: -1.0}.get(k, 0.0) for k, _ in cells]
            rows.append(np.where(here, sign, 0.0))
            wanted.append(0.0)
    if total is not None:
        rows.append(np.array([float(k == 0) for k, _ in cells]))
        wanted.append(total)
    y = np.concatenate([t.estimates.ravel() for t in tables])
    v = np.concatenate([spread(t).ravel() for t in tables])
    matrix, goal = np.reshape(rows, (len(rows), len(y))), np.array(wanted)
    inverse = np.linalg.pinv(matrix * v @ matrix.T, rcond=1e-11) if len(rows) else np.zeros((0, 0))
    solution = y - v * (matrix.T @ (inverse @ (matrix @ y - goal)))
    covariance = np.diag(v) - (v[:, None] * matrix.T) @ inverse @ (matrix * v)
    return solution, np.sqrt(np.maximum(np.diag(covariance), 0)), matrix, goal, v


def flat(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.asarray(p).ravel() for p in parts])


def check(adjust: Adjust, tables: Sequence[NoisyTable], total: float | None) -> None:
    found = adjust(tables, total=total)
    solution, errors, matrix, goal, variances = programme(tables, total)
    estimates = flat([t.estimates for t in found])
    assert matrix @ estimates == pytest.approx(goal, abs=1e-9)
    assert estimates == pytest.approx(solution, abs=1e-7)
    # Variances are compared: the programme's, a difference, is not exact where it is 0.
    ours = flat([t.standard_errors for t in found])
    assert ours**2 == pytest.approx(errors**2, rel=1e-6, abs=1e-10)
    assert np.all(flat([t.standard_errors for t in found]) <= np.sqrt(variances))
    assert [t.domain for t in found] == [t.domain for t in tables]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("total", [None, 100.0])
@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.nightly)])
def test_agrees_with_the_programme(scheme: Sequence[str], total: float | None, seeds: int) -> None:
    for seed in range(seeds):
        tables = made(scheme, seed)
        check(make_consistent, tables, total)
        check(solved, cellwise(tables, seed), total)


@given(
    scheme=st.lists(
        st.sets(st.sampled_from("abcde"), min_size=1, max_size=3).map(lambda s: "".join(s)),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(0, 999),
    total=st.sampled_from([None, 0.0, 50.0]),
)
@settings(deadline=None)
def test_any_overlap(scheme: list[str], seed: int, total: float | None) -> None:
    check(make_consistent, made(scheme, seed), total)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("total", [None, 100.0])
def test_the_closed_form_is_the_reference(scheme: Sequence[str], total: float | None) -> None:
    tables = made(scheme, 5)
    pooled, listed = make_consistent(tables, total=total), solved(cellwise(tables), total=total)
    for one, other in zip(pooled, listed, strict=True):
        assert one.estimates == pytest.approx(other.estimates, abs=1e-9)
        assert one.standard_errors**2 == pytest.approx(other.standard_errors**2, abs=1e-11)


def test_agrees_with_a_solver_that_knows_no_matrix_algebra() -> None:
    tables = made(("ab", "bc", "ca"), 3)
    _, _, matrix, goal, v = programme(tables, 60.0)
    y = flat([t.estimates for t in tables])
    independent = np.linalg.qr(matrix.T)[1]
    kept = [i for i in range(len(matrix)) if abs(independent[min(i, len(y) - 1), i]) > 1e-9]
    found = minimize(
        lambda x: float((((x - y) ** 2) / v).sum()),
        y,
        jac=lambda x: 2 * (x - y) / v,
        constraints={
            "type": "eq",
            "fun": lambda x: (matrix @ x - goal)[kept],
            "jac": lambda x: matrix[kept],
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = flat([t.estimates for t in make_consistent(tables, total=60.0)])
    assert ours == pytest.approx(found.x, abs=1e-4)


def test_standard_errors_are_those_of_the_linear_map() -> None:
    """The map is read off from unit vectors; its covariance gives the errors."""
    tables = made(("ab", "bc", "c"), 7)
    shapes = [t.estimates.shape for t in tables]
    ends = np.cumsum([int(np.prod(s)) for s in shapes])

    def adjusted(y: Floats) -> Floats:
        parts = np.split(y, ends[:-1])
        given_tables = [
            NoisyTable(t.domain, p.reshape(s), t.variance)
            for t, p, s in zip(tables, parts, shapes, strict=True)
        ]
        return flat([t.estimates for t in make_consistent(given_tables)])

    linear = np.column_stack([adjusted(unit) for unit in np.eye(ends[-1])])
    v = flat([spread(t) for t in tables])
    errors = flat([t.standard_errors for t in make_consistent(tables)])
    assert errors == pytest.approx(np.sqrt(np.diag(linear * v @ linear.T)), abs=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_idempotent_and_independent_of_order(scheme: Sequence[str]) -> None:
    tables = made(scheme, 11)
    once = make_consistent(tables)
    again = make_consistent(
        [NoisyTable(t.domain, x.estimates, t.variance) for t, x in zip(tables, once, strict=True)]
    )
    backwards = make_consistent(tables[::-1])[::-1]
    for other in (again, backwards):
        for one, two in zip(once, other, strict=True):
            assert two.estimates == pytest.approx(one.estimates, abs=1e-9)
            assert two.standard_errors**2 == pytest.approx(one.standard_errors**2, abs=1e-11)


def test_order_of_columns_and_of_codes_does_not_matter() -> None:
    tables = made(("abc", "be", "ca"), 13)
    once = make_consistent(tables, total=70)
    turned = NoisyTable(
        domain("cba"), tables[0].estimates.transpose(2, 1, 0)[:, ::-1], tables[0].variance
    )
    flipped = NoisyTable(tables[1].domain, tables[1].estimates[::-1], tables[1].variance)
    other = make_consistent([turned, flipped, tables[2]], total=70)
    back = other[0].estimates[:, ::-1].transpose(2, 1, 0)
    assert back == pytest.approx(once[0].estimates, abs=1e-9)
    assert other[1].estimates[::-1] == pytest.approx(once[1].estimates, abs=1e-9)


def test_variances_far_apart_and_large_tables() -> None:
    """A census of 10**9 against a poor survey, and 120,000 cells by the closed form."""
    big = Domain(
        tuple(
            Integer(name=n, lower=0, upper=s - 1) for n, s in zip("xyz", (40, 50, 60), strict=True)
        )
    )
    rng = np.random.default_rng(1)
    one = NoisyTable(big, rng.normal(1e4, 100, (40, 50, 60)), 1e4)
    two = NoisyTable(big.project("xy"), one.estimates.sum(axis=2) + 1e-3, 1e-6)
    found = make_consistent([one, two])
    assert found[0].estimates.sum(axis=2) == pytest.approx(two.estimates, rel=1e-12)
    pairs = [(t.domain, t.estimates) for t in found]
    assert disagreement(pairs) <= 1e-14 * np.abs(one.estimates).sum()


def test_a_release_and_its_published_marginal() -> None:
    whole = domain("ab")
    table = ContingencyTable(whole, np.array([0, 2, 5]), np.array([30, 50, 20]))
    mechanism = Bootstrap(Fraction(1, 2), 500)
    rng = np.random.default_rng(3)
    debiased = [
        mechanism.postprocess(mechanism.release(t, rng), n_records=100)
        for t in (table, table.marginal("b"))
    ]
    tables = [CellwiseTable.from_debiased(d) for d in debiased]
    assert tables[0].estimates.ravel()[debiased[0].cells] == pytest.approx(debiased[0].estimates)
    found = solved(tables, total=100)
    assert found[0].estimates.sum(axis=0) == pytest.approx(found[1].estimates, abs=1e-9)
    assert found[0].estimates.sum() == pytest.approx(100, abs=1e-9)


def test_no_tables() -> None:
    assert make_consistent([]) == []


def test_refusals() -> None:
    ab, plain = domain("ab"), np.ones((2, 3))
    for estimates, variances, words in [
        (np.ones((3, 2)), 1.0, "shape"),
        (plain * np.nan, 1.0, "finite"),
        (plain, 0.0, "above 0"),
        (plain, -1.0, "above 0"),
        (plain, np.inf, "finite"),
    ]:
        with pytest.raises(ValueError, match=words):
            NoisyTable(ab, estimates, variances)
    table = NoisyTable(ab, plain, 1.0)
    with pytest.raises(ValueError, match="total"):
        make_consistent([table], total=np.inf)
    other = NoisyTable(Domain((Integer(name="a", lower=1, upper=2),)), np.ones(2), 1.0)
    with pytest.raises(ValueError, match="column 'a' differs"):
        make_consistent([table, other])


# --- broken twins -----------------------------------------------------------------


def nothing_done(tables: Sequence[NoisyTable], *, total: float | None) -> list[ConsistentTable]:
    return [ConsistentTable(t.domain, t.estimates, np.sqrt(spread(t))) for t in tables]


def weights_ignored(tables: Sequence[NoisyTable], *, total: float | None) -> list[ConsistentTable]:
    return make_consistent([NoisyTable(t.domain, t.estimates, 1.0) for t in tables], total=total)


def total_ignored(tables: Sequence[NoisyTable], *, total: float | None) -> list[ConsistentTable]:
    return make_consistent(tables)


def errors_as_before(tables: Sequence[NoisyTable], *, total: float | None) -> list[ConsistentTable]:
    before = nothing_done(tables, total=total)
    found = make_consistent(tables, total=total)
    return [
        ConsistentTable(f.domain, f.estimates, b.standard_errors)
        for f, b in zip(found, before, strict=True)
    ]


def first_two_alone(tables: Sequence[NoisyTable], *, total: float | None) -> list[ConsistentTable]:
    return [*make_consistent(tables[:2], total=total), *nothing_done(tables[2:], total=total)]


def one_after_the_other(
    tables: Sequence[NoisyTable], *, total: float | None
) -> list[ConsistentTable]:
    """Consistent, and not the nearest: pairs first, then all."""
    pair = make_consistent(tables[:2], total=total)
    again = [
        NoisyTable(t.domain, p.estimates, t.variance) for t, p in zip(tables[:2], pair, strict=True)
    ]
    again[0] = NoisyTable(again[0].domain, np.round(again[0].estimates), again[0].variance)
    return make_consistent([*again, *tables[2:]], total=total)


TWINS = [
    nothing_done,
    weights_ignored,
    total_ignored,
    errors_as_before,
    first_two_alone,
    one_after_the_other,
]


@pytest.mark.parametrize("broken", TWINS)
def test_broken_twins_are_caught(broken: Adjust) -> None:
    tables = made(("ab", "bc", "ca"), 17)
    check(make_consistent, tables, 90.0)
    with pytest.raises(AssertionError):
        check(broken, tables, 90.0)


# Consistent tables at least 0: against a general solver, and what is promised of them


SIZES_AT_LEAST_0 = {"a": 2, "b": 3, "c": 2, "e": 4}
SCHEMES_AT_LEAST_0 = [
    ("ab", "bc", "ca"),
    ("ab", "cb", "b"),
    ("ab", "ce"),
    ("abc", "cab", "a"),
    ("be",),
]


def made_at_least_0(
    scheme: Sequence[str], seed: int, sizes: dict[str, int] = SIZES_AT_LEAST_0
) -> list[NoisyTable]:
    """Tables whose truth is mostly empty, so that many estimates are below 0."""
    rng = np.random.default_rng(seed)
    tables = []
    for names in scheme:
        domain = Domain(tuple(Integer(name=n, lower=0, upper=sizes[n] - 1) for n in names))
        shape = [sizes[n] for n in names]
        estimates = rng.normal(0, 6, shape)
        estimates[tuple(0 for _ in names)] += 30
        tables.append(NoisyTable(domain, estimates, float(np.exp(rng.normal()))))
    return tables


def programme_at_least_0(tables: Sequence[NoisyTable], total: float) -> list[np.ndarray]:
    """The same by an active set method, constraints pair by pair."""
    ends = np.cumsum([t.estimates.size for t in tables])[:-1]
    y = np.concatenate([t.estimates.ravel() for t in tables])
    v = np.concatenate([np.full(t.estimates.size, t.variance) for t in tables])
    labels = [
        (i, dict(zip(t.domain.names, codes, strict=True)))
        for i, t in enumerate(tables)
        for codes in np.ndindex(*t.estimates.shape)
    ]
    rows, goal = [], []
    for i in range(len(tables)):
        rows.append([float(k == i) for k, _ in labels])
        goal.append(total)
    for i, j in itertools.combinations(range(len(tables)), 2):
        common = sorted(set(tables[i].domain.names) & set(tables[j].domain.names))
        for codes in itertools.product(*(range(SIZES_AT_LEAST_0[n]) for n in common)):
            here = [
                all(c.get(n) == x for n, x in zip(common, codes, strict=True)) for _, c in labels
            ]
            signs = [{i: 1.0, j: -1.0}.get(k, 0.0) for k, _ in labels]
            rows.append(np.where(here, signs, 0.0).tolist())
            goal.append(0.0)
    heavy = 1e5  # constraints as equations that outweigh the others by 10**10
    matrix = np.vstack([np.diag(v**-0.5), heavy * np.array(rows)])
    x, _ = nnls(matrix, np.concatenate([y * v**-0.5, heavy * np.array(goal)]))
    return [x.reshape(t.estimates.shape) for x, t in zip(np.split(x, ends), tables, strict=True)]


@pytest.mark.parametrize("scheme", SCHEMES_AT_LEAST_0)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))]
)
def test_agrees_with_a_general_solver(scheme: Sequence[str], seed: int) -> None:
    tables = made_at_least_0(scheme, seed)
    for found, expected in zip(
        project_consistently(tables, total=25.0), programme_at_least_0(tables, 25.0), strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-4)


def test_the_result_is_feasible_and_clipping_is_not() -> None:
    sizes = {"a": 7, "b": 40, "c": 9, "e": 12}
    tables = made_at_least_0(["abc", "bce", "ae", "be"], 5, sizes)
    found = project_consistently(tables, total=300.0)
    assert min(x.min() for x in found) >= 0
    assert [x.sum() for x in found] == pytest.approx([300.0] * 4, rel=1e-12)
    domains = [t.domain for t in tables]
    assert disagreement(list(zip(domains, found, strict=True)), total=300.0) < 3e-6
    agreed = make_consistent(tables, total=300.0)
    twin = [project_to_simplex(t.estimates.ravel(), 300.0).values for t in agreed]
    shaped = [x.reshape(t.estimates.shape) for x, t in zip(twin, tables, strict=True)]
    assert disagreement(list(zip(domains, shaped, strict=True))) > 1


def test_estimates_that_agree_and_are_not_negative_stay() -> None:
    tables = made_at_least_0(["ab", "bc"], 1)
    lifted = [NoisyTable(t.domain, t.estimates + 40, t.variance) for t in tables]
    agreed = make_consistent(lifted, total=500.0)
    for found, table in zip(project_consistently(lifted, total=500.0), agreed, strict=True):
        assert table.estimates.min() > 0
        assert found == pytest.approx(table.estimates, rel=1e-12)


def test_one_table_is_the_projection_onto_the_simplex() -> None:
    (table,) = made_at_least_0(["be"], 2)
    (found,) = project_consistently([table], total=25.0)
    assert found.ravel() == pytest.approx(
        project_to_simplex(table.estimates.ravel(), 25.0).values, abs=1e-6
    )


def test_edges() -> None:
    tables = made_at_least_0(["ab", "bc"], 1)
    assert project_consistently([], total=1.0) == []
    assert [x.tolist() for x in project_consistently(tables, total=0.0)] == [
        np.zeros_like(t.estimates).tolist() for t in tables
    ]
    found = project_consistently(tables, total=25.0, most_steps=1)  # it is still a table
    assert [x.sum() for x in found] == pytest.approx([25.0] * 2)
    assert min(x.min() for x in found) >= 0
