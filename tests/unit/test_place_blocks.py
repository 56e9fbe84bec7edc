"""Trees of places that are worked on some places at a time, beside the whole tree at once."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from coded import WithoutNoise, domain_of, in_memory
from geographies import of_tree, random_tree, tree_of

from statpress.mechanisms.errors import DomainTooLargeError
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.places.estimates import LevelTable, PlaceEstimates, TreeWeights
from statpress.mechanisms.places.place_tables import MOST_CELLS, PlaceTables, PlaceTablesKnobs
from statpress.mechanisms.places.readable import read_tables
from statpress.mechanisms.places.tree import Blocks, Tree
from statpress.tasks.products.noisy_tables import written_counts
from statpress.tasks.source.file_numbers import FileNumbers, FileRoom

AT_ONCE, SIZES = (1, 30, 120), (2, 3, 2)
GROUPS = [group for n in range(4) for group in itertools.combinations(range(3), n)]


def noisy_tables(rng: np.random.Generator, tree: Tree) -> tuple[list[LevelTable], Any]:
    """Tables of random groups at every level, some places not measured, and the number of all."""
    truth, tables = rng.poisson(5.0, (tree.sizes[-1], *SIZES)).astype(np.float64), []
    for level in range(len(tree.levels)):
        exact = truth
        for below in range(len(tree.levels) - 1, level, -1):
            exact = tree.sums(below, exact)
        for chosen in rng.permutation(len(GROUPS))[:2]:
            group = GROUPS[chosen]
            counts = exact.sum(axis=tuple(1 + c for c in range(3) if c not in group))
            variances = rng.uniform(0.5, 4.0, tree.sizes[level])
            variances[rng.random(len(variances)) < 0.2] = np.inf
            tables.append(
                LevelTable(level, group, variances, counts + rng.normal(size=counts.shape))
            )
    return tables, np.array([truth.sum()])


def same(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other, equal_nan=True))


@pytest.mark.parametrize("most", [1, 5, 9, 40, 10**6])
def test_blocks_are_all_places_once(most: int) -> None:
    rng = np.random.default_rng(most)
    for _ in range(20):
        tree = random_tree(rng, 4, 4)
        cells = rng.integers(0, 4, 4).tolist()
        blocks = Blocks.of(tree, cells, most)
        for level in range(blocks.cut, 4):
            rows = [blocks.rows(block, level) for block in range(len(blocks))]
            assert [own.start for own in rows] == [0, *(own.stop for own in rows[:-1])]
            assert rows[-1].stop == tree.sizes[level]
            for block, own in enumerate(rows):
                assert blocks.forest(block).sizes[level - blocks.cut] == own.stop - own.start
                assert {blocks.at(level, place) for place in range(own.start, own.stop)} == {block}
        below = [
            sum(
                cells[level] * (own.stop - own.start)
                for level in range(blocks.cut + 1, 4)
                for own in [blocks.rows(block, level)]
            )
            for block in range(len(blocks))
        ]
        down_to = sum(k * n for k, n in zip(cells, tree.sizes[: blocks.cut + 1], strict=False))
        assert blocks.largest == max(*below, down_to)
        for block, own in enumerate(below):
            assert own <= most or blocks.ends[block + 1] - blocks.ends[block] == 1


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(s, marks=pytest.mark.nightly) for s in range(2, 6))]
)
def test_every_number_is_that_of_the_whole_tree(seed: int) -> None:
    """Bit by bit, with places that were not measured, and with public totals."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4)
    tables, total = noisy_tables(rng, tree)
    totals = {0: total}
    if seed % 2:
        totals[3] = np.ones(tree.sizes[3])
        totals[2] = tree.sums(3, totals[3])
    whole = PlaceEstimates.of(tree, SIZES, tables, totals)
    assert len(whole.blocks) == 1 and whole.blocks.cut == 3
    unions = [rng.random(tree.sizes[-1]) < part for part in (0.1, 0.5, 0.9)]
    cuts = set()
    for most in AT_ONCE:
        found = PlaceEstimates.of(tree, SIZES, tables, totals, at_once=most)
        cuts.add(found.blocks.cut)
        for table in tables:
            assert same(*(each.table(table.level, table.group) for each in (found, whole)))
            assert same(*(each.variances(table.level, table.group) for each in (found, whole)))
        for chosen in unions:
            one, other = found.union(chosen), whole.union(chosen)
            assert one.values.keys() == other.values.keys()
            for part in one.values:
                assert one.values[part] == pytest.approx(other.values[part], abs=1e-9)
                assert one.variances[part] == pytest.approx(other.variances[part], rel=1e-9)
        one, other = (each.of_place(3, tree.sizes[3] - 1) for each in (found, whole))
        assert one.variances == other.variances
        assert all(same(one.values[part], other.values[part]) for part in one.values)
    assert min(cuts) < 3


