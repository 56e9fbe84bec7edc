"""Pairs after their noise: cells predicted by the others, withheld, fitted, drawn to classes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from statpress.mechanisms.marginals import denoising, latent_classes, pair_cells
from statpress.mechanisms.marginals.column_shares import _with_every_category
from statpress.mechanisms.marginals.denoising import (
    Basis,
    _posterior,
    predicted,
)
from statpress.mechanisms.marginals.fitting import fit_margins, fit_pair, with_margins
from statpress.mechanisms.marginals.latent_classes import LatentClasses
from statpress.mechanisms.marginals.pair_cells import Predicted, refined
from statpress.mechanisms.marginals.synthesis import one_way_counts


def test_a_cell_is_predicted_by_all_others() -> None:
    """Against conditioning a normal vector, cell by cell."""
    rng = np.random.default_rng(1)
    one, other = (m @ m.T for m in (rng.normal(size=(3, 3)), rng.normal(size=(4, 4))))
    y, noise, strength = rng.normal(size=(3, 4)), 0.7, 1.3
    found = predicted(np.ones((3, 4)), y, noise, strength, Basis.of(one), Basis.of(other))
    prior = strength * np.kron(one, other)
    for cell in range(12):
        rest = [c for c in range(12) if c != cell]
        observed = prior[np.ix_(rest, rest)] + noise * np.eye(11)
        weights = np.linalg.solve(observed, prior[rest, cell])
        assert found.means.ravel()[cell] == pytest.approx(1 + weights @ y.ravel()[rest])
        left = prior[cell, cell] - weights @ prior[rest, cell]
        assert found.variances.ravel()[cell] == pytest.approx(left)


@pytest.mark.parametrize("seed", range(8))
def test_the_nearest_table_with_margins_is_the_nearest(seed: int) -> None:
    """Against a solver; no cell is negative, none outside is filled."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    true = rng.poisson(20, (3, 4)) * (rng.random((3, 4)) < 0.7) + np.eye(3, 4)
    rows, columns = true.sum(axis=1), true.sum(axis=0)
    means, variances = true + rng.normal(0, 15, (3, 4)), rng.uniform(0.2, 5, (3, 4))
    inside = (true > 0) | (rng.random((3, 4)) < 0.5)
    found = with_margins(means, variances, rows, columns, inside)
    assert (found >= 0).all() and not found[~inside].any()
    assert np.abs(found.sum(axis=0) - columns).sum() <= 2e-4 * rows.sum()
    assert np.abs(found.sum(axis=1) - rows).sum() <= 2e-4 * rows.sum()

    def distance(table: np.ndarray) -> float:
        return float((((table.reshape(3, 4) - means) ** 2 / variances)[inside]).sum())

    best = minimize(
        distance,
        found.ravel(),
        bounds=[(0, None if open_ else 0) for open_ in inside.ravel()],
        constraints=[
            {"type": "eq", "fun": lambda t: t.reshape(3, 4).sum(axis=1) - rows},
            {"type": "eq", "fun": lambda t: t.reshape(3, 4).sum(axis=0)[:-1] - columns[:-1]},
        ],
        options={"maxiter": 500, "ftol": 1e-10},
    )
    assert distance(found) <= best.fun * 1.02 + 0.05


def test_margins_that_the_cells_cannot_have_are_met_by_filling_others() -> None:
    rows, columns = np.array([3.0, 1.0]), np.array([2.0, 2.0])
    start, possible = np.diag([1.0, 1.0]), np.ones((2, 2), np.bool_)
    found = fit_pair(start, rows, columns, possible)
    assert np.allclose(found.sum(axis=1), rows) and np.allclose(found.sum(axis=0), columns)
    kept = fit_pair(start, np.array([2.0, 2.0]), columns, possible)
    assert not kept[0, 1] and not kept[1, 0]  # nothing is filled without need


def noisy(true: np.ndarray, sd: float, seed: int) -> Predicted:
    """A table as measured, the others saying of a cell only how many records a cell holds."""
    measured = true + np.random.default_rng(seed).normal(0, sd, true.shape)
    return Predicted(
        measured, sd**2, np.full(true.shape, true.mean()), np.full(true.shape, true.mean() ** 2)
    )


def error_of(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(found - true).sum() / 2 / true.sum())


