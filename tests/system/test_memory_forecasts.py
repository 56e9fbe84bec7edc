"""Forecasts of memory hold: the peaks of a process that draws, derives, writes and checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from coded import domain_of
from peaks import apart, foreseen, product_of

from tests.benchmarks import whole_release

pytestmark = [
    pytest.mark.system,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or not Path("/proc/self/clear_refs").exists(),
        reason="peaks of memory are read from /proc",
    ),
]
CASES = {
    "small table": ("laplace", "table", (150, 150), 10**5),
    "dense table": ("laplace", "table", (500, 500), 10**5),
    "two resolutions": ("two_resolutions", "table", (1000, 200), 10**5),
    "records from a table": ("bootstrap", "microdata", (1000, 1000), 10**6),
    "records from a density": ("density", "microdata", (500, 500), 10**5),
    "records by few marginals": ("marginals", "microdata", (8,) * 3, 10**5),
    "records by marginals": ("marginals", "microdata", (8,) * 5, 10**5),
    "mean": ("joint_moments", "estimate", (1000,), 10**6),
    "quantile": ("noisy_quantile", "estimate", (100_000,), 10**6),
    "replicates": ("dp_bootstrap", "estimate", (1000,), 10**5),
    "function": ("bernstein", "function", (300, 300), 10**5),
}
TWIN = "bootstrap", "microdata", (2000, 4000), 10**6


@pytest.fixture(scope="module")
def peaks() -> dict[str, dict[str, dict[str, int]]]:
    """Measured and foreseen, of the cases and of the twin, which writes nothing."""
    found = apart(*([*case, ["parquet", "csv"]] for case in CASES.values()), [*TWIN, []])
    return dict(zip([*CASES, "twin"], found, strict=True))


def test_no_stage_takes_more_than_was_foreseen(peaks: dict[str, dict[str, dict[str, int]]]) -> None:
    for case in CASES.keys() & peaks.keys():
        for stage, measured in peaks[case]["measured"].items():
            assert measured <= peaks[case]["foreseen"][stage], (case, stage, peaks[case])


def test_a_whole_release_takes_no_more_than_its_plan_foresees() -> None:
    """Wide records, tables and estimates, from the config to the bundle."""
    found = whole_release.released(40_000, "{memory: 2GB, threads: 2}", drawn=4_000)
    assert found["peak"] <= found["foreseen"] <= 2000


def test_a_forecast_for_a_hundredth_of_the_cells_would_not_hold(
    peaks: dict[str, dict[str, dict[str, int]]],
) -> None:
    """The twin: a stage takes more than that, so that bounds are not merely large."""
    mechanism, kind, (rows, columns), n = TWIN
    less = foreseen(product_of(mechanism, kind, domain_of((rows // 100, columns)), n))
    assert any(taken > less[stage] for stage, taken in peaks["twin"]["measured"].items())
