"""Plots of estimates: their sampling distributions, with the intervals shaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mechanisms.estimates.released import Estimate, SamplingDistribution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_estimates(
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
