"""The mechanism ``place_tables``: its loss by enumeration, budgets, and what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from coded import CodesInMemory, domain_of, in_memory
from estimating import seeded
from geographies import of_tree, tree_of
from neighbouring import moved, tables
from numbered import Drawn, Numbered

from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Adjacency, Domain
from statpress.mechanisms.errors import (
    ConfigError,
    DomainTooLargeError,
    InfeasibleBudgetError,
    InsufficientBudgetError,
)
from statpress.mechanisms.marginals.residuals import GRID
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.places.place_tables import (
    MeasuredTable,
    Merged,
    PlaceTables,
    PlaceTablesKnobs,
    combined,
)
from statpress.mechanisms.places.tree import Tree
from statpress.mechanisms.planning.choice import compare
from statpress.mechanisms.sampling.randomness import equivalent_variance
from statpress.mechanisms.tables.count_tables import TABLE

ADDED = Adjacency.ADD_REMOVE
LEVELS = ["nation", "state", "tract"]
SHAPES = {
    "two states": tree_of(LEVELS, [0, 0], [0, 0, 1]),
    "a state with one tract": tree_of(LEVELS, [0, 0, 0], [0, 0, 1, 2]),
    "one state": tree_of(LEVELS, [0], [0, 0, 0]),
    "a chain": tree_of([*LEVELS, "block"], [0, 0], [0, 1], [0, 1, 1]),
    "one place": tree_of(LEVELS, [0], [0]),
}
ASKED: dict[str, Any] = {
    "two states": {"nation": [["c1"]], "state": [["c1"], []], "tract": [["c1"]]},
    "a state with one tract": {"state": [["c1"]], "tract": [["c1"], []]},
    "one state": {"nation": [["c1"]], "state": [["c1"]], "tract": [[]]},
    "a chain": {"state": [["c1"]], "tract": [[]], "block": [["c1"], []]},
    "one place": {"nation": [["c1"]], "tract": [["c1"]]},
}


def columns_of(tree: Tree) -> Domain:
    """A column of places, and one of two cells."""
    return domain_of([tree.sizes[-1], 2])


def target_of(tree: Tree, **more: Any) -> Target:
    domain = columns_of(tree)
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "n_records": 400} | more
    return Target(n_cells=domain.n_possible, domain=domain, **asked)


def calibrated(
    shape: str, cls: type[PlaceTables] = PlaceTables, shares: Any = None, **more: Any
) -> PlaceTables:
    tree = SHAPES[shape]
    knobs = PlaceTablesKnobs(at=ASKED[shape], geography=of_tree("c0", tree), level_shares=shares)
    return cls.calibrate(knobs, target_of(tree, **more))


def drawn_of(mechanism: PlaceTables, tree: Tree, table: tuple[int, ...]) -> Drawn:
    """What a release of a table adds independent noise to."""
    domain = columns_of(tree)
    cells = np.flatnonzero(table)
    counts = ContingencyTable(domain, cells, np.array(table)[cells])
    rng = Numbered()
    release = mechanism.release(CodesInMemory.of(counts), rng)
    assert len(rng.scales) < GRID
    found: Drawn = {}
    for values in release.values:
        for value in values.ravel().tolist():
            exact, number = divmod(value, GRID)
            variance = equivalent_variance(rng.scales[number]) / GRID**2
            assert found.setdefault(number, (exact, variance)) == (exact, variance)
    assert len(found) == len(rng.scales)
    return found


def spent(one: Drawn, other: Drawn) -> Fraction:
    """mu^2 of telling two tables apart: independent normal noise, of which each release is made."""
    return sum(((one[k][0] - other[k][0]) ** 2 / one[k][1] for k in one), start=Fraction(0))


def worst(
    mechanism: PlaceTables, tree: Tree, n_records: int, unit_records: int
) -> tuple[Fraction, Fraction]:
    """The largest spending over all neighbours, by replacing and by adding a unit."""
    n_cells = columns_of(tree).n_possible
    by_size = {
        n: {t: drawn_of(mechanism, tree, t) for t in tables(n, n_cells)}
        for n in range(max(n_records - unit_records, 0), n_records + 1)
    }
    replaced = max(
        spent(by_size[n_records][a], by_size[n_records][b])  # which is the same either way
        for a, b in itertools.combinations(by_size[n_records], 2)
        if moved(a, b) <= unit_records
    )
    added = max(
        spent(by_size[n_records][a], by_size[n][b])
        for n in by_size
        if n < n_records
        for a in by_size[n_records]
        for b in by_size[n]
        if all(x >= y for x, y in zip(a, b, strict=True))
    )
    return replaced, added


@pytest.mark.parametrize("unit_records", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_the_worst_over_all_neighbours(shape: str, unit_records: int) -> None:
    """Units move in place and cell; what is charged is attained, and never passed."""
    tree = SHAPES[shape]
    made = calibrated(shape, unit_records=unit_records)
    replaced, _ = worst(made, tree, unit_records, unit_records)
    assert replaced <= made.mu**2
    assert float(replaced / made.mu**2) == pytest.approx(1, abs=1e-4)
    alone = calibrated(shape, unit_records=unit_records, adjacency=ADDED)
    replaced, added = worst(alone, tree, unit_records, unit_records)
    assert added <= alone.mu**2
    assert float(added / alone.mu**2) == pytest.approx(1, abs=1e-4)
    assert replaced > alone.mu**2  # twin: add-remove's noise for a replaced unit


@dataclasses.dataclass(frozen=True)
class OneLevelFree(PlaceTables):
    """Broken: the last level's tables get noise as if they had the whole of mu^2."""

    def amount(self, group: Any, mask: int) -> Fraction:
        last = max(table.level for table in self.tables)
        own = [table for table in self.tables if table.group == group]
        if any(t.level == last and mask >> i & 1 for i, t in enumerate(own)):
            return self.mu**2
        return super().amount(group, mask)


