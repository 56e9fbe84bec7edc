"""Records that have given tables: margins, start, swaps, the compiled kernel."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from coded import dependent_codes
from hypothesis import given
from hypothesis import strategies as st

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals import swaps, synthesis, target_tables
from statpress.mechanisms.marginals import swaps as swap_kernel
from statpress.mechanisms.marginals.fitting import fit_margins, fit_pair
from statpress.mechanisms.marginals.swaps import compiled_column, swap_towards
from statpress.mechanisms.marginals.synthesis import (
    integer_table,
    one_way_counts,
    start_records,
    tree,
)
from statpress.mechanisms.marginals.target_tables import Box, TargetTable, counts_of, tables_of
from statpress.mechanisms.parallel import using_threads
from statpress.mechanisms.postprocessing.rounding import round_to_total

SIZES = (4, 3, 5)
TRUE = dependent_codes(2000, SIZES, 9)


def table(codes: np.ndarray, group: tuple[int, ...]) -> np.ndarray:
    shape = tuple(SIZES[c] for c in group)
    return counts_of(codes, [group], [shape])[0].reshape(shape)


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 7), st.integers(0, 300))
def test_integer_tables_have_their_margins(seed: int, rows: int, columns: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.multinomial(n, rng.dirichlet(np.ones(rows * columns))).reshape(rows, columns)
    wanted = np.abs(exact + rng.normal(0, 0.4, exact.shape))
    found = integer_table(wanted, exact.sum(axis=1), exact.sum(axis=0))
    assert found.min() >= 0
    assert np.array_equal(found.sum(axis=1), exact.sum(axis=1))
    assert np.array_equal(found.sum(axis=0), exact.sum(axis=0))
    assert np.array_equal(
        integer_table(exact.astype(float), exact.sum(axis=1), exact.sum(axis=0)), exact
    )


@given(
    st.integers(0, 2**32),
    st.one_of(st.integers(1, 4), st.integers(20, 5000)),
    st.one_of(st.integers(1, 50), st.integers(1000, 10**8)),
    st.sampled_from([0.01, 1.0, 100.0]),
)
def test_counts_of_a_column_add_up_however_many_cells_it_has(
    seed: int, cells: int, m: int, evenness: float
) -> None:
    rng = np.random.default_rng(seed)
    p = rng.gamma(evenness, size=cells) * (rng.random(cells) < 0.9)
    p[0] += 1e-9
    found = one_way_counts(p, m)
    assert found.sum() == m and found.min() >= 0
    assert not found[p == 0].any()
    assert np.abs(found - p * (m / p.sum())).max() < 1 + 1e-6 + 1e-9 * m


def test_counts_that_are_steadied_alone_do_not_add_up() -> None:
    """The twin: what rounding to 2**-24 leaves is given to nobody."""
    p, m = np.full(62, 1 / 62), 23_418
    assert one_way_counts(p, m).sum() == m
    with pytest.raises(ValueError, match="add up to the total"):
        round_to_total(np.rint(p * m * 2**24) / 2**24, m)


def test_fitted_tables_have_their_margins_and_keep_zeros() -> None:
    rng = np.random.default_rng(3)
    possible = rng.random((5, 4)) < 0.8
    possible[0], possible[:, 0] = True, True
    rows, columns = rng.random(5) + 0.1, rng.random(4) + 0.1
    rows, columns = rows / rows.sum(), columns / columns.sum()
    rows = np.array([0.4, *(rows[1:] * 0.6 / rows[1:].sum())])
    columns = np.array([0.5, *(columns[1:] * 0.5 / columns[1:].sum())])
    found = fit_pair(rng.normal(0.05, 0.1, (5, 4)), rows, columns, possible)
    assert found.min() >= 0 and not found[~possible].any()
    assert np.allclose(found.sum(axis=1), rows, atol=1e-5)
    assert np.allclose(found.sum(axis=0), columns, atol=1e-5)


def test_a_triple_of_maximum_entropy_factorises() -> None:
    """Of a chain its three pairs give back the chain."""
    rng = np.random.default_rng(4)
    start, one, two = rng.dirichlet(np.ones(3)), *(rng.dirichlet(np.ones(4), k) for k in (3, 4))
    chain = start[:, None, None] * one[:, :, None] * two[None]
    pairs = {(0, 1): chain.sum(axis=2), (0, 2): chain.sum(axis=1), (1, 2): chain.sum(axis=0)}
    flat = np.full(chain.shape, 1 / 48)
    assert np.allclose(fit_margins(flat, pairs, rounds=300), chain, atol=2e-4)
    again = fit_margins(flat, {(0, 1): pairs[0, 1]}, rounds=3)
    assert np.allclose(again.sum(axis=2), pairs[0, 1])


def test_the_tree_holds_what_is_forced_and_then_the_strongest() -> None:
    strong, weak = np.diag([0.5, 0.5]), np.full((2, 2), 0.25)
    pairs = dict.fromkeys(itertools.combinations(range(4), 2), weak) | {(1, 3): strong}
    edges = {tuple(sorted(edge)) for edge in tree(4, pairs, [(0, 2)])}
    assert {(0, 2), (1, 3)} <= edges and len(edges) == 3
    assert tree(3, {}) == []


def started(rng: np.random.Generator) -> np.ndarray:
    one_way = [table(TRUE, (c,)) for c in range(3)]
    pairs = {p: table(TRUE, p).astype(float) for p in itertools.combinations(range(3), 2)}
    return start_records(one_way, tree(3, pairs), pairs, {}, np.dtype(np.uint8), rng)


def wanted() -> list[TargetTable]:
    groups = [*itertools.combinations(range(3), 2), (0, 1, 2)]
    return [
        TargetTable(g, table(TRUE, g).astype(float), 0.5 if len(g) > 2 else 1.0) for g in groups
    ]


def distance(codes: np.ndarray) -> float:
    return sum(t.weight * float(((table(codes, t.group) - t.table) ** 2).sum()) for t in wanted())


def test_swaps_come_near_to_all_targets_and_keep_the_one_ways() -> None:
    codes = started(np.random.default_rng(1))
    before = distance(codes)
    assert np.abs(table(codes, (1, 2)) - table(TRUE, (1, 2))).sum() <= 30  # an edge of the tree
    swap_towards(codes, wanted(), np.random.default_rng(2))
    assert distance(codes) < before / 20
    for column in range(3):
        assert np.array_equal(table(codes, (column,)), table(TRUE, (column,)))


def test_long_files_are_swapped_part_by_part() -> None:
    """As near to the targets, from fewer visits to the records; one-ways stay."""
    found, visits = {}, {}
    for least in (swaps.LEAST_VISITS, 128):
        codes = started(np.random.default_rng(1))
        rounds = swap_towards(codes, wanted(), np.random.default_rng(2), least_visits=least)
        found[least] = distance(codes)
        visits[least] = rounds * min(len(codes), max(least, len(codes) // swaps.PARTS))
        for column in range(3):
            assert np.array_equal(table(codes, (column,)), table(TRUE, (column,)))
    whole, parts = found
    assert visits[parts] < visits[whole]
    assert found[parts] < distance(started(np.random.default_rng(1))) / 20


def test_records_are_swapped_alike_by_any_number_of_threads() -> None:
    """In blocks they come as near to their targets as without; the seed alone decides."""
    sizes = {"least_block": 100, "least_visits": 128}
    found = []
    for count in (1, 2, 4):
        with using_threads(count):
            codes = started(np.random.default_rng(1))
            swap_towards(codes, wanted(), np.random.default_rng(2), **sizes)
            found.append(codes)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert distance(found[0]) < distance(started(np.random.default_rng(1))) / 20
    for column in range(3):
        assert np.array_equal(
            table(found[0], (column,)), table(started(np.random.default_rng(1)), (column,))
        )
    other = started(np.random.default_rng(1))
    swap_towards(other, wanted(), np.random.default_rng(3), **sizes)
    assert not np.array_equal(found[0], other)  # twin: another seed


def test_rounds_in_turn_visit_every_record_before_any_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twin: rounds that begin anywhere."""
    visited: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    kernel = swaps.compiled_column("uint8")
    for in_turn, parts in visited.items():

        def seen(codes: Any, first: int, visits: int, column: int, *further: Any) -> Any:
            if column == 0:
                parts.append((first, visits))  # noqa: B023
            return kernel(codes, first, visits, column, *further)

        monkeypatch.setattr(swaps, "compiled_column", lambda dtype: seen)
        codes = started(np.random.default_rng(1))
        swap_towards(
            codes, wanted(), np.random.default_rng(2), sweeps=1, in_turn=in_turn, least_visits=64
        )
    n = len(started(np.random.default_rng(1)))
    again = {
        in_turn: np.bincount(
            np.concatenate([np.arange(first, first + visits) % n for first, visits in parts])
        ).max()
        for in_turn, parts in visited.items()
    }
    assert len(visited[True]) > 3 and again[True] == 1 and again[False] > 1


