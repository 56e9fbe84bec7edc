"""The exponential mechanisms as a config names them: laws of their releases, claims, bad input."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from every_choice import Everything
from neighbouring import Table, largest_loss, moved, tables, worst

from statpress.mechanisms.accounting.losses import BoundedRangeLoss, PrivacyLoss
from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import (
    BudgetValueError,
    ConfigError,
    InfeasibleBudgetError,
    RecordsError,
    StatpressError,
)
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables import sample_resample
from statpress.mechanisms.tables.exponential_ks import (
    ExponentialKS,
    ExponentialKSKnobs,
    ExponentialRecords,
    dense_counts,
    sparse_table,
)
from statpress.mechanisms.tables.sample_resample import SampleResample, SampleResampleKnobs
from statpress.tasks.release.entropy import SeededRandomness

Law = dict[Table, float]


def domain(*sizes: int) -> Domain:
    """Columns of so many cells."""
    named = zip("abc", sizes, strict=False)
    return Domain(tuple(Integer(name=n, lower=0, upper=size - 1) for n, size in named))


def ks_law(mechanism: ExponentialKS, table: Table) -> Law:
    """The law of ``release``, by running it through all outcomes of all of its choices."""
    private, rng = sparse_table(domain(len(table)), table), SeededRandomness(np.random.PCG64(1))

    def run() -> Table:
        return tuple(dense_counts(mechanism.release(private, rng)).tolist())

    return Everything(run).found


def chosen_law(mechanism: SampleResample, table: Table, public: Any, shape: Table) -> Law:
    """The law of the candidate's number, the candidates being given."""
    scores = mechanism.scores(np.array(table), np.array(public), shape)
    rng = np.random.default_rng(1)
    law = Everything(lambda: sample_resample.choose_candidate(scores, mechanism.epsilon, rng)).found
    return {(i,): p for i, p in law.items()}


def largest_range(laws: dict[Table, Law], c: int) -> float:
    """Of the loss, from its least to its largest value, over all neighbours."""
    losses = (
        [math.log(laws[a][z] / laws[b][z]) for z in laws[a]]
        for a, b in itertools.permutations(laws, 2)
        if moved(a, b) <= c
    )
    return max(max(loss) - min(loss) for loss in losses)


def excess_divergence(laws: dict[Table, Law], c: int, claimed: PrivacyLoss) -> float:
    """The most by which a Rényi divergence passes the claimed one, or rho the claimed rho."""
    found = []
    outcomes = list(next(iter(laws.values())))
    masses = {table: np.array([law[z] for z in outcomes]) for table, law in laws.items()}
    for a, b in itertools.permutations(laws, 2):
        if moved(a, b) > c:
            continue
        p, q = masses[a], masses[b]
        for order in (1.0001, 1.5, 2.0, 5.0, 30.0):
            divergence = math.log(np.sum(p * (p / q) ** (order - 1))) / (order - 1)
            found.append(divergence - claimed.renyi(order).upper)
            found.append(divergence / order - claimed.rho.upper)
    return max(found)


def ks(epsilon: str, records: int) -> ExponentialKS:
    return ExponentialKS(epsilon_per_record=Decimal(epsilon), records=records)


KS_SIZES = [(2, 2, 3), (3, 2, 2), (2, 1, 4)]


@pytest.mark.parametrize(("n", "k", "s"), KS_SIZES)
@pytest.mark.parametrize("c", [1, 2])
def test_the_ks_release_costs_no_more_than_its_loss(n: int, k: int, s: int, c: int) -> None:
    mechanism = ks("0.8", k)
    laws = {table: ks_law(mechanism, table) for table in tables(n, s)}
    claimed = mechanism.loss(n_records=n, n_cells=s, unit_records=c)
    assert claimed == BoundedRangeLoss(Fraction(4, 5) * c)
    for epsilon in (0.0, 0.2, 0.5, 0.8 * c):
        assert worst(laws, c, math.exp(epsilon)) <= claimed.delta(epsilon).upper + 1e-12
    assert largest_loss(laws, c) <= largest_range(laws, c) <= 0.8 * c + 1e-12
    assert excess_divergence(laws, c, claimed) <= 1e-12


