"""What a command has to say, as facts for programs and as a report for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a command; only the form that is asked for is made.

    Attributes:
        json: Which form is asked for.
        facts: Makes the JSON object.
        report: Makes the text, or the parts that are printed one after the other.
    """

    json: bool
    facts: Callable[[], Mapping[str, Any]]
    report: Callable[[], str | Iterable[Any]]


def print_result(result: Result) -> None:
    """Print what a command returned, in the form that was asked for."""
    from flows.report.terminal import show, show_json

    if result.json:
        show_json(result.facts())
        return
    report = result.report()
    for part in (report,) if isinstance(report, str) else report:
        show(part)
