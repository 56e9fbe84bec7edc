"""Figures 1 and 2 of Aldà and Rubinstein, "The Bernstein Mechanism" (2017).

Largest error over the cube of a private kernel density (figure 1) and of a support vector
machine (figure 2), against epsilon, averaged over fresh noise on the same data:

* the paper's mechanism, k = 20, noise of scale S(F) (k + 1)^d / epsilon, h = 1 to 8, and the
  best of these at each epsilon, which a user could not know;
* its baseline, the noisy value at the nearest lattice point;
* this project's: the sensitivity of the whole lattice, k and h from public quantities.

The paper does not print its bandwidth; figure 1 takes 0.03 (the normal reference rule, 1.06
times the deviation times n^(-1/5)) and two wider ones. For figure 2 it does not print k either,
and its S(F) = M C / n is half of what replacing a record needs
(mechanisms.functions.risk): it is used as it stands, though its noise then costs 2
epsilon.

    python -m tests.benchmarks.papers.bernstein [--quick] [--output DIR]
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from statpress.mechanisms.domain.columns import Categorical, Numeric
from statpress.mechanisms.domain.contingency_table import ContingencyTable
from statpress.mechanisms.domain.domain import Domain
from statpress.mechanisms.functions.function_targets import axes_of
from statpress.mechanisms.functions.kernels import KernelDensity, ProductKernel
from statpress.mechanisms.functions.lattice_release import BernsteinMechanism, integer_values
from statpress.mechanisms.functions.learner import Learner
from statpress.mechanisms.functions.polynomials import iterated_basis, lattice
from statpress.mechanisms.functions.risk import EmpiricalRisk
from statpress.mechanisms.mechanism import Target
from statpress.tasks.release.entropy import SeededRandomness
from tests.benchmarks.papers.comparison import new_figure

Floats = NDArray[np.float64]

SEED = 20170211
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
QUICK_EPSILONS = (0.01, 0.5, 10.0)
REPETITIONS, QUICK_REPETITIONS = 1000, 10
BANDWIDTHS = (0.03, 0.05, 0.1)
K, ORDERS = 20, range(1, 9)
DELTA = 1e-6

DENSITY_RECORDS, DENSITY_CELLS = 5000, 500
CLASS_RECORDS, SIDE_CELLS = 1500, 50
PLACES = {1: 1000, 2: 60}  # intervals of the grid on which the largest error is looked for

BEST, CONSTANT = "paper, best h", "piecewise constant"
OURS, OURS_GAUSSIAN = "ours", f"ours, Gaussian, δ = {DELTA:g}"
SHARP = "paper's k and best h, our sensitivity"


@dataclass(frozen=True)
class Setting:
    """One function to release.

    Attributes:
        name: Of the panel.
        learner: Ours.
        table: The private data.
        paper_sensitivity: S(F) as the paper prints it.
    """

    name: str
    learner: Learner
    table: ContingencyTable
    paper_sensitivity: float
    n_records: int


@dataclass(frozen=True)
class Row:
    """Mean largest error of one curve at one epsilon."""

    panel: str
    epsilon: float
    curve: str
    mean: float
    standard_error: float
    parameters: str


def density_setting(bandwidth: float) -> Setting:
    """5000 draws of 0.4 N(0.5, 0.02) + 0.6 N(0.75, 0.005), clamped to [0, 1]."""
    rng = np.random.default_rng(SEED)
    first = rng.random(DENSITY_RECORDS) < 0.4
    x = np.where(
        first,
        rng.normal(0.5, math.sqrt(0.02), DENSITY_RECORDS),
        rng.normal(0.75, math.sqrt(0.005), DENSITY_RECORDS),
    )
    column = Numeric(name="x", edges=Numeric.uniform_edges(0, 1, DENSITY_CELLS))
    domain = Domain((column,))
    cells = np.array([column.code_of(value) for value in x])
    table = ContingencyTable.from_cells(domain, cells, np.ones_like(cells))
    kernel = ProductKernel("gaussian", axes_of(domain, ["x"]), (bandwidth,))
    learner = KernelDensity(kernel, DENSITY_RECORDS)
    return Setting(
        f"b = {bandwidth:g}", learner, table, kernel.peak / DENSITY_RECORDS, DENSITY_RECORDS
    )


def classifier_setting() -> Setting:
    """1500 points of each class, clamped to the unit square; RBF kernel, C = sigma = 1."""
    rng = np.random.default_rng([SEED, 2])
    positive = rng.multivariate_normal([0.3, 0.5], 0.01 * np.eye(2), CLASS_RECORDS)
    negative = rng.multivariate_normal(
        [0.6, 0.4], 0.01 * np.array([[1, 0.8], [0.8, 1.5]]), CLASS_RECORDS
    )
    columns = tuple(
        Numeric(name=name, edges=Numeric.uniform_edges(0, 1, SIDE_CELLS)) for name in ("x", "y")
    )
    label = Categorical(name="label", categories=("negative", "positive"))
    domain = Domain((*columns, label))
    codes = {
        c.name: np.array([c.code_of(v) for v in np.concatenate([positive, negative])[:, i]])
        for i, c in enumerate(columns)
    }
    codes["label"] = np.repeat([1, 0], CLASS_RECORDS)
    cells = domain.encode(codes)
    n = 2 * CLASS_RECORDS
    learner = EmpiricalRisk(
        axes=axes_of(domain, ["x", "y"]), label=label, loss="hinge", n_records=n, width=1.0
    )
    table = ContingencyTable.from_cells(domain, cells, np.ones_like(cells))
    return Setting("SVM", learner, table, 1.0 / n, n)


def on_grid(values: Floats, order: int, places: Floats) -> Floats:
    """Iterated polynomials on a grid: float64[r, (k + 1,) * d] to float64[r, (m,) * d]."""
    basis = iterated_basis(values.shape[1] - 1, order, places)
    for _ in range(values.ndim - 1):
        values = np.tensordot(values, basis, axes=(1, 0))
    return values


def largest(found: Floats, truth: Floats) -> Floats:
    """float64[r], the largest differences on the grid."""
    return np.abs(found - truth).reshape(len(found), -1).max(axis=1)


def batches(repetitions: int, points: int) -> Iterator[int]:
    """Repetitions in parts that fit into memory."""
    size = max(1, (1 << 22) // points)
    for start in range(0, repetitions, size):
        yield min(size, repetitions - start)


def calibrated(setting: Setting, noise: str, epsilon: float) -> BernsteinMechanism:
    target = Target(
        epsilon=epsilon,
        delta=0.0 if noise == "laplace" else DELTA,
        n_records=setting.n_records,
        n_cells=setting.table.domain.n_cells,
    )
    return BernsteinMechanism.calibrate(setting.learner, noise, target)


def released(mechanism: BernsteinMechanism, exact: NDArray[np.int64], count: int, seed: int):
    """What ``mechanism.release`` gives, so many times: float64[count, (k + 1,) * d]."""
    rng = SeededRandomness(np.random.PCG64([SEED, seed]))
    draw = rng.discrete_laplace if mechanism.noise == "laplace" else rng.discrete_gaussian
    noise = draw(mechanism.scale, count * mechanism.points).reshape(count, *exact.shape)
    return np.ldexp((exact + noise).astype(np.float64), -mechanism.step_bits)


def errors_at(
    setting: Setting, epsilon: float, repetitions: int, seed: int
) -> dict[str, tuple[Floats, str]]:
    """Largest errors of every curve, and what it was made with."""
    learner, dimensions = setting.learner, len(setting.learner.axes)
    intervals = PLACES[dimensions]
    places = lattice(intervals)
    truth = learner.values(setting.table, intervals)
    values, points = learner.values(setting.table, K), (K + 1) ** dimensions
    nearest = np.ix_(*[np.rint(places * K).astype(int)] * dimensions)
    scales = {
        "paper": setting.paper_sensitivity * points / epsilon,
        "sharp": learner.sensitivity(K).l1 / epsilon,
    }
    found: dict[str, list[Floats]] = {}
    rng = np.random.default_rng([SEED, 1, seed])
    for count in batches(repetitions, truth.size):
        unit = rng.laplace(size=(count, *values.shape))
        for order in ORDERS:
            exact, noise = on_grid(values[None], order, places), on_grid(unit, order, places)
            for kind, scale in scales.items():
                errors = largest(exact + scale * noise, truth)
                found.setdefault(f"{kind}, h = {order}", []).append(errors)
        noisy = values + scales["paper"] * unit
        found.setdefault(CONSTANT, []).append(
            largest(np.stack([one[nearest] for one in noisy]), truth)
        )
    result = {}
    for curve, parts in found.items():
        scale = scales["sharp" if curve.startswith("sharp") else "paper"]
        result[curve] = np.concatenate(parts), f"k={K} scale={scale:.4g}"
    for name, kind in ((BEST, "paper"), (SHARP, "sharp")):
        curves = [f"{kind}, h = {order}" for order in ORDERS]
        best = min(curves, key=lambda curve: float(result[curve][0].mean()))
        result[name] = result[best][0], f"{result[best][1]} {best.split(', ')[1]}"
        if kind == "sharp":
            for curve in curves:
                del result[curve]
    for name, noise in ((OURS, "laplace"), (OURS_GAUSSIAN, "gaussian")):
        mechanism = calibrated(setting, noise, epsilon)
        integers = integer_values(learner, setting.table, mechanism.degree)
        parts = [
            largest(
                on_grid(
                    released(mechanism, integers, count, 1000 * seed + i), mechanism.order, places
                ),
                truth,
            )
            for i, count in enumerate(batches(repetitions, truth.size))
        ]
        result[name] = (
            np.concatenate(parts),
            f"k={mechanism.degree} h={mechanism.order} scale={mechanism.noise_scale:.4g}"
            f" foreseen={mechanism.expected_sup_error():.4g}",
        )
    return result


def measure(settings: Sequence[Setting], epsilons: Sequence[float], repetitions: int) -> list[Row]:
    """Every curve at every epsilon."""
    steps = [(setting, i, epsilon) for setting in settings for i, epsilon in enumerate(epsilons)]
    rows = []
    for setting, i, epsilon in track(steps, "Releases", console=Console(stderr=True)):
        for curve, (errors, made) in errors_at(setting, epsilon, repetitions, i).items():
            deviation = float(errors.std(ddof=1)) / math.sqrt(len(errors))
            rows.append(Row(setting.name, epsilon, curve, float(errors.mean()), deviation, made))
    return rows


def mean_of(rows: Sequence[Row], panel: str, epsilon: float, curve: str) -> float:
    return next(
        row.mean for row in rows if (row.panel, row.epsilon, row.curve) == (panel, epsilon, curve)
    )


def write(rows: Sequence[Row], repetitions: int, path: Path) -> None:
    """A row per panel, epsilon and curve."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["panel", "epsilon", "curve", "repetitions", "mean_sup_error", "standard_error"]
            + ["times_ours", "parameters"]
        )
        for row in rows:
            ratio = row.mean / mean_of(rows, row.panel, row.epsilon, OURS)
            writer.writerow(
                [row.panel, row.epsilon, row.curve, repetitions, f"{row.mean:.6g}"]
                + [f"{row.standard_error:.3g}", f"{ratio:.4g}", row.parameters]
            )


