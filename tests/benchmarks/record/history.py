"""Every run of the benchmarks as a line of JSON, and what changed since the one before.

Seconds are those of a machine; ratios to a baseline of the same run are comparable, and a change of
more than a tenth is marked.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.compare import Compared
from tests.benchmarks.peers.environments import ROOT
from tests.benchmarks.record.figure import Figure

HISTORY = Path(__file__).parents[1] / "history.jsonl"
TENTH = 0.1


@dataclass(frozen=True)
class Record:
    """A run.

    Attributes:
        commit: What was checked out, with a + if files had been changed.
        date: Of its end, UTC.
        cores: Of the machine.
        load: Its mean load of the last minute before; others were busy if it is not near 0.
        python: Version.
        quick: Whether sizes are those of the quick form, which no other run is compared with.
        figures: Of this project.
        peers: Compared with others; empty if they were not asked.
    """

    commit: str
    date: str
    cores: int
    load: float
    python: str
    quick: bool
    figures: tuple[Figure, ...]
    peers: tuple[Compared, ...] = ()

    @property
    def busy(self) -> bool:
        """Whether the machine had other work."""
        return self.load > self.cores / 2


@dataclass(frozen=True)
class Latest:
    """The newest figure of a case, and the ratio before it.

    Attributes:
        figure: The newest.
        record: Where it is from.
        before: Ratio of the record before; None if there is none.
    """

    figure: Figure
    record: Record
    before: float | None

    @property
    def change(self) -> float | None:
        """Of the ratio, relative; None where there is nothing to compare with."""
        if self.before is None or self.figure.ratio is None:
            return None
        return self.figure.ratio / self.before - 1


def begun(root: Path = ROOT) -> dict[str, Any]:
    """What a record says of the machine, to be taken before anything runs."""
    return {
        "commit": _commit(root),
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def _commit(root: Path) -> str:
    """Of the checkout, with a plus if files differ; ``unknown`` without git or a repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], check=True, capture_output=True, text=True, cwd=root
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def recorded(
    start: dict[str, Any],
    figures: Iterable[Figure],
    peers: Iterable[Compared] = (),
    *,
    quick: bool,
) -> Record:
    """The record of a run that ends now."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    return Record(**start, date=date, quick=quick, figures=tuple(figures), peers=tuple(peers))


def read(path: Path) -> list[Record]:
    """All records, oldest first; none if there is no file."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        entry["figures"] = tuple(Figure(**each) for each in entry["figures"])
        entry["peers"] = tuple(
            Compared(**{**each, "columns": tuple(each["columns"])}) for each in entry["peers"]
        )
        found.append(Record(**entry))
    return found


def append(path: Path, record: Record) -> None:
    """Add a record as one line."""
    entry = {**asdict(record), "figures": [], "peers": []}
    entry["figures"] = [asdict(each) for each in record.figures]
    entry["peers"] = [asdict(each) for each in record.peers]
    with path.open("a") as file:
        file.write(json.dumps(_rounded(entry), allow_nan=True) + "\n")


def latest(records: Sequence[Record]) -> list[Latest]:
    """The newest figure of every case, in the order of the newest record that has its suite."""
    found: dict[tuple[bool, str, str], Latest] = {}
    for record in records:
        for figure in record.figures:
            key = record.quick, figure.suite, figure.case
            before = found[key].figure.ratio if key in found else None
            found[key] = Latest(figure, record, before)
    return list(found.values())


def latest_peers(records: Sequence[Record]) -> list[tuple[Compared, Record]]:
    """The newest comparison of each method, table, columns and budget; with figures, if any has."""
    found: dict[tuple[Any, ...], tuple[Compared, Record]] = {}
    for record in records:
        for each in record.peers:
            key = each.peer, each.method, each.table, each.columns, each.epsilon
            if each.errors or key not in found or not found[key][0].errors:
                found[key] = each, record
    return list(found.values())


def _rounded(value: Any) -> Any:
    """Five digits say enough."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
