"""One measured figure, and how it is taken in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.peers.environments import ROOT


@dataclass(frozen=True)
class Figure:
    """What a case took.

    Attributes:
        suite: The part of the page.
        case: Within the suite, with its size.
        seconds: Of the wall clock.
        cpu_seconds: Of all threads.
        megabytes: Peak of the process.
        ratio: To the baseline of the same run; None without one. What regressions are seen by.
        baseline: What the ratio is to.
        most: What the ratio may be; None if nothing was asked for.
        size: Rows, records or cells, for the charts.
    """

    suite: str
    case: str
    seconds: float
    cpu_seconds: float
    megabytes: float
    ratio: float | None = None
    baseline: str = ""
    most: float | None = None
    size: float | None = None


def taken(function: str, *, here: bool = False, **arguments: Any) -> dict[str, Any]:
    """What a function of a module, ``module:function``, returns, in a process of its own.

    Args:
        function: Its result is JSON; ``megabytes``, the peak of the process, is added.
        here: In this process instead, for quick forms.
        arguments: Of the function, as JSON has them.
    """
    if here:
        return called(function, arguments)
    code = (
        "import json, sys; from tests.benchmarks.record.figure import called; "
        "print(json.dumps(called(sys.argv[1], json.loads(sys.argv[2]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, function, json.dumps(arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/support")])},
    )
    if done.returncode:
        raise RuntimeError(f"{function}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def called(function: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The same in this process."""
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)(**arguments)
    own, children = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {"megabytes": max(own, children), **found}
