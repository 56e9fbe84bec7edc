"""What peers are asked, asked of this project; in its own environment.

Of a table both columns that are published: the estimates, and what they are when projected onto the
number of records, under add-remove that of the noisy counts. Noise is that of production.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from coded import in_memory  # noqa: E402
from randomgen import AESCounter  # noqa: E402
from task_file import Task, answer, cells, unit_values  # noqa: E402

from statpress.mechanisms.accounting.composition import compose  # noqa: E402
from statpress.mechanisms.accounting.noise_losses import DiscreteGaussianLoss, DiscreteLaplaceLoss  # noqa: E402
from statpress.mechanisms.domain.columns import Categorical, Integer, Ordinal  # noqa: E402
from statpress.mechanisms.domain.contingency_table import ContingencyTable  # noqa: E402
from statpress.mechanisms.domain.domain import Adjacency, Domain  # noqa: E402
from statpress.mechanisms.estimates.joint_moments import JointMoments  # noqa: E402
from statpress.mechanisms.marginals.marginals import (  # noqa: E402
    Marginals,
    MarginalsKnobs,
)
from statpress.mechanisms.marginals.swaps import compiled_column  # noqa: E402
from statpress.mechanisms.mechanism import Target  # noqa: E402
from statpress.mechanisms.postprocessing.consistency import project_to_simplex  # noqa: E402
from statpress.mechanisms.tables.perturbed import (  # noqa: E402
    GaussianTable,
    LaplaceTable,
    Perturbed,
    PerturbedKnobs,
)
from statpress.tasks.release.entropy import SystemRandomness  # noqa: E402

REPLACED, ADDED = Adjacency


def marginals(task: Task, codes: np.ndarray, adjacency: Adjacency) -> np.ndarray:
    """Synthetic records by ``marginals`` with all defaults."""
    kinds = (
        (Ordinal if ordered else Categorical)(name=f"c{j}", categories=tuple(range(size)))
        for j, (size, ordered) in enumerate(zip(task["sizes"], task["ordered"], strict=True))
    )
    domain, n = Domain(tuple(kinds)), len(codes)
    budget = {"epsilon": task["epsilon"], "delta": task["delta"], "n_records": n, "n_cells": 2}
    target = Target(**budget, domain=domain, adjacency=adjacency)
    made = Marginals.calibrate(MarginalsKnobs(), target)
    release = made.release(in_memory(domain, codes), SystemRandomness(AESCounter()))
    return np.stack(made.postprocess(release).codes, axis=1)


def table(task: Task, codes: np.ndarray, kind: type[Perturbed], adjacency: Adjacency) -> np.ndarray:
    """Counts of all cells, float64[2, cells]: estimates, projected."""
    flat, size = cells(task, codes)
    domain = Domain((Integer(name="cell", lower=0, upper=size - 1),))
    found, counts = np.unique(flat, return_counts=True)
    private = ContingencyTable(domain, found, counts.astype(np.int64))
    delta = 0.0 if kind.pure else task["delta"]
    target = Target(
        epsilon=task["epsilon"],
        delta=delta,
        n_records=len(codes),
        n_cells=size,
        adjacency=adjacency,
    )
    made = kind.calibrate(PerturbedKnobs(), target)
    released = made.release(private, SystemRandomness(AESCounter()))
    public = adjacency is Adjacency.REPLACE_ONE
    total = len(codes) if public else made.total(released).records
    estimates = made.postprocess(released, n_records=total).estimates
    return np.stack([estimates, project_to_simplex(estimates, total).values])


def mean(task: Task, codes: np.ndarray) -> list[float]:
    """A mean with its variance, Gaussian noise; records replaced."""
    target = Target(epsilon=task["epsilon"], delta=task["delta"], n_records=len(codes), n_cells=2)
    made = JointMoments.calibrate(target.largest_mu(), lower=0.0, upper=1.0)
    values, counts = np.unique(unit_values(task, codes), return_counts=True)
    return [made.release(values, counts, SystemRandomness(AESCounter())).mean]


def composed(task: Task, _: np.ndarray) -> list[float]:
    """Bounds of epsilon at delta of all parts, (kind, noise of a cell, how many cells)."""
    losses = []
    for kind, noise, times in task["parts"]:
        scale = Fraction(noise)
        one_cell = (
            DiscreteGaussianLoss(scale**2, 1, 1)
            if kind == "gaussian"
            else DiscreteLaplaceLoss(scale, 1, 1)
        )
        losses += times * [one_cell]
    bounds = compose(losses).epsilon(task["delta"])
    if not math.isfinite(bounds.upper):
        raise RuntimeError("no bound")
    return [bounds.upper, bounds.lower]


if __name__ == "__main__":
    compiled_column("uint8")
    answer(
        "statpress",
        {
            "marginals": lambda task, codes: marginals(task, codes, REPLACED),
            "marginals_add_remove": lambda task, codes: marginals(task, codes, ADDED),
            "laplace": lambda task, codes: table(task, codes, LaplaceTable, REPLACED),
            "laplace_add_remove": lambda task, codes: table(task, codes, LaplaceTable, ADDED),
            "gaussian": lambda task, codes: table(task, codes, GaussianTable, REPLACED),
            "gaussian_add_remove": lambda task, codes: table(task, codes, GaussianTable, ADDED),
            "mean": mean,
            "composed": composed,
        },
    )
