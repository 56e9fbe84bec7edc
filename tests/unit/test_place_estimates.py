"""Trees of places, and least squares down them: against dense algebra, with every edge case."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from geographies import random_tree, tree_of
from numpy.typing import NDArray

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals.residuals import query, subgroups
from statpress.mechanisms.places.estimates import LevelTable, PlaceEstimates, TreeWeights
from statpress.mechanisms.places.tree import Tree

Floats = NDArray[np.float64]
CLOSE = 1e-9


class Dense:
    """Generalised least squares of leaves by dense algebra, with exact rows as constraints."""

    def __init__(self, rows: Floats, values: Floats, precisions: Floats) -> None:
        exact, noisy = np.isinf(precisions), np.isfinite(precisions) & (precisions > 0)
        start, free = np.zeros(rows.shape[1]), np.eye(rows.shape[1])
        if exact.any():
            start = np.linalg.lstsq(rows[exact], values[exact], rcond=None)[0]
            _, singular, right = np.linalg.svd(rows[exact])
            free = right[int((singular > CLOSE).sum()) :].T
        root = np.sqrt(precisions[noisy])[:, None]
        design = root * rows[noisy] @ free
        left = root[:, 0] * (values[noisy] - rows[noisy] @ start)
        eigenvalues, vectors = np.linalg.eigh(design.T @ design)
        good = eigenvalues > CLOSE
        inverse = (vectors[:, good] / eigenvalues[good]) @ vectors[:, good].T
        self.values: Floats = start + free @ (inverse @ (design.T @ left))
        self.covariance: Floats = free @ inverse @ free.T
        self.unknown: Floats = free @ vectors[:, ~good]

    def can_estimate(self, row: Floats) -> bool:
        return bool((np.abs(row @ self.unknown) < 1e-7).all())


def sums_of_leaves(tree: Tree) -> list[Floats]:
    """By level float64[n, leaves]: which leaves lie in each place."""
    found = [np.eye(tree.sizes[-1])]
    for level in range(len(tree.levels) - 1, 0, -1):
        found.insert(0, tree.sums(level, found[0]))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_estimates_and_variances_of_a_tree_are_those_of_dense_least_squares(seed: int) -> None:
    """With places without a measurement, public totals, and weighted sums of any places."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(2, 5)))
    kinds = [rng.choice([0.0, 1.0, np.inf], p=[0.35, 0.6, 0.05], size=n) for n in tree.sizes]
    precisions = [kind * rng.uniform(0.2, 5, len(kind)) for kind in kinds]
    rows, truth = sums_of_leaves(tree), rng.normal(size=tree.sizes[-1]) * 10
    values = [
        of @ truth + np.where(np.isinf(p), 0.0, rng.normal(size=len(p)))
        for of, p in zip(rows, precisions, strict=True)
    ]
    every = np.vstack(rows)
    dense = Dense(every, np.concatenate(values), np.concatenate(precisions))
    weights = TreeWeights.of(tree, precisions)
    found = weights.estimate(values, ())
    estimates, variances = np.concatenate(found.values), np.concatenate(weights.down)
    for row, estimate, variance in zip(every, estimates, variances, strict=True):
        assert math.isfinite(variance) == math.isfinite(estimate) == dense.can_estimate(row)
        if math.isfinite(variance):
            assert estimate == pytest.approx(row @ dense.values, abs=CLOSE)
            assert variance == pytest.approx(row @ dense.covariance @ row, abs=CLOSE)
    for _ in range(4):
        factors = [rng.integers(-1, 2, n).astype(np.float64) for n in tree.sizes]
        row = np.concatenate(factors) @ every
        value, variance = found.combination(factors)
        assert math.isfinite(variance) == dense.can_estimate(row)
        if math.isfinite(variance):
            assert value == pytest.approx(row @ dense.values, abs=CLOSE)
            assert variance == pytest.approx(row @ dense.covariance @ row, abs=CLOSE)


SIZES = (2, 3, 2)


def noisy_tables(
    rng: np.random.Generator, tree: Tree
) -> tuple[list[LevelTable], list[Floats], list[Floats], list[float]]:
    """Tables of random groups at every level, and the same as rows of leaves times cells."""
    cells = math.prod(SIZES)
    truth = rng.poisson(5.0, (tree.sizes[-1], *SIZES)).astype(np.float64)
    groups = [group for n in range(4) for group in itertools.combinations(range(3), n)]
    tables: list[LevelTable] = []
    rows: list[Floats] = []
    values: list[Floats] = []
    precisions: list[float] = []
    leaves = sums_of_leaves(tree)
    for level in range(len(tree.levels)):
        for group in rng.permutation(len(groups))[:2]:
            own = groups[group]
            others = tuple(1 + c for c in range(3) if c not in own)
            exact = np.tensordot(leaves[level], truth, 1).sum(axis=others)
            variances = rng.uniform(0.5, 4.0, tree.sizes[level])
            variances[rng.random(len(variances)) < 0.2] = np.inf
            sd = np.where(np.isinf(variances), 0.0, np.sqrt(variances))
            counts = exact + rng.normal(size=exact.shape) * sd.reshape(-1, *[1] * len(own))
            tables.append(LevelTable(level, own, variances, counts))
            marginal = np.eye(cells).reshape(*SIZES, cells)
            marginal = marginal.sum(axis=tuple(c for c in range(3) if c not in own))
            marginal = marginal.reshape(-1, cells)
            for place, variance in enumerate(variances):
                rows += [np.kron(leaves[level][place], each) for each in marginal]
                values.append(counts[place].ravel())
                precisions += [0.0 if np.isinf(variance) else 1 / variance] * len(marginal)
    rows.append(np.ones(tree.sizes[-1] * cells))
    values.append(np.array([truth.sum()]))
    precisions.append(math.inf)
    return tables, rows, values, precisions


