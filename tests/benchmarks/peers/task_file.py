"""What a runner is asked and what it answers; NumPy only, as every peer's environment has it.

A runner is called with the path of a task: JSON with ``method``, ``data`` (codes as .npy, n by d),
``sizes``, ``epsilon``, ``delta``, ``seed``, ``columns`` (of a table, or of a mean),
``answers`` (where the answers go, .npy) and ``result`` (where the figures go, JSON).
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

Task = dict[str, Any]


def answer(package: str, methods: dict[str, Callable[[Task, np.ndarray], Any]]) -> None:
    """Run the method of a task; what was imported before is not in its seconds."""
    task = json.loads(Path(sys.argv[1]).read_text())
    codes = np.load(task["data"]) if task["data"] else np.zeros((0, 0), np.uint8)
    wall, work = time.perf_counter(), time.process_time()
    found = methods[task["method"]](task, codes)
    wall, work = time.perf_counter() - wall, time.process_time() - work
    np.save(task["answers"], np.asarray(found))
    result = {
        "version": version(package),
        "seconds": wall,
        "cpu_seconds": work,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    Path(task["result"]).write_text(json.dumps(result))


def names(task: Task) -> list[str]:
    """Names of all columns."""
    return [f"c{j}" for j in range(len(task["sizes"]))]


def cells(task: Task, codes: np.ndarray) -> tuple[np.ndarray, int]:
    """The cell of every record in the table of the task's columns, and how many there are."""
    shape = [task["sizes"][j] for j in task["columns"]]
    flat = np.ravel_multi_index([codes[:, j].astype(np.int64) for j in task["columns"]], shape)
    return flat, int(np.prod(shape))


def unit_values(task: Task, codes: np.ndarray) -> np.ndarray:
    """The values of the task's column, spread evenly over [0, 1]."""
    (column,) = task["columns"]
    return codes[:, column] / (task["sizes"][column] - 1)
