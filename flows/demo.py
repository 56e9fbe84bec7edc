"""The demo: real microdata, its own folder, its own ledger."""

from __future__ import annotations

import os
import shutil
from importlib.resources import as_file, files
from pathlib import Path

from configs.order import Order
from configs.planned_order import PlannedOrder
from mechanisms.errors import DependencyError
from tasks.execution.home import Home
from tasks.ledger.budgets import register_dataset, remaining_budget
from tasks.source.demo_data import write_census2000

CONFIGS = ("census2000.yaml", "census2000_estimates.yaml")
"""The shipped configs that the demo's folder gets; the first is the one it presses."""

BUDGET = {"epsilon": "10", "delta": "1e-7"}


def prepare(directory: Path, home: Home) -> tuple[PlannedOrder, bool]:
    """Make or reuse the demo's data, configs and ledger account, and plan its release.

    Returns:
        The planned release, and whether the dataset was registered before.

    Raises:
        DependencyError: The extra ``demo`` is not installed.
    """
    data = directory / "data" / "census2000.parquet"
    if not data.exists() and not write_census2000(data):
        raise DependencyError(
            "The demo's data is not installed.",
            next_step="Install it with: pip install 'statpress[demo]'",
        )
    for name in CONFIGS:
        copy = directory / name
        if not copy.exists():
            with as_file(files("configs") / name) as shipped:
                shutil.copyfile(shipped, f"{copy}.new")
            os.replace(f"{copy}.new", copy)
    config = directory / CONFIGS[0]
    order = PlannedOrder.of(Order(config))
    dataset = order.release.config.dataset
    known = remaining_budget(home, dataset) is not None
    if not known:
        register_dataset(home, dataset, order.release.privacy, **BUDGET)
    return order, known


def cost_of_another(order: PlannedOrder, home: Home) -> str:
    """What running the demo again costs."""
    remaining = remaining_budget(home, order.release.config.dataset)
    return (
        "The demo was set up before. Running it again charges epsilon "
        f"{order.plan.epsilon:f}, delta {order.plan.delta} of the remaining {remaining}."
    )
