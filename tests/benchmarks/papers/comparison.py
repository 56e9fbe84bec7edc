"""Errors of several releases of the same data, measured in pairs, and how they are shown."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

T = TypeVar("T")
Key = tuple[float, float, str]


@dataclass(frozen=True)
class Estimate:
    """A mean or a ratio of means, with its Monte-Carlo standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.standard_error:.3f}"


@dataclass
class Comparison:
    """Errors by panel of the figure, place on its x axis, and curve.

    The i-th error of every curve is of the i-th data set, so a ratio of two means has
    the standard error of their paired difference, not of two separate runs. A curve with
    fewer errors than the baseline is compared with the first of those.

    Attributes:
        panel, x, error: What a panel, the x axis and the errors are, for the labels.
        baseline: The curve that ratios are to.
        errors: Of each panel, place and curve, in order of the data sets.
        parameters: Of the mechanism behind a curve, if any.
    """

    panel: str
    x: str
    error: str
    baseline: str
    errors: dict[Key, list[float]] = field(default_factory=dict)
    parameters: dict[Key, str] = field(default_factory=dict)

    def add(self, key: Key, error: float, parameters: str = "") -> None:
        """One more error of a curve."""
        self.errors.setdefault(key, []).append(error)
        self.parameters[key] = parameters

    @property
    def panels(self) -> list[float]:
        return list(dict.fromkeys(panel for panel, _, _ in self.errors))

    @property
    def places(self) -> list[float]:
        return list(dict.fromkeys(place for _, place, _ in self.errors))

    @property
    def curves(self) -> list[str]:
        return list(dict.fromkeys(curve for _, _, curve in self.errors))

    def mean(self, panel: float, place: float, curve: str) -> Estimate:
        errors = np.array(self.errors[panel, place, curve])
        return Estimate(float(errors.mean()), float(errors.std(ddof=1)) / math.sqrt(len(errors)))

    def ratio(self, panel: float, place: float, curve: str) -> Estimate:
        """Mean error over that of the baseline; the error by linearisation."""
        errors = np.array(self.errors[panel, place, curve])
        base = np.array(self.errors[panel, place, self.baseline][: len(errors)])
        value = float(errors.mean() / base.mean())
        spread = float((errors - value * base).std(ddof=1))
        return Estimate(value, spread / (math.sqrt(len(base)) * float(base.mean())))

    def write_csv(self, path: Path) -> None:
        """A row per panel, place and curve."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                [self.panel, self.x, "curve", "repetitions", "mean_error", "standard_error"]
                + ["ratio", "ratio_standard_error", "parameters"]
            )
            for key, errors in self.errors.items():
                mean, ratio = self.mean(*key), self.ratio(*key)
                writer.writerow(
                    [*key, len(errors), f"{mean.value:.8g}", f"{mean.standard_error:.3g}"]
                    + [f"{ratio.value:.6g}", f"{ratio.standard_error:.3g}"]
                    + [self.parameters.get(key, "")]
                )

    def markdown(self, panel: float, places: Sequence[float] | None = None) -> str:
        """Table of ratios to the baseline: a row per curve, a column per place."""
        shown = self.places if places is None else places
        head = [f"| {self.panel} = {panel:g} |" + "|".join(f" {x:g} " for x in shown) + "|"]
        head.append("|---|" + "---|" * len(shown))
        for curve in self.curves:
            keys = [(panel, place, curve) for place in shown]
            cells = [str(self.ratio(*key)) if key in self.errors else "" for key in keys]
            head.append(f"| {curve} | {' | '.join(cells)} |")
        return "\n".join(head)

    def plot(self, path: Path, *, log_x: bool) -> None:
        """Mean errors, a panel beside the other; bars of two standard errors."""
        figure = new_figure(5.5 * len(self.panels) + 3, 6)
        axes = figure.subplots(1, len(self.panels), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, self.panels, strict=True):
            for i, curve in enumerate(self.curves):
                places = [x for x in self.places if (panel, x, curve) in self.errors]
                means = [self.mean(panel, place, curve) for place in places]
                axis.errorbar(
                    places,
                    [mean.value for mean in means],
                    [2 * mean.standard_error for mean in means],
                    label=curve,
                    color="black" if curve == self.baseline else f"C{i % 10}",
                    linestyle=("-", "--", ":")[i // 10 if curve != self.baseline else 0],
                    linewidth=1.2,
                )
            axis.set(title=f"{self.panel} = {panel:g}", xlabel=self.x, yscale="log")
            if log_x:
                axis.set_xscale("log")
            axis.grid(alpha=0.3)
        axes[0].set_ylabel(self.error)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", fontsize=8)
        figure.savefig(path, dpi=150)


def new_figure(width: float, height: float) -> Any:
    """An empty figure of so many inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def progress(steps: Sequence[T], description: str) -> Iterable[T]:
    """The same steps, with a bar on standard error."""
    return track(steps, description, console=Console(stderr=True))


def options(description: str, arguments: Sequence[str] | None) -> tuple[bool, Path]:
    """Whether the quick form is wanted, and the folder to write to, which is made."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer places and repetitions")
    parser.add_argument("--output", type=Path, default=Path("build/papers"), metavar="DIR")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    return given.quick, given.output
