"""``codebook.md``: what every column of every file means, for people; made of the data package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.package.column_facts import ColumnFacts, FileFacts, column_facts, file_facts
from tasks.products.markdown import code_span, escaped

NAME = "codebook.md"
_MOST_LISTED = 1000


def write_codebook(folder: Path, package: Mapping[str, Any]) -> Path:
    """Write the codebook of a bundle."""
    path = folder / NAME
    path.write_text(codebook_text(package), encoding="utf-8")
    return path


def codebook_text(package: Mapping[str, Any]) -> str:
    """The codebook as Markdown; the same package gives the same text."""
    columns, files = column_facts(package), file_facts(package)
    lines = [
        f"# Codebook: {escaped(package['title'])}",
        "",
        "Columns come first, then the files with what each of their columns holds. Values were "
        "put into the cells declared here before anything was counted, whatever the records hold.",
        "",
    ]
    if columns:
        lines += ["## Columns", ""]
    for column in columns:
        lines += _column(column)
    lines += ["## Files", ""]
    for file in files:
        lines += _file(file, {column.name for column in columns})
    return "\n".join(lines).rstrip() + "\n"


def _column(column: ColumnFacts) -> Iterator[str]:
    title = f": {escaped(column.title)}" if column.title else ""
    yield f"### {code_span(column.name)}{title}"
    yield ""
    if column.description:
        yield escaped(column.description)
        yield ""
    facts = {
        "Unit": escaped(column.unit),
        "Values": column.type,
        "Range": column.range,
        "Cells": column.cells,
        "Outside": column.outside,
        "Missing": column.missing,
        "Shown": _shown(column),
    }
    yield from (f"- {name}: {said}" for name, said in facts.items() if said)
    yield ""
    if column.categories:
        yield from _categories(column.categories)
        yield ""


def _shown(column: ColumnFacts) -> str:
    said = []
    if column.middles:
        said.append(f"in {_listed(column.middles)} as the middle of the cell")
    if column.within:
        said.append(
            f"in {_listed(column.within)} as a value drawn evenly within the cell, which says no "
            "more than the cell"
        )
    return "; ".join(said)


def _categories(categories: Sequence[tuple[str, str]]) -> Iterator[str]:
    labelled = any(label for _, label in categories)
    yield "| value | meaning |" if labelled else "| value |"
    yield "|---|---|" if labelled else "|---|"
    for value, label in categories[:_MOST_LISTED]:
        yield f"| {_cell(value)} | {escaped(label)} |" if labelled else f"| {_cell(value)} |"
    if len(categories) > _MOST_LISTED:
        yield ""
        yield f"And {len(categories) - _MOST_LISTED:,} more, which `datapackage.json` lists."


def _file(file: FileFacts, columns: set[str]) -> Iterator[str]:
    yield f"### {code_span(file.stem if file.fields else file.paths[0])}"
    yield ""
    if file.title:
        yield f"{escaped(file.title)}."
        yield ""
    if file.description:
        yield escaped(file.description)
        yield ""
    if not file.fields:
        return
    yield f"Files: {', '.join(map(code_span, file.paths))}"
    yield ""
    yield "| column | type | what it holds |"
    yield "|---|---|---|"
    for field in file.fields:
        words = escaped(field.words) or ("see above" if field.declared else "")
        yield f"| {_cell(field.name)} | {field.type} | {words} |"
    yield ""


def _listed(stems: Sequence[str]) -> str:
    return ", ".join(map(code_span, stems))


def _cell(text: str) -> str:
    """Text as code in a table, where a bar ends a cell even within code."""
    return code_span(text).replace("|", "\\|")
