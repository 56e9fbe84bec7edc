"""Answers to questions as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.report.terminal import table


def query_report(facts: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each cell: its values, the estimate, its error and interval."""
    columns = facts["columns"]
    rows = [
        [
            *(cell["values"][name] for name in columns),
            *(f"{cell[part]:,.1f}" for part in ("estimate", "standard_error", "lower", "upper")),
        ]
        for cell in facts["cells"]
    ]
    level = f"{facts['confidence']:.4g}"
    conditions = [f"{name} = {' or '.join(values)}" for name, values in facts["where"].items()]
    title = f"{facts['product']}: records" + (f" with {', '.join(conditions)}" * bool(conditions))
    headings = [*columns, "estimate", "standard error", f"from ({level})", f"to ({level})"]
    yield table(title, headings, rows)
    notes = [
        "Unbiased estimates from noisy tables, which may be negative. One interval covers with "
        f"probability {level}, not all of them together."
    ]
    if facts["of"] == "these records":
        notes.append("They are of the records that were counted, without any error of sampling.")
    if facts["chosen_by_noisy_scores"]:
        notes.append(
            "Noisy scores decided which pairs were measured; errors hold given that decision."
        )
    yield "\n".join(notes)
