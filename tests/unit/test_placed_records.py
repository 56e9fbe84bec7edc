"""Records that get places: numbers, tables and pairs, and what both products cost together."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from coded import CodesInMemory, WithoutNoise, domain_of, in_memory
from estimating import seeded
from geographies import of_tree, random_tree, tree_of
from neighbouring import moved, tables
from numbered import Drawn, Numbered
from numpy.typing import NDArray

from statpress.mechanisms.accounting.composition import compose
from statpress.mechanisms.accounting.losses import GaussianLoss
from statpress.mechanisms.domain.columns import Categorical
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.marginals.marginals import ColumnGroup, Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import GRID
from statpress.mechanisms.marginals.target_tables import tables_of
from statpress.mechanisms.mechanism import PlacedBy, Target
from statpress.mechanisms.places.place_tables import NoisyPlaces, PlaceTables, PlaceTablesKnobs
from statpress.mechanisms.places.placed_records import PlacesOfRecords
from statpress.mechanisms.places.tree import Tree
from statpress.mechanisms.sampling.randomness import equivalent_variance

Codes = NDArray[np.int64]
LEVELS = ["nation", "state", "tract"]


def released(
    tree: Tree, codes: Codes, at: Any, sizes: Any, rng: Any, *, exact: bool = False, **more: Any
) -> NoisyPlaces:
    """Tables of places of records int64[n, 1 + columns], the place first."""
    whole = domain_of([tree.sizes[-1], *sizes])
    named = {"c0", *(name for groups in at.values() for group in groups for name in group)}
    domain = Domain(tuple(column for column in whole.columns if column.name in named))
    codes = codes[:, [whole.names.index(name) for name in domain.names]]
    known = np.bincount(codes[:, 0], minlength=tree.sizes[-1]) if exact else None
    geography = of_tree("c0", tree, known, exact=exact)
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "n_records": len(codes)} | more
    target = Target(n_cells=domain.n_possible, domain=domain, **asked)
    made = PlaceTables.calibrate(PlaceTablesKnobs(at=at, geography=geography), target)
    return made.release(in_memory(domain, codes.astype(np.uint16)), rng)


def columns_of(sizes: Any) -> Domain:
    """The columns of the records, named as those of a domain that begins with places."""
    whole = domain_of([2, *sizes])
    return Domain(whole.columns[1:])


def made_up(tree: Tree, n: int, sizes: Any, seed: int) -> Codes:
    rng = np.random.default_rng(seed)
    columns = [rng.choice(size, n, p=rng.dirichlet(np.ones(size))) for size in sizes]
    return np.stack([rng.integers(0, tree.sizes[-1], n), *columns], axis=1)


def by_level(tree: Tree, places: Codes) -> list[Codes]:
    """Of every level int64[n]: the place of each record."""
    found = [places]
    for parents in tree.parents[::-1]:
        found.insert(0, parents[found[0]])
    return found


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(s, marks=pytest.mark.nightly) for s in range(6, 12))]
)
def test_every_place_of_every_tree_gets_its_exact_number(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(2, 5)), 4)
    codes = made_up(tree, 300, (3, 4), seed)
    last = tree.levels[-1]
    at = {last: [["c1"], ["c1", "c2"]][seed % 2 :]} | {tree.levels[1]: [["c1"], ["c2"]]}
    at |= {last: [[]]} if seed % 3 == 0 and 1 < tree.sizes[1] < tree.sizes[-1] else {}
    release = released(tree, codes, at, (3, 4), seeded(seed), exact=True)
    places = PlacesOfRecords(release).codes(columns_of((3, 4)), (codes[:, 1], codes[:, 2]))
    true = np.bincount(codes[:, 0], minlength=tree.sizes[-1])
    assert np.array_equal(np.bincount(places, minlength=tree.sizes[-1]), true)
    again = PlacesOfRecords(release).codes(columns_of((3, 4)), (codes[:, 1], codes[:, 2]))
    assert np.array_equal(places, again)


def placed_without_noise(
    tree: Tree, codes: Codes, at: Any, sizes: Any, records: Codes, **more: Any
) -> Codes:
    release = released(tree, codes, at, sizes, WithoutNoise(), epsilon=1000.0, **more)
    return PlacesOfRecords(release).codes(columns_of(sizes), tuple(records.T))


def table(places: Codes, column: Codes, n_places: int, size: int) -> Codes:
    return np.bincount(places * size + column, minlength=n_places * size).reshape(n_places, size)


def test_without_noise_places_have_their_tables_and_pairs_are_raked() -> None:
    """Twin: places at random, by their numbers only, have the nation's tables."""
    tree = tree_of(LEVELS, [0, 0, 0], [0, 0, 1, 1, 1, 2])
    rng = np.random.default_rng(5)
    n, sizes = 12_000, (4, 5)
    state = rng.integers(0, 3, n)
    tract = np.array([0, 2, 5])[state] + rng.integers(0, [2, 3, 1])[state]
    laws = rng.dirichlet(np.ones(4), size=6)
    first = np.array([rng.choice(4, p=laws[each]) for each in tract])
    second = np.where(rng.random(n) < 0.6, first, rng.integers(0, 5, n))
    codes = np.stack([tract, first, second], axis=1)
    at = {"state": [["c1"], ["c2"]], "tract": [["c1"]]}
    places = placed_without_noise(tree, codes, at, sizes, codes[:, 1:])
    for level, columns in ((1, (1, 2)), (2, (1,))):
        own, true = by_level(tree, places)[level], by_level(tree, tract)[level]
        for column in columns:
            size, k = sizes[column - 1], tree.sizes[level]
            one, other = (table(each, codes[:, column], k, size) for each in (own, true))
            assert np.abs(one - other).sum() / 2 <= 0.002 * n
    random = placed_without_noise(tree, codes, {"tract": [[]]}, sizes, codes[:, 1:])
    away = [
        np.abs(table(each, first, 6, 4) - table(tract, first, 6, 4)) for each in (random, places)
    ]
    assert away[0].sum() > 20 * away[1].sum()
    # Pairs of a state: those of the nation, raked to the state's columns.
    nation = np.zeros((4, 5))
    np.add.at(nation, (first, second), 1.0)
    for place in range(3):
        raked, inside = nation.copy(), by_level(tree, places)[1] == place
        for _ in range(50):
            raked *= (np.bincount(first[state == place], minlength=4) / raked.sum(1))[:, None]
            raked *= np.bincount(second[state == place], minlength=5) / raked.sum(0)
        own = np.zeros((4, 5))
        np.add.at(own, (first[inside], second[inside]), 1.0)
        assert np.abs(own - raked).sum() / 2 / raked.sum() < 0.02
        unrelated = np.multiply.outer(own.sum(1), own.sum(0)) / own.sum()
        assert np.abs(own - unrelated).sum() / 2 / own.sum() > 0.1


