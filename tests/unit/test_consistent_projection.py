"""Consistent tables at least 0: against a general solver, and what is promised of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import nnls

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.consistency import (
    NoisyTable,
    disagreement,
    make_consistent,
    project_consistently,
    project_to_simplex,
)

SIZES = {"a": 2, "b": 3, "c": 2, "e": 4}
SCHEMES = [("ab", "bc", "ca"), ("ab", "cb", "b"), ("ab", "ce"), ("abc", "cab", "a"), ("be",)]


def made(scheme: Sequence[str], seed: int, sizes: dict[str, int] = SIZES) -> list[NoisyTable]:
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


def programme(tables: Sequence[NoisyTable], total: float) -> list[np.ndarray]:
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
        for codes in itertools.product(*(range(SIZES[n]) for n in common)):
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


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))]
)
def test_agrees_with_a_general_solver(scheme: Sequence[str], seed: int) -> None:
    tables = made(scheme, seed)
    for found, expected in zip(
        project_consistently(tables, total=25.0), programme(tables, 25.0), strict=True
    ):
        assert found == pytest.approx(expected, abs=1e-4)


def test_the_result_is_feasible_and_clipping_is_not() -> None:
    sizes = {"a": 7, "b": 40, "c": 9, "e": 12}
    tables = made(["abc", "bce", "ae", "be"], 5, sizes)
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
    tables = made(["ab", "bc"], 1)
    lifted = [NoisyTable(t.domain, t.estimates + 40, t.variance) for t in tables]
    agreed = make_consistent(lifted, total=500.0)
    for found, table in zip(project_consistently(lifted, total=500.0), agreed, strict=True):
        assert table.estimates.min() > 0
        assert found == pytest.approx(table.estimates, rel=1e-12)


def test_one_table_is_the_projection_onto_the_simplex() -> None:
    (table,) = made(["be"], 2)
    (found,) = project_consistently([table], total=25.0)
    assert found.ravel() == pytest.approx(
        project_to_simplex(table.estimates.ravel(), 25.0).values, abs=1e-6
    )


def test_edges() -> None:
    tables = made(["ab", "bc"], 1)
    assert project_consistently([], total=1.0) == []
    assert [x.tolist() for x in project_consistently(tables, total=0.0)] == [
        np.zeros_like(t.estimates).tolist() for t in tables
    ]
    found = project_consistently(tables, total=25.0, most_steps=1)  # it is still a table
    assert [x.sum() for x in found] == pytest.approx([25.0] * 2)
    assert min(x.min() for x in found) >= 0
