"""A whole release of wide records: seconds and memory of every step, by number of records.

    python -m tests.benchmarks.whole_release [RECORDS ...] [--drawn RECORDS]
        [--resources '{memory: 4GB, threads: 2}']

Fifteen columns from a model (tests/support/wide_tables.py), of which are released microdata of all,
three tables and five estimates, in a bundle of Parquet and CSV. Each release runs in a process of
its own, from the config to the sealed bundle, without an orchestrator. Of every step it prints
seconds, processor time of this process, and the peak of its memory, which is set back before each
(Linux). "own" is the share of processor time of the steps whose work is mostly ours: drawing, which
counts the pairs, and post-processing, which fits the records. The others are mostly the engine's
and pyarrow's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

SUPPORT = str(Path(__file__).parents[1] / "support")
COLUMNS, CHUNK = 15, 1 << 20
OWN = ("draw records", "post-process")
CONFIG = """\
title: Wide records
dataset: wide
source: {{path: wide.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: {n}}}
budget: {{epsilon: 1.0, delta: 1.0e-9}}
{resources}domain:
{domain}
products:
  people: {{kind: microdata, mechanism: marginals, columns: [{names}], share: 0.5{drawn}}}
  one: {{kind: table, mechanism: gaussian, columns: [c0, c1, c2], share: 0.1}}
  two: {{kind: table, mechanism: gaussian, columns: [c3, c4, c5], share: 0.1}}
  three: {{kind: table, mechanism: gaussian, columns: [c6, c7], share: 0.1}}
  mean: {{kind: estimate, statistic: mean, columns: [c8], share: 0.04}}
  median: {{kind: estimate, statistic: median, columns: [c9], share: 0.04}}
  spread: {{kind: estimate, statistic: variance, columns: [c10], share: 0.04}}
  slope: {{kind: estimate, statistic: regression, columns: [c11, c12], share: 0.04}}
  relation: {{kind: estimate, statistic: correlation, columns: [c13, c14], share: 0.04}}
publish: {{directory: releases, formats: [parquet, csv]}}
"""


def prepare(folder: Path, n: int, resources: str = "", drawn: int | None = None) -> Path:
    """Write the records, a million at a time, and their config.

    Args:
        folder: Where both are written.
        n: Records of the source.
        resources: As in a config.
        drawn: Records of the microdata; by default as many as the source has.
    """
    sys.path.insert(0, SUPPORT)
    import pyarrow as pa
    import pyarrow.parquet as pq
    from wide_tables import latent

    names = [f"c{j}" for j in range(COLUMNS)]
    schema = pa.schema([(name, pa.uint8()) for name in names])
    sizes, _ = latent(1, COLUMNS)
    with pq.ParquetWriter(folder / "wide.parquet", schema) as file:
        for start in range(0, n, CHUNK):
            _, codes = latent(min(CHUNK, n - start), COLUMNS)
            file.write(pa.table([pa.array(each) for each in codes], schema=schema))
    domain = "\n".join(
        f"  c{j}: {{type: integer, lower: 0, upper: {size - 1}}}" for j, size in enumerate(sizes)
    )
    path = folder / "wide.yaml"
    said = f"resources: {resources}\n" if resources else ""
    drawn_too = f", records: {drawn}" if drawn else ""
    words = {"domain": domain, "names": ", ".join(names), "resources": said, "drawn": drawn_too}
    path.write_text(CONFIG.format(n=n, **words))
    return path


class Steps:
    """A listener that notes what every step takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, float] = {}
        self.peaks: dict[str, float] = {}
        self._title, self._since = "", (0.0, 0.0)

    def announce(self, title: str) -> None:
        self.close()
        self._title = title

    def close(self) -> None:
        """The step has ended."""
        now = time.perf_counter(), time.process_time()
        if self._title:
            for found, one, other in zip(
                (self.seconds, self.processor), now, self._since, strict=True
            ):
                found[self._title] = found.get(self._title, 0.0) + one - other
            self.peaks[self._title] = max(self.peaks.get(self._title, 0.0), _peak())
        # A run keeps its memory from its user's other processes, and with it this file from itself,
        # but not from root: for others the peak of a step is that of all until then.
        with suppress(PermissionError):
            Path("/proc/self/clear_refs").write_text("5")
        self._since = now

    def advance(self, records: int) -> None: ...

    def notify(self, text: str) -> None: ...


def _peak() -> float:
    """Of this process, in MB."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024 / 10**6


def measure(config: Path) -> dict[str, Any]:
    """Run one release in this process."""
    from statpress.configs.loading import PlannedOrder
    from statpress.configs.order import Order
    from statpress.flows.cli.plan_command import forecast_facts
    from statpress.flows.runner import open_context, run_release
    from statpress.tasks.ledger.ledger import Ledger
    from statpress.tasks.private_zone.folders import Home

    begun = time.perf_counter()
    home = Home(config.parent / "home")
    home.folder("")
    order = PlannedOrder.of(Order(config))
    n = order.release.config.privacy.n_records
    terms = {"adjacency": "replace_one", "unit": "record", "n_records": n, "unit_records": 1}
    with Ledger.open(home.ledger) as ledger:
        ledger.register(dataset="wide", epsilon=1000, delta="0.1", **terms)
    steps = Steps()
    with open_context(home, orchestrated=False, listener=steps) as context:
        run_release(context, order)
        steps.close()
    processor = time.process_time()
    return {
        "records": n,
        "seconds": steps.seconds,
        "processor": steps.processor,
        "peaks": steps.peaks,
        "total": time.perf_counter() - begun,
        "total processor": processor,
        "own": sum(steps.processor[each] for each in OWN) / processor,
        "peak": max(steps.peaks.values()),
        "foreseen": forecast_facts(order.release, order.plan)["peak"] / 10**6,
    }


def released(
    n: int, resources: str = "", folder: Path | None = None, drawn: int | None = None
) -> dict[str, Any]:
    """Run a release of so many records in a process of its own; what ``measure`` found there.

    Args:
        n: Records.
        resources: As in a config.
        folder: Where the files lie meanwhile; by default the system's for temporary ones.
        drawn: Records of the microdata; by default as many as the source has.
    """
    with tempfile.TemporaryDirectory(dir=folder) as place:
        config = prepare(Path(place).resolve(), n, resources, drawn)
        found = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.whole_release", "--config", str(config)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return dict(json.loads(found.stdout))


def report(found: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = [
        f"{found['records']:,} records",
        "",
        "| step | s | CPU s | peak MB |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {step} | {found['seconds'][step]:.1f} | {found['processor'][step]:.1f} "
        f"| {found['peaks'][step]:.0f} |"
        for step in found["seconds"]
    ]
    total, processor = found["total"], found["total processor"]
    lines += [
        f"| all | {total:.1f} | {processor:.1f} | {found['peak']:.0f} |",
        "",
        f"own {found['own']:.0%}; foreseen, with the quality process, {found['foreseen']:.0f} MB",
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the figures of each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("records", nargs="*", type=int, default=[10**6])
    parser.add_argument("--resources", default="", help="as in a config")
    parser.add_argument("--drawn", type=int, help="records of the microdata; by default all")
    parser.add_argument("--config", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.config:
        print(json.dumps(measure(given.config)))
        return
    for n in given.records:
        print(report(released(n, given.resources, drawn=given.drawn)), flush=True)


if __name__ == "__main__":
    main()
