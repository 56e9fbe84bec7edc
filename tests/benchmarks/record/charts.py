"""The page with charts, of the blocks that every page of the project is made of."""

from __future__ import annotations

from collections.abc import Sequence

from statpress.tasks.pages.blocks import (
    Bars,
    Block,
    Chart,
    Curves,
    Gallery,
    Grid,
    Line,
    Page,
    Prose,
    Section,
)
from statpress.tasks.pages.rendering import rendered
from tests.benchmarks.peers.asked import TABLES
from tests.benchmarks.peers.compare import Compared
from tests.benchmarks.record.history import Latest, Record, latest, latest_peers
from tests.benchmarks.record.summary import against, changed, linear, short

_HEADINGS = ("case", "seconds", "CPU s", "peak MB", "ratio", "to", "change", "commit")


def page(records: Sequence[Record], *, quick: bool = False) -> str:
    """HTML with the newest figures, their history and the comparisons."""
    figures = [each for each in latest(records) if each.record.quick is quick]
    sections = [
        _suite(name, [each for each in figures if each.figure.suite == name], records)
        for name in dict.fromkeys(each.figure.suite for each in figures)
    ]
    peers = [pair[0] for pair in latest_peers(records) if pair[1].quick is quick]
    if peers:
        sections.append(_peers(peers))
    newest = records[-1]
    busy = ["The machine had other work: seconds are too long."] if newest.busy else []
    subtitle = f"{newest.commit}, {newest.date} UTC, {newest.cores} cores, Python {newest.python}"
    return rendered(Page("Benchmarks", sections, subtitle=subtitle, marks=busy))


def _suite(name: str, figures: Sequence[Latest], records: Sequence[Record]) -> Section:
    grid = Grid(
        _HEADINGS,
        [
            (
                each.figure.case,
                short(each.figure.seconds),
                short(each.figure.cpu_seconds),
                f"{each.figure.megabytes:.0f}",
                short(each.figure.ratio),
                each.figure.baseline,
                changed(each.change).strip("*"),
                each.record.commit,
            )
            for each in figures
        ],
    )
    blocks: list[Block] = [grid]
    if name == "counting":
        if words := linear(figures):
            blocks.append(Prose([words]))
        blocks.append(Gallery([_by_size(figures, "seconds"), _by_size(figures, "megabytes")]))
    if (chart := _history(name, figures, records)) is not None:
        blocks.append(Gallery([chart]))
    return Section(name.replace(" ", "-"), name[:1].upper() + name[1:], blocks)


def _by_size(figures: Sequence[Latest], what: str) -> Chart:
    """Seconds or memory of counting by rows, ours and bare."""
    lines = []
    kinds = {"this project": " rows", "bare DuckDB": "bare", "noisy table after": "after it"}
    for label, end in kinds.items():
        points = [
            (each.figure.size or 0.0, float(getattr(each.figure, what)))
            for each in figures
            if each.figure.case.endswith(end)
        ]
        if points:
            x, y = zip(*sorted(points), strict=True)
            lines.append(Line(label, x, y))
    words = {"seconds": "Seconds", "megabytes": "Peak memory, MB"}[what]
    rows = [
        (line.label, short(x), short(y))
        for line in lines
        for x, y in zip(line.x, line.y, strict=True)
    ]
    drawing = Curves(
        lines, "rows", words, log_x=True, log_y=what == "seconds", from_zero=what != "seconds"
    )
    data = Grid(("what", "rows", words), rows)
    return Chart(f"{words} of counting", drawing, f"{words} of counting by number of rows.", data)


def _history(name: str, figures: Sequence[Latest], records: Sequence[Record]) -> Chart | None:
    """Ratios of at most four cases, run by run; None before there are two runs."""
    lines, rows = [], []
    for each in figures:
        found = [
            (place, figure.ratio)
            for place, record in enumerate(records, 1)
            for figure in record.figures
            if (record.quick, figure.suite, figure.case)
            == (each.record.quick, name, each.figure.case)
            and figure.ratio is not None
        ]
        if len(found) > 1 and len(lines) < 4:
            x, y = zip(*found, strict=True)
            lines.append(Line(each.figure.case, [float(v) for v in x], y))
            rows += [(each.figure.case, str(v), short(w)) for v, w in found]
    if not lines:
        return None
    drawing = Curves(lines, "run", "ratio to the baseline", from_zero=True)
    title = "Ratios, run by run"
    return Chart(title, drawing, f"{title}.", Grid(("case", "run", "ratio"), rows))


def _peers(compared: Sequence[Compared]) -> Section:
    """Mean total variation of pairs as bars, one chart for each table and budget."""
    charts = []
    for table in TABLES:
        for epsilon in sorted({c.epsilon for c in compared if c.work == "records"}):
            rows = [
                c
                for c in compared
                if (c.work, c.table, c.epsilon) == ("records", table, epsilon) and c.errors
            ]
            if not rows:
                continue
            labels = [f"{c.peer} {c.method.replace('_add_remove', ' ±1')}" for c in rows]
            drawing = Bars(labels, [c.errors["pairs"] for c in rows], axis="mean total variation")
            data = Grid(
                ("method", "adjacency", "pairs", "triples", "ours/theirs", "seconds", "MB"),
                [
                    (
                        label,
                        c.adjacency,
                        short(c.errors["pairs"]),
                        short(c.errors["triples"]),
                        short(against(c, rows), 2),
                        short(c.seconds),
                        f"{c.megabytes:.0f}",
                    )
                    for label, c in zip(labels, rows, strict=True)
                ],
            )
            title = f"{table}, ε = {epsilon:g}"
            words = f"Mean total variation of all pairs of columns of {table} at ε = {epsilon:g}."
            charts.append(Chart(title, drawing, words, data))
    note = "±1: ours calibrated for a record that is added or removed, for comparison only."
    return Section(
        "peers", "Synthetic records beside other libraries", [Prose([note]), Gallery(charts)]
    )
