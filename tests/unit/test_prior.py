"""An earlier release as a prior: sensitivity of scores, where it is used and where it is not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from coded import CodesInMemory, domain_of, in_memory

from statpress.mechanisms.domain.domain import Adjacency
from statpress.mechanisms.errors import NotMeasuredError, QueryError
from statpress.mechanisms.marginals import denoising
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.copies import Posterior
from statpress.mechanisms.marginals.denoising import Model
from statpress.mechanisms.marginals.linear_moments import ONE, Interval
from statpress.mechanisms.marginals.marginals import Marginals, MarginalsKnobs
from statpress.mechanisms.marginals.measurement import references
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.prior import Prior
from statpress.mechanisms.marginals.residuals import NoisyMarginals, centred
from statpress.mechanisms.marginals.synthesis import Beginning
from statpress.mechanisms.marginals.with_prior import PriorAnalyses
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness

SIZES, N = (5, 4, 4, 3, 2), 3000
PAIRS = list(itertools.combinations(range(len(SIZES)), 2))


def prior_of(tables: dict[tuple[int, int], np.ndarray], sizes: tuple[int, ...]) -> Prior:
    uniform = tuple(np.full(k, 1 / k) for k in sizes)
    return Prior(seal="", one_way=uniform, variances=(1e-4,) * len(sizes), pairs=tables)


@pytest.mark.parametrize("unit_records", [1, 2])
def test_a_score_moves_by_the_records_of_a_unit_whatever_the_prior(unit_records: int) -> None:
    """By all neighbours; the twin compares with a table of this data, which moves with it."""
    cells = list(itertools.product(range(2), range(3)))
    others = [(0, 0), (0, 0), (1, 2), (1, 1)]
    margins = [np.array([0.5, 0.5]), np.array([0.3, 0.3, 0.4])]
    earlier = prior_of({(0, 1): np.array([[0.3, 0.1, 0.1], [0.1, 0.1, 0.3]])}, (2, 3))
    fixed = references([(0, 1)], 6.0, margins, earlier)[0, 1]
    product = references([(0, 1)], 6.0, margins)[0, 1]
    assert not np.array_equal(fixed, product)

    def score(unit: Any, reference: np.ndarray | None) -> int:
        codes = np.array([*others, *unit], np.uint8)
        (table,) = in_memory(domain_of((2, 3)), codes).tables([(0, 1)])
        return int(np.abs(table - (table[::-1] if reference is None else reference)).sum())

    units = list(itertools.combinations_with_replacement(cells, unit_records))
    by_prior, by_this_data = (
        [score(unit, reference) for unit in units] for reference in (fixed, None)
    )
    assert max(by_prior) - min(by_prior) == 2 * unit_records
    assert max(by_this_data) - min(by_this_data) > 2 * unit_records


def population(seed: int, drift: float) -> np.ndarray:
    """Codes uint8[N, d] of a year: four classes, whose columns drift."""
    rng, sampling = np.random.default_rng(1), np.random.default_rng(seed)
    classes = sampling.integers(0, 4, N)
    codes = np.empty((N, len(SIZES)), np.uint8)
    for j, k in enumerate(SIZES):
        shares = rng.dirichlet(np.full(k, 0.4), 4)
        shares = (1 - drift) * shares + drift * sampling.dirichlet(np.ones(k), 4)
        ends = shares.cumsum(axis=1)
        codes[:, j] = np.minimum((sampling.random(N)[:, None] > ends[classes]).sum(axis=1), k - 1)
    return codes


def target_of(epsilon: float) -> Target:
    domain = domain_of(SIZES)
    return Target(epsilon=epsilon, delta=1e-6, n_records=N, n_cells=2, domain=domain)


def mechanism(epsilon: float, **knobs: Any) -> Marginals:
    return Marginals.calibrate(MarginalsKnobs(**knobs), target_of(epsilon))


def released(codes: np.ndarray, made: Marginals, seed: int) -> NoisyMarginals:
    private = CodesInMemory(domain_of(SIZES), N, tuple(np.ascontiguousarray(codes.T)))
    return made.release(private, SeededRandomness(np.random.PCG64(seed)))


def error(model: Model, codes: np.ndarray) -> float:
    """Mean total variation of all pairs."""
    errors = [0.5 * np.abs(model.pairs[pair] - shares_of(codes, pair)).sum() for pair in PAIRS]
    return float(np.mean(errors))


def turned(prior: Prior) -> Iterator[tuple[str, Prior]]:
    """Priors that have nothing to do with the data."""
    rng = np.random.default_rng(3)
    orders = [rng.permutation(k) for k in SIZES]
    yield (
        "reversed",
        replace(
            prior,
            one_way=tuple(shares[::-1] for shares in prior.one_way),
            pairs={pair: table[::-1, ::-1] for pair, table in prior.pairs.items()},
        ),
    )
    yield (
        "permuted",
        replace(
            prior,
            one_way=tuple(s[order] for s, order in zip(prior.one_way, orders, strict=True)),
            pairs={(a, b): t[np.ix_(orders[a], orders[b])] for (a, b), t in prior.pairs.items()},
        ),
    )
    yield (
        "fabricated",
        replace(
            prior,
            one_way=tuple(rng.dirichlet(np.ones(k)) for k in SIZES),
            pairs={
                p: rng.dirichlet(np.ones(t.size)).reshape(t.shape) for p, t in prior.pairs.items()
            },
        ),
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("screen", "seeds"),
    [
        ("no", 6),
        pytest.param("yes", 48, marks=pytest.mark.nightly),
        pytest.param("no", 12, marks=pytest.mark.nightly),
    ],
)
def test_a_prior_helps_and_a_wrong_one_costs_little(screen: str, seeds: int) -> None:
    made = mechanism(0.3, screen=screen)
    errors: dict[str, list[float]] = {}
    for seed in range(seeds):
        then, now = population(100 + seed, 0.05), population(200 + seed, 0.05)
        last = released(then, made, seed)
        prior = Model.of(last).as_prior(last, "")
        for name, each in [("alone", None), ("prior", prior), *turned(prior)]:
            release = released(now, replace(made, prior=each), 50 + seed)
            errors.setdefault(name, []).append(error(Model.of(release), now))
    means = {name: float(np.mean(each)) for name, each in errors.items()}
    assert means["prior"] < 0.95 * means["alone"]
    for name in ("reversed", "permuted", "fabricated"):
        assert means[name] <= 1.03 * means["alone"], name


def test_neither_the_loss_nor_an_estimate_depends_on_it() -> None:
    codes = population(7, 0.0)
    made = mechanism(1.0, screen="no")
    alone = released(codes, made, 1)
    prior = Model.of(alone).as_prior(alone, "of the bundle")
    after = replace(made, prior=prior)
    assert after.loss(n_records=N, n_cells=2) == made.loss(n_records=N, n_cells=2)
    assert after.describe() == made.describe() | {"prior": "of the bundle"}
    with_it = released(codes, after, 1)
    assert with_it.prior is not None
    for one, two in zip(
        (*alone.one_way, *alone.tables), (*with_it.one_way, *with_it.tables), strict=True
    ):
        assert one.scale == two.scale
        assert np.array_equal(one.values, two.values)
    residuals = after.postprocess(with_it).residuals
    for group, values in alone.residuals().values.items():
        assert np.array_equal(values, residuals.values[group])
    plain, unused = Model.of(alone), Model.of(with_it, carried=False)
    draws = [
        Posterior.of(release, model).draw(np.random.default_rng(2)).pairs
        for release, model in ((alone, plain), (with_it, unused))
    ]
    assert all(np.array_equal(draws[0][pair], draws[1][pair]) for pair in PAIRS)
    used = Model.of(with_it)
    assert any(not np.allclose(plain.pairs[pair], used.pairs[pair]) for pair in PAIRS)


@pytest.mark.nightly
def test_copies_know_nothing_of_it() -> None:
    """Two priors leave the same copies of one release; a twin begins with the single file."""
    made = mechanism(1.0, screen="no", copies=2)
    earlier = released(population(1, 0.1), made, 1)
    right = Model.of(earlier).as_prior(earlier, "a" * 64)
    wrong = dict(turned(right))["reversed"]
    private = population(2, 0.1)
    found = [
        made.postprocess(released(private, replace(made, prior=prior), 2))
        for prior in (right, wrong)
    ]
    single, copies = zip(*((each.copies.codes, each.copies.sets) for each in found), strict=True)
    assert not np.array_equal(*single)
    assert all(np.array_equal(one, other) for one, other in zip(*copies, strict=True))

    twins = []
    for each in found:
        released_then, codes = each.copies.released, each.copies.codes
        posterior = Posterior.of(released_then, Model.of(released_then, carried=False))
        beginning = Beginning.of(codes, posterior.model, {}, posterior.clear)
        twins.append(each.copies._drawn(posterior, beginning, np.random.default_rng(1)))
    assert not np.array_equal(*twins)


def test_scores_with_a_prior_spend_no_more() -> None:
    """The scale of the scores, and what the filter lets later steps spend, are as without it."""
    codes = population(8, 0.0)
    made = mechanism(1.0)
    alone = released(codes, made, 1)
    prior = Model.of(alone).as_prior(alone, "")
    with_it = released(codes, replace(made, prior=prior), 1)
    assert alone.scores is not None
    assert with_it.scores is not None
    assert alone.scores.scale == with_it.scores.scale
    assert not np.array_equal(alone.scores.values, with_it.scores.values)
    spent = sum(
        Fraction(2) * (Fraction(2**20) / table.scale) ** 2
        for table in (*with_it.one_way, *with_it.tables)
    )
    spent += 4 * len(PAIRS) * (Fraction(2**20) / with_it.scores.scale) ** 2
    assert spent < made.mu**2 * (1 + Fraction(1, 10**6))


def shares_of(codes: np.ndarray, group: tuple[int, ...]) -> np.ndarray:
    table = np.zeros([SIZES[column] for column in group])
    np.add.at(table, tuple(codes[:, column] for column in group), 1 / len(codes))
    return table


@pytest.mark.parametrize(("strong", "carried"), [(denoising._STRONG, True), (np.inf, False)])
def test_a_score_speaks_for_an_unmeasured_pair_where_the_measured_ones_do_not(
    strong: float, carried: bool
) -> None:
    """All that the prior says is wrong but of one pair, which the twin loses."""
    then, now, right = population(103, 0.05), population(203, 0.05), (3, 4)
    rng = np.random.default_rng(3)
    tables = {
        pair: rng.dirichlet(np.full(SIZES[pair[0]] * SIZES[pair[1]], 0.3)).reshape(
            SIZES[pair[0]], SIZES[pair[1]]
        )
        for pair in PAIRS
    } | {right: shares_of(then, right)}
    columns = tuple(shares_of(then, (column,)) for column in range(len(SIZES)))
    prior = Prior(seal="", one_way=columns, variances=(1e-6,) * len(SIZES), pairs=tables)
    release = released(now, replace(mechanism(0.3, screen="yes"), prior=prior), 53)
    assert right not in release.residuals().values
    model = Model.of(release, strong=strong)
    assert (right in model.carried) is carried
    apart = 0.5 * np.abs(model.pairs[right] - shares_of(now, right)).sum()
    assert bool(apart < 0.03) is carried


def test_a_score_says_which_of_two_tables_a_pair_is_near() -> None:
    near = denoising.Score(100.0, 200.0, 150.0)
    far = replace(near, distance=2000.0)
    assert near.gain(far) > 3  # and not all of the 2,000 records that lie between the two
    assert replace(near, distance=1990.0).gain(replace(far, distance=2800.0)) < -1
    assert abs(replace(near, sigma=1e5).gain(replace(far, sigma=1e5))) < 0.01
    assert near.gain(near) == pytest.approx(0.0, abs=1e-9)  # both are one table


def test_columns_are_taken_in_any_order() -> None:
    rng = np.random.default_rng(0)
    pairs = {(a, b): rng.random((SIZES[a], SIZES[b])) for a, b in PAIRS}
    prior = prior_of(pairs, SIZES)
    part = prior.of_columns([3, 0, 4])
    assert [len(shares) for shares in part.one_way] == [3, 5, 2]
    assert np.array_equal(part.pairs[0, 1], pairs[0, 3].T)
    assert np.array_equal(part.pairs[1, 2], pairs[0, 4])
    assert part.cells == 3 + 5 + 2 + 15 + 6 + 10


def test_a_raked_table_has_the_margins_and_the_odds() -> None:
    earlier = np.array([[0.4, 0.1], [0.1, 0.4]])
    prior = prior_of({(0, 1): earlier}, (2, 2))
    rows, columns = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    table = prior.table((0, 1), rows, columns)
    np.testing.assert_allclose(table.sum(axis=1), rows, atol=1e-6)
    np.testing.assert_allclose(table.sum(axis=0), columns, atol=1e-6)
    assert table[0, 0] * table[1, 1] > 4 * table[0, 1] * table[1, 0]


def test_pairs_of_a_column_that_changed_much_are_dropped() -> None:
    pairs = {(0, 1): np.full((2, 2), 0.25), (1, 2): np.full((2, 2), 0.25)}
    prior = prior_of(pairs, (2, 2, 2))
    noisy = {0: np.array([0.9, 0.1]), 1: np.array([0.52, 0.48]), 2: np.array([0.49, 0.51])}
    kept = prior.borne_out({column: (shares, 1e-5) for column, shares in noisy.items()}, n=1000)
    assert list(kept.pairs) == [(1, 2)]
    hidden = prior.borne_out({column: (shares, 1.0) for column, shares in noisy.items()}, n=1000)
    assert list(hidden.pairs) == [(0, 1), (1, 2)]


def test_shares_are_drawn_to_the_earlier_ones_as_far_as_they_agree() -> None:
    prior = replace(prior_of({}, (4,)), one_way=(np.array([0.4, 0.3, 0.2, 0.1]),))
    near, far = np.array([0.44, 0.26, 0.22, 0.08]), np.array([0.1, 0.2, 0.3, 0.4])
    for noisy, low, high in ((near, 0.0, 0.5), (far, 0.8, 1.0)):
        logs, means, left = prior.shares(0, noisy, 1e-3, n=10**5)
        weights = np.exp(logs - logs.max())
        mean = weights @ means / weights.sum()
        np.testing.assert_allclose(means.sum(axis=1), 1.0)
        kept = np.abs(mean - prior.one_way[0]).sum() / np.abs(noisy - prior.one_way[0]).sum()
        assert low <= kept <= high
        assert (left < 1e-3).all()


@pytest.mark.parametrize(("number", "least", "most"), [(2000, 0.94, 1.0), (10**12, 0.0, 0.92)])
def test_two_samples_differ_where_nothing_drifted(number: int, least: float, most: float) -> None:
    """The twin, told of so many records that none is there by chance, is too sure."""
    rng = np.random.default_rng(8)
    inside = []
    for _ in range(1000):
        shares = rng.dirichlet(np.full(3, 2.0))
        then, now = rng.multinomial(2000, shares, 2) / 2000
        known, noisy = (year + 0.0065 * centred(rng.standard_normal(3)) for year in (then, now))
        known = np.maximum(known, 0.0)
        prior = replace(prior_of({}, (3,)), one_way=(known,), variances=(0.0065**2,))
        logs, means, left = prior.shares(0, noisy, 0.0065**2, n=number)
        weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        mean = weights @ means
        variances = weights @ (left - left**2 / left.sum(axis=1, keepdims=True))
        sd = np.sqrt(variances + weights @ (means - mean) ** 2)
        inside.append(np.abs(now - mean) <= 1.96 * sd)
    assert least <= np.mean(inside) <= most


def test_a_private_size_may_have_a_prior_too() -> None:
    codes = population(9, 0.0)
    target = replace(target_of(0.3), adjacency=Adjacency.ADD_REMOVE)
    made = Marginals.calibrate(MarginalsKnobs(), target)
    last = released(codes, made, 1)
    prior = Model.of(last).as_prior(last, "")
    now = population(10, 0.0)
    release = released(now, replace(made, prior=prior), 2)
    assert release.n_records is None
    assert error(Model.of(release), now) < error(Model.of(released(now, made, 2)), now)


CELLS = [(c,) for c in range(len(SIZES))] + PAIRS


def both(release: NoisyMarginals, draws: int = 200) -> tuple[Analyses, PriorAnalyses]:
    alone = Analyses(domain=release.domain, residuals=release.residuals())
    return alone, PriorAnalyses(**vars(alone), released=release, draws=draws)


@functools.cache
def vintages(seed: int) -> tuple[np.ndarray, NoisyMarginals]:
    """The codes of a year, and its release with the year before as prior."""
    made = mechanism(0.3, screen="no")
    then, now = population(100 + seed, 0.05), population(200 + seed, 0.05)
    last = released(then, made, seed)
    prior = Model.of(last).as_prior(last, "")
    return now, released(now, replace(made, prior=prior), 50 + seed)


def count(analyses: Analyses, group: Sequence[int], cell: Sequence[int]) -> Interval:
    names = analyses.domain.names
    return analyses.count({names[c]: [code] for c, code in zip(group, cell, strict=True)})


@pytest.mark.parametrize("seeds", [2, pytest.param(8, marks=pytest.mark.nightly)])
def test_intervals_are_narrower_and_cover(seeds: int) -> None:
    # The ends of fewer draws lie further inside, so that covering is no easier.
    covered: Mapping[str, list[bool]] = {"alone": [], "with": []}
    widths: Mapping[str, list[float]] = {"alone": [], "with": []}
    for seed in range(1, seeds + 1):
        now, release = vintages(seed)
        for name, analyses in zip(covered, both(release, draws=40), strict=True):
            for group in CELLS[:3]:
                for cell in np.ndindex(*(SIZES[c] for c in group)):
                    true = int((now[:, list(group)] == cell).all(axis=1).sum())
                    found = count(analyses, group, cell)
                    covered[name].append(found.lower - 1e-6 <= true <= found.upper + 1e-6)
                    widths[name].append(found.upper - found.lower)
    assert np.mean(widths["with"]) < 0.9 * np.mean(widths["alone"])
    assert np.mean(covered["with"]) > 0.9


def test_an_answer_is_the_same_whatever_was_asked_before() -> None:
    _, release = vintages(1)
    one, other = (both(release, draws=10)[1] for _ in range(2))
    pair, cell = (0, 1), (2, 1)
    for group in CELLS[:3]:
        count(one, group, [0] * len(group))
    assert count(one, pair, cell) == count(other, pair, cell)


def test_no_two_tables_of_a_draw_share_their_random_bits() -> None:
    """To NumPy the seeds (s, 0) and (s, 0, 0) are one."""
    _, release = vintages(1)
    own = both(release)[1]._draws[0].residuals.values
    groups = [(), *CELLS, (0, 1, 2)]
    assert len({int(own._generator(group).integers(2**63)) for group in groups}) == len(groups)


def test_tables_of_a_draw_have_the_margins_of_their_columns() -> None:
    _, release = vintages(2)
    analyses = both(release)[1]
    own = analyses._draws[0].residuals
    table = own.table((1, 2))
    np.testing.assert_allclose(table.sum(axis=1), own.table((1,)), atol=1e-3)
    assert table.sum() == pytest.approx(N, abs=1e-3)
    assert (table > -0.01).all()


def test_means_differences_and_regressions_have_intervals_too() -> None:
    _, release = vintages(1)
    alone, analyses = both(release, draws=20)
    first, second = analyses.domain.names[:2]
    flag = {first: [1]}
    share = analyses.share(first, [1], {})
    assert share.lower < share.value < share.upper and share.by == "draws"
    assert abs(share.value - alone.share(first, [1], {}).value) < 0.05
    apart = analyses.difference(second, flag, {first: [0]}, [1])
    assert 0 <= apart.p_value <= 1
    outcome, regressor = analyses.kept({second: [1]}), analyses.kept(flag)
    intercept, slope = analyses.regression(outcome, [ONE, regressor])
    assert slope.lower < slope.value < slope.upper
    assert intercept.value == pytest.approx(
        analyses.share(second, [1], {first: [0, 2, 3, 4]}).value
    )


def test_what_it_cannot_say_is_refused() -> None:
    _, release = vintages(4)
    alone = Analyses(domain=release.domain, residuals=release.residuals())
    names = release.domain.names
    everybody = PriorAnalyses(
        **vars(replace(alone, sample=Sample(n_units=N, unit_records=1))), released=release
    )
    with pytest.raises(QueryError, match="of the records only"):
        everybody.count({names[0]: [1]})
    with pytest.raises(NotMeasuredError):
        both(release)[1].count({name: [0] for name in names[:3]})
