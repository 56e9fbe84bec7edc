"""Choosing a mechanism: the figures it rests on, what it says, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from statpress.mechanisms.errors import InfeasibleBudgetError
from statpress.mechanisms.estimates.estimand import EstimandKnobs
from statpress.mechanisms.estimates.estimate import ESTIMATE
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.choice import choose, compare
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.tables.count_tables import TABLE, AutoKnobs, CountsKind
from statpress.mechanisms.tables.expected import projected_total_variation


def target(delta: float, *, epsilon: float = 1.0, cells: int = 50, n: int = 10_000) -> Target:
    return Target(epsilon=epsilon, delta=delta, n_records=n, n_cells=cells)


def test_the_choice_follows_the_budget() -> None:
    strict = choose(TABLE, AutoKnobs(), target(1e-9))
    loose = choose(TABLE, AutoKnobs(), target(0.05))
    assert (strict.mechanism, loose.mechanism) == ("laplace", "gaussian")
    for choice in (strict, loose):
        errors = [candidate.error("total_variation") for candidate in choice.candidates]
        assert errors == sorted(errors)
        assert f"{errors[0]:.4g}" in choice.reason()
        assert choice.candidates[1].name in choice.reason()


@pytest.mark.parametrize("minimise", ["total_variation", "kolmogorov_smirnov", "cell_sd"])
def test_every_criterion_ranks_by_its_own_figure(minimise: str) -> None:
    choice = choose(TABLE, AutoKnobs(minimise=minimise), target(1e-6))
    best, *others = choice.candidates
    assert all(best.error(choice.minimise) <= other.error(choice.minimise) for other in others)
    assert minimise.replace("_", " ") in choice.reason()


def test_a_mechanism_that_cannot_serve_says_why_and_comes_last() -> None:
    choice = choose(TABLE, AutoKnobs(), target(0.0))
    refused = next(c for c in choice.candidates if c.name == "gaussian")
    assert refused.mechanism is None
    assert "No scale" in refused.reason
    assert choice.mechanism == "laplace"
    estimates = {c.name for c in compare(ESTIMATE, EstimandKnobs(statistic="mean"), target(1e-6))}
    assert "joint_moments" in estimates
    assert "laplace" not in estimates


def test_where_none_can_serve_every_reason_is_given() -> None:
    hopeless = Target(epsilon=1e-16, delta=1e-300, n_records=10, n_cells=10**9)
    with pytest.raises(InfeasibleBudgetError, match=r"No mechanism can serve .*: ") as refused:
        choose(TABLE, AutoKnobs(minimise="cell_sd"), hopeless)
    tried = {candidate.name for candidate in compare(TABLE, AutoKnobs(), hopeless)}
    assert [name for name in tried if name not in str(refused.value)] == []


def test_a_kind_without_mechanisms_is_refused() -> None:
    with pytest.raises(InfeasibleBudgetError):
        choose(CountsKind("nothing"), AutoKnobs(), target(1e-6))


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("shape", ["uniform", "zipf", "tenth"])
def test_the_expected_error_is_that_of_simulated_projections(laplace: bool, shape: str) -> None:
    cells, n, sd = 2000, 20_000, 12.0
    ranks = 1.0 / np.arange(1, cells + 1)
    if shape == "uniform":
        ranks[:] = 1
    if shape == "tenth":
        ranks[cells // 10 :] = 0
    counts = n * ranks / ranks.sum()
    rng = np.random.default_rng(7)
    noise = (rng.laplace if laplace else rng.normal)(
        0, sd / np.sqrt(2) if laplace else sd, (40, cells)
    )
    gaps = [np.abs(project_to_simplex(counts + z, n).values - counts).sum() for z in noise]
    simulated = float(np.mean(gaps)) / (2 * n)

    from statpress.mechanisms.tables import expected as expected_variation

    weights, levels = expected_variation._shape(
        shape == "uniform", cells // 10 if shape == "tenth" else cells, n
    )
    weights, levels = np.append(weights, cells - weights.sum()), np.append(levels, 0.0)
    expected = expected_variation._variation(weights, levels, np.full_like(levels, sd), n, laplace)
    assert expected == pytest.approx(simulated, rel=0.02)


def test_more_noise_is_never_expected_to_be_better() -> None:
    found = [
        projected_total_variation(
            lambda counts, sd=sd: np.full_like(counts, sd), n_records=1000, n_cells=100
        )
        for sd in (0.001, 1.0, 10.0, 100.0, 10_000.0)
    ]
    assert found == sorted(found)
    assert found[0] < 1e-4
    assert 0.5 < found[-1] <= 1
