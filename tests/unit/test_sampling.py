"""Draws: totals, extremes, chunks, and what a release may not hold."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable, sum_by_cell
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.tables import bootstrap
from statpress.mechanisms.tables.bootstrap import Bootstrap


def table_of(counts: dict[int, int], n_cells: int) -> ContingencyTable:
    domain = Domain((Integer(name="c", lower=0, upper=n_cells - 1),))
    cells = np.array(sorted(counts), dtype=np.int64)
    return ContingencyTable(domain, cells, np.array([counts[c] for c in sorted(counts)]))


@given(
    counts=st.dictionaries(st.integers(0, 40), st.integers(1, 9), min_size=1),
    kappa=st.fractions(Fraction(1, 50), 20, max_denominator=50),
    records=st.integers(1, 300),
    seed=st.integers(0, 2**32),
)
def test_release_has_the_planned_records_inside_the_domain(
    counts: dict[int, int], kappa: Fraction, records: int, seed: int
) -> None:
    table = table_of(counts, 41)
    release = Bootstrap(kappa, records).release(table, np.random.default_rng(seed))
    assert release.n_records == records
    assert release.domain == table.domain


@pytest.mark.parametrize("n_cells", [1, 2, 2**22, 2**52])
def test_chunks_add_up(n_cells: int) -> None:
    seen: list[int] = []
    table = table_of({0: 3}, n_cells)
    release = bootstrap.draw_counts(
        table, Fraction(1, 7), 1000, np.random.default_rng(1), seen.append, chunk=64
    )
    assert release.n_records == 1000
    assert sum(seen) == 1000
    assert len(seen) == 16


def test_more_occupied_cells_than_draws() -> None:
    table = table_of(dict.fromkeys(range(0, 4000, 2), 2), 4000)
    tiny = Fraction(1, 10**9)
    expected = Bootstrap(tiny, 500).release(table, np.random.default_rng(5))
    assert expected.n_records == 500
    assert np.all(expected.cells % 2 == 0)


@pytest.mark.parametrize("pseudocount", [0, -1, "nan", "inf", "1/0", "-1/3", float("nan")])
def test_pseudocount_must_be_positive(pseudocount: object) -> None:
    with pytest.raises(RecordsError):
        Bootstrap(pseudocount, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("records", [0, -3])
def test_records_must_be_positive(records: int) -> None:
    with pytest.raises(RecordsError):
        Bootstrap(1, records)


def test_sum_by_cell() -> None:
    cells, counts = sum_by_cell(np.array([5, 1, 5, 2]), np.array([1, 2, 3, 4]))
    assert cells.tolist() == [1, 2, 5]
    assert counts.tolist() == [2, 4, 4]
    empty = np.zeros(0, dtype=np.int64)
    assert [len(part) for part in sum_by_cell(empty, empty)] == [0, 0]


def test_debiased_estimates_are_unbiased_by_enumeration() -> None:
    """The mean of the estimates over all releases is the true count, exactly."""
    table, kappa, m = table_of({0: 2, 2: 1}, 3), Fraction(3, 2), 3
    mechanism, total = Bootstrap(kappa, m), Fraction(3) + 3 * kappa
    p = [(h + kappa) / total for h in (2, 0, 1)]
    mean = np.zeros(3)
    for draws in itertools.product(range(3), repeat=m):
        weight = float(np.prod([float(p[z]) for z in draws]))
        cells, counts = np.unique(np.array(draws), return_counts=True)
        release = ContingencyTable(table.domain, cells, counts)
        debiased = mechanism.postprocess(release, n_records=3)
        estimates = np.full(3, debiased.undrawn_estimate)
        estimates[debiased.cells] = debiased.estimates
        mean += weight * estimates
    assert mean == pytest.approx([2, 0, 1], abs=1e-12)


def test_standard_error_is_that_of_the_draw() -> None:
    table, kappa, m = table_of({0: 60, 1: 30}, 4), Fraction(5), 2000
    mechanism = Bootstrap(kappa, m)
    rng = np.random.default_rng(7)
    found = np.array(
        [
            mechanism.postprocess(mechanism.release(table, rng), n_records=90).estimates[0]
            for _ in range(1000)
        ]
    )
    one = mechanism.postprocess(mechanism.release(table, rng), n_records=90)
    assert found.std() == pytest.approx(one.standard_errors[0], rel=0.08)
    assert found.mean() == pytest.approx(60, abs=0.3)


def test_standard_error_knows_the_largest_possible_frequency() -> None:
    table = table_of({0: 5, 1: 5}, 3)
    mechanism = Bootstrap(1, 1)
    debiased = mechanism.postprocess(
        mechanism.release(table, np.random.default_rng(0)), n_records=10
    )
    p = 11 / 13  # (n + pseudocount) / N
    assert debiased.standard_errors == pytest.approx([13 * np.sqrt(p * (1 - p))])


def test_expected_errors_bound_what_happens() -> None:
    """Measured over releases of a table that is as uneven as can be, and an even one."""
    for counts in ({0: 100}, dict.fromkeys(range(100), 1)):
        table, mechanism = table_of(counts, 1000), Bootstrap(10, 100)
        expected = mechanism.expected_error(n_records=100, n_cells=1000)
        truth = np.zeros(1000)
        truth[table.cells] = table.counts
        distances, first = [], []
        for seed in range(60):
            release = mechanism.release(table, np.random.default_rng(seed))
            debiased = mechanism.postprocess(release, n_records=100)
            estimates = np.full(1000, debiased.undrawn_estimate)
            estimates[debiased.cells] = debiased.estimates
            distances.append(np.abs(estimates - truth).sum() / 2 / 100)
            first.append(estimates[0])
        assert 1 < np.mean(distances) <= expected.total_variation
        assert np.std(first) <= 1.4 * expected.cell_sd_most
