"""Records of households: sizes and persons agree, rules hold, and groups cost what is claimed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from coded import CodesInMemory, in_memory
from households import loaded, made_up, record_of
from scipy import stats

from statpress.mechanisms.domain.columns import Categorical, Column, Integer, Slot
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals import latent_classes, synthesis
from statpress.mechanisms.marginals.copies import Posterior
from statpress.mechanisms.marginals.linked_marginals import LinkedKnobs, LinkedMarginals
from statpress.mechanisms.marginals.marginals import ColumnGroup
from statpress.mechanisms.marginals.measurement import one_way_shares, references
from statpress.mechanisms.marginals.presence import Presence
from statpress.mechanisms.marginals.residuals import GRID, NoisyMarginals
from statpress.mechanisms.marginals.swaps import swap_towards
from statpress.mechanisms.marginals.synthesis import (
    Beginning,
    impossible_records,
    one_way_counts,
    targets_of_persons,
)
from statpress.mechanisms.marginals.target_tables import (
    KnownTotal,
    TargetTable,
    boxes_of,
    counts_of,
    possible_cells,
)
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.sampling.randomness import equivalent_variance
from statpress.tasks.release.entropy import SeededRandomness

N = 400


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """How near the classes come to the tables decides nothing here."""
    monkeypatch.setattr(latent_classes, "_ROUNDS", 10)


def domain_in(folder: Path) -> Domain:
    return loaded(folder).domain


def private(domain: Domain) -> CodesInMemory:
    households, persons = made_up(N)
    rows = [record_of(h, [p for p in persons if p["hid"] == h["hid"]]) for h in households]
    codes = np.array(rows, dtype=np.uint8)
    return CodesInMemory(domain, N, tuple(codes.T.copy()))


def test_a_column_that_all_persons_have_alike_is_released_too() -> None:
    def slot(of: Column, place: int) -> Slot:
        return Slot(name=f"{of.name}_{place}", of=of, place=place, size_name="n")

    same, sex = (Categorical(name=n, categories=c) for n, c in (("same", "x"), ("sex", "mf")))
    slots = [slot(of, place) for place in (1, 2) for of in (same, sex)]
    domain = Domain((Integer(name="n", lower=0, upper=2), *slots))
    sizes = np.arange(N) % 3
    sexes = np.arange(N) // 3 % 2
    columns = [sizes]
    for place in (1, 2):
        columns += [np.where(sizes >= place, each, k) for each, k in ((0 * sexes, 1), (sexes, 2))]
    data = CodesInMemory(domain, N, tuple(each.astype(np.uint8) for each in columns))
    target = Target(epsilon=5.0, delta=1e-6, n_records=N, n_cells=1, domain=domain)
    mechanism = LinkedMarginals.calibrate(LinkedKnobs(), target)
    released = mechanism.release(data, SeededRandomness(np.random.PCG64(1)))
    codes = np.stack(mechanism.postprocess(released).codes, axis=1)
    assert np.array_equal(codes[:, 1] == 0, codes[:, 0] >= 1)
    assert np.array_equal(codes[:, 4] < 2, codes[:, 0] == 2)


def test_known_totals_of_households_are_met_and_not_measured(tmp_path: Path) -> None:
    domain = domain_in(tmp_path)
    data = private(domain)
    pair = np.zeros((3, 4), dtype=np.int64)
    np.add.at(pair, (data.columns[0], data.columns[1]), 1)
    known = {"both": KnownTotal(columns=("n_persons", "tenure"), counts=tuple(pair.T.ravel()))}
    target = Target(epsilon=1.0, delta=1e-6, n_records=N, n_cells=1, domain=domain)
    mechanism = LinkedMarginals.calibrate(LinkedKnobs(known=known), target)
    released = mechanism.release(data, SeededRandomness(np.random.PCG64(3)))
    assert not {(0,), (1,), (0, 1)} & {t.group for t in (*released.one_way, *released.tables)}
    codes = np.stack(mechanism.postprocess(released).codes, axis=1)
    made = np.zeros_like(pair)
    np.add.at(made, (codes[:, 0], codes[:, 1]), 1)
    assert np.array_equal(made, pair)
    wanted = np.arange(3) < codes[:, 1][:, None]
    assert np.array_equal(there(domain, codes), np.repeat(wanted[..., None], 2, axis=2))
    assert not impossible_records(codes, boxes_of(domain)).any()
    of_place = {"relation_1": KnownTotal(counts=(N, 0, 0, 0, 0))}
    with pytest.raises(ConfigError, match="known totals are of households"):
        LinkedMarginals.calibrate(LinkedKnobs(known=of_place), target)


def test_groups_of_a_persons_columns_are_measured_in_every_place(tmp_path: Path) -> None:
    domain = domain_in(tmp_path)
    target = Target(epsilon=1.0, delta=1e-6, n_records=N, n_cells=1, domain=domain)
    asked = (
        ColumnGroup(columns=("relation", "tenure", "age"), weight=2.0),
        ColumnGroup(columns=("relation_1", "relation_2", "age_2")),
        ColumnGroup(columns=("relation", "age"), weight=9.0),
    )
    mechanism = LinkedMarginals.calibrate(LinkedKnobs(groups=asked), target)
    weights = {
        frozenset(domain.names[column] for column in group): weight
        for group, weight in mechanism.groups
    }
    larger = {group: weight for group, weight in weights.items() if len(group) > 2}
    assert larger == {
        frozenset({"relation_1", "tenure", "age_1"}): 2.0,
        frozenset({"relation_2", "tenure", "age_2"}): 2.0,
        frozenset({"relation_3", "tenure", "age_3"}): 2.0,
        frozenset({"relation_1", "relation_2", "age_2"}): 1.0,
    }
    assert {weights[frozenset({f"relation_{i}", f"age_{i}"})] for i in (1, 2, 3)} == {9.0}
    assert target.allows(mechanism.loss(n_records=N, n_cells=1))
    released = mechanism.release(private(domain), SeededRandomness(np.random.PCG64(3)))
    assert {frozenset(domain.names[c] for c in t.group) for t in released.tables} >= {*larger}
    codes = np.stack(mechanism.postprocess(released).codes, axis=1)
    wanted = np.arange(3) < codes[:, 1][:, None]
    assert np.array_equal(there(domain, codes), np.repeat(wanted[..., None], 2, axis=2))
    unknown = LinkedKnobs(groups=(ColumnGroup(columns=("relation", "income")),))
    with pytest.raises(ConfigError, match="no column 'income'"):
        LinkedMarginals.calibrate(unknown, target)
    one, other = (("age", "relation"), ("relation", "age"))
    with pytest.raises(ConfigError, match="each group of columns once"):
        LinkedKnobs(groups=(ColumnGroup(columns=one), ColumnGroup(columns=other, weight=2.0)))


def test_a_pair_that_is_asked_for_counts_no_less_than_one_that_is_not(tmp_path: Path) -> None:
    domain = domain_in(tmp_path)
    target = Target(epsilon=1.0, delta=1e-6, n_records=N, n_cells=1, domain=domain)
    asked = LinkedKnobs(groups=(ColumnGroup(columns=("age", "relation")),))
    assert LinkedMarginals.calibrate(asked, target) == LinkedMarginals.calibrate(
        LinkedKnobs(), target
    )


def there(domain: Domain, codes: np.ndarray) -> np.ndarray:
    """bool[n, places, columns]: where there is somebody, as each column says."""
    presence = Presence.of(domain)
    assert presence is not None
    return np.stack(
        [
            np.stack([codes[:, c] != domain.columns[c].size - 1 for c in place], axis=1)
            for place in presence.places
        ],
        axis=1,
    )


@pytest.mark.parametrize(
    "epsilon", [0.1, *(pytest.param(e, marks=pytest.mark.nightly) for e in (1.0, 20.0))]
)
def test_sizes_agree_and_rules_hold_in_every_household(tmp_path: Path, epsilon: float) -> None:
    domain = domain_in(tmp_path)
    target = Target(epsilon=epsilon, delta=1e-6, n_records=N, n_cells=1, domain=domain)
    mechanism = LinkedMarginals.calibrate(LinkedKnobs(), target)
    assert target.allows(mechanism.loss(n_records=N, n_cells=1))
    released = mechanism.release(private(domain), SeededRandomness(np.random.PCG64(3)))
    found = mechanism.postprocess(released)
    codes = np.stack(found.codes, axis=1)
    sizes = codes[:, 1].astype(int)
    assert len(codes) == N and len({*sizes.tolist()}) > 1
    wanted = np.arange(3) < sizes[:, None]
    assert np.array_equal(there(domain, codes), np.repeat(wanted[..., None], 2, axis=2))
    named = {name: codes[:, i].astype(np.int64) for i, name in enumerate(domain.names)}
    assert not domain.impossible(named).any()
    assert not impossible_records(codes, boxes_of(domain)).any()


def test_sizes_are_combined_from_all_tables_that_measure_them(tmp_path: Path) -> None:
    domain = domain_in(tmp_path)
    presence = Presence.of(domain)
    assert presence is not None
    rng, errors = np.random.default_rng(1), []
    sizes = np.array([0.1, 0.3, 0.4, 0.2])
    true = [np.full(3, 1 / 3), sizes]
    for place in range(3):
        for column in presence.places[place]:
            k = domain.columns[column].size
            true.append(np.append(np.full(k - 1, (1 - sizes[: place + 1].sum()) / (k - 1)),
                                  sizes[: place + 1].sum()))  # fmt: skip
    for _ in range(60):
        noisy = [p + 0.02 * rng.standard_normal(len(p)) for p in true]
        projected = [np.maximum(p, 0) / np.maximum(p, 0).sum() for p in noisy]
        found = presence.agreeing(projected, noisy, [0.0004] * len(noisy))
        assert np.isclose(found[1].sum(), 1)
        for place, columns in enumerate(presence.places, 1):
            for column in columns:
                assert np.isclose(found[column][-1], found[1][:place].sum())
                assert np.isclose(found[column].sum(), 1)
        errors.append([np.abs(found[1] - sizes).sum(), np.abs(noisy[1] - sizes).sum()])
    combined, alone = np.mean(errors, axis=0)
    assert combined < 0.85 * alone


def test_columns_of_persons_say_of_each_other_where_nobody_is(tmp_path: Path) -> None:
    domain = domain_in(tmp_path)
    sizes, boxes = [column.size for column in domain.columns], boxes_of(domain)
    first, second = domain.names.index("relation_1"), domain.names.index("relation_2")
    possible = possible_cells((first, second), sizes, boxes)
    assert not possible[4, :4].any() and possible[4, 4] and possible[0, 4]
    same = possible_cells((first, first + 1), sizes, boxes)
    assert not same[4, :92].any() and not same[:4, 92].any() and same[4, 92]
    size = possible_cells((1, second), sizes, boxes)
    assert size[0].tolist() == [False] * 4 + [True] and not size[2:, 4].any()


def test_swaps_without_the_boxes_would_part_sizes_and_persons(tmp_path: Path) -> None:
    """The broken twin: what the boxes keep is not kept by the targets alone."""
    domain = domain_in(tmp_path)
    codes = np.stack(private(domain).columns, axis=1)
    sizes = [column.size for column in domain.columns]
    rng = np.random.default_rng(2)
    targets = []
    for column in (0, 1):  # tenure and size, each with who is in the second place
        shape = sizes[column], sizes[4]
        (counts,) = counts_of(codes, [(column, 4)], [shape])
        wanted = np.roll(counts.reshape(shape), 1, axis=0).astype(float)
        targets.append(TargetTable((column, 4), wanted, 1.0))
    for boxes, parted in ((boxes_of(domain), False), ((), True)):
        swapped = codes.copy()
        swap_towards(swapped, targets, rng, boxes=boxes)
        assert Counter(map(tuple, swapped.tolist())) != Counter(map(tuple, codes.tolist()))
        assert bool(impossible_records(swapped, boxes_of(domain)).any()) is parted


def town() -> CodesInMemory:
    """4,000 households of up to three persons, whose columns are related in every place alike."""
    rng, n = np.random.default_rng(2), 4000
    zone, age, work = (
        Categorical(name=name, categories=tuple(values))
        for name, values in (("zone", "abcd"), ("age", "012345"), ("work", "xyz"))
    )
    slots = [
        Slot(name=f"{of.name}_{place}", of=of, place=place, size_name="n")
        for place in (1, 2, 3)
        for of in (age, work)
    ]
    domain = Domain((zone, Integer(name="n", lower=0, upper=3), *slots))
    zones = rng.integers(4, size=n)
    sizes = np.minimum(rng.poisson(1 + zones / 2), 3)
    columns = [zones, sizes]
    for place in (1, 2, 3):
        ages = np.clip(rng.integers(6, size=n) - (zones == 3), 0, 5)
        works = np.where(rng.random(n) < 0.8, ages // 2, rng.integers(3, size=n))
        columns += [np.where(sizes >= place, each, k) for each, k in ((ages, 6), (works, 3))]
    return CodesInMemory(domain, n, tuple(each.astype(np.uint8) for each in columns))


@pytest.fixture(scope="module")
def beginning() -> tuple[Posterior, Beginning, Presence]:
    """What the copies of a town begin with."""
    data = town()
    target = Target(
        epsilon=1.0, delta=1e-6, n_records=data.n_records, n_cells=1, domain=data.domain
    )
    mechanism = LinkedMarginals.calibrate(LinkedKnobs(), target)
    release = mechanism.release(data, SeededRandomness(np.random.PCG64(1)))
    found = mechanism.postprocess(release)
    posterior = Posterior.of(release, found.copies.model)
    presence = Presence.of(data.domain)
    assert presence is not None
    codes = np.stack(found.codes, axis=1)
    return posterior, Beginning.of(codes, posterior.model, {}, posterior.clear), presence


def test_a_copy_begins_with_persons_who_agree_with_its_sizes(
    beginning: tuple[Posterior, Beginning, Presence],
) -> None:
    posterior, start, presence = beginning
    rng = np.random.default_rng(3)
    one_way = presence.counts(
        [one_way_counts(p, len(start.codes)) for p in posterior.draw(rng).one_way]
    )
    moved = start.moved(one_way, rng, presence)
    for column, wanted in enumerate(one_way):
        assert np.array_equal(np.bincount(moved[:, column], minlength=len(wanted)), wanted)
    sizes = moved[:, presence.size]
    assert not np.array_equal(sizes, start.codes[:, presence.size])
    for place, columns in enumerate(presence.places, 1):
        for column in columns:
            there = moved[:, column] != len(one_way[column]) - 1
            assert np.array_equal(there, sizes >= place)
    # Twin: columns that are moved one by one leave sizes with other persons.
    apart = start.moved(one_way, np.random.default_rng(3))
    last = presence.places[-1][0]
    there = apart[:, last] != len(one_way[last]) - 1
    assert not np.array_equal(there, apart[:, presence.size] == len(presence.places))


def test_a_copy_has_the_tables_of_all_persons_that_were_drawn_for_it(
    beginning: tuple[Posterior, Beginning, Presence], monkeypatch: pytest.MonkeyPatch
) -> None:
    posterior, start, presence = beginning
    boxes = boxes_of(posterior.released.domain)

    def apart() -> float:
        """Of the tables of all persons, the mean share that is elsewhere than was drawn."""
        distances = []
        for seed in range(1):
            rng = np.random.default_rng(seed)
            drawn = posterior.draw(rng)
            codes = synthesis.synthesise(
                drawn, len(start.codes), rng, boxes=boxes, presence=presence, sweeps=3, copied=start
            )
            for wanted in targets_of_persons(drawn, len(start.codes), presence):
                shape = wanted.table.shape
                tables = counts_of(codes, wanted.groups, [shape] * len(wanted.groups))
                made = np.sum(tables, axis=0).reshape(shape)
                distances.append(np.abs(made - wanted.table)[..., :-1].sum() / made.sum() / 2)
        return float(np.mean(distances))

    found = apart()
    monkeypatch.setattr(synthesis, "targets_of_persons", lambda *_: [])
    assert found < 0.6 * apart()


# Groups of linked products cost no more than is claimed: all tiny households, one replaced


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
