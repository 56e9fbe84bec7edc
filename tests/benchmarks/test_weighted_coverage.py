"""Coverage of weighted figures by declared designs: a quick form of ``weighted_coverage``."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.benchmarks.weighted_coverage import covered, main


def shares(clustered: bool, runs: int) -> dict[str, float]:
    """Coverage by declared design or without, of all figures together."""
    hits: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (_, design, _), (held, of) in covered(clustered, 3.0, runs).items():
        hits[design][0] += held
        hits[design][1] += of
    return {design: held / of for design, (held, of) in hits.items()}


@pytest.mark.study
def test_figures_of_a_stratified_sample_are_covered() -> None:
    """The 26 figures of a replicate depend on each other: .95 of eight is so by .03 or so."""
    assert shares(False, 8)["declared"] > 0.88


@pytest.mark.study
def test_clusters_are_covered_where_they_are_declared_and_missed_where_not() -> None:
    """The broken twin: records of a cluster taken as drawn one by one."""
    found = shares(True, 4)
    assert found["declared"] > 0.85
    assert found["undeclared"] < 0.7


def test_the_table_has_a_row_for_each_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {("mean", "declared", "strata"): [19, 20]}
    monkeypatch.setattr(
        "tests.benchmarks.weighted_coverage.covered", lambda clustered, epsilon, runs: known
    )
    main(["--replicates", "1", "--epsilons", "3"])
    out = capsys.readouterr().out.splitlines()
    assert out[2:] == [
        "| single ones | 3 | mean | declared | strata | 0.950 |",
        "| clusters | 3 | mean | declared | strata | 0.950 |",
    ]
