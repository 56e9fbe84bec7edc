"""One exact release of the KS mechanism: 10,000 records over 100 cells, k = n^(2/3).

The baseline of the same run is one pass over the widest band, in which all datasets of k
records lie: what a sampler that knows no band has to do once.
``-m study`` adds a point mass, other epsilons and a million even records.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from randomgen import AESCounter

from statpress.mechanisms.domain.columns import Codes
from statpress.mechanisms.tables.exponential_ks import Band, sample_ks
from tests.benchmarks.timing import least

CELLS = 100


def uniform(n: int) -> Codes:
    return np.random.default_rng(1).multinomial(n, np.full(CELLS, 1 / CELLS))


def hump(n: int) -> Codes:
    """The paper's example, Beta(10, 10)."""
    values = np.random.default_rng(1).beta(10, 10, n)
    return np.bincount((values * CELLS).astype(np.int64), minlength=CELLS)


def point(n: int) -> Codes:
    return np.bincount([CELLS // 3], minlength=CELLS) * n


def release(table: Codes, epsilon: float) -> None:
    """Draw one release."""
    k = round(int(table.sum()) ** (2 / 3))
    assert sample_ks(table, k, epsilon, np.random.Generator(AESCounter())).sum() == k


def widest_pass(table: Codes) -> None:
    """Pass over the band that holds every dataset."""
    n = int(table.sum())
    Band(np.cumsum(table).tolist(), round(n ** (2 / 3)), n).size()


@pytest.mark.nightly
@pytest.mark.parametrize("data", [uniform, hump])
def test_a_release_takes_less_than_a_pass_over_the_widest_band(
    data: Callable[[int], Codes],
) -> None:
    table = data(10_000)
    ours, widest = least(lambda: release(table, 1.0), lambda: widest_pass(table), rounds=4)
    print(f"{data.__name__}: {ours.wall / widest.wall:.2f} of a pass over the widest band")
    assert ours.wall < widest.wall  # 0.06 and 0.2 were measured


@pytest.mark.study
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize(
    ("data", "n"), [(uniform, 10_000), (hump, 10_000), (point, 10_000), (uniform, 1_000_000)]
)
def test_release(data: Callable[[int], Codes], n: int, epsilon: float) -> None:
    table = data(n)
    (spent,) = least(lambda: release(table, epsilon))
    print(f"{data.__name__}, n = {n}, epsilon = {epsilon}: {spent.wall:.2f} s (target 20)")
    assert spent.wall < 20
