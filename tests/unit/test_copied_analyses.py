"""Figures from copies: those of each copy by NumPy, combined by Rubin's rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import QueryError
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses, Copy
from statpress.mechanisms.marginals.copies import combined
from statpress.mechanisms.marginals.population import Sample

PAY = Numeric(name="pay", edges=(0.0, 10.0, 20.0, 40.0), missing=True)
AGE = Numeric(name="age", edges=(0, 1, 2, 5), whole=True)
SEX = Categorical(name="sex", categories=("f", "m"))
N, SCALE = 400, 2.5
RNG = np.random.default_rng(5)


def copy() -> np.ndarray[Any, Any]:
    age = RNG.integers(0, 3, N)
    return np.column_stack([(age + RNG.integers(0, 3, N)) % 4, age, RNG.integers(0, 2, N)])


COPIES = [copy() for _ in range(4)]
NUMBERS = np.array([5.0, 15.0, 30.0, np.nan])
AGES = np.array([0.0, 1.0, 3.5])


def asked(*, population: bool, units: int = 1) -> CopiedAnalyses:
    sample = Sample(n_units=1000, unit_records=units) if population else None
    return CopiedAnalyses(
        domain=Domain((PAY, AGE, SEX)), residuals=None, sample=sample, confidence=0.9,
        copies=[Copy(codes) for codes in COPIES], scale=SCALE,
    )  # type: ignore[arg-type]  # fmt: skip


def pay(own: np.ndarray[Any, Any], sex: int) -> np.ndarray[Any, Any]:
    values = NUMBERS[own[own[:, 2] == sex, 0]]
    return values[np.isfinite(values)]


def of_mean(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    return values.mean(), values.var(ddof=1) / len(values)


def of_total(own: np.ndarray[Any, Any]) -> tuple[float, float]:
    mean, variance = of_mean(np.nan_to_num(NUMBERS[own[:, 0]]) * (own[:, 2] == 1))
    return N * SCALE * mean, (N * SCALE) ** 2 * variance


def of_count(own: np.ndarray[Any, Any]) -> tuple[float, float]:
    mean, variance = of_mean((own[:, 1] == 2).astype(float))
    return N * SCALE * mean, (N * SCALE) ** 2 * variance


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
        x, y = NUMBERS[own[:, 0]], AGES[own[:, 1]]
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
    assert asked(population=False, units=2).count({}).value == N * SCALE
