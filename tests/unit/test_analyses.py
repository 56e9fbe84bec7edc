"""Figures of named columns: of exact tables, and of copies, combined by Rubin's rule."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, ends_of, numbers_of
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses, Copy
from statpress.mechanisms.marginals.copies import combined
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, combine

PAY = Numeric(name="pay", edges=(0.0, 10.0, 20.0, 40.0), missing=True, special=(0.0, 99.0))
SEX = Categorical(name="sex", categories=(0, 1))
PLACE = Categorical(name="place", categories=("north", "south"), other=True)
N, RNG = 2000, np.random.default_rng(1)
CODES = np.column_stack([RNG.integers(0, 6, N), RNG.integers(0, 2, N), RNG.integers(0, 3, N)])
NUMBERS = numbers_of(PAY)[CODES[:, 0]]


def analyses(sample: Sample | None = None, columns: tuple[Column, ...] = (PAY, SEX, PLACE)):
    tables = []
    for group in ((0, 1), (0, 2), (1, 2)):
        counts = np.zeros([columns[c].size for c in group], dtype=np.int64)
        np.add.at(counts, tuple(CODES[:, c] for c in group), 1)
        tables.append(NoisyTable(group, Fraction(1), counts * GRID))
    combined = combine([column.size for column in columns], tables, n_present=N)
    return Analyses(domain=Domain(columns), residuals=combined, sample=sample)


def test_numbers_are_middles_and_amounts() -> None:
    assert numbers_of(PAY) == pytest.approx([0, 5, 15, 30, np.nan, np.nan], nan_ok=True)
    assert numbers_of(SEX).tolist() == [0, 1]
    assert np.isnan(numbers_of(PLACE)).all()
    born = Date(name="born", first=datetime.date(2000, 1, 1), last=datetime.date(2001, 1, 1))
    assert np.isnan(numbers_of(born)).all()
    assert numbers_of(Integer(name="age", lower=0, upper=19, width=10)).tolist() == [4.5, 14.5]


def test_ends_are_those_of_bins_and_of_special_values_themselves() -> None:
    first, last = ends_of(PAY)
    assert first == pytest.approx([0, 0, 10, 20, np.nan, np.nan], nan_ok=True)
    assert last == pytest.approx([0, 10, 20, 40, np.nan, np.nan], nan_ok=True)
    assert [each.tolist() for each in ends_of(SEX)] == [[0, 1], [0, 1]]


@pytest.mark.parametrize("where", [{}, {"sex": [1]}])
def test_figures_are_those_of_the_records(where: dict[str, list[int]]) -> None:
    kept = CODES[:, 1] == 1 if where else np.ones(N, dtype=bool)
    asked = analyses()
    some = NUMBERS[kept]
    assert asked.mean("pay", where).value == pytest.approx(np.nanmean(some))
    assert asked.total("pay", where).value == pytest.approx(np.nansum(some))
    assert asked.count(where).value == pytest.approx(kept.sum())
    there = CODES[kept, 0] != PAY.missing_code
    expected = (CODES[kept, 0] == 2).sum() / there.sum()
    assert asked.share("pay", [2], where).value == pytest.approx(expected)
    counts = np.array([np.sum(some == value) for value in (0, 5, 15, 30)])
    half, below = counts.sum() / 2, counts.cumsum()
    assert below[1] < half < below[2]
    expected = 10 + 10 * (half - below[1]) / counts[2]
    assert asked.quantile("pay", 0.5, where).value == pytest.approx(expected, abs=1e-4)


def test_differences_and_correlations_are_those_of_the_records() -> None:
    asked, sex = analyses(), CODES[:, 1]
    means = [np.nanmean(NUMBERS[sex == code]) for code in (0, 1)]
    found = asked.difference("pay", {"sex": [1]}, {"sex": [0]})
    assert found.value == pytest.approx(means[1] - means[0])
    there = np.isfinite(NUMBERS)
    r = np.corrcoef(NUMBERS[there], sex[there])[0, 1]
    assert asked.correlation("pay", "sex", {}).value == pytest.approx(r)


def test_differences_of_shares_are_those_of_the_records() -> None:
    """Of those that are not missing; in a sample with the error of two samples."""
    there = CODES[:, 0] != PAY.missing_code
    groups = [(CODES[there & (CODES[:, 1] == code), 0] == 2).astype(float) for code in (0, 1)]
    found = analyses().difference("pay", {"sex": [1]}, {"sex": [0]}, [2])
    assert found.value == pytest.approx(groups[1].mean() - groups[0].mean())
    sampled = analyses(Sample(n_units=N)).difference("pay", {"sex": [1]}, {"sex": [0]}, [2])
    error = np.sqrt(sum(each.var() / len(each) for each in groups))
    assert sampled.standard_error == pytest.approx(error, rel=1e-3)


def test_sampling_has_the_error_of_a_sample() -> None:
    asked = analyses(Sample(n_units=N))
    there = np.isfinite(NUMBERS)
    error = NUMBERS[there].std() / np.sqrt(there.sum())
    assert asked.mean("pay", {}).standard_error == pytest.approx(error, rel=1e-3)
    groups = [NUMBERS[there & (CODES[:, 1] == code)] for code in (0, 1)]
    error = np.sqrt(sum(each.var() / len(each) for each in groups))
    found = asked.difference("pay", {"sex": [1]}, {"sex": [0]})
    assert found.standard_error == pytest.approx(error, rel=1e-3)
    share = asked.share("sex", [1], {})
    assert share.by == "binomial"
    assert share.lower < CODES[:, 1].mean() < share.upper


def test_units_of_several_records_have_counts_and_totals_only() -> None:
    asked = analyses(Sample(n_units=N // 2, unit_records=2))
    assert asked.total("pay", {}).upper > asked.total("pay", {}).lower
    for ask in (
        lambda: asked.mean("pay", {}),
        lambda: asked.quantile("pay", 0.5, {}),
        lambda: asked.correlation("pay", "sex", {}),
        lambda: asked.difference("pay", {"sex": [1]}, {"sex": [0]}),
        lambda: asked.share("place", [0], {"sex": [1]}),
    ):
        with pytest.raises(QueryError, match="only counts and totals"):
            ask()


def test_a_column_without_numbers_is_refused() -> None:
    with pytest.raises(QueryError, match="has no numbers"):
        analyses().mean("place", {})


# Figures from copies: those of each copy by NumPy, combined by Rubin's rule


PAY_OF_COPIES = Numeric(name="pay", edges=(0.0, 10.0, 20.0, 40.0), missing=True)
AGE = Numeric(name="age", edges=(0, 1, 2, 5), whole=True)
SEX_OF_COPIES = Categorical(name="sex", categories=("f", "m"))
N_OF_COPIES, SCALE = 400, 2.5
RNG_OF_COPIES = np.random.default_rng(5)


def copy() -> np.ndarray[Any, Any]:
    age = RNG_OF_COPIES.integers(0, 3, N_OF_COPIES)
    return np.column_stack(
        [
            (age + RNG_OF_COPIES.integers(0, 3, N_OF_COPIES)) % 4,
            age,
            RNG_OF_COPIES.integers(0, 2, N_OF_COPIES),
        ]
    )


COPIES = [copy() for _ in range(4)]
NUMBERS_OF_COPIES = np.array([5.0, 15.0, 30.0, np.nan])
AGES = np.array([0.0, 1.0, 3.5])


def asked(*, population: bool, units: int = 1) -> CopiedAnalyses:
    sample = Sample(n_units=1000, unit_records=units) if population else None
    return CopiedAnalyses(
        domain=Domain((PAY_OF_COPIES, AGE, SEX_OF_COPIES)),
        residuals=None,  # type: ignore[arg-type]
        sample=sample,
        confidence=0.9,
        copies=[Copy(codes) for codes in COPIES],
        scale=SCALE,
    )


def pay(own: np.ndarray[Any, Any], sex: int) -> np.ndarray[Any, Any]:
    values = NUMBERS_OF_COPIES[own[own[:, 2] == sex, 0]]
    return values[np.isfinite(values)]


def of_mean(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    return values.mean(), values.var(ddof=1) / len(values)


def of_total(own: np.ndarray[Any, Any]) -> tuple[float, float]:
    mean, variance = of_mean(np.nan_to_num(NUMBERS_OF_COPIES[own[:, 0]]) * (own[:, 2] == 1))
    return N_OF_COPIES * SCALE * mean, (N_OF_COPIES * SCALE) ** 2 * variance


def of_count(own: np.ndarray[Any, Any]) -> tuple[float, float]:
    mean, variance = of_mean((own[:, 1] == 2).astype(float))
    return N_OF_COPIES * SCALE * mean, (N_OF_COPIES * SCALE) ** 2 * variance


def of_share(own: np.ndarray[Any, Any]) -> tuple[float, float]:
    own = own[(own[:, 2] == 1) & (own[:, 0] != 3)]
    return of_mean((own[:, 0] == 2).astype(float))


def of_difference(own: np.ndarray[Any, Any]) -> tuple[float, float]:
    (one, first), (other, second) = of_mean(pay(own, 1)), of_mean(pay(own, 0))
    return one - other, first + second


WOMEN, MEN = {"sex": [0]}, {"sex": [1]}


@pytest.mark.parametrize("population", [False, True])
@pytest.mark.parametrize(
    ("ask", "by_hand"),
    [
        (lambda to: to.mean("pay", MEN), lambda own: of_mean(pay(own, 1))),
        (lambda to: to.total("pay", MEN), of_total),
        (lambda to: to.count({"age": [2]}), of_count),
        (lambda to: to.share("pay", [2], MEN), of_share),
        (lambda to: to.difference("pay", MEN, WOMEN), of_difference),
    ],
)
def test_figures_are_those_of_every_copy_combined(
    ask: Callable[[CopiedAnalyses], Any], by_hand: Callable[[Any], Any], population: bool
) -> None:
    found = ask(asked(population=population))
    figures, variances = zip(*map(by_hand, COPIES), strict=True)
    made = combined(figures, variances if population else None, share=1 / SCALE)
    assert found.value == pytest.approx(made.estimate)
    assert found.standard_error == pytest.approx(made.standard_error)
    assert (found.lower, found.upper) == pytest.approx(made.interval(0.9))
    assert found.p_value == pytest.approx(made.p_value)
    assert found.by == "Rubin"


def test_a_difference_of_shares_is_that_of_their_estimates() -> None:
    to = asked(population=True)
    difference = to.difference("pay", MEN, WOMEN, [2])
    shares = [to.share("pay", [2], sex) for sex in (MEN, WOMEN)]
    assert difference.value == pytest.approx(shares[0].value - shares[1].value)


def test_a_correlation_is_that_of_fishers_z() -> None:
    figures = []
    for own in COPIES:
        x, y = NUMBERS_OF_COPIES[own[:, 0]], AGES[own[:, 1]]
        some = np.isfinite(x)
        figures.append((math.atanh(np.corrcoef(x[some], y[some])[0, 1]), 1 / (some.sum() - 3)))
    made = combined(*zip(*figures, strict=True), share=1 / SCALE)
    found = asked(population=True).correlation("pay", "age", {})
    assert found.value == pytest.approx(math.tanh(made.estimate))
    assert (found.lower, found.upper) == pytest.approx(tuple(map(math.tanh, made.interval(0.9))))
    assert found.lower < found.value < found.upper


def test_what_copies_cannot_tell_is_refused() -> None:
    to = asked(population=False)
    with pytest.raises(QueryError, match="Quantiles"):
        to.quantile("pay", 0.5, {})
    assert math.isnan(to.mean("pay", {"sex": []}).value)
    with pytest.raises(QueryError, match="has no numbers"):
        to.mean("sex", {})
    with pytest.raises(QueryError, match="several records"):
        asked(population=True, units=2).count({})
    assert asked(population=False, units=2).count({}).value == N_OF_COPIES * SCALE