def test_tables_of_several_columns_are_met_too() -> None:
    tree = tree_of(["nation", "state"], [0, 0])
    rng = np.random.default_rng(2)
    state, one = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    codes = np.stack([state, one, np.where(rng.random(4000) < 0.9, one ^ state, 1 - one)], axis=1)
    pair = codes[:, 1] * 2 + codes[:, 2]
    true = table(state, pair, 2, 4)
    both = placed_without_noise(tree, codes, {"state": [["c1", "c2"]]}, (2, 2), codes[:, 1:])
    assert np.abs(table(both, pair, 2, 4) - true).sum() <= 8
    single = placed_without_noise(tree, codes, {"state": [["c1"], ["c2"]]}, (2, 2), codes[:, 1:])
    assert np.abs(table(single, pair, 2, 4) - true).sum() > 1000  # twin: which does not tell


def test_records_that_are_fewer_or_lack_columns_get_places_in_proportion() -> None:
    tree = tree_of(LEVELS, [0, 0], [0, 0, 1])
    codes = made_up(tree, 4000, (3, 2), 3)
    codes[:, 0] = np.random.default_rng(0).choice(3, 4000, p=[0.6, 0.3, 0.1])
    at = {"nation": [["c1", "c2"]], "tract": [["c1"]]}
    release = released(tree, codes, at, (3, 2), WithoutNoise(), epsilon=1000.0)
    few = codes[:1000]
    placing = PlacesOfRecords(release)
    places = placing.codes(Domain(columns_of((3, 2)).columns[:1]), (few[:, 1],))
    shares = np.bincount(places, minlength=3) / 1000
    assert np.allclose(shares, np.bincount(codes[:, 0]) / 4000, atol=0.002)
    elsewhere = Domain((Categorical(name="other", categories=("a", "b")),))
    places = placing.codes(elsewhere, (few[:, 2],))
    assert np.allclose(np.bincount(places, minlength=3) / 1000, shares, atol=0.002)


