"""`inference: guaranteed` on products: who serves it, what is refused, what is published."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from estimating import EPSILON_DELTA, calibrated, draw, released, seeded, table_of

from statpress.mechanisms.errors import ConfigError
from statpress.mechanisms.estimates.estimand import Among, EstimandKnobs
from statpress.mechanisms.estimates.estimate import ESTIMATE
from statpress.mechanisms.estimates.fieller import WHOLE_LINE
from statpress.mechanisms.estimates.joint_moments import MeanEstimate
from statpress.mechanisms.estimates.noisy_quantile import QuantileOfCells
from statpress.mechanisms.estimates.pair_moments import PairEstimate
from statpress.mechanisms.estimates.subsample_split import SplitEstimate
from statpress.mechanisms.registry import REGISTRY

SERVED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "mean": (MeanEstimate, {}, "age"),
    "sum": (MeanEstimate, {}, "age"),
    "count": (MeanEstimate, {"values": ("m",)}, "sex"),
    "proportion": (MeanEstimate, {"values": ("m",)}, "sex"),
    "variance": (PairEstimate, {}, "age"),
    "median": (QuantileOfCells, {}, "age"),
}

MOST_WIDTH = {"mean": 1.7, "sum": 1.7, "count": 1.05, "proportion": 1.05, "variance": 3}


def knobs_of(statistic: str, inference: Any = "guaranteed") -> EstimandKnobs:
    own = SERVED[statistic][1]
    return EstimandKnobs(statistic=statistic, inference=inference, confidence=0.9, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize("statistic", SERVED)
def test_it_is_published_as_guaranteed_and_holds_the_estimate(statistic: str) -> None:
    kind, _, name = SERVED[statistic]
    (found,) = released(kind, knobs_of(statistic), [name], 1000, 2, **EPSILON_DELTA)
    assert found.inference == "guaranteed"
    assert found.lower < found.value < found.upper
    if statistic != "median":  # whose interval always is
        (normal,) = released(
            kind, knobs_of(statistic, "asymptotic"), [name], 1000, 2, **EPSILON_DELTA
        )
        assert normal.inference == "asymptotic"
        ratio = (found.upper - found.lower) / (normal.upper - normal.lower)
        assert 0.95 < ratio < MOST_WIDTH[statistic]
        made = calibrated(kind, knobs_of(statistic), [name], n=1000, **EPSILON_DELTA)
        assert made.guarantee_cost == pytest.approx(ratio, rel=0.5)
        (width,) = made.expected_error(n_records=1000, n_cells=100).width
        assert 0.5 < (found.upper - found.lower) / width < 2


@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_the_description_is_kept(statistic: str) -> None:
    kind, _, name = SERVED[statistic]
    made = calibrated(kind, knobs_of(statistic), [name], **EPSILON_DELTA)
    again = kind.from_description(made.describe())
    assert again == made and again.guaranteed
    before = calibrated(kind, knobs_of(statistic, "asymptotic"), [name], **EPSILON_DELTA)
    assert "inference" not in before.describe()  # as descriptions always were
    assert before.loss(n_records=1000, n_cells=100) == made.loss(n_records=1000, n_cells=100)


def test_only_mechanisms_with_a_guarantee_are_tried() -> None:
    serving = [each for each in REGISTRY.values() if ESTIMATE in each.kinds]
    certain = {name for name, _, _ in ESTIMATE.variants(knobs_of("mean"), serving)}
    every = {name for name, _, _ in ESTIMATE.variants(knobs_of("mean", "asymptotic"), serving)}
    assert certain == {"joint_moments", "pair_moments", "regression_moments", "noisy_quantile"}
    assert every == certain | {"dp_bootstrap", "subsample_split"}


@pytest.mark.parametrize(
    ("kind", "statistic", "names", "own"),
    [
        (PairEstimate, "ratio", ["pay", "debt"], {}),
        (PairEstimate, "covariance", ["age", "pay"], {}),
        (PairEstimate, "mean", ["age", "sex"], {"where": Among(column="sex", values=("m",))}),
        (SplitEstimate, "mean", ["age"], {}),
    ],
)
def test_what_has_no_guarantee_is_refused(
    kind: Any, statistic: Any, names: list[str], own: dict[str, Any]
) -> None:
    asked = EstimandKnobs(statistic=statistic, inference="guaranteed", **own)
    if kind is SplitEstimate:
        asked = SplitEstimate.knobs(statistic=statistic, inference="guaranteed")
    with pytest.raises(ConfigError, match="no guaranteed interval"):
        calibrated(kind, asked, names, **EPSILON_DELTA)


def test_an_unbounded_set_is_published_as_one() -> None:
    """A slope from so little that nothing can be said of it."""
    codes = draw(60, 3)
    made = calibrated(
        PairEstimate, EstimandKnobs(statistic="regression"), ["pay", "age"], n=60,
        epsilon=0.05, delta=1e-6,
    )  # fmt: skip
    shapes = []
    for seed in range(12):
        table = table_of(["pay", "age"], codes)
        for found in made.estimates(made.release(table, seeded(seed))):
            shapes.append(found.shape)
            assert (found.shape == WHOLE_LINE) == bool(
                np.isinf(found.lower) and np.isinf(found.upper) and found.gap is None
            )
            assert found.standard_error is None or found.shape == "interval"
            assert found.valid
    assert shapes.count(WHOLE_LINE) > 12
