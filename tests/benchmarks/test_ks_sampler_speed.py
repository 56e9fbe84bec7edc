"""One exact release of the KS mechanism: 10,000 records over 100 cells, k = n^(2/3).

``-m benchmark_full`` adds a point mass, other epsilons and a million even records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from mechanisms.columns import Codes
from mechanisms.ks_sampler import sample_ks

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


@pytest.mark.parametrize("data", [uniform, hump])
def test_release_quick(benchmark: Any, data: Callable[[int], Codes]) -> None:
    assert measure(benchmark, data(10_000), 1.0) < 2


@pytest.mark.benchmark_full
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    ("data", "n"), [(uniform, 10_000), (hump, 10_000), (point, 10_000), (uniform, 1_000_000)]
)
def test_release(benchmark: Any, data: Callable[[int], Codes], n: int, epsilon: float) -> None:
    spent = measure(benchmark, data(n), epsilon)
    print(f"\n{data.__name__}, n = {n}, epsilon = {epsilon}: {spent:.2f} s (target 20)")
    assert spent < 20
