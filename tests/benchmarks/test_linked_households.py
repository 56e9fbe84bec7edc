"""Quick form of ``linked_households``: one case, one seed, epsilon 1."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.linked_households import (
    case_of,
    errors,
    figures,
    of_population,
    released,
)


@pytest.mark.nightly
def test_linked_records_agree_with_their_sizes_and_keep_who_lives_together() -> None:
    case = case_of("arc")
    records = {each: released(case, each, 1.0, 0) for each in ("linked", "random")}
    linked, random = (errors(case, each) for each in records.values())
    assert errors(case, case.records()) == dict.fromkeys(linked, 0.0)
    assert linked["misfit"] == 0
    assert linked["households"] <= 0.032 and linked["persons"] <= 0.052
    assert linked["both"] <= 0.039 < random["both"] / 2
    assert linked["two persons"] <= 0.052 < random["two persons"] / 3
    assert linked["three persons"] < 0.6 * random["three persons"]
    assert linked["has two"] < random["has two"] / 2
    true, made = figures(case), figures(case.of_records(records["linked"]))
    assert figures(case.of_records(case.records())) == true
    for kind, most in (("households", 0.0025), ("persons", 0.02), ("regression", 0.015)):
        assert np.mean([abs(made[kind][each] - value) for each, value in true[kind].items()]) < most


@pytest.mark.nightly
def test_intervals_for_a_population_hold_and_are_longer_by_households() -> None:
    for kind, (held, _, longer) in of_population(case_of("arc"), 3.0, 2).items():
        assert held > 0.85 and 1 <= longer < 2, kind
