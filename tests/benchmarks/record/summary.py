"""The checked-in page of results, a function of the history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.peers.asked import ADD_REMOVE, METHODS, TABLES
from tests.benchmarks.peers.compare import Compared
from tests.benchmarks.record.counting import fitted
from tests.benchmarks.record.history import TENTH, Latest, Record, latest, latest_peers
from tests.benchmarks.record.words import OPENING, PEERS, QUOTED, WHY

SUMMARY = Path(__file__).parents[1] / "results.md"
ASKED = 0.9
"""Ours over theirs."""
_OURS = "this project"
COUNTS = ("counts", "clamped", "projected")
"""Forms in which counts are published."""
Pair = tuple[Compared, Record]


def written(records: Sequence[Record], *, quick: bool = False) -> str:
    """The page of the quick forms or of the full ones."""
    figures = [each for each in latest(records) if each.record.quick is quick]
    parts = [OPENING, "## This project\n"]
    for suite in dict.fromkeys(each.figure.suite for each in figures):
        parts.append(_suite(suite, [each for each in figures if each.figure.suite == suite]))
    compared = [pair for pair in latest_peers(records) if pair[1].quick is quick]
    if compared:
        parts += [PEERS, *_peers(compared), WHY, QUOTED]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _suite(name: str, figures: Sequence[Latest]) -> str:
    """A table of the cases, and what follows from them."""
    lines = [
        f"### {name[:1].upper()}{name[1:]}\n",
        "| case | seconds | CPU s | peak MB | ratio | to | asked | change | of |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in figures:
        figure = each.figure
        lines.append(
            f"| {figure.case} | {short(figure.seconds)} | {short(figure.cpu_seconds)} "
            f"| {figure.megabytes:.0f} | {short(figure.ratio)} | {figure.baseline} "
            f"| {'' if figure.most is None else f'≤ {figure.most:g}'} "
            f"| {changed(each.change)} | {_of(each.record)} |"
        )
    if name == "counting" and (words := linear(figures)):
        lines += ["", words]
    return "\n".join(lines) + "\n"


def linear(figures: Sequence[Latest]) -> str:
    """How linear counting is, and how flat what follows it; empty of fewer than three sizes."""
    ours = [e.figure for e in figures if e.figure.ratio is not None and e.figure.size]
    after = [e.figure for e in figures if e.figure.case.endswith("after it")]
    if len(ours) < 3:
        return ""
    start, slope, off = fitted([f.size or 0 for f in ours], [f.seconds for f in ours])
    flat = max(f.cpu_seconds for f in after) / min(f.cpu_seconds for f in after)
    return (
        f"Linear in the rows: {short(start)} s + {slope * 1e9:.3g} s for each 10⁹ rows, at most "
        f"{off:.0%} off. The noisy table after the count takes at most {flat:.2f} × its least "
        "processor time, whatever the rows."
    )


def _peers(compared: Sequence[Pair]) -> list[str]:
    """A table for each kind of work and public table."""
    parts = []
    titles = {
        "records": "Synthetic records",
        "table": "Counts",
        "mean": "Means",
        "plan": "Epsilon of a composed plan",
    }
    for work, title in titles.items():
        for table in TABLES:
            groups = dict.fromkeys(
                c.columns for c, _ in compared if (c.work, c.table) == (work, table)
            )
            for columns in groups:
                rows = [
                    pair
                    for pair in compared
                    if (pair[0].work, pair[0].table, pair[0].columns) == (work, table, columns)
                ]
                parts.append(_compared(title, work, table, columns, rows))
    return parts


def _compared(
    title: str, work: str, table: str, columns: tuple[int, ...], rows: Sequence[Pair]
) -> str:
    named = {
        "records": (("pairs", "triples", "worst pair"), f"{table}: mean total variation"),
        "table": (COUNTS, f"{table}, columns {_places(columns)}: L1 error over n"),
        "mean": (("mean",), f"{table}, column {_places(columns)}: absolute error over the range"),
        "plan": (("epsilon",), "40 tables with Laplace noise and 40 with Gaussian, δ = 1e-6"),
    }
    errors, words = named[work]
    lines = [
        f"### {title}, {words}\n",
        f"| library | method | adjacency | ε | {' | '.join(errors)} | ours/theirs | seconds "
        "| CPU s | peak MB | seeds | of |",
        "|---" * (9 + len(errors)) + "|",
    ]
    for each, record in sorted(rows, key=lambda pair: pair[0].epsilon):
        ratio = against(each, [pair[0] for pair in rows])
        name = _OURS if each.peer == "ours" else f"{each.peer} {each.version}".strip()
        budget = f"{each.epsilon:g}" if work != "plan" else ""
        found = " | ".join(short(each.errors.get(key), 3) for key in errors)
        seeds = f"{each.seeds}{f', {each.ended}' if each.ended else ''}"
        lines.append(
            f"| {name} | {each.method.removesuffix('_add_remove')} | {each.adjacency} | {budget} "
            f"| {found} | {short(ratio, 2)} | {short(each.seconds)} | {short(each.cpu_seconds)} "
            f"| {'' if math.isnan(each.megabytes) else f'{each.megabytes:.0f}'} | {seeds} "
            f"| {_of(record)} |"
        )
    ran = {(each.peer, each.method) for each, _ in rows}
    left = [
        f"{m.peer} {m.method}" for m in METHODS if m.work == work and (m.peer, m.method) not in ran
    ]
    if left:
        lines += ["", f"Not run yet: {', '.join(left)}."]
    return "\n".join(lines) + "\n"


def against(theirs: Compared, others: Sequence[Compared]) -> float | None:
    """Our error over theirs, under their adjacency; of counts the best form that is published."""
    if theirs.peer == "ours" or not theirs.errors:
        return None
    suffix = "_add_remove" if theirs.adjacency == ADD_REMOVE else ""
    base = {"records": "marginals"}.get(theirs.work, theirs.method)
    for ours in others:
        same = ours.peer == "ours" and ours.method == base + suffix and ours.errors
        if same and ours.epsilon == theirs.epsilon:
            main = {"records": ("pairs",), "table": COUNTS, "mean": ("mean",), "plan": ("epsilon",)}
            mine, least = (
                min(each.errors[key] for key in main[theirs.work] if key in each.errors)
                for each in (ours, theirs)
            )
            return mine / least if least else None
    return None


def changed(change: float | None) -> str:
    """A change of a ratio; bold where it is more than a tenth."""
    if change is None:
        return ""
    text = f"{change:+.0%}"
    return f"**{text}**" if abs(change) > TENTH else text


def short(value: float | None, digits: int = 3) -> str:
    """A number with few digits; empty where there is none."""
    if value is None or math.isnan(value):
        return ""
    if value and abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def _of(record: Record) -> str:
    return f"{record.commit}, {record.date[:10]}{', busy' if record.busy else ''}"


def _places(columns: tuple[int, ...]) -> str:
    return ", ".join(str(column + 1) for column in columns)