def test_the_ks_release_with_half_the_sensitivity_costs_more() -> None:
    """A twin that samples at twice the rate it claims."""
    claim, twin = (
        {table: ks_law(ks(rate, 2), table) for table in tables(2, 3)} for rate in ("1.5", "3")
    )
    assert 0.45 * 1.5 < largest_loss(claim, 1) <= 1.5 < largest_loss(twin, 1)
    assert largest_range(claim, 1) <= 1.5 + 1e-12 < largest_range(twin, 1)
    assert excess_divergence(twin, 1, BoundedRangeLoss(Fraction(3, 2))) > 0.01


# One candidate near the first cell and many near the last: where the bound is reached.
UNEVEN = [[1, 0, 0, 0]] + 200 * [[0, 0, 0, 1]]
EVERY = [list(z) for z in tables(2, 4)]
DISTANCES = {
    "ks": {},
    "cramer_von_mises": {},
    "mean": {},
    "series": {"smoothness": Fraction(1)},
}


def resample(distance: str, epsilon: str = "1.5", records: int = 2, **more: Any) -> SampleResample:
    return SampleResample(
        epsilon_per_record=Decimal(epsilon),
        records=records,
        candidates=7,
        distance=distance,
        **(DISTANCES[distance] | more),
    )


@pytest.mark.parametrize(
    ("distance", "shape"),
    [(distance, (4,)) for distance in DISTANCES]
    + [(distance, (2, 2)) for distance in DISTANCES if distance != "series"],  # of one column
)
@pytest.mark.parametrize(
    ("n", "c"),
    [(1, 1), (2, 2), *(pytest.param(3, c, marks=pytest.mark.nightly) for c in (1, 2))],
)
def test_the_choice_costs_no_more_than_its_loss(
    distance: str, shape: Table, n: int, c: int
) -> None:
    for public in (UNEVEN, EVERY):
        mechanism = resample(distance, records=sum(public[0]))
        claimed = mechanism.loss(n_records=n, n_cells=4, unit_records=c)
        laws = {t: chosen_law(mechanism, t, public, shape) for t in tables(n, 4)}
        for epsilon in (0.0, 0.4, 1.5 * c):
            assert worst(laws, c, math.exp(epsilon)) <= claimed.delta(epsilon).upper + 1e-12
        found = largest_loss(laws, c)
        assert found <= largest_range(laws, c) <= 1.5 * c + 1e-9
        assert excess_divergence(laws, c, claimed) <= 1e-9
        if public is UNEVEN and (n, c) == (1, 1) and distance in ("ks", "mean"):
            assert found > 0.98 * 1.5  # reached, so half the sensitivity would be refuted
            twin = resample(distance, "3", records=1)
            assert largest_loss({t: chosen_law(twin, t, public, shape) for t in laws}, 1) > 1.5


def test_a_series_keeps_the_terms_of_its_sizes() -> None:
    """n^(1/3) terms of the data and k^(1/3) of a candidate, by the definition of section 5.3."""
    mechanism = resample("series", records=8)
    counts, z = np.array([9, 0, 20, 3, 0, 32]), np.array([[1, 0, 3, 2, 2, 0]])
    scores = mechanism.scores(counts, z, (6,))
    middles = (np.arange(6) + 0.5) / 6
    basis = np.sqrt(2) * np.cos(np.pi * np.arange(1, 5)[:, None] * middles)  # 64^(1/3) = 4
    gap = basis @ counts / 64
    gap[:2] -= basis[:2] @ z[0] / 8
    steps = basis[:, :, None] - basis[:, None]
    delta = math.sqrt((steps**2).sum(axis=0).max()) / 64
    found = math.sqrt(scores.numerators[0] / scores.denominator)
    assert found == pytest.approx(np.linalg.norm(gap) / delta, rel=1e-5)


ALL: list[tuple[type[ExponentialRecords], Any]] = [
    (ExponentialKS, ExponentialKSKnobs()),
    (ExponentialKS, ExponentialKSKnobs(records=5)),
    (SampleResample, SampleResampleKnobs()),
    (
        SampleResample,
        SampleResampleKnobs(distance="cramer_von_mises", concentration=Fraction(1, 3)),
    ),
    (SampleResample, SampleResampleKnobs(distance="mean", candidates=9)),
    (SampleResample, SampleResampleKnobs(distance="series", smoothness=Fraction(3, 2))),
]


