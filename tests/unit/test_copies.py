"""Copies of records: what they keep, what they leave open, and intervals from them."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from coded import CodesInMemory
from estimating import seeded
from scipy.stats import linregress

from statpress.mechanisms.domain.columns import Categorical, Column, Ordinal
from statpress.mechanisms.domain.domain import Domain, ZeroPattern
from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.marginals import copies, synthesis
from statpress.mechanisms.marginals.allocation import copies_at_once
from statpress.mechanisms.marginals.analyses import numbers_of
from statpress.mechanisms.marginals.copies import Copies, Posterior, combined
from statpress.mechanisms.marginals.denoising import Model
from statpress.mechanisms.marginals.marginals import (
    ColumnGroup,
    Marginals,
    MarginalsKnobs,
    Microdata,
)
from statpress.mechanisms.marginals.residuals import NoisyMarginals
from statpress.mechanisms.marginals.synthesis import (
    Beginning,
    TargetsOf,
    drawn_targets,
    one_way_counts,
)
from statpress.mechanisms.marginals.target_tables import tables_of
from statpress.mechanisms.mechanism import Target
from statpress.mechanisms.parallel import threads, using_threads

N = 3000
SOME = tuple(ColumnGroup(columns=each) for each in (("school", "pay"), ("pay", "age")))
COLUMNS = (
    Ordinal(name="school", categories=tuple(range(6))),
    Ordinal(name="pay", categories=tuple(range(7))),
    Categorical(name="sex", categories=("f", "m")),
    Categorical(name="region", categories=tuple("abcd")),
    Ordinal(name="age", categories=tuple(range(5))),
)


RELATED = [0, 1, 4]


def population(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Records of related columns."""
    school = np.clip(np.rint(rng.normal(2.5, 1.2, N)), 0, 5)
    sex = rng.random(N) < 0.5
    age = rng.integers(0, 5, N)
    pay = np.clip(np.rint(1 + 0.6 * school + 0.8 * sex + 0.3 * age + rng.normal(0, 1.1, N)), 0, 6)
    region = (rng.integers(0, 3, N) + (school > 3)) % 4
    return np.ascontiguousarray(np.column_stack([school, pay, sex, region, age]).astype(np.uint8))


def drawn(
    codes: np.ndarray[Any, Any],
    epsilon: float,
    seed: int,
    zeros: tuple[Any, ...] = (),
    columns: tuple[Column, ...] = COLUMNS,
    **knobs: Any,
) -> tuple[Marginals, NoisyMarginals]:
    domain = Domain(columns, zeros=zeros)
    target = Target(epsilon=epsilon, delta=1e-6, n_records=len(codes), n_cells=2, domain=domain)
    made = Marginals.calibrate(MarginalsKnobs(**knobs), target)
    coded = CodesInMemory(domain, len(codes), tuple(np.ascontiguousarray(codes.T)))
    return made, made.release(coded, seeded(seed))


def of(made: Marginals, release: NoisyMarginals) -> tuple[Microdata, list[np.ndarray[Any, Any]]]:
    found = made.postprocess(release)
    return found, list(found.copies.sets)


def test_they_are_as_many_records_and_no_two_are_alike_and_the_same_again() -> None:
    made, release = drawn(population(np.random.default_rng(1)), 1.0, 1, copies=3)
    found, sets = of(made, release)
    assert len(sets) == 3
    single = np.column_stack(found.codes)
    assert all(each.shape == single.shape and each.dtype == single.dtype for each in sets)
    for one, other in itertools.combinations([single, *sets], 2):
        assert not np.array_equal(one, other)
    again = of(made, release)[1]
    assert all(np.array_equal(one, other) for one, other in zip(sets, again, strict=True))


def test_without_them_there_are_none_and_the_single_file_is_the_same() -> None:
    codes = population(np.random.default_rng(1))[:, :3]
    (one, release), (none, other) = (
        drawn(codes, 1.0, 1, columns=COLUMNS[:3], copies=copies) for copies in (3, 1)
    )
    assert none.copies == 0 and "copies" not in none.describe()
    assert of(none, other)[1] == []
    with_copies, without = of(one, release)[0], of(none, other)[0]
    assert np.array_equal(with_copies.codes, without.codes)
    assert Marginals.from_description(one.describe()) == one


