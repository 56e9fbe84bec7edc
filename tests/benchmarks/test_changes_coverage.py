"""Changes between whole releases: a quick form of ``changes_coverage``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statpress.mechanisms.marginals.linear_moments import Interval
from statpress.tasks.release import answers
from tests.benchmarks.changes_coverage import comparisons, main, releases, rows


def covered(pairs: list[dict[str, Any]]) -> dict[str, float]:
    """Coverage by what is compared, of all questions together."""
    found = {}
    for kind in pairs[0]:
        each = [question for pair_ in pairs for question in pair_[kind].values()]
        found[kind] = sum(one["held"] for one in each) / sum(one["cells"] for one in each)
    return found


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """The samples and releases of two seeds."""
    return [releases(tmp_path_factory.mktemp("releases"), seed) for seed in (1, 2)]


@pytest.mark.nightly
def test_changes_are_covered_and_hardly_any_is_called_where_there_is_none(
    released: list[tuple[Any, ...]],
) -> None:
    """The 35 cells of a seed depend on each other: .95 of two seeds is so by .05 or so."""
    pairs = [comparisons(*of_seed) for of_seed in released]
    assert all(share > 0.88 for share in covered(pairs).values())
    alarms = [one["alarm"] for each in pairs for kind in each.values() for one in kind.values()]
    assert sum(alarms) <= len(pairs)  # of 5 answers about what did not change, each at .05
    assert sum(each["population"]["shares"]["found"] for each in pairs) > 2 * len(pairs)


@pytest.mark.nightly
def test_an_interval_that_forgets_the_earlier_noise_does_not_cover(
    monkeypatch: pytest.MonkeyPatch, released: list[tuple[Any, ...]]
) -> None:
    """The broken twin: the later release's own interval, about the change."""

    def forgetful(earlier: Interval, later: Interval, confidence: float) -> Interval:
        moved = later.value - earlier.value - later.value
        own = {"lower": later.lower + moved, "upper": later.upper + moved}
        return change(earlier, later, confidence)._replace(**own)

    change = answers.change
    monkeypatch.setattr(answers, "change", forgetful)
    shares = covered([comparisons(*of_seed) for of_seed in released])
    assert shares["same records"] < 0.88 and shares["population"] < 0.88


def test_pairs_that_are_there_are_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    known = {"held": 19, "cells": 20, "alarm": True, "still": 11, "found": 3}

    def instead(seed: int) -> dict[str, Any]:
        made.append(seed)
        return {"population": {"shares": known}}

    monkeypatch.setattr("tests.benchmarks.changes_coverage.pair", instead)
    file = tmp_path / "pairs.jsonl"
    main(["--pairs", "2", "--output", str(file)])
    main(["--pairs", "3", "--output", str(file)])
    assert made == [0, 1, 2]
    assert "| population | shares | 20 | 0.950 | 1.000 | 0.33 |" in capsys.readouterr().out
    kept = [json.loads(line)["pair"] for line in file.read_text().splitlines()]
    assert list(rows(kept)) == ["| population | shares | 20 | 0.950 | 1.000 | 0.33 |"]