class DrawnTwice(Merged):
    """Broken: an only child is drawn again, with the amounts of all levels as well."""

    @classmethod
    def of(cls, tree: Tree, levels: Any) -> Any:
        merged = Merged.of(tree, levels)
        own = [each.copy() for each in merged.measured]
        for i, (above, same) in enumerate(zip(merged.above, merged.same, strict=True), start=1):
            own[i][same] = own[i - 1][above[same]]
        return cls(merged.levels, merged.above, merged.same, tuple(own))

    def carry(self, values: Any, at_once: int) -> None:
        del values, at_once


@dataclasses.dataclass(frozen=True)
class OnlyChildrenTwice(PlaceTables):
    merged = DrawnTwice


class Forgetful:
    """A filter that lets everything pass."""

    def __init__(self, mu_squared: Fraction) -> None:
        del mu_squared

    def spend(self, squared: Any, variance: Any) -> None:
        del squared, variance


@pytest.mark.parametrize(
    ("shape", "broken"), [("two states", OneLevelFree), ("one place", OnlyChildrenTwice)]
)
def test_a_level_that_is_not_charged_is_seen(shape: str, broken: type[PlaceTables]) -> None:
    """Twins: by the filter of every release, and by the enumeration where that is left out."""

    class Unfiltered(broken):  # type: ignore[valid-type, misc]
        filter = Forgetful

    tree = SHAPES[shape]
    first = (1, *[0] * (columns_of(tree).n_possible - 1))
    with pytest.raises(InsufficientBudgetError):
        drawn_of(calibrated(shape, broken), tree, first)
    made = calibrated(shape, Unfiltered)
    replaced, _ = worst(made, tree, 1, 1)
    assert replaced > made.mu**2 * Fraction(3, 2)


def test_a_place_that_is_the_only_one_at_every_level_is_drawn_once() -> None:
    made = calibrated("one place")
    assert len(drawn_of(made, SHAPES["one place"], (1, 0))) == 2  # cells


