"""Our minimisers of a regularised risk against those of scikit-learn 1.9.1.

The same problem (weighted rows, no intercept, a Gaussian kernel of width 0.2 as the rows of a
square root of its matrix) was given to ``LinearSVC(loss="hinge", fit_intercept=False)``, to
``LogisticRegression(fit_intercept=False, solver="newton-cholesky")`` and to ``Ridge(
fit_intercept=False, alpha=1)``, at tolerances of 1e-12 and below. scikit-learn is not installed
for this: deploy/decisions/0008 says why.
"""

from __future__ import annotations

import numpy as np
import pytest

from statpress.mechanisms.domain.columns import Ordinal
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.functions.function_targets import FunctionKnobs
from statpress.mechanisms.functions.risk import EmpiricalRisk

N = 124
FIGURES = {
    "svm": [-0.7181523381, -0.9649966207, -0.2187920170, 0.4053312826, 0.3162636119],
    "kernel_logistic": [-0.2559662213, -0.3389571085, -0.0575368877, 0.1608278362, 0.1187112306],
    "logistic": [-0.1837743350, -0.1454216146, -0.1070688941, -0.0687161736, -0.0303634532],
    "ridge": [-0.2208405712, -0.1489689728, -0.0770973743, -0.0052257759, 0.0666458226],
}


def setting() -> ContingencyTable:
    """21 places 0, 0.05, .., 1 with counts of the labels -1 and 1."""
    places, x = np.arange(21), np.arange(21) / 20
    negative = (places * 7) % 5 + (x < 0.5) * 3
    positive = (places * 3) % 4 + (x > 0.4) * 2
    domain = Domain(
        (
            Ordinal(name="x", categories=tuple(x.tolist())),
            Ordinal(name="label", categories=(-1, 1)),
        )
    )
    cells = domain.encode({"x": np.tile(places, 2), "label": np.repeat([0, 1], 21)})
    counts = np.concatenate([negative, positive])
    return ContingencyTable.from_cells(domain, cells[counts > 0], counts[counts > 0])


@pytest.mark.parametrize("target", FIGURES)
def test_the_minimisers_are_those_of_scikit_learn(target: str) -> None:
    table = setting()
    assert table.counts.sum() == N
    beside = {"response" if target == "ridge" else "label": "label"}
    width = {"bandwidth": 0.2} if target in ("svm", "kernel_logistic") else {}
    knobs = FunctionKnobs(target=target, cost=5.0, **beside, **width)
    learner = knobs.learner(table.domain, N)
    assert isinstance(learner, EmpiricalRisk)
    assert learner.tolerance < 2e-3
    allowed = learner.tolerance * 2**0.5  # the kernel's norm is at most that
    np.testing.assert_allclose(learner.values(table, 4), FIGURES[target], rtol=0, atol=allowed)
