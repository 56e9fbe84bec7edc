"""Formulas over cells: the coefficients are those of least squares on the records."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Integer
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import NotMeasuredError, QueryError
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, combine
from statpress.tasks.release.formulas import Terms, regressors_of

N, RNG = 3000, np.random.default_rng(2)
COLUMNS = (
    Integer(name="y", lower=0, upper=5, missing=True),
    Integer(name="x", lower=1, upper=4, missing=True),
    Categorical(name="g", categories=("a", "b", "c", "rare")),
    Categorical(name="z", categories=(0, 1)),
)
CODES = np.column_stack(
    [
        RNG.choice(7, N, p=[0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1]),
        RNG.choice(5, N, p=[0.2, 0.2, 0.2, 0.2, 0.2]),
        RNG.choice(4, N, p=[0.4, 0.3, 0.298, 0.002]),
        RNG.integers(0, 2, N),
    ]
)
CODES[:, 0] = np.where(CODES[:, 0] < 6, np.clip(CODES[:, 0] + CODES[:, 2] - 1, 0, 5), 6)
X = np.where(CODES[:, 1] == 4, np.nan, CODES[:, 1] + 1.0)
Y = np.where(CODES[:, 0] == 6, np.nan, CODES[:, 0].astype(float))


def analyses(groups=((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))) -> Analyses:
    tables = []
    for group in groups:
        counts = np.zeros([COLUMNS[c].size for c in group], dtype=np.int64)
        np.add.at(counts, tuple(CODES[:, c] for c in group), 1)
        tables.append(NoisyTable(group, Fraction(2 * GRID), counts * GRID))
    sizes = [column.size for column in COLUMNS]
    return Analyses(domain=Domain(COLUMNS), residuals=combine(sizes, tables, n_present=N))


def terms(formula: str, asked: Analyses | None = None) -> Terms:
    asked = asked or analyses()

    def known(name: str):
        if name not in asked.domain.names:
            raise QueryError(f"no column {name}")
        return asked.domain[name]

    return regressors_of(formula, asked, known)


def coefficients(formula: str) -> dict[str, float]:
    asked = analyses()
    made = terms(formula, asked)
    figures = asked.regression(made.outcome, list(made.regressors.values()))
    return {name: each.value for name, each in zip(made.regressors, figures, strict=True)}


def expected(*columns: np.ndarray) -> np.ndarray:
    """Least squares on the records, with outcomes that are there weighted up."""
    share, mean = np.isfinite(Y).mean(), np.nanmean(Y)
    y = np.where(np.isfinite(Y), mean + (Y - mean) / share, mean)
    return np.linalg.lstsq(np.column_stack([np.ones(N), *columns]), y)[0]


FILLED = np.where(np.isnan(X), np.nanmean(X), X)
B, C = CODES[:, 2] == 1, CODES[:, 2] == 2
Z = CODES[:, 3].astype(float)


@pytest.mark.parametrize(
    ("formula", "names", "columns"),
    [
        ("y ~ x + g", ["Intercept", "g[T.b]", "g[T.c]", "x", "x[missing]"],
         (B, C, FILLED, np.isnan(X))),
        ("y ~ z + np.log(x)", ["Intercept", "np.log(x)", "x[missing]", "z"],
         (np.log(FILLED), np.isnan(X), Z)),
        ("y ~ C(z) + g", ["C(z)[T.1]", "Intercept", "g[T.b]", "g[T.c]"], None),
        ("y ~ C(z, Treatment('1'))", ["C(z, Treatment('1'))[T.0]", "Intercept"], None),
    ],
)  # fmt: skip
def test_coefficients_are_those_of_the_records(formula, names, columns) -> None:
    found = coefficients(formula)
    assert sorted(found) == names
    if columns is not None:
        order = ["Intercept", *(name for name in names if name != "Intercept")]
        assert [found[name] for name in order] == pytest.approx(expected(*columns), abs=1e-4)
    elif "Treatment" in formula:
        assert found["C(z, Treatment('1'))[T.0]"] == pytest.approx(expected(1 - Z)[1], abs=1e-4)
    else:
        assert found["C(z)[T.1]"] == pytest.approx(expected(Z, B, C)[1], abs=1e-4)


def test_what_was_done_about_missing_values_and_rare_categories_is_said() -> None:
    said = " ".join(terms("y ~ x + g").notes)
    assert "g = rare; they count with the reference, a" in said
    assert "without a number of x count with its mean; x[missing]" in said
    assert "have no number of y; the others are weighted up" in said
    assert not terms("x ~ z").notes[:-1]


def test_an_interaction_is_a_function_of_both_columns() -> None:
    made = terms("y ~ x:z")
    assert made.regressors["x:z"].group == (1, 3)
    assert made.regressors["x:z"].values[:4, 1].tolist() == [1, 2, 3, 4]
    with pytest.raises(NotMeasuredError):
        analyses().regression(made.outcome, list(made.regressors.values()))
    asked = analyses(((0, 1, 3), (2,)))
    made = terms("y ~ x + z + x:z", asked)
    figures = asked.regression(made.outcome, list(made.regressors.values()))
    value = dict(zip(made.regressors, figures, strict=True))["x:z"].value
    assert value == pytest.approx(expected(FILLED, Z, FILLED * Z, np.isnan(X))[3], abs=1e-4)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("y ~ nothing", "no column nothing"),
        ("nothing ~ x", "no column nothing"),
        ("y ~ x +", "not understood"),
        ("y ~ unknown(x)", "no column unknown"),
        ("x", "one outcome"),
        ("y ~ scale(x)", "depends on all records"),
        ("g ~ x", "has no numbers"),
        ("y ~ np.log(x - 1)", "not a number for every cell"),
    ],
)
def test_what_cannot_be_fitted_is_refused(formula: str, words: str) -> None:
    with pytest.raises(QueryError) as caught, np.errstate(all="ignore"):
        terms(formula)
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)  # formulaic colours what it says


def test_every_pair_of_columns_is_asked_for() -> None:
    for without in itertools.combinations((0, 1, 2), 2):
        groups = [g for g in ((0, 1), (0, 2), (1, 2), (3,)) if g != without]
        asked = analyses(groups)
        made = terms("y ~ x + g", asked)
        with pytest.raises(NotMeasuredError):
            asked.regression(made.outcome, list(made.regressors.values()))
