"""Groups of linked products cost no more than is claimed: all tiny households, one replaced.

All that a release draws is normal noise of known variances (``equivalent_variance``), so that two
neighbours' laws differ by one number: how far their tables and scores are apart, each in standard
deviations of its noise. The squares of these add up, and the sum is at most the square of mu that
is charged (Dong, Roth and Su 2022, doi 10.1111/rssb.12454, Corollary 3.3).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from coded import CodesInMemory, in_memory
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.linked_marginals import LinkedKnobs, LinkedMarginals
from statpress.mechanisms.marginals.marginals import ColumnGroup
from statpress.mechanisms.marginals.measurement import one_way_shares, references
from statpress.mechanisms.marginals.residuals import GRID, NoisyMarginals
from statpress.mechanisms.marginals.target_tables import boxes_of
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.sampling.randomness import equivalent_variance
from statpress.tasks.release.entropy import SeededRandomness

PLACES = 2
Household = tuple[int, ...]
"""Codes of tenure, size, and relation and age in each place."""
ASKED = (
    ("tenure", "n"),
    ("relation", "age"),
    ("tenure", "relation", "age"),
    ("age_1", "age_2"),
    ("relation_1", "relation_2", "age_2"),
)
GROUPS = tuple(ColumnGroup(columns=each, weight=50.0) for each in ASKED)


@functools.cache
def domain() -> Domain:
    relation = Categorical(name="relation", categories=("reference", "child"))
    age = Categorical(name="age", categories=("young", "old"))
    columns: list[Column] = [Categorical(name="tenure", categories=("own", "rent"))]
    columns.append(Integer(name="n", lower=0, upper=PLACES))
    for place, of in itertools.product(range(1, PLACES + 1), (relation, age)):
        columns.append(Slot(name=f"{of.name}_{place}", of=of, place=place, size_name="n"))
    return Domain(tuple(columns))


@functools.cache
def households() -> tuple[Household, ...]:
    """The records of all households of a tenure and up to two persons in their order."""
    members = [*itertools.product(range(2), repeat=2)]
    return tuple(
        (tenure, size, *itertools.chain(*persons, *[(2, 2)] * (PLACES - size)))
        for tenure in range(2)
        for size in range(PLACES + 1)
        for persons in itertools.combinations_with_replacement(members, size)
    )


REST = [(0, 0, 2, 2, 2, 2), (1, 1, 0, 1, 2, 2), (0, 2, 0, 1, 1, 0)]
"""The other households of every dataset."""


def dataset(household: Household) -> CodesInMemory:
    return in_memory(domain(), np.array([household, *REST], dtype=np.uint8))


@functools.cache
def table_of(household: Household, group: tuple[int, ...]) -> np.ndarray:
    """The counts of the dataset with this household."""
    (counts,) = dataset(household).tables([group])
    return counts


@functools.cache
def made(groups: tuple[ColumnGroup, ...] = GROUPS) -> LinkedMarginals:
    target = Target(epsilon=2.0, delta=1e-6, n_records=len(REST) + 1, n_cells=972, domain=domain())
    return LinkedMarginals.calibrate(LinkedKnobs(groups=groups), target)


@functools.cache
def released(household: Household) -> NoisyMarginals:
    """A release of the dataset with this household."""
    rng = SeededRandomness(np.random.PCG64(households().index(household)))
    return made().release(dataset(household), rng)


@functools.cache
def compared(household: Household) -> Mapping[tuple[int, ...], np.ndarray]:
    """The public tables that scores of that release compare pairs with."""
    release = released(household)
    assert release.scores is not None
    before = dataclasses.replace(release, scores=None, tables=())
    return references(release.scores.pairs, *one_way_shares(before), None, boxes_of(domain()))


def moved(one: Household, other: Household, pooled: bool = False) -> Iterator[Fraction]:
    """By table, and last of all scores, the squared distance in deviations of the noise.

    ``pooled`` is the broken twin: of groups of a person's columns one table counts the persons of
    all places, with the noise of that of the first place.
    """
    release, own = released(one), domain().names
    drawn = [*release.one_way, *release.tables]
    first = [own[column] for column in range(len(own)) if not own[column].endswith("_2")]
    for table in drawn:
        sides = [table_of(each, table.group) for each in (one, other)]
        names = [own[column] for column in table.group]
        in_first = set(names) <= set(first) and any(name.endswith("_1") for name in names)
        if pooled and in_first and len(names) > 1:
            second = tuple(own.index(name.replace("_1", "_2")) for name in names)
            for side, each in enumerate((one, other)):
                sides[side] = sides[side] + table_of(each, second)
            there = tuple(slice(0, 2) if "_1" in name else slice(None) for name in names)
            sides = [side[there] for side in sides]  # nobody is not a person
        distance = int(((sides[0] - sides[1]) ** 2).sum()) * GRID**2
        yield distance / equivalent_variance(table.scale)
    scores = release.scores
    assert scores is not None
    distance = 0
    for pair, fixed in compared(one).items():
        near, far = (int(np.abs(table_of(each, pair) - fixed).sum()) for each in (one, other))
        distance += (near - far) ** 2
    yield Fraction(distance * GRID**2) / equivalent_variance(scores.scale)


def worst(pooled: bool = False) -> list[Fraction]:
    """What is moved by the worst of all pairs of neighbours, by table."""
    pairs = itertools.combinations(households(), 2)  # which are as far apart either way
    return max(([*moved(*pair, pooled=pooled)] for pair in pairs), key=sum)


def check(found: Sequence[Fraction]) -> None:
    assert sum(found) <= made().mu ** 2


def test_no_neighbours_are_further_apart_than_the_claim() -> None:
    """Over all pairs, with equality of every table where a whole household is another."""
    found = worst()
    check(found)
    drawn = {
        frozenset(domain().names[column] for column in table.group)
        for each in households()
        for table in released(each).tables
    }
    in_places = [
        [f"{name}_{place}" if name in ("relation", "age") else name for name in group]
        for group in ASKED
        for place in (1, 2)
    ]
    assert {frozenset(group) for group in in_places} <= drawn
    scored = Fraction(made().shares.screen) * made().mu ** 2
    assert found[-1] <= scored
    assert float(sum(found[:-1])) == pytest.approx(float(made().mu ** 2 - scored), rel=1e-6)
    claimed = made().loss(n_records=len(REST) + 1, n_cells=972)
    shift = math.sqrt(sum(found))
    for epsilon in (0.0, 0.5, 2.0):
        tails = [stats.norm.cdf(-epsilon / shift + sign * shift / 2) for sign in (1, -1)]
        assert tails[0] - math.exp(epsilon) * tails[1] <= claimed.delta(epsilon).upper + 1e-12


def test_the_claim_is_that_without_groups() -> None:
    frame = {"n_records": len(REST) + 1, "n_cells": 972}
    assert made().loss(**frame) == made(()).loss(**frame)
    assert made().groups != made(()).groups


def test_a_group_that_is_counted_in_every_place_and_charged_once_is_caught() -> None:
    with pytest.raises(AssertionError):
        check(worst(pooled=True))
