"""Figures of the bootstrapping paper's setting, fixed once and for all."""

import time
import tracemalloc
from fractions import Fraction

import pytest

from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.bootstrap import (
    Bootstrap,
    BootstrapKnobs,
    _least_pseudocount,
    corollary_3,
    paper_parameters,
    theorem_2_records,
)

SMALL = {"n_records": 10_000, "n_cells": 20}
LARGE = {"n_records": 10**6, "n_cells": 1000}


def max_records(pseudocount: int, epsilon: float, delta: float, **frame: int) -> int:
    knobs = BootstrapKnobs(pseudocount=Fraction(pseudocount), records="max")
    return Bootstrap.calibrate(knobs, Target(epsilon=epsilon, delta=delta, **frame)).records


def variance(pseudocount: Fraction, records: int, n_records: int, n_cells: int) -> float:
    """(N/n)^2/m, the sampling variance of a debiased share up to p(1-p)."""
    return float((1 + pseudocount * n_cells / n_records) ** 2 / records)


def test_largest_release_at_pseudocount_100() -> None:
    assert max_records(100, 0.5, 0.01, **SMALL) == 60_881
    assert Bootstrap(100, 60_881).loss(**SMALL).delta(0.5).upper <= 0.01
    assert Bootstrap(100, 60_882).loss(**SMALL).delta(0.5).lower > 0.01


def test_largest_release_over_a_thousand_cells() -> None:
    # The three-way check of this figure is in test_lattice_cross_checks.py.
    found = max_records(1000, 1.0, 1e-8, **LARGE)
    assert found == 38_459_154
    assert Bootstrap(1000, found).loss(**LARGE).delta(1.0).upper <= 1e-8
    assert Bootstrap(1000, found + 1).loss(**LARGE).delta(1.0).lower > 1e-8


def test_paper_needs_a_large_pseudocount_and_a_billion_records() -> None:
    k, m = paper_parameters(0.5, 0.01, **SMALL)
    assert k == pytest.approx(424_000, rel=1e-3)
    assert m == pytest.approx(1.06e9, rel=1e-3)
    assert variance(k, m, **SMALL) == pytest.approx(6.8e-4, rel=0.01)


def test_exact_calibration_beats_the_paper_a_hundredfold() -> None:
    k, m = paper_parameters(0.5, 0.01, **SMALL)
    paper = variance(k, m, **SMALL)
    exact_100 = variance(Fraction(100), max_records(100, 0.5, 0.01, **SMALL), **SMALL)
    exact_1000 = variance(Fraction(1000), max_records(1000, 0.5, 0.01, **SMALL), **SMALL)
    assert exact_100 == pytest.approx(2.4e-5, rel=0.02)
    assert exact_1000 == pytest.approx(5.9e-6, rel=0.02)
    assert paper / exact_1000 > 100


def test_paper_parameters_satisfy_the_exact_accountant() -> None:
    k, m = paper_parameters(0.5, 0.01, **SMALL)
    assert Bootstrap(k, m).loss(**SMALL).delta(0.5).upper <= 0.01


@pytest.mark.parametrize("gamma", [1e-2, 1e-3, 1e-4, 1e-5])
def test_corollary_3_satisfies_theorem_2(gamma: float) -> None:
    k, m = corollary_3(gamma, 0.5, 0.01, **SMALL)
    assert m <= theorem_2_records(k, 0.5, 0.01, **SMALL)


def test_a_trillion_records_cost_what_a_thousand_cost() -> None:
    tracemalloc.start()
    started = time.process_time()
    found = Bootstrap(1000, 10**12).loss(n_records=10**9, n_cells=10**6).epsilon(1e-9).upper
    spent = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found > 0
    assert spent < 5
    assert peak < 2**30


def test_smallest_pseudocount_is_smallest() -> None:
    k = _least_pseudocount(10_000, Target(epsilon=0.5, delta=0.01, **SMALL), 100)
    assert Bootstrap(k, 10_000).loss(**SMALL).delta(0.5).upper <= 0.01
    below = Bootstrap(k - Fraction(1, 100), 10_000).loss(**SMALL)
    assert below.delta(0.5).lower > 0.01


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 4.0, 20.0])
def test_a_coarser_grid_leads_to_the_same_pseudocount(epsilon: float) -> None:
    target = Target(epsilon=epsilon, delta=0.01, **SMALL)
    for denominator in (10, 1000):
        coarser = int(_least_pseudocount(10_000, target, denominator // 10) * denominator // 10)
        known = _least_pseudocount(10_000, target, denominator, coarser)
        assert known == _least_pseudocount(10_000, target, denominator)
