"""A small release of the demo's survey, of which all pairs are measured: for what analysts do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from frozen import ALIKE

PRESS = """
import statpress.flows.runner
from victims import InProcess
statpress.flows.runner.Inspector = InProcess  # its process takes seconds to start
from statpress.flows.cli import main
main()
"""
COLUMNS = ("region", "happy", "female", "prestige", "educ", "tvhours")


def survey(agency: Any, *, screen: str = "no") -> Path:
    """The bundle; from a known seed and with the digits of most processors, to look figures up."""
    shipped = (files("statpress.configs") / "happiness.yaml").read_text(encoding="utf-8")
    start, end = shipped.index("    columns:\n"), shipped.index("gate:")
    knobs = f'    mechanism: marginals\n    screen: "{screen}"\n'
    agency.text = f"{shipped[:start]}    columns: [{', '.join(COLUMNS)}]\n{knobs}{shipped[end:]}"
    agency.replace("data/happiness.parquet", "data/source.parquet")
    data = files("statpress.tasks.source") / "demo" / "happiness.parquet"
    agency.write_source(pq.read_table(str(data)))
    agency.register(dataset="happiness", n_records=17_137, epsilon="10")
    agency.replace("publish: {", "publish: {plots: false, ")
    command = [sys.executable, "-c", PRESS, "run", str(agency.config)]
    command += [f"--home={agency.home.root}", "--no-orchestrator", "--insecure-seed=5", "--json"]
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        command, cwd=agency.folder, env=os.environ | ALIKE | {"PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["bundle"])
