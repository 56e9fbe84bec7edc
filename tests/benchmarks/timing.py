"""Least seconds of runs that are timed in turns, so that all of them see the same machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Spent(NamedTuple):
    """Seconds of a run.

    Attributes:
        wall: Seconds by the clock.
        work: Processor seconds of all threads; other programs on the machine change them little.
    """

    wall: float
    work: float


def least(*runs: Callable[[], object], rounds: int = 3, most: float | None = None) -> list[Spent]:
    """Return the least seconds of each run.

    Args:
        runs: What is timed first, then its baselines.
        rounds: Largest number of turns.
        most: Limit of the first run's work over the second's. No more turns are taken once the
            ratio is below it.
    """
    best = [Spent(float("inf"), float("inf"))] * len(runs)
    for _ in range(rounds):
        for i, run in enumerate(runs):
            wall, work = time.perf_counter(), time.process_time()
            run()
            spent = time.perf_counter() - wall, time.process_time() - work
            best[i] = Spent(*map(min, best[i], spent))
        if most is not None and best[0].work < most * best[1].work:
            break
    return best


def ratio_within(measure: Callable[[], float], most: float, tries: int = 3) -> float:
    """Return a ratio, measured again while chance puts it above its limit."""
    found = float("inf")
    for _ in range(tries):
        found = min(found, measure())
        if found <= most:
            break
    return found


def in_a_fresh_process(code: str, *arguments: object) -> str:
    """Return what a Python program prints, which can import the tests' modules."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
