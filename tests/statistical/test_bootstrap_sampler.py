"""The real sampler against its distribution and its claim, at test level 1e-6.

Each test has a broken twin, the same code with one mistake, that it must catch.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.sampling.record_sampler import below
from statpress.mechanisms.tables.bootstrap import Bootstrap, draw_counts

LEVEL = 1e-6
DRAWS = 1_000_000
Sampler = Callable[[ContingencyTable, Fraction, int, np.random.Generator], ContingencyTable]


def generator() -> np.random.Generator:
    return np.random.Generator(AESCounter(key=20261121))


def table_of(counts: dict[int, int], *sizes: int) -> ContingencyTable:
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=size - 1) for i, size in enumerate(sizes))
    cells = np.array(sorted(counts), dtype=np.int64)
    return ContingencyTable(Domain(columns), cells, np.array([counts[c] for c in sorted(counts)]))


def p_value(sampler: Sampler, table: ContingencyTable, kappa: Fraction, draws: int) -> float:
    """Chi-square p-value of one release against the declared distribution."""
    release = sampler(table, kappa, draws, generator())
    observed = np.zeros(table.domain.n_cells)
    observed[release.cells] = release.counts
    truth = np.full(table.domain.n_cells, float(kappa))
    truth[table.cells] += table.counts
    return float(stats.chisquare(observed, draws * truth / truth.sum()).pvalue)


def kappa_ignored(
    table: ContingencyTable, kappa: Fraction, m: int, rng: np.random.Generator
) -> ContingencyTable:
    return draw_counts(table, kappa / 10**6, m, rng)


def half_the_pseudocount(
    table: ContingencyTable, kappa: Fraction, m: int, rng: np.random.Generator
) -> ContingencyTable:
    return draw_counts(table, kappa / 2, m, rng)


def rank_off_by_one(
    table: ContingencyTable, kappa: Fraction, m: int, rng: np.random.Generator
) -> ContingencyTable:
    counts = table.counts.copy()
    counts[0] += 1
    counts[-1] -= 1
    return draw_counts(ContingencyTable(table.domain, table.cells, counts), kappa, m, rng)


TABLES = [
    (table_of({0: 5, 3: 1, 4: 60}, 2, 3), Fraction(7, 3)),
    (table_of({1: 3, 2: 4, 7: 2}, 9), Fraction(1, 2)),
    (table_of({0: 40, 299: 2}, 300), Fraction(3)),
    (table_of(dict.fromkeys(range(0, 5000, 2), 8), 100, 50), Fraction(11, 10)),
]


@pytest.mark.parametrize(("table", "kappa"), TABLES)
def test_release_follows_the_smoothed_distribution(
    table: ContingencyTable, kappa: Fraction
) -> None:
    assert p_value(draw_counts, table, kappa, 4 * DRAWS) > LEVEL


@pytest.mark.parametrize("broken", [kappa_ignored, half_the_pseudocount, rank_off_by_one])
@pytest.mark.parametrize(("table", "kappa"), TABLES[:2])
def test_broken_twins_are_caught(broken: Sampler, table: ContingencyTable, kappa: Fraction) -> None:
    assert p_value(broken, table, kappa, 4 * DRAWS) < LEVEL


def test_many_word_integers_are_uniform() -> None:
    draws = DRAWS // 2
    for total in (2**64 + 1, 3 * 2**70, 10**40):
        hits = int(below(total // 3, total, draws, generator()).sum())
        assert stats.binomtest(hits, draws, (total // 3) / total).pvalue > LEVEL
        broken = int(below(total // 3 + total // 200, total, draws, generator()).sum())
        assert stats.binomtest(broken, draws, (total // 3) / total).pvalue < LEVEL


def test_domain_of_two_to_the_63_cells() -> None:
    """Where N has more than 63 bits: share from data, and spread of the rest."""
    table = table_of({0: 1000, 5: 3000}, 2**31, 2**32 - 1)
    kappa = Fraction(1, 2**51)
    on_data = 4000 / (4000 + float(kappa * table.domain.n_cells))
    release = draw_counts(table, kappa, DRAWS, generator())
    from_data = release.counts[np.isin(release.cells, table.cells)]
    share = stats.binomtest(int(from_data.sum()), DRAWS, on_data)
    assert share.pvalue > LEVEL
    assert stats.binomtest(int(from_data[0]), int(from_data.sum()), 0.25).pvalue > LEVEL
    others = release.cells[~np.isin(release.cells, table.cells)] / table.domain.n_cells
    assert stats.kstest(others, "uniform").pvalue > LEVEL


class ToldEpsilon:
    """Delta as seen from outside: the best event's probabilities on two neighbours."""

    RUNS = 3_000

    def __init__(self, mechanism: Bootstrap, pseudocount_used: Fraction) -> None:
        self.mechanism = mechanism
        self.used = Bootstrap(pseudocount_used, mechanism.records)
        # A record in cell 0 on one side is in cell 1 on the other.
        self.tables = (table_of({0: 1, 2: 4}, 4), table_of({1: 1, 2: 4}, 4))

    def proven_delta(self, epsilon: float) -> float:
        """A lower bound on the true delta that fails with probability below LEVEL."""
        frame = {"n_records": 5, "n_cells": 4}
        loss = self.mechanism.loss(**frame)
        first = math.floor(epsilon / math.log(loss.up / loss.down)) + 1
        rng, hits = generator(), []
        for table in self.tables:
            seen = 0
            for _ in range(self.RUNS):
                release = self.used.release(table, rng)
                found = dict(zip(release.cells.tolist(), release.counts.tolist(), strict=True))
                seen += found.get(0, 0) - found.get(1, 0) >= first
            hits.append(seen)
        low = stats.beta.ppf(LEVEL / 2, hits[0], self.RUNS - hits[0] + 1)
        high = stats.beta.ppf(1 - LEVEL / 2, hits[1] + 1, self.RUNS - hits[1])
        return float(low - math.exp(epsilon) * high)


def test_no_event_tells_more_than_the_claim() -> None:
    mechanism = Bootstrap(Fraction(1, 2), 4)
    told = ToldEpsilon(mechanism, mechanism.pseudocount).proven_delta(0.3)
    assert told <= mechanism.loss(n_records=5, n_cells=4).delta(0.3).upper
    assert (
        told > 0.5 * mechanism.loss(n_records=5, n_cells=4).delta(0.3).upper
    )  # the test has power


def test_half_the_pseudocount_tells_more_than_the_claim() -> None:
    mechanism = Bootstrap(Fraction(1, 2), 4)
    told = ToldEpsilon(mechanism, mechanism.pseudocount / 2).proven_delta(0.3)
    assert told > mechanism.loss(n_records=5, n_cells=4).delta(0.3).upper
