"""Processor time of ten copies of the records, against that of the single file in the same run.

What copies share, their posterior and the counts of the single file, is there once; the rest is
that of one copy ten times over. Kernels are compiled already.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from coded import domain_of, in_memory
from wide_tables import latent

from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness
from tests.benchmarks.timing import ratio_within


def seconds(n: int, n_columns: int) -> tuple[float, float, float]:
    """Of the single file, of one copy, and of what copies share."""
    sizes, codes = latent(n, n_columns)
    domain = domain_of(sizes)
    target = Target(epsilon=1.0, delta=1e-6, n_records=n, n_cells=2, domain=domain)
    made = Marginals.calibrate(MarginalsKnobs(copies=2), target)
    coded = in_memory(domain, np.ascontiguousarray(codes.T))
    release = made.release(coded, SeededRandomness(np.random.PCG64(1)))
    begun = time.process_time()
    records = made.postprocess(release)
    spent = [time.process_time() - begun]
    for number in (1, 2):
        begun = time.process_time()
        assert len(replace(records.copies, number=number).sets) == number
        spent.append(time.process_time() - begun)
    single, one, two = spent
    return single, two - one, 2 * one - two


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("n", "n_columns", "most"),
    [(1 << 15, 16, 12.5), pytest.param(10**6, 40, 7.5, marks=pytest.mark.study)],
)
def test_ten_copies_take_a_few_times_as_long_as_the_single_file(
    n: int, n_columns: int, most: float
) -> None:
    seconds(1 << 10, 4)  # compiled

    def ratio() -> float:
        single, one, shared = seconds(n, n_columns)
        print(
            f"\n{n:,} records of {n_columns} columns: single file {single:.1f} s, a copy {one:.1f} "
            f"s, what copies share {shared:.1f} s"
        )
        return (shared + 10 * one) / single

    assert ratio_within(ratio, most, tries=4) <= most