def test_copies_begin_with_the_single_file_moved_as_little_as_their_one_ways_ask() -> None:
    """Its tables are counted once; those of a copy follow from the records that are others."""
    made, release = drawn(population(np.random.default_rng(1)), 0.5, 1)
    found = made.postprocess(release).copies
    posterior = Posterior.of(release, found.model)
    beginning = Beginning.of(found.codes, posterior.model, {}, posterior.clear)
    rng = np.random.default_rng(3)
    one_way = [one_way_counts(p, N) for p in posterior.draw(rng).one_way]
    moved = beginning.moved(one_way, rng)
    for column, wanted in enumerate(one_way):
        own = np.bincount(found.codes[:, column], minlength=len(wanted))
        assert np.array_equal(np.bincount(moved[:, column], minlength=len(wanted)), wanted)
        others = np.count_nonzero(moved[:, column] != found.codes[:, column])
        assert others == np.abs(own - wanted).sum() // 2
    assert not np.array_equal(moved, found.codes)
    assert beginning.counts and beginning.counts.keys() == posterior.clear
    shapes = {group: table.shape for group, table in beginning.counts.items()}
    expected = tables_of(moved, shapes)
    counts = beginning.counts_of(moved)
    assert all(np.array_equal(counts[group], expected[group]) for group in shapes)
    assert not all(np.array_equal(beginning.counts[g], expected[g]) for g in shapes)  # twin


@pytest.mark.parametrize("copies", [0, 101])
def test_there_is_a_limit(copies: int) -> None:
    with pytest.raises(ConfigError, match="1 to 100 copies"):
        MarginalsKnobs(copies=copies)


def test_structural_zeros_hold_in_every_copy() -> None:
    zero = ZeroPattern((("school", ((0, 1),)), ("pay", ((5, 6),))))
    codes = population(np.random.default_rng(2))
    codes = codes[~((codes[:, 0] < 2) & (codes[:, 1] > 4)), :3]
    made, release = drawn(codes, 0.5, 2, (zero,), COLUMNS[:3], copies=3)
    for each in of(made, release)[1]:
        assert not ((each[:, 0] < 2) & (each[:, 1] > 4)).any()


def test_public_totals_hold_in_every_copy() -> None:
    codes = population(np.random.default_rng(3))
    totals = np.zeros((2, 4), dtype=np.int64)
    np.add.at(totals, (codes[:, 2], codes[:, 3]), 1)
    made, _ = drawn(codes, 0.5, 3, copies=3)
    domain = Domain(COLUMNS)
    made = made.knowing({(2, 3): totals}, domain, N)
    coded = CodesInMemory(domain, N, tuple(np.ascontiguousarray(codes.T)))
    for each in of(made, made.release(coded, seeded(3)))[1]:
        found = np.zeros_like(totals)
        np.add.at(found, (each[:, 2], each[:, 3]), 1)
        assert np.array_equal(found, totals)


def test_single_columns_differ_by_their_noise() -> None:
    """Of a column without order the counts of copies are as far apart as two noisy ones."""
    codes = population(np.random.default_rng(4))
    made, release = drawn(codes[:, 2:4], 0.2, 4, columns=COLUMNS[2:4], copies=24)
    _, sets = of(made, release)
    counts = np.array([np.bincount(each[:, 1], minlength=4) for each in sets])
    sd = math.sqrt(made.postprocess(release).residuals.table_variance((1,)))
    assert 0.7 * sd < counts.std(axis=0, ddof=1).mean() < 1.3 * sd


def test_what_was_not_measured_is_unknown_and_not_independent() -> None:
    codes = population(np.random.default_rng(5))
    some, pairs = [0, 1, 2, 4], (ColumnGroup(columns=("pay", "sex")),)
    columns = tuple(COLUMNS[i] for i in some)
    made, release = drawn(codes[:, some], 3.0, 5, columns=columns, pairs=pairs, copies=8)
    found, sets = of(made, release)
    single = np.corrcoef(found.codes[0], found.codes[3])[0, 1]
    copies = np.array([np.corrcoef(each[:, 0], each[:, 3])[0, 1] for each in sets])
    assert abs(single) < 0.02
    assert copies.std(ddof=1) > 0.04
    measured = np.array([np.corrcoef(each[:, 1], each[:, 2])[0, 1] for each in sets])
    assert measured.std(ddof=1) < 0.02


