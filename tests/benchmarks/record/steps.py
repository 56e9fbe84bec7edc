"""What follows the count: drawing, replicates, accounting, projection, and fitting records.

Baselines of the same run: the generator alone, bounded 64-bit integers; ``Generator.multinomial``,
in floating point and so of no proven law; the same query of a thousand draws; ``np.sort`` of the
same array; and the error of independent columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.benchmarks.record.figure import Figure, taken
from tests.benchmarks.timing import least

HERE = "tests.benchmarks.record.steps"
MOST = {"replicates": 5.0}
"""What the ratio of a step may be."""


def suite(*, quick: bool) -> Iterator[Figure]:
    """A figure for every step."""

    def figure(name: str, case: str, baseline: str, size: float, **arguments: Any) -> Figure:
        found = taken(f"{HERE}:{name}", here=quick, **arguments)
        spent = found["seconds"], found["cpu_seconds"], found["megabytes"]
        return Figure(name, case, *spent, found["ratio"], baseline, MOST.get(name), size)

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

    from statpress.mechanisms.domain.columns import Integer
    from statpress.mechanisms.domain.contingency_table import ContingencyTable
    from statpress.mechanisms.domain.domain import Domain
    from statpress.mechanisms.tables.bootstrap import draw_counts

    numbers, rng = np.random.default_rng(1), np.random.Generator(AESCounter())
    sizes = (50, 20, 10, 10)
    columns = tuple(Integer(name=f"c{i}", lower=0, upper=s - 1) for i, s in enumerate(sizes))
    domain = Domain(columns)
    cells = np.sort(numbers.choice(domain.n_cells, 20_000, replace=False))
    table = ContingencyTable(domain, cells, numbers.integers(1, 2000, 20_000))
    draw_counts(table, Fraction(5, 2), 1000, rng)
    return _against(
        least(lambda: draw_counts(table, Fraction(5, 2), records, rng))[0],
        least(lambda: rng.integers(0, table.n_records, size=records, dtype=np.int64))[0],
    )


def replicates(n: int, replicates: int) -> dict[str, float]:
    """Exact bootstrap resamples of records in a thousand cells, as a release draws them."""
    from randomgen import AESCounter

    from statpress.mechanisms.sampling.record_sampler import BootstrapSampler

    public = np.random.default_rng(1)
    counts = public.multinomial(n, public.dirichlet(np.ones(1000)))
    counts = counts[counts > 0]
    step, few = max(1, (1 << 20) // len(counts)), max(1, replicates // 10)
    weights = np.empty((step, len(counts)), np.int64)

    def resampled() -> None:
        sampler, rng = BootstrapSampler(counts), np.random.Generator(AESCounter())
        for start in range(0, replicates, step):
            out = weights[: replicates - start]
            drawn = sampler.draw(min(step, replicates - start), rng, out=out)
            assert int(drawn.sum()) == n * len(drawn)

    (spent,), (bare,) = least(resampled), least(lambda: public.multinomial(n, counts / n, few))
    return _against(spent, [each * replicates / few for each in bare])


def accounting(records: int) -> dict[str, float]:
    """Epsilon of so many draws."""
    from statpress.mechanisms.tables.bootstrap import Bootstrap

    def query(drawn: int) -> None:
        Bootstrap(1000, drawn).loss(n_records=10**9, n_cells=10**6).epsilon(1e-9)

    query(1000)
    return _against(*least(lambda: query(records), lambda: query(1001)))


def projection(cells: int) -> dict[str, float]:
    """Noisy cells projected onto a public total."""
    from statpress.mechanisms.postprocessing.consistency import project_to_simplex

    values = np.random.default_rng(1).normal(0.0, 100.0, cells)
    return _against(
        *least(
            lambda: project_to_simplex(values, 3 * cells, n_cells=2**60, absent=-5.0),
            lambda: np.sort(values),
            rounds=5,
        )
    )


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


def _against(spent: Sequence[float], bare: Sequence[float]) -> dict[str, float]:
    return {"seconds": spent[0], "cpu_seconds": spent[1], "ratio": spent[1] / bare[1]}