@pytest.mark.parametrize(
    ("totals", "places"),
    [(True, 10_000), (False, 2_000), pytest.param(False, 10_000, marks=pytest.mark.nightly)],
)
def test_ten_thousand_places_of_one_state(totals: bool, places: int) -> None:
    """As many as there may be, in time that is linear but for a logarithm."""
    n = 4 * places
    tree = tree_of(["nation", "tract"], [0] * places)
    codes = made_up(tree, n, (4,), 7)
    at = {"nation": [["c1"]], "tract": [[]] if totals else [["c1"]]}
    found = placed_without_noise(tree, codes, at, (4,), codes[:, 1:])
    true = np.bincount(codes[:, 0], minlength=places)
    assert np.abs(np.bincount(found, minlength=places) - true).sum() <= 0.02 * n
    if not totals:
        wrong = np.abs(
            table(found, codes[:, 1], places, 4) - table(codes[:, 0], codes[:, 1], places, 4)
        )
        assert wrong.sum() / 2 <= 0.1 * n


def test_what_all_places_say_of_a_column_helps_to_fit_the_records() -> None:
    tree = tree_of(LEVELS, [0, 0], [0, 0, 1])
    codes = made_up(tree, 4000, (3, 2), 3)
    release = released(tree, codes, {"tract": [["c1"]]}, (3, 2), seeded(1))
    (one,) = PlacesOfRecords(release).whole(columns_of((3, 2)))
    assert one.group == (0,)
    estimates = release.estimates()
    assert np.allclose(one.counts, estimates.table(0, (1,))[0], atol=1e-5)
    assert one.variance == pytest.approx(3 * float(release.scales[(1,)][1] / GRID) ** 2)


def test_records_have_the_places_of_the_placing() -> None:
    """The mechanism hands its records over as they are published, and copies have no places."""
    tree = tree_of(LEVELS, [0, 0], [0, 0, 1])
    codes, own = made_up(tree, 500, (3, 2), 3), columns_of((3, 2))
    target = Target(epsilon=1.0, delta=1e-6, n_records=500, n_cells=own.n_possible, domain=own)
    column = Categorical(name="c0", categories=tree.codes[-1])
    knobs = MarginalsKnobs(places=PlacedBy("by_place", column), copies=2)
    made = Marginals.calibrate(knobs, target)
    assert made.describe()["places"] == "by_place"
    assert made.loss(n_records=500, n_cells=6) == Marginals.calibrate(
        MarginalsKnobs(copies=2), target
    ).loss(n_records=500, n_cells=6)
    raw = made.release(in_memory(own, codes[:, 1:].astype(np.uint8)), seeded(1))
    assert made.postprocess(raw).places is None
    at = {"state": [["c1"]], "tract": [[]]}
    placing = PlacesOfRecords(released(tree, codes, at, (3, 2), seeded(2)))
    found = made.postprocess(dataclasses.replace(raw, placing=placing))
    assert found.places is not None and found.places.dtype == np.uint8
    assert np.array_equal(found.places, placing.codes(own, found.codes))
    assert found.copies.sets[0].shape == (500, 2)
    without = made.postprocess(raw)
    assert all(np.array_equal(*pair) for pair in zip(found.codes, without.codes, strict=True))


