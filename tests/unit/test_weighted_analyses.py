"""Weighted figures of tables and of copies, and their sampling variance, against NumPy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from coded import in_memory

from statpress.mechanisms.domain.columns import Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import NotMeasuredError
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses, Copy
from statpress.mechanisms.marginals.linear_moments import KISH, ONE
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, combine
from statpress.mechanisms.marginals.weighted_sums import Weights

N = 3000
RNG = np.random.default_rng(3)
STRATUM = np.sort(RNG.integers(0, 3, N))
CLUSTER = 4 * STRATUM + RNG.integers(0, 4, N)  # four of each stratum
X = np.clip(STRATUM + CLUSTER % 4 + RNG.integers(0, 3, N), 0, 6)
Y = np.clip(X + RNG.integers(0, 3, N), 0, 8)
CLASS = np.minimum(RNG.integers(0, 2, N) + STRATUM, 2)
VALUES = np.array([5.0, 15.0, 40.0])
W = VALUES[CLASS]
NAMES = ("h", "c", "x", "y", "w")
CODES = np.stack([STRATUM, CLUSTER, X, Y, CLASS], axis=1).astype(np.uint8)
DOMAIN = Domain(
    (
        *(Integer(name=n, lower=0, upper=u) for n, u in zip(NAMES, (2, 11, 6, 8), strict=False)),
        Numeric(name="w", edges=(0.0, 10.0, 20.0, 60.0)),
    )
)
WHOLE, PAIRS = [(0, 1, 2, 4), (0, 1, 3, 4), (2, 3, 4)], [(2, 4), (3, 4), (0, 2), (0, 4), (0, 1)]
PAIRS += [(1, 2), (1, 4)]


def analyses(groups, *, strata=None, cluster=None, sample=True, total=None) -> Analyses:
    tables = in_memory(DOMAIN, CODES).tables(groups)
    noisy = [
        NoisyTable(group, Fraction(1, 10**6), table * GRID)
        for group, table in zip(groups, tables, strict=True)
    ]
    residuals = combine([c.size for c in DOMAIN.columns], noisy, n_present=N)
    weights = Weights(
        residuals=residuals, column=4, values=VALUES, strata=strata, cluster=cluster, total=total
    )
    return Analyses(
        domain=DOMAIN,
        residuals=residuals,
        sample=Sample(n_units=N) if sample else None,
        weights=weights,
    )


def designed(parts: np.ndarray, strata: np.ndarray | None, cluster: np.ndarray | None) -> float:
    """The textbook variance of a sum of parts float64[N]."""
    strata = np.zeros(N, dtype=int) if strata is None else strata
    found = 0.0
    for h in np.unique(strata):
        own = parts[strata == h]
        if cluster is None:
            found += (own**2).sum() - own.sum() ** 2 / len(own)
            continue
        sums = [parts[cluster == c].sum() for c in np.unique(cluster[strata == h])]
        found += len(sums) * np.var(sums, ddof=1)
    return found


DESIGNS = {
    "independent draws": (None, None),
    "strata": (0, None),
    "clusters": (None, 1),
    "strata and clusters": (0, 1),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_totals_and_means_have_the_variance_of_their_design(design: str) -> None:
    strata, cluster = DESIGNS[design]
    asked = analyses(WHOLE, strata=strata, cluster=cluster)
    columns = (None if strata is None else STRATUM, None if cluster is None else CLUSTER)
    total, mean = asked.total("x", {}), asked.mean("x", {})
    assert total.sampling == mean.sampling == design
    assert total.value == pytest.approx(W @ X)
    assert total.standard_error**2 == pytest.approx(designed(W * X, *columns), rel=1e-6)
    ratio = W @ X / W.sum()
    assert mean.value == pytest.approx(ratio)
    parts = W * (X - ratio) / W.sum()
    assert mean.standard_error**2 == pytest.approx(designed(parts, *columns), rel=1e-6)
    twin = designed(X * np.mean(W), *columns)  # weights ignored
    assert not math.isclose(total.standard_error**2, twin, rel_tol=0.02)


def test_clusters_have_students_quantiles() -> None:
    asked = analyses(WHOLE, strata=0, cluster=1)
    found = asked.total("x", {})
    reach = (found.upper - found.value) / found.standard_error
    assert reach == pytest.approx(2.262157, rel=1e-5)  # 12 clusters in 3 strata


def test_without_a_table_with_the_design_its_mean_weights_stand_for_it() -> None:
    asked = analyses(PAIRS, strata=0)
    total = asked.total("x", {})
    assert total.sampling == "strata"
    squares = (W**2 * X**2).sum()
    for h in range(3):
        own = h == STRATUM
        squares -= (W[own].mean() * X[own].sum()) ** 2 / own.sum()
    assert total.standard_error**2 == pytest.approx(squares, rel=1e-6)
    assert squares == pytest.approx(designed(W * X, STRATUM, None), rel=0.02)


def test_figures_of_the_records_have_no_sampling_variance() -> None:
    asked = analyses(WHOLE, sample=False)
    found = {
        "total": (asked.total("x", {}), W @ X),
        "count": (asked.count({"x": [2, 3]}), W[(X == 2) | (X == 3)].sum()),
        "share": (asked.share("x", [2], {}), W[X == 2].sum() / W.sum()),
        "mean": (asked.mean("x", {"y": [3, 4]}), np.average(X[(Y == 3) | (Y == 4)],
                 weights=W[(Y == 3) | (Y == 4)])),
        "correlation": (asked.correlation("x", "y", {}),
                        np.cov(X, Y, aweights=W)[0, 1]
                        / math.sqrt(np.cov(X, aweights=W) * np.cov(Y, aweights=W))),
    }  # fmt: skip
    for figure, truth in found.values():
        assert figure.value == pytest.approx(truth)
        assert figure.sampling == ""
        assert figure.upper - figure.lower < 1e-3 * abs(truth)


def test_a_quantile_counts_weights() -> None:
    asked = analyses(WHOLE)
    found = asked.quantile("x", 0.5, {})
    order = np.argsort(X, kind="stable")
    reached = np.searchsorted(np.cumsum(W[order]), W.sum() / 2)
    assert X[order][reached] == found.value  # values that are single ones
    assert found.lower <= found.value <= found.upper
    assert found.sampling == "independent draws"


def test_a_regression_is_by_linearisation_or_kishs_factor() -> None:
    x, y = np.column_stack([np.ones(N), X]), Y
    inverse = np.linalg.inv((W[:, None] * x).T @ x)
    slope = inverse @ (x.T @ (W * y))
    left = y - x @ slope
    parts = (W * left)[:, None] * x @ inverse
    asked = analyses(WHOLE)
    terms = (asked.amounts("y")[0], [ONE, asked.amounts("x")[0]])
    measured = asked.regression(*terms)
    for j in range(2):
        assert measured[j].value == pytest.approx(slope[j])
        assert measured[j].standard_error == pytest.approx(
            math.sqrt(designed(parts[:, j], None, None)), rel=1e-6
        )
        assert measured[j].sampling == "independent draws"
    # With a third column no table holds all: errors of one variance, widened by Kish's factor.
    several = analyses([(2, 3, 4), (0, 3, 4), (0, 2, 4)])
    terms = (several.amounts("y")[0], [ONE, several.amounts("x")[0], several.amounts("h")[0]])
    x = np.column_stack([x, STRATUM])
    inverse = np.linalg.inv((W[:, None] * x).T @ x)
    left = y - x @ (inverse @ (x.T @ (W * y)))
    variance = (W * left**2).sum() / W.sum() * (W**2).sum() / W.sum()
    for j, figure in enumerate(several.regression(*terms)):
        assert figure.sampling == KISH
        assert figure.standard_error**2 == pytest.approx(variance * inverse[j, j], rel=0.01)


def test_what_was_not_measured_with_the_weight_is_refused() -> None:
    with pytest.raises(NotMeasuredError):
        analyses([(2, 3), (2, 4), (3, 4)]).mean("x", {"y": [1]})


def test_totals_are_scaled_to_the_public_number() -> None:
    asked = analyses(WHOLE, total=1000.0)
    found, mean = asked.total("x", {}), asked.mean("x", {})
    assert found[:4] == pytest.approx([1000 * each for each in mean[:4]])
    everyone = asked.count({})
    assert everyone.value == pytest.approx(1000)
    assert everyone.upper - everyone.lower < 1e-6


def test_copies_count_their_own_weights() -> None:
    weights = W * RNG.uniform(0.8, 1.2, N)
    own = analyses(WHOLE)
    copied = CopiedAnalyses(
        domain=DOMAIN, residuals=own.residuals, sample=own.sample, weights=own.weights,
        copies=[Copy(CODES.astype(np.int64), weights)] * 2,
    )  # fmt: skip
    mean, total = copied.mean("x", {}), copied.total("x", {})
    ratio = weights @ X / weights.sum()
    parts = weights * (X - ratio) / weights.sum()
    assert mean.value == pytest.approx(ratio)
    assert mean.standard_error**2 == pytest.approx(designed(parts, None, None) * N / (N - 1))
    assert total.value == pytest.approx(weights @ X)
    assert total.standard_error**2 == pytest.approx(N * np.var(weights * X, ddof=1))
    share = copied.share("x", [2], {})
    assert share.value == pytest.approx(weights[X == 2].sum() / weights.sum())
    r = np.cov(X, Y, aweights=weights)
    correlation = copied.correlation("x", "y", {})
    assert correlation.value == pytest.approx(r[0, 1] / math.sqrt(r[0, 0] * r[1, 1]))