def test_tables_that_are_known_are_not_counted_and_are_those_of_the_records_afterwards() -> None:
    codes, other = started(np.random.default_rng(1)), started(np.random.default_rng(1))
    shapes = {t.group: t.table.shape for t in wanted()}
    counts = tables_of(codes, dict(list(shapes.items())[:2]))
    swap_towards(codes, wanted(), np.random.default_rng(2), counts=counts)
    swap_towards(other, wanted(), np.random.default_rng(2))
    assert np.array_equal(codes, other)
    assert counts.keys() == shapes.keys()
    for group, found in tables_of(codes, shapes).items():
        assert np.array_equal(counts[group], found)
    wrong = {group: counts[group][::-1] for group in [*shapes][:2]}  # twin: of other records
    swap_towards(other, wanted(), np.random.default_rng(3), counts=wrong)
    found = tables_of(other, shapes)
    assert not all(np.array_equal(wrong[group], found[group]) for group in shapes)


def test_only_the_columns_that_are_named_move() -> None:
    codes = started(np.random.default_rng(1))
    before, far = codes.copy(), distance(codes)
    swap_towards(codes, wanted(), np.random.default_rng(2), columns={0, 2})
    assert np.array_equal(codes[:, 1], before[:, 1])
    assert distance(codes) < far
    assert not np.array_equal(codes[:, 0], before[:, 0])


