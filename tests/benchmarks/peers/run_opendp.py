"""OpenDP: counts of a table, a mean, and synthetic records by its AIM and MST.

Adjacency: as declared, here ``unit_of(contributions=1)``: one record added or removed. Budgets of
(epsilon, delta) are turned into rho by the library's own conversion of zCDP. All AIM here have the
workload of all pairs of columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp
import polars as pl
from task_file import Task, answer, cells, names, unit_values

dp.enable_features("contrib")


def rho_of(epsilon: float, delta: float) -> float:
    """The largest rho that the library converts to at most epsilon at delta."""
    space = dp.atom_domain(T="i32"), dp.absolute_distance(T="i32")

    def spent(rho: float) -> float:
        noise = dp.m.make_gaussian(*space, scale=math.sqrt(0.5 / rho))
        return float(dp.c.make_zCDP_to_approxDP(noise).map(1).epsilon(delta))

    low, high = 1e-6, 10.0
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) <= epsilon else (low, middle)
    return low


def table(task: Task, codes: np.ndarray, gaussian: bool) -> np.ndarray:
    """Noisy counts of all cells."""
    flat, size = cells(task, codes)
    counting = dp.t.make_count_by_categories(
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.symmetric_distance(),
        categories=list(range(size)),
        null_category=False,
        MO=dp.L2Distance["i32"] if gaussian else dp.L1Distance["i32"],
        TOA="i32",
    )
    if gaussian:
        goal = rho_of(task["epsilon"], task["delta"])
        made = dp.binary_search_chain(lambda s: counting >> dp.m.then_gaussian(s), 1, goal)
    else:
        made = dp.binary_search_chain(
            lambda s: counting >> dp.m.then_laplace(s), 1, task["epsilon"]
        )
    return np.array(made(flat.tolist()))


def mean(task: Task, codes: np.ndarray) -> list[float]:
    """Mean of values in [0, 1] of a dataset of known size, one record replaced."""
    values = unit_values(task, codes)
    summing = dp.t.make_mean(
        dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0)), size=len(values)),
        dp.symmetric_distance(),
    )
    made = dp.binary_search_chain(lambda s: summing >> dp.m.then_laplace(s), 2, task["epsilon"])
    return [made(values.tolist())]


def _of_first_that_adds_up(released: Callable[[float], Any], rho: float) -> Any:
    """A release at rho, or a few trillionths below.

    The parts that MST divides rho into may add up to more than it, by one unit of rounding, which
    the library refuses: for 15 columns at ε = 0.3, 1 and 3 it does.
    """
    for trillionths in range(8):
        try:
            return released(rho * (1 - trillionths * 1e-12))
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error):
                raise
    raise ValueError("no rho adds up")


def synthetic(
    task: Task, codes: np.ndarray, algorithm: object, method: str = "round"
) -> np.ndarray:
    """As many records as there are, by an algorithm of the contingency tables."""
    columns = names(task)
    frame = pl.DataFrame({c: codes[:, j].astype(np.int64) for j, c in enumerate(columns)})
    keys = {c: list(range(k)) for c, k in zip(columns, task["sizes"], strict=True)}

    def released(rho: float) -> Any:
        context = dp.Context.compositor(
            data=frame.lazy(),
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(rho=rho),
        )
        query = context.query(rho=rho).select(*columns)
        return query.contingency_table(keys=keys, algorithm=algorithm).release()

    made = _of_first_that_adds_up(released, rho_of(task["epsilon"], task["delta"]))
    made = made.synthesize(rows=len(codes), method=method)
    # The library adds a cell for missing values; what falls there is drawn evenly.
    rng = np.random.default_rng(task["seed"])
    found = np.empty(codes.shape, np.int64)
    for j, (column, size) in enumerate(zip(columns, task["sizes"], strict=True)):
        values = made[column]
        missing = values.is_null().to_numpy()
        found[:, j] = values.fill_null(0).to_numpy()
        found[missing, j] = rng.integers(0, size, missing.sum())
    return found.astype(np.uint8)


if __name__ == "__main__":
    answer(
        "opendp",
        {
            "laplace": lambda task, codes: table(task, codes, gaussian=False),
            "gaussian": lambda task, codes: table(task, codes, gaussian=True),
            "mean": mean,
            "aim": lambda task, codes: synthetic(task, codes, dp.mbi.AIM(queries=2)),
            "mst": lambda task, codes: synthetic(task, codes, dp.mbi.MST()),
            "aim_sampled": lambda task, codes: synthetic(
                task, codes, dp.mbi.AIM(queries=2), "sample"
            ),
            "mst_sampled": lambda task, codes: synthetic(task, codes, dp.mbi.MST(), "sample"),
        },
    )
