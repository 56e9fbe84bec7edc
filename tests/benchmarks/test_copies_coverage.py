"""Coverage of what is computed on copies of records: a quick form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.copies_coverage import ASKED, EPSILONS, WAYS, main, questions, replicate


def covered(table: str, epsilon: float, replicates: int) -> dict[str, float]:
    """Coverage of all figures together, by way."""
    found = [replicate(table, epsilon, seed)["held"] for seed in range(replicates)]
    figures = sum(len(asked.labels) for asked in questions(table))
    return {way: sum(sum(held[way]) for held in found) / (figures * replicates) for way in WAYS}


@pytest.mark.nightly
@pytest.mark.parametrize("replicates", [2])
def test_copies_cover_where_records_and_forgotten_variances_do_not(replicates: int) -> None:
    """The 17 figures of a replicate depend on each other: a mean of 2 is .95 by .05 or so."""
    shares = covered("ladder", 1.0, replicates)
    assert shares["copies"] > 0.88
    assert shares["naive"] < 0.8
    assert shares["without the variance between"] < 0.8  # T without (1 + 1/M) B


def test_replicates_that_are_there_are_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float, int]] = []
    figures = sum(len(each.labels) for each in questions("ladder"))

    def instead(table: str, epsilon: float, seed: int) -> dict[str, Any]:
        asked.append((table, epsilon, seed))
        held = {way: [1] * figures for way in WAYS}
        nothing = [None] * figures
        return {
            "held": held,
            "to sample": [1.0] * figures,
            "to moments": nothing,
            "seconds": [1, 2],
        }

    monkeypatch.setattr("tests.benchmarks.copies_coverage.replicate", instead)
    arguments = ["--tables", "ladder", "--epsilons", "1", "3"]
    arguments += ["--output", str(tmp_path / "rows.jsonl")]
    main([*arguments, "--replicates", "1"])
    main([*arguments, "--replicates", "2"])
    assert asked == [("ladder", epsilon, seed) for seed in (0, 1) for epsilon in (1.0, 3.0)]
    assert "| all | 17 | 1.000 | 1.000 | 1.000 | 1.00 | 1.00 | - |" in capsys.readouterr().out


@pytest.mark.study
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("table", ASKED)
def test_copies_cover_as_is_asked(table: str, epsilon: float) -> None:
    """At least .93 is asked of 200 replicates; 20 may be .03 below by chance."""
    assert covered(table, epsilon, 20)["copies"] >= 0.9