def plot(rows: Sequence[Row], path: Path) -> None:
    """Mean largest errors against epsilon, a panel beside the other."""
    panels = list(dict.fromkeys(row.panel for row in rows))
    figure = new_figure(5 * len(panels) + 3, 5)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    thick = {OURS: "C3-", OURS_GAUSSIAN: "C1-", CONSTANT: "k--", SHARP: "C2-"}
    for axis, panel in zip(axes, panels, strict=True):
        for curve in dict.fromkeys(row.curve for row in rows if row.curve != BEST):
            shown = [row for row in rows if (row.panel, row.curve) == (panel, curve)]
            style = thick.get(curve, "C0-")
            faint = 1.0 if curve in thick else 0.25 + 0.09 * int(curve[-1])
            axis.loglog(
                [row.epsilon for row in shown],
                [row.mean for row in shown],
                style,
                alpha=faint,
                label=curve,
            )
        axis.set(title=panel, xlabel="ε", ylabel="mean largest error")
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=150)


def plot_boundaries(setting: Setting, path: Path, epsilon: float = 10.0) -> None:
    """The classifier's boundary, and one release of it by the paper and by us."""
    places = lattice(PLACES[2])
    truth = setting.learner.values(setting.table, PLACES[2])
    scale = setting.paper_sensitivity * (K + 1) ** 2 / epsilon
    noise = np.random.default_rng([SEED, 3]).laplace(scale=scale, size=(1, K + 1, K + 1))
    paper = on_grid(setting.learner.values(setting.table, K) + noise, 1, places)[0]
    mechanism = calibrated(setting, "laplace", epsilon)
    exact = integer_values(setting.learner, setting.table, mechanism.degree)
    ours = on_grid(released(mechanism, exact, 1, 7), mechanism.order, places)[0]
    figure = new_figure(12, 4)
    shown = {
        "no privacy": truth,
        f"paper, k = {K}, h = 1, ε = {epsilon:g}": paper,
        f"ours, k = {mechanism.degree}, h = {mechanism.order}, ε = {epsilon:g}": ours,
    }
    for axis, (title, values) in zip(figure.subplots(1, 3), shown.items(), strict=True):
        most = float(np.abs(truth).max())
        axis.contourf(places, places, values.T, np.linspace(-most, most, 15), extend="both")
        axis.contour(places, places, truth.T, [0.0], colors="white", linestyles="--")
        axis.contour(places, places, values.T, [0.0], colors="black")
        axis.set(title=title)
    figure.savefig(path, dpi=150)


