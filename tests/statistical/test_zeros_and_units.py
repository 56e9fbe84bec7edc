"""The real samplers with structural zeros and an absent cell, at test level 1e-6.

Each test has a broken twin that it must catch.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.tables import bootstrap
from statpress.mechanisms.tables.bootstrap import Bootstrap, debias, draw_counts
from statpress.mechanisms.tables.perturbed import LaplaceTable
from statpress.tasks.release.entropy import SeededRandomness

LEVEL = 1e-6
DRAWS = 400_000
RUNS = 4_500
COLUMNS = tuple(Integer(name=name, lower=0, upper=3) for name in "ab")
ZEROS = (
    ZeroPattern((("a", ((0, 1),)), ("b", ((2, 3),)))),
    ZeroPattern((("a", ((1, 2),)), ("b", ((3, 3),)))),
)
DOMAIN = Domain(COLUMNS, ZEROS, absent=True)  # 16 combinations, 11 possible, 1 absent


def generator() -> np.random.Generator:
    return np.random.Generator(AESCounter(key=20261121))


def private(domain: Domain, **counts: int) -> ContingencyTable:
    """A table of cells that are named c5 or absent."""
    found = {domain.n_cells - 1 if n == "absent" else int(n[1:]): k for n, k in counts.items()}
    cells = sorted(found)
    return ContingencyTable(domain, np.array(cells), np.array([found[cell] for cell in cells]))


TABLE = private(DOMAIN, c0=40, c5=3, c15=9, absent=20)


def p_value(release: ContingencyTable, kappa: Fraction) -> float:
    """Chi-square p-value of a release against the declared distribution."""
    truth = np.zeros(17)
    truth[DOMAIN.possible_cells()] = float(kappa)
    truth[TABLE.cells] += TABLE.counts
    observed = np.zeros(17)
    observed[release.cells] = release.counts
    if observed[truth == 0].any():
        return 0.0
    expected = release.n_records * truth / truth.sum()
    return float(stats.chisquare(observed[truth > 0], expected[truth > 0]).pvalue)


@pytest.mark.parametrize("kappa", [Fraction(7, 3), Fraction(10**20 + 1, 10**19)])
@pytest.mark.parametrize("listed", [True, False])
def test_draws_follow_the_smoothed_distribution_over_possible_cells(
    monkeypatch: pytest.MonkeyPatch, listed: bool, kappa: Fraction
) -> None:
    """With integers of one word and of several, from a list and by rejection."""
    if not listed:
        monkeypatch.setattr(bootstrap, "LISTED", 0)
    assert DOMAIN.n_possible == 12
    assert p_value(draw_counts(TABLE, kappa, DRAWS, generator()), kappa) > LEVEL


def test_twins_that_draw_from_other_cells_are_caught() -> None:
    kappa = Fraction(7, 3)
    everywhere = ContingencyTable(Domain(COLUMNS, absent=True), TABLE.cells, TABLE.counts)
    assert p_value(draw_counts(everywhere, kappa, DRAWS, generator()), kappa) < LEVEL
    # The rejected draws given to one cell, as by taking the place for the code.
    drawn = draw_counts(everywhere, kappa, DRAWS, generator())
    kept = np.where(DOMAIN.is_possible(drawn.cells), drawn.cells, 0)
    twin = ContingencyTable.from_cells(DOMAIN, kept, drawn.counts)
    assert p_value(twin, kappa) < LEVEL
    # The absent cell without pseudocount: the same share of it goes to the others.
    fewer = Domain(COLUMNS, ZEROS)
    unpadded = draw_counts(
        ContingencyTable(fewer, TABLE.cells[:-1], TABLE.counts[:-1]), kappa, DRAWS * 52 // 72,
        generator(),
    )  # fmt: skip
    cells = np.append(unpadded.cells, DOMAIN.absent_cell)
    counts = np.append(unpadded.counts, DRAWS * 20 // 72)
    assert p_value(ContingencyTable(DOMAIN, cells, counts), kappa) < LEVEL


def test_rejection_in_a_domain_that_cannot_be_listed() -> None:
    columns = tuple(Integer(name=name, lower=0, upper=2**30 - 1) for name in "ab")
    half = 2**29
    zero = ZeroPattern((("a", ((0, half - 1),)), ("b", ((0, half - 1),))))
    domain = Domain(columns, (zero,), absent=True)
    table = ContingencyTable(domain, np.array([2**60 - 1]), np.array([5]))
    release = draw_counts(table, Fraction(10**6), 60_000, generator())
    cells = np.repeat(release.cells, release.counts)
    assert domain.is_possible(cells).all()
    a, b = (domain.codes(cells, name) >= half for name in "ab")
    quarters = np.bincount(2 * a + b, minlength=4)
    assert quarters[0] == 0
    assert stats.chisquare(quarters[1:]).pvalue > LEVEL
    assert stats.chisquare([*quarters[1:3], quarters[3] + 1500]).pvalue < LEVEL


class Told:
    """Delta as seen from outside: the best event's probabilities on two neighbours."""

    EPSILON = 0.3

    def __init__(self, mechanism: Bootstrap, domain: Domain, tables: list[ContingencyTable]):
        self.mechanism, self.domain, self.tables = mechanism, domain, tables
        self.low, self.high = (int(t.cells[0]) for t in tables)

    def proven_delta(self, *, first: int) -> float:
        """A lower bound on the true delta that fails with probability below LEVEL."""
        rng, hits = generator(), []
        for table in self.tables:
            seen = 0
            for _ in range(RUNS):
                release = self.mechanism.release(table, rng)
                found = dict(zip(release.cells.tolist(), release.counts.tolist(), strict=True))
                seen += found.get(self.low, 0) - found.get(self.high, 0) >= first
            hits.append(seen)
        low = stats.beta.ppf(LEVEL / 2, hits[0], RUNS - hits[0] + 1)
        high = stats.beta.ppf(1 - LEVEL / 2, hits[1] + 1, RUNS - hits[1])
        return float(low - math.exp(self.EPSILON) * high)

    def claimed(self, **changes: int) -> float:
        frame = {"n_records": 6, "n_cells": self.domain.n_possible, "unit_records": 2}
        return self.mechanism.loss(**(frame | changes)).delta(self.EPSILON).upper