@pytest.mark.parametrize(("kind", "knobs"), ALL)
@pytest.mark.parametrize(
    "budget",
    [
        {"epsilon": 0.5, "delta": 0.0},
        {"epsilon": 1 / 3, "delta": 0.0, "unit_records": 7},
        {"epsilon": 3.0, "delta": 1e-6},
        {"epsilon": 0.0, "delta": 0.0, "rho": 0.05, "unit_records": 2},
    ],
)
def test_calibration_meets_the_budget_and_leaves_nothing(
    kind: Any, knobs: Any, budget: dict[str, Any]
) -> None:
    target = Target(n_records=1000, n_cells=12, **budget)
    mechanism = kind.calibrate(knobs, target)
    assert target.allows(mechanism.loss(**target.frame))
    epsilon = mechanism.epsilon_per_record * Decimal("1.00000000001")
    more = replace(mechanism, epsilon_per_record=epsilon)
    assert not target.allows(more.loss(**target.frame))
    described = {name: str(value) for name, value in mechanism.describe().items()}
    assert kind.from_description(described) == mechanism
    assert kind.name == described["mechanism"]
    assert not mechanism.unbiased


def test_a_pure_budget_is_used_to_the_last_digit() -> None:
    target = Target(epsilon=0.5, delta=0.0, n_records=1000, n_cells=12)
    assert target.pure_epsilon() == Decimal("0.5")
    assert replace(target, epsilon=1e9).pure_epsilon() == 10**6
    with pytest.raises(InfeasibleBudgetError, match="1e-9"):
        replace(target, epsilon=1e-10).pure_epsilon()
    described = ExponentialKS.calibrate(ExponentialKSKnobs(), replace(target, epsilon=20.0))
    assert described.describe()["epsilon_per_record"] == "20"


def test_default_records_are_the_papers_rates() -> None:
    target = Target(epsilon=1.0, delta=0.0, n_records=10**6, n_cells=10)
    assert ExponentialKS.calibrate(ExponentialKSKnobs(), target).records == 10_000
    many = replace(target, n_cells=5000)  # bounded by the time it takes
    assert ExponentialKS.calibrate(ExponentialKSKnobs(), many).records == 20
    rates = {"ks": 10_000, "cramer_von_mises": 10_000, "mean": 1, "series": 1000}
    for distance, records in rates.items():
        knobs = SampleResampleKnobs(distance=distance)
        assert SampleResample.calibrate(knobs, target).records == records


def test_one_cell_costs_nothing_and_is_released() -> None:
    target = Target(epsilon=1.0, delta=0.0, n_records=8, n_cells=1)
    rng = SeededRandomness(np.random.PCG64(1))
    for kind, knobs in ALL:
        mechanism: Any = kind.calibrate(knobs, target)
        assert mechanism.loss(**target.frame).pure_epsilon == (0.0, 0.0)
        drawn = mechanism.release(sparse_table(domain(1), [8]), rng)
        assert drawn.counts.tolist() == [mechanism.records]
        assert mechanism.postprocess(drawn, n_records=8).estimates.tolist() == [8.0]


def grid(*shape: int) -> Target:
    cells = math.prod(shape)
    return Target(epsilon=1.0, delta=0.0, n_records=1000, n_cells=cells, shape=shape)


