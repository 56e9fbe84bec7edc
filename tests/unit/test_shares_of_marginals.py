"""How wide microdata divide their budget: the least expected error, and what each pair is given."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from coded import domain_of
from scipy import optimize

from statpress.mechanisms.marginals import allocation
from statpress.mechanisms.marginals.allocation import ExpectedMarginals, Shares
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs, all_pairs
from statpress.mechanisms.mechanism import Target

WITHIN = 1.001
"""Of the best split of a grid."""


def setting(seed: int) -> tuple[int, float, tuple[int, ...], bool]:
    """Records, mu, sizes of columns, and whether pairs are scored."""
    rng = np.random.default_rng(seed)
    n = int(math.exp(rng.uniform(math.log(500), math.log(1e6))))
    sizes = rng.integers(2, rng.choice([4, 10, 30]), rng.integers(3, 61))
    return n, float(rng.choice([0.07, 0.24, 0.65])), tuple(map(int, sizes)), seed % 4 != 3


def expected(n: int, mu: float, sizes: tuple[int, ...], shares: Shares) -> float:
    groups = all_pairs(len(sizes))
    error = ExpectedMarginals.of(sizes, groups, shares, mu=mu, n_records=n, published=n)
    return error.pair_total_variation


def grid(screened: bool) -> list[Shares]:
    """200 splits with scores, 20 without."""
    first = np.linspace(allocation.ONE_WAYS[0], allocation.ONE_WAYS[-1], 20).tolist()
    scores = np.geomspace(allocation.SCREENS[0], allocation.SCREENS[-1], 10).tolist()
    every = itertools.product(first, scores if screened else [0.0])
    return [Shares(*each) for each in every if sum(each) < 1]


def ruled(n: int, mu: float, sizes: tuple[int, ...], screened: bool) -> Shares:
    """The rule of earlier versions: a power of the signal, at most .5."""
    cells = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) / 2
    one_way = min(max(2.6 * (n * mu / math.sqrt(cells)) ** -0.7, 0.08), 0.5)
    return Shares(one_way, min(max(one_way / 4, 0.02), 0.1) if screened else 0.0)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [2, pytest.param(40, marks=pytest.mark.nightly)])
def test_no_split_of_a_grid_is_expected_to_be_better(settings: int) -> None:
    worse = 0
    for seed in range(settings):
        n, mu, sizes, screened = setting(seed)
        groups = all_pairs(len(sizes))
        work = allocation._Workload.of(sizes, groups, 2)
        found, fixed, *others = (
            allocation._errors(work, shares, mu, n, allocation.COMPARED)[1]
            for shares in (
                Shares.best(n=n, mu=mu, sizes=sizes, groups=groups, screened=screened),
                ruled(n, mu, sizes, screened),
                *grid(screened),
            )
        )
        assert found <= WITHIN * min(others)
        worse += fixed > WITHIN * min(others)
    assert worse >= settings / 3  # a fixed rule does not pass


def test_few_records_of_many_columns_go_to_single_columns() -> None:
    sizes = (9,) * 32
    groups = all_pairs(len(sizes))
    few = Shares.best(n=1600, mu=0.07, sizes=sizes, groups=groups, screened=True)
    many = Shares.best(n=500_000, mu=0.24, sizes=sizes, groups=groups, screened=True)
    assert few.one_way == 0.97
    assert many.one_way < 0.15
    assert Shares.best(n=1600, mu=0.07, sizes=sizes, groups=(), screened=False) == Shares(1.0, 0.0)


@pytest.mark.parametrize("given", [{"one_way": 0.3}, {"one_way": 0.99}, {"screen": 0.4}])
def test_a_share_that_is_given_stays_and_leaves_room(given: dict[str, float]) -> None:
    sizes, groups = (4, 5, 6, 7), all_pairs(4)
    found = Shares.best(n=5000, mu=0.24, sizes=sizes, groups=groups, screened=True, **given)
    for name, share in given.items():
        assert getattr(found, name) == share
    assert min(found.one_way, found.screen) > 0 and found.one_way + found.screen < 1
    knobs = MarginalsKnobs(**{f"{name}_share": share for name, share in given.items()})
    target = Target(epsilon=1.0, delta=1e-6, n_records=5000, n_cells=2, domain=domain_of(sizes))
    assert Marginals.calibrate(knobs, target).shares.least_part(sizes, groups) > 0


def test_amounts_leave_least_of_what_scores_say() -> None:
    heights, rates = np.array([0.02, 0.1, 0.3, 0.001]), np.array([2.0, 0.5, 40.0, 0.1])
    frequency, total = np.array([3.0, 1.0, 2.0, 5.0]), 7.0
    found = allocation._poured(heights, rates, frequency, total)

    def left(amounts: np.ndarray) -> float:
        return float((frequency * heights / np.sqrt(1 + rates * amounts)).sum())

    assert (found * frequency).sum() == pytest.approx(total) and (found >= 0).all()
    best = optimize.minimize(
        left,
        np.full(4, total / frequency.sum()),
        bounds=[(0, total)] * 4,
        constraints={"type": "eq", "fun": lambda amounts: (frequency * amounts).sum() - total},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert left(found) <= best.fun * (1 + 1e-6)
    assert left(np.full(4, total / frequency.sum())) > 1.01 * best.fun


def test_scores_are_expected_to_help_where_they_say_something() -> None:
    sizes = (6,) * 20
    with_scores = expected(30_000, 0.24, sizes, Shares(0.15, 0.05))
    assert with_scores < 0.98 * expected(30_000, 0.24, sizes, Shares(0.15, 0.0))
    # With too little of the budget they do not, and cost it.
    assert expected(30_000, 0.24, sizes, Shares(0.15, 1e-7)) == pytest.approx(
        expected(30_000, 0.24, sizes, Shares(0.15, 0.0)), rel=0.02
    )


def test_without_pairs_the_error_is_that_of_the_reference_and_of_columns() -> None:
    sizes, n = (5,) * 8, 10**7
    error = ExpectedMarginals.of(
        sizes, all_pairs(8), Shares(0.2, 0.05), mu=0.24, n_records=n, published=n
    )
    assert error.independent_total_variation == pytest.approx(allocation.REFERENCE, rel=1e-3)
    assert error.pair_total_variation < 0.1 * allocation.REFERENCE
    one = ExpectedMarginals.of((5,), (), Shares(1.0, 0.0), mu=0.24, n_records=n, published=n)
    assert one.independent_total_variation is None and one.least_association is None