def test_the_cells_of_a_deterministic_pair_are_withheld() -> None:
    """Twin: without the possibility that a cell is empty, noise stays in many."""
    true = np.kron(np.eye(8), np.full((1, 4), 400.0))
    each, margins = noisy(true, 60.0, 2), [true.sum(axis=1), true.sum(axis=0)]
    possible = {(0, 1): np.ones(true.shape, np.bool_)}
    found = refined({(0, 1): each}, margins, possible)[0, 1]
    clipped = fit_pair(each.measured, *margins, possible[0, 1])
    assert error_of(found, true) < 0.2 * error_of(clipped, true)
    filled = with_margins(each.measured, np.ones(true.shape), *margins, possible[0, 1])
    assert found[true == 0].sum() < 0.5 * filled[true == 0].sum()
    assert (found[true == 0] == 0).mean() > 0.9 > 0.75 > (filled[true == 0] == 0).mean()


def test_cells_without_any_pattern_are_left_and_a_line_keeps_a_cell() -> None:
    full = np.random.default_rng(3).gamma(4.0, 100.0, (6, 7))
    margins = [full.sum(axis=1), full.sum(axis=0)]
    possible = {(0, 1): np.ones(full.shape, np.bool_)}
    found = refined({(0, 1): noisy(full, 40.0, 4)}, margins, possible)[0, 1]
    assert (found > 0).mean() > 0.95 and error_of(found, full) < 0.06
    rare = np.zeros((4, 5))
    rare[0] = 1000.0
    rare[1:, 0] = 3.0  # far below the noise
    margins = [rare.sum(axis=1), rare.sum(axis=0)]
    possible = {(0, 1): np.ones(rare.shape, np.bool_)}
    found = refined({(0, 1): noisy(rare, 60.0, 5)}, margins, possible)[0, 1]
    assert (found.sum(axis=1) > 0).all()


def test_cells_below_the_noise_are_not_taken_for_empty() -> None:
    """Twin: with cells that are as often empty as not before any is seen."""
    true = np.random.default_rng(6).gamma(8.0, 4.0, (20, 8))
    margins = [true.sum(axis=1), true.sum(axis=0)]
    possible, group = {(0, 1): np.ones(true.shape, np.bool_)}, (0, 1)
    errors = []
    for first in (pair_cells._FIRST, (1 / 3, 1 / 3, 1 / 3)):
        tables = [
            refined({group: noisy(true, 150.0, seed)}, margins, possible, first=first)[group]
            for seed in range(20)
        ]
        errors.append(np.mean([error_of(table, true) for table in tables]))
    assert errors[0] < 0.9 * errors[1]


def test_a_thousand_codes_do_not_learn_the_noise_of_a_few_pairs() -> None:
    """The covariance stays near the first one; twin: that counts the same whatever the codes."""
    rng = np.random.default_rng(7)
    shares = [np.full(400, 1 / 400), *[np.full(5, 0.2)] * 4]
    start = [denoising._first_covariance(p, np.eye(len(p))) for p in shares]
    bases = [Basis.of(c) for c in start]
    noise = {(0, j): rng.normal(0, 10.0, (400, 5)) for j in range(1, 5)}
    posteriors = denoising._all(noise, dict.fromkeys(noise, 100.0), {}, bases)
    errors = []
    for a_code in (denoising._PRIOR_OF_A_CODE, 0.0):
        alike = [[j] for j in range(5)]
        learnt = denoising._updated(start, bases, posteriors, alike, prior_of_a_code=a_code)[0]
        errors.append(float(np.linalg.norm(learnt - start[0]) / np.linalg.norm(start[0])))
    assert errors[0] < 0.5 * errors[1]


def test_rare_and_depleted_cells_are_withheld() -> None:
    """A cell of the posterior's standard deviation 20 is hidden below 20 records."""
    rows, columns = np.array([9_800.0, 120.0, 80.0]), np.array([9_850.0, 100.0, 50.0])
    table = np.multiply.outer(rows, columns) / 10_000
    cells = Predicted(table, 800.0, table, np.full(table.shape, 800.0))
    likely = cells.likely_cells(table, rows, columns)
    rare = np.zeros(table.shape, np.bool_)
    rare[1:, 1:] = True
    assert np.array_equal(likely, ~rare)

    seen = table.copy()
    seen[1, 1] = 500.0  # independent columns would have 1: the mean of both is above 20
    assert cells.likely_cells(seen, rows, columns)[1, 1]

    lost = table.copy()
    lost[2] = 70.0, 5.0, 5.0  # more than a tenth of a row would go
    assert cells.likely_cells(lost, rows, columns)[2].all()

    depleted = table.copy()
    depleted[0, 0] = 59.0  # hidden, and far below 9 653
    assert not cells.likely_cells(depleted, rows, columns)[0, 0]
    depleted[0, 0] = 61.0
    assert cells.likely_cells(depleted, rows, columns)[0, 0]


