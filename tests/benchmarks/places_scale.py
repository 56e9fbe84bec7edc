"""Whole runs of tables of places, by number of places: seconds and memory.

    python -m tests.benchmarks.places_scale [--leaves 10000 100000] [--folder DIR]

Records of two columns of ten categories, ten for each place of the last level on average, in a
tree of a nation, states, counties of sixty tracts, and tracts; a table of 100 cells in every place,
from a Parquet file to a bundle of Parquet. Each run is a process of its own, ``statpress run``.
Given are its wall time, its processor time and that of its quality process, and the largest
resident memory of a process. A million places need some 6 GB of disk, in ``--folder``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CATEGORIES, RECORDS, TRACTS, COUNTIES = 10, 10, 60, 340


def prepare(folder: Path, leaves: int) -> Path:
    """The source, the files of places and the config."""
    rng = np.random.default_rng(leaves)
    county = np.arange(leaves) // TRACTS
    codes = [f"t{leaf:07d}" for leaf in range(leaves)]
    lines = (f"s{c // COUNTIES},c{c:05d},{code}\n" for c, code in zip(county, codes, strict=True))
    (folder / "places.csv").write_text("state,county,tract\n" + "".join(lines), encoding="utf-8")
    (folder / "tracts.txt").write_text("\n".join(codes) + "\n", encoding="utf-8")
    n = RECORDS * leaves
    place = rng.integers(0, leaves, n)
    one = (rng.poisson(3, n) + county[place] % 4) % CATEGORIES
    columns = {
        "tract": pa.DictionaryArray.from_arrays(pa.array(place, pa.int32()), pa.array(codes)),
        "one": pa.array(one.astype(np.int8)),
        "other": pa.array(((one + rng.poisson(1, n)) % CATEGORIES).astype(np.int8)),
    }
    pq.write_table(pa.table(columns), folder / "source.parquet")
    listed = ", ".join(map(str, range(CATEGORIES)))
    config = folder / "places.yaml"
    config.write_text(
        f"""\
title: Places
dataset: places
source: {{path: source.parquet}}
privacy: {{adjacency: replace_one, unit: record, n_records: {n}}}
budget: {{epsilon: 1.0, delta: 1.0e-8}}
domain:
  tract: {{type: categorical, categories: {{file: tracts.txt}}}}
  one: {{type: ordinal, categories: [{listed}]}}
  other: {{type: ordinal, categories: [{listed}]}}
geography:
  tract: {{levels: [state, county, tract], file: places.csv}}
products:
  people:
    kind: table
    columns: [one, other]
    at: [nation, state, county, tract]
    accept: mostly_noise
gate: {{noise: true}}
publish: {{directory: releases, formats: [parquet]}}
""",
        encoding="utf-8",
    )
    return config


def measured(leaves: int, folder: Path) -> str:
    """A line for one run."""
    statpress, home = Path(sys.executable).with_name("statpress"), ["--home", folder / "home"]
    config, number = prepare(folder, leaves), ["--n-records", str(RECORDS * leaves)]
    register = [statpress, "ledger", "register", "places", "--epsilon", "10", "--delta", "1e-5"]
    source = ["--source", folder / "source.parquet"]
    subprocess.run([*register, *number, *source, *home], check=True, stdout=subprocess.DEVNULL)
    start = time.monotonic()
    process = subprocess.Popen([statpress, "run", config, *home], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"The run of {leaves:,} places failed.")
    wall, cpu = time.monotonic() - start, used.ru_utime + used.ru_stime
    return f"{leaves:>9,} places: {wall:.0f} s, {cpu:.0f} CPU s, {used.ru_maxrss / 2**20:.2f} GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    for leaves in asked.leaves:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            print(measured(leaves, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