def test_a_round_in_blocks_never_goes_away_from_the_targets() -> None:
    """Of the module's inequality, for the kernel as it is."""
    codes = started(np.random.default_rng(1))
    layout = swaps._Layout.of(wanted(), codes)
    sweep = swaps._Sweep.of(layout, swaps.moves_of(3, ()))
    before = distance(codes)
    swaps._swap_blocks(sweep, codes, layout.gaps, None, len(codes), np.random.default_rng(5))
    assert distance(codes) < before / 2
    assert np.array_equal(layout.gaps, swaps._Layout.of(wanted(), codes).gaps)


@pytest.mark.parametrize("seed", range(5))
def test_the_kernel_keeps_count_of_gaps_and_gains(seed: int) -> None:
    """Its running differences are those of the records at the end, tied columns included."""
    codes = started(np.random.default_rng(seed))
    targets = wanted()
    layout = swaps._Layout.of(targets, codes)
    before = distance(codes)
    gained = 0
    for moved, fixed in swaps.moves_of(3, [(0, 1)]):
        pair = table(codes, (0, 1))
        order = swaps._by_columns(codes, fixed, np.random.default_rng(5))
        gain, accepted = swap_kernel.compiled("uint8")(
            codes, order, 90, len(order), 7, np.array(moved), np.array(fixed, np.int64),
            *layout.move(moved), layout.gaps, *swaps._patterns(()), 0,
        )  # fmt: skip
        assert accepted > 0 or moved != (2,)
        assert np.array_equal(table(codes, (0, 1)), pair)
        gained += gain
    assert np.array_equal(layout.gaps, swaps._Layout.of(targets, codes).gaps)
    assert before - distance(codes) == pytest.approx(2 * gained / swap_kernel.UNIT / 64)


