"""Plans of units with several records go by how many of these are there, as far as it is public."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statpress.configs.loading import Release, load
from statpress.mechanisms.domain.domain import Adjacency, Privacy, Size
from statpress.mechanisms.errors import RecordsError
from statpress.mechanisms.planning.plan import Plan, verdict
from statpress.tasks.release.foreseen import warnings

MOST, UNITS, THERE = 6, 2_000, 3_000
CONFIG = """\
title: Visits
dataset: visits
source: {{path: {source}}}
privacy: {{adjacency: replace_one, unit: {unit}}}
budget: {{epsilon: {epsilon}, delta: 1.0e-6}}
domain:
  a: {{type: integer, lower: 0, upper: 9}}
  b: {{type: integer, lower: 0, upper: 9}}
  c: {{type: integer, lower: 0, upper: 9}}
products:
  records: {{kind: microdata, mechanism: marginals, columns: [a, b, c], accept: mostly_independent,
    share: 0.4}}
  table: {{kind: table, mechanism: {mechanism}, columns: [a], share: 0.3}}
  mean: {{kind: estimate, statistic: mean, columns: [b], per: record, share: 0.3}}
{gate}publish: {{directory: releases}}
"""


def planned(folder: Path, unit: str, **said: Any) -> tuple[Release, Plan]:
    path = folder / "visits.yaml"
    fields = {"source": "x.parquet", "gate": "", "mechanism": "gaussian", "epsilon": 1.5} | said
    path.write_text(CONFIG.format(unit=unit, **fields))
    release = load(path)
    return release, release.plan()


def of_units(expected: str = "", most: int = MOST, n: int | str = UNITS) -> str:
    return f"{{column: who, max_records: {most}{expected}}}, n_units: {n}"


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_errors_go_by_the_records_that_are_there(tmp_path: Path, mechanism: str) -> None:
    """Noise and charges do not: they are those of units that have as many as they may."""
    few = planned(tmp_path, of_units(f", expected_records: {THERE}"), mechanism=mechanism)[1]
    full = planned(tmp_path, of_units(), mechanism=mechanism)[1]
    all_there = planned(
        tmp_path, of_units(f", expected_records: {MOST * UNITS}"), mechanism=mechanism
    )[1]
    for one, other, again in zip(few.products, full.products, all_there.products, strict=True):
        assert one.epsilon == other.epsilon == again.epsilon
        assert again.deciding_error == other.deciding_error
        assert again.mechanism == other.mechanism
        ratio = one.deciding_error / other.deciding_error
        assert 1.5 < ratio <= MOST * UNITS / THERE * 1.01, one.name
    for name in ("table", "mean"):
        one, other = (next(p for p in plan.products if p.name == name) for plan in (few, full))
        assert one.mechanism == other.mechanism
    records = few.products[0]
    assert records.expected_error.memory == full.products[0].expected_error.memory
    own = records.mechanism.expected_error(n_records=THERE, n_cells=1)
    assert records.expected_error.pair_total_variation == own.pair_total_variation


def test_verdicts_go_by_them_too(tmp_path: Path) -> None:
    few, full = (
        planned(tmp_path, of_units(each))[1].products[0]
        for each in (f", expected_records: {UNITS}", "")
    )
    assert few.expected_error.least_association > 1.5 * full.expected_error.least_association
    assert verdict(few).name == "mostly_independent"


def test_units_of_one_record_are_told_nothing(tmp_path: Path) -> None:
    release, plan = planned(tmp_path, of_units(most=1))
    assert [text for text in warnings(release, plan) if "expected_records" in text] == []
    with pytest.raises(RecordsError, match="at most 2,000 that are used"):
        planned(tmp_path, of_units(", expected_records: 2001", most=1))


@pytest.mark.parametrize(("expected", "times"), [("", 1), (f", expected_records: {THERE}", 0)])
def test_a_plan_says_that_it_takes_units_to_be_full(
    tmp_path: Path, expected: str, times: int
) -> None:
    release, plan = planned(tmp_path, of_units(expected))
    found = [text for text in warnings(release, plan) if "'expected_records' under" in text]
    assert len(found) == times
    assert all(f"up to {MOST} times as large" in text for text in found)


@pytest.mark.parametrize("number", [UNITS - 1, MOST * UNITS + 1])
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(RecordsError, match="2,000 units have at least as many records") as refused:
        planned(tmp_path, of_units(f", expected_records: {number}"))
    assert "yaml:4:" in refused.value.where


def test_a_number_of_units_from_the_source_does_not_stop_a_run() -> None:
    """It may be another than somebody thought of: then plans go by what comes nearest."""
    for n_units, wanted in ((500, 2_000), (2_500, 2_500), (1_000, 2_100)):
        made = Privacy.of_units(
            adjacency=Adjacency.REPLACE_ONE, column="who", max_records=4, n_units=n_units,
            size=Size.FROM_SOURCE, expected_records=2_100,
        )  # fmt: skip
        assert made.expected_records == wanted


@pytest.mark.parametrize(
    ("epsilon", "source", "loose", "late"),
    [(1.5, "x.parquet", 1, 0), (30, "x.parquet", 0, 0), (30, "x.csv", 0, 1)],
)
def test_what_noisy_checks_let_pass_is_told(
    tmp_path: Path, epsilon: float, source: str, loose: int, late: int
) -> None:
    gate, unit = "gate: {noise: true, share: 0.1}\n", of_units(f", expected_records: {THERE}")
    release, plan = planned(tmp_path, unit, gate=gate, source=source, epsilon=epsilon)
    said = warnings(release, plan)
    assert plan.gate is not None
    margin = f"up to {plan.gate.mechanism.margin:,} records pass"
    assert sum(margin in text and "3,000" in text for text in said) == loose
    assert sum("after the charge, which stays" in text for text in said) == late


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian", "bootstrap", "two_resolutions"])
def test_mechanisms_for_counts_are_compared_by_the_records_that_are_there(
    tmp_path: Path, mechanism: str
) -> None:
    """Shares of these are off by as much more, whatever a mechanism is; counts are not."""
    asked = f", expected_records: {THERE}"
    few, full = (planned(tmp_path, of_units(each), mechanism=mechanism)[1] for each in (asked, ""))
    one, other = (plan.products[1].expected_error for plan in (few, full))
    assert one.cell_sd_average == other.cell_sd_average
    times = MOST * UNITS / THERE
    assert one.total_variation == pytest.approx(times * other.total_variation)
    for name in ("projected_total_variation", "kolmogorov_smirnov", "uniform_share"):
        assert getattr(one, name) == pytest.approx(min(times * getattr(other, name), 1.0))