@pytest.mark.parametrize("seed", range(12))
def test_tables_of_places_and_columns_are_those_of_dense_least_squares(seed: int) -> None:
    """Every table that was measured somewhere, in every place, and its sums over random places."""
    rng = np.random.default_rng(100 + seed)
    tree = random_tree(rng, 3)
    tables, rows, values, precisions = noisy_tables(rng, tree)
    dense = Dense(np.array(rows), np.concatenate(values), np.array(precisions))
    found = PlaceEstimates.of(tree, SIZES, tables, {0: values[-1]})
    leaves, cells = sums_of_leaves(tree), math.prod(SIZES)
    checked = 0
    for table in tables:
        others = tuple(c for c in range(3) if c not in table.group)
        marginal = np.eye(cells).reshape(*SIZES, cells).sum(axis=others).reshape(-1, cells)
        estimates = found.table(table.level, table.group)
        variances = found.variances(table.level, table.group)
        for place, inside in enumerate(leaves[table.level]):
            for cell, own in enumerate(marginal):
                row = np.kron(inside, own)
                estimate = estimates[place].ravel()[cell]
                assert math.isfinite(variances[place]) == dense.can_estimate(row)
                if math.isfinite(variances[place]):
                    checked += 1
                    assert estimate == pytest.approx(row @ dense.values, abs=CLOSE)
                    assert variances[place] == pytest.approx(
                        row @ dense.covariance @ row, abs=CLOSE
                    )
        chosen = rng.random(tree.sizes[-1]) < 0.5
        union = found.union(chosen)
        for cell, own in enumerate(marginal):
            row = np.kron(chosen.astype(np.float64), own)
            known = set(subgroups(table.group)) <= set(union.values)
            assert known == dense.can_estimate(row) or not chosen.any()
            if known and chosen.any():
                factors = np.zeros(len(marginal))
                factors[cell] = 1.0
                shape = [SIZES[column] for column in table.group]
                answer = query(union, table.group, factors.reshape(shape))
                assert answer.value == pytest.approx(row @ dense.values, abs=CLOSE)
                variance = row @ dense.covariance @ row
                assert answer.standard_error**2 == pytest.approx(variance, abs=CLOSE)
    assert checked


def test_estimates_add_up_over_places_and_columns() -> None:
    rng = np.random.default_rng(4)
    tree = tree_of(["a", "b", "c"], [0, 0], [0, 0, 1, 1, 1])
    tables = [
        LevelTable(level, group, np.full(n, 2.0), rng.normal(size=(n, *[2] * len(group))))
        for level, n in enumerate(tree.sizes)
        for group in [(0, 1), (1,)]
    ]
    found = PlaceEstimates.of(tree, (2, 2), tables, {})
    for level in (1, 2):
        sums = tree.sums(level, found.table(level, (0, 1)))
        assert np.abs(sums - found.table(level - 1, (0, 1))).max() < CLOSE
    for level in range(3):
        one, two = found.table(level, (0, 1)), found.table(level, (1,))
        assert np.abs(one.sum(axis=1) - two).max() < CLOSE


def test_a_wrong_variance_would_be_seen() -> None:
    """Twin: a recursion that forgets what the parent says of its children."""
    tree = tree_of(["a", "b"], [0, 0, 0])
    weights = TreeWeights.of(tree, [np.ones(1), np.ones(3)])
    rows = np.vstack(sums_of_leaves(tree))
    dense = Dense(rows, np.zeros(4), np.ones(4))
    exact = float(dense.covariance[0, 0])
    assert weights.down[1][0] == pytest.approx(exact, abs=1e-12)
    assert abs(weights.up[1][0] - exact) > 0.1


# tree


def three_levels() -> Tree:
    codes = [["nation"], ["north", "south"], ["s1", "n1", "n2", "s2"]]
    states = dict.fromkeys(codes[1], "nation")
    return Tree.of(
        ("nation", "state", "county"),
        codes,
        [states, {"s1": "south", "s2": "south", "n1": "north", "n2": "north"}],
    )


def test_children_stand_beside_each_other_and_add_up_to_their_parent():
    tree = three_levels()
    assert tree.codes[2] == ("n1", "n2", "s1", "s2")
    assert tree.sizes == (1, 2, 4)
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]])
    assert tree.sums(2, values).tolist() == [[3.0, 30.0], [7.0, 70.0]]
    assert tree.sums(1, tree.sums(2, values)).tolist() == [[10.0, 100.0]]


@pytest.mark.parametrize(
    ("codes", "within", "said"),
    [
        ([["n"], ["a", "a"]], [{"a": "n"}], "a code twice"),
        ([["n"], ["a", "b"]], [{"a": "n", "b": "m"}], "no code of the level 'nation'"),
    ],
)
def test_a_tree_that_is_none_is_refused(codes, within, said):
    with pytest.raises(ConfigError, match=said):
        Tree.of(("nation", "state"), codes, within)


def test_a_place_without_children_above_the_last_level_is_refused():
    with pytest.raises(ValueError, match="parents without"):
        Tree(("n", "s", "c"), (("n",), ("a", "b"), ("a1",)), (np.array([0, 0]), np.array([0])))
