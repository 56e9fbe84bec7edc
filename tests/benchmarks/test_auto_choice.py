"""How often ``auto`` is as good as the best mechanism in hindsight.

Settings are public quantities (n, cells, epsilon or rho, delta) and a shape of the data, which
is not public. Every mechanism that serves a table releases it, and the total variation between the
projected and the true counts is averaged. ``auto`` has chosen without seeing the data. Left out are
mechanisms whose estimates are biased, which are never chosen (their error depends on the data), and
those whose release is slow (``SLOW``) on more than 10 cells, where they are far behind.
``-m study`` takes 200 settings of epsilon, and of rho all 64 public settings with every
shape; at rho the delta concerns only drawn records, which are never the best.

At budgets of rho no rule that knows only public quantities is within 5 % of the best in 95 of 100:
what neighbouring cells have in common decides between ``gaussian`` and ``two_resolutions``, which
is up to a fifth better or a third worse where noise hides much of a table. For each public setting
the mechanism that is within 5 % for most shapes, chosen with hindsight, serves 299 of 320, ``auto``
297. The table of regrets is printed.
"""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pytest
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.choice import Budget, Candidate, Part, choose, targets
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.tables.count_tables import TABLE, AutoKnobs
from statpress.tasks.release.entropy import SeededRandomness

WITHIN, SHARE = 1.05, 0.95
SLOW = {"exponential_ks", "sample_resample"}
RHO = {0.1: "0.001", 0.5: "0.02", 2.0: "0.2", 8.0: "2"}
DELTAS = [1e-10, 1e-6, 1e-4, 1e-2]
SHAPES = ["uniform", "zipf", "bell", "sparse", "uneven"]
SIZES = list(
    itertools.product([300, 3000, 30_000, 300_000], [10, 100, 1000, 10_000], [0.1, 0.5, 2.0, 8.0])
)
GRID = [(*size, *more) for size in SIZES for more in itertools.product(DELTAS, SHAPES)]


def shares(shape: str, cells: int, rng: np.random.Generator) -> NDArray[np.float64]:
    middles = (np.arange(cells) + 0.5) / cells
    if shape == "uniform":
        weights = np.ones(cells)
    elif shape == "zipf":
        weights = 1 / np.arange(1, cells + 1)
    elif shape == "bell":
        weights = (middles * (1 - middles)) ** 9
    elif shape == "sparse":
        weights = np.zeros(cells)
        weights[rng.choice(cells, max(2, cells // 20), replace=False)] = 1.0
    else:
        weights = rng.gamma(0.3, size=cells)
    return weights / weights.sum()


def table_of(counts: NDArray[np.int64]) -> ContingencyTable:
    domain = Domain((Integer(name="x", lower=0, upper=len(counts) - 1),))
    cells = np.flatnonzero(counts)
    return ContingencyTable(domain, cells, counts[cells])


def hindsight(candidate: Candidate, counts: NDArray[np.int64], repetitions: int) -> float:
    """Mean total variation between projected and true shares."""
    mechanism, n = candidate.mechanism, int(counts.sum())
    assert mechanism is not None
    found = []
    for seed in range(repetitions):
        release = mechanism.release(table_of(counts), SeededRandomness(np.random.PCG64(seed)))
        table = mechanism.postprocess(release, n_records=n)
        if table.projected is not None:
            whole = table.projected
        else:
            projected = project_to_simplex(
                table.estimates, float(n), n_cells=len(counts), absent=table.undrawn_estimate
            )
            whole = np.full(len(counts), projected.absent_value)
            whole[table.cells] = projected.values
        found.append(np.abs(whole - counts).sum() / (2 * n))
    return float(np.mean(found))


def target_of(measure: str, n: int, cells: int, epsilon: float, delta: float) -> Target:
    """A budget of epsilon, or of a rho of about its size."""
    if measure == "epsilon":
        return Target(epsilon=epsilon, delta=delta, n_records=n, n_cells=cells)
    budget = Budget(rho=Decimal(RHO[epsilon]), delta=Decimal(str(delta)))
    table = Target(n_records=n, n_cells=cells, shape=(cells,))
    return targets(budget, [Part(Decimal(1), table)])[0]


def compared(
    measure: str, setting: tuple[int, int, float, float, str], seed: int, repetitions: int
) -> tuple[str, dict[str, float]]:
    """What ``auto`` chose, and the error of every mechanism in hindsight."""
    n, cells, epsilon, delta, shape = setting
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, shares(shape, cells, rng))
    choice = choose(TABLE, AutoKnobs(), target_of(measure, n, cells, epsilon, delta))
    able = [
        candidate
        for candidate in choice.candidates
        if candidate.mechanism is not None and (candidate.name not in SLOW or cells <= 10)
    ]
    times = repetitions * max(1, 80 // cells)  # few cells have errors that vary much
    assert {"gaussian", "laplace", "two_resolutions"} <= {c.name for c in able}
    return choice.mechanism, {c.name: hindsight(c, counts, times) for c in able}


def close(errors: dict[str, float], name: str) -> bool:
    """Whether a mechanism is within 5 % of the best."""
    best = min(errors.values())
    return name in errors and (errors[name] <= WITHIN * best or best <= 1e-3)


@pytest.mark.parametrize(
    ("settings", "repetitions"),
    [
        pytest.param(6, 3, id="quick"),
        pytest.param(200, 8, id="full", marks=pytest.mark.study),
    ],
)
def test_auto_is_nearly_the_best_in_hindsight(settings: int, repetitions: int) -> None:
    picked = np.random.default_rng(2026).permutation(len(GRID))[:settings]
    misses = []
    for place in picked.tolist():
        chosen, errors = compared("epsilon", GRID[place], place, repetitions)
        if not close(errors, chosen):
            misses.append((GRID[place], chosen, errors))
    for miss in misses:
        print(*miss)
    print(f"auto within {WITHIN} of the best in {settings - len(misses)} of {settings}")
    assert len(misses) <= (1 - SHARE) * settings


@pytest.mark.parametrize(
    ("sizes", "repetitions", "most_behind"),
    [
        pytest.param([(300, 1000, 0.5)], 6, 0, id="quick"),
        pytest.param(SIZES, 8, 6, id="full", marks=pytest.mark.study),
    ],
)
def test_at_rho_auto_is_nearly_as_good_as_any_rule(
    sizes: list[tuple[int, int, float]], repetitions: int, most_behind: int
) -> None:
    auto = attainable = 0
    for size in sizes:
        found = [
            compared("rho", (*size, 1e-6, shape), 1000 * size[0] + size[1], repetitions)
            for shape in SHAPES
        ]
        chosen, errors = found[0][0], [each for _, each in found]
        counted = {name: sum(close(each, name) for each in errors) for name in errors[0]}
        auto, attainable = auto + counted[chosen], attainable + max(counted.values())
        regrets = [f"{each[chosen] / min(each.values()):.2f}" for each in errors]
        print(*size, chosen, *regrets, "; within 5 %:", counted)
    print(f"auto within {WITHIN} in {auto} of {5 * len(sizes)}, the best rule in {attainable}")
    assert auto >= attainable - most_behind
