"""Weighted figures of tables and of copies, and their sampling variance, against NumPy."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from coded import in_memory
from scipy.stats import norm, t

from statpress.mechanisms.domain.columns import Integer, Numeric
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.errors import NotMeasuredError
from statpress.mechanisms.marginals.analyses import Analyses
from statpress.mechanisms.marginals.copied_analyses import CopiedAnalyses, Copy
from statpress.mechanisms.marginals.linear_moments import (
    KISH,
    ONE,
    CellFunction,
    sampling,
    wald,
)
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import GRID, NoisyTable, combine
from statpress.mechanisms.marginals.weighted_sums import SampleDesign, Weights
from statpress.tasks.release.combining import fitted

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


def analyses(
    groups, *, strata=None, cluster=None, sample=True, total=None, codes=CODES
) -> Analyses:
    tables = in_memory(DOMAIN, codes).tables(groups)
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


def designed(
    parts: np.ndarray,
    strata: np.ndarray | None,
    cluster: np.ndarray | None,
    *,
    pooled: bool = False,
) -> float:
    """The textbook variance of a sum of parts float64[N]; pooled: one factor for all strata."""
    strata = np.zeros(N, dtype=int) if strata is None else strata
    found = 0.0
    for h in np.unique(strata):
        own = parts[strata == h]
        if cluster is None:
            within = (own**2).sum() - own.sum() ** 2 / len(own)
            found += within if pooled else len(own) / (len(own) - 1) * within
            continue
        sums = [parts[cluster == c].sum() for c in np.unique(cluster[strata == h])]
        found += len(sums) * np.var(sums, ddof=1)
    return found * (N / (N - len(np.unique(strata))) if pooled and cluster is None else 1)


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
    assert total.standard_error**2 == pytest.approx(
        designed(W * X, *columns, pooled=True), rel=1e-6
    )
    ratio = W @ X / W.sum()
    assert mean.value == pytest.approx(ratio)
    parts = W * (X - ratio) / W.sum()
    assert mean.standard_error**2 == pytest.approx(designed(parts, *columns, pooled=True), rel=1e-6)
    twin = designed(X * np.mean(W), *columns)  # weights ignored
    assert not math.isclose(total.standard_error**2, twin, rel_tol=0.02)


def test_clusters_have_students_quantiles() -> None:
    asked = analyses(WHOLE, strata=0, cluster=1)
    found = asked.total("x", {})
    reach = (found.upper - found.value) / found.standard_error
    assert reach == pytest.approx(2.262157, rel=1e-5)  # 12 clusters in 3 strata


def test_p_values_are_students_too() -> None:
    """A p-value is below .05 exactly where the interval leaves out 0, by every figure."""
    asked = analyses(WHOLE, strata=0, cluster=1)
    total = asked.total("x", {})
    t = total.value / total.standard_error
    just = wald(2.2 * total.standard_error, total.standard_error, 0.95).at_level(0.95, 0.977)
    assert just.p_value > 0.05 > wald(2.2, 1.0, 0.95).p_value
    assert total.p_value == pytest.approx(2 * norm.sf(t * 1.959964 / 2.262157), rel=1e-3)


def test_strata_of_one_cluster_are_taken_together() -> None:
    """Else they would add nothing between clusters, and be told as if they did."""
    codes = CODES.copy()
    others = np.setdiff1d(np.arange(12), [4, 8])
    codes[STRATUM == 0, 1] = others[np.arange(np.sum(STRATUM == 0)) % 10]
    codes[STRATUM > 0, 1] = 4 * STRATUM[STRATUM > 0]  # one cluster of each of two strata
    strata = analyses(WHOLE, strata=0, cluster=1, codes=codes).weights._strata_of_clusters
    assert strata[4] == strata[8] != strata[0] == strata[3]
    codes[:, 1] = np.where(STRATUM == 2, 8, CLUSTER)  # and of one only, beside four of each other
    others = np.array([0, 1, 2, 3, 9, 10, 11])
    codes[STRATUM == 0, 1] = others[np.arange(np.sum(STRATUM == 0)) % 7]
    strata = analyses(WHOLE, strata=0, cluster=1, codes=codes).weights._strata_of_clusters
    assert strata[8] == strata[4] == strata[7] != strata[0] == strata[11]


def test_nothing_is_taken_off_for_a_stratum_whose_size_the_noise_hides() -> None:
    clear, hidden = (analyses(WHOLE, strata=0).weights for _ in range(2))
    functions = [CellFunction((2,), np.arange(7.0))]
    variances = {**hidden.residuals.variances, (0,): 1e6}
    noisy = replace(hidden, residuals=replace(hidden.residuals, variances=variances))
    each = sampling(clear.residuals, [f * clear.of_record for f in functions])
    assert noisy._of_design(functions, each)[0, 0] >= each[0, 0] * (1 - 1e-9)
    assert clear._of_design(functions, each)[0, 0] < 0.9 * each[0, 0]


def test_without_a_table_with_the_design_its_mean_weights_stand_for_it() -> None:
    asked = analyses(PAIRS, strata=0)
    total = asked.total("x", {})
    assert total.sampling == "strata"
    squares = (W**2 * X**2).sum()
    for h in range(3):
        own = h == STRATUM
        squares -= (W[own].mean() * X[own].sum()) ** 2 / own.sum()
    squares *= N / (N - 3)
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


def test_raked_copies_of_fewer_records_have_the_public_total() -> None:
    own = analyses(WHOLE, total=4000.0)
    some = CODES[:250].astype(np.int64)
    weights = W[:250] * (4000 / W[:250].sum())
    copied = CopiedAnalyses(
        domain=DOMAIN, residuals=own.residuals, sample=own.sample, weights=own.weights,
        copies=[Copy(some, weights)] * 2, scale=N / 250,
    )  # fmt: skip
    assert copied.count({}).value == pytest.approx(4000)


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
    assert mean.standard_error**2 == pytest.approx(designed(parts, None, None))
    assert total.value == pytest.approx(weights @ X)
    assert total.standard_error**2 == pytest.approx(N * np.var(weights * X, ddof=1))
    share = copied.share("x", [2], {})
    assert share.value == pytest.approx(weights[X == 2].sum() / weights.sum())
    r = np.cov(X, Y, aweights=weights)
    correlation = copied.correlation("x", "y", {})
    assert correlation.value == pytest.approx(r[0, 1] / math.sqrt(r[0, 0] * r[1, 1]))


@pytest.mark.parametrize("design", DESIGNS)
def test_figures_of_copies_have_the_variance_of_their_design(design: str) -> None:
    strata, cluster = DESIGNS[design]
    own = analyses(WHOLE, strata=strata, cluster=cluster)
    columns = (None if strata is None else STRATUM, None if cluster is None else CLUSTER)
    drawn = SampleDesign(*columns)
    copies = [Copy(CODES.astype(np.int64), W, drawn)] * 2
    copied = CopiedAnalyses(
        domain=DOMAIN, residuals=own.residuals, sample=own.sample, weights=own.weights,
        copies=copies,
    )  # fmt: skip

    def of_mean(there: np.ndarray) -> np.ndarray:
        return there * W * (X - W[there] @ X[there] / W[there].sum()) / W[there].sum()

    some, others = Y > 4, Y < 3
    parts = {
        "total": W * X,
        "mean": of_mean(np.ones(N, dtype=bool)),
        "mean of some": of_mean(some),
        "difference": of_mean(some) - of_mean(others),
    }
    found = {
        "total": copied.total("x", {}),
        "mean": copied.mean("x", {}),
        "mean of some": copied.mean("x", {"y": range(5, 9)}),
        "difference": copied.difference("x", {"y": range(5, 9)}, {"y": range(3)}),
    }
    for figure, interval in found.items():
        assert interval.sampling == design
        wanted = designed(parts[figure], *columns)
        if design == "independent draws":  # by the records that count
            assert interval.standard_error**2 == pytest.approx(wanted, rel=0.01)
        else:
            assert interval.standard_error**2 == pytest.approx(wanted, rel=1e-9)
    mean = found["mean"]
    clusters = {"clusters": 11, "strata and clusters": 9}.get(design)
    reach = (mean.upper - mean.value) / mean.standard_error
    if clusters is None:
        assert reach == pytest.approx(norm.ppf(0.975))
    else:  # Barnard and Rubin's degrees of freedom of copies that agree
        assert reach == pytest.approx(t.ppf(0.975, clusters * (clusters + 1) / (clusters + 3)))


def test_small_strata_count_by_their_own_records() -> None:
    """One of four records that vary much beside one of 400; the twin has one factor for both."""
    rng = np.random.default_rng(5)
    strata = np.repeat([0, 1], [4, 400])
    found, pooled, sums = [], [], []
    for _ in range(4000):
        parts = np.where(strata == 0, 10.0, 1.0) * rng.standard_normal(404)
        found.append(float(SampleDesign(strata).variance(parts)))
        within = [(own**2).sum() - own.sum() ** 2 / len(own) for own in (parts[:4], parts[4:])]
        pooled.append(404 / 402 * sum(within))
        sums.append(parts.sum())
    assert np.mean(found) / np.var(sums) == pytest.approx(1, abs=0.1)
    assert np.mean(pooled) / np.var(sums) < 0.9


def test_strata_of_one_record_are_taken_together() -> None:
    parts = np.array([1.0, 4.0, 2.0, 5.0, 6.0])
    alone, together = (np.array(codes) for codes in ([0, 1, 2, 2, 2], [0, 0, 2, 2, 2]))
    assert SampleDesign(alone).variance(parts) == SampleDesign(together).variance(parts) > 0


def test_a_correlation_of_copies_is_linearised() -> None:
    """By resampling clusters: the standard error of Fisher's z."""
    own, drawn = analyses(WHOLE, strata=0, cluster=1), SampleDesign(STRATUM, CLUSTER)
    copied = CopiedAnalyses(
        domain=DOMAIN, residuals=own.residuals, sample=own.sample, weights=own.weights,
        copies=[Copy(CODES.astype(np.int64), W, drawn)] * 2,
    )  # fmt: skip
    found = copied.correlation("x", "y", {})
    z = []
    for left_out in range(12):  # the jackknife of one cluster in a stratum of four
        weights = np.where(left_out == CLUSTER, 0.0, W)
        weights[(left_out // 4 == CLUSTER // 4) & (left_out != CLUSTER)] *= 4 / 3
        covariance = np.cov(X, Y, aweights=weights)
        z.append(np.arctanh(covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])))
    by_stratum = np.array(z).reshape(3, 4)
    jackknife = 3 / 4 * ((by_stratum - by_stratum.mean(axis=1, keepdims=True)) ** 2).sum()
    error = math.sqrt(jackknife) * (1 - found.value**2)
    assert found.standard_error == pytest.approx(error, rel=0.1)


