"""dpmm: synthetic records by its AIM, MST and PrivBayes, on codes as they are.

Its documentation does not name an adjacency; the mechanisms are adapted from private-pgm, and their
noise is that of one record added or removed (sensitivity 1 of a marginal). All AIM here have the
workload of all pairs of columns, its default.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
from task_file import Task, answer, names


def synthetic(task: Task, codes: np.ndarray, model: type) -> np.ndarray:
    """As many records as there are."""
    columns = names(task)
    made = model(
        epsilon=task["epsilon"],
        delta=task["delta"],
        domain=dict(zip(columns, task["sizes"], strict=True)),
        random_state=np.random.RandomState(task["seed"]),
        n_jobs=1,
    )
    made.set_random_state(np.random.RandomState(task["seed"]))
    frame = pd.DataFrame({c: codes[:, j].astype(np.int64) for j, c in enumerate(columns)})
    made.fit(frame)
    found = made.generate(n_records=len(codes))
    return found[columns].to_numpy().astype(np.uint8)


if __name__ == "__main__":
    answer(
        "dpmm",
        {
            "aim": lambda task, codes: synthetic(task, codes, AIMGM),
            "mst": lambda task, codes: synthetic(task, codes, MSTGM),
            "privbayes": lambda task, codes: synthetic(task, codes, PrivBayesGM),
        },
    )
