"""diffprivlib: counts of a table by ``histogramdd``, and ``mean``.

Its documentation does not name an adjacency. The sensitivity 1 of a histogram is that of one record
added or removed; (upper - lower)/n of a mean that of one record replaced, n being public.
"""

from __future__ import annotations

import diffprivlib
import numpy as np
from task_file import Task, answer, unit_values


def table(task: Task, codes: np.ndarray) -> np.ndarray:
    """Noisy counts of all cells."""
    edges = [np.arange(task["sizes"][j] + 1) - 0.5 for j in task["columns"]]
    found, _ = diffprivlib.tools.histogramdd(
        codes[:, task["columns"]].astype(float),
        epsilon=task["epsilon"],
        bins=edges,
        random_state=task["seed"],
    )
    return found.ravel()


def mean(task: Task, codes: np.ndarray) -> list[float]:
    """Mean of values in [0, 1]."""
    values = unit_values(task, codes)
    return [
        diffprivlib.tools.mean(
            values, epsilon=task["epsilon"], bounds=(0.0, 1.0), random_state=task["seed"]
        )
    ]


if __name__ == "__main__":
    answer("diffprivlib", {"laplace": table, "mean": mean})
