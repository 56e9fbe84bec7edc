"""A user-defined statistic that fails on some records cannot stop a release."""

from __future__ import annotations

from typing import Any

import numpy as np

from statpress.mechanisms.estimates.statistics import evaluated


class Failing:
    """A mean that fails where the last record is in a row, and so does a batch with it."""

    columns, dimension, constant, bounds = 1, 1, 1, (0.25, 1.0)

    def evaluate(self, weights: Any, columns: Any) -> Any:
        if weights[:, -1].any():
            raise ZeroDivisionError
        return weights @ columns / weights.sum(axis=1, keepdims=True)


def test_a_row_that_fails_becomes_the_lower_bound_and_the_others_stay() -> None:
    weights, columns = np.array([[2, 0, 0], [1, 1, 0], [0, 1, 1]]), np.array([[0.5], [1.0], [0.0]])
    np.testing.assert_array_equal(evaluated(Failing(), weights, columns)[:, 0], [0.5, 0.75, 0.25])
