"""Figures of named columns, against those of the records behind exact tables."""

from __future__ import annotations

import datetime
from fractions import Fraction

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Column, Date, Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.analyses import Analyses, ends_of, numbers_of
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
