"""The files of estimates: intervals, what was released, sampling distributions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechanisms.estimates.kind import ESTIMATE
from mechanisms.estimates.mechanism import EstimateMechanism, finite
from mechanisms.estimates.released import Estimate, RawEstimates, SamplingDistribution
from mechanisms.planning.plan import Plan, PlannedProduct
from tasks.formats.registry import read_rows
from tasks.formats.writing import Progress, write_columns
from tasks.products.estimate.part import part_of
from tasks.products.estimate.true_errors import estimate_errors
from tasks.products.kind import ProductKind, ReportPart, TableForm, described, plain_file
from tasks.products.markdown import escaped
from tasks.products.true_errors import TrueErrors

if TYPE_CHECKING:
    from configs.models.release import PublishConfig

Planned = PlannedProduct[EstimateMechanism]

COLUMNS = {
    "quantity": ("string", "What is estimated, in the units of the config."),
    "estimate": ("number", "As released; may lie outside what is possible. Null: there is none."),
    "lower": ("number", "Lower end of the interval. Null: it has none."),
    "upper": ("number", "Upper end of the interval. Null: it has none."),
    "confidence": ("number", "Level of the interval."),
    "standard_error": ("number", "Of the estimate, sampling and noise together, where known."),
    "valid": (
        "boolean",
        "Whether the interval's approximation can be trusted; if not, it is as wide as can be.",
    ),
    "method": ("string", "The mechanism."),
    "noise_sd": (
        "number",
        "Expected standard deviation of the noise in the estimate, for records spread evenly; "
        "not a part of 'standard_error', which goes by what was released.",
    ),
    "expected_width": (
        "number",
        "Of the interval, from public quantities only, for records spread evenly. Null: no end.",
    ),
    "cells": (
        "integer",
        "How many cells of the column the interval spans. 1: it is one cell, which only narrower "
        "cells could tell apart. Null: it does not end at cells.",
    ),
    "shape": (
        "string",
        "What the confidence set is: an interval, a half line, the whole line, the whole range "
        "of what is possible, or the complement of an interval, which is all from 'lower' to "
        "'upper' but for the values between 'gap_lower' and 'gap_upper'.",
    ),
    "gap_lower": ("number", "Where the excluded values begin. Null: none are excluded."),
    "gap_upper": ("number", "Where they end. Null: none are excluded."),
    "inference": (
        "string",
        "How the level is known. guaranteed: it holds for every population in the declared bounds. "
        "asymptotic: by normal approximation, at most 1.5 points below it for rare values. "
        "approximate: some populations whose rare values decide are covered less often.",
    ),
}
"""Columns of the file of estimates: type and description."""

DISTRIBUTION = {
    "quantity": ("string", "What is estimated."),
    "point": ("number", "A value of the estimate."),
    "mass": (
        "number",
        "Share of estimates there if the survey were taken again: recovered from replicates, or "
        "a normal approximation.",
    ),
}
"""Columns of the file of sampling distributions."""


@dataclass(frozen=True)
class DerivedEstimates:
    """What was released, with the estimates that follow from it."""

    raw: RawEstimates
    estimates: tuple[Estimate, ...]
    distributions: tuple[SamplingDistribution, ...]


class EstimateProduct(ProductKind[EstimateMechanism, RawEstimates, DerivedEstimates]):
    """Estimates in the folder of a bundle."""

    core = ESTIMATE

    def postprocess(self, product: Planned, raw: RawEstimates, n_records: int) -> DerivedEstimates:
        mechanism = product.mechanism
        return DerivedEstimates(raw, mechanism.estimates(raw), mechanism.distributions(raw))

    def forms(self, product: Planned) -> list[TableForm]:
        return [
            TableForm(
                product.name, described(COLUMNS), title="estimates with confidence intervals"
            ),
            TableForm(
                f"{product.name}_distribution",
                described(DISTRIBUTION),
                title="sampling distributions of the estimates",
            ),
        ]

    def write_table(
        self,
        form: TableForm,
        product: Planned,
        derived: DerivedEstimates,
        path: Path,
        advance: Progress,
    ) -> None:
        if form.stem == product.name:
            write_columns(_rows(product, derived.estimates), path, form.fields)
        else:
            write_columns(_distribution_rows(derived.distributions), path, form.fields)

    def rows(self, form: TableForm, product: Planned, derived: DerivedEstimates) -> int:
        if form.stem == product.name:
            return len(product.expected_error.quantities)
        return sum(len(each.points) for each in derived.distributions)

    def profile_table(
        self, form: TableForm, product: Planned, derived: DerivedEstimates, path: Path
    ) -> dict[str, int]:
        """Rows, names, and intervals or masses that cannot be, as written."""
        table = read_rows(path)
        names = [field["name"] for field in form.fields]
        profile = {
            "rows": len(table),
            "schema": int(any(list(row) != names for row in table)),
        }
        if form.stem == product.name:
            return profile | {"ends out of order": sum(not _in_order(row) for row in table)}
        return profile | {"masses below 0": sum(row["mass"] < 0 for row in table)}

    def size(self, product: Planned) -> int:
        """The distributions are most of it."""
        return 10_000 * len(product.expected_error.quantities)

    def rehearse(self, folder: Path, product: Planned, publish: PublishConfig) -> None:
        """Nothing of it depends on declared values."""

    def write_others(
        self,
        folder: Path,
        product: Planned,
        derived: DerivedEstimates,
        publish: PublishConfig,
    ) -> None:
        """The raw numbers."""
        name = product.name
        raw = folder / "data" / f"{name}_raw.json"
        raw.write_text(json.dumps(raw_facts(derived.raw), indent=1) + "\n", encoding="utf-8")

    def other_resources(self, product: Planned, publish: PublishConfig) -> list[dict[str, Any]]:
        name = product.name
        return [
            plain_file(f"{name}_raw", f"data/{name}_raw.json", "the numbers that were released")
        ]

    def advice(self, product: Planned, plan: Plan) -> str:
        """What is estimated, and how wide the interval may be."""
        expected = product.expected_error
        listed = "; ".join(
            f"{quantity}, expected width {'without end' if width is None else f'{width:.4g}'}"
            for quantity, width in zip(
                map(escaped, expected.quantities), expected.width, strict=True
            )
        )
        return (
            f"- `{product.name}`: estimates with intervals at level "
            f"{product.request.knobs.confidence:g} by the mechanism `{product.mechanism.name}` "
            f"({listed})."
        )

    def notes(self, products: Sequence[Planned]) -> list[str]:
        """What the intervals mean."""
        return [
            "**Intervals** are for the population of which the records are a sample of "
            "independent ones, and hold both the sampling error and the noise. The confidential "
            "records themselves would give the estimate but for the noise. Where `valid` is "
            "false, too little was released for an approximation, and the interval is as wide as "
            "it can be. An interval is `approximate` where populations with rare values may be "
            "covered less often, `guaranteed` where it covers every population within the bounds "
            "that the config declares for the column: values beyond them count as the nearest "
            "bound, in the estimate too. `shape` says where a confidence set is not an interval: "
            "what was released may leave even the whole line. "
            "Where `cells` is 1, it is one cell of the declared column, and only "
            "narrower cells could tell more."
        ]

    def true_errors(self, product: Planned, derived: DerivedEstimates, private: Any) -> TrueErrors:
        """Every estimate next to its value on the confidential records."""
        return estimate_errors(product, derived, private)

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """Quantities, estimates and intervals, and how the estimates would vary."""
        return part_of(folder, name, stated, resources)


def raw_facts(drawn: RawEstimates) -> dict[str, Any]:
    """What was released, as JSON values that lose nothing."""
    return {
        "n_records": drawn.n_records,
        "numbers": {name: list(values) for name, values in drawn.numbers.items()},
    }


def _in_order(row: dict[str, Any]) -> bool:
    return all(
        row[low] is None or row[high] is None or bool(row[low] <= row[high])
        for low, high in (("lower", "upper"), ("gap_lower", "gap_upper"))
    )


def _rows(product: Planned, found: Sequence[Estimate]) -> dict[str, list[Any]]:
    expected = product.expected_error
    return {
        "quantity": [each.quantity for each in found],
        "estimate": [finite(each.value) for each in found],
        "lower": [finite(each.lower) for each in found],
        "upper": [finite(each.upper) for each in found],
        "confidence": [each.confidence for each in found],
        "standard_error": [finite(each.standard_error) for each in found],
        "valid": [each.valid for each in found],
        "method": [product.mechanism.name] * len(found),
        "noise_sd": list(expected.noise_sd),
        "expected_width": list(expected.width),
        "cells": [each.cells for each in found],
        "shape": [each.shape for each in found],
        "gap_lower": [each.gap and each.gap[0] for each in found],
        "gap_upper": [each.gap and each.gap[1] for each in found],
        "inference": [each.inference for each in found],
    }


def _distribution_rows(found: Sequence[SamplingDistribution]) -> dict[str, list[Any]]:
    return {
        "quantity": [each.quantity for each in found for _ in each.points],
        "point": [float(point) for each in found for point in each.points],
        "mass": [float(mass) for each in found for mass in each.masses],
    }