def test_what_is_drawn_for_a_pair_that_was_not_measured_is_in_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Correlations are about as far apart in copies as in their tables, unless nobody follows."""
    codes = population(np.random.default_rng(7))[:, RELATED]
    columns = tuple(COLUMNS[i] for i in RELATED)
    made, release = drawn(codes, 1.0, 7, columns=columns, pairs=SOME, screen="no")
    posterior = Posterior.of(release, Model.of(release))
    assert (0, 2) not in release.residuals().variances
    values = np.arange(6.0), np.arange(5.0)

    def covariance(table: np.ndarray[Any, Any]) -> float:
        x, y = (each - each @ table.sum(axis=1 - i) for i, each in enumerate(values))
        return float(x @ table @ y)

    models = [posterior.draw(np.random.default_rng(seed)) for seed in range(20)]
    tables = np.std([covariance(model.pairs[0, 2]) for model in models], ddof=1)

    found = of(made, release)[0].copies

    def of_copies(targets_of: TargetsOf) -> float:
        sets = replace(found, targets_of=targets_of).sets
        return float(np.std([np.cov(each[:, 0], each[:, 2])[0, 1] for each in sets], ddof=1))

    assert of_copies(drawn_targets) > 0.5 * tables
    assert of_copies(lambda *given: (drawn_targets(*given)[0], [])) < 0.3 * tables


def test_a_relation_that_stands_out_of_much_noise_is_clear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The noise here hides what is typical; taken for unknown, the pair is fitted after others."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 6, (N, 6)).astype(np.uint8)
    codes[:, 1] = np.clip(codes[:, 0] + rng.integers(-1, 2, N), 0, 5)
    columns = tuple(Ordinal(name=name, categories=tuple(range(6))) for name in "abcdef")
    _, release = drawn(codes, 0.15, 1, columns=columns)
    model = Model.of(release)
    assert Posterior.of(release, model).clear == {(0, 1)}
    monkeypatch.setattr(copies, "_DISTANCES", np.full(24, 0.001))
    assert not Posterior.of(release, model).clear


def test_a_nearly_certain_relation_is_not_broken_to_fit_noise() -> None:
    """Who does not work has no hours; were all tables alike, several in a hundred would."""
    rng = np.random.default_rng(8)
    works = rng.random(N) < 0.6
    hours = np.where(works, rng.integers(1, 5, N), 0)
    codes = np.column_stack([works, hours, *(rng.integers(0, 4, N) for _ in range(7))])
    columns = (
        Categorical(name="works", categories=("no", "yes")),
        Ordinal(name="hours", categories=tuple(range(5))),
        *(Categorical(name=f"other_{i}", categories=tuple("abcd")) for i in range(7)),
    )
    made, release = drawn(codes.astype(np.uint8), 1.0, 8, columns=columns, copies=3)

    found = of(made, release)[0].copies

    def alike(*given: Any) -> Any:
        first, then = drawn_targets(*given)
        return [replace(each, weight=synthesis.LEAST_WEIGHT) for each in first], then

    weighted, twin = (
        float(np.mean([(each[:, 0] > 0) != (each[:, 1] > 0) for each in copies.sets]))
        for copies in (found, replace(found, targets_of=alike))
    )
    assert weighted < 0.03
    assert twin > 0.06


def test_a_drawn_model_has_its_margins() -> None:
    made, release = drawn(population(np.random.default_rng(6)), 1.0, 6)
    model = Posterior.of(release, Model.of(release)).draw(np.random.default_rng(1))
    for (a, b), table in model.pairs.items():
        assert table.min() >= 0
        assert np.abs(table.sum(axis=1) - model.one_way[a]).sum() < 1e-3
        assert np.abs(table.sum(axis=0) - model.one_way[b]).sum() < 1e-3
    assert made.groups


def test_rubins_rule() -> None:
    """By hand: W = 2, B = 1, so T = 2 + 4/3, and (3 - 1)(T / (4/3))^2 degrees of freedom."""
    found = combined([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert found.estimate == 2
    assert found.standard_error == pytest.approx(math.sqrt(2 + 4 / 3))
    assert found.degrees_of_freedom == pytest.approx(2 * (2.5) ** 2)
    of_records = combined([1.0, 2.0, 3.0])
    assert of_records.standard_error == pytest.approx(math.sqrt(4 / 3))
    assert of_records.degrees_of_freedom == pytest.approx(2)
    low, high = of_records.interval()
    assert high - low == pytest.approx(2 * 4.302652729911275 * math.sqrt(4 / 3))
    assert combined([1.0, 1.0]).interval() == (1, 1)
    fewer = combined([1.0, 2.0], [4.0, 4.0], share=0.25)
    assert fewer.standard_error == pytest.approx(math.sqrt(1 + 0.75))


@pytest.mark.parametrize(
    ("figures", "variances"),
    [([1.0], None), ([1.0, math.nan], None), ([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, -1.0])],
)
def test_what_cannot_be_combined(figures: list[float], variances: list[float] | None) -> None:
    with pytest.raises(ConfigError, match="cop"):
        combined(figures, variances)


def test_how_much_too_short_naive_intervals_are_is_what_the_copies_show() -> None:
    """Shares of cells and slopes, by Rubin's rule on the records of each copy."""
    codes = population(np.random.default_rng(3))[:, :3]
    made, release = drawn(codes, 0.4, 3, columns=COLUMNS[:3], copies=5)
    copies = of(made, release)[0].copies
    columns = release.domain.columns
    for pair, (shares, slope) in copies.too_short.items():
        ratios = []
        for cell in itertools.product(*(range(columns[c].size) for c in pair)):
            there = [(each[:, list(pair)] == cell).all(axis=1) for each in copies.sets]
            if np.mean([each.sum() for each in there]) >= 10:
                naive = [each.mean() * (1 - each.mean()) / len(each) for each in there]
                made_of = combined([each.mean() for each in there], naive)
                ratios.append(made_of.standard_error / math.sqrt(np.mean(naive)))
        assert shares == pytest.approx(np.median(ratios))
        assert shares > 1.2
        values = [numbers_of(columns[c]) for c in pair]
        lines = []
        for each in copies.sets:
            x, y = (own[each[:, c]] for own, c in zip(values, pair, strict=True))
            some = np.isfinite(x) & np.isfinite(y)
            lines.append(linregress(x[some], y[some]) if some.any() else None)
        if lines[0] is None:
            assert slope is None
            continue
        naive = [line.stderr**2 for line in lines]
        expected = combined([line.slope for line in lines], naive).standard_error
        assert slope == pytest.approx(expected / math.sqrt(np.mean(naive)))
    assert any(slope is not None for _, slope in copies.too_short.values())
    none = replace(copies, number=0)
    assert none.too_short == {}


def test_few_copies_of_long_files_are_drawn_at_once_and_all_are_alike() -> None:
    """A copy in the making takes memory, of which forecasts have as much as they say."""
    assert copies_at_once((8,) * 5, 10**5) > 50
    assert copies_at_once((8,) * 5, 2 * 10**6) == 4
    assert copies_at_once((8,) * 5, 10**8) == 1
    codes = population(np.random.default_rng(1))[:, :3]
    made, release = drawn(codes, 1.0, 1, columns=COLUMNS[:3], copies=4)
    found = of(made, release)[0].copies
    parts = {each.name: getattr(found, each.name) for each in fields(Copies)}
    left: list[int] = []

    class Seen(Copies):
        def _drawn(self, *given: Any) -> Any:
            left.append(threads())  # of a copy that is drawn alone
            return super()._drawn(*given)

    class OneByOne(Seen):
        at_once = 1  # type: ignore[assignment]

    with using_threads(3):
        together, one_by_one = Seen(**parts).sets, OneByOne(**parts).sets
    assert left == [1] * 4 + [3] * 4
    assert all(map(np.array_equal, together, found.sets))
    assert all(map(np.array_equal, one_by_one, found.sets))
