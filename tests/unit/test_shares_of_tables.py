"""Shares of a published table: their errors by brute force, from the covariance of its cells."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Categorical
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.postprocessing.covariance import IndependentErrors, MultinomialErrors
from statpress.tasks.products.published_counts import EstimatedTable

N = 1000
DOMAIN = Domain(
    (
        Categorical(name="a", categories=("x", "y"), missing=True),
        Categorical(name="b", categories=("u", "v"), missing=True),
    )
)
ESTIMATES = np.array([310.0, 120.0, 15.0, 205.0, 260.0, 8.0, 40.0, 31.0, 11.0])
ERRORS = np.linspace(5.0, 13.0, 9)


def table(covariance: Any, errors: np.ndarray[Any, Any], public: bool) -> EstimatedTable:
    return EstimatedTable(
        DOMAIN, [], np.arange(9), ESTIMATES, errors, 0.0, N, covariance, True, public
    )


def multinomial() -> tuple[MultinomialErrors, Any]:
    """Draws without a pseudocount of all records, and the covariance of all cells."""
    share = ESTIMATES / N
    return (
        MultinomialErrors(Fraction(0), 500, N, 9),
        N**2 / 500 * (np.diag(share) - np.outer(share, share)),
    )


def by_brute_force(names: tuple[str, ...], covariance: Any, public: bool) -> dict[Any, Any]:
    """Of each cell without missing values its share and standard error, by the gradient."""
    codes = {name: DOMAIN.codes(np.arange(9), name) for name in names}
    kept = np.all([codes[name] < 2 for name in names], axis=0)
    total = N - ESTIMATES[~kept].sum() if public else ESTIMATES[kept].sum()
    found = {}
    for cell in np.ndindex((2,) * len(names)):
        own = np.all([codes[n] == c for n, c in zip(names, cell, strict=True)], axis=0)
        share = ESTIMATES[own].sum() / total
        gradient = own / total - share / total * (-(~kept * 1.0) if public else kept * 1.0)
        found[cell] = share, np.sqrt(gradient @ covariance @ gradient)
    return found


@pytest.mark.parametrize("names", [("a",), ("b",), ("a", "b")])
@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("law", ["independent", "drawn"])
def test_errors_of_shares_are_those_of_the_gradient(
    names: tuple[str, ...], public: bool, law: str
) -> None:
    if law == "independent":
        covariance: Any = IndependentErrors()
        matrix, errors = np.diag(ERRORS**2), ERRORS
    else:
        covariance, matrix = multinomial()
        errors = np.sqrt(np.diag(matrix))
    found = table(covariance, errors, public).shares(names)
    assert found is not None
    shares, deviations, reaches = found
    for cell, (share, error) in by_brute_force(names, matrix, public).items():
        assert shares[cell] == pytest.approx(share, rel=1e-12)
        assert deviations[cell] == pytest.approx(error, rel=1e-9)
        assert reaches[cell] >= deviations[cell]
    assert np.isnan(shares[(2,) * len(names)])  # no share of a missing value
    # Twin: the count's own error leaves out what the missing ones, or the sum, add.
    sums, first = table(covariance, errors, public).sums(names), (0,) * len(names)
    assert sums is not None and sums[1] is not None
    assert abs(sums[1][first] / N / deviations[first] - 1) > 0.01


def test_without_missing_values_the_error_is_that_of_the_count() -> None:
    domain = Domain((Categorical(name="a", categories=("x", "y", "z")),))
    errors = np.array([4.0, 5.0, 6.0])
    found = EstimatedTable(
        domain, [], np.arange(3), np.array([600.0, 300.0, 90.0]), errors, 0.0, N,
        IndependentErrors(), True,
    ).shares(("a",))  # fmt: skip
    assert found is not None
    assert found[0].tolist() == [0.6, 0.3, 0.09]  # of the public number, not of their sum
    assert found[1] == pytest.approx(errors / N)


def test_biased_estimates_have_shares_without_intervals() -> None:
    biased = EstimatedTable(
        DOMAIN, [], np.arange(9), ESTIMATES, ERRORS, 0.0, N, IndependentErrors(), False
    )
    found = biased.shares(("a",))
    assert found is not None
    assert np.isfinite(found[0][:2]).all() and np.isnan(found[1]).all() and np.isnan(found[2]).all()