def test_no_event_tells_more_than_the_claim_for_a_unit_of_two_records() -> None:
    """Two records move from one cell to another; six more cells are impossible."""
    columns = (Integer(name="a", lower=0, upper=9),)
    domain = Domain(columns, (ZeroPattern((("a", ((3, 9),)),)),), absent=True)
    tables = [private(domain, c0=2, absent=4), private(domain, c1=2, absent=4)]
    told = Told(Bootstrap(Fraction(1), 3), domain, tables)
    proven = told.proven_delta(first=1)
    assert proven <= told.claimed()
    assert proven > 0.8 * told.claimed()  # the test has power
    assert proven > told.claimed(unit_records=1)  # the broken twin: a unit of one record
    assert proven > told.claimed(n_cells=domain.n_cells)  # impossible cells counted in N


def test_an_absent_cell_without_pseudocount_tells_everything() -> None:
    """The broken twin draws padding only from padding: whoever sees it knows there was some."""
    domain = Domain((Integer(name="a", lower=0, upper=2),), absent=True)
    kappa, m, rng, seen = Fraction(1), 3, generator(), []
    for padding, honest in ((2, True), (0, True), (2, False), (0, False)):
        full = private(domain, **{"c0": 6 - padding} | ({"absent": padding} if padding else {}))
        hits = 0
        for _ in range(1500):
            release = draw_counts(full, kappa, m, rng)
            if not honest and not padding:
                release = release.without_absent()
            hits += bool(domain.is_absent(release.cells).any())
        seen.append(hits)

    def proven(with_padding: int, without: int) -> float:
        low = stats.beta.ppf(LEVEL / 2, with_padding, 1500 - with_padding + 1)
        high = stats.beta.ppf(1 - LEVEL / 2, without + 1, 1500 - without)
        return float(low - math.exp(0.9) * high)

    frame = {"n_records": 6, "n_cells": domain.n_possible, "unit_records": 2}
    claimed = Bootstrap(kappa, m).loss(**frame).delta(0.9).upper
    assert proven(*seen[:2]) <= claimed < proven(*seen[2:])


def test_noise_lies_on_possible_cells_alone_and_counts_are_in_their_places() -> None:
    release = LaplaceTable(Fraction(1, 16)).release(TABLE, SeededRandomness(np.random.PCG64(1)))
    assert release.cells.tolist() == DOMAIN.possible_cells().tolist()
    assert dict(zip(release.cells.tolist(), release.counts.tolist(), strict=True)) == {
        int(cell): 0 for cell in DOMAIN.possible_cells()
    } | {0: 40, 5: 3, 15: 9, 16: 20}


def test_debiased_counts_are_unbiased_and_those_projected_add_up_with_padding() -> None:
    kappa, rng = Fraction(3), generator()
    release = draw_counts(TABLE, kappa, 50 * DRAWS, rng)
    table = debias(release, kappa, n_records=TABLE.n_records)
    assert table.cells.tolist() == DOMAIN.possible_cells().tolist()
    truth = np.zeros(17)
    truth[TABLE.cells] = TABLE.counts
    deviations = (table.estimates - truth[table.cells]) / table.standard_errors
    assert np.abs(deviations).max() < stats.norm.isf(LEVEL / 24)
    # The broken twin takes the pseudocount of impossible cells out too.
    wide = ContingencyTable(Domain(COLUMNS, absent=True), release.cells, release.counts)
    twin = debias(wide, kappa, n_records=TABLE.n_records)
    deviations = (twin.estimates - truth[twin.cells]) / twin.standard_errors
    assert np.abs(deviations).max() > stats.norm.isf(LEVEL / 24)
    projected = project_to_simplex(
        table.estimates, float(TABLE.n_records), n_cells=DOMAIN.n_possible
    ).values
    assert projected.sum() == pytest.approx(72)
    assert projected[-1] == pytest.approx(20, abs=1)
