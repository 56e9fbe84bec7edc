"""Drawing records: rate over 20,000 occupied cells.

The baseline of the same run is the generator alone: bounded 64-bit integers, one
for each record. ``-m study`` draws 2·10⁷ records.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from statpress.mechanisms.domain.columns import Integer
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.tables.bootstrap import draw_counts

OCCUPIED = 20_000


def occupied_table() -> ContingencyTable:
    rng = np.random.default_rng(1)
    sizes = (50, 20, 10, 10)
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=s - 1) for i, s in enumerate(sizes))
    domain = Domain(columns)
    cells = np.sort(rng.choice(domain.n_cells, OCCUPIED, replace=False))
    return ContingencyTable(domain, cells, rng.integers(1, 2000, OCCUPIED))


def measure(benchmark: Any, records: int) -> float:
    table, rng = occupied_table(), np.random.Generator(AESCounter())
    started = time.perf_counter()
    for _ in range(records // 2_000_000):
        rng.integers(0, table.n_records, size=2_000_000, dtype=np.int64)
    bare = time.perf_counter() - started
    release = benchmark.pedantic(
        draw_counts, args=(table, Fraction(5, 2), records, rng), rounds=3, warmup_rounds=1
    )
    assert release.n_records == records
    spent = benchmark.stats.stats.median
    benchmark.extra_info["records_per_second"] = records / spent
    benchmark.extra_info["ratio_to_bare_generator"] = spent / bare
    return float(records / spent)


def test_drawing_quick(benchmark: Any) -> None:
    measure(benchmark, 2_000_000)


@pytest.mark.study
def test_drawing_twenty_million(benchmark: Any) -> None:
    rate = measure(benchmark, 20_000_000)
    print(f"\n{rate / 1e6:.1f} million records a second (target 15)")
