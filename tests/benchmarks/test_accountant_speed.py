"""Accounting queries: the cost for a trillion records against that for a thousand."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.tables.bootstrap import Bootstrap, BootstrapKnobs


def query(records: int) -> float:
    return Bootstrap(1000, records).loss(n_records=10**9, n_cells=10**6).epsilon(1e-9).upper


def test_a_trillion_records(benchmark: Any) -> None:
    started = time.perf_counter()
    query(1000)
    small = time.perf_counter() - started
    benchmark(query, 10**12)
    benchmark.extra_info["ratio_to_a_thousand"] = benchmark.stats.stats.median / small


def test_largest_release(benchmark: Any) -> None:
    knobs = BootstrapKnobs(pseudocount=Fraction(1000), records="max")
    target = Target(epsilon=1.0, delta=1e-8, n_records=10**6, n_cells=1000)
    assert benchmark(Bootstrap.calibrate, knobs, target).records == 38_459_154
