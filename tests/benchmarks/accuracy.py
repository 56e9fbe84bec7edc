"""Every figure of charges and intervals, by one command.

``python -m tests.benchmarks.accuracy`` runs the commands below in turn, ``--quick`` their quick
forms. It ends with an error if one of them does, as the coverage of intervals does where an
interval falls short of what it is published to cover.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import Any

COMMANDS = {
    "concentrated_charges": "what is charged, before and now, beside an independent computation",
    "interval_coverage": "coverage and width of the intervals of estimates",
    "quantile_widths": "intervals of quantiles beside the best possible",
    "band_coverage": "coverage and width of the bands of tables",
    "moment_coverage": "coverage of means, quantiles and least squares from noisy tables",
    "black_box_widths": "intervals of statistics of which only the sensitivity is known",
    "black_box_bound": "how narrow those can be",
}


def main(arguments: list[str] | None = None, run: Callable[..., Any] = subprocess.run) -> None:
    """Run all commands, also after one that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the quick form of each")
    quick = ["--quick"] if parser.parse_args(arguments).quick else []
    failed = []
    for name, words in COMMANDS.items():
        print(f"\n== {name}: {words}", flush=True)
        command = [sys.executable, "-m", f"tests.benchmarks.{name}", *quick]
        if run(command, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
