"""The mechanism marginals: its parameters, its records, its estimates, what it refuses."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from coded import WithoutNoise, dependent_codes, domain_of, in_memory
from threadpoolctl import threadpool_limits

from statpress.mechanisms.domain.domain import ZeroPattern
from statpress.mechanisms.errors import (
    ConfigError,
    InfeasibleBudgetError,
    NotMeasuredError,
    RecordsError,
)
from statpress.mechanisms.marginals.marginals import ColumnGroup, Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.residuals import query
from statpress.mechanisms.marginals.synthesis import impossible_records
from statpress.mechanisms.marginals.target_tables import boxes_of
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.parallel import using_threads
from statpress.tasks.release.entropy import SeededRandomness

SIZES = (4, 3, 5, 2)
N = 3000
CODES = dependent_codes(N, SIZES, 11)


def seeded(seed: int = 1) -> SeededRandomness:
    return SeededRandomness(np.random.PCG64(seed))


def target(domain=None, **changes) -> Target:
    fields = {"epsilon": 1.0, "delta": 1e-6, "n_records": N, "n_cells": 120}
    return Target(**(fields | {"domain": domain or domain_of(SIZES)} | changes))


def made(domain=None, knobs=None, **changes) -> Marginals:
    return Marginals.calibrate(knobs or MarginalsKnobs(), target(domain, **changes))


def table(codes: np.ndarray, sizes: tuple[int, ...], group: tuple[int, ...]) -> np.ndarray:
    (found,) = in_memory(domain_of(sizes), codes).tables([group])
    return found


def written(out) -> np.ndarray:
    return np.stack(out.codes, axis=1)


def test_the_whole_is_charged_as_one_and_meets_its_budget() -> None:
    for c in (1, 3):
        mechanism = made(unit_records=c)
        loss = mechanism.loss(n_records=N, n_cells=120, unit_records=c)
        assert target(unit_records=c).allows(loss)
        assert loss.mu_squared == mechanism.mu**2
        assert loss.delta(0.99).lower > 1e-6  # twin: it would pass whatever was asked
    one = made(unit_records=3).loss(n_records=N, n_cells=120, unit_records=1)
    assert one.mu_squared == mechanism.mu**2 / 9


def test_the_description_gives_everything_back() -> None:
    knobs = MarginalsKnobs(pairs=(ColumnGroup(columns=("c2", "c0")),), records=17)
    beside = MarginalsKnobs(
        groups=(ColumnGroup(columns=("c1", "c0", "c3"), weight=2.0),),
        target="c2",
        triples="yes",
        triple_share=0.2,
    )
    chosen = made(knobs=beside)
    assert ("target" in chosen.describe(), chosen.describe()["groups"]) == (
        True,
        "all pairs 0+1+3:2.0",
    )
    for mechanism in (made(), made(knobs=knobs), made(domain_of((3,))), chosen):
        assert Marginals.from_description(mechanism.describe()) == mechanism
        assert {type(value) for value in mechanism.describe().values()} <= {str, int}


@pytest.mark.parametrize(("screen", "triples"), [("yes", "no"), ("no", "no"), ("yes", "yes")])
@pytest.mark.parametrize("unit_records", [1, 2])
def test_no_more_is_spent_than_mu_squared(screen: str, triples: str, unit_records: int) -> None:
    from statpress.mechanisms.marginals.residuals import GRID
    from statpress.mechanisms.sampling.randomness import equivalent_variance

    knobs = MarginalsKnobs(screen=screen, triples=triples)
    mechanism = made(knobs=knobs, unit_records=unit_records)
    out = mechanism.release(in_memory(domain_of(SIZES), CODES), seeded())
    unit = Fraction(unit_records * GRID) ** 2
    spent = sum(2 * unit / equivalent_variance(t.scale) for t in (*out.one_way, *out.tables))
    if out.scores is not None:
        spent += 4 * len(out.scores.pairs) * unit / equivalent_variance(out.scores.scale)
    assert (out.scores is None) == (screen == "no")
    assert any(len(table.group) == 3 for table in out.tables) == (triples == "yes")
    assert mechanism.mu**2 * Fraction(999, 1000) < spent <= mechanism.mu**2


def test_memory_is_foreseen_for_the_published_records_whatever_the_source_has() -> None:
    def foreseen(records: int | None, n: int) -> int:
        knobs = MarginalsKnobs() if records is None else MarginalsKnobs(records=records)
        return made(knobs=knobs, n_records=n).expected_error(n_records=n, n_cells=120).memory

    assert foreseen(10**6, 10**8) == foreseen(10**6, 10**7) == foreseen(None, 10**6)
    assert foreseen(10**6, 10**4) == foreseen(10**6, 10**6) < foreseen(None, 10**8)


def test_records_without_noise_have_the_tables_of_the_data() -> None:
    out = made().postprocess(made().release(in_memory(domain_of(SIZES), CODES), WithoutNoise()))
    records = written(out)
    assert records.shape == CODES.shape and records.dtype == np.uint8
    for column in range(4):
        exact = table(CODES, SIZES, (column,))
        assert np.abs(table(records, SIZES, (column,)) - exact).max() < 25  # smoothed
    for pair in itertools.combinations(range(4), 2):
        gap = np.abs(table(records, SIZES, pair) - table(CODES, SIZES, pair)).sum() / 2 / N
        assert gap < 0.012
        assert np.abs(out.residuals.table(pair) - table(CODES, SIZES, pair)).max() < 1e-6


def test_records_with_noise_are_better_than_independent_columns() -> None:
    mechanism = made()
    out = mechanism.postprocess(mechanism.release(in_memory(domain_of(SIZES), CODES), seeded()))
    records = written(out)
    ours, independent = [], []
    for pair in itertools.combinations(range(4), 2):
        exact = table(CODES, SIZES, pair) / N
        ours.append(np.abs(table(records, SIZES, pair) / N - exact).sum())
        product = np.multiply.outer(exact.sum(axis=1), exact.sum(axis=0))
        independent.append(np.abs(product - exact).sum())
    assert np.mean(ours) < 0.6 * np.mean(independent)


def test_post_processing_is_a_function_of_the_release() -> None:
    mechanism = made()
    release = mechanism.release(in_memory(domain_of(SIZES), CODES), seeded())
    one, two = (written(mechanism.postprocess(release)) for _ in range(2))
    assert np.array_equal(one, two)
    other = mechanism.release(in_memory(domain_of(SIZES), CODES), seeded(2))
    assert not np.array_equal(one, written(mechanism.postprocess(other)))


def test_one_thread_and_two_give_the_same_records() -> None:
    sizes = (30, 25, 3)
    coded = in_memory(domain_of(sizes), dependent_codes(2000, sizes, 1))
    mechanism = made(domain_of(sizes), epsilon=5.0, n_records=2000)
    found = []
    for number in (1, 2):  # of linear algebra, and of our own
        with threadpool_limits(number), using_threads(number):
            out = mechanism.postprocess(mechanism.release(coded, seeded(4)))
            found.append(written(out))
    assert np.array_equal(*found)


def test_absent_records_are_estimated_and_left_out() -> None:
    domain = domain_of(SIZES, absent=True)
    coded = in_memory(domain, CODES[:2000], N)
    mechanism = made(domain, unit_records=3, epsilon=3.0)
    out = mechanism.postprocess(mechanism.release(coded, seeded()))
    assert abs(len(out.codes[0]) - 2000) < 100
    whole = query(out.residuals, (1,), np.ones(3))
    assert 0 < whole.standard_error < 60
    assert whole.lower - 60 < 2000 < whole.upper + 60
    exact = made(domain_of(SIZES)).release(in_memory(domain_of(SIZES), CODES), seeded())
    assert query(exact.residuals(), (1,), np.ones(3)).standard_error < 1e-9


def test_the_number_of_records_can_be_chosen() -> None:
    mechanism = made(knobs=MarginalsKnobs(records=500))
    out = mechanism.postprocess(mechanism.release(in_memory(domain_of(SIZES), CODES), seeded()))
    assert {len(codes) for codes in out.codes} == {500}


def test_a_single_column_gets_the_whole_budget() -> None:
    domain = domain_of((6,))
    codes = dependent_codes(N, (6,), 4)
    mechanism = made(domain)
    release = mechanism.release(in_memory(domain, codes), seeded())
    assert not release.tables and release.scores is None
    assert release.one_way[0].variance == pytest.approx(2 / float(mechanism.mu) ** 2, rel=1e-6)
    records = mechanism.postprocess(release).codes[0]
    assert np.abs(np.bincount(records, minlength=6) - np.bincount(codes[:, 0])).max() < 60


def test_groups_of_three_are_measured_and_met() -> None:
    """The third column is the parity of the others, which no pair shows."""
    rng = np.random.default_rng(5)
    sizes = (2, 2, 2)
    codes = rng.integers(0, 2, (N, 3)).astype(np.uint8)
    codes[:, 2] = codes[:, 0] ^ codes[:, 1]
    domain = domain_of(sizes)
    knobs = MarginalsKnobs(pairs=(ColumnGroup(columns=("c0", "c1", "c2")),))
    mechanism = made(domain, knobs, n_cells=8)
    release = mechanism.release(in_memory(domain, codes), seeded())
    assert [t.group for t in release.tables] == [(0, 1, 2)]
    records = written(mechanism.postprocess(release))
    exact = table(codes, sizes, (0, 1, 2))
    assert np.abs(table(records, sizes, (0, 1, 2)) - exact).sum() / 2 / N < 0.05
    blind_knobs = MarginalsKnobs(triples="no")  # twin: pairs alone cannot know it
    pairs = made(domain, blind_knobs, n_cells=8)
    blind = written(pairs.postprocess(pairs.release(in_memory(domain, codes), seeded())))
    assert np.abs(table(blind, sizes, (0, 1, 2)) - exact).sum() / 2 / N > 0.3


def test_triples_are_chosen_by_what_pairs_suggest() -> None:
    """Of a mixture of two classes, columns that the classes tell apart interact."""
    rng = np.random.default_rng(8)
    sizes, n = (3,) * 7, 40_000
    inside = rng.random(n) < 0.4
    shares = rng.dirichlet(np.full(3, 0.5), (7, 2))
    shares[4:, 1] = shares[4:, 0]  # the last three are independent of everything
    draws = rng.random((n, 7))
    ends = shares.cumsum(axis=2)
    codes = np.stack(
        [(draws[:, [c]] > ends[c, inside.astype(int), :2]).sum(axis=1) for c in range(7)], axis=1
    ).astype(np.uint8)
    domain = domain_of(sizes)

    def released(**knobs):
        mechanism = made(domain, MarginalsKnobs(**knobs), n_cells=3**7, n_records=n, epsilon=3.0)
        return mechanism, mechanism.release(in_memory(domain, codes), seeded())

    mechanism, release = released()  # strong pairs: as a default
    triples = [each for each in release.tables if len(each.group) == 3]
    assert 0 < len(triples) < 35 and mechanism.widest == 3
    precision = dict.fromkeys(itertools.combinations(range(7), 3), 0.0)
    precision |= {each.group: 1 / each.variance for each in triples}
    related = [precision.pop(group) for group in itertools.combinations(range(4), 3)]
    assert np.mean(related) > 1.4 * np.mean(list(precision.values()))
    assert precision[4, 5, 6] < 0.1 * max(related)
    cells = sum(each.values.size for each in (*release.one_way, *release.tables))
    assert cells <= mechanism.rows(n_cells=0)
    mechanism, release = released(triples="no")
    assert mechanism.widest == 2 and all(len(each.group) == 2 for each in release.tables)
    assert made(domain, n_cells=3**7, n_records=200).shares.triples == 0  # weak pairs
    unscored, _ = released(screen="no")  # whose intervals hold whatever the data
    assert unscored.shares.triples == 0


def test_the_evidence_of_a_release_holds_its_triples() -> None:
    """Of a record that leaves every cell that it is in, without noise: half of mu squared."""
    other = CODES.copy()
    other[0] = (CODES[0] + 1) % np.array(SIZES)
    one, two = (in_memory(domain_of(SIZES), codes) for codes in (CODES, other))
    mechanism = made(knobs=MarginalsKnobs(screen="no", triples="yes", triple_share=0.3))
    release, evidence = mechanism.release(one, WithoutNoise()), mechanism.evidence(one, two)
    pairs = tuple(each for each in release.tables if len(each.group) == 2)
    half = float(mechanism.mu**2) / 2
    assert evidence(release) == pytest.approx(half, rel=1e-3)
    assert evidence(dataclasses.replace(release, tables=pairs)) == pytest.approx(
        0.7 * half, rel=1e-3
    )


def test_groups_beside_all_pairs_are_measured_and_those_of_a_target_better() -> None:
    beside = (ColumnGroup(columns=("c0", "c3", "c1"), weight=2.0),)
    domain = domain_of(SIZES)
    plain = made(knobs=MarginalsKnobs(groups=beside, screen="no"))
    release = plain.release(in_memory(domain, CODES), seeded())
    assert {t.group for t in release.tables} == {*itertools.combinations(range(4), 2), (0, 1, 3)}
    towards = made(knobs=MarginalsKnobs(target="c2", screen="no"))
    release = towards.release(in_memory(domain, CODES), seeded())
    noise = {
        table.group: table.variance / np.prod(table.values.shape) ** -0.5
        for table in release.tables
    }
    held = [v for group, v in noise.items() if 2 in group]
    others = [v for group, v in noise.items() if 2 not in group]
    assert max(held) < 0.2 * min(others)
    expected = towards.expected_error(n_records=N, n_cells=120).pair_total_variation
    assert (
        expected
        != made(knobs=MarginalsKnobs(screen="no"))
        .expected_error(n_records=N, n_cells=120)
        .pair_total_variation
    )


def test_what_is_said_of_pairs() -> None:
    even = np.empty(N, np.uint8)  # as independent of the second column as can be
    even[np.argsort(CODES[:, 1], kind="stable")] = np.arange(N) % 20
    codes = np.column_stack([CODES, even])
    sizes = (*SIZES, 20)
    domain = domain_of(sizes)
    knobs = MarginalsKnobs(
        pairs=(ColumnGroup(columns=("c0", "c1")), ColumnGroup(columns=("c1", "c4")))
    )
    known = {(2, 3): table(codes, sizes, (2, 3))}
    mechanism = made(domain, knobs).knowing(known, domain, N)
    out = mechanism.postprocess(mechanism.release(in_memory(domain, codes), seeded()))
    assert out.relations[0, 1] == "measured"
    assert out.relations[1, 4] == "shrunk away"
    assert out.relations[2, 3] == "known"
    assert out.relations[0, 2] == "assumed independent"
    with pytest.raises(NotMeasuredError):
        query(out.residuals, (0, 2), np.ones((4, 5)))


# Structural zeros and known totals


ZEROS = (
    ZeroPattern((("c0", ((0, 1),)), ("c2", ((3, 4),)))),
    ZeroPattern((("c1", ((0, 0),)), ("c2", ((0, 1),)), ("c3", ((1, 1),)))),
    ZeroPattern((("c1", ((2, 2),)), ("c3", ((0, 0),)))),
)


def possible_codes(domain) -> np.ndarray:
    boxes = boxes_of(domain)
    rng = np.random.default_rng(2)
    codes = np.stack([rng.integers(0, k, 20 * N) for k in SIZES], axis=1).astype(np.uint8)
    return codes[~impossible_records(codes, boxes)][:N]


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_no_impossible_record_is_written(epsilon: float) -> None:
    domain = domain_of(SIZES, ZEROS)
    codes = possible_codes(domain)
    mechanism = made(domain, epsilon=epsilon)
    out = mechanism.postprocess(mechanism.release(in_memory(domain, codes), seeded(3)))
    records = written(out)
    assert len(records) == N
    assert not impossible_records(records, boxes_of(domain)).any()
    free = domain_of(SIZES)  # twin: without the declaration there are such records
    other = made(free, epsilon=epsilon)
    blind = written(other.postprocess(other.release(in_memory(free, codes), seeded(3))))
    assert impossible_records(blind, boxes_of(domain)).any()


@pytest.mark.parametrize("zeros", [(), ZEROS])
def test_known_totals_are_met_exactly_and_cost_nothing(zeros) -> None:
    domain = domain_of(SIZES, zeros)
    codes = possible_codes(domain) if zeros else CODES
    groups = [(0, 2), (2, 3), (1,)]
    known = {group: table(codes, SIZES, group) for group in groups}
    mechanism = made(domain).knowing(known, domain, N)
    release = mechanism.release(in_memory(domain, codes), seeded())
    assert not release.one_way
    assert {(0, 2), (2, 3)}.isdisjoint(t.group for t in release.tables)
    records = written(mechanism.postprocess(release))
    for group in groups:
        assert np.array_equal(table(records, SIZES, group), known[group])
    assert not impossible_records(records, boxes_of(domain)).any()
    gap = [np.abs(table(r, SIZES, (0, 1)) - table(codes, SIZES, (0, 1))).sum() for r in (records,)]
    assert gap[0] / 2 / N < 0.05


def test_known_totals_that_cannot_be_are_refused() -> None:
    domain = domain_of(SIZES, ZEROS)
    codes = possible_codes(domain)
    mechanism = made(domain)

    def refused(known, words: str, chosen=mechanism, where=domain) -> None:
        with pytest.raises(ConfigError, match=words):
            chosen.knowing(known, where, N)

    tables = {pair: table(codes, SIZES, pair) for pair in itertools.combinations(range(4), 2)}
    refused({p: tables[p] for p in ((0, 1), (1, 2), (0, 2))}, "cycle")
    refused({(0,): table(codes, SIZES, (0,)) + 1}, "add up")
    refused({(0, 1): tables[0, 1], (0,): np.array([N - 3, 1, 1, 1])}, "differ")
    refused({(0, 1): tables[1, 2]}, "whole number")
    most = np.iinfo(np.int64).max
    refused({(0,): np.array([most, most, N + 2, 0])}, "add up")  # in 64 bits it would
    wrong = tables[0, 2].copy()
    wrong[0, 4], wrong[3, 4] = 1, wrong[3, 4] - 1
    refused({(0, 2): wrong}, "impossible")
    refused({(0,): np.array([N, 0, 0, 0]), (2,): np.array([0, 0, 0, N, 0])}, "no place")
    refused({(0, 1, 2): np.zeros((4, 3, 5), np.int64)}, "one column")
    absent = domain_of(SIZES, absent=True)
    refused({(0,): table(codes, SIZES, (0,))}, "private", where=absent)
    few = made(domain, MarginalsKnobs(records=10))
    refused({(0,): table(codes, SIZES, (0,))}, "as many", chosen=few)


# What is refused before anything is charged


def test_what_cannot_be_served_is_refused() -> None:
    with pytest.raises(ConfigError, match="only one cell"):
        made(domain_of((3, 1)))
    with pytest.raises(ConfigError, match="cells"):
        made(domain_of((40_000, 40_000)))
    with pytest.raises(ConfigError, match="no column"):
        made(knobs=MarginalsKnobs(pairs=(ColumnGroup(columns=("c0", "sex")),)))
    with pytest.raises(ConfigError, match="columns"):
        Marginals.calibrate(
            MarginalsKnobs(),
            target(domain=None, n_cells=3).__class__(
                epsilon=1.0, delta=1e-6, n_records=5, n_cells=3
            ),
        )
    with pytest.raises(InfeasibleBudgetError):
        made(delta=0.0)
    with pytest.raises(RecordsError):
        made(n_records=2**41)
    with pytest.raises(ConfigError):
        MarginalsKnobs(pairs=())
    with pytest.raises(ConfigError):
        ColumnGroup(columns=("a", "a"))
    with pytest.raises(ConfigError):
        ColumnGroup(columns=("a", "b"), weight=0.0)
    for weight in (1e-300, 1e300):
        with pytest.raises(ConfigError, match="weight"):
            ColumnGroup(columns=("a", "b"), weight=weight)
    with pytest.raises(ConfigError, match="fitted together"):
        made(domain_of((5000, 3)))
    pairs = MarginalsKnobs(pairs=(ColumnGroup(columns=("c0", "c1")),))
    with pytest.raises(ConfigError, match="cells"):  # of a pair that is not measured
        made(domain_of((4000, 2, 4000)), pairs)
    with pytest.raises(ConfigError):
        MarginalsKnobs(one_way_share=0.9, screen_share=0.1)
    with pytest.raises(ConfigError):
        MarginalsKnobs(records=0)
    some = (ColumnGroup(columns=("c0", "c1", "c2")),)
    with pytest.raises(ConfigError, match="beside all pairs"):
        MarginalsKnobs(pairs=some, groups=some)
    with pytest.raises(ConfigError, match="once"):
        MarginalsKnobs(groups=some * 2)
    with pytest.raises(ConfigError, match="no column"):
        made(knobs=MarginalsKnobs(target="sex"))
    with pytest.raises(ConfigError, match="No triple"):
        made(domain_of((3, 4)), MarginalsKnobs(triples="yes"))
    whole = MarginalsKnobs(groups=(ColumnGroup(columns=("c0", "c1", "c2")),))
    every = made(domain_of((3, 4, 5)), whole, n_records=10**6, epsilon=3.0, n_cells=60)
    assert every.shares.triples == 0  # the only triple is measured anyway
    with pytest.raises(ConfigError, match="measured anyway"):
        made(domain_of((3, 4, 5)), dataclasses.replace(whole, triples="yes"), n_cells=60)
    with pytest.raises(ConfigError, match="no share"):
        MarginalsKnobs(triples="no", triple_share=0.1)
    with pytest.raises(ConfigError, match="leave nothing"):
        made(knobs=MarginalsKnobs(triple_share=0.95, one_way_share=0.04, screen_share=0.02))


EXTREME = (
    MarginalsKnobs(one_way_share=1e-300),
    MarginalsKnobs(screen_share=1e-300),
    MarginalsKnobs(screen_share=5e-324, screen="yes"),
    MarginalsKnobs(one_way_share=1e-9),
    MarginalsKnobs(triple_share=1e-300),
    MarginalsKnobs(triple_share=1e-12, triples="yes"),
    MarginalsKnobs(one_way_share=1 - 2**-53, screen="no"),
    MarginalsKnobs(
        screen="no",
        pairs=(
            ColumnGroup(columns=("c0", "c1"), weight=1e-6),
            ColumnGroup(columns=("c2", "c3"), weight=1e6),
        ),
    ),
)


@pytest.mark.parametrize("knobs", EXTREME)
@pytest.mark.parametrize("epsilon", [1e-4, 1.0])
def test_what_calibrates_never_fails_once_it_is_charged(knobs, epsilon: float) -> None:
    try:
        mechanism = made(knobs=knobs, epsilon=epsilon)
    except InfeasibleBudgetError:
        return
    mechanism.postprocess(mechanism.release(in_memory(domain_of(SIZES), CODES), seeded()))


def test_some_extreme_shares_are_served_and_others_refused() -> None:
    made(knobs=EXTREME[-1])
    with pytest.raises(InfeasibleBudgetError):
        made(knobs=EXTREME[0])


def test_a_column_of_many_cells_alone_needs_no_matrix_of_them() -> None:
    mechanism = made(domain_of((10**6,)), n_cells=10**6)
    codes = np.arange(N, dtype=np.uint32)[:, None]
    out = mechanism.postprocess(
        mechanism.release(in_memory(domain_of((10**6,)), codes), WithoutNoise())
    )
    assert sorted(out.codes[0].tolist()) == list(range(N))


def test_expected_errors_grow_with_width_and_fall_with_budget() -> None:
    found = {}
    for width in (2, 5, 10, 20, 30):
        domain = domain_of([6] * 2)
        sizes = (6,) * width
        groups = tuple((pair, 1.0) for pair in itertools.combinations(range(width), 2))
        for epsilon in (0.1, 1.0, 5.0):
            base = made(domain, epsilon=epsilon)
            wide = Marginals(base.mu, 1, sizes, groups, base.shares)
            error = wide.expected_error(n_records=N, n_cells=1)
            assert 0 < error.one_way_total_variation < error.pair_total_variation <= 1
            found[width, epsilon] = error.pair_total_variation
    for (one, e), (two, f) in itertools.product(found, repeat=2):
        if one < two and e == f:
            assert found[one, e] < found[two, e]
        if one == two and e < f:
            assert found[one, e] > found[one, f]