def test_only_children_are_measured_once_with_the_amounts_of_all_levels() -> None:
    tree = SHAPES["a chain"]
    merged = Merged.of(tree, [1, 2, 3])
    assert [each.tolist() for each in merged.measured] == [[7, 3], [0, 0], [0, 4, 4]]
    assert merged.paths() == {(7, 0, 0), (3, 0, 4)}
    made = calibrated("a chain")
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, 3, 400), rng.integers(0, 2, 400)], axis=1).astype(np.uint8)
    release = made.release(in_memory(columns_of(tree), codes), seeded(1))
    state, block = (release.values[i] for i, t in enumerate(made.tables) if t.group == (1,))
    assert np.array_equal(state[0], block[0])
    assert not np.array_equal(state[1], block[1])
    found = release.estimates()
    assert found.variances(1, (1,))[0] == pytest.approx(found.variances(3, (1,))[0], rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_whole_of_mu_is_spent(shape: str) -> None:
    made = calibrated(shape)
    shares = [float(table.share) for table in made.tables]
    assert 1 - 1e-5 < sum(shares) <= 1
    assert made.loss(n_records=400, n_cells=4).rho.upper == pytest.approx(float(made.mu**2) / 2)
    half = made.loss(n_records=400, n_cells=4, unit_records=1).rho.upper
    assert calibrated(shape, unit_records=2).loss(
        n_records=400, n_cells=4, unit_records=1
    ).rho.upper == pytest.approx(half / 4, rel=1e-6)


def test_what_the_least_shares_take_is_the_largest_one_s() -> None:
    """No table has less than a millionth, and all together have no more than the whole."""
    little = Fraction(1, 10**7)
    shares = {"nation": little, "state": little, "tract": 1 - 2 * little}
    made = calibrated("two states", shares=shares)
    found = [table.share * 10**6 for table in made.tables]
    assert sorted(found) == [1, 1, 1, 10**6 - 3]
    release = made.release(in_memory(columns_of(SHAPES["two states"]), np.zeros((9, 2), np.uint8)),
                           seeded(1))  # fmt: skip
    assert release.scales.keys() == {(), (1,)}


def test_shares_of_levels_are_found_or_declared() -> None:
    """Small places need more; no level gets less than a fifth of an equal share."""
    tree = tree_of(LEVELS, [0] * 10, np.repeat(np.arange(10), 20).tolist())
    at = {level: [["c1"]] for level in LEVELS}
    asked = target_of(tree, n_records=100_000)

    def shares(geography: Any, **more: Any) -> list[float]:
        made = PlaceTables.calibrate(PlaceTablesKnobs(at=at, geography=geography, **more), asked)
        return [float(table.share) for table in made.tables]

    alike = shares(of_tree("c0", tree))
    assert alike == sorted(alike)
    assert alike[0] == pytest.approx(0.2 / 3 / (0.2 / 3 + sum(alike[1:]) / sum(alike)), rel=0.1)
    uneven = shares(of_tree("c0", tree, [1] * 199 + [10**6]))
    assert uneven[2] != pytest.approx(alike[2], abs=0.01)
    declared = {"nation": Fraction(1, 20), "state": Fraction(1, 5), "tract": Fraction(3, 4)}
    assert shares(of_tree("c0", tree), level_shares=declared) == [0.05, 0.2, 0.75]
    for wrong in ({"nation": Fraction(1)}, {**declared, "tract": Fraction(1, 2)}):
        with pytest.raises(ConfigError, match="level shares"):
            shares(of_tree("c0", tree), level_shares=wrong)


@pytest.mark.parametrize("releases", [60, pytest.param(400, marks=pytest.mark.nightly)])
def test_the_expected_error_is_that_of_the_estimates(releases: int) -> None:
    near = 2.4 / math.sqrt(releases)  # more than three standard errors of a deviation
    made = calibrated("two states")
    tree = SHAPES["two states"]
    rng = np.random.default_rng(3)
    codes = np.stack([rng.integers(0, 3, 400), rng.integers(0, 2, 400)], axis=1).astype(np.uint8)
    coded = in_memory(columns_of(tree), codes)
    error = made.expected_error(n_records=400, n_cells=6)
    squares = np.zeros(len(made.tables))
    for seed in range(releases):
        found = made.release(coded, seeded(seed)).estimates()
        for i, table in enumerate(made.tables):
            exact = {k: own for k, _, own in made.counts(coded, table.group)}[table.level]
            squares[i] += float(np.mean((found.table(table.level, table.group) - exact) ** 2))
    for expected, square in zip(error.tables, squares / releases, strict=True):
        assert math.sqrt(square) == pytest.approx(expected.sd, rel=near)
        assert math.sqrt(square) != pytest.approx(2 * expected.sd, rel=near)  # twin


def test_known_totals_have_no_error() -> None:
    tree = SHAPES["two states"]
    knobs = PlaceTablesKnobs(
        at=ASKED["two states"], geography=of_tree("c0", tree, [100, 200, 100], exact=True)
    )
    made = PlaceTables.calibrate(knobs, target_of(tree))
    scales = made.scales()
    found = combined(made.places, made.sizes, made.tables, scales, 400)
    assert found.variances(2, ()).tolist() == [0.0, 0.0, 0.0]
    free = combined(of_tree("c0", tree), made.sizes, made.tables, scales, 400)
    assert free.variances(2, ()).min() > 0
    assert (found.variances(2, (1,)) < free.variances(2, (1,))).all()
    for wrong in ({"sizes": [1, 1, 1]}, {"adjacency": ADDED}):
        sizes: Any = wrong.pop("sizes", [100, 200, 100])
        geography = of_tree("c0", tree, sizes, exact=True)
        with pytest.raises(ConfigError, match=r"add up to the 400|records is private"):
            PlaceTables.calibrate(
                dataclasses.replace(knobs, geography=geography), target_of(tree, **wrong)
            )


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (None, "need a geography"),
        ({"county": [["c1"]]}, "has no level 'county'"),
        (["state", "state"], "named once"),
        ({"state": []}, "has no table"),
        ({"state": [["c0"]]}, "'c0' is not one"),
        ({"state": [["c1", "c1"]]}, "each once in a group"),
        ({"state": [["c1"], ["c1"]]}, "same table twice"),
        ({"state": [[]]}, "in no table"),
        ({"nation": [[]], "state": [["c1"]]}, "only place of a level is public"),
    ],
)
def test_levels_and_groups_that_cannot_be_are_refused(at: Any, problem: str) -> None:
    tree = SHAPES["two states"]
    knobs = PlaceTablesKnobs(at=at, geography=of_tree("c0", tree))
    with pytest.raises(ConfigError, match=problem):
        PlaceTables.calibrate(knobs, target_of(tree))


