"""A small release of the demo's survey, of which all pairs are measured: for what analysts do."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

COLUMNS = ("region", "happy", "female", "prestige", "educ", "tvhours")


def survey(agency: Any, *, screen: str = "no") -> Path:
    """The bundle; from a known seed, so that its figures can be looked up."""
    shipped = (files("statpress.configs") / "happiness.yaml").read_text(encoding="utf-8")
    start, end = shipped.index("    columns:\n"), shipped.index("gate:")
    knobs = f'    mechanism: marginals\n    screen: "{screen}"\n'
    agency.text = f"{shipped[:start]}    columns: [{', '.join(COLUMNS)}]\n{knobs}{shipped[end:]}"
    agency.replace("data/happiness.parquet", "data/source.parquet")
    data = files("statpress.tasks.source") / "demo" / "happiness.parquet"
    agency.write_source(pq.read_table(str(data)))
    agency.register(dataset="happiness", n_records=17_137, epsilon="10")
    bundle: Path = agency.run(insecure_seed=5).bundle
    return bundle
