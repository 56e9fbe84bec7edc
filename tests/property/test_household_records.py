"""A household's record is a function of the household's own rows, and of nothing else."""

from __future__ import annotations

import dataclasses
import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coded import codes_of
from households import loaded, made_up, record_of, write
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.marginals.measurement import table_sensitivity_squared
from statpress.tasks.source.aggregates import source_of
from statpress.tasks.source.scanning import scan_wide

Records = Counter[tuple[Any, ...]]
Flatten = Callable[[Sequence[Any], Sequence[Any]], Records]

PERSON = st.fixed_dictionaries(
    {
        "relation": st.sampled_from(["reference", "spouse", "child", "lodger"]),
        "age": st.sampled_from([None, 4, 4, 30, 30, 95]),
    }
)
SOURCES = st.lists(
    st.tuples(st.sampled_from(["own", "rent", "squat"]), st.lists(PERSON, max_size=5)),
    min_size=1,
    max_size=4,
)


def rows_of(source: Sequence[Any], first: int = 0) -> tuple[list[Any], list[Any]]:
    """The rows of both tables, keys counted from a number."""
    households = [{"hid": first + i, "tenure": tenure} for i, (tenure, _) in enumerate(source)]
    persons = [
        {"pid": number, "hid": first + i, **person}
        for i, (_, members) in enumerate(source)
        for number, person in enumerate(members)
    ]
    return households, persons


def in_the_engine(households: Sequence[Any], persons: Sequence[Any]) -> Records:
    """The codes of all records, as the engine makes them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, households, persons)
        release = loaded(folder)
        domain = dataclasses.replace(release.domain, rules=())
        found = scan_wide(
            source_of(release), domain, domain, n_records=len(households), folder=folder
        )
        assert found.coded is not None
        return Counter(codes_of(found.coded))


def by_position(households: Sequence[Any], persons: Sequence[Any]) -> Records:
    """A broken twin: persons in the order of the file."""
    return Counter(
        record_of(
            household,
            [
                {**p, "relation": "child", "age": p["age"]}
                for p in [p for p in persons if p["hid"] == household["hid"]][:3]
            ],
        )
        for household in households
    )


def counted_twice(households: Sequence[Any], persons: Sequence[Any]) -> Records:
    """A broken twin: a person is also in the household with the next key."""
    return Counter(
        record_of(h, [p for p in persons if h["hid"] - p["hid"] in (0, 1)]) for h in households
    )


def by_definition(source: Sequence[Any]) -> Records:
    return Counter(record_of({"tenure": t}, members) for t, members in source)


def check_own_rows(flatten: Flatten, source: Sequence[Any]) -> Records:
    """Neither the order of rows, nor keys, nor other households change a record."""
    rows = rows_of(source)
    found = flatten(*rows)
    shuffled = [random.Random(7).sample(each, len(each)) for each in rows_of(source, first=70)]
    assert flatten(*shuffled) == found
    for left in range(len(source)):
        others = [each for i, each in enumerate(source) if i != left]
        gone = found - flatten(*rows_of(others)) if others else found
        assert gone.total() == 1
    return found


@settings(
    max_examples=settings().max_examples // 12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # each example opens an engine some times
)
@given(SOURCES)
def test_the_engine_makes_the_record_of_the_definition(source: Sequence[Any]) -> None:
    assert check_own_rows(in_the_engine, source) == by_definition(source)


@pytest.mark.parametrize("twin", [by_position, counted_twice])
def test_broken_twins_are_caught(twin: Flatten) -> None:
    households, persons = made_up(6)
    source = [(h["tenure"], [p for p in persons if p["hid"] == h["hid"]]) for h in households]
    with pytest.raises(AssertionError):
        check_own_rows(twin, source)


def tiny() -> Iterator[tuple[str, list[Any]]]:
    """All households of a tenure and up to two persons of two relations and two ages."""
    members = [{"relation": r, "age": a} for r in ("reference", "child") for a in (4, 30)]
    for tenure in ("own", "rent"):
        for size in range(3):
            for persons in itertools.combinations_with_replacement(members, size):
                yield tenure, [{**person} for person in persons]


def test_a_replaced_household_moves_every_table_by_two_in_squared_norm() -> None:
    """By enumeration over all pairs of tiny households, whatever their sizes."""
    records = [record_of({"tenure": tenure}, members) for tenure, members in tiny()]
    most: dict[tuple[int, ...], int] = {}
    for one, other in itertools.combinations(records, 2):
        for size in (1, 2, 3):
            for group in itertools.combinations(range(len(one)), size):
                cells = Counter([tuple(one[c] for c in group)])
                cells.subtract([tuple(other[c] for c in group)])
                moved = sum(number**2 for number in cells.values())
                most[group] = max(most.get(group, 0), moved)
    bound = table_sensitivity_squared(1, Adjacency.REPLACE_ONE)
    assert max(most.values()) == bound == 2
    assert all(number == bound for group, number in most.items() if 1 in group)


def test_a_person_in_two_households_would_move_more() -> None:
    """The broken twin of that: tables of two records move."""
    households, persons = rows_of([("own", []), ("own", []), ("own", [])])
    alone = counted_twice(households, persons)
    joined = counted_twice(households, [{"pid": 0, "hid": 1, "relation": "reference", "age": 30}])
    moved = np.array([joined[record] - alone[record] for record in {*joined, *alone}])
    assert int((moved**2).sum()) > table_sensitivity_squared(1, Adjacency.REPLACE_ONE)
