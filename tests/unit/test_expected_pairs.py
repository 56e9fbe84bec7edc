"""What microdata's tables of two columns are expected to miss: against draws, widths, domains."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from estimating import seeded

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.planning.choice import choose
from statpress.mechanisms.postprocessing.consistency import project_to_simplex
from statpress.mechanisms.postprocessing.rounding import round_systematically
from statpress.mechanisms.registry import REGISTRY
from statpress.mechanisms.tables import expected as few_draws
from statpress.mechanisms.tables import expected as pairs_of_columns
from statpress.mechanisms.tables.bootstrap import Bootstrap
from statpress.mechanisms.tables.count_tables import MICRODATA, TABLE, AutoKnobs, AutoRecordsKnobs
from statpress.mechanisms.tables.expected import (
    MOST_SIMULATED,
    ExpectedRecords,
    _drawn_total_variation,
    pair_total_variation,
)

NIGHTLY = pytest.mark.nightly
NOISY = ("gaussian", "laplace", "two_resolutions")


def domain_of(*sizes: int, absent: bool = False, zeros: Any = ()) -> Domain:
    columns = (Integer(name=f"c{i}", lower=0, upper=size - 1) for i, size in enumerate(sizes))
    return Domain(tuple(columns), zeros, absent)


def target(domain: Domain, n: int = 5000, epsilon: float = 1.0) -> Target:
    return Target(
        epsilon=epsilon,
        delta=1e-6,
        n_records=n,
        n_cells=domain.n_possible,
        shape=tuple(column.size for column in domain.columns),
        domain=domain,
        unit_records=3 if domain.absent else 1,
    )


def expected(name: str, asked: Target) -> float:
    made = REGISTRY[name].calibrate(REGISTRY[name].knobs(), asked)
    error = MICRODATA.expected_error(made, asked)
    assert isinstance(error, ExpectedRecords)
    assert error.pair_total_variation is not None
    return error.pair_total_variation


def happened(name: str, asked: Target, repetitions: int) -> float:
    """The same of real releases of records drawn from the reference population."""
    domain, n = asked.domain, asked.n_records
    assert domain is not None
    shape = asked.shape
    made: Any = REGISTRY[name].calibrate(REGISTRY[name].knobs(), asked)
    shares = np.ones(1)
    for size in shape:
        weights = np.exp(-3 * np.arange(size) / size)
        shares = np.outer(shares, weights / weights.sum()).ravel()
    rng, found = seeded(11), []
    for _ in range(repetitions):
        true = rng.multinomial(n, shares)
        there = np.flatnonzero(true)
        raw = made.release(ContingencyTable(domain, there, true[there]), rng)
        if "records" in made.describe():
            published = np.bincount(raw.cells, weights=raw.counts, minlength=len(true))
        else:
            derived = made.postprocess(raw, n_records=n)
            projected = derived.projected
            if projected is None:
                projected = project_to_simplex(derived.estimates, n).values
            published = round_systematically(projected, n)
        gap = (published - true).reshape(shape) / n
        axes = range(len(shape))
        pairs = list(itertools.combinations(axes, 2)) or [(0, 0)]
        for pair in pairs:
            others = tuple(axis for axis in axes if axis not in pair)
            found.append(np.abs(gap.sum(axis=others)).sum() / 2)
    return float(np.mean(found))


@pytest.mark.parametrize(
    "sizes", [(6,), (4, 2, 7), *(pytest.param(s, marks=NIGHTLY) for s in ((3, 9), (3, 5, 4, 6, 2)))]
)
@pytest.mark.parametrize("name", ["bootstrap", *NOISY])
def test_it_is_what_happens_to_the_reference_population(name: str, sizes: tuple[int, ...]) -> None:
    asked = target(domain_of(*sizes))
    assert expected(name, asked) == pytest.approx(happened(name, asked, 30), rel=0.25)
    half = dataclasses.replace(asked, epsilon=0.25)
    assert expected(name, half) > 1.2 * expected(name, asked)  # it follows the noise


def test_it_is_the_same_every_time() -> None:
    asked = target(domain_of(3, 5, 4))
    once = {name: expected(name, asked) for name in NOISY}
    pairs_of_columns._simulated.cache_clear()
    pairs_of_columns._reference.cache_clear()
    assert once == {name: expected(name, asked) for name in NOISY}


@pytest.mark.parametrize("name", ["bootstrap", *NOISY])
def test_it_grows_with_the_width_and_stays_below_1(name: str) -> None:
    widths = range(1, 10) if name == "bootstrap" else range(1, 6)
    found = [expected(name, target(domain_of(*[4] * width))) for width in widths]
    assert all(after > before for before, after in itertools.pairwise(found[:8]))
    assert all(after >= before * (1 - 1e-6) for before, after in itertools.pairwise(found))
    assert found[0] > 0
    assert found[-1] < 0.5  # that of uniform records
    narrow = [expected(name, target(domain_of(*[5] * width, 2))) for width in range(1, 6)]
    assert narrow == sorted(narrow)


def test_a_domain_of_any_size_is_quick_and_none_that_is_too_large_is_simulated() -> None:
    wide = target(domain_of(2**40, 3, 2**20))
    assert 0.99 < expected("bootstrap", wide) <= 1  # hardly a record shares its pair of values
    large = target(domain_of(MOST_SIMULATED + 1))
    made: Any = REGISTRY["gaussian"].calibrate(REGISTRY["gaussian"].knobs(), large)
    error = MICRODATA.expected_error(made, large)
    assert isinstance(error, ExpectedRecords)
    assert error.pair_total_variation is None
    assert math.isinf(error.deciding("pair_total_variation"))
    assert error.deciding("total_variation") == error.projected_total_variation
    assert not any("pairs" in label for label, _ in error.rows())


@pytest.mark.parametrize("name", NOISY)
def test_structural_zeros_and_absent_records_have_their_cells(name: str) -> None:
    zeros = (ZeroPattern((("c0", ((0, 1),)), ("c1", ((1, 2),)))),)
    plain = expected(name, target(domain_of(3, 4, 5)))
    fewer = expected(name, target(domain_of(3, 4, 5, zeros=zeros)))
    padded = expected(name, target(domain_of(3, 4, 5, absent=True)))
    assert 0 < fewer < 1.1 * plain
    assert plain < padded < 1  # three times the noise


def test_one_cell_misses_nothing() -> None:
    asked = target(domain_of(1))
    made: Any = Bootstrap(3, 100)
    assert pair_total_variation(made, 0.1, asked) == 0


# What auto does with it


def test_auto_for_microdata_decides_by_pairs() -> None:
    asked = target(domain_of(3, 5, 4))
    choice = choose(MICRODATA, AutoRecordsKnobs(), asked)
    assert choice.minimise == "pair_total_variation"
    able = {c.name: c.error(choice.minimise) for c in choice.candidates if c.mechanism}
    assert set(able) == {"bootstrap", "marginals", *NOISY}
    assert choice.least == min(able.values()) < 0.1
    assert "least expected pair total variation" in choice.reason()
    assert choose(TABLE, AutoKnobs(), asked).minimise == "total_variation"
    by_cells = choose(MICRODATA, AutoRecordsKnobs(minimise="cell_sd"), asked)
    assert by_cells.minimise == "cell_sd"


@pytest.mark.parametrize("width", [1, 3, 8, 15, 30])
def test_no_choice_publishes_fewer_records_than_there_are(width: int) -> None:
    asked = target(domain_of(*[4] * width))
    choice = choose(MICRODATA, AutoRecordsKnobs(), asked)
    chosen = choice.candidates[0].mechanism
    assert chosen is not None
    assert int(chosen.describe().get("records", 5000)) == 5000
    refused = {c.name: c.reason for c in choice.candidates}
    assert "not 5,000" in refused["smoothed_histogram"]
    assert 0 < choice.least < 0.5


# Few draws


@pytest.mark.parametrize(("pseudocount", "cells"), [(20, 50_000), (Fraction(1, 2), 50_000)])
def test_projected_counts_of_few_draws(pseudocount: Any, cells: int) -> None:
    n, records = 4000, 4000
    total = float(n + pseudocount * cells)
    counts = np.zeros(cells)
    counts[:1000] = np.arange(1, 1001) * (n / np.arange(1, 1001).sum())
    rng, found = np.random.default_rng(2), []
    for _ in range(4):
        drawn = rng.multinomial(records, (counts + float(pseudocount)) / total)
        estimates = total * drawn / records - float(pseudocount)
        found.append(np.abs(project_to_simplex(estimates, n).values - counts).sum() / (2 * n))
    guess = few_draws._variation_of_few_draws(
        np.ones(cells), counts, float(pseudocount), total / records, n
    )
    assert guess == pytest.approx(float(np.mean(found)), rel=0.02)


def test_the_projected_error_does_not_fall_in_wide_domains() -> None:
    found = []
    for power in range(2, 19):
        made = Bootstrap(100, 17_137)
        error = made.expected_error(n_records=17_137, n_cells=10**power)
        found.append(error.projected_total_variation)
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(found))
    assert 0.999 < found[-1] <= 1
    assert _drawn_total_variation(Fraction(3), 1, n_records=17_137, n_cells=10**15) > 0.999


def test_a_column_of_one_cell_is_refused_where_the_mechanism_is_open() -> None:
    with pytest.raises(ConfigError, match="'c1' has only one cell") as caught:
        choose(MICRODATA, AutoRecordsKnobs(), target(domain_of(3, 1, 4)))
    assert "Leave it out" in caught.value.next_step
    assert choose(MICRODATA, AutoRecordsKnobs(), target(domain_of(3))).candidates