def test_regressions_of_a_copy_have_the_variance_of_their_design() -> None:
    records = pd.DataFrame({"x": X, "y": Y, "w": W, "h": STRATUM, "c": CLUSTER})
    x = np.column_stack([np.ones(N), X])
    inverse = np.linalg.inv((W[:, None] * x).T @ x)
    slope = inverse @ (x.T @ (W * Y))
    parts = (W * (Y - x @ slope))[:, None] * x @ inverse
    found, spread = fitted("y ~ x", records, "w", "h", "c")
    assert found.to_numpy() == pytest.approx(slope)

    def wanted_of(parts: np.ndarray) -> list[float]:  # at least that of single records
        return [max(designed(p, STRATUM, c) for c in (CLUSTER, None)) for p in parts.T]

    wanted = wanted_of(parts)
    assert spread.to_numpy() == pytest.approx(wanted)
    means = fitted("y ~ 1", records, "w", "h", "c")[1].to_numpy()
    assert means[0] > 1.5 * fitted("y ~ 1", records, "w")[1].to_numpy()[0]  # the twin: no design
    blank = records.assign(x=records["x"].where(records["y"] < 8))
    some = blank["x"].notna().to_numpy()
    inverse = np.linalg.inv((W[some, None] * x[some]).T @ x[some])
    left = Y[some] - x[some] @ (inverse @ (x[some].T @ (W[some] * Y[some])))
    parts = np.zeros((N, 2))
    parts[some] = (W[some] * left)[:, None] * x[some] @ inverse
    spread = fitted("y ~ x", blank, "w", "h", "c")[1].to_numpy()
    assert spread == pytest.approx(wanted_of(parts))