def test_what_does_not_fit_is_refused_before_anything_is_drawn() -> None:
    with pytest.raises(InfeasibleBudgetError):
        calibrated("two states", delta=0.0)
    with pytest.raises(InfeasibleBudgetError, match="grid"):
        calibrated(
            "a state with one tract",
            epsilon=0.01,
            n_records=2**31,
            unit_records=2**30,
            shares={"state": Fraction(1, 10**6), "tract": 1 - Fraction(1, 10**6)},
        )
    tree = SHAPES["two states"]
    domain = domain_of([tree.sizes[-1], 400, 400, 400])
    knobs = PlaceTablesKnobs(at={"nation": [["c1", "c2", "c3"]]}, geography=of_tree("c0", tree))
    target = dataclasses.replace(target_of(tree), n_cells=domain.n_possible, domain=domain)
    with pytest.raises(DomainTooLargeError, match="more than the 50,000,000"):
        PlaceTables.calibrate(knobs, target)


def test_a_description_without_places_has_the_loss() -> None:
    made = calibrated("a chain", adjacency=ADDED)
    again = PlaceTables.from_description(made.describe())
    assert again == made and again.geography is None
    assert MeasuredTable(3, (), made.tables[-1].share) in made.tables


def test_it_is_compared_only_where_it_is_named() -> None:
    tree = SHAPES["two states"]
    knobs = PlaceTablesKnobs(at=ASKED["two states"], geography=of_tree("c0", tree))
    named = {each.name: each.mechanism for each in compare(TABLE, knobs, target_of(tree))}
    assert isinstance(named["place_tables"], PlaceTables) and len(named) > 2
    left_open = [each.name for each in compare(TABLE, TABLE.left_open(), target_of(tree))]
    assert left_open and "place_tables" not in left_open
