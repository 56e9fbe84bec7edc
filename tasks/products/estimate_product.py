"""Estimates with intervals in a bundle: files, report and true errors.

What the report says of estimates: their intervals in words, and as charts.
The true errors of estimates: each next to its value on the confidential records.
The files of estimates: intervals, what was released, sampling distributions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from statpress.mechanisms.estimates.estimate import (
    ESTIMATE,
    Estimate,
    EstimateMechanism,
    RawEstimates,
    SamplingDistribution,
    finite,
)
from statpress.mechanisms.estimates.exact_values import exact_values
from statpress.mechanisms.estimates.fieller import INTERVAL, normal_quantile
from statpress.mechanisms.planning.plan import Plan, PlannedProduct
from statpress.tasks.bundle.file_formats import read_rows, written_file
from statpress.tasks.bundle.rows import value_rows
from statpress.tasks.pages.blocks import (
    Block,
    Chart,
    Curves,
    Fact,
    Gallery,
    Grid,
    Intervals,
    Line,
    Prose,
    Section,
    Span,
)
from statpress.tasks.pages.numbers import interval, measured, plain, share
from statpress.tasks.pages.rendering import escaped
from statpress.tasks.products.distributions import Reading, TrackedFigure
from statpress.tasks.products.product_kind import ProductKind, ReaderWords, ReportPart
from statpress.tasks.products.publication import DataTable, OtherFile, Publication, described
from statpress.tasks.products.true_errors import Compared, TrueErrors, compared

_WORDS = "estimates with intervals"
_KNOWN = {
    "guaranteed": "guaranteed for every population within the declared bounds",
    "asymptotic": "by normal approximation; at most 1.5 points less for rare values",
    "approximate": "approximate: less where rare values decide",
    "one variance": (
        "by normal approximation, if residuals have one variance whatever the predictors are; less "
        "where rare values decide"
    ),
}
_MOST_CHARTS = 12
_MOST_IN_A_LINE = 4
_MOST_POINTS = 400
_ALIKE = 20.0
"""How many times wider one interval may be than another on the same axis."""

Row = Mapping[str, Any]


_COUNTS_ONE = {
    "unit": (
        "Each unit counts one, however many records it has: its records share one equally, or for "
        "a quantile, a guaranteed interval or resamples one of them, drawn at random, stands for "
        "the unit. The population is one of units."
    ),
    "record": (
        "Each record counts one of those that were kept of each unit. Units are taken as "
        "independent and the records of one are not: the interval is as wide as if all records of "
        "a unit were alike, so that it covers more often than it says where they differ."
    ),
}
"""What counts one, for units that may have several records."""


def _table(rows: Sequence[Row]) -> Grid:
    cells = [
        [
            row["quantity"],
            measured(row["estimate"]),
            _set_in_words(row),
            share(row["confidence"]),
            trust(row),
        ]
        for row in rows
    ]
    headings = ("quantity", "estimate", "interval", "level", "how the level is known")
    return Grid(headings, cells)


def _set_in_words(row: Row) -> str:
    """The confidence set: an interval as a rule."""
    words = interval(row["lower"], row["upper"])
    if row.get("gap_lower") is not None:
        words += f", but for {measured(row['gap_lower'])} to {measured(row['gap_upper'])}"
    if row.get("shape") not in (None, INTERVAL):
        words += f" ({row['shape']})"
    return words


def trust(row: Row) -> str:
    """How the level of an interval is known, in words.

    >>> trust({"valid": True, "inference": "guaranteed", "cells": 1})
    'guaranteed for every population within the declared bounds; the interval is one cell of the \
column, and only narrower cells could tell more'
    """
    if not row["valid"]:
        return "not valid: too little was released for an approximation; it is as wide as it can be"
    words = _KNOWN.get(row.get("inference") or "asymptotic", str(row.get("inference")))
    if row.get("cells") == 1:
        words += "; the interval is one cell of the column, and only narrower cells could tell more"
    return words


def _together(rows: Sequence[Row]) -> list[Chart]:
    """All estimates on one axis, where there are several of about the same width and size."""
    ends = [(row["lower"], row["upper"]) for row in rows]
    if len(rows) < 2 or any(end is None for pair in ends for end in pair):
        return []
    widths = [high - low for low, high in ends]
    reach = max(high for _, high in ends) - min(low for low, _ in ends)
    narrow = min(widths)
    if narrow <= 0 or max(widths) > _ALIKE * narrow or reach > 3 * _ALIKE * narrow:
        return []
    drawing = Intervals(
        [row["quantity"] for row in rows],
        [row["estimate"] for row in rows],
        [low for low, _ in ends],
        [high for _, high in ends],
    )
    words = "; ".join(
        f"{row['quantity']}: {interval(*end)}" for row, end in zip(rows, ends, strict=True)
    )
    figures = [[row["quantity"], measured(row["estimate"]), _set_in_words(row)] for row in rows]
    data = Grid(("quantity", "estimate", "interval"), figures, title="Figures", folded=True)
    return [Chart("All estimates with their intervals", drawing, words, data)]


def _distributions(folder: Path, name: str, rows: Sequence[Row]) -> list[Chart]:
    """Of each estimate how it would vary, with its interval shaded."""
    path = written_file(folder, f"{name}_distribution")
    found: dict[str, list[tuple[float, float]]] = {}
    for each in read_rows(path) if path is not None else ():
        found.setdefault(each["quantity"], []).append((each["point"], each["mass"]))
    charts = []
    for row in rows:
        if len(points := found.get(row["quantity"], [])) < 3:
            continue
        x, mass = np.array(sorted(points)).T
        density = mass / np.gradient(x)
        kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_POINTS)).astype(np.int64))
        at = row["estimate"]
        marks = [] if at is None else [(float(at), float(np.interp(at, x, density)))]
        line = Line("", x[kept].tolist(), density[kept].tolist())
        span = Span("", row["lower"], row["upper"])
        few = np.unique(np.linspace(0, len(x) - 1, 15).astype(np.int64))
        figures = [[measured(x[k]), measured(mass[:k].sum(), 3)] for k in few]
        data = Grid(
            ("value", "share of surveys below it"), figures,
            title="Figures", note=f"All points are in data/{name}_distribution.", folded=True,
        )  # fmt: skip
        words = f"Distribution of {row['quantity']} around {measured(at)}; {_set_in_words(row)}."
        charts.append(
            Chart(
                row["quantity"],
                Curves([line], "", "how often, were the survey taken again", [span], marks),
                words,
                data,
                f"Shaded: the interval at {plain(100 * row['confidence'])} %.",
            )
        )
    return charts


def _typical(rows: Sequence[Row]) -> Fact | None:
    """The first estimate with its interval."""
    row = next((each for each in rows if each["valid"] and each["estimate"] is not None), None)
    if row is None:
        return None
    level = share(row["confidence"])
    return Fact(
        "An estimate, for example",
        measured(row["estimate"]),
        f"{row['quantity']}; {level} interval {interval(row['lower'], row['upper'])}",
    )


_ABOUT = (
    "The true value is the estimate that the confidential records themselves would give, without "
    "noise. The intervals are about the population of which these records are a sample, and allow "
    "for sampling too: one that does not hold the value of the records may hold that of the "
    "population, and most hold both. The promise is for records spread evenly over the declared "
    "ranges: of a variance, covariance, correlation, regression or ratio the noise depends on the "
    "records, and a bootstrap's estimates vary with its draws besides."
)
_CHANCE = 0.99


def noise_of_one(quantity: str, sd: float | None, error: float) -> Compared:
    """A single error beside the mean that is promised, and how far chance lets it be from that.

    Of normal noise 42 of 100 errors pass their mean and 23 pass it by half: no promise is broken.
    """
    words = f"{quantity}: noise, mean absolute"
    promised = None if sd is None else sd * math.sqrt(2 / math.pi)
    found = compared(words, promised, error)
    if sd is None or not (0 < sd < math.inf) or not math.isfinite(error):
        return found
    most = normal_quantile(_CHANCE) * sd
    allowed = "as" if error <= most else "more than"
    return found._replace(verdict=f"{allowed} chance allows, up to {measured(most, 3)}")


def holds(found: Estimate, true: float) -> bool:
    """Whether a confidence set holds a value: from end to end, but for its gap."""
    if not found.lower <= true <= found.upper:
        return False
    return found.gap is None or not found.gap[0] < true < found.gap[1]


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
        "asymptotic: by normal approximation, at most 1.5 points below it for rare values, "
        "and missing at most 1.3 times as often as stated. "
        "approximate: some populations whose rare values decide are covered less often, or, of a "
        "quotient whose denominator is of few records, releases that have an interval are. "
        "one variance: of a regression, by normal approximation if the residuals have one variance "
        "whatever the predictors are, and less where rare values decide.",
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

    def publication(self, product: Planned, derived: DerivedEstimates | None = None) -> Publication:
        """Estimates, sampling distributions and the raw numbers."""
        name, quantities = product.name, len(product.expected_error.quantities)
        estimates = DataTable(
            stem=name,
            fields=described(COLUMNS),
            title="estimates with confidence intervals",
            most_rows=quantities,
            check=_ends_out_of_order,
        )
        distribution = DataTable(
            stem=f"{name}_distribution",
            fields=described(DISTRIBUTION),
            title="sampling distributions of the estimates",
            most_rows=_MOST_MASSES * quantities,
            check=_masses_below_0,
        )
        raw = OtherFile(
            f"data/{name}_raw.json",
            f"{name}_raw",
            "the numbers that were released",
            most_values=(
                _MOST_VALUES * quantities - Publication((estimates, distribution)).most_values
            ),
        )
        if derived is not None:
            masses = sum(len(each.points) for each in derived.distributions)
            estimates = replace(
                estimates, expected=quantities, rows=value_rows(_rows(product, derived.estimates))
            )
            distribution = replace(
                distribution,
                expected=masses,
                rows=value_rows(_distribution_rows(derived.distributions)),
            )
            raw = replace(raw, text=json.dumps(raw_facts(derived.raw), indent=1) + "\n")
        return Publication((estimates, distribution), (raw,))

    def tracked(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> Iterator[TrackedFigure]:  # fmt: skip
        """Every estimate."""
        path = written_file(folder, name)
        for row in read_rows(path) if path is not None else ():
            numbers = (row[part] for part in ("estimate", "lower", "upper", "standard_error"))
            quantity, reading = row["quantity"], Reading.of(*numbers)
            yield TrackedFigure(quantity, (), quantity, reading, row["confidence"], "population")

    def words(self, product: Planned, plan: Plan) -> ReaderWords:
        """What is estimated, how wide the interval may be, and what intervals mean."""
        expected = product.expected_error
        listed = [
            f"{quantity}, expected width {'without end' if width is None else f'{width:.4g}'}"
            for quantity, width in zip(
                map(escaped, expected.quantities), expected.width, strict=True
            )
        ]
        item = (
            f"- `{product.name}`: estimates with intervals at level "
            f"{product.request.knobs.confidence:g} by the mechanism `{product.mechanism.name}`"
        )
        if len(listed) <= _MOST_IN_A_LINE:
            item += f" ({'; '.join(listed)})."
        else:
            item = "\n  - ".join([f"{item}:", *listed])
        per = product.request.knobs.per
        counted = {f"each {per}": _COUNTS_ONE[per]} if per else {}
        return ReaderWords(item, {"intervals": _INTERVALS, **counted})

    def true_errors(self, product: Planned, derived: DerivedEstimates, private: Any) -> TrueErrors:
        """Every estimate next to its value on the confidential records."""
        exact = exact_values(product.request.knobs, private, product.mechanism.terms.scales)
        rows, compared_rows, inside = [], [], 0
        expected = product.expected_error
        for found, true, sd in zip(derived.estimates, exact, expected.noise_sd, strict=True):
            held = holds(found, true)
            inside += held
            error = abs(found.value - true)
            rows.append(
                [
                    found.quantity,
                    measured(found.value),
                    measured(true),
                    measured(error),
                    "" if sd is None else measured(sd),
                    interval(found.lower, found.upper),
                    "yes" if held else "no",
                ]
            )
            compared_rows.append(noise_of_one(found.quantity, sd, error))
        level = share(derived.estimates[0].confidence)
        of = len(derived.estimates)
        verdict = "about the population, so that most hold the records' value too"
        compared_rows.append(
            Compared(
                "intervals that hold the value of the records", level, f"{inside} of {of}", verdict
            )
        )
        headings = (
            "quantity", "released", "true, of the records", "error", "sd of the noise, promised",
            "interval", "holds it",
        )  # fmt: skip
        blocks: list[Block] = [Prose([_ABOUT]), Grid(headings, rows)]
        return TrueErrors(compared_rows, Section(f"product-{product.name}", product.name, blocks))

    def part(
        self, folder: Path, name: str, stated: Mapping[str, Any],
        resources: Sequence[Mapping[str, Any]],
    ) -> ReportPart:  # fmt: skip
        """Quantities, estimates and intervals, and how the estimates would vary."""
        del resources
        anchor = f"product-{name}"
        lead = Prose(
            [
                "Each interval is about the population of which the records are a sample. It "
                "allows for two errors at once: that only a sample was asked, and the noise of "
                "this release. Of 100 such releases, about as many intervals hold the true value "
                f"as the level says. {_MIDDLES}",
                *([_COUNTS_ONE[stated["per"]]] if stated.get("per") else ()),
            ]
        )
        path = written_file(folder, name)
        if path is None:  # before anything is drawn
            return ReportPart(_WORDS, Section(anchor, name, [lead]))
        rows = read_rows(path)
        blocks: list[Block] = [lead, _table(rows)]
        charts = [*_together(rows), *_distributions(folder, name, rows)]
        if charts:
            blocks.append(Gallery(charts[:_MOST_CHARTS]))
        if len(charts) > _MOST_CHARTS:
            left = len(charts) - _MOST_CHARTS
            blocks.append(
                Prose([f"{left} more distributions are in data/{name}_distribution."], "note")
            )
        return ReportPart(_WORDS, Section(anchor, name, blocks), _typical(rows))


_MIDDLES = (
    "Values are those of the declared cells, a number the middle of its own: what wide cells hide "
    "is in no interval."
)
_INTERVALS = (
    "**Intervals** are for the population of which the records are a sample of "
    "independent ones, and hold both the sampling error and the noise. The confidential "
    f"records themselves would give the estimate but for the noise. {_MIDDLES} Expected "
    "widths are for records spread evenly over the declared range. Where `valid` is "
    "false, too little was released for an approximation, and the interval is as wide as "
    "it can be. An interval is `approximate` where populations with rare values may be "
    "covered less often, `guaranteed` where it covers every population within the bounds "
    "that the config declares for the column: values beyond them count as the nearest "
    "bound, in the estimate too. That of a coefficient with `one variance` takes residuals to have "
    "one variance, whatever the predictors are. `shape` says where a confidence set is not an "
    "interval: what was released may leave even the whole line. "
    "Where `cells` is 1, it is one cell of the declared column, and only "
    "narrower cells could tell more."
)
_MOST_MASSES, _MOST_VALUES = 3_000, 10_000
"""Points of the sampling distribution of an estimate, and values in all files of it, at most."""


def _ends_out_of_order(path: Path) -> dict[str, int]:
    """Intervals that cannot be, as written."""
    return {"ends out of order": sum(not _in_order(row) for row in read_rows(path))}


def _masses_below_0(path: Path) -> dict[str, int]:
    """Masses that cannot be, as written."""
    return {"masses below 0": sum(row["mass"] < 0 for row in read_rows(path))}


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


FILES = EstimateProduct()