def test_tables_of_pairs_are_sums_of_larger_ones() -> None:
    sizes = (4, 3, 5, 2)
    codes = dependent_codes(500, sizes, 3)
    groups = [(0, 1), (1, 2), (0, 3), (0, 1, 2), (2, 3), (0, 1, 3)]
    shapes = {group: tuple(sizes[c] for c in group) for group in groups}
    found = tables_of(codes, shapes)
    assert found.keys() == shapes.keys()
    for group in groups:
        (apart,) = counts_of(codes, [group], [shapes[group]])
        assert np.array_equal(found[group], apart.reshape(shapes[group]))


def four_columns(dtype: str) -> tuple[np.ndarray, list[TargetTable]]:
    """Records, and targets of groups of two to four columns."""
    sizes = (4, 3, 5, 2)
    rng = np.random.default_rng(4)
    true = dependent_codes(600, sizes, 3)
    groups = [group for k in (2, 3, 4) for group in itertools.combinations(range(4), k)]
    shapes = [tuple(sizes[c] for c in group) for group in groups]
    targets = [
        TargetTable(group, found.reshape(shape) + 0.25, weight)
        for group, shape, found, weight in zip(
            groups, shapes, counts_of(true, groups, shapes), [1.0, 0.5] * 6, strict=False
        )
    ]
    return np.stack([rng.permutation(column) for column in true.T], axis=1).astype(dtype), targets


def squared(layout: Any) -> float:
    """The weighted squared distance, in squared records."""
    weights = np.repeat([t.weight for t in layout.targets], [t.table.size for t in layout.targets])
    return float((weights * (layout.gaps / swap_kernel.UNIT) ** 2).sum())


@pytest.mark.parametrize(
    "dtype",
    ["uint8", pytest.param("uint16", marks=pytest.mark.nightly)],  # compiled for it alone
)
def test_the_kernel_of_single_columns_keeps_count_and_finds_more(dtype: str) -> None:
    """Twin: as many visits of records that meet by chance."""
    codes, targets = four_columns(dtype)
    layout = swaps._Layout.of(targets, codes)
    before = squared(layout)
    by_chance, gaps, order = codes.copy(), layout.gaps.copy(), np.arange(600, dtype=np.int32)
    patterns = swaps._patterns(())
    gained = 0
    for column in ((0,), (1,), (2,), (3,)):
        one_way = np.bincount(codes[:, column[0]])
        gain, accepted = compiled_column(dtype)(
            codes, 500, 600, *column, *layout.move_of_column(column), layout.gaps, *patterns
        )
        assert accepted > 0 and np.array_equal(np.bincount(codes[:, column[0]]), one_way)
        gained += gain
        swap_kernel.compiled(dtype)(
            by_chance, order, 500, 600, 37, np.array(column), np.array([], np.int64),
            *layout.move(column), gaps, *patterns, 0,
        )  # fmt: skip
    anew = swaps._Layout.of(targets, codes)
    assert np.array_equal(layout.gaps, anew.gaps)
    assert before - squared(anew) == pytest.approx(2 * gained / swap_kernel.UNIT / 64)
    assert squared(anew) < squared(swaps._Layout.of(targets, by_chance)) / 4