def summary(rows: Sequence[Row]) -> str:
    """Table of errors, and how many times ours the others are."""
    lines = ["| panel | ε | ours | k, h | paper, best h | constant | our sensitivity, k = 20 |"]
    lines.append("|---" * 7 + "|")
    for row in rows:
        if row.curve == OURS:
            others = (
                f"{mean_of(rows, row.panel, row.epsilon, other) / row.mean:.2f} ×"
                for other in (BEST, CONSTANT, SHARP)
            )
            made = " ".join(row.parameters.split()[:2])
            lines.append(
                f"| {row.panel} | {row.epsilon:g} | {row.mean:.4g} ± {row.standard_error:.1g} |"
                f" {made} | {' | '.join(others)} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> tuple[list[Row], list[Row]]:
    """Measure, write ``bernstein_1`` and ``_2`` as .csv and .png, print ratios."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer places and repetitions")
    parser.add_argument("--output", type=Path, default=Path("build/papers"), metavar="DIR")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    epsilons = QUICK_EPSILONS if given.quick else EPSILONS
    repetitions = QUICK_REPETITIONS if given.quick else REPETITIONS
    bandwidths = BANDWIDTHS[:1] if given.quick else BANDWIDTHS
    first = measure([density_setting(b) for b in bandwidths], epsilons, repetitions)
    classifier = classifier_setting()
    second = measure([classifier], epsilons, repetitions)
    plot_boundaries(classifier, given.output / "bernstein_2_boundaries.png")
    for name, rows in (("bernstein_1", first), ("bernstein_2", second)):
        write(rows, repetitions, given.output / f"{name}.csv")
        plot(rows, given.output / f"{name}.png")
        print(f"\n{name}: mean largest error, {repetitions} repetitions; others as times ours")
        print(summary(rows))
    print(f"\nWritten to {given.output}: bernstein_1 and _2, .csv and .png")
    return first, second


if __name__ == "__main__":
    main()
