"""Records that have given tables: margins, start, swaps, the compiled kernel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from coded import dependent_codes
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.marginals.synthesis import one_way_counts
from mechanisms.postprocessing.rounding import round_to_total
from mechanisms.records import swap_kernel
from mechanisms.records.fitting import fit_margins, fit_pair, fit_triple
from mechanisms.records.impossible import Box
from mechanisms.records.start_records import integer_table, start_records, tree
from mechanisms.records.swaps import counts_of, swap_towards
from mechanisms.records.target_table import TargetTable

SIZES = (4, 3, 5)
TRUE = dependent_codes(2000, SIZES, 9)


def table(codes: np.ndarray, group: tuple[int, ...]) -> np.ndarray:
    shape = tuple(SIZES[c] for c in group)
    return counts_of(codes, group, shape).reshape(shape)


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
    pairs = [chain.sum(axis=2), chain.sum(axis=1), chain.sum(axis=0)]
    assert np.allclose(fit_triple(pairs, rounds=300), chain, atol=2e-4)
    again = fit_margins(np.full(chain.shape, 1 / 48), {(0, 1): pairs[0]}, rounds=3)
    assert np.allclose(again.sum(axis=2), pairs[0])


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


def test_long_files_are_swapped_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As near to the targets, from fewer visits to the records; one-ways stay."""
    from mechanisms.records import swaps

    found, visits = {}, {}
    for least in (swaps.LEAST_VISITS, 128):
        monkeypatch.setattr(swaps, "LEAST_VISITS", least)
        codes = started(np.random.default_rng(1))
        rounds = swap_towards(codes, wanted(), np.random.default_rng(2))
        found[least] = distance(codes)
        visits[least] = rounds * min(len(codes), max(least, len(codes) // swaps.PARTS))
        for column in range(3):
            assert np.array_equal(table(codes, (column,)), table(TRUE, (column,)))
    whole, parts = found
    assert visits[parts] < visits[whole]
    assert found[parts] < distance(started(np.random.default_rng(1))) / 20


def test_the_kernel_keeps_count_of_gaps_and_gains() -> None:
    """Its running differences are those of the records at the end, tied columns included."""
    from mechanisms.records import swaps

    codes = started(np.random.default_rng(1))
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
    swap_kernel.compiled.cache_clear()
    try:
        codes = started(np.random.default_rng(1)).astype(np.uint16)
        before = distance(codes)
        swap_towards(codes, wanted(), np.random.default_rng(2), sweeps=3)
        assert distance(codes) < before / 3 and asked == [True, False]
    finally:
        swap_kernel.compiled.cache_clear()
