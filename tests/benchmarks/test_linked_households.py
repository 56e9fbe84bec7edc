"""Quick form of ``linked_households``: one case, one seed, epsilon 1."""

from __future__ import annotations

from tests.benchmarks.linked_households import case_of, errors, released


def test_linked_records_agree_with_their_sizes_and_keep_who_lives_together() -> None:
    case = case_of("arc")
    linked, random = (errors(case, released(case, each, 1.0, 0)) for each in ("linked", "random"))
    assert errors(case, case.records()) == dict.fromkeys(linked, 0.0)
    assert linked["misfit"] == 0
    assert linked["households"] <= 0.032 and linked["persons"] <= 0.052
    assert linked["both"] <= 0.039 < random["both"] / 2
    assert linked["two persons"] <= 0.052 < random["two persons"] / 3
    assert linked["three persons"] < 0.6 * random["three persons"]
    assert linked["has two"] < random["has two"] / 2
