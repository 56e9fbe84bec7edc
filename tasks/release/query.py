"""Questions to a published bundle: estimates with intervals, without data, ledger or budget.

Answers come from the noisy tables that were measured, never from synthetic records.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statpress.mechanisms.domain.columns import Column, labels
from statpress.mechanisms.errors import NotMeasuredError, QueryError
from statpress.mechanisms.marginals.marginals import Marginals
from statpress.mechanisms.marginals.population import Sample
from statpress.mechanisms.marginals.residuals import query
from statpress.tasks.bundle.manifest import verify_bundle
from statpress.tasks.products.noisy_tables import published_marginals
from statpress.tasks.products.published_counts import understood

MISSING = "missing"
"""How a condition names the cell of nulls."""
_MOST_CELLS = 10_000


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        columns: Whose cells are listed; empty for one sum.
        conditions: Per further or listed column the values to count, as they are published.
        product: Which one; by default the only one that can answer.
        confidence: Of the intervals.
        population: Whether the privacy units are a random sample of the population that is asked
            for. Intervals are for the expected number of records of as many units then.
    """

    columns: tuple[str, ...]
    conditions: Mapping[str, tuple[str, ...]]
    product: str | None = None
    confidence: float = 0.95
    population: bool = False


def ask(folder: Path, question: Question) -> dict[str, Any]:
    """Answer a question from a bundle.

    Returns:
        The product, and ``cells``: of each its values, estimate, standard error and interval, in
        records; for a population also the ``sample``, and the share and its limits if every
        unit is one record.

    Raises:
        BundleVerificationError: The bundle is not whole, or not readable by this version.
        QueryError: No product can answer, or a column or a value is not there.
        NotMeasuredError: No measured table holds these columns together.
    """
    verify_bundle(folder)
    with understood(folder):
        stated = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))["products"]
        package = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))
        resources = {resource["path"]: resource for resource in package["resources"]}
        able = [name for name, facts in stated.items() if facts["mechanism"] == Marginals.name]
    name = _chosen(question, able, folder)
    release = published_marginals(folder, name, stated[name], resources)
    domain = release.domain
    names = tuple(dict.fromkeys((*question.columns, *question.conditions)))
    if not names:
        raise QueryError("No column is named.", next_step="Name some with --columns or --where.")
    for column in names:
        if column not in domain.names:
            raise QueryError(
                f"The product '{name}' has no column '{column}'.",
                where=str(folder),
                next_step=f"Its columns: {', '.join(domain.names)}.",
            )
    positions = [domain.names.index(column) for column in names]
    conditions = {
        column: _values(domain[column], written) for column, written in question.conditions.items()
    }
    allowed = [_allowed(domain[column], conditions.get(column)) for column in names]
    listed = [np.flatnonzero(keep) for keep in allowed[: len(question.columns)]]
    if np.prod([float(len(codes)) for codes in listed]) > _MOST_CELLS:
        raise QueryError(
            f"These columns have more than {_MOST_CELLS:,} cells to list.",
            next_step="Use fewer columns, or conditions on them.",
        )
    residuals = release.residuals()
    sample = None
    if question.population:
        most = stated[name]["unit_records"]
        sample = Sample(n_units=release.n_records // most, unit_records=most, absent=domain.absent)
    called = [named_cells(domain[column]) for column in question.columns]
    cells = []
    for codes in itertools.product(*listed):
        masks = [_only(code, keep) for code, keep in zip(codes, allowed, strict=False)]
        masks += allowed[len(codes) :]
        try:
            answer = query(
                residuals,
                positions,
                _outer(masks),
                confidence=question.confidence,
                sample=sample,
            )
        except NotMeasuredError as error:
            listing = next(path for path in resources if path.startswith(f"data/{name}_pairs."))
            error.next_step = f"Ask about columns that were measured together: see {listing}."
            raise
        share = {}
        if sample is not None and not sample.absent:
            figures = {
                "share": answer.value, "share_lower": answer.lower, "share_upper": answer.upper
            }  # fmt: skip
            share = {key: figure / release.n_records for key, figure in figures.items()}
        names_of = [known[code] for known, code in zip(called, codes, strict=True)]
        cells.append(
            {
                "values": dict(zip(question.columns, names_of, strict=True)),
                "estimate": answer.value,
                "standard_error": answer.standard_error,
                "lower": answer.lower,
                "upper": answer.upper,
                **share,
            }
        )
    return {
        "product": name,
        "columns": list(question.columns),
        "where": {column: list(values) for column, values in conditions.items()},
        "confidence": question.confidence,
        "of": "a population" if question.population else "these records",
        "chosen_by_noisy_scores": (
            stated[name]["score_scale"] is not None or "triple_share" in stated[name]
        ),
        **({"sample": asdict(sample)} if sample else {}),
        "cells": cells,
    }


def conditions_of(written: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Conditions as a command line has them, ``column=value,value``."""
    conditions: dict[str, tuple[str, ...]] = {}
    for condition in written:
        column, equals, values = condition.partition("=")
        if not equals or not column or not values:
            raise QueryError(
                f"'{condition}' is not a condition.", next_step="Write COLUMN=VALUE after --where."
            )
        if column in conditions:
            raise QueryError(
                f"The column '{column}' has two conditions.",
                next_step="Name all its values in one, with commas between them.",
            )
        conditions[column] = tuple(values.split(","))
    return conditions


def named_cells(column: Column) -> list[str]:
    """How conditions and answers name the cells of a column, by code."""
    return [MISSING if label is None else label for label in labels(column)]


def _chosen(question: Question, able: Sequence[str], folder: Path) -> str:
    """The name of the product that answers."""
    wanted = question.product
    if wanted is None and len(able) == 1:
        return able[0]
    if wanted is not None and wanted in able:
        return wanted
    if not able:
        raise QueryError(
            "No product of this bundle answers questions.",
            where=str(folder),
            next_step="Microdata by 'marginals' do. Counts of tables are in data/, each with its"
            " standard error.",
        )
    problem = f"The product '{wanted}' cannot" if wanted else "It is not clear which product should"
    raise QueryError(
        f"{problem} answer questions.",
        where=str(folder),
        next_step=f"Products that can, by --product: {', '.join(able)}.",
    )


def _values(column: Column, written: Sequence[str]) -> tuple[str, ...]:
    """The values that a condition names; of parts that make values with commas, the longest."""
    known, values, start = named_cells(column), [], 0
    while start < len(written):
        ends = range(len(written), start, -1)
        end = next((end for end in ends if ",".join(written[start:end]) in known), None)
        if end is None:
            shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise QueryError(
                f"The column '{column.name}' has no cell '{written[start]}'.",
                where=column.name,
                next_step=f"Its cells: {shown}.",
            )
        values.append(",".join(written[start:end]))
        start = end
    return tuple(dict.fromkeys(values))


def _allowed(column: Column, values: Sequence[str] | None) -> NDArray[np.bool_]:
    """bool[k]: which codes a condition counts; all without one."""
    if values is None:
        return np.ones(column.size, dtype=np.bool_)
    return np.array([label in values for label in named_cells(column)], dtype=np.bool_)


def _only(code: Any, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    mask = np.zeros(len(keep), dtype=np.bool_)
    mask[code] = True
    return mask


def _outer(masks: Sequence[NDArray[np.bool_]]) -> NDArray[np.float64]:
    """float64 of the masks' lengths: 1 where all are true."""
    weights = np.ones(())
    for mask in masks:
        weights = np.multiply.outer(weights, mask.astype(np.float64))
    return weights
