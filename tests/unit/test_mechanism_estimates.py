"""What every mechanism for counts has to do after the draw: estimates, errors, covariance.

The real releases of one table are simulated; every test has twins that it must catch.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from contract_cases import COUNTS, N_COUNTS, NAMES, case, serves_counts
from estimating import LEVEL, seeded
from scipy import stats

from statpress.mechanisms.postprocessing.covariance import (
    Covariance,
    DebiasedTable,
    IndependentErrors,
    MultinomialErrors,
)

RELEASES = 800
FOR_COUNTS = [name for name in NAMES if serves_counts(name)]
ALL = pytest.mark.parametrize("name", FOR_COUNTS)
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Drawn:
    """Post-processed releases of one table.

    Attributes:
        tables: One for each.
        estimates: float64[releases, cells], those of cells not listed included.
    """

    tables: list[DebiasedTable]
    estimates: Floats


def dense(table: DebiasedTable) -> Floats:
    found = np.full(len(COUNTS), table.undrawn_estimate)
    found[table.cells] = table.estimates
    return found


@functools.cache
def drawn(name: str, releases: int = RELEASES) -> Drawn:
    found, rng = case(name), seeded(8)
    made = found.calibrated()
    tables = [
        made.postprocess(made.release(found.table, rng), n_records=N_COUNTS)
        for _ in range(releases)
    ]
    return Drawn(tables, np.array([dense(table) for table in tables]))


def covariance_of(name: str) -> Covariance:
    found: Covariance = case(name).calibrated().covariance(n_records=N_COUNTS, n_cells=len(COUNTS))
    return found


# Form


@ALL
def test_its_tables_have_the_form_that_it_states(name: str) -> None:
    found = case(name)
    made, sizes = found.calibrated(), []
    raw = made.release(found.table, seeded(3), progress=sizes.append)
    assert sum(sizes) == found.mechanism.kinds[0].draws(made, len(COUNTS))
    assert tuple(raw.figures()) == made.raw
    assert made.raw[0] == "raw"
    assert all(figure.dtype == np.int64 for figure in raw.figures().values())
    assert len(raw.cells) <= made.rows(n_cells=len(COUNTS))
    assert np.all(np.diff(raw.cells) > 0)
    table = made.postprocess(raw, n_records=N_COUNTS)
    assert np.array_equal(table.cells, raw.cells)
    assert table.estimates.shape == table.standard_errors.shape == raw.cells.shape
    assert np.all(table.standard_errors >= 0)
    rebuilt = type(made).from_description(made.describe()).postprocess(raw, n_records=N_COUNTS)
    assert np.array_equal(rebuilt.estimates, table.estimates)
    assert np.array_equal(rebuilt.standard_errors, table.standard_errors)
    if table.projected is not None:
        assert table.projected.min() >= 0
        assert table.projected.sum() == pytest.approx(N_COUNTS)


# Bias


def bias(estimates: Floats) -> float:
    """P-value of "every cell's estimate is right on average"."""
    deviation = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    scores = np.abs(estimates.mean(axis=0) - COUNTS) / deviation
    return float(min(1.0, len(COUNTS) * 2 * stats.norm.sf(scores.max())))


TWINS: dict[str, Callable[[Floats], Floats]] = {
    "a count left in": lambda estimates: estimates + np.array([0, 0, 0, 5.0]),
    "shrunk": lambda estimates: 0.9 * estimates + 0.1 * N_COUNTS / len(COUNTS),
}


@ALL
def test_its_estimates_are_right_on_average_or_never_pooled(name: str) -> None:
    made = case(name).calibrated()
    if not made.unbiased:
        assert covariance_of(name).objection
        assert all(kind.objection(made, case(name).target()) for kind in made.kinds)
        return
    estimates = drawn(name).estimates
    assert bias(estimates) > LEVEL
    for twin in TWINS.values():
        assert bias(twin(estimates)) < LEVEL


# Covariance


def stated_by(covariance: Covariance, tables: list[DebiasedTable]) -> Floats:
    """The covariance that refining would take the estimates to have, at the true counts."""
    squares = np.zeros(len(COUNTS))
    for table in tables:
        errors = np.full(len(COUNTS), table.undrawn_standard_error)
        errors[table.cells] = table.standard_errors
        squares += errors**2 / len(tables)
    true = replace(
        tables[0],
        cells=np.arange(len(COUNTS)),
        estimates=COUNTS.astype(np.float64),
        standard_errors=np.sqrt(squares),
    )
    found = covariance.released(true)
    variances = found.variances.ravel()
    if found.drawn:  # statpress.mechanisms.postprocessing.covariance
        return np.asarray(np.diag(variances) - np.outer(variances, variances) / variances.sum())
    return np.asarray(np.diag(variances))


def of_draws(covariance: MultinomialErrors) -> Floats:
    """N^2/m (diag(p) - p p') of the true table."""
    total = float(N_COUNTS + covariance.pseudocount * len(COUNTS))
    p = (COUNTS + float(covariance.pseudocount)) / total
    found: Floats = total**2 / covariance.records * (np.diag(p) - np.outer(p, p))
    return found


def agreement(estimates: Floats, stated: Floats) -> float:
    """P-value of "cells, and sums and differences of two, have these variances"."""
    units = np.eye(len(COUNTS))
    pairs = itertools.combinations(units, 2)
    contrasts = [*units, *(a + sign * b for a, b in pairs for sign in (1, -1))]
    scores = []
    for contrast in contrasts:
        values = estimates @ contrast
        square = (values - values.mean()) ** 2
        error = square.std(ddof=1) / np.sqrt(len(values))
        scores.append(abs(values.var(ddof=1) - contrast @ stated @ contrast) / error)
    return float(min(1.0, len(scores) * 2 * stats.norm.sf(max(scores))))


@ALL
def test_its_errors_vary_together_as_stated(name: str) -> None:
    covariance = covariance_of(name)
    if covariance.objection:
        assert covariance.objection.endswith(".")  # refining puts it into its refusal
        (table,) = drawn(name, 1).tables
        with pytest.raises(ValueError, match=covariance.objection[:20]):
            covariance.released(table)
        return
    found = drawn(name)
    stated = stated_by(covariance, found.tables)
    assert agreement(found.estimates, stated) > LEVEL
    assert agreement(found.estimates, stated / 2) < LEVEL
    assert agreement(found.estimates, 2 * stated) < LEVEL
    if isinstance(covariance, MultinomialErrors):
        assert np.allclose(stated, of_draws(covariance))
        twin = replace(covariance, records=2 * covariance.records)
        assert agreement(found.estimates, of_draws(twin)) < LEVEL
    if isinstance(covariance, IndependentErrors):
        assert np.array_equal(stated, np.diag(np.diag(stated)))


@ALL
def test_errors_that_are_not_independent_are_not_taken_for_such(name: str) -> None:
    """Independent errors are what a careless mechanism would claim."""
    if not case(name).calibrated().unbiased:
        return  # refused whatever it claims
    found = drawn(name)
    p_value = agreement(found.estimates, stated_by(IndependentErrors(), found.tables))
    assert (p_value > LEVEL) is isinstance(covariance_of(name), IndependentErrors)