def test_copies_may_have_no_clear_pair() -> None:
    """Then none of their tables is counted."""
    assert tables_of(np.zeros((5, 2), np.uint8), {}) == {}


def drawn_of(made: Any, domain: Domain, counts: tuple[int, ...]) -> Drawn:
    cells = np.flatnonzero(counts)
    rng = Numbered()
    coded = CodesInMemory.of(ContingencyTable(domain, cells, np.array(counts)[cells]))
    own = [coded.columns[domain.names.index(name)] for name in made.domain.names]
    release = made.mechanism.release(CodesInMemory(made.domain, coded.n_records, tuple(own)), rng)
    values = (
        [*release.values]
        if isinstance(release, NoisyPlaces)
        else [table.values for table in (*release.one_way, *release.tables)]
    )
    found: Drawn = {}
    for value in itertools.chain.from_iterable(each.ravel().tolist() for each in values):
        exact, number = divmod(value, GRID)
        found[number] = (exact, equivalent_variance(rng.scales[number]) / GRID**2)
    assert len(found) == len(rng.scales) < GRID
    return found


@dataclasses.dataclass(frozen=True)
class Product:
    """A mechanism with the columns that it measures."""

    mechanism: Any
    domain: Domain


def test_the_loss_of_records_and_tables_together_by_enumeration() -> None:
    """All neighbours of two records: together they spend the sum of both mu^2, and no more.

    Twin: records whose places are charged as if the tables of places were free.
    """
    tree = tree_of(LEVELS, [0, 0], [0, 0, 1])
    domain = domain_of([3, 2, 2])
    whole = Target(epsilon=1.0, delta=1e-6, n_records=400, n_cells=12, domain=domain)
    at = {"nation": [["c1"]], "state": [["c1"], ["c2"]], "tract": [[]]}
    knobs = PlaceTablesKnobs(at=at, geography=of_tree("c0", tree))
    own = Domain(domain.columns[1:])
    placed = MarginalsKnobs(
        places=PlacedBy("by_place", domain.columns[0]),
        pairs=(ColumnGroup(columns=("c1", "c2")),),
    )
    products = [
        Product(PlaceTables.calibrate(knobs, whole), domain),
        Product(
            Marginals.calibrate(placed, dataclasses.replace(whole, n_cells=4, domain=own)), own
        ),
    ]
    every = tables(2, domain.n_possible)
    drawn = [{each: drawn_of(product, domain, each) for each in every} for product in products]

    def spent(product: int, one: Any, other: Any) -> Fraction:
        pairs = ((drawn[product][one][k], drawn[product][other][k]) for k in drawn[product][one])
        return sum(((a[0] - b[0]) ** 2 / a[1] for a, b in pairs), start=Fraction(0))

    worst = max(
        sum(spent(product, one, other) for product in range(2))
        for one in every
        for other in every
        if moved(one, other) <= 1
    )
    mu_squared = [product.mechanism.mu**2 for product in products]
    assert 0.999 * sum(mu_squared) < worst <= sum(mu_squared)
    assert worst > mu_squared[1]  # the twin's loss
    losses = [product.mechanism.loss(n_records=400, n_cells=4) for product in products]
    together = GaussianLoss(Fraction(math.sqrt(sum(mu_squared))))
    for epsilon in (0.5, 1.0, 2.0):
        composed = compose(losses).delta(epsilon).upper
        assert composed == pytest.approx(together.delta(epsilon).upper, rel=1e-6)
        assert composed > 2 * losses[1].delta(epsilon).upper  # the twin's
