"""Exact bootstrap resamples: what exactness costs beside NumPy's own multinomial sampler.

The baseline of the same run is ``Generator.multinomial`` of PCG64, in floating point and so of no
proven law. Ours draws cryptographic bits. ``-m study`` adds n = 10^7 with B = 1000.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from randomgen import AESCounter

from statpress.mechanisms.estimates.statistics import Covariance, Mean, evaluated
from statpress.mechanisms.sampling.record_sampler import BootstrapSampler

CHUNK = 1 << 20  # counts held at a time, as a release does


def table(n: int, cells: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    if cells == n:
        return np.ones(n, np.int64)
    counts = rng.multinomial(n, rng.dirichlet(np.ones(cells)))
    return counts[counts > 0]


def resampled(counts: np.ndarray, replicates: int, statistic: Mean | Covariance | None) -> int:
    """How many records were drawn; with a statistic of them as in a release."""
    rng = np.random.Generator(AESCounter())
    columns = np.linspace(0, 1, 2 * len(counts)).reshape(-1, 2)
    sampler, drawn = BootstrapSampler(counts), 0
    step = max(1, CHUNK // len(counts))
    weights = np.empty((step, len(counts)), np.int64)
    for start in range(0, replicates, step):
        part = sampler.draw(min(step, replicates - start), rng, out=weights[: replicates - start])
        drawn += int(part.sum())
        if statistic is not None:
            evaluated(statistic, part, columns)
    return drawn


def least(*runs: Callable[[], object], rounds: int = 4) -> list[float]:
    """The least processor time of each, in seconds, taken in turns."""
    spent = [float("inf")] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            started = time.process_time()
            run()
            spent[i] = min(spent[i], time.process_time() - started)
    return spent


def ratio(
    benchmark: Any, n: int, cells: int, replicates: int, statistic: Mean | Covariance | None = None
) -> float:
    counts = table(n, cells)
    numpy, few = np.random.Generator(np.random.PCG64(1)), max(1, replicates // 10)
    drawn = benchmark.pedantic(resampled, args=(counts, replicates, statistic), rounds=1)
    assert drawn == n * replicates
    spent, bare = least(
        lambda: resampled(counts, replicates, statistic),
        lambda: numpy.multinomial(n, counts / n, few),
    )
    bare *= replicates / few
    benchmark.extra_info |= {"seconds": spent, "ratio_to_numpy_multinomial": spent / bare}
    print(
        f"\n{n} records, {len(counts)} cells, B = {replicates}: {spent:.4f} s, NumPy {bare:.4f} s"
    )
    return spent / bare


def test_grouped(benchmark: Any) -> None:
    assert ratio(benchmark, 200_000, 1000, 100) < 5


@pytest.mark.parametrize(
    "statistic", [None, pytest.param(Mean(), marks=pytest.mark.nightly), Covariance()]
)
def test_ungrouped(benchmark: Any, statistic: Mean | Covariance | None) -> None:
    assert ratio(benchmark, 200_000, 200_000, 20, statistic) < 1


@pytest.mark.study
@pytest.mark.parametrize("statistic", [None, Mean(), Covariance()])
def test_ungrouped_in_full(benchmark: Any, statistic: Mean | Covariance | None) -> None:
    assert ratio(benchmark, 200_000, 200_000, 100, statistic) < 1


@pytest.mark.study
@pytest.mark.parametrize("statistic", [None, Mean()])
def test_ten_million_records(benchmark: Any, statistic: Mean | None) -> None:
    assert ratio(benchmark, 10_000_000, 10_000, 1000, statistic) < 3


PEAK = """
import resource
import numpy as np
from randomgen import AESCounter
from statpress.mechanisms.sampling.record_sampler import BootstrapSampler
rng = np.random.default_rng(1)
counts = rng.multinomial(10**7, rng.dirichlet(np.ones(10**4)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
BootstrapSampler(counts).draw(100, np.random.Generator(AESCounter()))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_tables_and_a_block_take_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200  # MiB; the records alone would be 80
