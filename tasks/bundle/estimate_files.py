"""The files of estimates: intervals, what was released, sampling distributions, a plot."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.release import PublishConfig
from mechanisms.estimates.mechanism import (
    Estimate,
    RawEstimates,
    SamplingDistribution,
    estimate_mechanism,
    finite,
)
from mechanisms.planning.plan import Plan, PlannedProduct
from tasks.bundle.plots import check_plots, drawn_to
from tasks.formats.registry import read_batches
from tasks.formats.writing import Progress, write_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        "Of the interval, from public quantities alone, for records spread evenly. Null: no end.",
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


class EstimateFiles:
    """Estimates in the folder of a bundle."""

    def values(self, product: PlannedProduct) -> int:
        """The distributions are most of it."""
        return 10_000 * len(product.expected_error.quantities)

    def rehearse(self, folder: Path, product: PlannedProduct, publish: PublishConfig) -> None:
        """See that plots can be drawn.

        Raises:
            ConfigError: The library for plots is not installed.
        """
        if publish.plots:
            check_plots(where=f"products.{product.request.name}")

    def write(
        self,
        folder: Path,
        product: PlannedProduct,
        drawn: Any,
        plan: Plan,
        publish: PublishConfig,
        advance: Progress,
    ) -> None:
        """Raw numbers, estimates, distributions and the plot."""
        name, mechanism = product.request.name, estimate_mechanism(product.mechanism)
        raw = folder / "data" / f"{name}_raw.json"
        raw.write_text(json.dumps(raw_facts(drawn), indent=1) + "\n", encoding="utf-8")
        found, distributions = mechanism.estimates(drawn), mechanism.distributions(drawn)
        for suffix in publish.formats:
            write_columns(_rows(product, found), folder / "data" / f"{name}.{suffix}")
            points = _distribution_rows(distributions)
            write_columns(points, folder / "data" / f"{name}_distribution.{suffix}")
        if publish.plots:
            title = f"{name}: estimates by {mechanism.name}"
            drawn_to(folder, name, lambda figure: _plot(figure, title, found, distributions))

    def profile(
        self,
        folder: Path,
        product: PlannedProduct,
        drawn: Any,
        plan: Plan,
        publish: PublishConfig,
    ) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
        """Rows, names, and intervals whose ends are in order, as written."""
        name, mechanism = product.request.name, estimate_mechanism(product.mechanism)
        profiles, rows = {}, {}
        distributions = mechanism.distributions(drawn)
        for suffix in publish.formats:
            path = folder / "data" / f"{name}.{suffix}"
            table = list(_read(path))
            profiles[path.name] = {
                "rows": len(table),
                "schema": int(any(list(row) != list(COLUMNS) for row in table)),
                "ends out of order": sum(not _in_order(row) for row in table),
            }
            rows[path.name] = len(product.expected_error.quantities)
            path = folder / "data" / f"{name}_distribution.{suffix}"
            points = list(_read(path))
            profiles[path.name] = {
                "rows": len(points),
                "schema": int(any(list(row) != list(DISTRIBUTION) for row in points)),
                "masses below 0": sum(row["mass"] < 0 for row in points),
            }
            rows[path.name] = sum(len(each.points) for each in distributions)
        return profiles, rows

    def resources(self, product: PlannedProduct, publish: PublishConfig) -> list[dict[str, Any]]:
        """The estimates, the distributions, the raw numbers and the plot."""
        name = product.request.name
        found = []
        for suffix in publish.formats:
            for stem, columns in ((name, COLUMNS), (f"{name}_distribution", DISTRIBUTION)):
                fields = [
                    {"name": column, "type": kind, "description": words}
                    for column, (kind, words) in columns.items()
                ]
                found.append(
                    {
                        "name": f"{stem}-{suffix}".lower(),
                        "path": f"data/{stem}.{suffix}",
                        "format": suffix,
                        "schema": {"fields": fields},
                    }
                )
        found.append(_resource(f"{name}_raw", f"data/{name}_raw.json", "json"))
        if publish.plots:
            found.append(_resource(f"{name}_plot", f"plots/{name}.png", "png"))
        return found

    def stated(self, product: PlannedProduct, drawn: Any) -> dict[str, Any]:
        """Nothing beside its loss: what was released lies in a file of its own."""
        return {}

    def advice(self, product: PlannedProduct, plan: Plan) -> str:
        """What is estimated, and how wide the interval may be."""
        expected = product.expected_error
        listed = "; ".join(
            f"{quantity}, expected width {'without end' if width is None else f'{width:.4g}'}"
            for quantity, width in zip(expected.quantities, expected.width, strict=True)
        )
        return (
            f"- `{product.request.name}`: estimates with intervals at level "
            f"{product.request.knobs.confidence:g} by the mechanism `{product.mechanism.name}` "
            f"({listed})."
        )

    def notes(self, products: Sequence[PlannedProduct]) -> list[str]:
        """What the intervals mean."""
        return [
            "**Intervals** are for the population of which the records are a sample of "
            "independent ones, and hold both the sampling error and the noise. The confidential "
            "records themselves would give the estimate but for the noise. Where `valid` is "
            "false, too little was released for an approximation, and the interval is as wide as "
            "it can be."
        ]


def raw_facts(drawn: RawEstimates) -> dict[str, Any]:
    """What was released, as JSON values that lose nothing."""
    return {
        "n_records": drawn.n_records,
        "numbers": {name: list(values) for name, values in drawn.numbers.items()},
    }


def raw_from(facts: Any) -> RawEstimates:
    """Read back what ``raw_facts`` wrote.

    Raises:
        ValueError: It is nothing of the kind.
    """
    numbers = {name: tuple(values) for name, values in facts["numbers"].items()}
    if not all(type(v) in (int, float) for values in numbers.values() for v in values):
        raise ValueError("a released number is none")
    return RawEstimates(numbers, int(facts["n_records"]))


def _resource(name: str, path: str, form: str) -> dict[str, Any]:
    return {"name": name.replace("_", "-").lower(), "path": path, "format": form}


def _in_order(row: dict[str, Any]) -> bool:
    low, high = row["lower"], row["upper"]
    return low is None or high is None or bool(low <= high)


def _rows(product: PlannedProduct, found: Sequence[Estimate]) -> dict[str, list[Any]]:
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
    }


def _distribution_rows(found: Sequence[SamplingDistribution]) -> dict[str, list[Any]]:
    return {
        "quantity": [each.quantity for each in found for _ in each.points],
        "point": [float(point) for each in found for point in each.points],
        "mass": [float(mass) for each in found for mass in each.masses],
    }


def _read(path: Path) -> Any:
    for batch in read_batches(path, None):
        yield from batch.to_pylist()


def _plot(
    figure: Figure,
    title: str,
    found: Sequence[Estimate],
    distributions: Sequence[SamplingDistribution],
) -> None:
    """A panel an estimate: its sampling distribution, with the interval shaded."""
    figure.suptitle(title)
    panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    known = {each.quantity: each for each in distributions}
    for panel, estimate in zip(panels, found, strict=True):
        low, high = estimate.lower, estimate.upper
        if math.isfinite(low) and math.isfinite(high):
            panel.axvspan(low, high, alpha=0.2, label=f"{estimate.confidence:.0%} interval")
        if math.isfinite(estimate.value):
            panel.axvline(estimate.value, color="black", label="estimate")
        if estimate.quantity in known:
            each = known[estimate.quantity]
            steps = np.gradient(each.points)
            panel.plot(each.points, each.masses / steps, label="sampling distribution")
        panel.set_xlabel(
            estimate.quantity if estimate.valid else f"{estimate.quantity} (not valid)"
        )
        panel.set_yticks([])
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize="small")
