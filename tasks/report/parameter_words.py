"""What the report calls parameters of mechanisms and expected errors, with a sentence on each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from statpress.mechanisms.mechanism import shown
from statpress.mechanisms.registry import KINDS
from statpress.tasks.pages.numbers import measured, share

PARAMETERS: Mapping[str, str] = {
    "scale": "How wide the noise on each count is spread.",
    "pseudocount": "Added to the count of every cell before records are drawn, so that every "
    "combination of values can occur; the estimates have it taken off again.",
    "records": "How many synthetic records are drawn.",
    "published_records": "How many synthetic records are published.",
    "blocks": "Neighbouring cells that share a further noisy count.",
    "uniform": "This share of the records is drawn from nothing but the list of cells.",
    "bins": "Into how many cells a column is cut.",
    "bandwidth": "How far the estimate is smoothed.",
    "degree": "How fine a shape the released polynomial can take.",
    "order": "How often the approximation is repeated; the more often, the less it is smoothed.",
    "shape": "What the function is known to be, and made to be.",
    "noise": "The distribution that the noise is drawn from.",
    "confidence": "How often an interval holds the true value.",
    "replicates": "How often the records are drawn again to see how estimates vary.",
    "subsamples": "Into how many parts the records are split.",
    "subsample_size": "How many records each part has.",
    "mu": "The whole loss as the distance of two normal distributions that it is as hard to tell "
    "apart (Gaussian differential privacy).",
    "groups": "Which tables of several columns get noise and are published.",
    "within_cells": "Where in its cell a number of the synthetic records lies.",
    "epsilon_per_record": "What the choice of one quantile costs.",
    "distance": "How near the drawn records are kept to the confidential ones.",
    "candidates": "Among how many synthetic tables one is chosen.",
}
"""By the name of a parameter what it does; others are left to ``privacy.json``."""

EXPECTED: Mapping[str, tuple[str, str]] = {
    "cell_sd_average": ("typical standard error of a cell", "In records, over all cells."),
    "cell_sd_empty": ("standard error of an empty cell", "In records."),
    "cell_sd_most": ("standard error of the fullest cell that there could be", "In records."),
    "total_variation": (
        "share of records in the wrong cell, estimates as they are",
        "Total variation distance between estimates and source, at most, on average.",
    ),
    "projected_total_variation": (
        "share of records in the wrong cell, negative counts corrected",
        "The same of the file's column 'projected'.",
    ),
    "kolmogorov_smirnov": (
        "largest error of a cumulative share",
        "Kolmogorov-Smirnov distance, on average.",
    ),
    "one_way_total_variation": (
        "share of records in the wrong cell, of one column",
        "Total variation distance of the distribution of a single column, on average.",
    ),
    "pair_total_variation": (
        "share of records in the wrong cell, of two columns",
        "The same of the joint table of two columns.",
    ),
    "uniform_share": (
        "share of records that are uniform",
        "They were drawn from the list of cells; the estimates have them taken off.",
    ),
    "width": ("width of the interval", "In the units of the quantity."),
    "noise_sd": (
        "standard deviation of the noise in the estimate",
        "In the units of the quantity, without the sampling of the records.",
    ),
    "sup_error": ("largest error of the function", "In its units, at the worst point."),
    "bound_95": (
        "largest error of the function, with 95 %",
        "Whatever the data are, it is not above this more often than 1 time in 20.",
    ),
    "noise": ("what noise adds to the largest error", "In the units of the function."),
    "approximation": (
        "what the polynomial misses of the function",
        "In its units; without any noise there would be this error still.",
    ),
    "noise_sd_middle": ("standard deviation of the noise in the middle", "In its units."),
    "confidence": ("level of the bands", "How often no limit is wrong."),
    "cell_band_records": ("half the width of the band of cells", "In records."),
    "cell_band_share": ("half the width of the band of cells", "In shares of the population."),
    "cumulative_band_records": ("half the width of the cumulative band", "In records."),
    "cumulative_band_share": (
        "half the width of the band of the distribution function",
        "In shares of the population.",
    ),
}
"""By the name of an expected error its words, and what it means."""

_ALSO = "An expected error by which plans are compared."
_SHARES = ("total_variation", "uniform_share", "kolmogorov_smirnov", "band_share")


def parameter_rows(stated: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The parameters of a product's mechanism: name, value, what it does."""
    for name, explanation in PARAMETERS.items():
        for label, value in shown({k: v for k, v in stated.items() if k == name}):
            # Noise of estimates and functions is on a grid, whose steps mean nothing.
            if name == "scale" and ("quantity_1" in stated or "step_bits" in stated):
                continue
            yield label, value, explanation


def expected_rows(stated: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What errors were expected before anything was drawn: name, value, what it means."""
    compared = {k: v for kind in KINDS.values() for k, v in kind.compared.items()}
    for name, value in stated["expected_error"].items():
        known = EXPECTED.get(name)
        if known is None and name in compared:
            known = compared[name], _ALSO
        values = value if isinstance(value, list) else [value]
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if known is None or not numbers or (name == "uniform_share" and not any(numbers)):
            continue
        write = share if name.endswith(_SHARES) else measured
        yield known[0], ", ".join(write(number) for number in numbers), known[1]
