"""All benchmarks of speed, memory and other libraries, by one command.

    python -m tests.benchmarks.page [--quick] [--rows 1e7,1e8,1e9] [--peers] [--only NAME ...]

It measures, adds a line to the history (``history.jsonl``), writes the summary (``results.md``)
from it, and draws a page with charts in ``build/benchmarks``. The quick form takes 10^5 rows and
writes all three in that folder. ``--peers`` asks other libraries too, in environments that it makes
below ``build/peers``; a method has ``--limit`` seconds for each public table. Parquet files of the
rows lie in ``build/benchmarks`` while they are counted, 5 GB at 10^9 rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.peers import asked, compare
from tests.benchmarks.peers.environments import ROOT
from tests.benchmarks.record import charts, counting, history, steps, summary, whole
from tests.benchmarks.record.figure import Figure
from tests.benchmarks.wide_microdata import EPSILONS

SUITES = ("counting", "steps", "whole")
MOST_WIDE = 10**8
"""Records of a whole release; what it declares as its memory does not suffice for more."""
ROWS, QUICK_ROWS = (10**7, 10**8, 10**9), (10**5,)
FOLDER = ROOT / "build" / "benchmarks"


def main(arguments: list[str] | None = None) -> None:
    """Measure, record, write and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, in some seconds")
    parser.add_argument("--rows", type=_rows, help="of counting and of whole releases")
    parser.add_argument("--peers", action="store_true", help="other libraries too")
    parser.add_argument("--only", nargs="*", choices=(*SUITES, "peers"), help="some suites")
    parser.add_argument("--methods", nargs="*", help="of peers, such as mbi.aim ours.marginals")
    parser.add_argument("--tables", nargs="*", choices=tuple(asked.TABLES), help="of peers")
    parser.add_argument("--seeds", type=int, default=asked.SEEDS, help="of peers")
    parser.add_argument("--epsilons", type=float, nargs="*", help="of peers")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a method and table")
    parser.add_argument("--resume", action="store_true", help="keep results of peers as they are")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of the page")
    parser.add_argument("--draw", action="store_true", help="write and draw, measure nothing")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    kept = given.output / "history.jsonl" if given.quick else history.HISTORY
    text = given.output / "results.md" if given.quick else summary.SUMMARY
    if not given.draw:
        start = history.begun()
        figures = _told(_figures(given))
        peers = list(_peers(given))
        record = history.recorded(start, figures, peers, quick=given.quick)
        history.append(kept, record)
    records = history.read(kept)
    text.write_text(summary.written(records, quick=given.quick))
    drawn = given.output / "benchmarks.html"
    drawn.write_text(charts.page(records, quick=given.quick), encoding="utf-8")
    print(f"{text}\n{drawn}")
    for each in history.latest(records):
        if each.record is records[-1] and abs(each.change or 0) > history.TENTH:
            print(f"changed: {each.figure.suite}, {each.figure.case}: {each.change:+.0%}")


def _figures(given: argparse.Namespace) -> Iterator[Figure]:
    """Of the suites that are asked for."""
    wanted = given.only if given.only is not None else SUITES
    with TemporaryDirectory(dir=given.output) as place:
        folder = Path(place).resolve()
        if "counting" in wanted:
            rows = given.rows or (QUICK_ROWS if given.quick else ROWS)
            yield from counting.suite(rows, folder, quick=given.quick)
        if "steps" in wanted:
            yield from steps.suite(quick=given.quick)
        if "whole" in wanted and not given.quick:
            yield from whole.suite([n for n in given.rows or ROWS if n <= MOST_WIDE], folder)


def _told(figures: Iterator[Figure]) -> list[Figure]:
    """All of them, each printed as it comes."""
    found = []
    for figure in figures:
        ratio = "" if figure.ratio is None else f", {figure.ratio:.2f} × {figure.baseline}"
        print(
            f"{figure.suite}: {figure.case}: {figure.seconds:.3g} s, "
            f"{figure.cpu_seconds:.3g} CPU s, {figure.megabytes:.0f} MB{ratio}",
            flush=True,
        )
        found.append(figure)
    return found


def _peers(given: argparse.Namespace) -> Iterator[compare.Compared]:
    """Comparisons, each printed as it comes."""
    if not (given.peers or "peers" in (given.only or ())):
        return
    methods = tuple(
        m for m in asked.METHODS if given.methods is None or f"{m.peer}.{m.method}" in given.methods
    )
    begun = time.perf_counter()
    for each in compare.compare(
        tables=tuple(given.tables or asked.TABLES),
        methods=methods,
        epsilons=tuple(given.epsilons or EPSILONS),
        seeds=given.seeds,
        limit=given.limit,
        resume=given.resume,
    ):
        errors = ", ".join(f"{name} {value:.4g}" for name, value in each.errors.items())
        print(
            f"{time.perf_counter() - begun:.0f} s: {each.peer} {each.method}, {each.table} "
            f"{each.columns or ''} ε = {each.epsilon:g}: {errors or each.ended}",
            flush=True,
        )
        yield each


def _rows(text: str) -> tuple[int, ...]:
    """Numbers of rows, such as 1e7,1e8."""
    return tuple(int(float(part)) for part in text.split(","))


if __name__ == "__main__":
    main(sys.argv[1:])
