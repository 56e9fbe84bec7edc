"""How quickly commands start, as ratios to a Python that only imports what they need.

Processor time of whole processes is compared, not time on the clock, so that other programs
at work on the machine matter little; the median of several turns is taken, in which command
and baseline take turns.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = Path(__file__).parents[2] / "configs" / "census2000.yaml"
TURNS = 7
DEMO_TURNS = 3


def seconds(arguments: list[str], folder: Path) -> float:
    """Processor time of one process and its children, in seconds."""
    plainly = {k: v for k, v in os.environ.items() if k[:3] != "COV" and k[:4] != "PYTH"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        arguments, cwd=folder, env=plainly, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ratio(command: list[str], imports: str, folder: Path, turns: int = TURNS) -> float:
    """Processor time of a command over that of the imports, median of several turns."""
    script = str(Path(sys.executable).with_name("statpress"))
    pairs = [
        (
            seconds([script, *command], folder),
            seconds([sys.executable, "-c", f"import {imports}"], folder),
        )
        for _ in range(turns + 1)  # the first compiles modules, and is left out
    ][1:]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{' '.join(command[:1])}: {ours:.2f} s, {imports}: {theirs:.2f} s, {ours / theirs:.2f}")
    return ours / theirs


@pytest.mark.system
@pytest.mark.parametrize(
    ("command", "imports", "most"),
    [
        (["--help"], "cyclopts, rich", 2.1),
        (["validate", str(CONFIG)], "pydantic, numpy", 8.5),
        (["plan", str(CONFIG), "--home", "none"], "numpy, scipy.special, flint, pydantic", 4.0),
    ],
    ids=["help", "validate", "plan"],
)
def test_a_command_starts_quickly(
    command: list[str], imports: str, most: float, tmp_path: Path
) -> None:
    assert ratio(command, imports, tmp_path) <= most


@pytest.mark.system
def test_the_demo_of_today_costs_what_its_libraries_do(tmp_path: Path) -> None:
    command = ["demo", "--no-orchestrator", "--yes"]
    assert ratio(command, "great_expectations, duckdb", tmp_path, DEMO_TURNS) <= 1.3
