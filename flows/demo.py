"""The demo: real microdata, its own folder, its own ledger."""

from __future__ import annotations

import os
import shutil
from importlib.resources import as_file, files
from pathlib import Path

from configs.loading import load
from mechanisms.errors import DependencyError
from tasks.execution.home import Home
from tasks.release.steps import register_dataset, remaining_budget
from tasks.source.demo_data import write_census2000

BUDGET = {"epsilon": "10", "delta": "1e-7"}


def prepare(directory: Path, home: Home) -> tuple[Path, bool]:
    """Make or re-use the demo's data, config and ledger account.

    Returns:
        The config, and whether the dataset was there already.

    Raises:
        DependencyError: The extra ``demo`` is not installed.
    """
    config = directory / "census2000.yaml"
    data = directory / "data" / "census2000.parquet"
    if not data.exists() and not write_census2000(data):
        raise DependencyError(
            "The demo's data is not installed.",
            next_step="Install it with: pip install 'statpress[demo]'",
        )
    if not config.exists():
        with as_file(files("configs") / "census2000.yaml") as shipped:
            shutil.copyfile(shipped, f"{config}.new")
        os.replace(f"{config}.new", config)
    release = load(config)
    known = remaining_budget(home, release.config.dataset) is not None
    if not known:
        register_dataset(home, release.config.dataset, release.privacy, **BUDGET)
    return config, known


def cost_of_another(config: Path, home: Home) -> str:
    """What running the demo again costs."""
    release = load(config)
    planned = release.plan()
    remaining = remaining_budget(home, release.config.dataset)
    return (
        f"The demo was set up before. Running it again charges epsilon {planned.epsilon:f}, "
        f"delta {planned.delta} of the remaining {remaining}."
    )