def test_forgetting_what_lies_below_the_cut_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: the levels above the cut without the blocks."""
    rng = np.random.default_rng(1)
    tree = random_tree(rng, 4)
    tables, total = noisy_tables(rng, tree)
    whole = PlaceEstimates.of(tree, SIZES, tables, {0: total})
    of = TreeWeights.of
    monkeypatch.setattr(TreeWeights, "of", lambda *args, leaves=None, **more: of(*args, **more))
    found = PlaceEstimates.of(tree, SIZES, tables, {0: total}, at_once=1)
    assert not all(
        same(found.variances(t.level, t.group), whole.variances(t.level, t.group)) for t in tables
    )


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(s, marks=pytest.mark.nightly) for s in (2, 3))]
)
def test_tables_to_read_add_up_across_blocks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4, 4)
    groups = [((0, 1), (2,)), ((0, 1), (2,)), ((0, 1), ()), ((0,),)]
    asked = [(level, group) for level, own in enumerate(groups) for group in own]
    truth = rng.poisson(2.0, (tree.sizes[-1], *SIZES)).astype(np.float64)
    tables = []
    for level, group in asked:
        others = tuple(1 + c for c in range(3) if c not in group)
        exact = truth
        for below in range(3, level, -1):
            exact = tree.sums(below, exact)
        counts = exact.sum(axis=others)
        noisy = counts + rng.normal(size=counts.shape)
        tables.append(LevelTable(level, group, np.ones(tree.sizes[level]), noisy))
    total = np.array([truth.sum()])
    estimates = PlaceEstimates.of(tree, SIZES, tables, {0: total}, at_once=12)
    assert estimates.blocks.cut < 3
    found: list[Any] = read_tables(estimates, asked, None, int(truth.sum()))
    for (level, group), own in zip(asked, found, strict=True):
        assert own.min() >= 0
        for (other, wider), upper in zip(asked, found, strict=True):
            if other == level - 1 and set(group) <= set(wider):
                gone = tuple(1 + wider.index(c) for c in wider if c not in group)
                assert np.array_equal(tree.sums(level, own), upper.sum(axis=gone))
            if other == level and set(group) < set(wider):
                gone = tuple(1 + wider.index(c) for c in wider if c not in group)
                assert np.array_equal(own, upper.sum(axis=gone))


def made_for(tree: Tree, *sizes: int) -> tuple[PlaceTables, Any]:
    sizes = sizes or (2, 3)
    domain = domain_of([tree.sizes[-1], *sizes])
    at: Any = {"level1": [["c1", "c2"]], "level2": [["c1"], ["c2"]], "level3": [["c1", "c2"]]}
    target = Target(
        n_cells=domain.n_possible, domain=domain, epsilon=1.0, delta=1e-6, n_records=500
    )
    made = PlaceTables.calibrate(PlaceTablesKnobs(at=at, geography=of_tree("c0", tree)), target)
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, k, 500) for k in (tree.sizes[-1], *sizes)], axis=1)
    return made, in_memory(domain, codes.astype(np.uint16))


def test_a_release_in_blocks_counts_and_draws_the_same() -> None:
    tree = random_tree(np.random.default_rng(8), 4)
    made, coded = made_for(tree)
    plain = WithoutNoise()
    whole = made.release(coded, plain)
    for most in AT_ONCE:
        rng, parted = WithoutNoise(), dataclasses.replace(made, at_once=most)
        found = parted.release(coded, rng)
        assert parted.blocks.cut < 3 == made.blocks.cut
        assert all(same(*each) for each in zip(found.values, whole.values, strict=True))
        drawn = [
            {sigma: sum(n for s, n in each.asked if s == sigma) for sigma, _ in each.asked}
            for each in (rng, plain)
        ]
        assert drawn[0] == drawn[1]  # as many numbers of each scale
        assert found.digest() == whole.digest()


def test_the_limit_is_of_what_is_worked_on_at_once() -> None:
    """Not of all places; a place with too many others directly in it is named by its level."""
    levels = ["level0", "level1", "level2", "level3"]
    halves = [np.repeat(np.arange(n), 2).tolist() for n in (20, 40)]
    made, _ = made_for(tree_of(levels, [0] * 20, *halves), 1000, 1000)
    assert made.rows(n_cells=0) > MOST_CELLS > made.blocks.largest
    with pytest.raises(DomainTooLargeError, match="one place of the level 'level2'") as refused:
        made_for(tree_of(levels, [0], [0], [0] * 60), 1000, 1000)
    assert "levels between" in refused.value.next_step


def test_large_arrays_lie_in_the_folder(tmp_path: Path) -> None:
    room = FileRoom(tmp_path, most=10)
    assert isinstance(room((5, 2)), np.ndarray) and not list(tmp_path.iterdir())
    numbers = room((7, 2, 3))
    assert isinstance(numbers, FileNumbers)
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert not numbers[:].any() and numbers[:].shape == (7, 2, 3)
    values = np.arange(18).reshape(3, 2, 3)
    numbers[2:5] = values
    assert np.array_equal(numbers[3:9], np.concatenate([values[1:], np.zeros((2, 2, 3))]))
    with pytest.raises(ValueError, match="one after the other"):
        numbers[::2]


def test_a_release_with_large_arrays_is_the_same(tmp_path: Path) -> None:
    tree = random_tree(np.random.default_rng(8), 4)
    made, coded = made_for(tree)
    whole = made.release(coded, WithoutNoise())
    read = whole.whole_numbers(whole.estimates())

    class OnDisk(type(coded)):  # type: ignore[misc]
        room = FileRoom(tmp_path, most=10)

    fields = {f.name: getattr(coded, f.name) for f in dataclasses.fields(coded)}
    found = made.release(OnDisk(**fields), WithoutNoise())
    assert found.digest() == whole.digest()
    assert any(isinstance(values, FileNumbers) for values in found.values)
    for one, other in zip(found.whole_numbers(found.estimates()), read, strict=True):
        assert (one is None) == (other is None) and (one is None or same(one[:], other[:]))


def test_large_published_counts_stay_in_their_file(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"raw": np.arange(60), "other": np.zeros(60)})
    pyarrow.parquet.write_table(table, path, row_group_size=7)
    found: Any = written_counts(path, (10, 2, 3), 10)
    whole = np.arange(60).reshape(10, 2, 3)
    assert not isinstance(found, np.ndarray)
    for first in range(10):
        for last in range(first + 1, 11):
            assert np.array_equal(found[first:last], whole[first:last])
    with pytest.raises(ValueError, match="as many cells"):
        written_counts(path, (11, 2, 3), 10)
    pyarrow.parquet.write_table(pa.table({"raw": pa.array([1, None] * 30)}), path)
    with pytest.raises(ValueError, match="nulls"):
        written_counts(path, (10, 2, 3), 10)[0:1]