def test_withholding_rare_cells_takes_more_of_empty_cells_than_of_others() -> None:
    """Twin: cells withheld by chance, as many, take of both alike."""
    rng = np.random.default_rng(8)
    rows, columns = rng.dirichlet(np.full(30, 0.3), 2) * 20_000
    true = rng.poisson(rng.gamma(0.2, 5.0, (30, 30)) * np.multiply.outer(rows, columns) / 20_000)
    rows, columns = true.sum(axis=1).astype(float), true.sum(axis=0).astype(float)
    product = np.multiply.outer(rows, columns) / true.sum()
    cells = Predicted(true + rng.normal(0, 20.0, true.shape), 400.0, product, product**2 + 1.0)
    kept = cells.variances / (cells.variances + cells.variance)
    table = np.maximum(kept * cells.measured + (1 - kept) * cells.means, 0.0)
    withheld = ~cells.likely_cells(table, rows, columns)
    by_chance = rng.permutation(withheld.ravel()).reshape(withheld.shape)

    def of_empty(cells: np.ndarray) -> float:
        return float((table * cells)[true == 0].sum() / (table * cells).sum())

    assert of_empty(withheld) > 2 * of_empty(by_chance)


def mixture(seed: int, sizes: tuple[int, ...] = (6, 5, 7, 4, 6)):
    """Shares of the columns and pairs of three classes."""
    rng = np.random.default_rng(seed)
    given = [rng.dirichlet(np.full(k, 0.4), 3) for k in sizes]
    weights = np.array([0.5, 0.3, 0.2])
    one_way = [weights @ g for g in given]
    pairs = {
        (a, b): (given[a] * weights[:, None]).T @ given[b]
        for a, b in itertools.combinations(range(len(sizes)), 2)
    }
    return one_way, pairs


def total_error(found: dict, true: dict) -> float:
    return float(np.mean([np.abs(found[p] - true[p]).sum() / 2 for p in true]))


def smoothed_by_classes(one_way, pairs, errors, rng: np.random.Generator) -> dict:
    return LatentClasses.of(one_way, pairs, rng).smoothed(pairs, errors)


def test_classes_take_out_what_pairs_do_not_share() -> None:
    one_way, true = mixture(1, (6, 5, 7, 4, 6, 5, 8, 4, 6, 5))
    rng = np.random.default_rng(2)
    sd = 0.01
    measured, errors = {}, {}
    for pair, table in true.items():
        noise, inside = rng.normal(0, sd, table.shape), np.ones(table.shape, np.bool_)
        margins = one_way[pair[0]], one_way[pair[1]]
        measured[pair] = with_margins(table + noise, np.ones(table.shape), *margins, inside)
        errors[pair] = table.size * sd**2
    found = smoothed_by_classes(one_way, measured, errors, np.random.default_rng(3))
    assert total_error(found, true) < 0.9 * total_error(measured, true)
    again = smoothed_by_classes(one_way, measured, errors, np.random.default_rng(3))
    assert all(np.array_equal(found[p], again[p]) for p in found)


def test_pairs_that_are_left_out_follow_from_the_others() -> None:
    """Unlike pairs that are given as independent; a column without any pair keeps its one-way."""
    one_way, true = mixture(1, (6, 5, 7, 4, 6, 5, 8, 4, 6, 5))
    left_out = {(0, 1), (2, 7)} | {pair for pair in true if 9 in pair}
    independent = {p: np.multiply.outer(one_way[p[0]], one_way[p[1]]) for p in true}
    given = {pair: table for pair, table in true.items() if pair not in left_out}
    found = LatentClasses.of(one_way, given, np.random.default_rng(3))
    twin = LatentClasses.of(
        one_way, {**given, **{p: independent[p] for p in left_out}}, np.random.default_rng(3)
    )
    for pair in ((0, 1), (2, 7)):
        errors = [
            np.abs(table - true[pair]).sum()
            for table in (found.table(pair), twin.table(pair), independent[pair])
        ]
        assert errors[0] < 0.3 * min(errors[1:])
    assert np.abs(found.table((3, 9)).sum(axis=0) - one_way[9]).max() < 0.01
    assert np.abs(found.table((3, 9)) - independent[3, 9]).sum() < 0.05


def test_a_pair_that_the_classes_do_not_know_is_left() -> None:
    """What is far from them by much more than its noise keeps what it has."""
    one_way, pairs = mixture(4)
    shifted = dict(pairs)
    rng = np.random.default_rng(5)
    odd = pairs[0, 2] * rng.choice([0.0, 2.0], size=pairs[0, 2].shape)
    shifted[0, 2] = odd / odd.sum()
    exact = dict.fromkeys(pairs, 1e-10)
    found = smoothed_by_classes(one_way, shifted, exact, np.random.default_rng(6))
    assert np.abs(found[0, 2] - shifted[0, 2]).sum() < 1e-3
    unmeasured = {pair: error for pair, error in exact.items() if pair != (1, 3)}
    found = smoothed_by_classes(one_way, shifted, unmeasured, np.random.default_rng(6))
    assert np.array_equal(found[1, 3], shifted[1, 3])
    assert smoothed_by_classes(one_way, shifted, {}, np.random.default_rng(6)) == shifted


