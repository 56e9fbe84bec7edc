"""Who is asked for what."""

from __future__ import annotations

from dataclasses import dataclass

SEEDS = 3
ADD_REMOVE, REPLACE = "add/remove", "replace-one"
TABLES: dict[str, tuple[tuple[int, ...], ...]] = {
    "census2000": ((0, 1), (0, 1, 2, 3)),
    "happiness": ((4, 5), (4, 5, 12)),
    "adult": (),
    "kdd": (),
}
"""Columns of the contingency tables, by position; some tables are for records only."""
MEANS = {"census2000": 1, "happiness": 12}
PLAN = (("laplace", 100, 80), ("gaussian", 40, 80))
"""Forty tables with each kind of noise; of every table two cells move."""


@dataclass(frozen=True)
class Method:
    """What somebody is asked to do.

    Attributes:
        peer: Whose environment; ``ours`` for this project's.
        method: Of its runner.
        adjacency: What it protects.
        work: ``records``, ``table``, ``mean`` or ``plan``.
    """

    peer: str
    method: str
    adjacency: str
    work: str


METHODS = (
    Method("ours", "marginals", REPLACE, "records"),
    Method("ours", "marginals_add_remove", ADD_REMOVE, "records"),
    Method("mbi", "mst", ADD_REMOVE, "records"),
    Method("opendp", "mst", ADD_REMOVE, "records"),
    Method("opendp", "mst_sampled", ADD_REMOVE, "records"),
    Method("dpmm", "mst", ADD_REMOVE, "records"),
    Method("mbi", "aim", ADD_REMOVE, "records"),
    Method("opendp", "aim", ADD_REMOVE, "records"),
    Method("opendp", "aim_sampled", ADD_REMOVE, "records"),
    Method("dpmm", "privbayes", ADD_REMOVE, "records"),
    Method("dpmm", "aim", ADD_REMOVE, "records"),
    Method("ours", "laplace", REPLACE, "table"),
    Method("ours", "laplace_add_remove", ADD_REMOVE, "table"),
    Method("opendp", "laplace", ADD_REMOVE, "table"),
    Method("diffprivlib", "laplace", ADD_REMOVE, "table"),
    Method("ours", "gaussian", REPLACE, "table"),
    Method("ours", "gaussian_add_remove", ADD_REMOVE, "table"),
    Method("opendp", "gaussian", ADD_REMOVE, "table"),
    Method("ours", "mean", REPLACE, "mean"),
    Method("opendp", "mean", REPLACE, "mean"),
    Method("diffprivlib", "mean", REPLACE, "mean"),
    Method("ours", "composed", REPLACE, "plan"),
    Method("dp_accounting", "composed", REPLACE, "plan"),
)
