"""One exact release of the KS mechanism: 10,000 records over 100 cells, k = n^(2/3).

The baseline of the same run is one pass over the widest band, in which all datasets of k
records lie: what a sampler that knows no band has to do once.
``-m study`` adds a point mass, other epsilons and a million even records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.tables.exponential_ks import Band, sample_ks

CELLS = 100


def uniform(n: int) -> Codes:
    return np.random.default_rng(1).multinomial(n, np.full(CELLS, 1 / CELLS))


def hump(n: int) -> Codes:
    """The paper's example, Beta(10, 10)."""
    values = np.random.default_rng(1).beta(10, 10, n)
    return np.bincount((values * CELLS).astype(np.int64), minlength=CELLS)


def point(n: int) -> Codes:
    return np.bincount([CELLS // 3], minlength=CELLS) * n


def measure(benchmark: Any, table: Codes, epsilon: float) -> float:
    n, rng = int(table.sum()), np.random.Generator(AESCounter())
    k = round(n ** (2 / 3))
    release = benchmark.pedantic(
        sample_ks, args=(table, k, epsilon, rng), rounds=3, warmup_rounds=1
    )
    assert release.sum() == k
    return float(benchmark.stats.stats.median)


def widest_pass(table: Codes) -> float:
    """Least seconds of three passes over the band that holds every dataset."""
    n, least = int(table.sum()), float("inf")
    for _ in range(3):
        started = time.perf_counter()
        Band(np.cumsum(table).tolist(), round(n ** (2 / 3)), n).size()
        least = min(least, time.perf_counter() - started)
    return least


@pytest.mark.parametrize("data", [pytest.param(uniform, marks=pytest.mark.nightly), hump])
def test_release_quick(benchmark: Any, data: Callable[[int], Codes]) -> None:
    table = data(10_000)
    ratio = measure(benchmark, table, 1.0) / widest_pass(table)
    benchmark.extra_info["ratio_to_the_widest_band"] = round(ratio, 3)
    print(f"\n{data.__name__}: {ratio:.2f} of a pass over the widest band")
    assert ratio < 1  # 0.06 and 0.2 were measured


@pytest.mark.study
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    ("data", "n"), [(uniform, 10_000), (hump, 10_000), (point, 10_000), (uniform, 1_000_000)]
)
def test_release(benchmark: Any, data: Callable[[int], Codes], n: int, epsilon: float) -> None:
    spent = measure(benchmark, data(n), epsilon)
    print(f"\n{data.__name__}, n = {n}, epsilon = {epsilon}: {spent:.2f} s (target 20)")
    assert spent < 20
