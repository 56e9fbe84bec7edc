"""Changes between releases: intervals, what is called changed, and what cannot be compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.errors import QueryError
from statpress.tasks.release.answers import change_of

Z = 1.959963984540054


def answer(
    estimates: dict[str, float], error: float, confidence: float = 0.95, **more: Any
) -> dict[str, Any]:
    """As of a mean by group, with normal intervals."""
    z = {0.95: Z, 0.9: 1.6448536269514722}[confidence]
    return {
        "statistic": "mean", "statistic_of": ["pay"], "where": {}, "of": "these records",
        "columns": ["group"], "confidence": confidence, "notes": ["About numbers."],
        "cells": [
            {
                "values": {"group": name}, "estimate": value, "standard_error": error,
                "lower": value - z * error, "upper": value + z * error, "method": "Wald",
            }
            for name, value in estimates.items()
        ],
    } | more  # fmt: skip


def test_variances_add() -> None:
    (cell,) = change_of(answer({"a": 10.0}, 3.0), answer({"a": 12.0}, 4.0))["cells"]
    assert (cell["earlier"], cell["later"], cell["estimate"]) == (10, 12, 2)
    assert cell["standard_error"] == 5
    assert cell["lower"] == pytest.approx(2 - 5 * Z)
    assert cell["upper"] == pytest.approx(2 + 5 * Z)
    assert cell["p_value"] == pytest.approx(0.6891565167793516)  # 2 (1 - Phi(.4))
    assert not cell["changed"]


def test_intervals_of_changes_cover_and_false_alarms_are_rare() -> None:
    """Of 30 unchanged cells; twins forget the noise of one release, and the number of cells."""
    rng, runs, names = np.random.default_rng(1), 1500, [str(i) for i in range(30)]
    covered = short = alarms = single = 0
    for _ in range(runs):
        true = rng.normal(50, 10, 30)
        one, two = true + rng.normal(0, 2, 30), true + rng.normal(0, 1, 30)
        cells = change_of(
            answer(dict(zip(names, one.tolist(), strict=True)), 2.0),
            answer(dict(zip(names, two.tolist(), strict=True)), 1.0),
        )["cells"]
        covered += sum(c["lower"] <= 0 <= c["upper"] for c in cells)
        short += sum(abs(c["estimate"]) <= Z * 2.0 for c in cells)
        alarms += any(c["changed"] for c in cells)
        single += any(c["p_value"] < 0.05 for c in cells)
    assert 0.945 < covered / (30 * runs) < 0.955
    assert short / (30 * runs) < 0.935
    assert alarms / runs < 0.065
    assert single / runs > 0.7


def test_a_large_change_is_found_beside_small_ones() -> None:
    one = answer({"a": 10.0, "b": 20.0, "c": 5.0}, 1.0)
    cells = change_of(one, answer({"a": 10.5, "b": 27.0, "c": 7.6}, 1.0))["cells"]
    assert [cell["changed"] for cell in cells] == [False, True, False]
    assert cells[2]["p_value"] > 0.05
    assert [c["changed"] for c in change_of(one, one)["cells"]] == [False] * 3


def test_sets_without_a_standard_error_are_subtracted_end_by_end() -> None:
    one, two = answer({"a": 1.0}, math.nan), answer({"a": 4.0}, math.nan)
    one["cells"][0] |= {"lower": 0.5, "upper": 3.0}
    two["cells"][0] |= {"lower": 2.5, "upper": math.inf}
    (cell,) = change_of(one, two)["cells"]
    assert cell["lower"] == pytest.approx(3 - math.hypot(1.5, 2.0))
    assert cell["upper"] == math.inf
    assert math.isnan(cell["standard_error"])
    assert cell["p_value"] == pytest.approx(math.erfc(3 / 2.5 * Z / math.sqrt(2)))


def test_cells_of_one_release_are_left_out_and_named() -> None:
    found = change_of(answer({"a": 1.0, "b": 1.0}, 1.0), answer({"b": 1.0, "c": 1.0}, 1.0))
    assert [cell["values"]["group"] for cell in found["cells"]] == ["b"]
    assert "2 cells are in one of the releases only." in found["notes"]
    with pytest.raises(QueryError, match="no cell in common"):
        change_of(answer({"a": 1.0}, 1.0), answer({"b": 1.0}, 1.0))


def test_answers_to_two_questions_have_no_difference() -> None:
    with pytest.raises(QueryError, match="two questions") as raised:
        change_of(answer({"a": 1.0}, 1.0), answer({"a": 1.0}, 1.0, confidence=0.9))
    assert "confidence" in str(raised.value.where)


def test_what_is_assumed_of_samples_is_said() -> None:
    whole = answer({"a": 1.0}, 1.0, of="a population")
    assert any(
        "samples are taken as independent" in note for note in change_of(whole, whole)["notes"]
    )
    assert len(change_of(whole, whole)["notes"]) == 3
