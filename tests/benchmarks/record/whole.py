"""A whole release of wide records: from the config to the sealed bundle (``whole_release``).

The baseline is the processor time of its steps that are mostly the engine's and the libraries'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks import whole_release
from tests.benchmarks.record.figure import Figure

MOST = 2.5
"""What was asked for: our own steps take at most three fifths."""
RESOURCES = "{memory: 4GB, threads: 2}"
MOST_DRAWN = 10**7
"""Records of the microdata, however many the source has."""


def suite(rows: Sequence[int], folder: Path) -> Iterator[Figure]:
    """A figure for each number of records."""
    for n in rows:
        drawn = min(n, MOST_DRAWN)
        found = whole_release.released(n, RESOURCES, folder, drawn)
        fewer = f", {drawn:.0e} published" if drawn < n else ""
        yield Figure(
            "end to end",
            f"{n:.0e} records of {whole_release.COLUMNS} columns{fewer}",
            found["total"],
            found["total processor"],
            found["peak"],
            1 / (1 - found["own"]),
            "steps of engine and libraries",
            most=MOST,
            size=n,
        )
