"""dp-accounting: epsilon of a composed plan by its privacy loss distributions.

The noise of a part is discrete and its sensitivity given, so that the adjacency is that of the
plan: here one record replaced, of every product two cells that move by one.
"""

from __future__ import annotations

import functools

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from task_file import Task, answer


def composed(task: Task, _: np.ndarray) -> list[float]:
    """Upper bound of epsilon at delta of all parts, (kind, noise of a cell, how many cells)."""
    parts = [
        (
            pld.from_discrete_gaussian_mechanism(noise, sensitivity=1)
            if kind == "gaussian"
            else pld.from_discrete_laplace_mechanism(1 / noise, sensitivity=1)
        ).self_compose(times)
        for kind, noise, times in task["parts"]
    ]
    whole = functools.reduce(lambda one, other: one.compose(other), parts)
    return [whole.get_epsilon_for_delta(task["delta"])]


if __name__ == "__main__":
    answer("dp-accounting", {"composed": composed})
