"""What follows the count: drawing, replicates, accounting, projection, and fitting records.

Sizes and baselines are those of the speed tests of the same name, whose functions are used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.benchmarks.record.figure import Figure, taken

HERE = "tests.benchmarks.record.steps"


def suite(*, quick: bool) -> Iterator[Figure]:
    """A figure for every step."""

    def figure(name: str, case: str, baseline: str, size: float, **arguments: Any) -> Figure:
        found = taken(f"{HERE}:{name}", here=quick, **arguments)
        spent = found["seconds"], found["cpu_seconds"], found["megabytes"]
        return Figure(name, case, *spent, found["ratio"], baseline, size=size)

    for records in (200_000,) if quick else (2_000_000, 20_000_000):
        yield figure(
            "drawing", f"{records:.0e} records", "the bare generator", records, records=records
        )
    for n, b in ((20_000, 20),) if quick else ((200_000, 1000), (10_000_000, 1000)):
        case = f"{b} replicates of {n:.0e} records"
        yield figure("replicates", case, "NumPy's multinomial", n, n=n, replicates=b)
    yield figure("accounting", "1e+12 draws", "1e+03 draws", 1e12, records=10**12)
    for k in (100_000,) if quick else (1_000_000, 10_000_000):
        yield figure("projection", f"{k:.0e} cells", "np.sort", k, cells=k)
    for table, n in (
        (("happiness:5", 17_137),)
        if quick
        else (("happiness", 17_137), ("latent:100000", 1e5), ("latent:1000000", 1e6))
    ):
        yield figure("fit", table, "independent columns (error)", n, table=table)


def drawing(records: int) -> dict[str, float]:
    """Records drawn over 20,000 cells."""
    from fractions import Fraction

    from randomgen import AESCounter

    from statpress.mechanisms.tables.bootstrap import draw_counts
    from tests.benchmarks.test_sampler_speed import occupied_table

    table, rng = occupied_table(), np.random.Generator(AESCounter())
    draw_counts(table, Fraction(5, 2), 1000, rng)
    bare = _least(lambda: rng.integers(0, table.n_records, size=records, dtype=np.int64))
    spent = _least(lambda: draw_counts(table, Fraction(5, 2), records, rng))
    return _against(spent, bare)


def replicates(n: int, replicates: int) -> dict[str, float]:
    """Exact bootstrap resamples of records in a thousand cells."""
    from tests.benchmarks.test_resampling_speed import resampled, table

    counts, rng = table(n, 1000), np.random.Generator(np.random.PCG64(1))
    few = max(1, replicates // 10)
    bare = _least(lambda: rng.multinomial(n, counts / n, few))
    spent = _least(lambda: resampled(counts, replicates, None))
    return _against(spent, [each * replicates / few for each in bare])


def accounting(records: int) -> dict[str, float]:
    """Epsilon of so many draws."""
    from tests.benchmarks.test_accountant_speed import query

    query(1000)
    return _against(_least(lambda: query(records)), _least(lambda: query(1001)))


def projection(cells: int) -> dict[str, float]:
    """Noisy cells projected onto a public total."""
    from statpress.mechanisms.postprocessing.consistency import project_to_simplex
    from tests.benchmarks.test_projection_speed import N_CELLS, estimates

    values, total = estimates("noise", cells)
    spent = _least(
        lambda: project_to_simplex(values, total, n_cells=N_CELLS, absent=-5.0), rounds=5
    )
    return _against(spent, _least(lambda: np.sort(values), rounds=5))


def fit(table: str) -> dict[str, float]:
    """Post-processing of wide microdata; the ratio is one of errors, not of seconds."""
    from tests.benchmarks.wide_microdata import measure

    found = measure(table, 1.0, 1)
    spent = found.noise_seconds + found.seconds
    return {
        "seconds": spent,
        "cpu_seconds": spent,
        "ratio": found.pairs / found.independent_pairs,
    }


def _against(spent: list[float], bare: list[float]) -> dict[str, float]:
    return {"seconds": spent[0], "cpu_seconds": spent[1], "ratio": spent[1] / bare[1]}


def _least(run: Callable[[], object], rounds: int = 3) -> list[float]:
    """Least seconds, of the wall clock and of all threads."""
    best = [float("inf")] * 2
    for _ in range(rounds):
        wall, work = time.perf_counter(), time.process_time()
        run()
        spent = time.perf_counter() - wall, time.process_time() - work
        best = [min(pair) for pair in zip(best, spent, strict=True)]
    return best