@pytest.mark.parametrize(
    ("refused", "error", "words"),
    [
        (lambda: ks("0", 3), BudgetValueError, "epsilon"),
        (lambda: ks("nan", 3), BudgetValueError, "epsilon"),
        (lambda: ks("1e-999999999", 3), BudgetValueError, "epsilon"),
        (lambda: ks("0." + "3" * 31, 3), BudgetValueError, "30 digits"),
        (lambda: ks("1", 0), RecordsError, "between 1 and 1e9"),
        (lambda: ExponentialKSKnobs(records=0), RecordsError, "between"),
        (lambda: ks("1", 3).loss(n_records=0, n_cells=3), RecordsError, "positive"),
        (lambda: ks("1", 3).loss(n_records=2, n_cells=3, unit_records=3), RecordsError, "unit"),
        (
            lambda: ExponentialKS.calibrate(ExponentialKSKnobs(), grid(3, 4)),
            ConfigError,
            "1 column.*'sample_resample'",
        ),
        (
            lambda: ExponentialKS.calibrate(ExponentialKSKnobs(), grid(100_001)),
            ConfigError,
            "cells",
        ),
        (
            lambda: ExponentialKS.calibrate(ExponentialKSKnobs(records=10**4), grid(101)),
            RecordsError,
            "at most 9,900 records",
        ),
        (
            lambda: ExponentialKS.calibrate(
                ExponentialKSKnobs(), Target(epsilon=1, delta=0, n_records=9, n_cells=5, shape=(6,))
            ),
            ConfigError,
            "impossible",
        ),
        (
            lambda: SampleResample.calibrate(SampleResampleKnobs(), grid(5000)),
            ConfigError,
            "5,000 cells",
        ),
        (
            lambda: SampleResample.calibrate(SampleResampleKnobs(distance="series"), grid(3, 4)),
            ConfigError,
            "another distance",
        ),
        (
            lambda: SampleResample.calibrate(
                SampleResampleKnobs(records=10**9),
                Target(epsilon=1, delta=0, n_records=10**10, n_cells=5),
            ),
            RecordsError,
            "at most 461,168,601",
        ),
        (
            lambda: SampleResample.calibrate(
                SampleResampleKnobs(distance="series", smoothness=Fraction(51, 100)),
                Target(epsilon=1, delta=0, n_records=10**8, n_cells=500),
            ),
            ConfigError,
            "smoothness",
        ),
        (lambda: SampleResampleKnobs(distance="cosine"), ConfigError, "there are ks"),
        (lambda: SampleResampleKnobs(candidates=0), ConfigError, "candidates"),
        (lambda: SampleResampleKnobs(smoothness=Fraction(2)), ConfigError, "series"),
        (
            lambda: SampleResampleKnobs(distance="series", smoothness=Fraction(1, 2)),
            ConfigError,
            "above 1/2",
        ),
        (lambda: SampleResampleKnobs(concentration=Fraction(0)), ConfigError, "concentration"),
        (lambda: replace(resample("series"), smoothness=None), ConfigError, "series"),
    ],
)
def test_bad_input_is_refused_with_what_would_do(
    refused: Callable[[], Any], error: type[StatpressError], words: str
) -> None:
    with pytest.raises(error) as caught:
        refused()
    assert re.search(words, str(caught.value))


def test_estimates_are_the_records_scaled() -> None:
    """With the multinomial error at Laplace's rule, for the unlisted cells too."""
    mechanism = ks("1", 8)
    table = mechanism.postprocess(sparse_table(domain(4), [5, 0, 3, 0]), n_records=400)
    assert table.estimates.tolist() == [250.0, 150.0]
    errors = [400 * math.sqrt(p * (1 - p) / 8) for p in (0.6, 0.4, 0.1)]
    assert [*table.standard_errors, table.undrawn_standard_error] == pytest.approx(errors)
    assert table.undrawn_estimate == 0


@pytest.mark.parametrize("epsilon", ["0.05", "0.5", "2"])
@pytest.mark.parametrize("cells", [10, 50])
def test_the_expected_distance_is_a_guide_for_even_data(epsilon: str, cells: int) -> None:
    """Above the true mean distance, and within a factor of ten of it."""
    rng = SeededRandomness(np.random.PCG64(7))
    n = 10_000
    resampled = resample("ks", epsilon, 464)
    for mechanism in (ks(epsilon, 464), replace(resampled, candidates=200)):
        found = []
        for _ in range(3):
            counts = rng.multinomial(n, np.full(cells, 1 / cells))
            drawn = dense_counts(mechanism.release(sparse_table(domain(cells), counts), rng))
            found.append(np.abs(np.cumsum(drawn / 464 - counts / n)).max())
        error = mechanism.expected_error(n_records=n, n_cells=cells)
        assert np.mean(found) < 1.2 * error.kolmogorov_smirnov < 12 * np.mean(found)
        assert error.total_variation == 1


def test_candidates_come_from_the_named_proposal() -> None:
    """Uniform ones fill all cells; at a small concentration each lies nearly in one cell."""
    rng = SeededRandomness(np.random.PCG64(3))
    private = sparse_table(domain(10), [4] * 10)
    even = resample("mean", records=200).release(private, rng)
    narrow = resample("mean", records=200, concentration=Fraction(1, 1000)).release(private, rng)
    assert len(even.cells) == 10
    assert len(narrow.cells) <= 2
    assert even.n_records == narrow.n_records == 200