def test_columns_of_many_codes_meet_by_chance() -> None:
    codes, targets = four_columns("uint8")
    layout = swaps._Layout.of(targets, codes)
    moves = swaps.moves_of(4, ())
    assert all(matched for *_, matched in swaps._Sweep.of(layout, moves).moves)
    sweep = swaps._Sweep.of(layout, moves, most_matched=4)
    assert [matched for *_, matched in sweep.moves] == [True, True, False, True]
    before = squared(layout)
    sweep(codes, layout.gaps, None, len(codes), np.random.default_rng(1))
    assert np.array_equal(layout.gaps, swaps._Layout.of(targets, codes).gaps)
    assert squared(layout) < before / 2


def test_no_swap_makes_an_impossible_record() -> None:
    codes = started(np.random.default_rng(1))
    inside = np.arange(5) < 2, np.arange(4) == 1
    box = Box((0, 2), (inside[1], inside[0]))
    codes = codes[~box.contains(codes)]
    blind = codes.copy()
    swap_towards(codes, wanted(), np.random.default_rng(2), boxes=[box])
    assert not box.contains(codes).any()
    swap_towards(blind, wanted(), np.random.default_rng(2))
    assert box.contains(blind).any()  # twin: it would have


@pytest.mark.parametrize("known", [(), ((0, 2),)])
def test_a_record_that_no_single_value_makes_possible_becomes_as_one_that_is(
    known: tuple[tuple[int, ...], ...],
) -> None:
    """Of the first two columns only 0 with 1 is possible; an exact total keeps the first."""
    one, other = np.array([True, False]), np.array([False, True])
    boxes = [Box((0, 1), each) for each in ((one, one), (other, other), (other, one))]
    codes = np.array([[0, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=np.uint8)
    shares = [np.array([0.4, 0.6]), np.array([0.6, 0.4]), np.array([0.5, 0.5])]
    if known:
        with pytest.raises(ConfigError, match="leave no possible records"):
            synthesis.make_possible(codes, boxes, shares, known, np.random.default_rng(1))
        return
    synthesis.make_possible(codes, boxes, shares, known, np.random.default_rng(1))
    assert codes.tolist() == [[0, 1, 0], [0, 1, 1], [0, 1, 1]]


def test_where_nothing_can_be_cached_it_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import numba

    whole, asked = numba.njit, []

    def njit(*arguments, cache=False, **options):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return whole(*arguments, **options)

    monkeypatch.setattr(numba, "njit", njit)
    target_tables._compiled.cache_clear()  # the kernel that compiles fastest
    try:
        codes = np.random.default_rng(1).integers(0, 3, (400, 2)).astype(np.uint16)
        (counts,) = target_tables.counts_of(codes, [(0, 1)], [(3, 3)])
        assert np.array_equal(
            counts.ravel(), np.bincount(3 * codes[:, 0] + codes[:, 1], minlength=9)
        )
        assert asked == [True, False]
    finally:
        target_tables._compiled.cache_clear()


def test_the_kernel_fits_as_numpy_does() -> None:
    """Three columns are fitted by machine code, in the same order."""
    rng = np.random.default_rng(5)
    start = rng.random((3, 4, 5)) * (rng.random((3, 4, 5)) < 0.8)
    true = start * rng.random((3, 4, 1)) * rng.random((1, 4, 5)) * rng.random((3, 1, 5))
    margins = {(0, 1): true.sum(2), (0, 2): true.sum(1), (1, 2): true.sum(0)}
    for rounds in (1, 3, 30):
        lifted = {tuple(a + 1 for a in axes): sums[None] for axes, sums in margins.items()}
        lifted = {(0, *axes): sums for axes, sums in lifted.items()}
        plain = fit_margins(start[None], lifted, rounds)[0]
        assert np.allclose(fit_margins(start, margins, rounds), plain, rtol=1e-12, atol=0)
    assert np.allclose(plain.sum(axis=2), margins[0, 1], rtol=1e-2)