def test_classes_of_pairs_tell_how_three_columns_interact() -> None:
    """Exact pairs of a mixture do; the twin, the table of maximum entropy, has no interaction."""
    sizes = (6, 5, 7, 4, 6, 5, 8, 4, 6, 5)
    one_way, pairs = mixture(1, sizes)
    classes = LatentClasses.of(one_way, pairs, np.random.default_rng(3))
    rng = np.random.default_rng(1)
    given = [rng.dirichlet(np.full(k, 0.4), 3) for k in sizes]  # those of the mixture
    recovered = []
    for group in ((0, 1, 2), (3, 6, 8), (2, 5, 9)):
        true = np.einsum("v,va,vb,vc->abc", [0.5, 0.3, 0.2], *[given[c] for c in group])
        margins = {(0, 1): true.sum(axis=2), (0, 2): true.sum(axis=1), (1, 2): true.sum(axis=0)}
        flat = fit_margins(np.full(true.shape, 1 / true.size), margins, rounds=200)
        interaction, table = true - flat, classes.table(group)
        assert table.shape == true.shape and np.isclose(table.sum(), 1)
        recovered.append(((table - flat) * interaction).sum() / (interaction**2).sum())
        four = classes.table((*group, 4 if 4 not in group else 7))
        assert np.allclose(four.sum(axis=3), table)
    assert min(recovered) > 0.4 and np.mean(recovered) > 0.5
    assert not classes.describe((0, 10)) and classes.describe((0, 9))
    assert LatentClasses.of(one_way, {}, rng).columns == ()


def test_columns_of_too_many_codes_are_not_described() -> None:
    assert latent_classes._described([4, 200, 6]) == [0, 2]
    assert latent_classes._described([128] * 12) == [*range(12)]
    assert latent_classes._described([*[128] * 12, 4]) == [*range(11), 12]


def test_every_likelihood_is_that_of_a_prior_that_adds_up() -> None:
    """By integration over what the cell may hold, for cells near 0, far below and far above."""
    from scipy.integrate import quad
    from scipy.stats import norm

    y, noise = np.array([[-3.0, 0.5, 40.0]]), 4.0
    means, variances = np.array([[-6.0, 2.0, 30.0]]), np.array([[9.0, 1.0, 25.0]])
    found = pair_cells._likelihoods(Predicted(y, noise, means, variances))
    for cell in range(3):
        values = [norm.pdf(y[0, cell], 0, 2.0)]
        for factor in pair_cells.FACTORS:
            m, sd = means[0, cell], (factor * variances[0, cell]) ** 0.5
            whole = norm.sf(0, m, sd)
            peak = max(m, y[0, cell], 0.0)
            values.append(
                quad(
                    lambda t, m=m, sd=sd, seen=y[0, cell]: (
                        norm.pdf(seen, t, 2.0) * norm.pdf(t, m, sd)
                    ),
                    0,
                    peak + 20 * max(sd, 2.0),
                    points=[peak],
                    limit=200,
                )[0]
                / whole
            )
        assert found[:, cell] == pytest.approx(np.array(values) / max(values), rel=1e-4)


def test_every_declared_category_has_a_record() -> None:
    """Twin: where there are too many of them for the records, shares stay as they are."""
    shares = np.array([0.7, 0.0, 0.2995, 0.0, 0.0005])  # the last is 'missing'
    possible = np.array([True, True, True, False, True])
    found = _with_every_category(shares, 4, possible, 1000.0)
    assert found.sum() == pytest.approx(1) and found[1] == 0.001 and found[3] == 0
    assert found[4] == pytest.approx(0.0005 * 0.999)
    assert one_way_counts(found, 1000)[1] == 1
    assert np.array_equal(_with_every_category(shares, 4, possible, 50.0), shares)


def test_large_tables_are_worked_on_in_parts() -> None:
    one_way, pairs = mixture(1, (6, 5, 7))
    classes = LatentClasses.of(one_way, pairs, np.random.default_rng(3))
    rng = np.random.default_rng(4)
    bases = [Basis.of(np.cov(rng.normal(size=(k, 30)))) for k in (3, 4, 5)]
    residual = rng.normal(size=(3, 4, 5))

    def found(**at_once: int) -> list[np.ndarray]:
        posterior = _posterior(residual, 0.3, bases, **at_once)
        return [classes.table((0, 1, 2), **at_once), posterior.mean, posterior.variance]

    assert all(map(np.allclose, found(at_once=200), found()))
